"""Views of Kueue's objects. One struct bears the fields of all served versions."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from gpuctl.facts.kinds import Kind, Meta, Moment, View
from gpuctl.facts.objects import Condition, LabelRequirement, LabelSelector, Taint, Toleration
from gpuctl.kueue.quantities import Written

GROUP = "kueue.x-k8s.io"
VISIBILITY_GROUP = "visibility.kueue.x-k8s.io"
VERSIONS = ("v1beta2", "v1beta1")

RESOURCE_FLAVOR = Kind(GROUP, VERSIONS, "ResourceFlavor", "resourceflavors", namespaced=False)


class LocalQueueInOldVersion(View, frozen=True):
    """A LocalQueue, asked for in v1beta1 and in no other version."""

    of: ClassVar[Kind] = Kind(GROUP, ("v1beta1",), "LocalQueue", "localqueues", namespaced=True)


class LocalQueueInNewVersion(View, frozen=True):
    """A LocalQueue, asked for in v1beta2 and in no other version."""

    of: ClassVar[Kind] = Kind(GROUP, ("v1beta2",), "LocalQueue", "localqueues", namespaced=True)


class ManagerData(msgspec.Struct, frozen=True):
    configuration: str | None = msgspec.field(default=None, name="controller_manager_config.yaml")


class ManagerConfigMap(View, frozen=True):
    """The ConfigMap that a manager's Deployment mounts."""

    of: ClassVar[Kind] = Kind("", ("v1",), "ConfigMap", "configmaps", namespaced=True)
    keys: ClassVar[tuple[str, ...]] = ("controller_manager_config.yaml",)
    data: ManagerData = ManagerData()


class WebhookSecretData(msgspec.Struct, frozen=True):
    """Base64, as in the object. The private keys beside them are dropped at decoding."""

    certificate: str = msgspec.field(default="", name="tls.crt")
    authority: str = msgspec.field(default="", name="ca.crt")


class WebhookSecret(View, frozen=True):
    """The Secret that the manager's certificate comes from, without its keys."""

    of: ClassVar[Kind] = Kind("", ("v1",), "Secret", "secrets", namespaced=True)
    data: WebhookSecretData = WebhookSecretData()


class NameOfSecret(View, frozen=True):
    """The same Secret, as far as it has to exist: nothing of its data is asked for."""

    of: ClassVar[Kind] = WebhookSecret.of
    metadata_only: ClassVar[bool] = True


class _Part(msgspec.Struct, frozen=True, rename="camel", gc=False):
    pass


class FlavorQuota(_Part, frozen=True):
    """What a queue may use of one resource in one flavor."""

    name: str
    nominal_quota: Written = 0
    borrowing_limit: Written | None = None
    lending_limit: Written | None = None


class FlavorQuotas(_Part, frozen=True):
    name: str
    resources: tuple[FlavorQuota, ...] = ()


class ResourceGroup(_Part, frozen=True):
    """Resources that are given out of the same flavors, tried in this order."""

    covered_resources: tuple[str, ...] = ()
    flavors: tuple[FlavorQuotas, ...] = ()


class Preemption(_Part, frozen=True):
    within_cluster_queue: str = "Never"
    reclaim_within_cohort: str = "Never"


class CheckRule(_Part, frozen=True):
    """An AdmissionCheck, for all flavors or for some."""

    name: str
    on_flavors: tuple[str, ...] = ()

    def covers(self, flavor: str) -> bool:
        """Whether Workloads that get this flavor go through it."""
        return not self.on_flavors or flavor in self.on_flavors


class CheckStrategy(_Part, frozen=True):
    admission_checks: tuple[CheckRule, ...] = ()


class ClusterQueueSpec(_Part, frozen=True):
    """v1beta1 says `cohort` and has a plain list of `admissionChecks`; v1beta2 says `cohortName`."""

    cohort_name: str = ""
    old_cohort: str = msgspec.field(default="", name="cohort")
    resource_groups: tuple[ResourceGroup, ...] = ()
    namespace_selector: LabelSelector | None = None
    queueing_strategy: str = "BestEffortFIFO"
    stop_policy: str = "None"
    preemption: Preemption = Preemption()
    old_admission_checks: tuple[str, ...] = msgspec.field(default=(), name="admissionChecks")
    admission_checks_strategy: CheckStrategy = CheckStrategy()


