"""The runbook `queue-limit`: how much a queue may borrow or lend, or how long a Job may take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gpuctl.facts.fact import Maybe, given
from gpuctl.facts.state import State, value
from gpuctl.kueue.facts import API_SERVICES, NAMESPACES, PODS, SLICES
from gpuctl.kueue.objects import ClusterQueue, Job
from gpuctl.kueue.queue_facts import (
    ADMISSION_CHECKS,
    CLAIM_TEMPLATES,
    COHORTS,
    FLAVORS,
    LINES,
    QUEUES,
    TOPOLOGIES,
)
from gpuctl.runbook.flavors.canaries import version_that_is_written
from gpuctl.runbook.gates import ALWAYS, window_not_closed
from gpuctl.runbook.kueue.limit_effects import who_notices_a_deadline, who_notices_a_limit
from gpuctl.runbook.kueue.limit_guards import LIMIT_GUARDS
from gpuctl.runbook.kueue.limit_steps import (
    LIMITED_BY,
    PATCHES_JOBS,
    PATCHES_QUEUES,
    SetDeadline,
    SetLimit,
    deadline_set,
    limited,
)
from gpuctl.runbook.kueue.limits import (
    FLAGS,
    JOB,
    NONE,
    OF_A_JOB,
    QUEUE,
    Limit,
    LimitedJob,
    LimitedQueue,
    Place,
    deadline_that_is_wanted,
    is_a_job,
    limit_that_is_wanted,
    place_of_the_limit,
    told,
    uid_of_what_is_limited,
    what_is_limited,
)
from gpuctl.runbook.owned import PATCH_ONLY, not_owned_elsewhere, only_printed, printed, to_be_applied
from gpuctl.runbook.records import Run
from gpuctl.runbook.runbook import Option, Runbook
from gpuctl.runbook.step import Step
from gpuctl.runbook.target import OPTIONS, TARGET

ABOUT: Final = """\
Sets one limit: of a ClusterQueue (the target is its name) the borrowingLimit or lendingLimit of one resource
in one flavor; of a Job (the target is job/NAMESPACE/NAME) how many seconds it may take. The plan says
beforehand who would wait, who may be evicted, and what would end.

