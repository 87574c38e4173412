"""How a pod holds a GPU: by any resource name, by a claim, or past the scheduler."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import ClassVar, Final

import msgspec

from gpuctl.facts.kinds import Kind, Ref, View
from gpuctl.facts.state import Each
from gpuctl.nvidia.objects import EnvVar, quantity

# Resources of all vendors: renamed and shared ones bear the vendor's domain, or say what they are.
GPU_RESOURCES: Final = re.compile(
    r"(?:[\w-]+\.)*(?:nvidia|amd|habana|intel|aliyun|tencent|huawei|nos\.nebuly)\.(?:com|ai|org)/.*"
    r"|[^/]*/.*(?:gpu|mig-|vgpu)[^/]*",
    re.IGNORECASE,
)
_DRIVERS: Final = re.compile(r"(?:^|[.-])(?:v?gpu|mig|vfio)(?:$|[.-])")
_DEVICES: Final = re.compile(r"/dev/(?:nvidia.*|dri(?:/.*)?|kfd)")
_ALL_DEVICES: Final = frozenset({"/", "/dev", "/dev/"})
# By which a container asks for devices in the place of the variable.
_DEVICE_LIST: Final = "/var/run/nvidia-container-devices"
_VARIABLE: Final = "NVIDIA_VISIBLE_DEVICES"
_NO_DEVICES: Final = ("", "void", "none")


class _Part(msgspec.Struct, frozen=True, rename="camel", gc=False):
    pass


class Asked(_Part, frozen=True):
    """What a container, or a whole pod, asks for."""

    limits: dict[str, str | int | float] = {}
    requests: dict[str, str | int | float] = {}


class Mount(_Part, frozen=True):
    name: str
    mount_path: str = ""


class Security(_Part, frozen=True):
    privileged: bool = False


class HoldingContainer(_Part, frozen=True):
    name: str
    image: str = ""
    env: tuple[EnvVar, ...] = ()
    resources: Asked = Asked()
    volume_mounts: tuple[Mount, ...] = ()
    security_context: Security = Security()


class HostPath(_Part, frozen=True):
    path: str = ""


class EmptyDir(_Part, frozen=True):
    """A directory that lives as long as the pod, on a disk or in memory."""


class HeldVolume(_Part, frozen=True):
    name: str
    empty_dir: EmptyDir | None = None
    host_path: HostPath | None = None


class PodClaim(_Part, frozen=True):
    """A claim by its name, or by the template of which one is made for each pod."""

    name: str
    resource_claim_name: str = ""
    resource_claim_template_name: str = ""


class HoldingSpec(_Part, frozen=True):
    node_name: str = ""
    containers: tuple[HoldingContainer, ...] = ()
    init_containers: tuple[HoldingContainer, ...] = ()
    ephemeral_containers: tuple[HoldingContainer, ...] = ()
    resources: Asked = Asked()
    resource_claims: tuple[PodClaim, ...] = ()
    volumes: tuple[HeldVolume, ...] = ()
    runtime_class_name: str = ""


class ClaimStatus(_Part, frozen=True):
    name: str
    resource_claim_name: str = ""


class HoldingStatus(_Part, frozen=True):
    phase: str = ""
    resource_claim_statuses: tuple[ClaimStatus, ...] = ()


class HoldingPod(View, frozen=True):
    """A pod, as far as it may hold a GPU."""

    of: ClassVar[Kind] = Kind("", ("v1",), "Pod", "pods", namespaced=True)
    spec: HoldingSpec = HoldingSpec()
    status: HoldingStatus = HoldingStatus()

    @property
    def over(self) -> bool:
        """Whether it has ended and holds nothing any more."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def gpus(self) -> dict[str, int]:
        """The GPU resources it asks for, as a whole or by container; of what runs before, the largest."""
        wanted: dict[str, int] = {}
        for container in (*self.spec.containers, *self.spec.ephemeral_containers):
            for name, count in _asked(container.resources).items():
                wanted[name] = wanted.get(name, 0) + count
        for asked in (*(each.resources for each in self.spec.init_containers), self.spec.resources):
            for name, count in _asked(asked).items():
                wanted[name] = max(wanted.get(name, 0), count)
        return {name: count for name, count in wanted.items() if count}

    @property
    def claims(self) -> tuple[Ref, ...]:
        """The ResourceClaims that it uses, as far as they exist."""
        made = {each.name: each.resource_claim_name for each in self.status.resource_claim_statuses}
        names = (each.resource_claim_name or made.get(each.name, "") for each in self.spec.resource_claims)
        return tuple(Ref(ResourceClaim.of, name, self.metadata.namespace) for name in names if name)

    @property
    def all_containers(self) -> tuple[HoldingContainer, ...]:
        """Those that run, ran before, or were put in later."""
        return (*self.spec.containers, *self.spec.init_containers, *self.spec.ephemeral_containers)


