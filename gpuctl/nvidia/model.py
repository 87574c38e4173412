"""What the silicon of a node has: the answers of nvidia-smi joined, and their gaps and contradictions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from typing import Any, Final, TypeVar

import msgspec

from gpuctl.nvidia.detail import Detail, DetailedGpu, DeviceMemory
from gpuctl.nvidia.instances import ComputeInstance, ComputeInstances, GpuInstance, GpuInstances
from gpuctl.nvidia.lines import ALIKE
from gpuctl.nvidia.listing import ListedGpu, Listing, MigDevice
from gpuctl.nvidia.output import Said, Trouble, is_whole, worst
from gpuctl.nvidia.profile import Profile, made
from gpuctl.nvidia.query import GpuRow, GpuRows, Process, Processes

T = TypeVar("T")

ENABLED: Final = "Enabled"


class Gpu(msgspec.Struct, frozen=True, gc=False):
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
        if not self.memory:
            return None
        return next((each for each in self.memory if each.index == device.index), None)


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
            [said for command, said in self.said if command == LISTING and not said.trouble.of_one_gpu]
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
    pci: tuple[str, ...] | None = None


def joined(answers: Answers) -> Hardware:
    """One account of the hardware. An answer that can't be read in full counts as not given, and is said."""
    said = [(LISTING, each) for each in answers.listing.said]
    rows = _whole("--query-gpu", answers.rows, said)
    instances = _whole("mig -lgi", answers.instances, said)
    computes = _whole("mig -lci", answers.computes, said)
    detail = _whole("-q -x", answers.detail, said)
    gpus = tuple(
        _gpu(
            gpu,
            _row(gpu, rows),
            None if instances is None else _rows_of(gpu, instances.by_gpu, instances.said),
            None if computes is None else _rows_of(gpu, computes.by_gpu, computes.said),
            _detailed(gpu, rows, detail, len(answers.listing.gpus)),
        )
        for gpu in answers.listing.gpus
    )
    said += [(LISTING, each) for each in _contradictions(answers.listing, rows, gpus)]
    return Hardware(gpus, tuple(said), answers.pci or None)


def with_processes(hardware: Hardware, answer: Processes) -> Hardware:
    """The same with the processes that --query-compute-apps tells and -q -x does not: of no instance."""
    said = list(hardware.said)
    found = _whole("--query-compute-apps", answer, said)
    gpus = hardware.gpus if found is None else tuple(_with(gpu, found) for gpu in hardware.gpus)
    return Hardware(gpus, tuple(said), hardware.pci)


def _with(gpu: Gpu, found: Processes) -> Gpu:
    known = gpu.processes or ()
    pids = {each.pid for each in known}
    more = (each for each in found.found if each.gpu == gpu.uuid and each.pid not in pids)
    return msgspec.structs.replace(gpu, processes=(*known, *more))


def _whole(command: str, answer: T, said: list[tuple[str, Said]]) -> T | None:
    """The answer, or None if something was said beside it that takes from it; that is noted."""
    if answer is None:
        return None
    beside: tuple[Said, ...] = getattr(answer, "said", ())
    said += [(command, each) for each in beside]
    return answer if is_whole(beside) else None


def _rows_of(
    gpu: ListedGpu, by_gpu: Mapping[int, tuple[T, ...]], said: Sequence[Said]
) -> tuple[T, ...] | None:
    """What was listed of one GPU, None if that is not known: where something is said of a GPU, it may be this
    one that is lost."""
    return by_gpu.get(gpu.index, None if said else ())


def _row(gpu: ListedGpu, rows: GpuRows | None) -> GpuRow | None:
    found = rows.found if rows else ()
    return next((row for row in found if row.uuid == gpu.uuid), None) or next(
        (row for row in found if not row.uuid and row.index == gpu.index), None
    )


def _detailed(gpu: ListedGpu, rows: GpuRows | None, detail: Detail | None, count: int) -> DetailedGpu | None:
    if detail is None:
        return None
    row = _row(gpu, rows)
    for each in detail.gpus:
        if each.uuid == gpu.uuid or each.index == gpu.index:
            return each
        if not each.uuid and each.index is None and row and row.bus_id == each.bus_id:
            return each
    only = detail.gpus[0] if len(detail.gpus) == count == 1 else None
    return only if only and not only.uuid and only.index is None else None


