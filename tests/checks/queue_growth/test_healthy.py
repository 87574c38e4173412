"""A busy cluster in which nothing is wrong: the check is silent, in either version of the API."""

from __future__ import annotations

import pytest

from gpuctl.audit.judge import Verdict
from tests.builders.queues import NEW, OLD, World, ago, condition, healthy, stamp
from tests.checks.judging import judged_queues as judged


@pytest.mark.parametrize("version", [OLD, NEW])
def test_silent(version: str) -> None:
    found = judged(healthy(version))
    assert found.findings == ()
    assert {
        each.assertion.id: each.reason for each in found.judgements if each.verdict is Verdict.UNKNOWN
    } == {}


def canary(world: World, **age: float) -> None:
    """The queue of a drill, whose flavor is missing, with a Workload that waits."""
    labels = {"gpuctl.dev/run": "r1", "gpuctl.dev/runbook": "flavor-drill"}
    made = world.queue("gpuctl-drill-r1", quota={"gone": {"gpuctl.dev/drill-unit": "3"}})
    made["metadata"] |= {"labels": labels, "creationTimestamp": stamp(ago(**age))}
    missing = "references missing ResourceFlavor(s): gone."
    made["status"]["conditions"] = [condition("Active", "False", "FlavorNotFound", missing)]


def test_a_drill_under_way_alarms_nobody() -> None:
    world = healthy()
    canary(world, minutes=50)
    assert judged(world).findings == ()


def test_what_a_drill_left_behind_is_found_like_any_other() -> None:
    world = healthy()
    canary(world, minutes=61)
    assert judged(world).codes != []
