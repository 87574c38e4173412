"""The runbook `flavor-hold`: what tenants would feel of a flavor's loss, simulated on a real queue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpuctl.audit.finding import Finding
from gpuctl.facts.fact import given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Each
from gpuctl.kueue.facts import API_SERVICES
from gpuctl.kueue.objects import ClusterQueue, LocalQueue
from gpuctl.runbook.flavors.canaries import version_that_is_written
from gpuctl.runbook.flavors.drill_guards import kueue_works
from gpuctl.runbook.flavors.hold_steps import (
    HELD_QUEUE,
    LOCAL_QUEUES,
    PATCHES_QUEUES,
    QUEUE,
    HeldQueue,
    Hold,
    Watch,
)
from gpuctl.runbook.gates import ALWAYS, window_not_closed
from gpuctl.runbook.guard import blocks, guard, notes
from gpuctl.runbook.owned import ALTHOUGH_OWNED, keepers
from gpuctl.runbook.runbook import Option, Runbook
from gpuctl.runbook.step import Step
from gpuctl.runbook.target import OPTIONS

SECONDS: Final = 60.0
LONGEST: Final = 3600.0

ABOUT: Final = """\
Sets stopPolicy: Hold on a ClusterQueue for a while, and then what was there before. Nothing is evicted, and
nothing new is admitted: what the queue's tenants would feel if it lost a flavor, without the loss. It tells
how many waited more at the end, and where.

Deleting a real ResourceFlavor is not offered: it can't be undone. What a person would do instead, with the
backup before it, is printed by the plan."""


@guard("the ClusterQueue admits", given(QUEUE))
def queue_is_not_stopped(queue: HeldQueue) -> Iterator[Finding]:
    if queue.stopped:
        yield blocks(
            queue.ref,
            f"ClusterQueue {queue.metadata.name} is stopped already (stopPolicy: {queue.stopped})",
            remedy="let whoever stopped it let it go first",
        )
    elif queue.metadata.deletion_timestamp:
        yield blocks(queue.ref, f"ClusterQueue {queue.metadata.name} is being deleted")


@guard("nobody else writes the ClusterQueue", given(QUEUE), ALTHOUGH_OWNED)
def queue_is_nobodys(queue: HeldQueue) -> Iterator[Finding]:
    """What is written back in between ends the simulation early, and fails the run."""
    for keeper in keepers(queue.metadata):
        yield blocks(
            queue.ref,
            f"ClusterQueue {queue.metadata.name} is kept by {keeper}, which may write its stopPolicy back",
            remedy=f"pause that first, or change {keeper.place}",
        )


@guard("the time is one that a queue can be held for", given(OPTIONS))
def seconds_are_sensible(options: Mapping[str, Any]) -> Iterator[Finding]:
    seconds = float(options.get("seconds") or 0)
    if not 0 < seconds <= LONGEST:
        yield blocks(
            Ref(ClusterQueue.of, ""),
            f"--seconds is above 0 and at most {LONGEST:g}, not {seconds:g}",
            look="gpuctl plan flavor-hold --help",
        )


@guard("the queue has tenants", given(QUEUE, LOCAL_QUEUES))
def tenants_are_told(queue: HeldQueue, local_queues: Each[Ref, LocalQueue]) -> Iterator[Finding]:
    names = [
        f"{each.metadata.namespace}/{each.metadata.name}"
        for each in local_queues
        if each.spec.cluster_queue == queue.metadata.name
    ]
    if not names:
        yield notes(queue.ref, f"no LocalQueue leads to {queue.metadata.name}: nobody will notice")


@given(QUEUE, OPTIONS, version_that_is_written)
def steps_of_a_hold(queue: HeldQueue, options: Mapping[str, Any], version: str) -> tuple[Step, ...]:
    name = queue.metadata.name
    hold = Hold(queue=name, queue_uid=queue.metadata.uid, version=version, before=queue.spec.stop_policy)
    lasts = float(options.get("seconds") or SECONDS)
    return hold, Watch(queue=name, lasts=lasts, pending=queue.status.pending_workloads)


@given(QUEUE)
def what_a_hold_rests_on(queue: HeldQueue) -> Mapping[str, str]:
    return {"stopPolicy": queue.spec.stop_policy or "", "generation": str(queue.metadata.generation)}


@given(QUEUE, OPTIONS, LOCAL_QUEUES)
def what_a_hold_does(
    queue: HeldQueue, options: Mapping[str, Any], local_queues: Each[Ref, LocalQueue]
) -> tuple[str, ...]:
    name, status = queue.metadata.name, queue.status
    tenants = sorted(
        f"{each.metadata.namespace}/{each.metadata.name}"
        for each in local_queues
        if each.spec.cluster_queue == name
    )
    seconds = float(options.get("seconds") or SECONDS)
    flavors = [each.name for group in queue.spec.resource_groups for each in group.flavors]
    return (
        f"for {seconds:g} s ClusterQueue {name} admits nothing; nothing is evicted",
        "if gpuctl is killed meanwhile, the queue stays held until `gpuctl undo` of its run (`gpuctl runs`)",
        f"now {status.admitted_workloads} are admitted and {status.pending_workloads} wait",
        f"LocalQueues concerned: {', '.join(tenants) or 'none'}",
        *_true_deletion(name, tuple(dict.fromkeys(flavors))),
    )


def _true_deletion(queue: str, flavors: tuple[str, ...]) -> Iterator[str]:
    """What gpuctl does not do, for who must: the backup first, for a deletion can't be undone."""
    if not flavors:
        return
    yield "gpuctl deletes no real flavor; by hand, with GitOps paused and after this backup:"
    yield "  kubectl get resourceflavors.kueue.x-k8s.io,clusterqueues.kueue.x-k8s.io -o yaml > backup.yaml"
    yield "  in backup.yaml remove status, uid, resourceVersion, generation, finalizers and managedFields"
    for each in flavors:
        yield f"  kubectl delete resourceflavors.kueue.x-k8s.io/{each} --wait=false"
    yield f"  kubectl edit clusterqueues.kueue.x-k8s.io/{queue}   (drops the reference: then it is gone)"
    yield "  back again: apply the flavor from backup.yaml once it is gone, then the ClusterQueues"


RUNBOOK: Final = Runbook(
    id="flavor-hold",
    title="hold a ClusterQueue for a while, as if it had lost its flavor, and let it go again",
    about=ABOUT,
    target="ClusterQueue",
    back="the stopPolicy that was there before",
    guards=(
        *ALWAYS,
        window_not_closed,
        kueue_works,
        queue_is_not_stopped,
        queue_is_nobodys,
        seconds_are_sensible,
        tenants_are_told,
    ),
    steps=steps_of_a_hold,
    step_types=(Hold, Watch),
    kind=ClusterQueue.of,
    options=(Option("--seconds", "for how long", SECONDS),),
    preconditions=what_a_hold_rests_on,
    effects=what_a_hold_does,
    target_uid=HELD_QUEUE.uid,
    rules=frozenset({PATCHES_QUEUES}),
    unheeded=(API_SERVICES,),
)
