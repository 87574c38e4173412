"""The step that drains: pods are asked to go, within what the plan allows, until none is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, ClassVar, Final

from gpuctl.facts.fact import NOW, Fact, given
from gpuctl.facts.gather import Facts
from gpuctl.facts.kinds import Ref, Rule
from gpuctl.facts.state import Each, Reason, Unknown
from gpuctl.nvidia.objects import NodeView
from gpuctl.runbook.drain.budgets import Budget, covering
from gpuctl.runbook.drain.candidates import Candidate, DrainRules, Mode, Scope, concerned, listed, several
from gpuctl.runbook.drain.draining import (
    BUDGETS,
    CLAIMS,
    PODS,
    Draining,
    as_each,
    candidates,
    rules_of_the_drain,
)
from gpuctl.runbook.drain.pods import DrainPod
from gpuctl.runbook.drain.victims import Hurt, Victim, kind_of_owner
from gpuctl.runbook.plan import ALLOWED
from gpuctl.runbook.records import Bounds
from gpuctl.runbook.step import Step
from gpuctl.runbook.target import NODE, OPTIONS
from gpuctl.runbook.writer import Blocked, Conflict, WriteFailed, Writer

EVICTS: Final = Rule("", "pods/eviction", "create", namespaced=True)
DELETES: Final = Rule("", "pods", "delete", namespaced=True)


class Drain(Step, frozen=True, kw_only=True):
    """Evicts the pods of a node that must go, and waits until they are gone.

    `victims` are those of the plan, `by` the rules. Others may have come since: they are evicted within
    `bounds` alone, and whatever the plan does not allow stops the run. `since`: when the plan was made, from
    which the time counts that pods are given to end by themselves. `deletes`: in the place of evicting, past
    PodDisruptionBudgets.
    There is no way back: `undone` is always true.
    """

    pause: ClassVar[float] = 3.0

    node: str
    node_uid: str
    scope: Scope
    by: DrainRules
    bounds: Bounds
    victims: tuple[Victim, ...] = ()
    since: datetime
    deletes: bool = False

    @property
    def says(self) -> str:
        kind = "GPU pods" if self.scope is Scope.GPU else "pods"
        how = "deleting" if self.deletes else "evicting"
        count = sum(each.evicted for each in self.victims)
        return f"drain node {self.node} of its {kind}, {how} {count} of {len(self.victims)}"

    @property
    def limit(self) -> float:
        waits = any(each.mode is Mode.EVICT_AFTER for each in self.victims)
        return self.by.timeout + (60 * self.by.evict_after_minutes if waits else 0)

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        return (NODE, PODS, CLAIMS, BUDGETS)

    @property
    def rules(self) -> frozenset[Rule]:
        return frozenset({DELETES if self.deletes else EVICTS})

    @property
    def evicts(self) -> tuple[str, ...]:
        return tuple(each.uid for each in self.victims if each.evicted)

    def holds(self, facts: Facts) -> bool:
        """No pod that must go is there any more, also none that is on its way out."""
        return facts[NODE].metadata.uid == self.node_uid and not any(True for _ in self._left(facts))

    def stuck(self, facts: Facts) -> str:
        uid = facts[NODE].metadata.uid
        if uid != self.node_uid:
            return (
                f"node {self.node} was replaced by another of the same name: uid {uid}, not {self.node_uid}"
            )
        new = [each for each in self._known(facts) if each.evicted and not self._planned(each.pod)]
        budgets = as_each(facts.state(BUDGETS))
        for each in new:
            for why in self._beyond(each, budgets):
                return f"{each.pod.ref} appeared on node {self.node}, which the plan does not allow: {why}"
        count = sum(each.evicted for each in self.victims) + len(new)
        if new and count > self.bounds.evictions:
            names = listed([str(each.pod) for each in new])
            return f"{names} appeared: {count} evictions in all, the plan allows {self.bounds.evictions}"
        return ""

    def progress(self, facts: Facts) -> str:
        remaining = self._known(facts)
        return "; ".join((f"{several(len(remaining), 'pod')} to go", *self._waits(remaining, facts)))

    def act(self, facts: Facts, writer: Writer) -> None:
        """Each of them is asked; what fails for one keeps the others from nothing."""
        failures: list[WriteFailed] = []
        spent = _Spent(as_each(facts.state(BUDGETS)))
        for each in self._known(facts):
            if self._is_due(each, facts):
                try:
                    self._ask(each.pod, spent, writer)
                except Conflict:
                    continue  # it is gone, or another has its name, maybe elsewhere: looked at anew
                except WriteFailed as failed:
                    failures.append(failed)
        if failures:
            raise next((each for each in failures if each.hopeless), failures[0])

    def _ask(self, pod: DrainPod, spent: _Spent, writer: Writer) -> None:
        if self.deletes:
            writer.delete(pod.ref, pod.metadata.uid, self.by.grace)
            return
        blocked = writer.evict(pod.ref, pod.metadata.uid, self.by.grace)
        if blocked is None:
            spent.by(pod)
        elif not spent.explains(pod):
            raise _refused(pod, blocked)

    # Which pods

    def _left(self, facts: Facts) -> Each[Ref, Candidate]:
        told = candidates(facts[PODS], facts.state(CLAIMS), self.by)
        return concerned(told.map(self._as_planned), self.scope)

    def _known(self, facts: Facts) -> list[Candidate]:
        """Those known to have to go, in the order of their names."""
        found = [each for _, each in self._left(facts).known()]
        return sorted(found, key=lambda each: (each.pod.metadata.namespace, each.pod.metadata.name))

    def _as_planned(self, each: Candidate) -> Candidate:
        """The plan knows of some that nobody looks after any more, as of a DaemonSet that is gone."""
        spared = each.left and not each.pod.over
        return replace(each, left="") if spared and self._planned(each.pod) else each

    def _planned(self, pod: DrainPod) -> bool:
        return any(each.uid == pod.metadata.uid for each in self.victims)

    def _is_due(self, each: Candidate, facts: Facts) -> bool:
        if not each.evicted:
            return False
        return each.mode is Mode.EVICT or self.by.due(self.since, facts.now)

    def _beyond(self, each: Candidate, budgets: Each[Ref, Budget]) -> Iterator[str]:
        """In what way a pod that is not in the plan is not of the kind that it allows."""
        about, kind = each.pod.metadata, kind_of_owner(each.pod)
        if about.namespace not in self.bounds.namespaces:
            yield f"it is in namespace {about.namespace}"
        if kind not in self.bounds.owner_kinds:
            yield f"it belongs to a {kind}" if kind != "Pod" else "it belongs to no controller"
        if self._came_back(each.pod):
            yield "it was made anew in the place of one that went, and bound behind the cordon"
        for budget in covering(each.pod, budgets):
            if str(budget) not in self.bounds.budgets:
                yield f"it is under PodDisruptionBudget {budget}"
        for obstacle, why in each.obstacles:
            if obstacle not in self.by.accepted:
                yield why

    def _came_back(self, pod: DrainPod) -> bool:
        created = pod.metadata.creation_timestamp
        of_a_victim = pod.controller is not None and any(
            each.controller == pod.controller.uid for each in self.victims if each.controller
        )
        return of_a_victim and created is not None and created > self.since

    # What is waited for

    def _waits(self, remaining: list[Candidate], facts: Facts) -> Iterator[str]:
        ending = [f"{each.pod}{_overdue(each.pod, facts.now)}" for each in remaining if each.pod.ending]
        if ending:
            yield f"ending: {listed(ending)}"
        waiting = [
            str(each.pod) for each in remaining if not each.pod.ending and not self._is_due(each, facts)
        ]
        if waiting:
            yield f"given time to end: {listed(waiting)}"
        for budget, pods in self._held_back(remaining, facts).items():
            yield f"held back by PodDisruptionBudget {budget}: {listed(pods)}"

    def _held_back(self, remaining: list[Candidate], facts: Facts) -> dict[str, list[str]]:
        """The pods that may not be evicted now, by the budget with its numbers and its owner."""
        found: dict[str, list[str]] = {}
        for each in remaining if not self.deletes else ():
            for budget in _forbidding(each.pod, as_each(facts.state(BUDGETS))):
                name = f"{budget} ({budget.numbers}{budget.owner})"
                found.setdefault(name, []).append(str(each.pod))
        return found


class _Spent:
    """What of the budgets one round has used up since they were read."""

    def __init__(self, budgets: Each[Ref, Budget]) -> None:
        self._budgets = [each for _, each in budgets.known()]
        self._count: Counter[Ref] = Counter()

    def by(self, pod: DrainPod) -> None:
        """Notes an eviction."""
        self._count.update(each.ref for each in self._budgets if each.covers(pod))

    def explains(self, pod: DrainPod) -> bool:
        """Whether a refusal is what the budgets let expect: `progress` names them, or will."""
        return any(
            each.forbids(pod) or self._count[each.ref] >= max(1, each.status.disruptions_allowed)
            for each in self._budgets
            if each.covers(pod)
        )


def _forbidding(pod: DrainPod, budgets: Each[Ref, Budget]) -> tuple[Budget, ...]:
    return tuple(each for _, each in budgets.known() if each.covers(pod) and each.forbids(pod))


def _overdue(pod: DrainPod, now: datetime) -> str:
    """A pod's deletionTimestamp is when its time to end is over."""
    until = pod.metadata.deletion_timestamp
    return " (beyond its time)" if until and now > until else ""


