"""Whole drains in memory, of a node that NVSentinel watches and of one that it does not: killed, resumed, and
taken back."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from gpuctl.audit.policy import Policy
from gpuctl.runbook.drain.cordon import (
    CORDONED_BY,
    DRAINED_BY,
    SENTINEL_KEPT_OFF_BY,
    SENTINEL_LABEL,
    SENTINEL_LEFT_OFF_BY,
)
from gpuctl.runbook.drain.runbook import RUNBOOK
from gpuctl.runbook.records import Outcome, Standing
from tests.runbook.booked import BookScene, booked
from tests.runbook.little import Killed
from tests.runbook.mig.mig_scenes import holder, job
from tests.runbook.mig.node_world import ID, NodeWorld, dies

pytestmark = pytest.mark.usefixtures("no_thread")

WRITES = 29


def watched(value: str = "true") -> BookScene:
    """A node with a pod to go; with a value, NVSentinel's label has it."""
    found = booked(RUNBOOK)
    found.policy = Policy()
    found.add(holder(), job())
    if value:
        found.labelled({SENTINEL_LABEL: value})
    return found


@dataclass
class World(NodeWorld):
    scene: BookScene = field(default_factory=watched)

    def goes_on(self) -> None:
        """Nobody else does anything."""

    @property
    def sentinel(self) -> str | None:
        value: str | None = self.scene.node()["metadata"]["labels"].get(SENTINEL_LABEL)
        return value


def steps(found: BookScene) -> list[str]:
    return [each.step["step"] for each in found.plan.steps]


def test_nvsentinel_is_told_first_and_left_off_last() -> None:
    found = watched()
    assert steps(found) == [
        "KeepSentinelOff",
        "Cordon",
        "Drain",
        "SeeWhatIsLeft",
        "StayCordoned",
        "LeaveSentinelOff",
    ]
    assert found.plan.steps[0].says == "tell NVSentinel to leave node gpu-1 alone"
    assert found.plan.effects[-1].endswith(
        "kubectl label node gpu-1 k8saas.nvidia.com/ManagedByNVSentinel=true --overwrite"
    )


@pytest.mark.parametrize("value", ["", "false"])
def test_where_it_is_not_at_work_or_kept_off_by_others_nothing_is_said(value: str) -> None:
    found = watched(value)
    assert steps(found) == ["Cordon", "Drain", "SeeWhatIsLeft", "StayCordoned"]
    assert not any("NVSentinel" in line for line in found.plan.effects)


def test_one_that_sets_no_label_of_that_name_gets_it_taken_away_again() -> None:
    found = watched("").labelled({"dgxc.nvidia.com/nvsentinel-state": "healthy"})
    assert found.plan.effects[-1].endswith(f"kubectl label node gpu-1 {SENTINEL_LABEL}-")


def test_it_stays_off_for_the_maintenance_like_the_cordon() -> None:
    world = World()
    assert world.begin().outcome is Outcome.SUCCEEDED, world.said
    assert world.sentinel == "false"
    assert world.cordoned
    assert world.marks == {DRAINED_BY, SENTINEL_LEFT_OFF_BY}
    assert world.gone == ["train-0"]
    assert "leave NVSentinel off node gpu-1" in [each.says for each in world.run.steps]


def test_a_later_drain_takes_what_was_left_for_a_left_over() -> None:
    world = World()
    world.begin()
    world.scene.node()["spec"].pop("unschedulable")
    world.scene.labelled({SENTINEL_LABEL: "true"})
    world.scene.node()["metadata"]["annotations"] |= dict.fromkeys((DRAINED_BY, SENTINEL_LEFT_OFF_BY), "r0")
    world.scene.drop("ConfigMap", ID)
    assert world.begin().outcome is Outcome.SUCCEEDED, world.said
    annotations = world.scene.node()["metadata"]["annotations"]
    assert {annotations[each] for each in world.marks} == {ID}


def killed(at: int) -> World | None:
    """A drain that was killed at its write of this number; None where there is no such write."""
    world = World(kill=dies(at))
    try:
        world.begin()
    except Killed:
        world.kill = lambda _: None
        return world if ID in world.journals else None
    return None


def test_no_write_is_left_out_below() -> None:
    world = World()
    world.begin()
    assert world.writes <= WRITES


@pytest.mark.parametrize("at", range(WRITES))
def test_killed_at_any_write_it_is_resumed(at: int) -> None:
    world = killed(at)
    if world is None or world.run.state is not Standing.UNFINISHED:
        return
    assert world.go_on().outcome is Outcome.SUCCEEDED, world.said
    assert (world.sentinel, world.cordoned) == ("false", True)
    assert world.marks == {DRAINED_BY, SENTINEL_LEFT_OFF_BY}
    assert not world.locks


@pytest.mark.parametrize("at", range(WRITES))
def test_killed_at_any_write_it_is_taken_back(at: int) -> None:
    world = killed(at)
    if world is None or world.run.state is not Standing.UNFINISHED or world.run.verified:
        return
    assert world.go_on(back=True).outcome is Outcome.REVERTED, world.said
    assert (world.sentinel, world.cordoned) == ("true", False)
    assert world.marks == set()
    assert not world.locks


def test_what_somebody_else_set_meanwhile_is_not_taken_back() -> None:
    world = World()
    world.kill = lambda _: _die_once_kept_off(world)
    with pytest.raises(Killed):
        world.begin()
    world.kill = lambda _: None
    world.scene.labelled({SENTINEL_LABEL: "yes"})
    assert world.go_on(back=True).outcome is Outcome.REVERTED
    assert world.sentinel == "yes"
    assert world.marks == set()


def _die_once_kept_off(world: World) -> None:
    if world.marks == {SENTINEL_KEPT_OFF_BY, CORDONED_BY}:
        raise Killed
