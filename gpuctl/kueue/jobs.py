"""Jobs that were meant for a queue and never became Workloads, and annotations that Kueue never read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from gpuctl.kueue.objects import GROUP, Job

QUEUE = f"{GROUP}/queue-name"
_PREBUILT = f"{GROUP}/prebuilt-workload-name"
NEVER_READ: Mapping[str, str] = {
    f"{GROUP}/requests": "requests are taken from the pod template's containers",
    f"{GROUP}/reclaimable": "what may be given back early is reported by the job's controller",
}


class Miss(StrEnum):
    """Why a Job is not in a queue."""

    NO_WORKLOAD = "it is suspended for a queue, and has no Workload"
    ANNOTATION = "the queue is named in an annotation"


@dataclass(frozen=True, slots=True)
class Missed:
    """A Job that waits for nothing."""

    miss: Miss
    job: Job
    queue: str


def missed(job: Job, owners: Collection[str]) -> Missed | None:
    """What is wrong with a Job that is in no queue; `owners` are the uids that Workloads belong to."""
    about = job.metadata
    if about.uid in owners or about.owner_references or about.deletion_timestamp:
        return None
    if job.status.completion_time or not job.spec.suspend:
        return _by_annotation(job)
    queue = about.labels.get(QUEUE)
    if queue and _PREBUILT not in about.labels:
        return Missed(Miss.NO_WORKLOAD, job, queue)
    return _by_annotation(job)


def may_be_missed(job: Job) -> bool:
    """Whether it matters for this Job which Workloads there are."""
    return QUEUE in job.metadata.labels or QUEUE in job.metadata.annotations


def _by_annotation(job: Job) -> Missed | None:
    queue = job.metadata.annotations.get(QUEUE)
    if not queue or QUEUE in job.metadata.labels or job.status.completion_time:
        return None
    return Missed(Miss.ANNOTATION, job, queue)


def never_read(job: Job) -> Iterator[str]:
    """Annotations of Kueue's name that no release has ever read."""
    written = {**job.spec.template.metadata.annotations, **job.metadata.annotations}
    yield from (name for name in NEVER_READ if name in written)
