"""mig-parted's configurations: what a name in `nvidia.com/mig.config` asks of which GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Final, Literal

import msgspec

from gpuctl.facts.state import NotKnown, Reason, Unknown
from gpuctl.nvidia.model import Gpu, Hardware, counted
from gpuctl.nvidia.profile import Profile, gigabytes, parse

_EIGHTHS: Final = 8


class _Entry(msgspec.Struct, frozen=True, rename="kebab"):
    devices: Literal["all"] | tuple[int, ...]
    mig_enabled: bool
    device_filter: str | tuple[str, ...] | None = None
    mig_devices: dict[str, Annotated[int, msgspec.Meta(ge=0)]] = {}


class _Configs(msgspec.Struct, frozen=True, rename="kebab"):
    version: str
    mig_configs: dict[str, tuple[_Entry, ...]]


@dataclass(frozen=True, slots=True)
class Part:
    """What a configuration asks of the GPUs it covers. `filters` are PCI device ids, `devices` indices."""

    enabled: bool
    wanted: tuple[tuple[str, int], ...]
    filters: tuple[str, ...] = ()
    devices: tuple[int, ...] | None = None

    @property
    def meant_empty(self) -> bool:
        """Whether it wants MIG on and nothing in it."""
        return self.enabled and not self.wanted

    def covers(self, gpu: Gpu) -> bool:
        """Whether it is about this GPU. Raises `NotKnown` where that hangs on an unknown device id."""
        if self.devices is not None and gpu.index not in self.devices:
            return False
        if self.filters and not gpu.device_id:
            raise NotKnown(Unknown(Reason.NOT_ASKED, "its PCI device id is not known", str(gpu)))
        return not self.filters or gpu.device_id in self.filters

    def __str__(self) -> str:
        if not self.enabled:
            return "MIG off"
        return ", ".join(f"{count}x {name}" for name, count in sorted(self.wanted)) or "MIG on and empty"


Configs = Mapping[str, tuple[Part, ...]]


@lru_cache(maxsize=256)
def parse_configs(text: str) -> Configs:
    """The configurations of a file by name. Raises ValueError."""
    import yaml

    try:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        tree: Any = yaml.load(text, loader)  # noqa: S506 - a safe loader
        configs = msgspec.convert(tree, _Configs).mig_configs
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise ValueError(" ".join(str(error).split())) from error
    return {name: tuple(_part(entry) for entry in entries) for name, entries in configs.items()}


def _part(entry: _Entry) -> Part:
    given = entry.device_filter or ()
    filters = (given,) if isinstance(given, str) else given
    return Part(
        enabled=entry.mig_enabled,
        wanted=tuple(sorted((name, count) for name, count in entry.mig_devices.items() if count)),
        filters=tuple(each.partition(":")[0].lower() for each in filters),
        devices=None if entry.devices == "all" else entry.devices,
    )


@dataclass(frozen=True, slots=True)
class Difference:
    """A GPU that is not as the configuration wants it. `wanted` None: the configuration is silent on it."""

    gpu: Gpu
    wanted: Part | None

    def __str__(self) -> str:
        if self.wanted is None:
            return f"{self.gpu}: not covered by the configuration"
        return f"{self.gpu}: wanted {self.wanted}; is {_layout(self.gpu)}"


def differences(parts: tuple[Part, ...], hardware: Hardware) -> Iterator[Difference]:
    """The GPUs that are not as wanted. A mode that is not known refutes nothing."""
    for gpu in hardware.gpus:
        covering = [part for part in parts if part.covers(gpu)]
        wanted = covering[-1] if covering else None
        if wanted is None or not _met(wanted, gpu):
            yield Difference(gpu, wanted)


def _met(wanted: Part, gpu: Gpu) -> bool:
    if not gpu.mode and not gpu.devices:
        raise NotKnown(Unknown(Reason.NOT_ASKED, "its MIG mode is not known", str(gpu)))
    if wanted.enabled != gpu.sliced:
        return False
    return not wanted.enabled or _profiles(wanted, gpu) == _present(gpu)


def _present(gpu: Gpu) -> Counter[Profile]:
    if gpu.instances is not None:
        return Counter(each.profile for each in gpu.instances)
    return Counter(device.profile.instance.plain for device in gpu.devices)


def _profiles(wanted: Part, gpu: Gpu) -> Counter[Profile]:
    """What is wanted, without attributes where those of the hardware are not known."""
    profiles: Counter[Profile] = Counter()
    for name, count in wanted.wanted:
        profile = parse(name)
        if profile is not None:
            profiles[profile if gpu.instances is not None else profile.instance.plain] += count
    return profiles


def _layout(gpu: Gpu) -> str:
    if gpu.sliced and gpu.instances:
        return counted(each.profile for each in gpu.instances)
    return gpu.layout


def impossible(part: Part, gpu: Gpu, offered: frozenset[Profile] | None) -> tuple[str, ...]:
    """The wanted profiles that the GPU can't have: not among those it offers, or of no such size.

    Sizes are shares of the GPU's memory in eighths; without offers and memory nothing is held against it.
    """
    return tuple(name for name, _ in part.wanted if not _possible(parse(name), gpu, offered))


def _possible(profile: Profile | None, gpu: Gpu, offered: frozenset[Profile] | None) -> bool:
    if profile is None:
        return False
    if offered:
        return profile.instance in offered
    if not gpu.memory_total:
        return True
    total = gpu.memory_total
    shares = {gigabytes(total * eighths / _EIGHTHS, total) for eighths in range(1, _EIGHTHS + 1)}
    return any(abs(profile.gigabytes - share) <= 1 for share in shares)
