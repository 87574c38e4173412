"""What changed between two reports: before and after a maintenance window, say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from gpuctl.audit.finding import Severity
from gpuctl.audit.judge import Verdict
from gpuctl.audit.outcome import Exit, counts
from gpuctl.audit.report import API_VERSION, AuditReport, FindingItem


class Turn(msgspec.Struct, frozen=True, rename="camel"):
    """An assertion whose verdict is not what it was. Empty means that it was not judged."""

    assertion: str
    statement: str
    before: str
    after: str


class Difference(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """`appeared` and `gone` are findings by fingerprint; `standing` counts those in both."""

    api_version: str = API_VERSION
    kind: str = "AuditDifference"
    appeared: tuple[FindingItem, ...]
    gone: tuple[FindingItem, ...]
    standing: int
    turns: tuple[Turn, ...]
    incomplete: bool

    @property
    def exit_code(self) -> Exit:
        """1 if something wrong appeared, 3 if the later report is incomplete or lacks assertions, else 0."""
        if any(each.severity != Severity.INFO and counts(each) for each in self.appeared):
            return Exit.FINDINGS
        return Exit.INCOMPLETE if self.incomplete else Exit.CLEAN


class _Line(NamedTuple):
    statement: str
    verdict: str


def difference(before: AuditReport, after: AuditReport) -> Difference:
    """What the later report has and the earlier has not, and the other way round.

    A finding that is missing where its assertion could not be judged is not gone: it is not known.
    """
    old, new = _findings(before), _findings(after)
    judged = {name for name, line in _lines(after).items() if line.verdict in {Verdict.PASS, Verdict.FAIL}}
    turns = tuple(_turns(before, after))
    return Difference(
        appeared=tuple(item for key, (_, item) in new.items() if key not in old),
        gone=tuple(item for key, (name, item) in old.items() if key not in new and name in judged),
        standing=len(old.keys() & new.keys()),
        turns=turns,
        incomplete=after.outcome.incomplete or any(not turn.after for turn in turns),
    )


def _findings(report: AuditReport) -> dict[str, tuple[str, FindingItem]]:
    """By fingerprint: the assertion's name and the finding."""
    return {
        finding.fingerprint: (f"{check.id}/{assertion.id}", finding)
        for check in report.checks
        for assertion in check.assertions
        for finding in assertion.findings
    }


def _lines(report: AuditReport) -> dict[str, _Line]:
    return {
        f"{check.id}/{assertion.id}": _Line(assertion.statement, assertion.verdict)
        for check in report.checks
        for assertion in check.assertions
    }


def _turns(before: AuditReport, after: AuditReport) -> Iterator[Turn]:
    old, new = _lines(before), _lines(after)
    absent = _Line("", "")
    for name in dict.fromkeys((*old, *new)):
        was, now = old.get(name, absent), new.get(name, absent)
        if was.verdict != now.verdict:
            yield Turn(name, now.statement or was.statement, was.verdict, now.verdict)
