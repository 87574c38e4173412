"""Views of nodes, of pods as far as GPUs are concerned, and of the objects of NVIDIA's operator."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from gpuctl.facts.kinds import Kind, Meta, Moment, View
from gpuctl.facts.objects import Condition, ConfigMapVolume, VolumeMount


class _Part(msgspec.Struct, frozen=True, rename="camel"):
    pass


class _There(msgspec.Struct, frozen=True):
    """A field that somebody wrote."""


class WrittenLabels(msgspec.Struct, frozen=True):
    """Which of the labels that tell of a change somebody wrote."""

    config: _There | None = msgspec.field(default=None, name="f:nvidia.com/mig.config")
    state: _There | None = msgspec.field(default=None, name="f:nvidia.com/mig.config.state")
    plugin: _There | None = msgspec.field(default=None, name="f:nvidia.com/gpu.deploy.device-plugin")
    upgrade: _There | None = msgspec.field(default=None, name="f:nvidia.com/gpu-driver-upgrade-state")


class _WrittenMeta(msgspec.Struct, frozen=True):
    labels: WrittenLabels | None = msgspec.field(default=None, name="f:labels")


class _WrittenFields(msgspec.Struct, frozen=True):
    metadata: _WrittenMeta | None = msgspec.field(default=None, name="f:metadata")


class LabelWriter(_Part, frozen=True):
    """An entry of a node's managedFields, reduced to the labels of interest."""

    manager: str = ""
    time: Moment | None = None
    fields: _WrittenFields | None = msgspec.field(default=None, name="fieldsV1")

    @property
    def labels(self) -> WrittenLabels:
        """The labels this writer wrote."""
        metadata = self.fields.metadata if self.fields else None
        return (metadata.labels if metadata else None) or WrittenLabels()


class NodeMeta(Meta, frozen=True):
    """metadata of a node, with who wrote its labels."""

    managed_fields: tuple[LabelWriter, ...] = ()


class NodeInfo(_Part, frozen=True):
    os_image: str = ""
    boot_id: str = msgspec.field(default="", name="bootID")


class NodeSpec(_Part, frozen=True):
    unschedulable: bool = False


class NodeStatus(_Part, frozen=True):
    capacity: dict[str, str | int] = {}
    allocatable: dict[str, str | int] = {}
    conditions: tuple[Condition, ...] = ()
    node_info: NodeInfo = NodeInfo()


class NodeView(View, frozen=True):
    of: ClassVar[Kind] = Kind("", ("v1",), "Node", "nodes", namespaced=False)
    metadata: NodeMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class EnvVar(_Part, frozen=True):
    name: str
    value: str = ""


class Resources(_Part, frozen=True):
    limits: dict[str, str | int | float] = {}
    requests: dict[str, str | int | float] = {}


class GpuContainer(_Part, frozen=True):
    name: str
    image: str = ""
    env: tuple[EnvVar, ...] = ()
    resources: Resources = Resources()
    volume_mounts: tuple[VolumeMount, ...] = ()


class HostPath(_Part, frozen=True):
    path: str = ""


class PodVolume(_Part, frozen=True):
    name: str
    config_map: ConfigMapVolume | None = None
    host_path: HostPath | None = None


class GpuPodSpec(_Part, frozen=True):
    node_name: str = ""
    containers: tuple[GpuContainer, ...] = ()
    init_containers: tuple[GpuContainer, ...] = ()
    volumes: tuple[PodVolume, ...] = ()
    resource_claims: tuple[Any, ...] = ()
    scheduling_gates: tuple[Any, ...] = ()
    active_deadline_seconds: int | None = None
    host_pid: bool = msgspec.field(name="hostPID", default=False)


class Running(_Part, frozen=True):
    started_at: Moment | None = None


class RunState(_Part, frozen=True):
    running: Running | None = None


class GpuContainerStatus(_Part, frozen=True):
    name: str
    ready: bool = False
    restart_count: int = 0
    state: RunState = RunState()


class GpuPodStatus(_Part, frozen=True):
    phase: str = ""
    container_statuses: tuple[GpuContainerStatus, ...] = ()


