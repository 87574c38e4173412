"""Every LocalQueue that Workloads name exists and leads to a ClusterQueue. Kueue counts none of these."""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.audit.assertion import every
from gpuctl.audit.finding import Evidence, Finding
from gpuctl.audit.policy import POLICY, Policy
from gpuctl.checks.queue_growth import codes
from gpuctl.checks.queue_growth.words import counted, verb, words_of_kueue
from gpuctl.facts.fact import given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Known, attempt, value
from gpuctl.kueue.objects import LocalQueue, Workload
from gpuctl.kueue.queue_facts import DOORS, scene_of_the_queues
from gpuctl.kueue.scene import Door, Scene
from gpuctl.kueue.standing import age, span, verdict, waiting_since


@every(DOORS, "every queue that Workloads name exists", given(POLICY, scene_of_the_queues))
def existing_queues(door: Door, policy: Policy, scene: Scene) -> Iterator[Finding]:
    settled = policy.checks.queue_growth.settle_seconds
    oldest = max((age(waiting_since(each), door.now) for each in door.waiting), default=None)
    if door.missing and oldest is not None and oldest.total_seconds() >= settled:
        yield _finding(door, door.missing, scene, f"the oldest for {span(oldest)}")
    elif door.stopped and door.waiting:
        yield _stopped(door)


def _stopped(door: Door) -> Finding:
    place, number = door.local_queue, len(door.waiting)
    return Finding(
        code=codes.STOPPED,
        object=place,
        message=(
            f"LocalQueue {place.namespace}/{place.name} is stopped on purpose (stopPolicy {door.stopped}); "
            f"{counted(number, 'Workload')} {verb(number, 'waits', 'wait')} in it, and no ClusterQueue "
            "counts that as pending"
        ),
        evidence=(Evidence(place, ".spec.stopPolicy", door.stopped),),
        look=f"kubectl -n {place.namespace} get localqueues.kueue.x-k8s.io {place.name} -o yaml",
        remedy="set stopPolicy None when it may go on; risk: what waits is then admitted at once",
    )


def _finding(door: Door, missing: Ref, scene: Scene, since: str) -> Finding:
    no_local_queue = missing == door.local_queue
    place, number = door.local_queue, counted(len(door.waiting), "Workload")
    names = "name" if len(door.waiting) > 1 else "names"
    says = (
        f"{number} of namespace {place.namespace} {names} LocalQueue {place.name}, which does not exist"
        if no_local_queue
        else (
            f"LocalQueue {place.namespace}/{place.name} leads to {missing}, which does not exist; "
            f"{number} {verb(len(door.waiting), 'waits', 'wait')}"
        )
    )
    return Finding(
        code=codes.LOCAL_QUEUE_MISSING if no_local_queue else codes.CLUSTER_QUEUE_MISSING,
        object=place,
        message=f"{says}, {since}; no ClusterQueue counts that as pending",
        evidence=tuple(_evidence(door, missing)),
        look=f"kubectl -n {place.namespace} get localqueues.kueue.x-k8s.io,workloads.kueue.x-k8s.io",
        remedy=_remedy(door, missing, scene),
    )


def _evidence(door: Door, missing: Ref) -> Iterator[Evidence]:
    yield Evidence(missing, "", "does not exist")
    first: Workload = door.waiting[0]
    yield Evidence(first.ref, ".spec.queueName", first.spec.queue_name)
    yield words_of_kueue(first, verdict(first))


def _remedy(door: Door, missing: Ref, scene: Scene) -> str:
    here = attempt(
        lambda: sorted(
            each.metadata.name
            for each in value(scene.written.local_queues)
            if isinstance(each, LocalQueue) and each.metadata.namespace == door.local_queue.namespace
        )
    )
    known = ", ".join(here.value) if isinstance(here, Known) and here.value else "none"
    if missing == door.local_queue:
        return f"create the LocalQueue, or name one that exists (in the namespace: {known}); risk: none"
    return f"create {missing}, or make the LocalQueue anew for another (it can't be changed); risk: none"
