"""The findings of this check. An id is stable and never reused; README.md explains each."""

from __future__ import annotations

from gpuctl.audit.finding import Code, Severity

WAITS_TOO_LONG = Code("CQG001", "Workloads wait longer than the policy allows", Severity.WARNING)
BACKLOG_GROWS = Code("CQG002", "a backlog grows while it is watched", Severity.WARNING)
BACKLOG_GREW = Code("CQG003", "a backlog has grown, as Prometheus tells", Severity.WARNING)
CLOCKS = Code("CQG004", "Workloads bear times in the future", Severity.INFO)

INACTIVE = Code("CQG010", "a ClusterQueue is inactive")
FLAVOR_MISSING = Code("CQG011", "a ClusterQueue refers to a ResourceFlavor that does not exist")
CHECK_MISSING = Code("CQG012", "a ClusterQueue refers to an AdmissionCheck that does not exist")
CHECK_INACTIVE = Code("CQG013", "a ClusterQueue depends on an AdmissionCheck that is not active")
TOPOLOGY_MISSING = Code("CQG014", "a ResourceFlavor refers to a Topology that does not exist")
COHORT_CYCLE = Code("CQG015", "Cohorts form a cycle")
TERMINATING = Code("CQG016", "a ClusterQueue is being deleted while Workloads wait in it", Severity.WARNING)
STOPPED = Code("CQG017", "a ClusterQueue or LocalQueue is stopped on purpose", Severity.INFO)
STAYS = Code("CQG018", "a ClusterQueue that was deleted stays, though nobody uses it", Severity.WARNING)

NEVER_FITS = Code("CQG020", "a request can never fit its ClusterQueue")
NOT_COVERED = Code("CQG021", "a request is for a resource that the ClusterQueue does not cover")
BARRED = Code("CQG022", "no flavor lets the pods of a request in")
INVALID = Code("CQG023", "a request breaks a LimitRange, or is not valid")
CLAIM = Code("CQG024", "resource claims can't be counted")
PEERS = Code("CQG025", "a request would fit if others of the cohort ran and lent", Severity.WARNING)
TOPOLOGY = Code("CQG026", "the topology has no room for a request", Severity.WARNING)

SATURATED = Code("CQG030", "all quota is in use", Severity.WARNING)
COHORT_EXHAUSTED = Code("CQG031", "all quota of the cohort is in use", Severity.WARNING)
BORROWED_AWAY = Code("CQG032", "own quota is borrowed away, and may not be taken back", Severity.WARNING)
NO_PREEMPTION = Code("CQG033", "higher priorities wait for lower ones, without preemption", Severity.WARNING)
BEHIND_HEAD = Code("CQG034", "Workloads that would fit wait behind the first in line", Severity.WARNING)
PODS_READY = Code("CQG035", "nothing is admitted until others' pods are ready", Severity.WARNING)
NOT_LOOKED_AT = Code("CQG036", "Workloads that would fit were not looked at", Severity.WARNING)
UNCLASSIFIED = Code("CQG037", "Workloads wait for a reason that is not known here", Severity.WARNING)
NO_MANAGER = Code("CQG038", "Workloads wait because Kueue's manager does not answer", Severity.WARNING)

LOCAL_QUEUE_MISSING = Code("CQG040", "Workloads name a LocalQueue that does not exist")
CLUSTER_QUEUE_MISSING = Code("CQG041", "a LocalQueue names a ClusterQueue that does not exist")
NAMESPACE_NOT_SELECTED = Code("CQG042", "a ClusterQueue does not take Workloads of a namespace")
NO_WORKLOAD = Code("CQG043", "a suspended Job has no Workload")
QUEUE_IN_ANNOTATION = Code("CQG044", "a Job names its queue in an annotation", Severity.WARNING)
NEVER_READ = Code("CQG045", "an annotation that Kueue has never read", Severity.WARNING)

CHECKS_OPEN = Code("CQG050", "admission checks stay open", Severity.WARNING)
BACKOFF = Code("CQG051", "Workloads return to the queue again and again", Severity.WARNING)
DEACTIVATED = Code("CQG052", "Workloads were deactivated", Severity.WARNING)

LEAKED = Code("CQG060", "evicted Workloads did not give their quota back")
ORPHANED = Code("CQG061", "quota is held for something that does not exist any more")
NO_PODS = Code("CQG062", "quota is held without pods", Severity.WARNING)
HELD_LONG = Code("CQG063", "GPU quota is held for long without deadline, while others wait", Severity.WARNING)
DRIFT = Code("CQG064", "pods ask for something else than what is reserved for them", Severity.WARNING)
KEPT = Code("CQG065", "Kueue's finalizer keeps a pod that was deleted", Severity.WARNING)
UNCOUNTED = Code("CQG066", "claimed devices are counted by no quota", Severity.WARNING)

PROMISED_TOO_MUCH = Code("CQG070", "more quota is promised than there is", Severity.WARNING)
NO_NODES = Code("CQG071", "a ResourceFlavor matches no node", Severity.WARNING)
PODS_PENDING = Code("CQG072", "admitted Workloads have pods for which there is no room")
FRAGMENTED = Code("CQG073", "there is room for admitted pods, but on no single node")
DESIRED_LABEL = Code(
    "CQG074", "a ResourceFlavor selects by a label that only states a wish", Severity.WARNING
)
NOT_OFFERED = Code("CQG075", "a covered resource is offered by no node of its flavor", Severity.WARNING)
TAKEN_OUTSIDE = Code("CQG076", "pods outside of Kueue take what quota promises", Severity.WARNING)
OVERLAP = Code("CQG077", "flavors promise the same nodes twice", Severity.WARNING)
OUT_OF_SERVICE = Code("CQG078", "promised quota is out of service with its nodes", Severity.INFO)

ALL = (
    WAITS_TOO_LONG,
    BACKLOG_GROWS,
    BACKLOG_GREW,
    CLOCKS,
    INACTIVE,
    FLAVOR_MISSING,
    CHECK_MISSING,
    CHECK_INACTIVE,
    TOPOLOGY_MISSING,
    COHORT_CYCLE,
    TERMINATING,
    STOPPED,
    STAYS,
    NEVER_FITS,
    NOT_COVERED,
    BARRED,
    INVALID,
    CLAIM,
    PEERS,
    TOPOLOGY,
    SATURATED,
    COHORT_EXHAUSTED,
    BORROWED_AWAY,
    NO_PREEMPTION,
    BEHIND_HEAD,
    PODS_READY,
    NOT_LOOKED_AT,
    UNCLASSIFIED,
    NO_MANAGER,
    LOCAL_QUEUE_MISSING,
    CLUSTER_QUEUE_MISSING,
    NAMESPACE_NOT_SELECTED,
    NO_WORKLOAD,
    QUEUE_IN_ANNOTATION,
    NEVER_READ,
    CHECKS_OPEN,
    BACKOFF,
    DEACTIVATED,
    LEAKED,
    ORPHANED,
    NO_PODS,
    HELD_LONG,
    DRIFT,
    KEPT,
    UNCOUNTED,
    PROMISED_TOO_MUCH,
    NO_NODES,
    PODS_PENDING,
    FRAGMENTED,
    DESIRED_LABEL,
    NOT_OFFERED,
    TAKEN_OUTSIDE,
    OVERLAP,
    OUT_OF_SERVICE,
)
