"""What rests on each flavor: who refers to it, who runs and waits on it, which nodes stand behind it.

A flavor that a ClusterQueue refers to is kept by Kueue's finalizer when it is deleted, for good: it works on,
and goes at the edit that drops the last reference. Cohorts that refer to it keep nothing. Where a flavor does
not exist, every ClusterQueue that refers to it admits nothing more, not even by its other flavors; what was
admitted runs on, and nothing is evicted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Final, TypeAlias, TypeVar

from gpuctl.facts.fact import Maybe, given
from gpuctl.facts.kinds import Ref, View
from gpuctl.facts.objects import Taint
from gpuctl.facts.own import RUN, RUNBOOK
from gpuctl.facts.state import Each, Inapplicable, Known, State, Unknown
from gpuctl.kueue.drills import DRILL
from gpuctl.kueue.footing import Footing, Ground
from gpuctl.kueue.objects import (
    GROUP,
    ClusterQueue,
    Cohort,
    ResourceFlavor,
    ResourceGroup,
    ResourceNode,
    Workload,
)
from gpuctl.kueue.placement import barring_taints
from gpuctl.kueue.pods import Owned
from gpuctl.kueue.quantities import Amount, total
from gpuctl.kueue.queue_facts import FLAVORS, LINES, NODES, WORKLOADS, scene_of_the_queues
from gpuctl.kueue.requests import held
from gpuctl.kueue.scene import Line, Scene, told
from gpuctl.kueue.standing import age, standing

FINALIZER: Final = f"{GROUP}/resource-in-use"
CORDONED: Final = "cordoned"
_CORDON: Final = "node.kubernetes.io/unschedulable"
_UNREAD: Final = Inapplicable("pods are not looked at")
Door: TypeAlias = tuple[str, str, str]  # namespace, LocalQueue, ClusterQueue
V = TypeVar("V")


@dataclass(frozen=True)
class Around:
    """All queues, Workloads and nodes, by flavor. Each part may be unknown by itself."""

    scene: Scene
    lines: Each[Ref, Line]
    workloads: State[Each[Ref, Workload]]
    nodes: State[Each[Ref, ResourceNode]]

    @property
    def ground(self) -> Ground:
        """The nodes alone."""
        return Ground(self.nodes, Owned(_UNREAD, _UNREAD))

    @cached_property
    def lines_of(self) -> Mapping[str, list[Line]]:
        """The queues that refer to each flavor, as far as they are known."""
        return _by_flavor((line, line.queue.flavors) for _, line in self.lines.known())

    @cached_property
    def cohorts_of(self) -> Mapping[str, list[Cohort]]:
        """The Cohorts that do, as far as they are known."""
        cohorts = self.scene.written.cohorts
        known = cohorts.value.known() if isinstance(cohorts, Known) else ()
        return _by_flavor((each, _flavors(each.spec.resource_groups)) for _, each in known)

    @cached_property
    def holding_of(self) -> Mapping[str, list[Workload]]:
        """The Workloads with quota of each, also where their queue has dropped it since. Raises NotKnown."""
        holding = (each for each in told(self.workloads, "Workloads") if standing(each).holds_quota)
        return _by_flavor((each, _given_to(each)) for each in holding)


def _by_flavor(found: Iterable[tuple[V, Iterable[str]]]) -> Mapping[str, list[V]]:
    by_name: dict[str, list[V]] = {}
    for each, names in found:
        for name in names:
            by_name.setdefault(name, []).append(each)
    return by_name


def _flavors(groups: Iterable[ResourceGroup]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(flavor.name for group in groups for flavor in group.flavors))


def _given_to(workload: Workload) -> frozenset[str]:
    admission = workload.status.admission
    sets = admission.pod_set_assignments if admission else ()
    return frozenset(flavor for each in sets for flavor in each.flavors.values())


def is_of_drill(found: View) -> bool:
    """Whether the drill made it, for itself alone."""
    return found.metadata.labels.get(RUNBOOK) == DRILL


@dataclass(frozen=True)
class Tenant:
    """A LocalQueue whose ClusterQueue refers to a flavor, or from which Workloads run on it."""

    namespace: str
    local_queue: str
    cluster_queue: str
    running: tuple[Workload, ...]  # with quota of the flavor
    waiting: tuple[Workload, ...]  # in the ClusterQueue, for whichever of its flavors
    refers: bool  # whether the ClusterQueue still refers to the flavor

    @property
    def name(self) -> str:
        return f"{self.namespace}/{self.local_queue}"


@dataclass(frozen=True)
class Reliance:
    """All that relies on a flavor of this name, whether there is one or not."""

    name: str
    around: Around

    @property
    def ref(self) -> Ref:
        return Ref(ResourceFlavor.of, self.name)

    @property
    def scene(self) -> Scene:
        return self.around.scene

    @property
    def lines(self) -> tuple[Line, ...]:
        """The ClusterQueues that refer to it, as far as they are known."""
        return tuple(self.around.lines_of.get(self.name, ()))

    @property
    def queues(self) -> tuple[ClusterQueue, ...]:
        """The same, without what waits in them."""
        return tuple(line.queue for line in self.lines)

    @property
    def cohorts(self) -> tuple[Cohort, ...]:
        """The Cohorts that refer to it, as far as they are known."""
        return tuple(self.around.cohorts_of.get(self.name, ()))

    @property
    def of_drill(self) -> bool:
        """Whether nobody refers to it but queues of a drill."""
        return bool(self.queues) and not self.cohorts and all(map(is_of_drill, self.queues))

    def all_queues_seen(self) -> None:
        """Raises NotKnown if a ClusterQueue that could not be read may refer to it too."""
        for _ in self.scene.written.queues:
            pass

    def all_cohorts_seen(self) -> None:
        """The same of Cohorts, which old releases do not have."""
        cohorts = self.scene.written.cohorts
        for _ in () if isinstance(cohorts, Inapplicable) else told(cohorts, "Cohorts"):
            pass

    @property
    def holding(self) -> tuple[Workload, ...]:
        """The Workloads with quota of it. Raises NotKnown if some could not be read."""
        return tuple(self.around.holding_of.get(self.name, ()))

    @property
    def waiting(self) -> tuple[Workload, ...]:
        """The Workloads that wait in the queues that refer to it. Raises NotKnown, as above."""
        for line in self.lines:
            line.must_be_whole()
        return tuple(each for line in self.lines for each in line.waiting)

    def in_use(self, by: Iterable[Workload]) -> Mapping[str, Amount]:
        """What Workloads hold of it, by resource. Raises NotKnown for what is no quantity."""
        cells = (cell for each in by for cell in held(each).items())
        return total({resource: each} for (flavor, resource), each in cells if flavor == self.name)

    def alone_in(self, queue: ClusterQueue) -> bool:
        """Whether a queue has no other flavor for what it gives out of this one."""
        groups = (_flavors((each,)) for each in queue.spec.resource_groups)
        return any(names == (self.name,) for names in groups)

    @property
    def without_second(self) -> tuple[ClusterQueue, ...]:
        """The queues in which nothing could take its place."""
        return tuple(each for each in self.queues if self.alone_in(each))

    @property
    def peers(self) -> tuple[str, ...]:
        """The queues that could borrow less: one that is inactive lends nothing. Raises NotKnown."""
        own = {each.metadata.name for each in self.queues}
        in_cohorts = (each.metadata.name for each in self.queues if each.cohort)
        found = {member.name for name in in_cohorts for member in self.scene.tree.peers(name)}
        return tuple(sorted(found - own))

    @cached_property
    def tenants(self) -> tuple[Tenant, ...]:
        """Whoever would feel its loss, the busiest first. Raises NotKnown, as above."""
        names = {each.metadata.name for each in self.queues}
        running = _by_door((each, _queue_of(each)) for each in self.holding)
        waiting = _by_door((each, queue) for queue, each in self._waiting())
        keys = {*running, *waiting, *self._doors(names)}
        found = (
            Tenant(*key, tuple(running.get(key, ())), tuple(waiting.get(key, ())), key[2] in names)
            for key in keys
        )
        return tuple(sorted(found, key=lambda each: (-len(each.running), -len(each.waiting), each.name)))

    def _waiting(self) -> Iterator[tuple[str, Workload]]:
        for line in self.lines:
            line.must_be_whole()
            yield from ((line.name, each) for each in line.waiting)

    def _doors(self, names: Collection[str]) -> Iterator[Door]:
        for each in told(self.scene.written.local_queues, "LocalQueues"):
            if each.spec.cluster_queue in names:
                yield each.metadata.namespace, each.metadata.name, each.spec.cluster_queue


def _by_door(found: Iterable[tuple[Workload, str]]) -> Mapping[Door, list[Workload]]:
    by_door: dict[Door, list[Workload]] = {}
    for each, queue in found:
        by_door.setdefault((each.metadata.namespace, each.spec.queue_name, queue), []).append(each)
    return by_door


def _queue_of(workload: Workload) -> str:
    return workload.status.admission.cluster_queue if workload.status.admission else ""


@dataclass(frozen=True)
class Flavor(Reliance):
    """A flavor that exists."""

    written: ResourceFlavor

    def deleted_for(self) -> timedelta | None:
        """How long ago its deletion was asked for; None if it was not."""
        deleted = self.written.metadata.deletion_timestamp
        return age(deleted, self.scene.now) if deleted else None

    @property
    def run_of_drill(self) -> str:
        """The run of the drill that made it; empty for a flavor of somebody's own."""
        return self.written.metadata.labels.get(RUN, "RUN") if is_of_drill(self.written) else ""

    @cached_property
    def footing(self) -> Footing:
        """The flavor over its nodes."""
        return Footing(self.written, self.scene, self.around.ground, self.lines)

    def reachable(self, resource: str) -> Iterator[ResourceNode]:
        """The nodes that its pods can be sent to and that offer a resource. Raises NotKnown."""
        for node in self.footing.nodes:
            if self.footing.offered(resource, (node,)) and not self.hindrance(node, resource):
                yield node

    def hindrance(self, node: ResourceNode, resource: str) -> str:
        """What keeps its pods from a node that bears its labels; empty if nothing does.

        Pods may tolerate a taint by themselves, as those of its Workloads tell; one that is named after the
        resource is tolerated for them where ExtendedResourceToleration runs.
        """
        if not any(each.type == "Ready" and each.status == "True" for each in node.status.conditions):
            return "not Ready"
        if node.spec.unschedulable:
            return CORDONED
        taints = (each for each in barring_taints(self.written, node) if each.key not in (resource, _CORDON))
        return next((f"tainted {each}" for each in taints if not self._tolerated(each)), "")

    def _tolerated(self, taint: Taint) -> bool:
        """Whether a Workload on it, or one that waits for it, tolerates a taint."""
        return any(
            not taint.keeps_out(pods.template.spec.tolerations)
            for each in (*self.holding, *self.waiting)
            for pods in each.spec.pod_sets
        )


