"""GPUs as pictures: where their slices lie, who holds them, and what is free. A view, without a verdict."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import eq
from typing import Final, TypeVar

import msgspec

from gpuctl.facts.fact import Maybe, given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Each, Known, Reason, State, Unknown, attempt
from gpuctl.nvidia.expected import GPU
from gpuctl.nvidia.exporter import Slice, holders_by_exporter
from gpuctl.nvidia.facts import FIRST, GPU_nodes_at_first
from gpuctl.nvidia.kubelet import Devices
from gpuctl.nvidia.listing import MigDevice
from gpuctl.nvidia.model import Gpu, Hardware
from gpuctl.nvidia.node import Node
from gpuctl.nvidia.offers import Placements

T = TypeVar("T")

_EIGHTHS: Final = 8
_LABELS: Final = (
    "gpu.product",
    "gpu.count",
    "gpu.replicas",
    "mig.strategy",
    "mig.config",
    "mig.config.state",
)


class ProcessPicture(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A process on a GPU, as nvidia-smi names it."""

    pid: int
    name: str
    memory_mib: int | None = msgspec.field(default=None, name="memoryMiB")


class SlicePicture(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A MIG device, or a whole GPU. `start` and `size` are in memory slices, -1 where the place is not known.

    `held` is None where nothing tells who holds it; `holders` are `namespace/pod`, or UIDs of pods unknown;
    `told_by` is who says so.
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
    told_by: str = ""
    processes: tuple[ProcessPicture, ...] = ()


class GpuPicture(msgspec.Struct, frozen=True, rename="camel"):
    """A GPU of so many memory slices. Empty strings stand for what is not known. `processes` are those of
    which nothing tells the slice."""

    index: int
    model: str
    uuid: str
    bus_id: str
    mode: str
    pending: str
    slots: int
    slices: tuple[SlicePicture, ...]
    layout: str
    processes: tuple[ProcessPicture, ...] = ()


class NodePicture(msgspec.Struct, frozen=True, rename="camel"):
    """A node. `labels` are those that tell of its slices, without NVIDIA's prefix; `unknown` says why no GPUs
    are shown."""

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
    labels: dict[str, str] = {}

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
    GPU_nodes_at_first,
    Maybe(FIRST.hardware),
    Maybe(FIRST.placements),
    Maybe(FIRST.kubelet),
    Maybe(holders_by_exporter),
)
def pictures_of_nodes(
    nodes: Each[Ref, Node],
    hardware: State[Each[str, Hardware]],
    placements: State[Each[str, Placements]],
    kubelet: State[Each[str, Devices]],
    exporter: State[Mapping[Slice, tuple[str, ...]]],
) -> Each[Ref, NodePicture]:
    """Every GPU node as far as it is known."""
    named = exporter.value if isinstance(exporter, Known) else {}
    return nodes.map(
        lambda node: picture(
            node, _of(hardware, node), _of(placements, node), Holders.of(node, _of(kubelet, node), named)
        )
    )


def _of(answers: State[Each[str, T]], node: Node) -> State[T]:
    if not isinstance(answers, Known):
        return answers
    return answers.value.entries.get(node.name, Unknown(Reason.NOT_ASKED, "not looked into", node.name))


def picture(
    node: Node, hardware: State[Hardware], placements: State[Placements], holders: Holders
) -> NodePicture:
    """One node."""
    gpus: tuple[GpuPicture, ...] = ()
    unknown = "" if isinstance(hardware, Known) else str(hardware)
    if isinstance(hardware, Known):
        obstacle = hardware.value.obstacle
        unknown = str(obstacle) if obstacle else ""
        gpus = tuple(_gpu(gpu, placements, holders) for gpu in hardware.value.gpus)
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
        labels=dict(_labels(node)),
    )


def _labels(node: Node) -> Iterator[tuple[str, str]]:
    for name in _LABELS:
        if node.label(name):
            yield name, node.label(name)
    for profile, count in sorted(node.labelled_profiles.items(), key=lambda item: str(item[0])):
        yield f"mig-{profile.label}.count", str(count)


@dataclass(frozen=True, slots=True)
class Holders:
    """Who holds what. `by_device` is the kubelet's account, which is whole, or None if there is none;
    `by_slice` is DCGM exporter's, which may lack some."""

    by_device: Mapping[str, tuple[str, ...]] | None
    by_slice: Mapping[Slice, tuple[str, ...]]

    @staticmethod
    def of(node: Node, kubelet: State[Devices], by_slice: Mapping[Slice, tuple[str, ...]]) -> Holders:
        """Those of a node."""
        return Holders(_by_device(node, kubelet), by_slice)

    def held(self, uuid: str, place: Slice | None) -> tuple[bool | None, tuple[str, ...], str]:
        """Whether a device is held, by which pods, and who says so; None where nothing tells."""
        if self.by_device is not None:
            return uuid in self.by_device, self.by_device.get(uuid, ()), "kubelet"
        named = self.by_slice.get(place, ()) if place else ()
        return (True, named, "dcgm-exporter") if named else (None, (), "")


def _by_device(node: Node, kubelet: State[Devices]) -> Mapping[str, tuple[str, ...]] | None:
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


def _gpu(gpu: Gpu, placements: State[Placements], holders: Holders) -> GpuPicture:
    slots = _slots(gpu, placements)
    whole = not gpu.sliced and not gpu.devices
    slices = (_whole(gpu, slots, holders),) if whole else tuple(_slices(gpu, holders))
    there = {each.instance for each in slices}
    loose = () if whole else tuple(_on(gpu, lambda instance: instance not in there or instance is None))
    return GpuPicture(
        gpu.index, gpu.name, gpu.uuid, gpu.bus_id, gpu.mode, gpu.pending, slots, slices, gpu.layout, loose
    )


def _on(gpu: Gpu, where: Callable[[int | None], bool]) -> Iterator[ProcessPicture]:
    """Its processes on such GPU instances."""
    for each in gpu.processes or ():
        if where(each.instance):
            yield ProcessPicture(each.pid, each.name, each.memory)


def _whole(gpu: Gpu, slots: int, holders: Holders) -> SlicePicture:
    held, pods, told_by = holders.held(gpu.uuid, (gpu.uuid, None))
    return SlicePicture(
        name="whole GPU" if gpu.mode else "GPU of unknown MIG mode",
        uuid=gpu.uuid,
        start=0,
        size=slots,
        used_mib=gpu.memory_used,
        total_mib=gpu.memory_total,
        held=held,
        holders=pods,
        told_by=told_by,
        processes=tuple(_on(gpu, lambda _: True)),
    )


def _slices(gpu: Gpu, holders: Holders) -> Iterator[SlicePicture]:
    """The devices; then GPU instances that no device lies in."""
    places = {each.id: each for each in gpu.instances or ()}
    shared = Counter(device.instance for device in gpu.devices)
    for device in gpu.devices:
        number = device.instance
        place = places.get(number) if number is not None else None
        alone = number is not None and shared[number] == 1
        memory = gpu.memory_of(device)
        held, pods, told_by = holders.held(device.uuid, (gpu.uuid, number) if alone else None)
        yield SlicePicture(
            name=str(device.profile),
            uuid=device.uuid,
            start=place.start if place else -1,
            size=place.size if place else _share(gpu, device),
            instance=number,
            compute=device.compute,
            used_mib=memory.used if memory else None,
            total_mib=memory.total if memory else None,
            held=held,
            holders=pods,
            told_by=told_by,
            processes=tuple(_on(gpu, partial(eq, number))) if alone else (),
        )
    if None not in shared:
        for each in gpu.instances or ():
            if each.id not in shared:
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
