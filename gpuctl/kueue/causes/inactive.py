"""The queue is inactive: every reason, found from the objects it refers to.

Kueue names one reason only: a stopped queue with a missing flavor says `Stopped`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Inapplicable, State, value
from gpuctl.kueue.causes.cause import Cause, Trouble
from gpuctl.kueue.messages import Saying, sayings
from gpuctl.kueue.objects import AdmissionCheck, ClusterQueue, Cohort, ResourceFlavor, Topology
from gpuctl.kueue.scene import Scene, Waiter, active, told


class Why(StrEnum):
    """Why a queue admits nothing."""

    STOPPED = "it is stopped"
    TERMINATING = "it is being deleted"
    FLAVOR = "a ResourceFlavor does not exist"
    CHECK = "an AdmissionCheck does not exist"
    CHECK_INACTIVE = "an AdmissionCheck is not active"
    TOPOLOGY = "a Topology does not exist"
    CYCLE = "its cohorts form a cycle"
    OTHER = "Kueue gives another reason"


@dataclass(frozen=True, slots=True)
class Inactivity:
    """A reason, and the object it is owed to. `says`: Kueue's own words, where no object tells."""

    why: Why
    other: Ref | None = None
    says: str = ""


def reasons(queue: ClusterQueue, scene: Scene) -> Iterator[Inactivity]:
    """Every reason for which a queue admits nothing. Raises NotKnown once all that can be told is told."""
    if queue.metadata.deletion_timestamp:
        yield Inactivity(Why.TERMINATING)
    if queue.spec.stop_policy not in ("", "None"):
        yield Inactivity(Why.STOPPED, says=queue.spec.stop_policy)
    yield from _cycle(queue, scene)
    yield from _flavors(queue, scene)
    yield from _checks(queue, scene)
    yield from _topologies(queue, scene)


def _cycle(queue: ClusterQueue, scene: Scene) -> Iterator[Inactivity]:
    if queue.cohort:
        loop = scene.tree.loop(queue.cohort)
        if loop:
            yield Inactivity(Why.CYCLE, Ref(Cohort.of, loop[0]), " → ".join((*loop, loop[0])))


def _flavors(queue: ClusterQueue, scene: Scene) -> Iterator[Inactivity]:
    for name in queue.flavors:
        if scene.flavor(name) is None:
            yield Inactivity(Why.FLAVOR, Ref(ResourceFlavor.of, name))


def _checks(queue: ClusterQueue, scene: Scene) -> Iterator[Inactivity]:
    for rule in queue.checks:
        ref = Ref(AdmissionCheck.of, rule.name)
        found = told(scene.written.checks, "AdmissionChecks").get(ref)
        if found is None:
            yield Inactivity(Why.CHECK, ref)
        elif any(each.type == "Active" and each.status == "False" for each in found.status.conditions):
            yield Inactivity(Why.CHECK_INACTIVE, ref)


def _topologies(queue: ClusterQueue, scene: Scene) -> Iterator[Inactivity]:
    for name in queue.flavors:
        flavor = scene.flavor(name)
        topology = flavor.spec.topology_name if flavor else ""
        ref = Ref(Topology.of, topology)
        if topology and _absent(scene.written.topologies, ref):
            yield Inactivity(Why.TOPOLOGY, ref)


def _absent(topologies: State[object], ref: Ref) -> bool:
    """Releases that do not serve Topology know nothing of the field either."""
    if isinstance(topologies, Inapplicable):
        return False
    return value(topologies).get(ref) is None  # type: ignore[attr-defined]


def said(queue: ClusterQueue) -> Inactivity | None:
    """What Kueue itself gives as the reason; None if it says that the queue is active, or nothing."""
    found = active(queue)
    if found is None or found.status != "False":
        return None
    why = {"Stopped": Why.STOPPED, "Terminating": Why.TERMINATING, "FlavorNotFound": Why.FLAVOR}
    why |= {"AdmissionCheckNotFound": Why.CHECK, "AdmissionCheckInactive": Why.CHECK_INACTIVE}
    why |= {"TopologyNotFound": Why.TOPOLOGY}
    return Inactivity(why.get(found.reason, Why.OTHER), says=f"{found.reason}: {found.message}")


def cause(waiter: Waiter) -> Cause | None:
    """Of a Workload whose queue Kueue calls inactive, or that was told so."""
    line = waiter.line
    if line.queue.spec.stop_policy not in ("", "None"):
        return Cause(Trouble.STOPPED)
    if said(line.queue) or (line.queue.cohort and line.scene.tree.loop(line.queue.cohort)):
        return Cause(Trouble.INACTIVE)
    if Saying.QUEUE in sayings(waiter.message) and f"ClusterQueue {line.name} is inactive" in waiter.message:
        return Cause(Trouble.INACTIVE, says=waiter.message)
    return None
