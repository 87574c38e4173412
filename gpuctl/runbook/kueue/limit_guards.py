"""What must hold before a limit is set. Each is about queues or about Jobs, and silent about the other."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from gpuctl.audit.finding import Finding
from gpuctl.facts.fact import NOW, Maybe, given
from gpuctl.facts.state import State, value
from gpuctl.kueue.quantities import amount
from gpuctl.runbook.guard import blocks, guard
from gpuctl.runbook.kueue.limits import (
    JOB,
    LENDING,
    QUEUE,
    Limit,
    LimitedJob,
    LimitedQueue,
    Place,
    deadline_that_is_wanted,
    ends_in,
    is_a_job,
    limit_that_is_wanted,
    place_of_the_limit,
    same,
    told,
)
from gpuctl.runbook.target import TARGET

_HELP: Final = "gpuctl plan queue-limit --help"


@guard(
    "one limit is asked for, and it is another than there is",
    given(
        TARGET,
        Maybe(place_of_the_limit),
        Maybe(limit_that_is_wanted),
        Maybe(JOB.now),
        Maybe(deadline_that_is_wanted),
        Maybe(QUEUE.now),
    ),
)
def something_changes(
    target: str,
    place: State[Place],
    limit: State[Limit],
    job: State[LimitedJob],
    deadline: State[int | None],
    queue: State[LimitedQueue],
) -> Iterator[Finding]:
    """What can't be told of it, as of a queue that does not exist, blocks by not being known."""
    if is_a_job(target):
        found, seconds = value(job), value(deadline)
        if found.spec.active_deadline_seconds == seconds:
            yield blocks(found.ref, f"activeDeadlineSeconds of {found.ref} is {told(seconds)} already")
        return
    there, wanted = value(place), value(limit)
    if same(there.limit(wanted.field), wanted.after):
        yield blocks(value(queue).ref, f"{wanted.field} is {told(wanted.after)} already")


@guard(
    "Kueue takes the limit",
    given(TARGET, Maybe(QUEUE.now), Maybe(place_of_the_limit), Maybe(limit_that_is_wanted)),
)
def kueue_takes_it(
    target: str, queue: State[LimitedQueue], place: State[Place], limit: State[Limit]
) -> Iterator[Finding]:
    """Its webhook refuses the others: said here, before anything is begun."""
    if is_a_job(target):
        return
    found, wanted = value(queue), value(limit)
    worth = wanted.worth
    if worth is None:
        return
    if not found.cohort:
        yield blocks(
            found.ref,
            f"{found.ref} is in no cohort, where Kueue's webhook refuses a {wanted.field}: there is nobody "
            "to borrow from or to lend to",
            remedy="put it into a cohort, or change its nominalQuota",
        )
    if worth < 0:
        yield blocks(found.ref, f"{wanted.field} is not below 0", look=_HELP)
    nominal = value(place).quota.nominal_quota
    if wanted.field == LENDING and worth > amount(nominal):
        yield blocks(
            found.ref,
            f"a lendingLimit of {wanted.after} is more than the nominalQuota {nominal}, which Kueue's "
            "webhook refuses",
        )


@guard("it is not being deleted", given(TARGET, Maybe(QUEUE.now), Maybe(JOB.now)))
def is_not_going(target: str, queue: State[LimitedQueue], job: State[LimitedJob]) -> Iterator[Finding]:
    found = value(job) if is_a_job(target) else value(queue)
    if found.metadata.deletion_timestamp is not None:
        yield blocks(found.ref, f"{found.ref} is being deleted")


@guard("the Job is not over", given(TARGET, Maybe(JOB.now)))
def job_is_not_over(target: str, job: State[LimitedJob]) -> Iterator[Finding]:
    if is_a_job(target) and value(job).over:
        found = value(job)
        yield blocks(found.ref, f"{found.ref} is over ({found.over}): a deadline changes nothing")


@guard(
    "the Job has time left under its deadline",
    given(TARGET, Maybe(JOB.now), Maybe(deadline_that_is_wanted), NOW),
    "--although-it-ends-now",
)
def job_has_time(
    target: str, job: State[LimitedJob], deadline: State[int | None], now: datetime
) -> Iterator[Finding]:
    """A deadline counts from the Job's start: one that is over kills at once."""
    if not is_a_job(target):
        return
    found, seconds = value(job), value(deadline)
    left = ends_in(found, seconds, now) if seconds is not None else None
    if left is not None and left.total_seconds() <= 0:
        ran = (now - found.status.start_time).total_seconds() if found.status.start_time else 0
        yield blocks(
            found.ref,
            f"{found.ref} started {ran:.0f} s ago, and a deadline of {seconds} s counts from its start: its "
            f"{found.status.active} active pods are killed at once, and it fails",
            remedy=f"a deadline above {ran:.0f} s leaves it time",
        )


LIMIT_GUARDS: Final = (something_changes, kueue_takes_it, is_not_going, job_is_not_over, job_has_time)
