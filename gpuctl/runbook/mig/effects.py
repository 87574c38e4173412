"""What a change of the MIG configuration does to others: what the scheduler gains and loses, which quota
loses what stands behind it, and which Workloads it would serve."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from gpuctl.facts.fact import Maybe, given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Each, Inapplicable, Known, State, attempt
from gpuctl.kueue.flavors import ON_FLAVORS, Flavor
from gpuctl.kueue.objects import ResourceNode, Workload
from gpuctl.kueue.quantities import shown
from gpuctl.kueue.queue_facts import LINES
from gpuctl.kueue.requests import asked
from gpuctl.kueue.scene import Line
from gpuctl.nvidia.model import Hardware
from gpuctl.nvidia.node import CONFIG, Node
from gpuctl.runbook.drain.candidates import Scope, listed
from gpuctl.runbook.mig.change import MigChange, offered, shaped
from gpuctl.runbook.mig.facts import (
    SILICON,
    the_change,
    the_GPU_node,
    what_the_old_name_asks,
    which_pods_must_go,
)

V = TypeVar("V")

_PRODUCT: Final = "nvidia.com/gpu.product"


@dataclass(frozen=True, slots=True)
class Offer:
    """What a node offers before and after, and its labels by which flavors know it."""

    node: str
    before: Mapping[str, int]
    after: Mapping[str, int]
    labels: Mapping[str, str]

    @property
    def gained(self) -> Mapping[str, int]:
        """Resources of which there will be more, by how much."""
        return {name: by for name, by in self._differences() if by > 0}

    @property
    def lost(self) -> Mapping[str, int]:
        """Resources of which there will be less, by how much."""
        return {name: -by for name, by in self._differences() if by < 0}

    def _differences(self) -> Iterator[tuple[str, int]]:
        for name in sorted({*self.before, *self.after}):
            yield name, self.after.get(name, 0) - self.before.get(name, 0)


@given(the_GPU_node, SILICON.hardware, the_change)
def what_the_scheduler_will_see(node: Node, hardware: Hardware, change: MigChange) -> Offer:
    after = offered(node, hardware, change.after).resources
    return Offer(node.name, node.capacity, after, dict(_labels(node, shaped(hardware, change.after), change)))


def _labels(node: Node, after: Hardware, change: MigChange) -> Iterator[tuple[str, str]]:
    """The labels that the change itself rewrites."""
    yield CONFIG, change.config
    product = node.label("gpu.product")
    if product and node.strategy == "single":
        bare = product.removesuffix("-SHARED").partition("-MIG-")[0]
        names = sorted({str(device.profile.label) for device in after.devices})
        yield _PRODUCT, f"{bare}-MIG-{names[0]}" if len(names) == 1 else bare


def resources(offer: Offer) -> Iterator[str]:
    """`the scheduler loses 7x nvidia.com/mig-1g.10gb (7 -> 0)`."""
    for word, found in (("gains", offer.gained), ("loses", offer.lost)):
        if found:
            parts = (
                f"{by}x {name} ({offer.before.get(name, 0)} -> {offer.after.get(name, 0)})"
                for name, by in found.items()
            )
            yield f"the scheduler {word} {', '.join(parts)}"
    if not offer.gained and not offer.lost:
        yield "the scheduler sees the same resources as before"


# Kueue


def _changed(node: ResourceNode, offer: Offer) -> ResourceNode:
    """A node as Kueue will see it."""
    if node.metadata.name != offer.node:
        return node
    about = msgspec.structs.replace(node.metadata, labels={**node.metadata.labels, **offer.labels})
    amounts: dict[str, Any] = {**node.status.allocatable, **offer.after}
    for name in offer.lost:
        amounts[name] = offer.after.get(name, 0)
    status = msgspec.structs.replace(node.status, allocatable=amounts)
    return msgspec.structs.replace(node, metadata=about, status=status)


def quota(flavors: Each[Ref, Flavor], offer: Offer) -> Iterator[str]:
    """The flavors whose quota would have less, or more, behind it. Raises NotKnown."""
    for flavor in flavors:
        yield from _of_flavor(flavor, offer)


def _of_flavor(flavor: Flavor, offer: Offer) -> Iterator[str]:
    footing = flavor.footing
    nodes = [node for node in footing.nodes if node.metadata.name == offer.node]
    after = [_changed(node, offer) for node in nodes]
    wanted = flavor.written.spec.node_labels.items()
    stays = [node for node in after if all(node.metadata.labels.get(key) == each for key, each in wanted)]
    if nodes and not stays:
        names = ", ".join(f"{key}={each}" for key, each in wanted)
        yield f"flavor {flavor.name} loses the node: it will not bear {names} any more"
    others = [node for node in footing.nodes if node.metadata.name != offer.node]
    for resource in footing.accelerators if nodes else ():
        had = footing.offered(resource, (*others, *nodes))
        has = footing.offered(resource, (*others, *stays))
        quota_ = footing.promised.get(resource, 0)
        if has < had:
            short = f", {shown(quota_ - has)} of it without GPUs behind" if quota_ > has else ""
            yield (
                f"flavor {flavor.name}: {shown(quota_)} {resource} are promised by "
                f"{_queues(flavor, resource)}, nodes offer {shown(had)} now and {shown(has)} then{short}"
            )


def _queues(flavor: Flavor, resource: str) -> str:
    names = [
        queue.metadata.name
        for queue in flavor.queues
        if any(
            quota_.name == resource
            for group in queue.spec.resource_groups
            for each in group.flavors
            if each.name == flavor.name
            for quota_ in each.resources
        )
    ]
    return f"ClusterQueue {listed(sorted(names))}" if names else "a Cohort"


def served(lines: Each[Ref, Line], offer: Offer) -> Iterator[str]:
    """The pending Workloads that ask for what there will be more of. Raises NotKnown."""
    found: dict[str, list[str]] = {}
    untold: list[str] = []
    for line in lines:
        line.must_be_whole()
        for workload in line.waiting:
            asks = attempt(lambda: _asks(workload, line, offer))  # noqa: B023 - called at once
            if not isinstance(asks, Known):
                untold.append(f"{_name(workload)} ({asks})")
                continue
            for resource in asks.value:
                found.setdefault(resource, []).append(_name(workload))
    if untold:
        yield f"it can't be told what these pending Workloads ask for: {listed(untold)}"
    for resource, names in sorted(found.items()):
        who = "1 pending Workload asks" if len(names) == 1 else f"{len(names)} pending Workloads ask"
        yield f"{who} for {resource}: {listed(names)}"


def _asks(workload: Workload, line: Line, offer: Offer) -> Iterable[str]:
    """What of the new resources it asks for. Raises NotKnown."""
    wanted = {name for each in asked(workload, line.scene.settings) for name in each.amounts}
    return sorted(wanted & set(offer.gained))


def _name(workload: Workload) -> str:
    return f"{workload.metadata.namespace}/{workload.metadata.name}"


@given(what_the_scheduler_will_see, Maybe(ON_FLAVORS), Maybe(LINES))
def what_it_does_to_queues(
    offer: Offer, flavors: State[Each[Ref, Flavor]], lines: State[Each[Ref, Line]]
) -> tuple[str, ...]:
    """A cluster without Kueue has none. What can't be told is said: it costs nobody a GPU."""
    if isinstance(flavors, Inapplicable) or isinstance(lines, Inapplicable):
        return ()
    return tuple(
        dict.fromkeys(
            (
                *_as_told(flavors, lambda each: quota(each, offer), "which quota it leaves without GPUs"),
                *_as_told(lines, lambda each: served(each, offer), "which pending Workloads it would serve"),
            )
        )
    )