def _gpu(
    gpu: ListedGpu,
    row: GpuRow | None,
    instances: tuple[GpuInstance, ...] | None,
    computes: tuple[ComputeInstance, ...] | None,
    detail: DetailedGpu | None,
) -> Gpu:
    sources = [each for each in (row, detail) if each is not None]

    def told(name: str) -> Any:
        for each in sources:
            value = getattr(each, name)
            if value not in ("", None):
                return value
        return None

    memory = detail.devices if detail else None
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
        devices=_devices(gpu, instances, computes, memory),
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
) -> tuple[MigDevice, ...]:
    """The devices with the numbers of their instances, and with the attributes of their GPU instance."""
    if not gpu.devices:
        return ()
    old = tuple(device.told for device in gpu.devices) if gpu.devices[0].told else ()
    if old and None not in old:
        numbers: Numbers = old
    elif memory:
        told = {each.index: (each.instance, each.compute) for each in memory}
        numbers = tuple(told.get(device.index) for device in gpu.devices)
    else:
        numbers = _numbers(tuple([device.profile for device in gpu.devices]), instances, computes)
    return _placed(gpu.devices, numbers, {each.id: each.profile for each in instances or ()})


def _placed(
    devices: tuple[MigDevice, ...], numbers: Numbers, profiles: Mapping[int, Profile]
) -> tuple[MigDevice, ...]:
    placed: list[MigDevice] = []
    for device, numbered in zip(devices, numbers, strict=True):
        if numbered is None:
            placed.append(device)
            continue
        profile, exact = _exact(device.profile, profiles.get(numbered[0]))
        placed.append(MigDevice(device.index, profile, device.uuid, *numbered, exact))
    return tuple(placed)


Numbers = tuple[tuple[int, int | None] | None, ...]  # GPU instance and compute instance of each device


@lru_cache(maxsize=ALIKE)
def _numbers(
    profiles: tuple[Profile, ...],
    instances: tuple[GpuInstance, ...] | None,
    computes: tuple[ComputeInstance, ...] | None,
) -> Numbers:
    """The instances of devices with these profiles, where neither UUIDs nor memory tell them.

    Devices are in ascending order of their instances, which holds only where all profiles agree. Those that
    are whole fill their GPU instances: where there are as many of both, one lies in each.
    """
    unknown = (None,) * len(profiles)
    if computes:
        fits = len(computes) == len(profiles) and all(map(_fits_device, computes, profiles))
        return tuple([(each.instance, each.id) for each in computes]) if fits else unknown
    found = instances or ()
    fits = len(found) == len(profiles) and all(map(_fills, found, profiles))
    return tuple([(each.id, None) for each in found]) if fits else unknown


@cache
def _exact(device: Profile, instance: Profile | None) -> tuple[Profile, bool]:
    """The profile of a device in this GPU instance, and whether it is known with its attributes."""
    if instance is None or not _fits(instance, device):
        return device, False
    return made(device.compute, instance.slices, instance.gigabytes, instance.attributes), True


def _fills(instance: GpuInstance, device: Profile) -> bool:
    return device.whole and not instance.remnant and _fits(instance.profile, device)


def _fits_device(compute: ComputeInstance, device: Profile) -> bool:
    return compute.profile.plain is device.plain


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
        if other := _other_layout(gpu):
            yield Said(
                Trouble.UNREADABLE,
                f"-L lists {len(gpu.devices)} devices of GPU {gpu.index}, {other}: one is cut off, or the "
                "layout changed in between",
            )


def _other_layout(gpu: Gpu) -> str:
    """What does not go with the devices of a GPU; empty if all does."""
    if gpu.computes is not None and len(gpu.computes) != len(gpu.devices):
        return f"-lci {len(gpu.computes)}"
    if gpu.instances is not None and len(gpu.instances) < _instances_of(gpu.devices):
        return f"-lgi {len(gpu.instances)} instances"
    return ""


def _instances_of(devices: Sequence[MigDevice]) -> int:
    """How many GPU instances at least these devices lie in: a whole one fills its own."""
    whole = sum(each.profile.whole for each in devices)
    return whole + (whole < len(devices))


def counted(profiles: Iterable[Profile]) -> str:
    """`2x 1g.10gb, 1x 3g.40gb`."""
    return _counted(tuple(profiles))


@lru_cache(maxsize=4096)
def _counted(profiles: tuple[Profile, ...]) -> str:
    return ", ".join(f"{count}x {name}" for name, count in sorted(Counter(map(str, profiles)).items()))
