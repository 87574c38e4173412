"""`nvidia-smi mig -lgi` and `-lci`: the GPU instances and compute instances of a node, with their places."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cached_property, lru_cache
from typing import Final, TypeVar

import msgspec

from gpuctl.facts.nodes import Output
from gpuctl.nvidia.lines import ALIKE, Form, scan
from gpuctl.nvidia.output import Said, Trouble, shortened
from gpuctl.nvidia.profile import Profile, parse

_NOTHING: Final = re.compile(
    r"No MIG-enabled devices found|No (?:GPU|compute) instances found|No MIG devices found", re.IGNORECASE
)
_LGI: Final = Form.of(
    r"\|\s+(\d+)\s+MIG[ ]+(\S+?)(\*?)[ ]+(\d+)\*?[ ]+(\d+)(\*?)[ ]+(\d+):(\d+)[ ]+\|[ \t]*", framed=True
)
_LCI: Final = Form.of(
    r"\|[ ]+(\d+)[ ]+(\d+)[ ]+MIG[ ]+(\S+)[ ]+(\d+)\*?[ ]+(\d+)(?:[ ]+(\d+):(\d+))?[ ]+\|[ \t]*", framed=True
)


class GpuInstance(msgspec.Struct, frozen=True, gc=False):
    """A GPU instance. `start` and `size` are in memory slices; `remnant`: the driver marks it with `*`."""

    gpu: int
    profile: Profile
    profile_id: int
    id: int
    start: int
    size: int
    remnant: bool = False


class GpuInstances(msgspec.Struct, frozen=True, dict=True):
    """The answer to `-lgi`; with nothing found where MIG is off on every GPU."""

    found: tuple[GpuInstance, ...] = ()
    said: tuple[Said, ...] = ()

    @cached_property
    def by_gpu(self) -> Mapping[int, tuple[GpuInstance, ...]]:
        """Those of each GPU, in ascending order of their numbers: nodes of one kind share this."""
        return _by_gpu(sorted(self.found, key=lambda each: each.id))


class ComputeInstance(msgspec.Struct, frozen=True, gc=False):
    """A compute instance of a GPU instance."""

    gpu: int
    instance: int
    profile: Profile
    id: int


class ComputeInstances(msgspec.Struct, frozen=True, dict=True):
    """The answer to `-lci`."""

    found: tuple[ComputeInstance, ...] = ()
    said: tuple[Said, ...] = ()

    @cached_property
    def by_gpu(self) -> Mapping[int, tuple[ComputeInstance, ...]]:
        """Those of each GPU, in ascending order of their GPU instances."""
        return _by_gpu(sorted(self.found, key=lambda each: (each.instance, each.id)))


Either = TypeVar("Either", GpuInstance, ComputeInstance)


def _by_gpu(found: Iterable[Either]) -> Mapping[int, tuple[Either, ...]]:
    groups: dict[int, list[Either]] = {}
    for each in found:
        groups.setdefault(each.gpu, []).append(each)
    return {gpu: tuple(group) for gpu, group in groups.items()}


@lru_cache(maxsize=ALIKE)
def parse_gpu_instances(output: Output) -> GpuInstances:
    """Reads the answer to `nvidia-smi mig -lgi`."""
    scanned = scan(output, _LGI, _NOTHING)
    found: list[GpuInstance] = []
    said = list(scanned.said)
    for row in scanned.rows:
        gpu, name, mark, profile_id, number, second_mark, start, size, _ = row
        profile = parse(name)
        if profile is None:
            said.append(Said(Trouble.UNREADABLE, shortened(" ".join(row))))
        else:
            remnant = bool(mark or second_mark)
            found.append(
                GpuInstance(int(gpu), profile, int(profile_id), int(number), int(start), int(size), remnant)
            )
    if len({(each.gpu, each.id) for each in found}) < len(found):
        said.append(Said(Trouble.UNREADABLE, "GPU instances are listed twice"))
    return GpuInstances(tuple(found), tuple(said))


@lru_cache(maxsize=ALIKE)
def parse_compute_instances(output: Output) -> ComputeInstances:
    """Reads the answer to `nvidia-smi mig -lci`."""
    scanned = scan(output, _LCI, _NOTHING)
    found: list[ComputeInstance] = []
    said = list(scanned.said)
    for row in scanned.rows:
        gpu, instance, name, _, number, *_ = row
        profile = parse(name)
        if profile is None:
            said.append(Said(Trouble.UNREADABLE, shortened(" ".join(row))))
        else:
            found.append(ComputeInstance(int(gpu), int(instance), profile, int(number)))
    if len({(each.gpu, each.instance, each.id) for each in found}) < len(found):
        said.append(Said(Trouble.UNREADABLE, "compute instances are listed twice"))
    return ComputeInstances(tuple(found), tuple(said))
