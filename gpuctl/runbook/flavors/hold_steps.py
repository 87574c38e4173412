"""The steps of a simulated loss: a ClusterQueue admits nothing for a while, and is as it was after that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import msgspec

from gpuctl.facts.fact import Fact, Objects
from gpuctl.facts.gather import Facts
from gpuctl.facts.kinds import Kind, Ref, Rule, View
from gpuctl.kueue.objects import GROUP, ClusterQueue, ClusterQueueStatus, LocalQueue, ResourceGroup
from gpuctl.runbook.flavors.canaries import seconds_between, written_as
from gpuctl.runbook.flavors.own_journal import OWN_JOURNAL, first_begun
from gpuctl.runbook.objects import NumberedMeta, cluster_wide, targeted
from gpuctl.runbook.step import Step
from gpuctl.runbook.target import SELF
from gpuctl.runbook.writer import Change, Drop, Put, Test, Writer, pointer

HELD_BY: Final = "gpuctl.dev/held-by"
HOLD: Final = "Hold"
PATCHES_QUEUES: Final = Rule(GROUP, "clusterqueues", "patch")
LOCAL_QUEUES: Final = Objects(LocalQueue)
_POLICY: Final = "/spec/stopPolicy"


class HeldQueueSpec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """`stop_policy` is None where it is not written."""

    stop_policy: str | None = None
    resource_groups: tuple[ResourceGroup, ...] = ()


class HeldQueue(View, frozen=True):
    of: ClassVar[Kind] = ClusterQueue.of
    metadata: NumberedMeta
    spec: HeldQueueSpec = HeldQueueSpec()
    status: ClusterQueueStatus = ClusterQueueStatus()

    @property
    def stopped(self) -> str:
        """How it is stopped: empty, Hold or HoldAndDrain."""
        return "" if self.spec.stop_policy in (None, "None") else self.spec.stop_policy or ""


HELD_QUEUE: Final = targeted(HeldQueue, cluster_wide(HeldQueue.of))
QUEUE: Final = HELD_QUEUE.now


class Hold(Step, frozen=True, kw_only=True):
    """Stops a queue to the end of the run: nothing is admitted, and nothing evicted. `before`: what stood
    there; None for nothing."""

    held: ClassVar[bool] = True
    seconds: ClassVar[float] = 60.0

    queue: str
    queue_uid: str
    version: str
    before: str | None

    @property
    def says(self) -> str:
        return f"hold ClusterQueue {self.queue} (stopPolicy: Hold)"

    @property
    def undoes(self) -> str:
        back = "without stopPolicy, as it was" if self.before is None else f"stopPolicy: {self.before}"
        return f"let ClusterQueue {self.queue} admit again ({back})"

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        return (QUEUE, SELF)

    @property
    def rules(self) -> frozenset[Rule]:
        return frozenset({PATCHES_QUEUES})

    def _mark(self, facts: Facts) -> str:
        return facts[QUEUE].metadata.annotations.get(HELD_BY, "")

    def holds(self, facts: Facts) -> bool:
        return facts[QUEUE].spec.stop_policy == HOLD and self._mark(facts) == facts[SELF].run

    def stuck(self, facts: Facts) -> str:
        mark, policy = self._mark(facts), facts[QUEUE].spec.stop_policy
        if mark:
            held = f"ClusterQueue {self.queue} bears the mark of run {mark}"
            return f"{held}, and stopPolicy {policy}: somebody else changed it"
        if policy != self.before:
            return f"the stopPolicy of ClusterQueue {self.queue} is {policy} now: somebody else changed it"
        return ""

    def act(self, facts: Facts, writer: Writer) -> None:
        """One patch, so that a hold with the mark is ours, and one without is not."""
        annotations = facts[QUEUE].metadata.annotations
        mark: tuple[Change, ...] = (Test(_path(HELD_BY), None), Put(_path(HELD_BY), facts[SELF].run))
        if not annotations:
            mark = (
                Test("/metadata/annotations", None),
                Put("/metadata/annotations", {HELD_BY: facts[SELF].run}),
            )
        self._patch(writer, Test(_POLICY, self.before), Put(_POLICY, HOLD), *mark)

    def undone(self, facts: Facts) -> bool:
        return self._mark(facts) != facts[SELF].run

    def undo(self, facts: Facts, writer: Writer) -> None:
        """Also where somebody else has let it go: then the mark is all that is left."""
        changes: list[Change] = [Test(_path(HELD_BY), facts[SELF].run), Drop(_path(HELD_BY))]
        if facts[QUEUE].spec.stop_policy == HOLD:
            back = Drop(_POLICY) if self.before is None else Put(_POLICY, self.before)
            changes += (Test(_POLICY, HOLD), back)
        self._patch(writer, *changes)

    def _patch(self, writer: Writer, *changes: Change) -> None:
        writer.patch(Ref(written_as(HeldQueue.of, self.version), self.queue), self.queue_uid, changes)


def _path(annotation: str) -> str:
    return pointer("metadata", "annotations", annotation)


class Watch(Step, frozen=True, kw_only=True):
    """Looks for a while what waits. `pending`: how many did before."""

    once: ClassVar[bool] = True
    pause: ClassVar[float] = 1.0

    queue: str
    lasts: float
    pending: int

    @property
    def says(self) -> str:
        return f"watch for {self.lasts:g} s what waits in ClusterQueue {self.queue}"

    @property
    def limit(self) -> float:
        return self.lasts + 60.0

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        return (QUEUE, LOCAL_QUEUES, OWN_JOURNAL)

    def _since(self, facts: Facts) -> float:
        """Seconds since it was begun; a run that is taken up again goes on from there."""
        return seconds_between(first_begun(facts, self), facts.now) or 0.0

    def holds(self, facts: Facts) -> bool:
        return self._since(facts) >= self.lasts

    def progress(self, facts: Facts) -> str:
        return f"{facts[QUEUE].status.pending_workloads} wait, {self.pending} did before"

    def learned(self, facts: Facts) -> Mapping[str, Any]:
        status = facts[QUEUE].status
        waiting = {
            f"{each.metadata.namespace}/{each.metadata.name}": each.status.pending_workloads
            for each in facts[LOCAL_QUEUES]
            if each.spec.cluster_queue == self.queue and each.status.pending_workloads
        }
        return {
            "heldForSeconds": round(self._since(facts), 1),
            "pendingBefore": self.pending,
            "pendingAtTheEnd": status.pending_workloads,
            "grewBy": status.pending_workloads - self.pending,
            "whoWaited": [f"{name}: {count}" for name, count in sorted(waiting.items())],
            "admittedAndKept": status.admitted_workloads,
        }
