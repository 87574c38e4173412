"""Whether a Workload fits a ClusterQueue, and what stands in its way: Kueue's own search, done again.

Pod set by pod set, and for each group of resources, the first flavor in which all of it has room is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from gpuctl.kueue.objects import (
    ClusterQueue,
    FlavorQuotas,
    PodSet,
    ResourceFlavor,
    ResourceGroup,
    Workload,
)
from gpuctl.kueue.placement import suits, untolerated
from gpuctl.kueue.quantities import ONE, Amount
from gpuctl.kueue.quota import Cell
from gpuctl.kueue.requests import PODS, Ask, of_pod

FlavorsByName = Callable[[str], ResourceFlavor | None]
LevelsOf = Callable[[str], Collection[str] | None]  # None: they are not known
RoomOf = Callable[[Cell], Amount]


class Bar(StrEnum):
    """What keeps a pod set out of a flavor, or out of the queue."""

    NOT_COVERED = "not covered"
    NO_FLAVOR = "the flavor does not exist"
    TAINT = "a taint is not tolerated"
    AFFINITY = "node selector or affinity differ"
    NO_TOPOLOGY = "it has no Topology, which the request asks for"
    NO_LEVEL = "its Topology has no level"
    TOPOLOGY_ONLY = "it takes only requests for a topology"
    NO_ROOM = "no room"


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why one flavor can't be taken. `asked` counts what earlier pod sets take of it as well."""

    bar: Bar
    resource: str
    flavor: str = ""
    asked: Amount = 0
    room: Amount = 0
    detail: str = ""

    @property
    def missing(self) -> Amount:
        """How much more it would take."""
        return max(0, self.asked - self.room)


@dataclass(frozen=True)
class Search:
    """Kueue's search in one queue. `room` is what a cell has: at most, or now."""

    queue: ClusterQueue
    flavors: FlavorsByName
    room: RoomOf
    undeclared_pass: bool = False
    levels: LevelsOf = lambda _: None

    def obstacles(self, workload: Workload, asks: Sequence[Ask]) -> tuple[Obstacle, ...]:
        """What stands in the way of the first pod set that finds no place; empty if all do."""
        taken: dict[Cell, Amount] = {}
        pod_sets = {each.name: each for each in workload.spec.pod_sets}
        for ask in asks:
            found = tuple(self._place(pod_sets[ask.name], self._with_pods(ask), taken))
            if found:
                return found
        return ()

    def _with_pods(self, ask: Ask) -> Mapping[str, Amount]:
        """A queue may count pods too."""
        counted = self.queue.group_of(PODS) is not None
        return {**ask.amounts, PODS: ask.count * ONE} if counted else ask.amounts

    def _place(
        self, pods: PodSet, asked: Mapping[str, Amount], taken: dict[Cell, Amount]
    ) -> Iterator[Obstacle]:
        yield from self._uncovered(asked)
        for group in self.queue.spec.resource_groups:
            part = {resource: asked[resource] for resource in group.covered_resources if asked.get(resource)}
            yield from self._place_in(group, pods, part, taken) if part else ()

    def _uncovered(self, asked: Mapping[str, Amount]) -> Iterator[Obstacle]:
        for resource, each in asked.items():
            if self.queue.group_of(resource) is None and not self.undeclared_pass and resource != PODS:
                yield Obstacle(Bar.NOT_COVERED, resource, asked=each)

    def _place_in(
        self,
        group: ResourceGroup,
        pods: PodSet,
        part: Mapping[str, Amount],
        taken: dict[Cell, Amount],
    ) -> Iterator[Obstacle]:
        """Takes the first flavor that has room; yields what is wrong with each if none has."""
        keys = self._keys(group)
        met: list[Obstacle] = []
        for flavor in group.flavors:
            found = tuple(self._against(flavor, pods, part, taken, keys))
            if not found:
                for resource, each in part.items():
                    taken[flavor.name, resource] = taken.get((flavor.name, resource), 0) + each
                return
            met.extend(found)
        yield from met or (Obstacle(Bar.NO_FLAVOR, next(iter(part))),)

    def _against(
        self,
        flavor: FlavorQuotas,
        pods: PodSet,
        part: Mapping[str, Amount],
        taken: Mapping[Cell, Amount],
        keys: Collection[str],
    ) -> Iterator[Obstacle]:
        written, resource, pod = self.flavors(flavor.name), next(iter(part)), pods.template.spec
        if written is None:
            yield Obstacle(Bar.NO_FLAVOR, resource, flavor.name)
            return
        taint = untolerated(pod, written)
        if taint:
            yield Obstacle(Bar.TAINT, resource, flavor.name, detail=str(taint))
        elif not suits(pod, written, keys):
            yield Obstacle(Bar.AFFINITY, resource, flavor.name)
        elif misplaced := self._misplaced(pods, written, part):
            bar, detail = misplaced
            yield Obstacle(bar, resource, flavor.name, detail=detail)
        else:
            yield from self._crowded(flavor.name, part, taken)

    def _misplaced(
        self, pods: PodSet, flavor: ResourceFlavor, part: Mapping[str, Amount]
    ) -> tuple[Bar, str] | None:
        """Why topology keeps the pod set out of a flavor; None if it does not. A queue of which every flavor
        has a Topology places all its Workloads by it."""
        topology, request = flavor.spec.topology_name, pods.topology_request
        if not pods.wants_topology or request is None:
            return (Bar.TOPOLOGY_ONLY, "") if topology and not self._by_topology_alone else None
        if not topology:
            taken_by_nodes = any(resource in of_pod(pods.template.spec) for resource in part)
            return (Bar.NO_TOPOLOGY, "") if taken_by_nodes else None
        known = self.levels(topology)
        lacking = [each for each in request.levels if known is not None and each not in known]
        return (Bar.NO_LEVEL, lacking[0]) if lacking else None

    @cached_property
    def _by_topology_alone(self) -> bool:
        found = (self.flavors(name) for name in self.queue.flavors)
        return all(each is not None and each.spec.topology_name for each in found)

    def _crowded(
        self, flavor: str, part: Mapping[str, Amount], taken: Mapping[Cell, Amount]
    ) -> Iterator[Obstacle]:
        for resource, each in part.items():
            wanted, room = taken.get((flavor, resource), 0) + each, self.room((flavor, resource))
            if wanted > room:
                yield Obstacle(Bar.NO_ROOM, resource, flavor, wanted, room)

    def _keys(self, group: ResourceGroup) -> frozenset[str]:
        written = (self.flavors(flavor.name) for flavor in group.flavors)
        return frozenset(key for each in written if each for key in each.spec.node_labels)


def nearest(obstacles: Sequence[Obstacle]) -> Obstacle | None:
    """Of the flavors without enough room the one that lacks least, by its worst resource."""
    by_flavor: dict[str, Obstacle] = {}
    barred = {each.flavor for each in obstacles if each.bar is not Bar.NO_ROOM}
    for each in obstacles:
        if each.flavor not in barred:
            worst = by_flavor.get(each.flavor)
            by_flavor[each.flavor] = max(worst or each, each, key=_lack)
    return min(by_flavor.values(), key=_lack, default=None)


def _lack(obstacle: Obstacle) -> tuple[float, str]:
    """Accelerators and bytes are compared by the share that is missing."""
    return obstacle.missing / max(1, obstacle.asked), obstacle.resource
