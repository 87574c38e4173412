"""Views of Kubernetes' own objects: only the fields in use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Final

import msgspec

from gpuctl.facts.kinds import Kind, Meta, Moment, View

_KEEPS_OUT: Final = ("NoSchedule", "NoExecute")


class _Part(msgspec.Struct, frozen=True, rename="camel", gc=False):
    pass


class Condition(_Part, frozen=True):
    """One entry of status.conditions."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: Moment | None = None


class FieldWriter(_Part, frozen=True):
    """One entry of metadata.managedFields: who wrote which fields, and when last."""

    manager: str = ""
    operation: str = ""
    time: Moment | None = None
    subresource: str = ""
    fields: dict[str, Any] = msgspec.field(default_factory=dict, name="fieldsV1")


class TracedMeta(Meta, frozen=True):
    """metadata with its managedFields; empty when they were not asked for."""

    managed_fields: tuple[FieldWriter, ...] = ()


class LabelRequirement(_Part, frozen=True):
    """One of a selector's matchExpressions."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(_Part, frozen=True):
    """A selector of labels; an empty one selects everything."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelRequirement, ...] = ()


class Taint(_Part, frozen=True):
    key: str
    effect: str = ""
    value: str = ""

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"

    def keeps_out(self, tolerations: Iterable[Toleration]) -> bool:
        """Whether it keeps pods with these tolerations away."""
        return self.effect in _KEEPS_OUT and not any(each.tolerates(self) for each in tolerations)