def _as_told(state: State[V], lines: Callable[[V], Iterator[str]], what: str) -> Sequence[str]:
    """The lines, as far as they are known, and that the rest is not."""
    if not isinstance(state, Known):
        return [f"it can't be told {what}: {state}"]
    found: list[str] = []
    known = attempt(lambda: found.extend(lines(state.value)))
    return found if isinstance(known, Known) else [*found, f"it can't be told {what}: {known}"]


# Altogether


@given(the_change, what_the_scheduler_will_see, what_it_does_to_queues, what_the_old_name_asks, the_GPU_node)
def what_the_change_does(
    change: MigChange, offer: Offer, queues: tuple[str, ...], old: tuple[Any, ...], node: Node
) -> tuple[str, ...]:
    return (
        *change.lines,
        *resources(offer),
        *queues,
        *change.consequences,
        _way_back(node, bool(old)),
    )


def _way_back(node: Node, known: bool) -> str:
    if known:
        return (
            f"undo sets {CONFIG} back to {node.config} by the same road: it needs idle GPUs, and makes the "
            "old instances anew, under new UUIDs"
        )
    return "undo gives the label back as it was, and no GPU: what it was like before is asked for by no name"


@given(which_pods_must_go)
def whom_it_takes(scope: Scope) -> str:
    return "all pods of the node must go" if scope is Scope.ALL else "the pods that hold GPUs must go"
