"""Views of the objects that tell how an engine runs: only the fields in use."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from gpuctl.facts.kinds import Kind, Moment, View
from gpuctl.facts.objects import (
    Condition,
    ContainerStatus,
    Deployment,
    DeploymentStatus,
    Pod,
    Service,
    Taint,
    Toleration,
)


class _Part(msgspec.Struct, frozen=True, rename="camel"):
    pass


class ValueFrom(_Part, frozen=True):
    """The value lies elsewhere, mostly in a Secret: it is not read."""


class Variable(_Part, frozen=True):
    name: str
    value: str | None = None
    value_from: ValueFrom | None = None


class Resources(_Part, frozen=True):
    limits: dict[str, str | int | float] = {}
    requests: dict[str, str | int | float] = {}
    claims: tuple[Any, ...] = ()


class Mount(_Part, frozen=True):
    name: str
    mount_path: str
    sub_path: str = ""


class ContainerPort(_Part, frozen=True):
    container_port: int
    name: str = ""


class EngineContainer(_Part, frozen=True):
    name: str
    image: str = ""
    command: tuple[str, ...] | None = None
    args: tuple[str, ...] | None = None
    env: tuple[Variable, ...] = ()
    env_from: tuple[Any, ...] = ()
    resources: Resources = Resources()
    volume_mounts: tuple[Mount, ...] = ()
    ports: tuple[ContainerPort, ...] = ()


class KeyToPath(_Part, frozen=True):
    key: str
    path: str


class ConfigMapSource(_Part, frozen=True):
    name: str = ""
    items: tuple[KeyToPath, ...] = ()


class EngineVolume(_Part, frozen=True):
    name: str
    config_map: ConfigMapSource | None = None


class EngineSpec(_Part, frozen=True):
    """A pod's spec, or that of a workload's template. `enable_service_links` absent means true."""

    node_name: str = ""
    containers: tuple[EngineContainer, ...] = ()
    init_containers: tuple[EngineContainer, ...] = ()
    volumes: tuple[EngineVolume, ...] = ()
    enable_service_links: bool | None = None
    priority: int = 0
    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()
    resource_claims: tuple[Any, ...] = ()


class EngineStatus(_Part, frozen=True):
    phase: str = ""
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    start_time: Moment | None = None


class EnginePod(View, frozen=True):
    """A pod, as far as it may be one that serves a model."""

    of: ClassVar[Kind] = Pod.of
    spec: EngineSpec = EngineSpec()
    status: EngineStatus = EngineStatus()


class EngineNodeStatus(_Part, frozen=True):
    allocatable: dict[str, str] = {}
    conditions: tuple[Condition, ...] = ()


class EngineNodeSpec(_Part, frozen=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class EngineNode(View, frozen=True):
    """A node: what its GPUs are, and what it has to give."""

    of: ClassVar[Kind] = Kind("", ("v1",), "Node", "nodes", namespaced=False)
    spec: EngineNodeSpec = EngineNodeSpec()
    status: EngineNodeStatus = EngineNodeStatus()

    @property
    def in_service(self) -> bool:
        """Whether it takes new pods: neither cordoned nor said to be not Ready."""
        down = any(each.type == "Ready" and each.status != "True" for each in self.status.conditions)
        return not (self.spec.unschedulable or down)


class RollingUpdate(_Part, frozen=True):
    max_surge: int | str | None = None
    max_unavailable: int | str | None = None


class Strategy(_Part, frozen=True):
    type: str = "RollingUpdate"
    rolling_update: RollingUpdate = RollingUpdate()


class TemplateMeta(_Part, frozen=True):
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class Template(_Part, frozen=True):
    metadata: TemplateMeta = TemplateMeta()
    spec: EngineSpec = EngineSpec()


class EngineDeploymentSpec(_Part, frozen=True):
    replicas: int = 1
    paused: bool = False
    strategy: Strategy = Strategy()
    template: Template = Template()


class EngineDeployment(View, frozen=True):
    """A Deployment: what its next pods will be, and how they come."""

    of: ClassVar[Kind] = Deployment.of
    spec: EngineDeploymentSpec = EngineDeploymentSpec()
    status: DeploymentStatus = DeploymentStatus()


class LinkedServiceSpec(_Part, frozen=True):
    cluster_ip: str = msgspec.field(default="", name="clusterIP")


class LinkedService(View, frozen=True):
    """A Service, as far as the kubelet tells its neighbours of it in their environment."""

    of: ClassVar[Kind] = Service.of
    spec: LinkedServiceSpec = LinkedServiceSpec()


class EngineConfigMap(View, frozen=True):
    """A ConfigMap that an engine starts from: arguments in YAML or a script. Only those are ever read."""

    of: ClassVar[Kind] = Kind("", ("v1",), "ConfigMap", "configmaps", namespaced=True)
    keys: ClassVar[tuple[str, ...]] = ("*.yaml", "*.yml", "*.json", "*.sh", "config")
    data: dict[str, str] = {}
