"""Which permission which assertion needs. Follows from the declared facts; reads nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from gpuctl.audit.assertion import Assertion
from gpuctl.audit.check import Check
from gpuctl.facts.fact import Fact, graph
from gpuctl.facts.kinds import Rule

READING = frozenset({"get", "list", "watch"})
EXEC, PORT_FORWARD, PROXY = "pods/exec", "pods/portforward", "pods/proxy"
SECRETS = "secrets"


class Purpose(StrEnum):
    """What a permission is for. To `get` pods/exec or pods/proxy is no reading: it is enough to run commands,
    or to send requests to what runs in pods."""

    READING = "reading"
    DRY_RUN = "dry-run"
    PROBE = "probe"
    PORT_FORWARD = "port-forward"
    PROXY = "proxy"
    SECRET = "secret"  # noqa: S105 - a kind of object


@dataclass(frozen=True, slots=True)
class Grant:
    """One permission, and the assertions (`check/assertion`) that can't be judged without it.

    `more` are those that can, and say more with it; a check by itself if none of its assertions looks at it.
    """

    rule: Rule
    assertions: tuple[str, ...]
    more: tuple[str, ...] = ()

    @property
    def purpose(self) -> Purpose:
        """What the permission is for."""
        if self.rule.resource == EXEC:
            return Purpose.PROBE
        if self.rule.resource == PORT_FORWARD:
            return Purpose.PORT_FORWARD
        if self.rule.resource == PROXY:
            return Purpose.PROXY
        if self.rule.resource == SECRETS and not self.rule.group:
            return Purpose.SECRET
        return Purpose.READING if self.rule.verb in READING else Purpose.DRY_RUN

    @property
    def reads(self) -> bool:
        """Whether it is needed for reading; else for a proof."""
        return self.purpose is Purpose.READING


@dataclass(frozen=True, slots=True)
class _Uses:
    """Who uses a permission. The keys of a dict are a set that keeps its order."""

    needing: dict[str, None] = field(default_factory=dict)
    looking: dict[str, None] = field(default_factory=dict)

    def grant(self, rule: Rule) -> Grant:
        more = tuple(name for name in self.looking if name not in self.needing)
        return Grant(rule, tuple(self.needing), more)


Kinds = tuple[type[Fact[Any]], ...]


def grants(checks: Iterable[Check], without: Kinds = ()) -> tuple[Grant, ...]:
    """The permissions of these checks, in a stable order; `without` reads of these kinds, which a person may
    not want to be made."""
    uses: dict[Rule, _Uses] = {}
    for check in checks:
        for rule, name, needs in _uses(check, without):
            use = uses.setdefault(rule, _Uses())
            (use.needing if needs else use.looking)[name] = None
    return tuple(uses[rule].grant(rule) for rule in sorted(uses))


def _uses(check: Check, without: Kinds) -> Iterator[tuple[Rule, str, bool]]:
    """Each permission with whoever looks at what it gives, and whether that one depends on it."""
    for assertion in check.assertions:
        for fact in _read(assertion.needs, without):
            for rule in fact.rules:
                yield rule, f"{check.id}/{assertion.id}", _depends(check, assertion, fact)
    by_assertions = {rule for each in check.assertions for fact in graph(each.needs) for rule in fact.rules}
    for fact in _read(check.needs, without):
        for rule in fact.rules - by_assertions:
            yield rule, check.id, False


def _read(needs: Iterable[Fact[Any]], without: Kinds) -> Iterator[Fact[Any]]:
    return (fact for fact in graph(needs) if not isinstance(fact, without))


def _depends(check: Check, assertion: Assertion, fact: Fact[Any]) -> bool:
    depending = check.needed_for.get(fact)
    return depending is None or assertion in depending
