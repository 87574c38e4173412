"""What is read of Kueue's queues and of the machine under them, and what is derived from it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from gpuctl.facts.fact import NOW, Maybe, Metrics, Named, Objects, Sampled, given
from gpuctl.facts.kinds import Ref, View
from gpuctl.facts.metrics import Labels, Points, increase
from gpuctl.facts.objects import Namespace
from gpuctl.facts.state import (
    Each,
    Inapplicable,
    Known,
    NotKnown,
    Reason,
    State,
    Unknown,
    attempt,
    value,
)
from gpuctl.kueue import scene as scenes
from gpuctl.kueue import settings as manager_settings
from gpuctl.kueue.causes.diagnosis import Diagnosed
from gpuctl.kueue.drills import is_under_way
from gpuctl.kueue.facts import CONFIG_MAPS, NAMESPACES, as_collection, kueue_managers, mounted
from gpuctl.kueue.footing import Footing, Ground
from gpuctl.kueue.growth import LEAST, Count
from gpuctl.kueue.manager import Manager
from gpuctl.kueue.objects import (
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    Job,
    LocalQueue,
    ManagerConfigMap,
    PlacedPod,
    ResourceClaimTemplate,
    ResourceFlavor,
    ResourceNode,
    Topology,
    WatchedQueue,
    Workload,
)
from gpuctl.kueue.pods import Owned, is_kept
from gpuctl.kueue.scene import Door, Line, Scene, Sorted, Written
from gpuctl.kueue.settings import Settings
from gpuctl.kueue.standing import Standing, standing

V = TypeVar("V", bound=View)

QUEUES = Objects(ClusterQueue)
LOCAL_QUEUES = Objects(LocalQueue)
COHORTS = Objects(Cohort)
FLAVORS = Objects(ResourceFlavor)
TOPOLOGIES = Objects(Topology)
ADMISSION_CHECKS = Objects(AdmissionCheck)
WORKLOADS = Objects(Workload)
JOBS = Objects(Job)
NODES = Objects(ResourceNode)
ALL_PODS = Objects(PlacedPod)


@given(Maybe(kueue_managers), Maybe(CONFIG_MAPS))
def settings_of_the_manager(
    managers: State[Each[Ref, Manager]], config_maps: State[Each[Ref, ManagerConfigMap]]
) -> Settings:
    """Of the manager that admits Workloads: the only one, or else all must agree. Without any: defaults."""
    if isinstance(managers, Inapplicable):
        return Settings()
    found = {_settings(manager, as_collection(config_maps)) for manager in value(managers)}
    if len(found) > 1:
        raise NotKnown(Inapplicable("several managers with different settings"))
    return found.pop() if found else Settings()


def _settings(manager: Manager, config_maps: Each[Ref, ManagerConfigMap]) -> Settings:
    found = _written_settings(manager, config_maps)
    return Settings() if found is None else found


def _written_settings(manager: Manager, config_maps: Each[Ref, ManagerConfigMap]) -> Settings | None:
    """As they stand in the ConfigMap that is mounted; None where none of them has the file."""
    _ = manager.deployments  # raises NotKnown where it could not be read which ConfigMap is mounted
    for ref in mounted(manager):
        config_map = config_maps.get(ref)
        if config_map is not None and config_map.data.configuration is not None:
            return manager_settings.parse(config_map.data.configuration)
    return None


@given(kueue_managers, Maybe(CONFIG_MAPS))
def settings_as_written(
    managers: Each[Ref, Manager], config_maps: State[Each[Ref, ManagerConfigMap]]
) -> Each[Ref, Settings]:
    """Of each manager, with no defaults in the place of what was not found: for those who may only act where
    it is known."""
    return managers.map(lambda manager: _read_settings(manager, as_collection(config_maps)))


def _read_settings(manager: Manager, config_maps: Each[Ref, ManagerConfigMap]) -> Settings:
    found = _written_settings(manager, config_maps)
    if found is None:
        why = "its Deployment mounts no ConfigMap with the file controller_manager_config.yaml"
        raise NotKnown(Unknown(Reason.NOT_ASKED, why, f"the configuration of Kueue's manager {manager.ref}"))
    return found


@given(
    QUEUES, Maybe(LOCAL_QUEUES), Maybe(COHORTS), Maybe(FLAVORS), Maybe(TOPOLOGIES), Maybe(ADMISSION_CHECKS)
)
def queues_as_written(
    queues: Each[Ref, ClusterQueue],
    local_queues: State[Each[Ref, LocalQueue]],
    cohorts: State[Each[Ref, Cohort]],
    flavors: State[Each[Ref, ResourceFlavor]],
    topologies: State[Each[Ref, Topology]],
    checks: State[Each[Ref, AdmissionCheck]],
) -> Written:
    return Written(queues, local_queues, cohorts, flavors, topologies, checks)


@given(queues_as_written, Maybe(NAMESPACES), Maybe(settings_of_the_manager), NOW)
def scene_of_the_queues(
    written: Written,
    namespaces: State[Each[Ref, Namespace]],
    settings: State[Settings],
    now: datetime,
) -> Scene:
    return Scene(written, namespaces, settings, now)


@given(Maybe(WORKLOADS))
def templates_of_claims(workloads: State[Each[Ref, Workload]]) -> Collection[Ref]:
    """What the claims of Workloads are made from. Of Workloads that can't be read none are known."""
    return frozenset(
        Ref(ResourceClaimTemplate.of, claim.resource_claim_template_name, workload.metadata.namespace)
        for _, workload in as_collection(workloads).known()
        for pods in workload.spec.pod_sets
        for claim in pods.template.spec.resource_claims
        if claim.resource_claim_template_name and _concerned(workload)
    )


