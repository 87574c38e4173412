"""Which pods of a cluster have to do with GPUs at all: of 20,000 those are few, and no others are kept."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from gpuctl.nvidia.objects import GpuContainer, GpuPod
from gpuctl.nvidia.operands import operand_of

HELPER: Final = "gpuctl.dev/helper"  # label of pods that gpuctl makes to look into nodes
_VARIABLE: Final = "NVIDIA_VISIBLE_DEVICES"
_NO_DEVICES: Final = ("", "void", "none")
_DEVICES: Final = re.compile(r"/dev/nvidia.*")


class InvolvedPod(GpuPod, frozen=True):
    """A pod that serves GPUs, asks for a device of any kind, sees GPUs unasked, brings an image with a shell,
    or was made by gpuctl."""

    @property
    def relevant(self) -> bool:
        """Whether a judgement or a picture of GPUs can rest on it. One that is over holds nothing."""
        labels = self.metadata.labels
        if HELPER in labels or self.over:
            return HELPER in labels
        return bool(
            operand_of(labels)
            or self.spec.resource_claims
            or self.requests
            or seen_unasked(self)
            or any(map(has_shell, self.spec.containers))
        )


def has_shell(container: GpuContainer) -> bool:
    """Whether its image is one in which a script can run."""
    return container.image.rpartition("/")[2].partition(":")[0].partition("@")[0] == "busybox"


def seen_unasked(pod: GpuPod) -> str:
    """By what it sees GPUs, whatever it asks for; empty if by nothing."""
    return next(_ways(pod), "")


def _ways(pod: GpuPod) -> Iterator[str]:
    paths = {volume.name: volume.host_path.path for volume in pod.spec.volumes if volume.host_path}
    for container in pod.spec.containers:
        for variable in container.env:
            if variable.name == _VARIABLE and variable.value not in _NO_DEVICES:
                yield f"{_VARIABLE}={variable.value}"
        for mount in container.volume_mounts if paths else ():
            path = paths.get(mount.name, "")
            if _DEVICES.fullmatch(path):
                yield f"the host's {path}"
