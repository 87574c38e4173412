"""The line of a queue, rebuilt from the times of the Workloads that are left; and growth over time."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuctl.facts.metrics import increase
from gpuctl.kueue.backlog import STEPS, backlog
from gpuctl.kueue.growth import growth, long_growth
from gpuctl.kueue.objects import Workload
from gpuctl.kueue.standing import Standing, span, standing
from tests.builders.queues import World, ago, condition, stamp
from tests.memory import A_MOMENT


def read(*items: dict[str, Any]) -> list[Workload]:
    return [msgspec.convert(item, Workload) for item in items]


def workload(created: datetime, *conditions: dict[str, Any], **spec: Any) -> dict[str, Any]:
    item = World().workload("w", **spec)
    item["metadata"]["creationTimestamp"] = stamp(created)
    item["status"] = {"conditions": list(conditions)}
    return item


def reserved(at: datetime) -> dict[str, Any]:
    return condition("QuotaReserved", "True", "QuotaReserved", at=at)


def test_a_line_rises_and_falls() -> None:
    found = backlog(
        read(
            workload(ago(hours=5), reserved(ago(hours=1))),
            workload(ago(hours=3), reserved(ago(minutes=30))),
            workload(ago(hours=2)),
        ),
        A_MOMENT,
    )
    assert max(found.line) == 3
    assert found.line[-1] == found.waiting == 1
    assert found.oldest == timedelta(hours=2)
    assert found.last_admission == ago(minutes=30)
    assert (found.arrived, found.admitted) == (3, 2)


def test_an_evicted_one_waits_anew() -> None:
    item = workload(
        ago(hours=9),
        condition("QuotaReserved", "False", "Pending", at=ago(minutes=10)),
        condition("Evicted", "True", "Preempted", at=ago(minutes=10)),
    )
    assert backlog(read(item), A_MOMENT).oldest == timedelta(minutes=10)


def test_times_in_the_future_count_as_now() -> None:
    found = backlog(read(workload(A_MOMENT + timedelta(hours=2))), A_MOMENT)
    assert (found.oldest, found.in_future, found.waiting) == (timedelta(0), 1, 1)
    assert found.line[-1] == 1


def test_without_workloads_nobody_waits() -> None:
    found = backlog([], A_MOMENT)
    assert found.line == (0,) * STEPS
    assert found.last_admission is None


@pytest.mark.parametrize(
    ("conditions", "spec", "expected"),
    [
        ([], {}, Standing.WAITING),
        ([condition("QuotaReserved", "False", "Pending")], {}, Standing.WAITING),
        ([condition("QuotaReserved", "False", "OnHold")], {}, Standing.ON_HOLD),
        ([condition("QuotaReserved", "False", "AdmissionGated")], {}, Standing.GATED),
        ([], {"active": False}, Standing.DEACTIVATED),
        ([reserved(A_MOMENT)], {}, Standing.RESERVED),
        ([reserved(A_MOMENT), condition("Admitted", "True", "Admitted")], {}, Standing.ADMITTED),
        ([reserved(A_MOMENT), condition("Evicted", "True", "Preempted")], {}, Standing.EVICTED),
        ([reserved(A_MOMENT), condition("Finished", "True", "Succeeded")], {}, Standing.FINISHED),
    ],
)
def test_where_a_workload_stands(
    conditions: list[dict[str, Any]], spec: dict[str, Any], expected: Standing
) -> None:
    assert standing(read(workload(ago(hours=1), *conditions, **spec))[0]) is expected


MINUTES = st.integers(-60, 900)


@given(st.lists(st.tuples(MINUTES, st.none() | MINUTES), max_size=30))
def test_the_end_of_the_line_is_exact(times: list[tuple[int, int | None]]) -> None:
    items = [
        workload(ago(minutes=came), *([] if left is None else [reserved(ago(minutes=min(came, left)))]))
        for came, left in times
    ]
    found = backlog(read(*items), A_MOMENT)
    assert found.waiting == sum(left is None for _, left in times)
    assert all(each >= 0 for each in found.line)
    assert len(found.line) == STEPS


def counts(*values: float) -> list[tuple[datetime, float]]:
    return [(A_MOMENT + timedelta(seconds=10 * number), value) for number, value in enumerate(values)]


@pytest.mark.parametrize(
    ("values", "grows"),
    [
        ((1, 2, 3, 4, 5, 6, 7), True),
        ((0, 1, 1, 2, 2, 3, 4), True),
        ((5, 5, 5, 5, 5, 5, 5), False),
        ((0, 100, 100, 100, 100, 100, 100), False),  # one burst of an array job
        ((0, 100, 90, 80, 70, 60, 50), False),  # and it drains
        ((5, 6, 7, 6, 7, 8, 9), False),  # it fell once
        ((1, 2), False),
        ((), False),
    ],
)
def test_growth_while_watched(values: tuple[float, ...], grows: bool) -> None:
    assert (growth(counts(*values)) is not None) is grows


@pytest.mark.parametrize(
    ("values", "admitted", "grows"),
    [
        (tuple(range(60)), 3, True),
        (tuple(range(60)), 100, False),  # more were admitted than the line grew
        (tuple(range(60, 0, -1)), 0, False),
        ((0.0,) * 20 + (100.0,) * 40, 0, False),  # one burst that stands is told by its wait
        (tuple(range(50)) + (10.0,) * 10, 0, False),  # it drained
        ((1.0, 2.0, 3.0), 0, False),
    ],
)
def test_growth_over_hours(values: tuple[float, ...], admitted: float, grows: bool) -> None:
    assert (long_growth(counts(*values), admitted) is not None) is grows


def test_a_counter_survives_a_restart() -> None:
    assert increase(tuple(counts(5, 8, 2, 4))) == 3 + 2 + 2
    assert increase(()) == 0


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (timedelta(seconds=45), "45s"),
        (timedelta(minutes=2, seconds=5), "2m"),
        (timedelta(hours=3, minutes=2), "3h2m"),
        (timedelta(hours=3), "3h"),
        (timedelta(days=3, hours=4), "3d4h"),
        (timedelta(0), "0s"),
    ],
)
def test_spans(time: timedelta, text: str) -> None:
    assert span(time) == text