def _refused(pod: DrainPod, blocked: Blocked) -> WriteFailed:
    return WriteFailed(Unknown(Reason.SERVER_ERROR, blocked.why, f"eviction of {pod.ref}"))


def drain_step(drain: Draining) -> Fact[Drain]:
    """The step that drains what must go now, within the bounds of the plan that is applied."""

    @given(NODE, drain.hurt, rules_of_the_drain, drain.scope, what_is_allowed(drain), since_and_how)
    def step_of_the_drain(
        node: NodeView,
        hurt: Each[Ref, Hurt],
        rules: DrainRules,
        scope: Scope,
        bounds: Bounds,
        rest: tuple[datetime, bool],
    ) -> Drain:
        return Drain(
            node=node.metadata.name,
            node_uid=node.metadata.uid,
            scope=scope,
            by=rules,
            bounds=bounds,
            victims=tuple(each.victim for each in hurt),
            since=rest[0],
            deletes=rest[1],
        )

    return step_of_the_drain


@given(NOW, OPTIONS)
def since_and_how(now: datetime, options: Mapping[str, Any]) -> tuple[datetime, bool]:
    return now, options.get("disable_eviction") is True


def what_is_allowed(drain: Draining) -> Fact[Bounds]:
    @given(drain.bounds, ALLOWED)
    def bounds_of_the_plan(now: Bounds, allowed: Bounds | None) -> Bounds:
        return allowed or now

    return bounds_of_the_plan