A limit evicts nobody by itself; who has more keeps it until it is given back. A deadline counts from the
start of the Job, not from now: one that is over kills its pods at once, so it is computed, shown, and refused
unless --although-it-ends-now is given. Kueue's webhook refuses a borrowingLimit or lendingLimit of a queue
without a cohort."""


@given(QUEUE.now, place_of_the_limit, limit_that_is_wanted, version_that_is_written)
def step_of_a_limit(queue: LimitedQueue, place: Place, limit: Limit, version: str) -> SetLimit:
    return SetLimit(
        queue=queue.metadata.name,
        uid=queue.metadata.uid,
        version=version,
        flavor=limit.flavor,
        resource=limit.resource,
        field=limit.field,
        before=place.limit(limit.field),
        after=limit.after,
        marked_before=queue.metadata.annotations.get(LIMITED_BY, ""),
    )


@given(JOB.now, deadline_that_is_wanted)
def step_of_a_deadline(job: LimitedJob, deadline: int | None) -> SetDeadline:
    return SetDeadline(
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        uid=job.metadata.uid,
        before=job.spec.active_deadline_seconds,
        after=deadline,
        marked_before=job.metadata.annotations.get(LIMITED_BY, ""),
    )


@given(TARGET, OPTIONS, Maybe(step_of_a_limit), Maybe(step_of_a_deadline))
def steps_of_a_limit(
    target: str, options: Mapping[str, Any], limit: State[SetLimit], deadline: State[SetDeadline]
) -> tuple[Step, ...]:
    step = value(deadline) if is_a_job(target) else value(limit)
    return () if only_printed(options) else (step,)


@given(TARGET, Maybe(QUEUE.now), Maybe(place_of_the_limit), Maybe(limit_that_is_wanted), Maybe(JOB.now))
def what_a_limit_rests_on(
    target: str,
    queue: State[LimitedQueue],
    place: State[Place],
    limit: State[Limit],
    job: State[LimitedJob],
) -> Mapping[str, str]:
    if is_a_job(target):
        found = value(job)
        started = found.status.start_time
        return {
            "activeDeadlineSeconds": told(found.spec.active_deadline_seconds),
            "startTime": f"{started:%Y-%m-%dT%H:%M:%SZ}" if started else "",
        }
    wanted = value(limit)
    return {
        wanted.field: told(value(place).limit(wanted.field)),
        "nominalQuota": str(value(place).quota.nominal_quota),
        "cohort": value(queue).cohort,
    }


@given(
    TARGET,
    OPTIONS,
    Maybe(who_notices_a_limit),
    Maybe(who_notices_a_deadline),
    Maybe(what_is_limited),
    Maybe(place_of_the_limit),
)
def what_a_limit_does(
    target: str,
    options: Mapping[str, Any],
    limit: State[tuple[str, ...]],
    deadline: State[tuple[str, ...]],
    found: State[LimitedQueue | LimitedJob],
    place: State[Place],
) -> tuple[str, ...]:
    told_ = value(deadline) if is_a_job(target) else value(limit)
    if not only_printed(options):
        return told_
    there = value(found)
    return (*told_, *printed(there.ref, _patch(there, options, place), there.metadata))


def _patch(found: LimitedQueue | LimitedJob, options: Mapping[str, Any], place: State[Place]) -> Any:
    if isinstance(found, LimitedJob):
        text = str(options["deadline"])
        return deadline_set(found.spec.active_deadline_seconds, None if text == NONE else int(text))
    field, text = next((field, str(options[flag])) for field, flag in FLAGS.items() if options.get(flag))
    there = value(place)
    return limited(
        there,
        str(options["flavor"]),
        str(options["resource"]),
        field,
        there.limit(field),
        None if text == NONE else text,
    )


def reverse(run: Run) -> Mapping[str, Any] | None:
    """The same with the limit of before."""
    for record in run.steps:
        step = record.step
        flag = "deadline" if step.get("step") == SetDeadline.__name__ else FLAGS.get(step.get("field", ""))
        if flag:
            before = step.get("before")
            return {**run.options, flag: NONE if before is None else str(before)}
    return None


# Of Kueue, what tells why Workloads wait: the effects name those that do.
UNHEEDED: Final = (
    ADMISSION_CHECKS,
    API_SERVICES,
    CLAIM_TEMPLATES,
    COHORTS,
    FLAVORS,
    NAMESPACES,
    PODS,
    SLICES,
    TOPOLOGIES,
)


RUNBOOK: Final = Runbook(
    id="queue-limit",
    title="set how much a queue may borrow or lend, or how long a Job may take",
    about=ABOUT,
    target="clusterqueue | job/namespace/name",
    back="the value of before is set again, or none; a Job that its deadline ended stays ended",
    guards=(*LIMIT_GUARDS, *ALWAYS, window_not_closed, not_owned_elsewhere(what_is_limited), to_be_applied),
    steps=steps_of_a_limit,
    step_types=(SetLimit, SetDeadline),
    kind=ClusterQueue.of,
    prefixed={OF_A_JOB: Job.of},
    options=(
        Option("--flavor", "the flavor whose quota is limited", ""),
        Option("--resource", "the resource of it, as nvidia.com/gpu", ""),
        Option("--borrowing-limit", "how much it may borrow from its cohort, or none for no limit", ""),
        Option("--lending-limit", "how much of its own others may borrow, or none for no limit", ""),
        Option("--deadline", "seconds that a Job may take, from its start on, or none", ""),
        PATCH_ONLY,
    ),
    preconditions=what_a_limit_rests_on,
    effects=what_a_limit_does,
    target_uid=uid_of_what_is_limited,
    reverse=reverse,
    rules=frozenset({PATCHES_QUEUES, PATCHES_JOBS}),
    spared=(LINES, QUEUES),
    unheeded=UNHEEDED,
)