@dataclass(frozen=True)
class Surroundings:
    """All flavors, and all that relies on some."""

    around: Around
    written: Each[Ref, ResourceFlavor]


@given(scene_of_the_queues, LINES, FLAVORS, Maybe(WORKLOADS), Maybe(NODES))
def flavors_with_their_surroundings(
    scene: Scene,
    lines: Each[Ref, Line],
    flavors: Each[Ref, ResourceFlavor],
    workloads: State[Each[Ref, Workload]],
    nodes: State[Each[Ref, ResourceNode]],
) -> Surroundings:
    return Surroundings(Around(scene, lines, workloads, nodes), flavors)


@given(flavors_with_their_surroundings)
def flavors_and_what_rests_on_them(found: Surroundings) -> Each[Ref, Flavor]:
    return found.written.map(lambda each: Flavor(each.metadata.name, found.around, each))


@given(flavors_with_their_surroundings)
def flavors_that_are_referred_to(found: Surroundings) -> Each[Ref, Reliance]:
    """Those that exist and those that do not; a hole for each queue or Cohort that could not be read."""
    around = found.around
    names = sorted({*around.lines_of, *around.cohorts_of})
    cohorts = around.scene.written.cohorts
    unread = tuple(cohorts.value.gaps()) if isinstance(cohorts, Known) else ()
    unread += (cohorts,) if isinstance(cohorts, Unknown) else ()
    entries = {Ref(ResourceFlavor.of, name): Known(Reliance(name, around)) for name in names}
    return Each(entries, (*around.lines.gaps(), *unread))


ON_FLAVORS = flavors_and_what_rests_on_them
REFERRED_TO = flavors_that_are_referred_to
