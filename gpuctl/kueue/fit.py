"""Whether a Workload fits a ClusterQueue, and what stands in its way: Kueue's own search, done again.

Pod set by pod set, and for each group of resources, the first flavor in which all of it has room is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from gpuctl.kueue.objects import (
    ClusterQueue,
    FlavorQuotas,
    RequestingPodSpec,
    ResourceFlavor,
    ResourceGroup,
    Workload,
)
from gpuctl.kueue.placement import suits, untolerated
from gpuctl.kueue.quantities import ONE, Amount
from gpuctl.kueue.quota import Cell
from gpuctl.kueue.requests import PODS, Ask

FlavorsByName = Callable[[str], ResourceFlavor | None]
RoomOf = Callable[[Cell], Amount]


class Bar(StrEnum):
    """What keeps a pod set out of a flavor, or out of the queue."""

    NOT_COVERED = "not covered"
    NO_FLAVOR = "the flavor does not exist"
    TAINT = "a taint is not tolerated"
    AFFINITY = "node selector or affinity differ"
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

    def obstacles(self, workload: Workload, asks: Sequence[Ask]) -> tuple[Obstacle, ...]:
        """What stands in the way of the first pod set that finds no place; empty if all do."""
        taken: dict[Cell, Amount] = {}
        specs = {each.name: each.template.spec for each in workload.spec.pod_sets}
        for ask in asks:
            found = tuple(self._place(specs[ask.name], self._with_pods(ask), taken))
            if found:
                return found
        return ()

    def _with_pods(self, ask: Ask) -> Mapping[str, Amount]:
        """A queue may count pods too."""
        counted = self.queue.group_of(PODS) is not None
        return {**ask.amounts, PODS: ask.count * ONE} if counted else ask.amounts

    def _place(
        self, pod: RequestingPodSpec, asked: Mapping[str, Amount], taken: dict[Cell, Amount]
    ) -> Iterator[Obstacle]:
        yield from self._uncovered(asked)
        for group in self.queue.spec.resource_groups:
            part = {resource: asked[resource] for resource in group.covered_resources if asked.get(resource)}
            yield from self._place_in(group, pod, part, taken) if part else ()

    def _uncovered(self, asked: Mapping[str, Amount]) -> Iterator[Obstacle]:
        for resource, each in asked.items():
            if self.queue.group_of(resource) is None and not self.undeclared_pass and resource != PODS:
                yield Obstacle(Bar.NOT_COVERED, resource, asked=each)

    def _place_in(
        self,
        group: ResourceGroup,
        pod: RequestingPodSpec,
        part: Mapping[str, Amount],
        taken: dict[Cell, Amount],
    ) -> Iterator[Obstacle]:
        """Takes the first flavor that has room; yields what is wrong with each if none has."""
        keys = self._keys(group)
        met: list[Obstacle] = []
        for flavor in group.flavors:
            found = tuple(self._against(flavor, pod, part, taken, keys))
            if not found:
                for resource, each in part.items():
                    taken[flavor.name, resource] = taken.get((flavor.name, resource), 0) + each
                return
            met.extend(found)
        yield from met or (Obstacle(Bar.NO_FLAVOR, next(iter(part))),)

    def _against(
        self,
        flavor: FlavorQuotas,
        pod: RequestingPodSpec,
        part: Mapping[str, Amount],
        taken: Mapping[Cell, Amount],
        keys: Collection[str],
    ) -> Iterator[Obstacle]:
        written, resource = self.flavors(flavor.name), next(iter(part))
        if written is None:
            yield Obstacle(Bar.NO_FLAVOR, resource, flavor.name)
            return
        taint = untolerated(pod, written)
        if taint:
            yield Obstacle(Bar.TAINT, resource, flavor.name, detail=str(taint))
        elif not suits(pod, written, keys):
            yield Obstacle(Bar.AFFINITY, resource, flavor.name)
        else:
            yield from self._crowded(flavor.name, part, taken)

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
