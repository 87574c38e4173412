"""Findings with the same code and cause are shown as one line with a count."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpuctl.audit.decisions import name
from gpuctl.audit.report import FindingItem, WaiverItem


@dataclass(frozen=True, slots=True)
class Group:
    """Findings that one sentence tells. Never empty."""

    findings: tuple[FindingItem, ...]

    @property
    def first(self) -> FindingItem:
        """The finding that speaks for all."""
        return self.findings[0]

    @property
    def objects(self) -> tuple[str, ...]:
        """The objects concerned, each once, in order."""
        return tuple(dict.fromkeys(name(finding) for finding in self.findings))


def grouped(findings: Iterable[FindingItem]) -> tuple[Group, ...]:
    """The findings in groups, in the order of their first members."""
    groups: dict[tuple[str, str, str, WaiverItem | None], list[FindingItem]] = {}
    for finding in findings:
        key = (finding.code, finding.severity, finding.cause or finding.fingerprint, finding.waiver)
        groups.setdefault(key, []).append(finding)
    return tuple(Group(tuple(members)) for members in groups.values())
