"""Which permissions a runbook takes, where, and what for. Follows from its declared facts; reads nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gpuctl.audit.permissions import Grant
from gpuctl.facts.fact import Fact
from gpuctl.facts.kinds import Rule
from gpuctl.runbook.events import OF_THE_CLUSTER
from gpuctl.runbook.records import LEASES, RUN_MAPS
from gpuctl.runbook.runbook import Runbook

_PLAN: Final = "the plan"
_MORE: Final = "the plan says more"
_STEPS: Final = "its steps"
_STATE: Final = frozenset({LEASES, RUN_MAPS})


def _state(group: str, resource: str, verb: str, use: str) -> Grant:
    return Grant(Rule(group, resource, verb, namespaced=True), (use,))


_MAPS: Final = ("", "configmaps")
_LEASES: Final = ("coordination.k8s.io", "leases")
LOCKS_AND_JOURNALS: Final = (
    _state(*_MAPS, "create", "a journal is begun"),
    Grant(Rule(*_MAPS, "delete", namespaced=True), (), ("old journals are removed",)),
    _state(*_MAPS, "get", "a run is resumed, undone or given up"),
    _state(*_MAPS, "list", "no other run is at work"),
    _state(*_MAPS, "patch", "a journal is written"),
    _state(*_LEASES, "create", "the target and a slot are locked"),
    _state(*_LEASES, "delete", "the locks are released"),
    _state(*_LEASES, "get", "each write makes sure of the lock"),
    _state(*_LEASES, "list", "no other run is at work"),
    _state(*_LEASES, "patch", "a lock is kept, and handed on when a run is resumed"),
)
EVENTS: Final = Grant(
    Rule("", "events", "create", namespaced=True), (), ("an Event on what is changed is made",)
)


@dataclass(frozen=True, slots=True)
class Permissions:
    """In the whole cluster, what each flag that was asked for takes there beyond that, in the state
    namespace, and where Events are made: in one namespace, or in those of the targets (empty).

    A grant's `assertions` are what can't do without it, its `more` what comes of it where it can be left out.
    """

    cluster: tuple[Grant, ...]
    flags: Mapping[str, tuple[Grant, ...]] = field(default_factory=dict)
    state: tuple[Grant, ...] = LOCKS_AND_JOURNALS
    events: tuple[Grant, ...] = (EVENTS,)
    events_in: str = OF_THE_CLUSTER

    def places(self, state: str) -> Iterator[tuple[str, tuple[Grant, ...]]]:
        """By namespace, which is empty for the whole cluster. `state`: where locks and journals are kept."""
        yield "", (*self.cluster, *(each for grants in self.flags.values() for each in grants))
        yield state, self.state
        yield self.events_in, self.events


@dataclass(frozen=True, slots=True)
class _Uses:
    """Who uses a permission. The keys of a dict are a set that keeps its order."""

    needing: dict[str, None] = field(default_factory=dict)
    looking: dict[str, None] = field(default_factory=dict)

    def grant(self, rule: Rule) -> Grant:
        return Grant(rule, tuple(self.needing), () if self.needing else tuple(self.looking))


def permissions_of(book: Runbook, flags: Collection[str] = ()) -> Permissions:
    """What planning and applying the runbook take, with these of its flags."""
    uses: dict[Rule, _Uses] = {}
    for rule, who in _needed(book):
        uses.setdefault(rule, _Uses()).needing[who] = None
    for rule in _rules(_without(book.unheeded, book.needs)):
        uses.setdefault(rule, _Uses()).looking[_MORE] = None
    beyond = {flag: sorted(book.rules_with.get(flag, frozenset()) - uses.keys()) for flag in flags}
    return Permissions(
        tuple(uses[rule].grant(rule) for rule in sorted(uses)),
        {flag: tuple(Grant(rule, (f"{_STEPS} with {flag}",)) for rule in beyond[flag]) for flag in flags},
        events_in="" if book.in_namespaces else OF_THE_CLUSTER,
    )


def _needed(book: Runbook) -> Iterator[tuple[Rule, str]]:
    """Each permission without which a plan is blocked or a step fails, and who needs it."""
    can_miss = (*book.spared, *book.unheeded)
    for guard in book.guards:
        for rule in _rules(_without(can_miss, guard.needs)):
            yield rule, guard.id
    rest = (book.steps, book.preconditions, book.bounds, book.effects, book.target_uid)
    for rule in _rules(_without(can_miss, rest)):
        yield rule, _PLAN
    for rule in book.rules:
        yield rule, _STEPS


def _without(facts: Collection[Fact[Any]], wanted: Iterable[Fact[Any]]) -> Iterator[Fact[Any]]:
    """The wanted facts and all they rest on, but for these and what only they rest on."""
    left, seen = list(wanted), set(facts)
    while left:
        fact = left.pop()
        if fact not in seen:
            seen.add(fact)
            left += fact.needs
            yield fact


def _rules(facts: Iterable[Fact[Any]]) -> Iterator[Rule]:
    for fact in facts:
        if fact not in _STATE:
            yield from fact.rules
