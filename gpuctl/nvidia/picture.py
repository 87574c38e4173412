"""GPUs as pictures: where their slices lie, who holds them, and what is free. A view, without a verdict."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from gpuctl.facts.fact import Maybe, given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Each, Known, Reason, State, Unknown, attempt
from gpuctl.nvidia.expected import GPU
from gpuctl.nvidia.facts import FIRST, GPU_nodes_at_first
from gpuctl.nvidia.kubelet import Devices
from gpuctl.nvidia.listing import MigDevice
from gpuctl.nvidia.model import Gpu, Hardware
from gpuctl.nvidia.node import Node
from gpuctl.nvidia.offers import Placements

T = TypeVar("T")

_EIGHTHS: Final = 8


class SlicePicture(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A MIG device, or a whole GPU. `start` and `size` are in memory slices, -1 where the place is not known.

    `held` is None where nothing tells who holds it; `holders` are `namespace/pod`, or UIDs of pods unknown.
    """

    name: str
    uuid: str
    start: int = -1
    size: int = 1
    instance: int | None = None
    compute: int | None = None
    used_mib: int | None = msgspec.field(default=None, name="usedMiB")
    total_mib: int | None = msgspec.field(default=None, name="totalMiB")
    held: bool | None = None
    holders: tuple[str, ...] = ()


class GpuPicture(msgspec.Struct, frozen=True, rename="camel"):
    """A GPU of so many memory slices. Empty strings stand for what is not known."""

    index: int
    model: str
    uuid: str
    bus_id: str
    mode: str
    pending: str
    slots: int
    slices: tuple[SlicePicture, ...]
    layout: str


class NodePicture(msgspec.Struct, frozen=True, rename="camel"):
    """A node. `unknown` says why its GPUs are not shown."""

    name: str
    ready: bool
    product: str
    strategy: str
    sharing: str
    config: str
    state: str
    change: str
    capacity: dict[str, int]
    allocatable: dict[str, int]
    gpus: tuple[GpuPicture, ...] = ()
    unknown: str = ""

    @property
    def layout(self) -> str:
        """The layouts of its GPUs, those alike counted."""
        counts = Counter(gpu.layout for gpu in self.gpus)
        return "; ".join(f"{count} GPU: {layout}" for layout, count in counts.items()) or "not known"

    @property
    def kind(self) -> tuple[str, str, str, str, str]:
        """Nodes of one kind differ in nothing that the table shows."""
        return self.product, self.strategy, self.config, self.state, self.layout


@given(
    GPU_nodes_at_first, Maybe(FIRST.hardware), Maybe(FIRST.placements), Maybe(FIRST.kubelet)
)  # fmt: skip
def pictures_of_nodes(
    nodes: Each[Ref, Node],
    hardware: State[Each[str, Hardware]],
    placements: State[Each[str, Placements]],
    kubelet: State[Each[str, Devices]],
) -> Each[Ref, NodePicture]:
    """Every GPU node as far as it is known."""
    return nodes.map(
        lambda node: picture(node, _of(hardware, node), _of(placements, node), _of(kubelet, node))
    )


def _of(answers: State[Each[str, T]], node: Node) -> State[T]:
    if not isinstance(answers, Known):
        return answers
    return answers.value.entries.get(node.name, Unknown(Reason.NOT_ASKED, "not looked into", node.name))


def picture(
    node: Node, hardware: State[Hardware], placements: State[Placements], kubelet: State[Devices]
) -> NodePicture:
    """One node."""
    gpus: tuple[GpuPicture, ...] = ()
    unknown = "" if isinstance(hardware, Known) else str(hardware)
    if isinstance(hardware, Known):
        obstacle = hardware.value.obstacle
        unknown = str(obstacle) if obstacle else ""
        owners = _holders(node, kubelet)
        gpus = tuple(_gpu(gpu, placements, owners) for gpu in hardware.value.gpus)
    return NodePicture(
        name=node.name,
        ready=node.ready,
        product=node.product,
        strategy=node.strategy,
        sharing=node.sharing.kind,
        config=node.config,
        state=node.state,
        change=node.change.what if node.change else "",
        capacity=dict(node.capacity),
        allocatable=dict(node.allocatable),
        gpus=gpus,
        unknown=unknown,
    )