def _asked(asked: Asked) -> dict[str, int]:
    if not (asked.limits or asked.requests):
        return {}
    both = {**asked.requests, **asked.limits}
    return {name: quantity(each) for name, each in both.items() if GPU_RESOURCES.fullmatch(name)}


class _Exactly(_Part, frozen=True):
    device_class_name: str = ""


class _DeviceRequest(_Part, frozen=True):
    """v1beta1 has the class in the request itself."""

    device_class_name: str = ""
    exactly: _Exactly = _Exactly()
    first_available: tuple[_Exactly, ...] = ()

    @property
    def classes(self) -> tuple[str, ...]:
        options = (self.device_class_name, self.exactly.device_class_name)
        return tuple(filter(None, (*options, *(each.device_class_name for each in self.first_available))))


class _DeviceRequests(_Part, frozen=True):
    requests: tuple[_DeviceRequest, ...] = ()


class _ClaimSpec(_Part, frozen=True):
    devices: _DeviceRequests = _DeviceRequests()


class _Result(_Part, frozen=True):
    driver: str = ""
    device: str = ""


class _Results(_Part, frozen=True):
    results: tuple[_Result, ...] = ()


class _Allocation(_Part, frozen=True):
    devices: _Results = _Results()


class _ClaimStatus(_Part, frozen=True):
    allocation: _Allocation | None = None


class ResourceClaim(View, frozen=True):
    of: ClassVar[Kind] = Kind(
        "resource.k8s.io", ("v1", "v1beta2", "v1beta1"), "ResourceClaim", "resourceclaims", namespaced=True
    )
    spec: _ClaimSpec = _ClaimSpec()
    status: _ClaimStatus = _ClaimStatus()

    @property
    def gpu(self) -> str:
        """The driver that gave GPUs for it, or the class of GPUs it asks for; empty for other devices."""
        given = self.status.allocation.devices.results if self.status.allocation else ()
        asked = (name for each in self.spec.devices.requests for name in each.classes)
        names = [each.driver for each in given] or list(asked)
        return next((name for name in names if _DRIVERS.search(name)), "")


def holds(pod: HoldingPod, claims: Each[Ref, ResourceClaim]) -> tuple[str, ...]:
    """By what it holds GPUs, in words; empty if it holds none. Raises NotKnown where that hangs on a claim
    that can't be read."""
    if pod.over:
        return ()
    plain = (*_openly(pod), *_mounts(pod))
    asked = plain or tuple(_by_claim(pod, claims))
    return tuple(dict.fromkeys(asked or _past_the_scheduler(pod)))


def _openly(pod: HoldingPod) -> Iterator[str]:
    yield from (f"{count}x {name}" for name, count in sorted(pod.gpus.items()))


def _by_claim(pod: HoldingPod, claims: Each[Ref, ResourceClaim]) -> Iterator[str]:
    for ref in pod.claims:
        claim = claims.get(ref)
        if claim is not None and claim.gpu:
            yield f"{ref.kind.kind} {ref.name} ({claim.gpu})"


def _past_the_scheduler(pod: HoldingPod) -> Iterator[str]:
    """What lets it see GPUs without having asked for one."""
    yield from (f"{_VARIABLE}={seen}" for seen in map(_visible, pod.all_containers) if seen)
    runtime = pod.spec.runtime_class_name
    if "nvidia" in runtime and not _blind(pod):
        yield f"runtimeClassName {runtime}, by which images may see all GPUs"


def _mounts(pod: HoldingPod) -> Iterator[str]:
    volumes = {each.name: each.host_path.path for each in pod.spec.volumes if each.host_path}
    for container in pod.all_containers:
        yield from _mounted(container, volumes)


def _mounted(container: HoldingContainer, volumes: Mapping[str, str]) -> Iterator[str]:
    for mount in container.volume_mounts:
        path = volumes.get(mount.name, "")
        if _DEVICES.fullmatch(path):
            yield f"mount of {path}"
        elif path in _ALL_DEVICES and container.security_context.privileged:
            yield f"mount of {path}, privileged"
        elif mount.mount_path.startswith(_DEVICE_LIST):
            yield f"mount at {_DEVICE_LIST}"


def _visible(container: HoldingContainer) -> str:
    for variable in container.env:
        if variable.name == _VARIABLE and variable.value not in _NO_DEVICES:
            return variable.value
    return ""


def _blind(pod: HoldingPod) -> bool:
    """Whether every container says that it is to see no GPU."""
    return all(
        any(each.name == _VARIABLE and each.value in _NO_DEVICES for each in container.env)
        for container in pod.spec.containers
    )