def _concerned(workload: Workload) -> bool:
    stands = standing(workload)
    return stands is Standing.WAITING or stands.holds_quota


CLAIM_TEMPLATES = Named(ResourceClaimTemplate, templates_of_claims)


@given(scene_of_the_queues, Maybe(WORKLOADS), Maybe(CLAIM_TEMPLATES))
def workloads_in_their_queues(
    scene: Scene,
    workloads: State[Each[Ref, Workload]],
    templates: State[Each[Ref, ResourceClaimTemplate]],
) -> Sorted:
    return scenes.sort(scene, as_collection(workloads), templates)


@given(workloads_in_their_queues, NOW)
def clusterqueues_with_their_workloads(found: Sorted, now: datetime) -> Each[Ref, Line]:
    """Without those of a drill that is under way: they stand still on purpose, and for nobody."""
    return found.lines.where(lambda line: not is_under_way(line.queue, now))


@given(workloads_in_their_queues)
def localqueues_that_workloads_name(found: Sorted) -> Each[Ref, Door]:
    return found.doors


LINES = clusterqueues_with_their_workloads
DOORS = localqueues_that_workloads_name


@given(Maybe(ALL_PODS), Maybe(JOBS))
def pods_by_owner(pods: State[Each[Ref, PlacedPod]], jobs: State[Each[Ref, Job]]) -> Owned:
    return Owned(pods, jobs)


@given(LINES)
def causes_of_waiting(lines: Each[Ref, Line]) -> Each[Ref, Diagnosed]:
    """Why the Workloads of each queue wait."""
    return lines.map(Diagnosed)


@given(LINES, FLAVORS, scene_of_the_queues, Maybe(NODES), pods_by_owner)
def flavors_on_the_machine(
    lines: Each[Ref, Line],
    flavors: Each[Ref, ResourceFlavor],
    scene: Scene,
    nodes: State[Each[Ref, ResourceNode]],
    owned: Owned,
) -> Each[Ref, Footing]:
    """The flavors that queues give out."""
    found = [each for _, each in lines.known()]
    gaps = tuple(lines.gaps())
    unread = (*gaps, *(gap for line in found for gap in line.gaps))
    ground = Ground(nodes, owned, tuple(workload for line in found for workload in line.holding), unread)
    named = {name for line in found for name in line.queue.flavors}
    entries = flavors.where(lambda each: each.metadata.name in named).map(
        lambda each: Footing(
            each, scene, ground, tuple(line for line in found if each.metadata.name in line.queue.flavors)
        )
    )
    return Each(entries.entries, (*entries.holes, *gaps))


