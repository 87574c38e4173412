"""The flavor is lost for real, and comes back: with `--force-missing`, on the canary alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from gpuctl.facts.gather import Facts
from gpuctl.runbook.flavors.canaries import CANARIES, Canaries, active, active_condition, seconds_between
from gpuctl.runbook.flavors.drill_steps.harm import admitted_so_far, harm, why_inactive
from gpuctl.runbook.flavors.drill_steps.step import DrillStep, differences
from gpuctl.runbook.writer import Put, Test, Writer


class Break(DrillStep, frozen=True, kw_only=True):
    """Takes the finalizer off the canary flavor: the one way to a real loss. The queue stands still, and what
    was admitted runs on."""

    measures: ClassVar[str] = "secondsToGoInactive"

    @property
    def says(self) -> str:
        return "take the finalizer off the canary flavor: it is missing, and the ClusterQueue goes inactive"

    def holds(self, facts: Facts) -> bool:
        canaries = facts[CANARIES]
        return canaries.flavor is None and self._noticed(canaries) and not active(canaries.local_queue)

    def _noticed(self, canaries: Canaries) -> bool:
        found = active_condition(canaries.queue)
        return found is not None and found.status == "False"

    def stuck(self, facts: Facts) -> str:
        return harm(facts)

    def progress(self, facts: Facts) -> str:
        canaries = facts[CANARIES]
        if canaries.flavor is not None:
            return ""
        queue = "inactive" if self._noticed(canaries) else "still Active"
        return f"the flavor is gone; the ClusterQueue is {queue}"

    def act(self, facts: Facts, writer: Writer) -> None:
        flavor = facts[CANARIES].flavor
        if flavor is not None and flavor.metadata.deletion_timestamp and flavor.metadata.finalizers:
            path, before = "/metadata/finalizers", list(flavor.metadata.finalizers)
            writer.patch(self.flavor_ref(), flavor.metadata.uid, (Test(path, before), Put(path, [])))

    def learned(self, facts: Facts) -> Mapping[str, Any]:
        found = active_condition(facts[CANARIES].queue)
        reason, message = (found.reason, found.message) if found else ("", "")
        said = [] if reason == "FlavorNotFound" else [f"the ClusterQueue gives the reason {reason!r}"]
        if self.names.main not in message:
            said.append(f"the ClusterQueue does not name the flavor: {message}")
        told_of_local = active_condition(facts[CANARIES].local_queue)
        if told_of_local is None or told_of_local.reason != "ClusterQueueIsInactive":
            local_reason = told_of_local.reason if told_of_local else "none"
            said.append(f"the LocalQueue gives the reason {local_reason!r}")
        when = found.last_transition_time if found else None
        stayed = list(admitted_so_far(facts))
        told = {"inactiveReason": reason, "inactiveMessage": message, "stayedAdmitted": stayed}
        since = {"inactiveSince": when.isoformat()} if when else {}
        return {**self.took(facts), **told, **since, **differences(facts, *said)}


class Restore(DrillStep, frozen=True, kw_only=True):
    """Makes the flavor again, by its name: the queue works again."""

    measures: ClassVar[str] = "secondsToRecover"

    @property
    def says(self) -> str:
        return f"make ResourceFlavor {self.names.main} again; the ClusterQueue is Active again"

    def holds(self, facts: Facts) -> bool:
        canaries = facts[CANARIES]
        made = canaries.flavor is not None and canaries.flavor.metadata.deletion_timestamp is None
        return made and active(canaries.queue) and active(canaries.local_queue)

    def stuck(self, facts: Facts) -> str:
        return harm(facts)

    def progress(self, facts: Facts) -> str:
        return f"ClusterQueue: {why_inactive(facts[CANARIES])}" if facts[CANARIES].flavor else ""

    def act(self, facts: Facts, writer: Writer) -> None:
        self.create(self.flavor_ref(), self.names.flavor, facts[CANARIES], writer)

    def learned(self, facts: Facts) -> Mapping[str, Any]:
        canaries = facts[CANARIES]
        found, flavor = active_condition(canaries.queue), canaries.flavor
        made = flavor.metadata.creation_timestamp if flavor else None
        by_kueue = seconds_between(made, found.last_transition_time if found else None)
        told = {"secondsToRecoverByConditions": by_kueue} if by_kueue is not None else {}
        return {**self.took(facts), **told}
