"""`nvidia-smi -L`: the GPUs of a node, and the MIG devices on them.

It names the compute instance: a GPU instance 1g.10gb+me appears as 1g.10gb, and a GPU without devices may
have MIG off, or on and be empty.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from gpuctl.facts.nodes import Output
from gpuctl.nvidia.lines import Form, scan
from gpuctl.nvidia.output import Said, Trouble, shortened
from gpuctl.nvidia.profile import Profile, parse

_GPU: Final = r"GPU[ \t]+(\d+):[ \t]+(.+?)[ \t]+\(UUID:[ \t]*(GPU-[^)\s]+)\)[ \t]*"
_DEVICE: Final = r"[ \t]+MIG[ \t]+(\S+)[ \t]+Device[ \t]+(\d+):[ \t]+\(UUID:[ \t]*(MIG-[^)\s]+)\)[ \t]*"
_FORM: Final = Form.of(_GPU, _DEVICE, framed=False)
_OLD_UUID: Final = re.compile(r"MIG-GPU-[^/]+/(\d+)/(\d+)")


class MigDevice(msgspec.Struct, frozen=True, gc=False):
    """A MIG device: a compute instance as workloads see it.

    `profile` is that of its GPU instance where `exact`; else its attributes are not known. `instance` and
    `compute` are the numbers of its instances, where they are known.
    """

    index: int
    profile: Profile
    uuid: str
    instance: int | None = None
    compute: int | None = None
    exact: bool = False

    @property
    def told(self) -> tuple[int, int] | None:
        """The numbers of GPU instance and compute instance that old drivers write into the UUID."""
        old = _OLD_UUID.fullmatch(self.uuid) if "/" in self.uuid else None
        return (int(old[1]), int(old[2])) if old else None


class ListedGpu(msgspec.Struct, frozen=True, gc=False):
    """A GPU and its MIG devices, in their order."""

    index: int
    name: str
    uuid: str
    devices: tuple[MigDevice, ...] = ()


class Listing(msgspec.Struct, frozen=True, gc=False):
    """The answer. With something said beside it, it may not be the whole truth."""

    gpus: tuple[ListedGpu, ...] = ()
    said: tuple[Said, ...] = ()


def parse_listing(output: Output) -> Listing:
    """Reads the answer to `nvidia-smi -L`."""
    scanned = scan(output, _FORM)
    said = list(scanned.said)
    gpus: list[tuple[int, str, str, list[MigDevice]]] = []
    for number, name, gpu_uuid, profile_name, index, uuid, _ in scanned.rows:
        if number:
            gpus.append((int(number), name, gpu_uuid, []))
            continue
        profile = parse(profile_name)
        if profile is None or not gpus:
            said.append(Said(Trouble.UNREADABLE, shortened(f"MIG {profile_name} Device {index}")))
            continue
        gpus[-1][3].append(MigDevice(int(index), profile, uuid))
    found = tuple(ListedGpu(index, name, uuid, tuple(devices)) for index, name, uuid, devices in gpus)
    return Listing(found, (*said, *_disorder(found)))


def _disorder(gpus: tuple[ListedGpu, ...]) -> list[Said]:
    """Two answers written through each other can't be told apart, but be noticed."""
    orders = [[gpu.index for gpu in gpus], *([each.index for each in gpu.devices] for gpu in gpus)]
    if any(order != sorted(set(order)) for order in orders):
        return [Said(Trouble.UNREADABLE, "GPUs or devices are listed twice or out of order")]
    return []
