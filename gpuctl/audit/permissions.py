"""Which permission which assertion needs. Follows from the declared facts; reads nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpuctl.audit.check import Check
from gpuctl.facts.fact import rules
from gpuctl.facts.kinds import Rule

READING = frozenset({"get", "list", "watch"})


@dataclass(frozen=True, slots=True)
class Grant:
    """One permission, and the assertions (`check/assertion`) that can't be judged without it."""

    rule: Rule
    assertions: tuple[str, ...]

    @property
    def reads(self) -> bool:
        """Whether it is needed for reading; else for a proof."""
        return self.rule.verb in READING


def grants(checks: Iterable[Check]) -> tuple[Grant, ...]:
    """The permissions of these checks, in a stable order."""
    needed: dict[Rule, list[str]] = {}
    for check in checks:
        for assertion in check.assertions:
            for rule in rules(*assertion.needs):
                needed.setdefault(rule, []).append(f"{check.id}/{assertion.id}")
    return tuple(Grant(rule, tuple(needed[rule])) for rule in sorted(needed))
