"""What the silicon of a node has: the answers of nvidia-smi joined, and their gaps and contradictions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, Final, TypeVar

import msgspec

from gpuctl.nvidia.detail import Detail, DetailedGpu, DeviceMemory
from gpuctl.nvidia.instances import ComputeInstance, ComputeInstances, GpuInstance, GpuInstances
from gpuctl.nvidia.listing import ListedGpu, Listing, MigDevice
from gpuctl.nvidia.output import Said, Trouble, worst
from gpuctl.nvidia.profile import Profile, made
from gpuctl.nvidia.query import GpuRow, GpuRows, Process
from gpuctl.nvidia.table import Table

T = TypeVar("T")
Of_a_GPU = TypeVar("Of_a_GPU", GpuInstance, ComputeInstance)

ENABLED: Final = "Enabled"
# What is said of one GPU takes nothing from what is listed of the others.
_OF_ONE_GPU: Final = frozenset({Trouble.GPU_LOST, Trouble.GPU_ERROR, Trouble.MODE_PENDING, Trouble.IN_USE})


class Gpu(msgspec.Struct, frozen=True):
    """One GPU. `mode` and `pending` are Enabled, Disabled, N/A, or empty if not known.

    `instances` and `computes` are None where nvidia-smi did not tell them.
    """

    index: int
    name: str
    uuid: str
    mode: str = ""
    pending: str = ""
    bus_id: str = ""
    device_id: str = ""
    memory_total: int | None = None
    memory_used: int | None = None
    compute_mode: str = ""
    devices: tuple[MigDevice, ...] = ()
    instances: tuple[GpuInstance, ...] | None = None
    computes: tuple[ComputeInstance, ...] | None = None
    memory: tuple[DeviceMemory, ...] | None = None
    processes: tuple[Process, ...] | None = None

    def __str__(self) -> str:
        """By index, PCI address and UUID: the three names a person may look for."""
        return f"GPU {self.index} ({', '.join(part for part in (self.bus_id, self.uuid) if part)})"

    @property
    def sliced(self) -> bool:
        """Whether MIG is on."""
        return self.mode == ENABLED

    @property
    def product(self) -> str:
        """The model as labels write it, without the maker's name: old drivers leave it out."""
        return self.name.replace(" ", "-").removeprefix("NVIDIA-")

    @property
    def layout(self) -> str:
        """`2x 1g.10gb, 1x 3g.40gb`, `MIG off`, or `MIG on and empty`."""
        if not self.sliced:
            return "MIG off" if self.mode else "MIG mode unknown"
        return counted(each.profile for each in self.devices) or "MIG on and empty"

    def memory_of(self, device: MigDevice) -> DeviceMemory | None:
        """The memory of one of its devices, where nvidia-smi told it."""
        return next((each for each in self.memory or () if each.index == device.index), None)


class Hardware(msgspec.Struct, frozen=True, dict=True):
    """The GPUs of a node. `said` is what nvidia-smi says is wrong, with the command that said it.

    `pci` are the addresses of NVIDIA GPUs on the PCI bus, None if not known.
    """

    gpus: tuple[Gpu, ...] = ()
    said: tuple[tuple[str, Said], ...] = ()
    pci: tuple[str, ...] | None = None

    @cached_property
    def models(self) -> Mapping[str, tuple[Gpu, ...]]:
        """The GPUs by model."""
        models: dict[str, list[Gpu]] = {}
        for gpu in self.gpus:
            models.setdefault(gpu.product, []).append(gpu)
        return {name: tuple(gpus) for name, gpus in models.items()}

    @property
    def devices(self) -> Iterator[MigDevice]:
        """The MIG devices of all GPUs."""
        return (device for gpu in self.gpus for device in gpu.devices)

    @cached_property
    def whole_profiles(self) -> Mapping[Profile, int]:
        """The profiles of devices that can be advertised, counted."""
        return Counter(device.profile for device in self.devices if device.profile.whole)

    @cached_property
    def exact(self) -> bool:
        """Whether the attributes of all devices are known."""
        return all(device.exact for device in self.devices)

    @cached_property
    def obstacle(self) -> Said | None:
        """Why the list of GPUs can't be relied on, or None."""
        return worst(
            [said for command, said in self.said if command == LISTING and said.trouble not in _OF_ONE_GPU]
        )

    @cached_property
    def layout(self) -> str:
        """`8x NVIDIA-H100: 7x 1g.10gb` for GPUs alike; several parts otherwise."""
        kinds = Counter((gpu.name, gpu.layout) for gpu in self.gpus)
        return "; ".join(f"{count}x {name}: {layout}" for (name, layout), count in kinds.items()) or "no GPU"