class Toleration(_Part, frozen=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """By Kubernetes' rules."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.operator == "Exists":
            return self.key in ("", taint.key)
        return self.key == taint.key and self.value == taint.value


class NamespaceStatus(_Part, frozen=True):
    phase: str = ""


class Namespace(View, frozen=True):
    of: ClassVar[Kind] = Kind("", ("v1",), "Namespace", "namespaces", namespaced=False)
    status: NamespaceStatus = NamespaceStatus()


class ContainerPort(_Part, frozen=True):
    container_port: int
    name: str = ""


class VolumeMount(_Part, frozen=True):
    name: str
    mount_path: str
    sub_path: str = ""


class Container(_Part, frozen=True):
    name: str
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    ports: tuple[ContainerPort, ...] = ()
    volume_mounts: tuple[VolumeMount, ...] = ()


class ConfigMapVolume(_Part, frozen=True):
    name: str = ""


class SecretVolume(_Part, frozen=True):
    secret_name: str = ""


class Volume(_Part, frozen=True):
    name: str
    config_map: ConfigMapVolume | None = None
    secret: SecretVolume | None = None


class PodSpec(_Part, frozen=True):
    node_name: str = ""
    containers: tuple[Container, ...] = ()
    volumes: tuple[Volume, ...] = ()


class ContainerRunning(_Part, frozen=True):
    started_at: Moment | None = None


class ContainerWaiting(_Part, frozen=True):
    reason: str = ""
    message: str = ""


class ContainerTerminated(_Part, frozen=True):
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    finished_at: Moment | None = None


class ContainerState(_Part, frozen=True):
    running: ContainerRunning | None = None
    waiting: ContainerWaiting | None = None
    terminated: ContainerTerminated | None = None


class ContainerStatus(_Part, frozen=True):
    name: str
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class PodStatus(_Part, frozen=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(View, frozen=True):
    of: ClassVar[Kind] = Kind("", ("v1",), "Pod", "pods", namespaced=True)
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class ServicePort(_Part, frozen=True):
    port: int
    name: str = ""
    target_port: int | str = 0


class ServiceSpec(_Part, frozen=True):
    selector: dict[str, str] = {}
    ports: tuple[ServicePort, ...] = ()


class Service(View, frozen=True):
    of: ClassVar[Kind] = Kind("", ("v1",), "Service", "services", namespaced=True)
    spec: ServiceSpec = ServiceSpec()


class EndpointConditions(_Part, frozen=True):
    """`ready` absent means ready."""

    ready: bool | None = None


class Endpoint(_Part, frozen=True):
    addresses: tuple[str, ...] = ()
    conditions: EndpointConditions = EndpointConditions()


class EndpointPort(_Part, frozen=True):
    name: str = ""
    port: int = 0


class EndpointSlice(View, frozen=True):
    of: ClassVar[Kind] = Kind("discovery.k8s.io", ("v1",), "EndpointSlice", "endpointslices", namespaced=True)
    endpoints: tuple[Endpoint, ...] = ()
    ports: tuple[EndpointPort, ...] = ()


class PodTemplateMeta(_Part, frozen=True):
    labels: dict[str, str] = {}


class PodTemplate(_Part, frozen=True):
    metadata: PodTemplateMeta = PodTemplateMeta()
    spec: PodSpec = PodSpec()


class DeploymentSpec(_Part, frozen=True):
    replicas: int = 1
    selector: LabelSelector = LabelSelector()
    template: PodTemplate = PodTemplate()


class DeploymentStatus(_Part, frozen=True):
    observed_generation: int = 0
    replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    updated_replicas: int = 0
    conditions: tuple[Condition, ...] = ()


class Deployment(View, frozen=True):
    of: ClassVar[Kind] = Kind("apps", ("v1",), "Deployment", "deployments", namespaced=True)
    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus = DeploymentStatus()


class ServiceReference(_Part, frozen=True):
    """Where the API server sends a call. The port defaults to 443."""

    namespace: str = ""
    name: str = ""
    path: str = ""
    port: int = 443


class WebhookClientConfig(_Part, frozen=True):
    """How the API server reaches a webhook; `ca_bundle` is base64 as it stands in the object."""

    service: ServiceReference | None = None
    url: str = ""
    ca_bundle: str = ""


class WebhookRule(_Part, frozen=True):
    api_groups: tuple[str, ...] = ()
    api_versions: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    scope: str = "*"


class Webhook(_Part, frozen=True):
    name: str
    client_config: WebhookClientConfig = WebhookClientConfig()
    rules: tuple[WebhookRule, ...] = ()
    failure_policy: str = "Fail"
    namespace_selector: LabelSelector = LabelSelector()
    object_selector: LabelSelector = LabelSelector()


class MutatingWebhookConfiguration(View, frozen=True):
    of: ClassVar[Kind] = Kind(
        "admissionregistration.k8s.io",
        ("v1",),
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        namespaced=False,
    )
    metadata: TracedMeta
    webhooks: tuple[Webhook, ...] = ()


class ValidatingWebhookConfiguration(View, frozen=True):
    of: ClassVar[Kind] = Kind(
        "admissionregistration.k8s.io",
        ("v1",),
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        namespaced=False,
    )
    metadata: TracedMeta
    webhooks: tuple[Webhook, ...] = ()


class ConversionWebhook(_Part, frozen=True):
    client_config: WebhookClientConfig = WebhookClientConfig()


class Conversion(_Part, frozen=True):
    strategy: str = "None"
    webhook: ConversionWebhook | None = None


class CustomResourceNames(_Part, frozen=True):
    plural: str = ""
    kind: str = ""


class CustomResourceVersion(_Part, frozen=True):
    name: str
    served: bool = True
    storage: bool = False


class CustomResourceDefinitionSpec(_Part, frozen=True):
    group: str
    names: CustomResourceNames = CustomResourceNames()
    versions: tuple[CustomResourceVersion, ...] = ()
    conversion: Conversion = Conversion()


class CustomResourceDefinition(View, frozen=True):
    of: ClassVar[Kind] = Kind(
        "apiextensions.k8s.io",
        ("v1",),
        "CustomResourceDefinition",
        "customresourcedefinitions",
        namespaced=False,
    )
    metadata: TracedMeta
    spec: CustomResourceDefinitionSpec


class APIServiceSpec(_Part, frozen=True):
    """Without a service the API server itself serves the group."""

    group: str = ""
    version: str = ""
    service: ServiceReference | None = None
    ca_bundle: str = ""
    insecure_skip_tls_verify: bool = msgspec.field(default=False, name="insecureSkipTLSVerify")


class APIServiceStatus(_Part, frozen=True):
    conditions: tuple[Condition, ...] = ()


class APIService(View, frozen=True):
    of: ClassVar[Kind] = Kind(
        "apiregistration.k8s.io", ("v1",), "APIService", "apiservices", namespaced=False
    )
    spec: APIServiceSpec = APIServiceSpec()
    status: APIServiceStatus = APIServiceStatus()
