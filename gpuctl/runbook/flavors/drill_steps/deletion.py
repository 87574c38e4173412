"""The flavor is deleted in use: it stays, nobody notices, and it goes once its queue has another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from gpuctl.facts.gather import Facts
from gpuctl.kueue.objects import ClusterQueue
from gpuctl.runbook.flavors.canaries import CANARIES, Canaries, active, seconds_between, written
from gpuctl.runbook.flavors.drill_steps.harm import admitted_so_far, harm, why_inactive
from gpuctl.runbook.flavors.drill_steps.step import PATIENCE, DrillStep, differences
from gpuctl.runbook.flavors.own_journal import begun, first_begun
from gpuctl.runbook.writer import Put, Test, Writer

STAYS: Final = 10.0  # seconds for which a flavor in use must outlive its deletion
_FLAVOR_OF_QUEUE: Final = "/spec/resourceGroups/0/flavors/0/name"


class DeleteFlavor(DrillStep, frozen=True, kw_only=True):
    """Asks for the flavor's deletion."""

    measures: ClassVar[str] = "secondsToNotice"

    @property
    def says(self) -> str:
        return f"delete ResourceFlavor {self.names.main}"

    def holds(self, facts: Facts) -> bool:
        flavor = facts[CANARIES].flavor
        return flavor is not None and flavor.metadata.deletion_timestamp is not None

    def stuck(self, facts: Facts) -> str:
        gone = facts[CANARIES].flavor is None
        return f"ResourceFlavor {self.names.main} was in use, and is gone: nothing kept it" if gone else ""

    def act(self, facts: Facts, writer: Writer) -> None:
        flavor = facts[CANARIES].flavor
        if flavor is not None:
            writer.delete(self.flavor_ref(), flavor.metadata.uid)


class StayTerminating(DrillStep, frozen=True, kw_only=True):
    """A flavor in use outlives its deletion, and nobody notices it."""

    measures: ClassVar[str] = "secondsTerminating"

    @property
    def says(self) -> str:
        return f"the flavor stays for {STAYS:g} s, its ClusterQueue Active, its Workload admitted"

    def holds(self, facts: Facts) -> bool:
        """By the clock of this machine, unless the run was taken up again meanwhile."""
        flavor = facts[CANARIES].flavor
        deleted = flavor.metadata.deletion_timestamp if flavor else None
        waited = seconds_between(begun(facts, self) or deleted, facts.now)
        is_begun = first_begun(facts, self) is not None
        return is_begun and not self.stuck(facts) and (waited or 0.0) >= STAYS

    def stuck(self, facts: Facts) -> str:
        canaries = facts[CANARIES]
        if canaries.flavor is None:
            return f"ResourceFlavor {self.names.main} was in use, and is gone: nothing kept it"
        if not active(canaries.queue):
            return f"the ClusterQueue is not Active although its flavor is there: {why_inactive(canaries)}"
        return harm(facts)

    def learned(self, facts: Facts) -> Mapping[str, Any]:
        return {"staysTerminating": True, "reclaimablePods": "unchanged", **self.took(facts)}


class Swap(DrillStep, frozen=True, kw_only=True):
    """The way out without a fault: the queue is given another flavor, and the old one goes."""

    measures: ClassVar[str] = "secondsToRelease"

    @property
    def says(self) -> str:
        return f"give the ClusterQueue the flavor {self.names.spare} instead; the old one goes"

    def holds(self, facts: Facts) -> bool:
        canaries = facts[CANARIES]
        released = canaries.flavor is None and self._swapped(canaries) and active(canaries.queue)
        waited = seconds_between(first_begun(facts, self), facts.now) or 0.0
        return released and (not self._still_counted(canaries) or waited > PATIENCE)

    def _still_counted(self, canaries: Canaries) -> bool:
        return canaries.queue is not None and self.names.main in canaries.queue.counted

    def _swapped(self, canaries: Canaries) -> bool:
        return canaries.queue is not None and self.names.main not in canaries.queue.flavors

    def stuck(self, facts: Facts) -> str:
        return harm(facts)

    def progress(self, facts: Facts) -> str:
        canaries = facts[CANARIES]
        if not self._swapped(canaries):
            return ""
        if canaries.flavor is not None:
            return "the old flavor is still there"
        counted = active(canaries.queue) and self._still_counted(canaries)
        return "its use is still counted" if counted else f"ClusterQueue: {why_inactive(canaries)}"

    def act(self, facts: Facts, writer: Writer) -> None:
        queue = facts[CANARIES].queue
        if queue is not None and self.names.main in queue.flavors:
            ref = written(ClusterQueue.of, self.names.main, self.run, self.version)
            changes = (Test(_FLAVOR_OF_QUEUE, self.names.main), Put(_FLAVOR_OF_QUEUE, self.names.spare))
            writer.patch(ref, queue.metadata.uid, changes)

    def learned(self, facts: Facts) -> Mapping[str, Any]:
        counted = self._still_counted(facts[CANARIES])
        said = ["the ClusterQueue counts the use of the flavor that it dropped"] if counted else []
        stayed = list(admitted_so_far(facts))
        return {**self.took(facts), "stayedAdmitted": stayed, **differences(facts, *said)}
