"""How many pods of a pod set have room near each other, counted on nodes. An estimate: Kueue's own count may
leave out nodes for reasons that are not looked at here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Inapplicable
from gpuctl.kueue.footing import Footing
from gpuctl.kueue.objects import PodSet, ResourceNode, Topology, TopologyRequest, Workload
from gpuctl.kueue.quantities import Amount, amount
from gpuctl.kueue.requests import of_pod
from gpuctl.kueue.scene import told

Left = Callable[[ResourceNode, str], Amount]


@dataclass(frozen=True, slots=True)
class Room:
    """For how many of the `wanted` pods there is room in a flavor: as things are, and if nothing else ran.

    `level`: the label of nodes whose values the pods are to share; empty if they may be anywhere.
    """

    flavor: str
    level: str
    wanted: int
    now: int
    empty: int

    def __str__(self) -> str:
        """The end of a sentence: `4 of 8 pods have room in one example.com/rack of flavor h100, …`."""
        place = f"one {self.level} of flavor {self.flavor}" if self.level else f"flavor {self.flavor}"
        return (
            f"{self.now} of {self.wanted} pods have room in {place}, and {self.empty} if nothing else ran "
            "(estimate)"
        )


def rooms(workload: Workload, footings: Sequence[Footing]) -> Iterator[Room]:
    """For the first pod set that asks for a topology, in each flavor that has one. Raises NotKnown."""
    pods = next((each for each in workload.spec.pod_sets if each.wants_topology), None)
    for footing in footings if pods else ():
        levels = _levels(footing)
        if levels and pods and pods.topology_request:
            yield _room(pods, pods.topology_request, footing, levels)


def _levels(footing: Footing) -> Sequence[str]:
    name, topologies = footing.flavor.spec.topology_name, footing.scene.written.topologies
    if not name or isinstance(topologies, Inapplicable):
        return ()
    found = told(topologies, "Topologies").get(Ref(Topology.of, name))
    return [each.node_label for each in found.spec.levels] if found else ()


def _room(pods: PodSet, request: TopologyRequest, footing: Footing, levels: Sequence[str]) -> Room:
    def free(node: ResourceNode, resource: str) -> Amount:
        return footing.ground.free(node, resource)

    def whole(node: ResourceNode, resource: str) -> Amount:
        return amount(node.status.allocatable.get(resource, 0))

    level = request.required or ""
    now, empty = (_most(pods, request, footing, levels, left) for left in (free, whole))
    return Room(footing.name, level, pods.count, min(now, pods.count), min(empty, pods.count))


def _most(pods: PodSet, request: TopologyRequest, footing: Footing, levels: Sequence[str], left: Left) -> int:
    """In the best of the domains that all pods must share, slice by slice where they come in slices."""
    shared = _upto(levels, request.required)
    sliced = _upto(levels, request.slice_level) if request.slice_size else levels
    size = request.slice_size or 1
    domains: dict[tuple[str, ...], dict[tuple[str, ...], int]] = {}
    for node in footing.usable:
        labels = node.metadata.labels
        if all(each in labels for each in levels):
            slices = domains.setdefault(tuple(labels[each] for each in shared), {})
            part = tuple(labels[each] for each in sliced)
            slices[part] = slices.get(part, 0) + _fit(pods, node, left)
    counts = (sum(each // size * size for each in slices.values()) for slices in domains.values())
    return max(counts, default=0)


def _upto(levels: Sequence[str], level: str | None) -> Sequence[str]:
    return levels[: levels.index(level) + 1] if level in levels else ()


def _fit(pods: PodSet, node: ResourceNode, left: Left) -> int:
    """How many of the pods one node takes."""
    asked = {resource: each for resource, each in of_pod(pods.template.spec).items() if each > 0}
    return min((max(0, left(node, resource)) // each for resource, each in asked.items()), default=pods.count)