@given(Maybe(WORKLOADS))
def owners_of_workloads(workloads: State[Each[Ref, Workload]]) -> State[frozenset[str]]:
    """The uids that Workloads belong to. Unknown as a value, so that a Job without need of it is judged."""
    return attempt(
        lambda: frozenset(owner.uid for each in value(workloads) for owner in each.metadata.owner_references)
    )


@given(Maybe(WORKLOADS))
def known_by_workloads(workloads: State[Each[Ref, Workload]]) -> State[frozenset[str]]:
    """The uids that Workloads belong to, and their own names; unknown as a value, as above."""
    return attempt(
        lambda: frozenset(
            known
            for each in value(workloads)
            for known in (
                f"{each.metadata.namespace}/{each.metadata.name}",
                *(owner.uid for owner in each.metadata.owner_references),
            )
        )
    )


@given(ALL_PODS, Maybe(QUEUES))
def pods_under_deletion(
    pods: Each[Ref, PlacedPod], queues: State[Each[Ref, ClusterQueue]]
) -> Each[Ref, PlacedPod]:
    """Those that Kueue has yet to let go of."""
    return _with_kueue(pods, queues).where(is_kept)


@given(JOBS, Maybe(QUEUES))
def jobs_beside_queues(jobs: Each[Ref, Job], queues: State[Each[Ref, ClusterQueue]]) -> Each[Ref, Job]:
    return _with_kueue(jobs, queues)


def _with_kueue(found: Each[Ref, V], queues: State[Each[Ref, ClusterQueue]]) -> Each[Ref, V]:
    """What is Kubernetes' own is of no concern where there is no Kueue."""
    if isinstance(queues, Inapplicable):
        raise NotKnown(queues)
    return found


WATCHED = Sampled(WatchedQueue)
# Followers of a manager with several replicas count too, since 0.16 under another role; older ones are equal.
_LEADER = 'replica_role!="follower"'
PENDING = Metrics(
    f"sum by (cluster_queue) (max by (cluster_queue, status) (kueue_pending_workloads{{{_LEADER}}}))", 6
)
ADMISSIONS = Metrics(
    f"sum by (cluster_queue) (max by (cluster_queue) (kueue_admitted_workloads_total{{{_LEADER}}}))", 6
)


@given(WATCHED)
def queues_over_a_while(rounds: Each[datetime, Each[Ref, WatchedQueue]]) -> Each[Ref, Sequence[Count]]:
    """How many waited in each queue, round by round. A round that failed is left out; if too few are left,
    nothing can be told."""
    counts: dict[Ref, list[Count]] = {}
    for at, queues in sorted(rounds.known()):
        for ref, queue in queues.where(lambda each: not is_under_way(each, at)).known():  # noqa: B023
            counts.setdefault(ref, []).append((at, float(queue.status.pending_workloads)))
    told = len(tuple(rounds.known()))
    gaps = tuple(rounds.gaps()) if told < LEAST else ()
    return Each({ref: Known(tuple(each)) for ref, each in counts.items()}, gaps)


@dataclass(frozen=True)
class Past:
    """What a Prometheus knows of a queue: how many waited, and how many were admitted."""

    waited: Points
    admitted: float


@given(PENDING, ADMISSIONS)
def queues_over_hours(waiting: Each[Labels, Points], admissions: Each[Labels, Points]) -> Each[Ref, Past]:
    admitted = {labels: increase(points) for labels, points in admissions.known()}
    return Each.of(
        {
            Ref(ClusterQueue.of, dict(labels).get("cluster_queue", "")): Past(
                points, admitted.get(labels, 0.0)
            )
            for labels, points in waiting.known()
        }
    )