LISTING: Final = "-L"


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """What the commands printed, parsed; None for what was not asked or not told."""

    listing: Listing
    rows: GpuRows | None = None
    instances: GpuInstances | None = None
    computes: ComputeInstances | None = None
    detail: Detail | None = None
    table: Table | None = None
    pci: tuple[str, ...] | None = None


def joined(answers: Answers) -> Hardware:
    """One account of the hardware. An answer that can't be read in full counts as not given, and is said."""
    said = [(LISTING, each) for each in answers.listing.said]
    rows = _whole("--query-gpu", answers.rows, said)
    instances = _whole("mig -lgi", answers.instances, said)
    computes = _whole("mig -lci", answers.computes, said)
    detail = _whole("-q -x", answers.detail, said)
    table = _whole("", answers.table, said)
    instances_of = _by_gpu(instances.found if instances else ())
    computes_of = _by_gpu(computes.found if computes else ())
    gpus = tuple(
        _gpu(
            gpu,
            _row(gpu, rows),
            None if instances is None else tuple(instances_of.get(gpu.index, ())),
            None if computes is None else tuple(computes_of.get(gpu.index, ())),
            _detailed(gpu, rows, detail, len(answers.listing.gpus)),
            _tabled(gpu.index, table),
        )
        for gpu in answers.listing.gpus
    )
    said += [(LISTING, each) for each in _contradictions(answers.listing, rows, gpus)]
    return Hardware(gpus, tuple(said), answers.pci or None)


def _whole(command: str, answer: T, said: list[tuple[str, Said]]) -> T | None:
    """The answer, or None if something was said beside it that takes from it; that is noted."""
    if answer is None:
        return None
    beside: tuple[Said, ...] = getattr(answer, "said", ())
    said += [(command, each) for each in beside]
    return answer if all(each.trouble in _OF_ONE_GPU for each in beside) else None


def _row(gpu: ListedGpu, rows: GpuRows | None) -> GpuRow | None:
    found = rows.found if rows else ()
    return next((row for row in found if row.uuid == gpu.uuid), None) or next(
        (row for row in found if not row.uuid and row.index == gpu.index), None
    )


def _by_gpu(found: Sequence[Of_a_GPU]) -> Mapping[int, list[Of_a_GPU]]:
    groups: dict[int, list[Of_a_GPU]] = {}
    for each in found:
        groups.setdefault(each.gpu, []).append(each)
    return groups


def _detailed(gpu: ListedGpu, rows: GpuRows | None, detail: Detail | None, count: int) -> DetailedGpu | None:
    if detail is None:
        return None
    row = _row(gpu, rows)
    for each in detail.gpus:
        if each.uuid == gpu.uuid or (not each.uuid and row and row.bus_id == each.bus_id):
            return each
    only = detail.gpus[0] if len(detail.gpus) == count == 1 else None
    return only if only and not only.uuid else None


def _tabled(index: int, table: Table | None) -> tuple[DeviceMemory, ...] | None:
    return None if table is None else tuple(each for gpu, each in table.devices if gpu == index)