class ResourceUse(_Part, frozen=True):
    name: str
    total: Written = 0
    borrowed: Written = 0


class FlavorUse(_Part, frozen=True):
    name: str
    resources: tuple[ResourceUse, ...] = ()


class ClusterQueueStatus(_Part, frozen=True):
    conditions: tuple[Condition, ...] = ()
    flavors_reservation: tuple[FlavorUse, ...] = ()
    pending_workloads: int = 0
    admitted_workloads: int = 0


class ClusterQueue(View, frozen=True):
    of: ClassVar[Kind] = Kind(GROUP, VERSIONS, "ClusterQueue", "clusterqueues", namespaced=False)
    spec: ClusterQueueSpec = ClusterQueueSpec()
    status: ClusterQueueStatus = ClusterQueueStatus()

    @property
    def cohort(self) -> str:
        """The cohort it is in; empty if in none."""
        return self.spec.cohort_name or self.spec.old_cohort

    @property
    def checks(self) -> tuple[CheckRule, ...]:
        """Its AdmissionChecks, however they were written."""
        plain = tuple(CheckRule(name) for name in self.spec.old_admission_checks)
        return plain + self.spec.admission_checks_strategy.admission_checks

    @property
    def flavors(self) -> tuple[str, ...]:
        """The flavors it refers to, each once, in their order."""
        groups = self.spec.resource_groups
        return tuple(dict.fromkeys(flavor.name for group in groups for flavor in group.flavors))

    def group_of(self, resource: str) -> ResourceGroup | None:
        """The group that covers a resource."""
        groups = self.spec.resource_groups
        return next((group for group in groups if resource in group.covered_resources), None)


class NameOfPending(_Part, frozen=True):
    name: str
    namespace: str = ""


class PendingWorkload(_Part, frozen=True):
    metadata: NameOfPending
    position: int = msgspec.field(default=0, name="positionInClusterQueue")


class PendingWorkloads(_Part, frozen=True):
    """The line of a queue as the manager has it, from its head; the first thousand, if it is longer."""

    items: tuple[PendingWorkload, ...] = ()


PENDING_WORKLOADS = Kind(
    VISIBILITY_GROUP, VERSIONS, "PendingWorkloadsSummary", "clusterqueues/pendingworkloads", namespaced=False
)


class ClusterQueueCounts(_Part, frozen=True):
    pending_workloads: int = 0
    admitted_workloads: int = 0


class WatchedQueue(View, frozen=True):
    """A ClusterQueue as far as it is watched for a while."""

    of: ClassVar[Kind] = ClusterQueue.of
    status: ClusterQueueCounts = ClusterQueueCounts()


class LocalQueueSpec(_Part, frozen=True):
    cluster_queue: str = ""
    stop_policy: str = "None"


class LocalQueueStatus(_Part, frozen=True):
    conditions: tuple[Condition, ...] = ()
    pending_workloads: int = 0


class LocalQueue(View, frozen=True):
    of: ClassVar[Kind] = Kind(GROUP, VERSIONS, "LocalQueue", "localqueues", namespaced=True)
    spec: LocalQueueSpec = LocalQueueSpec()
    status: LocalQueueStatus = LocalQueueStatus()

    @property
    def stopped(self) -> str:
        """The policy by which it is stopped; empty if it is not."""
        return "" if self.spec.stop_policy == "None" else self.spec.stop_policy


class CohortSpec(_Part, frozen=True):
    """v1alpha1 said `parent`."""

    parent_name: str = ""
    old_parent: str = msgspec.field(default="", name="parent")
    resource_groups: tuple[ResourceGroup, ...] = ()


class Cohort(View, frozen=True):
    of: ClassVar[Kind] = Kind(GROUP, (*VERSIONS, "v1alpha1"), "Cohort", "cohorts", namespaced=False)
    spec: CohortSpec = CohortSpec()

    @property
    def parent(self) -> str:
        """The cohort it belongs to; empty at the root."""
        return self.spec.parent_name or self.spec.old_parent


class ResourceFlavorSpec(_Part, frozen=True):
    node_labels: dict[str, str] = {}
    node_taints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    topology_name: str = ""


class ResourceFlavor(View, frozen=True):
    of: ClassVar[Kind] = RESOURCE_FLAVOR
    spec: ResourceFlavorSpec = ResourceFlavorSpec()


class TopologyLevel(_Part, frozen=True):
    node_label: str


