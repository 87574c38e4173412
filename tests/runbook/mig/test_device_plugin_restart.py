"""device-plugin-restart: when it is of use, what it refuses, who notices, and what counts as done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gpuctl.nvidia.node import STATE
from gpuctl.runbook.mig.device_plugin_restart import RUNBOOK
from gpuctl.runbook.mig.operand_pods import RestartOperand
from gpuctl.runbook.records import Outcome
from tests.builders.gpus import pod
from tests.runbook.booked import (
    MANAGER,
    PAUSED,
    PLUGIN,
    PLUGIN_LABEL,
    BookScene,
    World,
    against,
    booked,
    disturbed_everywhere,
    messages,
    refuses,
    resumed_everywhere,
    undone_everywhere,
)
from tests.runbook.mig.breakages import OF_A_NODE, Break, Refusal, blind, name_of, of_any_operand
from tests.runbook.mig.mig_scenes import NAME, RUN, UID, holder, job, stamp, writer

pytestmark = pytest.mark.usefixtures("no_thread")

SLICE, HALF = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"


def stale(**options: Any) -> BookScene:
    """Sliced anew behind the plugin's back."""
    scene = booked(RUNBOOK, **options)
    scene.sliced(("3g.40gb",) * 2)
    return scene


def unhealthy() -> BookScene:
    """One slice is held for unhealthy since an XID error."""
    scene = booked(RUNBOOK)
    scene.node()["status"]["allocatable"][SLICE] = "6"
    return scene


# When it is of use


@pytest.mark.parametrize("scene", [stale, unhealthy])
def test_a_node_that_offers_something_else_is_helped(scene: Callable[[], BookScene]) -> None:
    plan = scene().plan
    assert plan.blockers == ()
    assert [each.step["step"] for each in plan.steps] == ["Cordon", "RestartOperand", "OfferHardware"]


def test_a_node_that_offers_what_it_has_needs_none() -> None:
    assert against(booked(RUNBOOK), "nothing to do")
    assert messages(booked(RUNBOOK, although_sound=True)) == []


def test_a_plugin_that_is_not_ready_is_of_use_to_restart() -> None:
    scene = booked(RUNBOOK)
    found = scene.pod_of(PLUGIN)
    assert found is not None
    found["status"]["containerStatuses"][0]["ready"] = False
    assert messages(scene) == []


def test_what_may_come_right_by_itself_is_said() -> None:
    scene = stale()
    scene.node()["metadata"]["managedFields"].append(writer(MANAGER, -60, STATE))
    assert any("may come right by itself" in note for note in scene.plan.notes)
    assert not any("may come right" in note for note in stale().plan.notes)


# What it refuses


def under_way(scene: BookScene) -> None:
    scene.labelled({STATE: "pending"}, MANAGER, -30)


def paused(scene: BookScene) -> None:
    scene.labelled({PLUGIN_LABEL: PAUSED}, MANAGER, -30)


def one_is_gone(scene: BookScene) -> None:
    scene.labelled({"nvidia.com/gpu.count": "2"})


REFUSED: list[Refusal] = [
    *OF_A_NODE,
    *of_any_operand(PLUGIN, "device-plugin"),
    (under_way, "no-change-under-way", "is at work on"),
    (paused, "no-change-under-way", "are paused and nothing is under way"),
    (one_is_gone, "gpus-are-all-there", "nvidia-smi shows 1 of 2 GPUs"),
    (blind, "gpus-are-sound", "cannot be told whether"),
    (lambda scene: scene.caught_up(), "needs-a-restart", "nothing to do"),
]


@pytest.mark.parametrize(("breaks", "guard", "words"), REFUSED, ids=name_of)
def test_it_refuses(breaks: Break, guard: str, words: str) -> None:
    refuses(stale, breaks, guard, words)


# Who notices


def test_the_plan_says_what_changes_and_who_notices() -> None:
    scene = stale()
    waits = pod("train-1", "", asks={HALF: 1})
    scene.node()["status"]["capacity"][HALF] = "0"
    scene.add(holder(), job(), waits)
    effects = scene.plan.effects
    assert f"{HALF}: 0 -> 2" in effects
    assert f"{SLICE}: 7 -> 0" in effects
    text = " / ".join(effects)
    assert "1 pod (team-a/train-0) hold GPUs of the node; running pods keep their devices" in text
    assert "waiting meanwhile for what the node offers: 1 pod (team-a/train-1)" in text
    assert "a restart has no undo" in effects


def test_pods_of_which_the_node_offers_nothing_any_more_are_named() -> None:
    scene = unhealthy()
    scene.add(pod("old-0", NAME, asks={HALF: 1}))
    assert any("would not start here again" in each and "old-0" in each for each in scene.plan.effects)
    assert not any("would not start here" in each for each in unhealthy().plan.effects)


# The step


def restart() -> RestartOperand:
    return RestartOperand(
        node=NAME,
        node_uid=UID,
        operand="device-plugin",
        namespace="gpu-operator",
        pod=f"{PLUGIN}-{NAME}",
        pod_uid=f"uid-{PLUGIN}-{NAME}",
    )


def test_a_pod_that_is_ending_is_not_deleted_again() -> None:
    scene = replace(stale(), run=RUN)
    found = scene.pod_of(PLUGIN)
    assert found is not None
    found["metadata"]["deletionTimestamp"] = stamp(0)
    made = scene.writer
    step = restart()
    step.act(scene.look(step.needs), made)
    assert made.calls == []
    assert "is ending" in step.progress(scene.look(step.needs))
    assert not step.holds(scene.look(step.needs))


def test_only_another_pod_that_is_ready_counts() -> None:
    scene = replace(stale(), run=RUN)
    found = scene.pod_of(PLUGIN)
    assert found is not None
    step = restart()
    assert not step.holds(scene.look(step.needs))
    found["metadata"]["uid"] = "younger"
    assert step.holds(scene.look(step.needs))
    found["status"]["containerStatuses"][0]["ready"] = False
    assert not step.holds(scene.look(step.needs))


def test_a_pod_of_another_uid_is_never_deleted() -> None:
    scene = replace(stale(), run=RUN)
    found = scene.pod_of(PLUGIN)
    assert found is not None
    found["metadata"]["uid"] = "younger"
    made = scene.writer
    step = restart()
    step.act(scene.look(step.needs), made)
    assert made.calls == []


# Whole runs


def cured(world: World) -> None:
    amounts = world.scene.node()["status"]
    assert amounts["capacity"].get(HALF) == amounts["allocatable"].get(HALF) == "2"
    assert world.gone == [f"{PLUGIN}-{NAME}"]
    assert not world.cordoned
    assert not world.marks
    assert not world.locks


def given_up(world: World) -> None:
    assert not world.cordoned
    assert not world.marks
    assert set(world.gone) <= {f"{PLUGIN}-{NAME}"}


def test_killed_anywhere_it_is_resumed_or_taken_back() -> None:
    resumed_everywhere(lambda: World(stale()), cured)
    undone_everywhere(lambda: World(stale()), given_up, cured)


def test_a_write_that_fails_anywhere_is_made_again() -> None:
    disturbed_everywhere(lambda: World(stale()), cured)


def test_a_pod_that_does_not_come_back_leaves_the_node_cordoned() -> None:
    world = World(stale(), dead=True)
    ending = world.begin_with(limit=4.0)
    assert (ending.outcome, ending.left) == (Outcome.TIMED_OUT, True)
    assert "made no other pod yet" in ending.why
    assert world.cordoned
    assert world.go_on(back=True).outcome is Outcome.REVERTED
    given_up(world)
