"""Who would notice a limit: who waits, who may be evicted, what ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from gpuctl.facts.fact import NOW, Maybe, given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Each, Known, State, attempt, value
from gpuctl.kueue.objects import ClusterQueue, ClusterQueueStatus, ResourceUse, Workload
from gpuctl.kueue.quantities import Amount, amount, shown
from gpuctl.kueue.queue_facts import LINES, QUEUES
from gpuctl.kueue.scene import Line
from gpuctl.runbook.kueue.limits import (
    BORROWING,
    JOB,
    QUEUE,
    Limit,
    LimitedJob,
    LimitedQueue,
    Place,
    deadline_that_is_wanted,
    ends_in,
    limit_that_is_wanted,
    place_of_the_limit,
    told,
)

SHOWN: Final = 5


@given(QUEUE.now, place_of_the_limit, limit_that_is_wanted, Maybe(LINES), Maybe(QUEUES))
def who_notices_a_limit(
    queue: LimitedQueue,
    place: Place,
    limit: Limit,
    lines: State[Each[Ref, Line]],
    queues: State[Each[Ref, ClusterQueue]],
) -> tuple[str, ...]:
    head = (
        f"{limit.field} of {limit.resource} in flavor {limit.flavor}: {told(place.limit(limit.field))} -> "
        f"{told(limit.after)}"
    )
    nominal = amount(place.quota.nominal_quota)
    effects = (
        _of_borrowing(queue, limit, nominal, lines)
        if limit.field == BORROWING
        else _of_lending(queue, limit, nominal, queues)
    )
    return (head, *effects)


def _of_borrowing(
    queue: LimitedQueue, limit: Limit, nominal: Amount, lines: State[Each[Ref, Line]]
) -> Iterator[str]:
    used = in_use(queue.status, limit)
    words = _Words(limit.resource)
    if limit.worth is None:
        yield f"it may borrow as much as its cohort {queue.cohort} has left; {words(used)} are in use now"
        yield "what is borrowed can be taken back by preemption, where its owners may"
        return
    most = nominal + limit.worth
    yield f"at most {words(most)} in all: nominalQuota {words(nominal)}, and {words(limit.worth)} borrowed"
    if used > most:
        yield (
            f"{words(used)} are in use: nothing is evicted, and nothing more is admitted on {limit.flavor} "
            f"until {words(used - most)} are given back"
        )
    else:
        yield f"{words(used)} are in use: nothing is evicted"
    yield from _waiting(queue, limit, most, lines)


def _waiting(queue: LimitedQueue, limit: Limit, most: Amount, lines: State[Each[Ref, Line]]) -> Iterator[str]:
    """Who asks for more than there will ever be."""
    line = attempt(lambda: value(lines)[Ref(ClusterQueue.of, queue.metadata.name)])
    if not isinstance(line, Known):
        yield f"who waits can't be told: {line}"
        return
    whole = attempt(line.value.must_be_whole)
    yield f"{len(line.value.waiting)} Workloads wait" + (
        "" if isinstance(whole, Known) else f", or more: {whole}"
    )
    asks = [(each, _asks(line.value, each, limit.resource)) for each in line.value.waiting]
    large = [each for each, asked in asks if isinstance(asked, Known) and asked.value > most]
    if large:
        yield f"on {limit.flavor} these would wait for ever, for they ask for more: {_names(large)}"
    untold = [each for each, asked in asks if not isinstance(asked, Known)]
    if untold:
        yield f"what these ask for can't be told, so whether they would wait for ever: {_names(untold)}"


def _asks(line: Line, workload: Workload, resource: str) -> State[Amount]:
    return attempt(lambda: sum(each.amounts.get(resource, 0) for each in line.asks(workload)))


def _names(workloads: Sequence[Workload]) -> str:
    names = [f"{each.metadata.namespace}/{each.metadata.name}" for each in workloads]
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{', '.join(names[:SHOWN])}{more}"


def _of_lending(
    queue: LimitedQueue, limit: Limit, nominal: Amount, queues: State[Each[Ref, ClusterQueue]]
) -> Iterator[str]:
    words = _Words(limit.resource)
    worth = limit.worth
    lent = f"all of its {words(nominal)}" if worth is None else f"{words(worth)} of its {words(nominal)}"
    yield f"the others of cohort {queue.cohort} may use {lent} while it does not; the rest stays idle for it"
    if not isinstance(queues, Known):
        yield f"who borrows now can't be told: {queues}"
        return
    borrowers = {
        each.metadata.name: borrowed
        for _, each in queues.value.known()
        if each.cohort == queue.cohort and each.metadata.name != queue.metadata.name
        for borrowed in (_borrowed(each.status, limit),)
        if borrowed > 0
    }
    who = ", ".join(f"{name} {words(much)}" for name, much in borrowers.items())
    yield f"of {limit.resource} in {limit.flavor} now borrow: {who or 'nobody'}"
    policy = queue.spec.preemption.reclaim_within_cohort
    if borrowers and policy != "Never":
        yield (
            "the change itself evicts nobody; what they borrow beyond it is taken back by preemption as soon "
            f"as Workloads of {queue.metadata.name} need it (reclaimWithinCohort {policy})"
        )
    elif borrowers:
        yield "nobody is evicted; the borrowers get nothing new until they are within what is lent"


def in_use(status: ClusterQueueStatus, limit: Limit) -> Amount:
    """How much of the resource the queue has reserved in the flavor."""
    return sum(amount(each.total) for each in _reserved(status, limit))


def _borrowed(status: ClusterQueueStatus, limit: Limit) -> Amount:
    return sum(amount(each.borrowed) for each in _reserved(status, limit))


def _reserved(status: ClusterQueueStatus, limit: Limit) -> Iterator[ResourceUse]:
    for flavor in status.flavors_reservation:
        if flavor.name == limit.flavor:
            yield from (each for each in flavor.resources if each.name == limit.resource)


class _Words:
    def __init__(self, resource: str) -> None:
        self._resource = resource

    def __call__(self, worth: Amount) -> str:
        return shown(worth, self._resource)


@given(JOB.now, deadline_that_is_wanted, NOW)
def who_notices_a_deadline(job: LimitedJob, deadline: int | None, now: datetime) -> tuple[str, ...]:
    head = f"activeDeadlineSeconds: {told(job.spec.active_deadline_seconds)} -> {told(deadline)}"
    if deadline is None:
        return head, "the Job may take as long as it takes"
    left = ends_in(job, deadline, now)
    ends = "then its pods are killed and it fails with DeadlineExceeded, whatever its backoffLimit allows"
    if left is None:
        return head, f"it does not run now: once it starts, it ends {deadline} s later; {ends}"
    start = job.status.start_time
    assert start is not None  # noqa: S101 - else nothing would be left of it
    since = f"it started {(now - start).total_seconds():.0f} s ago ({start:%Y-%m-%d %H:%M:%S} UTC)"
    if left.total_seconds() <= 0:
        return head, f"{since}, and the deadline counts from there: it ends AT ONCE", _killed(job)
    until = f"{start + (left + (now - start)):%Y-%m-%d %H:%M:%S} UTC"
    return head, f"{since}: it ends in {left.total_seconds():.0f} s, at {until}; {ends}", _killed(job)


def _killed(job: LimitedJob) -> str:
    return f"active pods that would be killed: {job.status.active}; what they have not stored is lost"
