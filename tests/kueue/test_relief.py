"""The smallest change that helps: it is enough, and one less is not."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from gpuctl.facts.gather import gather
from gpuctl.kueue.causes.cause import Trouble
from gpuctl.kueue.causes.diagnosis import Diagnosed
from gpuctl.kueue.quantities import ONE
from gpuctl.kueue.queue_facts import causes_of_waiting
from gpuctl.kueue.relief import relief
from tests.builders.queues import GPU, World


def world(own: dict[str, object], lender: dict[str, object], used: tuple[int, int], asks: int) -> World:
    made = World()
    made.namespace("team-a")
    made.flavor()
    made.queue("vision", {"h100": {GPU: own}}, cohort="all", used={"h100": {GPU: str(used[0])}})
    made.queue("research", {"h100": {GPU: lender}}, cohort="all", used={"h100": {GPU: str(used[1])}})
    made.local_queue()
    made.workload("late", asks, waits=timedelta(hours=3))
    return made


def diagnosed(made: World) -> Diagnosed:
    facts = gather([causes_of_waiting], made.reader(), {})
    return next(each for _, each in facts[causes_of_waiting].known() if each.line.name == "vision")


def test_the_sentence_of_the_issue() -> None:
    own: dict[str, object] = {"nominalQuota": "2", "borrowingLimit": "0"}
    found = diagnosed(world(own, {"nominalQuota": "4"}, (0, 0), 5))
    (group,) = found.groups
    assert group.cause.trouble is Trouble.NEVER_FITS
    help_ = relief(group.cause, group.line)
    assert help_ is not None
    assert help_.sentence("vision") == (
        "raise nominalQuota of nvidia.com/gpu (flavor h100) in ClusterQueue vision by 3 or raise its "
        "borrowingLimit by 3 (`gpuctl plan queue-limit vision --flavor h100 --resource nvidia.com/gpu "
        "--borrowing-limit 3`); 4 are free in ClusterQueue research (estimate)"
    )


@pytest.mark.parametrize("part", ["raise", "borrow"])
@settings(max_examples=60, suppress_health_check=[HealthCheck.filter_too_much], deadline=None)
@given(
    st.integers(0, 6),
    st.none() | st.integers(0, 4),
    st.integers(0, 8),
    st.integers(0, 6),
    st.integers(0, 8),
    st.integers(1, 20),
)
def test_it_is_enough_and_one_less_is_not(
    part: str, nominal: int, borrowing: int | None, lent: int, used: int, busy: int, asks: int
) -> None:
    own: dict[str, object] = {"nominalQuota": str(nominal)}
    if borrowing is not None:
        own["borrowingLimit"] = str(borrowing)
    lender: dict[str, object] = {"nominalQuota": str(lent)}
    (group,) = diagnosed(world(own, lender, (used, busy), asks)).groups or (None,)
    assume(group is not None)
    assert group is not None
    help_ = relief(group.cause, group.line)
    assume(help_ is not None)
    assert help_ is not None
    by = help_.raise_by if part == "raise" else help_.borrow_by
    assume(by is not None)
    assert by is not None
    for change, enough in ((by, True), (by - ONE, False)):
        key = "nominalQuota" if part == "raise" else "borrowingLimit"
        changed = {**own, key: str(int(str(own.get(key, 0))) + change // ONE)}
        after = diagnosed(world(changed, lender, (used, busy), asks))
        (then,) = after.groups or (None,)
        fits = then is None or then.cause.trouble in {Trouble.NOT_LOOKED_AT, Trouble.UNCLASSIFIED}
        never = group.cause.trouble in {Trouble.NEVER_FITS, Trouble.PEERS}
        helped = fits or (never and then is not None and then.cause.trouble is not Trouble.NEVER_FITS)
        assert helped is enough, (own, changed, group.cause, then and then.cause)
