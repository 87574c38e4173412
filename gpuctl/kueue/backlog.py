"""The backlog of a queue over the past hours, rebuilt from the times in the Workloads that still exist.

What was deleted is missing: the past then looks emptier than it was. So the line's past is a lower bound, its
end is exact, and a rise that is seen only here proves nothing. Waits are exact for what still
exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuctl.kueue.objects import Workload
from gpuctl.kueue.standing import (
    Standing,
    age,
    condition,
    created,
    finished_at,
    reserved_at,
    standing,
    waiting_since,
)

STEPS = 24


@dataclass(frozen=True, slots=True)
class Step:
    """A part of the time looked at: who came, who was admitted, and how many waited at its end."""

    ends: datetime
    arrived: int
    admitted: int
    waiting: int


@dataclass(frozen=True, slots=True)
class Backlog:
    """The line of a queue."""

    steps: tuple[Step, ...]
    oldest: timedelta
    last_admission: datetime | None
    waiting: int
    in_future: int  # Workloads whose times lie ahead of the clock

    @property
    def line(self) -> tuple[int, ...]:
        """How many waited, step by step."""
        return tuple(each.waiting for each in self.steps)

    @property
    def arrived(self) -> int:
        """How many came in the time looked at and still exist."""
        return sum(each.arrived for each in self.steps)

    @property
    def admitted(self) -> int:
        """How many got quota in the time looked at and still exist."""
        return sum(each.admitted for each in self.steps)


@dataclass(frozen=True, slots=True)
class _Stay:
    """The time in which a Workload waited; `end` is None while it does."""

    start: datetime
    end: datetime | None


def backlog(workloads: Sequence[Workload], now: datetime, hours: float = 6) -> Backlog:
    """Rebuilds the line of the Workloads of one queue."""
    stays = [stay for each in workloads if (stay := _stay(each))]
    admissions = [at for each in workloads if (at := reserved_at(each)) and at <= now]
    waits = [stay.start for stay in stays if stay.end is None]
    return Backlog(
        steps=tuple(_steps(stays, admissions, now, timedelta(hours=hours))),
        oldest=age(min(waits), now) if waits else timedelta(0),
        last_admission=max(admissions, default=None),
        waiting=sum(1 for each in workloads if standing(each) is Standing.WAITING),
        in_future=sum(1 for each in workloads if _ahead(each, now)),
    )


def _ahead(workload: Workload, now: datetime) -> bool:
    made = created(workload)
    return made is not None and made - now > timedelta(minutes=1)


def _stay(workload: Workload) -> _Stay | None:
    """Its last wait: earlier ones, before an eviction, are not written anywhere."""
    start = waiting_since(workload)
    if start is None:
        return None
    reserved = reserved_at(workload)
    if reserved is not None:
        return _Stay(min(start, reserved), reserved)
    if standing(workload) is Standing.WAITING:
        return _Stay(start, None)
    ended = finished_at(workload) or _left(workload)
    return _Stay(start, ended) if ended else None


def _left(workload: Workload) -> datetime | None:
    """When a Workload that does not wait any more was put aside."""
    found = condition(workload, "QuotaReserved")
    return found.last_transition_time if found else created(workload)


def _steps(
    stays: Sequence[_Stay], admissions: Sequence[datetime], now: datetime, over: timedelta
) -> Iterator[Step]:
    length = over / STEPS
    ends = [now - length * (STEPS - 1 - number) for number in range(STEPS)]
    arrived = _counted((stay.start for stay in stays), ends, length)
    admitted = _counted(admissions, ends, length)
    waiting = sum(1 for stay in stays if stay.end is None or stay.end > now)
    lines: list[int] = []
    left = _counted((stay.end for stay in stays if stay.end), ends, length)
    for came, went in zip(reversed(arrived), reversed(left), strict=True):
        lines.append(waiting)
        waiting += went - came
    for number, waited in enumerate(reversed(lines)):
        yield Step(ends[number], arrived[number], admitted[number], max(0, waited))


def _counted(times: Iterable[datetime], ends: Sequence[datetime], length: timedelta) -> list[int]:
    """How many of the times fall into each step. What lies in the future has arrived in the last one."""
    counts = [0] * len(ends)
    start = ends[0] - length
    for time in times:
        number = int((time - start) / length) if time > start else -1
        if number >= 0:
            counts[min(number, len(ends) - 1)] += 1
    return counts