def _gpu(
    gpu: ListedGpu,
    row: GpuRow | None,
    instances: tuple[GpuInstance, ...] | None,
    computes: tuple[ComputeInstance, ...] | None,
    detail: DetailedGpu | None,
    tabled: tuple[DeviceMemory, ...] | None,
) -> Gpu:
    sources = [each for each in (row, detail) if each is not None]

    def told(name: str) -> Any:
        for each in sources:
            value = getattr(each, name)
            if value not in ("", None):
                return value
        return None

    memory = detail.devices if detail else tabled
    return Gpu(
        index=gpu.index,
        name=gpu.name,
        uuid=gpu.uuid,
        mode=told("mode") or (ENABLED if gpu.devices or instances else ""),
        pending=told("pending") or "",
        bus_id=told("bus_id") or "",
        device_id=told("device_id") or "",
        memory_total=told("memory_total"),
        memory_used=told("memory_used"),
        compute_mode=told("compute_mode") or "",
        devices=tuple(_devices(gpu, instances, computes, memory)),
        instances=instances,
        computes=computes,
        memory=memory,
        processes=detail.processes if detail else None,
    )


def _devices(
    gpu: ListedGpu,
    instances: tuple[GpuInstance, ...] | None,
    computes: tuple[ComputeInstance, ...] | None,
    memory: tuple[DeviceMemory, ...] | None,
) -> Iterator[MigDevice]:
    """The devices with the numbers of their instances, and with the attributes of their GPU instance."""
    profiles = {each.id: each.profile for each in instances or ()}
    numbers = _numbers(gpu, computes, memory)
    for device in gpu.devices:
        instance, compute = numbers.get(device.index, (None, None))
        known = profiles.get(instance) if instance is not None else None
        if known is None and instance is None:
            yield device
        elif known is None or not _fits(known, device.profile):
            yield MigDevice(device.index, device.profile, device.uuid, instance, compute)
        else:
            profile = made(device.profile.compute, known.slices, known.gigabytes, known.attributes)
            yield MigDevice(device.index, profile, device.uuid, instance, compute, exact=True)


def _numbers(
    gpu: ListedGpu, computes: tuple[ComputeInstance, ...] | None, memory: tuple[DeviceMemory, ...] | None
) -> dict[int, tuple[int, int]]:
    """GPU instance and compute instance by number of device.

    Told by old UUIDs, by the XML or the table; else devices are in ascending order of their instances, which
    holds only where all profiles agree.
    """
    old = {device.index: device.told for device in gpu.devices}
    if gpu.devices and None not in old.values():
        return {index: numbers for index, numbers in old.items() if numbers}
    if memory:
        return {each.index: (each.instance, each.compute) for each in memory}
    order = sorted(computes or (), key=lambda each: (each.instance, each.id))
    if len(order) != len(gpu.devices) or not all(map(_fits_device, order, gpu.devices)):
        return {}
    return {device.index: (each.instance, each.id) for each, device in zip(order, gpu.devices, strict=True)}


def _fits_device(compute: ComputeInstance, device: MigDevice) -> bool:
    return compute.profile.plain == device.profile.plain


def _fits(instance: Profile, device: Profile) -> bool:
    return (instance.slices, instance.gigabytes) == (device.slices, device.gigabytes)


def _contradictions(listing: Listing, rows: GpuRows | None, gpus: Iterable[Gpu]) -> Iterator[Said]:
    """Answers that can't both be whole: one was cut, or a change came between them."""
    if rows and len(rows.found) != len(listing.gpus):
        yield Said(
            Trouble.UNREADABLE,
            f"-L lists {len(listing.gpus)} GPUs, --query-gpu {len(rows.found)}: one is cut off",
        )
    for gpu in gpus:
        if gpu.computes is not None and len(gpu.computes) != len(gpu.devices):
            yield Said(
                Trouble.UNREADABLE,
                f"-L lists {len(gpu.devices)} devices of GPU {gpu.index}, -lci {len(gpu.computes)}: "
                "one is cut off, or the layout changed in between",
            )


def counted(profiles: Iterable[Profile]) -> str:
    """`2x 1g.10gb, 1x 3g.40gb`."""
    return _counted(tuple(profiles))


@lru_cache(maxsize=4096)
def _counted(profiles: tuple[Profile, ...]) -> str:
    return ", ".join(f"{count}x {name}" for name, count in sorted(Counter(map(str, profiles)).items()))
