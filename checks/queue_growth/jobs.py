"""Every Job that waits for a queue is in it, and says so by what Kueue reads."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from gpuctl.audit.assertion import every
from gpuctl.audit.finding import Evidence, Finding
from gpuctl.audit.policy import POLICY, Policy
from gpuctl.checks.queue_growth import codes
from gpuctl.checks.queue_growth.words import get
from gpuctl.facts.fact import NOW, given
from gpuctl.facts.state import State, value
from gpuctl.kueue.jobs import NEVER_READ, QUEUE, Miss, Missed, may_be_missed, missed, never_read
from gpuctl.kueue.objects import Job
from gpuctl.kueue.queue_facts import jobs_beside_queues, owners_of_workloads
from gpuctl.kueue.standing import age, span


@every(
    jobs_beside_queues,
    "every Job that waits for a queue has a Workload",
    given(owners_of_workloads, NOW, POLICY),
)
def queued_jobs(job: Job, owners: State[frozenset[str]], now: datetime, policy: Policy) -> Iterator[Finding]:
    for name in never_read(job):
        yield _never_read(job, name)
    waited = age(job.metadata.creation_timestamp, now)
    if waited.total_seconds() < policy.checks.queue_growth.settle_seconds or not may_be_missed(job):
        return
    found = missed(job, value(owners))
    if found:
        yield _finding(found, span(waited))


def _finding(found: Missed, waited: str) -> Finding:
    job, named = found.job.ref, f"{found.job.metadata.namespace}/{found.job.metadata.name}"
    by_label = found.miss is Miss.NO_WORKLOAD
    return Finding(
        code=codes.NO_WORKLOAD if by_label else codes.QUEUE_IN_ANNOTATION,
        object=job,
        message=(
            f"Job {named} has been suspended for LocalQueue {found.queue} for {waited}, and has no Workload"
            if by_label
            else f"Job {named} names its queue {found.queue} in an annotation, which Kueue does not read"
        ),
        evidence=(
            Evidence(job, f".metadata.{'labels' if by_label else 'annotations'}['{QUEUE}']", found.queue),
            Evidence(job, ".spec.suspend", str(found.job.spec.suspend).lower()),
        ),
        look=f"{get(job)}; kubectl -n {job.namespace} get workloads.kueue.x-k8s.io",
        remedy=(
            "see the manager's log for this Job: its integration may be off, its namespace not managed, or "
            "the manager down (kueue-webhooks); risk: none"
            if by_label
            else f"make the queue a label: `kubectl -n {job.namespace} label job {job.name} "
            f"{QUEUE}={found.queue}` while it is suspended; risk: none"
        ),
        cause=f"Jobs without Workload in {job.namespace}" if by_label else "",
    )


def _never_read(job: Job, name: str) -> Finding:
    return Finding(
        code=codes.NEVER_READ,
        object=job.ref,
        message=(
            f"Job {job.metadata.namespace}/{job.metadata.name} has the annotation {name}, which no release "
            f"of Kueue reads: {NEVER_READ[name]}"
        ),
        evidence=(Evidence(job.ref, f".metadata.annotations['{name}']", "present"),),
        look=get(job.ref),
        remedy="remove it, and write requests into the containers; risk: none",
        mark=name,
    )