class TopologySpec(_Part, frozen=True):
    levels: tuple[TopologyLevel, ...] = ()


class Topology(View, frozen=True):
    of: ClassVar[Kind] = Kind(GROUP, (*VERSIONS, "v1alpha1"), "Topology", "topologies", namespaced=False)
    spec: TopologySpec = TopologySpec()


class AdmissionCheckSpec(_Part, frozen=True):
    controller_name: str = ""


class AdmissionCheckStatus(_Part, frozen=True):
    conditions: tuple[Condition, ...] = ()


class AdmissionCheck(View, frozen=True):
    of: ClassVar[Kind] = Kind(GROUP, VERSIONS, "AdmissionCheck", "admissionchecks", namespaced=False)
    spec: AdmissionCheckSpec = AdmissionCheckSpec()
    status: AdmissionCheckStatus = AdmissionCheckStatus()


class Requirements(_Part, frozen=True):
    requests: dict[str, Written] = {}
    limits: dict[str, Written] = {}


class Requesting(_Part, frozen=True):
    """A container, as far as it asks for resources."""

    resources: Requirements = Requirements()
    restart_policy: str = ""


class NodeTerm(_Part, frozen=True):
    match_expressions: tuple[LabelRequirement, ...] = ()


class NodeTerms(_Part, frozen=True):
    node_selector_terms: tuple[NodeTerm, ...] = ()


class NodeAffinity(_Part, frozen=True):
    required: NodeTerms | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(_Part, frozen=True):
    node_affinity: NodeAffinity | None = None


