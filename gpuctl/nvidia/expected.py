"""What a node should offer: hardware × strategy × sharing → resources, and labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from gpuctl.nvidia.model import Gpu, Hardware
from gpuctl.nvidia.profile import Profile, parse_label

GPU: Final = "nvidia.com/gpu"
MIG: Final = "nvidia.com/mig-"
SHARED: Final = ".shared"
STRATEGIES: Final = ("none", "single", "mixed")


@dataclass(frozen=True, slots=True)
class Sharing:
    """How devices are shared. `replicas` by unshared resource name, 1 where it is not listed."""

    kind: str = "none"
    replicas: Mapping[str, int] = field(default_factory=dict)
    renamed: frozenset[str] = frozenset()

    def offered(self, devices: Mapping[str, int]) -> dict[str, int]:
        """The quantities for these devices; with renaming the plain name offers nothing."""
        offered: dict[str, int] = {}
        for name, count in devices.items():
            replicas = self.replicas.get(name, 1)
            if name in self.renamed:
                offered |= {f"{name}{SHARED}": count * replicas, name: 0}
            else:
                offered[name] = count * replicas
        return offered


@dataclass(frozen=True, slots=True)
class Expected:
    """Quantities by resource. `invalid`: why strategy single can't describe the hardware, so offers nothing.

    Where not `exact`, the attributes of profiles are not known and left out of the names.
    """

    resources: Mapping[str, int]
    invalid: str = ""
    exact: bool = True


def expected(hardware: Hardware, strategy: str, sharing: Sharing) -> Expected:
    """What the device plugin should report for this hardware."""
    if strategy == "none":
        return Expected(sharing.offered({GPU: len(hardware.gpus)}))
    if strategy == "single":
        why = uneven(hardware)
        return Expected(sharing.offered({GPU: 0 if why else _single(hardware)}), why)
    devices = {profile.resource: count for profile, count in hardware.whole_profiles.items()}
    plain = sum(not gpu.sliced for gpu in hardware.gpus)
    return Expected(sharing.offered({GPU: plain, **devices}), exact=hardware.exact)


def _single(hardware: Hardware) -> int:
    if any(gpu.sliced for gpu in hardware.gpus):
        return sum(1 for _ in hardware.devices)
    return len(hardware.gpus)


def uneven(hardware: Hardware) -> str:
    """Why strategy single can't describe the GPUs; empty if it can."""
    on = [gpu for gpu in hardware.gpus if gpu.sliced]
    off = [gpu for gpu in hardware.gpus if not gpu.sliced]
    if on and off:
        return f"MIG is on for GPU {_indices(on)} and off for GPU {_indices(off)}"
    empty = [gpu for gpu in on if not gpu.devices]
    if empty:
        return f"MIG is on for GPU {_indices(empty)}, which has no MIG device"
    kinds = sorted({str(device.profile) for device in hardware.devices})
    if len(kinds) > 1:
        return f"there are MIG devices of {len(kinds)} profiles: {', '.join(kinds)}"
    parts = sorted({str(device.profile) for device in hardware.devices if not device.profile.whole})
    return f"{parts[0]} is only a part of its GPU instance" if parts else ""


def is_mixed(hardware: Hardware) -> bool:
    """Whether the GPUs are unlike each other in a way that only strategy mixed can describe."""
    modes = {gpu.sliced for gpu in hardware.gpus}
    return len(modes) > 1 or len({device.profile for device in hardware.devices}) > 1


def _indices(gpus: Sequence[Gpu]) -> str:
    return ", ".join(str(gpu.index) for gpu in gpus)


def loosely(resources: Mapping[str, int]) -> dict[str, int]:
    """The quantities with profiles stripped of their attributes, as where those are not known."""
    loose: Counter[str] = Counter()
    for name, count in resources.items():
        loose[_plain(name)] += count
    return dict(loose)


def _plain(name: str) -> str:
    profile = profile_of(name)
    if profile is None:
        return name
    return profile.plain.resource + (SHARED if name.endswith(SHARED) else "")


def profile_of(resource: str) -> Profile | None:
    """The profile that a resource's name names, or None."""
    if not resource.startswith(MIG):
        return None
    return parse_label(resource.removeprefix(MIG).removesuffix(SHARED))
