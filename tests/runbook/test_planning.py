"""Making plans: all that speaks against it at once, nothing written, and applied only while it fits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from gpuctl.audit.finding import Finding
from gpuctl.audit.policy import MaintenanceWindow, Policy, RunbooksPolicy
from gpuctl.facts.fact import given
from gpuctl.facts.state import NotKnown, Reason, Unknown
from gpuctl.nvidia.objects import NodeView
from gpuctl.runbook.conduct import begin
from gpuctl.runbook.guard import blocks, guard, notes
from gpuctl.runbook.lock import Locks
from gpuctl.runbook.mig.reconfigure import RUNBOOK as MIG
from gpuctl.runbook.plan import TargetPlan
from gpuctl.runbook.planning import valid_until
from gpuctl.runbook.records import Bounds, Outcome
from gpuctl.runbook.target import NODE, OPTIONS
from tests.memory import A_MOMENT
from tests.runbook.little import LITTLE, VALUE, World, a_pod, an_order


@pytest.fixture(autouse=True)
def no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Locks, "_keep_alive", lambda _: None)


@guard("the moon is full", given(NODE), "--force")
def moon_is_full(node: NodeView) -> Iterator[Finding]:
    if "sickle" in node.metadata.labels:
        yield blocks(node.ref, "the moon is a sickle", remedy="wait")
    yield notes(node.ref, "the moon is up")


@guard("nobody sleeps", given(NODE))
def nobody_sleeps(node: NodeView) -> Iterator[Finding]:
    if "asleep" in node.metadata.labels:
        yield blocks(node.ref, "somebody sleeps")


BOOK = replace(LITTLE, guards=(*LITTLE.guards, moon_is_full, nobody_sleeps))


def world(**labels: str) -> World:
    made = World(book=BOOK)
    made.node()["metadata"]["labels"] |= labels
    return made


def messages(plan: TargetPlan) -> list[str]:
    return [each.message for each in plan.blockers]


def test_a_plan_says_everything_and_writes_nothing() -> None:
    it = world()
    plan = it.plan()
    assert not it.writer.calls
    assert plan.blockers == ()
    assert plan.notes == ("the moon is up",)
    assert plan.target_uid == "uid-of-gpu-1"
    assert plan.preconditions == {"value": "old"}
    assert plan.bounds == Bounds(evictions=2, namespaces=("team-a",), owner_kinds=("ReplicaSet",))
    assert plan.effects == ("gpu-1: old -> new",)
    assert [each.says for each in plan.steps] == [
        "put little.example/closed",
        "put little.example/quiet",
        "evict the pods of gpu-1",
        "change the value of gpu-1 to new",
    ]
    assert [each.held for each in plan.steps] == [True, True, False, False]
    assert plan.steps[3].step == {
        "step": "Turn",
        "node": "gpu-1",
        "uid": "uid-of-gpu-1",
        "old": "old",
        "new": "new",
    }


def test_all_blockers_are_shown_at_once_and_only_those_of_a_chosen_flag_are_overridden() -> None:
    it = world(sickle="", asleep="")
    assert messages(it.plan()) == ["the moon is a sickle", "somebody sleeps"]
    forced = it.plan(force=True)
    assert messages(forced) == ["somebody sleeps"]
    assert [each.message for each in forced.overridden] == ["the moon is a sickle"]
    assert messages(it.plan(force="yes", moon=True)) == ["the moon is a sickle", "somebody sleeps"]
    assert messages(world(sickle="").plan(force=True)) == []


def test_what_cant_be_read_blocks_and_nothing_is_planned() -> None:
    it = world()
    it.blind = lambda _: True
    plan = it.plan()
    assert plan.steps == ()
    assert plan.target_uid == ""
    assert all("timeout: no answer in time" in each for each in messages(plan))
    assert "plan" in {each.guard for each in plan.blockers}


def test_a_name_that_is_misspelt_blocks() -> None:
    plan = world().plan("gpu-l")
    assert any("there is no such node" in each for each in messages(plan))
    assert all(each.override in ("", "--force") for each in plan.blockers)
    forced = world().plan("gpu-l", force=True)
    assert messages(forced)


@given(OPTIONS)
def broken(options: Mapping[str, Any]) -> Bounds:
    raise NotKnown(Unknown(Reason.FORBIDDEN, "pods is forbidden", "pods"))


def test_a_part_that_cant_be_computed_blocks_without_override() -> None:
    it = World(book=replace(LITTLE, bounds=broken))
    (blocker,) = it.plan(force=True).blockers
    assert blocker.message == "it can't be told whom it concerns: pods: forbidden: pods is forbidden"
    assert blocker.override == ""


def test_a_bug_in_a_guard_or_a_step_blocks() -> None:
    @given(NODE)
    def steps(node: NodeView) -> tuple[Any, ...]:
        raise ZeroDivisionError

    it = World(book=replace(LITTLE, steps=steps))
    (blocker,) = it.plan().blockers
    assert "internal-error" in blocker.message
    ending = begin(it.task(), an_order(), world().plan(), it.crew(), "r1")
    assert ending.outcome is Outcome.REFUSED
    assert not it.leases


# Applied while it fits


def applied(it: World, planned: TargetPlan, **options: Any) -> Any:
    return begin(it.task(**options), an_order(), planned, it.crew(), "r1")


def refused(it: World, planned: TargetPlan, **options: Any) -> str:
    ending = applied(it, planned, **options)
    assert (ending.outcome, ending.left) == (Outcome.REFUSED, False)
    assert not it.leases
    assert not it.journals
    assert not it.left
    assert set(it.marks()) == {VALUE}
    return str(ending.why)


def test_what_changed_since_is_refused_with_the_difference() -> None:
    it = world()
    planned = it.plan()
    it.node()["metadata"]["annotations"][VALUE] = "other"
    assert refused(it, planned) == "value was old, now is other"


def test_more_pods_than_the_plan_allows_are_refused_and_fewer_are_not() -> None:
    it = world()
    planned = it.plan()
    it.items.append(a_pod("one-more"))
    assert refused(it, planned) == "3 pods would be evicted, the plan allows 2"
    it = world()
    planned = it.plan()
    it.items.remove(it.of("Pod")[0])
    assert applied(it, planned).outcome is Outcome.SUCCEEDED
    assert it.run().bounds == planned.bounds


def test_another_node_of_the_same_name_is_refused() -> None:
    it = world()
    planned = it.plan()
    it.node()["metadata"]["uid"] = "another"
    assert "another object of the same name" in refused(it, planned)


def test_a_guard_is_asked_again_and_all_that_speaks_against_it_is_told() -> None:
    it = world()
    planned = it.plan()
    it.node()["metadata"]["labels"] |= {"sickle": "", "asleep": ""}
    assert refused(it, planned) == "the moon is a sickle; somebody sleeps"
    assert refused(it, planned, force=True) == "somebody sleeps"


def test_a_run_that_is_interrupted_before_it_begins_leaves_nothing() -> None:
    it = world()
    crew = it.crew()
    crew.stop.set()
    ending = begin(it.task(), an_order(), it.plan(), crew, "r1")
    assert (ending.outcome, ending.left) == (Outcome.CANCELLED, False)
    assert not it.leases
    assert not it.journals


# For how long


def test_a_plan_is_good_for_as_long_as_asked_and_not_beyond_a_window() -> None:
    night = MaintenanceWindow(opens="09:00", closes="10:30")
    free, bound = Policy(), Policy(runbooks=RunbooksPolicy(windows=(night,), valid_minutes=120))
    assert valid_until(free, A_MOMENT, None) == A_MOMENT + timedelta(hours=1)
    assert valid_until(free, A_MOMENT, 60) == A_MOMENT + timedelta(minutes=1)
    assert valid_until(bound, A_MOMENT, None) == A_MOMENT + timedelta(minutes=30)
    assert valid_until(bound, A_MOMENT, 60) == A_MOMENT + timedelta(minutes=1)
    assert valid_until(bound, A_MOMENT + timedelta(hours=1), None) == A_MOMENT + timedelta(hours=3)


# Undone by a new plan


def test_a_risk_that_was_taken_is_not_taken_again_by_a_plan_that_takes_it_back() -> None:
    book = replace(LITTLE, guards=(*LITTLE.guards, moon_is_full))
    taken = {"to": "old", "force": True, "skip": ["a"]}
    assert book.without_risks(taken) == {"to": "old", "skip": ["a"]}
    assert book.without_risks({**taken, "force": False}) == {**taken, "force": False}
    assert replace(LITTLE, guards=()).without_risks(taken) == taken  # it overrides nothing
    options = {"config": "all-1g.10gb", "max_evictions": 99, "scope": "all"}
    risks = {"disable_eviction": True, "outside_window": True, "force": True, "last_node": True}
    assert MIG.without_risks({**options, **risks}) == options