class PodClaim(_Part, frozen=True):
    """A claim to devices that a pod makes: one that exists, or one made for it from a template."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class RequestingPodSpec(_Part, frozen=True):
    """The spec of a pod, as far as quota and placement depend on it."""

    containers: tuple[Requesting, ...] = ()
    init_containers: tuple[Requesting, ...] = ()
    overhead: dict[str, Written] = {}
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    node_name: str = ""
    resource_claims: tuple[PodClaim, ...] = ()


class Annotated(_Part, frozen=True):
    annotations: dict[str, str] = {}


class RequestingTemplate(_Part, frozen=True):
    metadata: Annotated = Annotated()
    spec: RequestingPodSpec = RequestingPodSpec()


class TopologyRequest(_Part, frozen=True):
    """How near to each other the pods of a pod set are to be. `unconstrained`: anywhere, but by topology."""

    required: str | None = None
    preferred: str | None = None
    unconstrained: bool | None = None
    slice_level: str | None = msgspec.field(default=None, name="podSetSliceRequiredTopology")
    slice_size: int | None = msgspec.field(default=None, name="podSetSliceSize")

    @property
    def levels(self) -> tuple[str, ...]:
        """The levels it names, by the labels of nodes."""
        return tuple(filter(None, (self.required, self.preferred, self.slice_level)))


class PodSet(_Part, frozen=True):
    name: str = "main"
    count: int = 1
    min_count: int | None = None
    template: RequestingTemplate = RequestingTemplate()
    topology_request: TopologyRequest | None = None

    @property
    def wants_topology(self) -> bool:
        """Whether it asks to be placed by topology. An empty request asks for nothing."""
        return self.topology_request is not None and self.topology_request != TopologyRequest()


class WorkloadSpec(_Part, frozen=True):
    queue_name: str = ""
    active: bool = True
    pod_sets: tuple[PodSet, ...] = ()
    priority: int = 0
    maximum_execution_time_seconds: int | None = None


class Assignment(_Part, frozen=True):
    """What a pod set was given: a flavor for each resource, and how much."""

    name: str = "main"
    flavors: dict[str, str] = {}
    resource_usage: dict[str, Written] = {}
    count: int | None = None


class Admission(_Part, frozen=True):
    cluster_queue: str = ""
    pod_set_assignments: tuple[Assignment, ...] = ()


class RequeueState(_Part, frozen=True):
    count: int = 0
    requeue_at: Moment | None = None


class CheckState(_Part, frozen=True):
    name: str
    state: str = ""
    message: str = ""
    last_transition_time: Moment | None = None


class Reclaimable(_Part, frozen=True):
    """How many pods of a pod set need their quota no more."""

    name: str = "main"
    count: int = 0


class PodSetRequest(_Part, frozen=True):
    name: str = "main"
    resources: dict[str, Written] = {}


class WorkloadStatus(_Part, frozen=True):
    conditions: tuple[Condition, ...] = ()
    admission: Admission | None = None
    requeue_state: RequeueState | None = None
    admission_checks: tuple[CheckState, ...] = ()
    resource_requests: tuple[PodSetRequest, ...] = ()
    reclaimable_pods: tuple[Reclaimable, ...] = ()

    @property
    def reclaimed(self) -> int:
        """How many of its pods need their quota no more."""
        return sum(each.count for each in self.reclaimable_pods)


class ExactDevices(_Part, frozen=True):
    device_class_name: str = ""


class DeviceRequest(_Part, frozen=True):
    """v1beta1 has no `exactly`: what stands in it stood here."""

    exactly: ExactDevices | None = None
    device_class_name: str = ""


class Devices(_Part, frozen=True):
    requests: tuple[DeviceRequest, ...] = ()


class ClaimedDevices(_Part, frozen=True):
    devices: Devices = Devices()


class ClaimTemplateSpec(_Part, frozen=True):
    spec: ClaimedDevices = ClaimedDevices()


class ResourceClaimTemplate(View, frozen=True):
    """What claims are made from, as far as it says what class of devices they are for."""

    of: ClassVar[Kind] = Kind(
        "resource.k8s.io",
        ("v1", "v1beta2", "v1beta1"),
        "ResourceClaimTemplate",
        "resourceclaimtemplates",
        namespaced=True,
    )
    spec: ClaimTemplateSpec = ClaimTemplateSpec()

    @property
    def device_classes(self) -> tuple[str, ...]:
        """The classes of devices, each once."""
        named = (
            each.exactly.device_class_name if each.exactly else each.device_class_name
            for each in self.spec.spec.devices.requests
        )
        return tuple(dict.fromkeys(filter(None, named)))


class LeanMeta(Meta, frozen=True, gc=False):
    """metadata without labels and annotations: of tens of thousands of objects they take most of the room."""

    labels: dict[str, str] = msgspec.field(default_factory=dict, name="-labels")
    annotations: dict[str, str] = msgspec.field(default_factory=dict, name="-annotations")


class Workload(View, frozen=True):
    """`kind` alone is ambiguous: Kubernetes has a Workload of its own in scheduling.k8s.io."""

    of: ClassVar[Kind] = Kind(GROUP, VERSIONS, "Workload", "workloads", namespaced=True)
    metadata: LeanMeta
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


class JobSpec(_Part, frozen=True):
    suspend: bool = False
    managed_by: str = ""
    active_deadline_seconds: int | None = None
    template: RequestingTemplate = RequestingTemplate()


class JobStatus(_Part, frozen=True):
    start_time: Moment | None = None
    completion_time: Moment | None = None


class Job(View, frozen=True):
    of: ClassVar[Kind] = Kind("batch", ("v1",), "Job", "jobs", namespaced=True)
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()

    @property
    def runs_here(self) -> bool:
        """Whether its pods are to be in this cluster, and now: MultiKueue runs Jobs elsewhere."""
        return not self.spec.suspend and self.spec.managed_by in ("", "kubernetes.io/job-controller")


class NodeSpec(_Part, frozen=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeStatus(_Part, frozen=True):
    allocatable: dict[str, Written] = {}
    conditions: tuple[Condition, ...] = ()


class ResourceNode(View, frozen=True):
    """A node, as far as quota is measured against it."""

    of: ClassVar[Kind] = Kind("", ("v1",), "Node", "nodes", namespaced=False)
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def usable(self) -> bool:
        """Ready, and not cordoned."""
        ready = any(each.type == "Ready" and each.status == "True" for each in self.status.conditions)
        return ready and not self.spec.unschedulable


class PlacedPodStatus(_Part, frozen=True):
    phase: str = ""
    conditions: tuple[Condition, ...] = ()


class PlacedPod(View, frozen=True):
    """A pod, as far as it takes resources of a node or waits for them."""

    of: ClassVar[Kind] = Kind("", ("v1",), "Pod", "pods", namespaced=True)
    spec: RequestingPodSpec = RequestingPodSpec()
    status: PlacedPodStatus = PlacedPodStatus()

    @property
    def over(self) -> bool:
        """Whether it takes nothing any more."""
        return self.status.phase in {"Succeeded", "Failed"}