def _holders(node: Node, kubelet: State[Devices]) -> Mapping[str, tuple[str, ...]] | None:
    """Pods by device, None where nothing tells."""
    if not isinstance(kubelet, Known):
        return None
    pods = attempt(lambda: node.pods)
    there = pods.value if isinstance(pods, Known) else ()
    names = {pod.metadata.uid: f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in there}
    found: dict[str, list[str]] = {}
    for held in kubelet.value.held:
        if held.pod in names or not isinstance(pods, Known):
            found.setdefault(held.device, []).append(names.get(held.pod, f"pod {held.pod}"))
    return {device: tuple(dict.fromkeys(pods_of)) for device, pods_of in found.items()}


def _gpu(gpu: Gpu, placements: State[Placements], owners: Mapping[str, tuple[str, ...]] | None) -> GpuPicture:
    slots = _slots(gpu, placements)
    whole = not gpu.sliced and not gpu.devices
    slices = (_whole(gpu, slots, owners),) if whole else tuple(_slices(gpu, owners))
    return GpuPicture(
        gpu.index, gpu.name, gpu.uuid, gpu.bus_id, gpu.mode, gpu.pending, slots, slices, gpu.layout
    )


def _whole(gpu: Gpu, slots: int, owners: Mapping[str, tuple[str, ...]] | None) -> SlicePicture:
    return SlicePicture(
        name="whole GPU",
        uuid=gpu.uuid,
        start=0,
        size=slots,
        used_mib=gpu.memory_used,
        total_mib=gpu.memory_total,
        held=None if owners is None else gpu.uuid in owners,
        holders=(owners or {}).get(gpu.uuid, ()),
    )


def _slices(gpu: Gpu, owners: Mapping[str, tuple[str, ...]] | None) -> Iterator[SlicePicture]:
    """The devices; then GPU instances that no device lies in."""
    places = {each.id: each for each in gpu.instances or ()}
    for device in gpu.devices:
        place = places.get(device.instance) if device.instance is not None else None
        memory = gpu.memory_of(device)
        yield SlicePicture(
            name=str(device.profile),
            uuid=device.uuid,
            start=place.start if place else -1,
            size=place.size if place else _share(gpu, device),
            instance=device.instance,
            compute=device.compute,
            used_mib=memory.used if memory else None,
            total_mib=memory.total if memory else None,
            held=None if owners is None else device.uuid in owners,
            holders=(owners or {}).get(device.uuid, ()),
        )
    used = {device.instance for device in gpu.devices}
    if None not in used:
        for each in gpu.instances or ():
            if each.id not in used:
                name = f"{each.profile} without compute instance"
                yield SlicePicture(name, "", each.start, each.size, each.id)


def _share(gpu: Gpu, device: MigDevice) -> int:
    """How many eighths of the GPU's memory a device has, by its name."""
    if not gpu.memory_total:
        return max(1, device.profile.slices)
    return max(1, round(_EIGHTHS * device.profile.gigabytes / math.ceil(gpu.memory_total / 1024)))


def _slots(gpu: Gpu, placements: State[Placements]) -> int:
    """How many memory slices there are: as placements tell, or as an instance's share of the memory."""
    told = placements.value.found if isinstance(placements, Known) else ()
    ends = [start + each.size for each in told if each.gpu == gpu.index for start in each.starts]
    if ends:
        return max(ends)
    if gpu.memory_total:
        total = math.ceil(gpu.memory_total / 1024)
        sized = [each for each in gpu.instances or () if each.profile.gigabytes]
        shares = [round(each.size * total / each.profile.gigabytes) for each in sized]
        if shares:
            return max(shares)
    return max([_EIGHTHS, *(each.start + each.size for each in gpu.instances or ())])


def offered(nodes: Sequence[NodePicture]) -> dict[str, int]:
    """What nodes offer together, without what they offer none of."""
    counts: Counter[str] = Counter()
    for node in nodes:
        counts.update({name: count for name, count in node.allocatable.items() if count})
    return dict(sorted(counts.items(), key=lambda item: (item[0] != GPU, item[0])))