class GpuPod(View, frozen=True):
    of: ClassVar[Kind] = Kind("", ("v1",), "Pod", "pods", namespaced=True)
    spec: GpuPodSpec = GpuPodSpec()
    status: GpuPodStatus = GpuPodStatus()

    @property
    def running(self) -> bool:
        """Whether it runs, and is not being deleted."""
        return self.status.phase == "Running" and self.metadata.deletion_timestamp is None

    @property
    def over(self) -> bool:
        """Whether it has ended and holds nothing any more."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def requests(self) -> dict[str, int]:
        """The extended resources its containers ask for, the larger of init containers and containers."""
        wanted: dict[str, int] = {}
        for container in self.spec.containers:
            for name, count in _extended(container).items():
                wanted[name] = wanted.get(name, 0) + count
        for container in self.spec.init_containers:
            for name, count in _extended(container).items():
                wanted[name] = max(wanted.get(name, 0), count)
        return wanted


def _extended(container: GpuContainer) -> dict[str, int]:
    if not (container.resources.limits or container.resources.requests):
        return {}
    asked = {**container.resources.requests, **container.resources.limits}
    return {name: quantity(amount) for name, amount in asked.items() if "/" in name}


_THOUSANDS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}  # the API server writes 1000 as 1k


def quantity(amount: str | float) -> int:
    """An amount of whole devices. What is no such amount counts as one device."""
    text = str(amount)
    number = text.rstrip("kMG")
    if number.isdecimal() and number.isascii() and text.removeprefix(number) in _THOUSANDS:
        return int(number) * _THOUSANDS[text.removeprefix(number)]
    return int(text != "")


class OperandTemplateMeta(_Part, frozen=True):
    labels: dict[str, str] = {}


class OperandTemplateSpec(_Part, frozen=True):
    node_selector: dict[str, str] = {}


class OperandTemplate(_Part, frozen=True):
    metadata: OperandTemplateMeta = OperandTemplateMeta()
    spec: OperandTemplateSpec = OperandTemplateSpec()


class OperandSpec(_Part, frozen=True):
    template: OperandTemplate = OperandTemplate()


class OperandSet(View, frozen=True):
    """A DaemonSet, as far as one sees which pods it should have where."""

    of: ClassVar[Kind] = Kind("apps", ("v1",), "DaemonSet", "daemonsets", namespaced=True)
    spec: OperandSpec = OperandSpec()


class _Mig(_Part, frozen=True):
    strategy: str = ""


class _Config(_Part, frozen=True):
    name: str = ""
    default: str = ""


class _Operand(_Part, frozen=True):
    enabled: bool | None = None
    config: _Config | None = None


class ClusterPolicySpec(_Part, frozen=True):
    mig: _Mig | None = None
    mig_manager: _Operand | None = None


class ClusterPolicy(View, frozen=True):
    of: ClassVar[Kind] = Kind("nvidia.com", ("v1",), "ClusterPolicy", "clusterpolicies", namespaced=False)
    spec: ClusterPolicySpec = ClusterPolicySpec()


class AttributeText(_Part, frozen=True):
    string: str = ""


class _Basic(_Part, frozen=True):
    attributes: dict[str, AttributeText] = {}


class SliceDevice(_Part, frozen=True):
    """A device of a ResourceSlice; older versions wrap its attributes in `basic`."""

    name: str
    attributes: dict[str, AttributeText] = {}
    basic: _Basic | None = None

    def text(self, name: str) -> str:
        """A text attribute, empty if it has none of this name."""
        found = (self.basic.attributes if self.basic else self.attributes).get(name)
        return found.string if found else ""


class SliceSpec(_Part, frozen=True):
    node_name: str = ""
    driver: str = ""
    devices: tuple[SliceDevice, ...] = ()


class ResourceSlice(View, frozen=True):
    of: ClassVar[Kind] = Kind(
        "resource.k8s.io", ("v1", "v1beta2", "v1beta1"), "ResourceSlice", "resourceslices", namespaced=False
    )
    spec: SliceSpec = SliceSpec()


class MigConfigMap(View, frozen=True):
    """A ConfigMap that may hold mig-parted's configurations."""

    of: ClassVar[Kind] = Kind("", ("v1",), "ConfigMap", "configmaps", namespaced=True)
    keys: ClassVar[tuple[str, ...]] = ("config.yaml",)
    data: dict[str, str] = {}
