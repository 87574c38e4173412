"""Whole runs of mig-reconfigure in memory, with a MIG manager that does what it is asked: killed at every
write, then resumed, or taken back; and a manager that fails, stands still, or lies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from gpuctl.facts.own import STATE_NAMESPACE
from gpuctl.facts.state import Reason, Unknown
from gpuctl.nvidia.node import CONFIG, STATE
from gpuctl.runbook.conduct import Ending, abandon
from gpuctl.runbook.drain.cordon import CORDONED_BY
from gpuctl.runbook.drain.idle import Idle
from gpuctl.runbook.mig.facts import SET_BY
from gpuctl.runbook.records import Direction, Outcome, Reached, Standing
from gpuctl.runbook.writer import Put, WriteFailed, pointer
from tests.builders.gpus import SEVEN
from tests.runbook.little import Killed
from tests.runbook.memory_writer import Call
from tests.runbook.mig.mig_scenes import NAME, MigScene, holder, job, operands, scene
from tests.runbook.mig.node_world import ID, NAMESPACE, NodeWorld, dies

pytestmark = pytest.mark.usefixtures("no_thread")

PROFILES: Mapping[str, Any] = {"all-1g.10gb": SEVEN, "all-3g.40gb": ("3g.40gb",) * 2, "all-disabled": None}
OLD, NEW = "all-1g.10gb", "all-3g.40gb"
MANAGER = "nvidia-mig-manager"
PLUGIN = "nvidia.com/gpu.deploy.device-plugin"
LABEL = pointer("metadata", "labels", CONFIG)


@dataclass
class World(NodeWorld):
    """The node with its manager, which gets a step further at each look. `fails`: how often it still will."""

    scene: MigScene = field(default_factory=lambda: scene().add(holder(), job()))
    fails: int = 0
    lies: bool = False
    stands_still: bool = False
    timeout: float = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        self.taken = OLD
        self.scene.run = ""
        self.scene.options = {
            "config": NEW,
            "change_timeout": self.timeout,
            "scope": "auto",
            "drain_timeout": 900,
            "max_evictions": 64,
            "grace_period": 0,
        }

    # The cluster

    def _after(self, call: Call) -> None:
        asked = [each for each in call.what or () if getattr(each, "path", "") == LABEL]
        if call.verb == "patch" and any(isinstance(each, Put) for each in asked):
            value = self.scene.node()["metadata"]["labels"].get(CONFIG)
            self.scene.labelled({CONFIG: value}, "gpuctl")
        super()._after(call)

    def goes_on(self) -> None:
        """One step further."""
        found, asked = self.scene, self.label
        if self.phase == 0 and asked and asked != self.taken:
            self.taken, self.phase = asked, 1
        elif self.phase == 1:
            found.labelled({STATE: "pending"}, MANAGER).labelled({PLUGIN: "paused-for-mig-change"})
            self.phase = 2
        elif self.phase == 2 and not self.stands_still:
            self._apply()
            self.phase = 0

    def _apply(self) -> None:
        found = self.scene
        if self.fails:
            self.fails -= 1
            found.sliced(())
            found.labelled({STATE: "failed"}, MANAGER).labelled({PLUGIN: "true"})
            return
        if not self.lies:
            found.sliced(PROFILES[self.taken])
        at = found.seconds
        found.drop("Pod", f"device-plugin-daemonset-{NAME}").drop("Pod", f"feature-discovery-{NAME}")
        found.add(*(pod for pod in operands(NAME, made=at) if "manager" not in pod["metadata"]["name"]))
        found.labelled({STATE: "success"}, MANAGER).labelled({PLUGIN: "true"})
        found.caught_up()

    # What stands

    @property
    def label(self) -> str:
        return str(self.scene.node()["metadata"]["labels"].get(CONFIG, ""))

    @property
    def layout(self) -> list[str]:
        return sorted(each.profile for each in self.scene.states[NAME].gpus[0].instances)


def changed(world: World) -> None:
    assert (world.label, world.layout) == (NEW, ["3g.40gb"] * 2)
    assert not world.cordoned
    assert not world.locks
    assert world.marks == {SET_BY}
    assert set(world.gone) <= {"train-0"}
    assert world.run.state is Standing.FINISHED


def as_before(world: World) -> None:
    assert (world.label, world.layout) == (OLD, ["1g.10gb"] * 7)
    assert not world.cordoned
    assert not world.locks
    assert world.marks == set()
    assert world.run.state is Standing.UNDONE


def kept_out(world: World) -> None:
    assert world.cordoned
    assert world.locks
    assert CORDONED_BY in world.marks
    assert world.run.state is Standing.UNFINISHED


def test_a_run_goes_through() -> None:
    world = World()
    ending = world.begin()
    assert ending == Ending(Outcome.SUCCEEDED, run=ID), world.said
    changed(world)
    assert world.gone == ["train-0"]
    assert {each.reached for each in world.run.steps} == {Reached.DONE, Reached.UNDONE}


def writes_of_a_run() -> int:
    world = World()
    world.begin()
    return world.writes


WRITES = 32  # of a run; the test below tells when there are more


def test_no_write_is_left_out_below() -> None:
    assert writes_of_a_run() <= WRITES


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(WRITES))
def test_killed_at_any_write_it_is_resumed(at: int, after: bool) -> None:
    world = killed(at, after=after)
    if world is None:
        return
    if ID not in world.journals or world.run.state is not Standing.UNFINISHED:
        world.kill = world.killed_after = lambda _: None
        if world.locks:
            assert abandon(ID, world.crew(), {STATE_NAMESPACE: NAMESPACE}).outcome is Outcome.SUCCEEDED
        assert not world.cordoned
        assert not world.locks
        return
    assert world.go_on().outcome is Outcome.SUCCEEDED, world.said
    changed(world)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(WRITES))
def test_killed_at_any_write_it_is_taken_back(at: int, after: bool) -> None:
    world = killed(at, after=after)
    if world is None or ID not in world.journals or world.run.state is not Standing.UNFINISHED:
        return
    ending = world.go_on(back=True)
    if ending.outcome is Outcome.REFUSED:  # it is verified: what is left is its release
        assert world.go_on().outcome is Outcome.SUCCEEDED
        changed(world)
        return
    assert ending.outcome is Outcome.REVERTED, (ending, world.said)
    as_before(world)


def killed(at: int, *, after: bool) -> World | None:
    """A run that was killed there; None where there is no such write."""
    world = World()
    if after:
        world.killed_after = dies(at)
    else:
        world.kill = dies(at)
    try:
        world.begin()
    except Killed:
        world.kill = world.killed_after = lambda _: None
        return world
    return None


@pytest.mark.parametrize("at", range(14))
def test_an_undo_that_is_killed_goes_on_back(at: int) -> None:
    world = World(fails=1)
    world.begin()
    kept_out(world)
    world.kill = dies(world.writes + at)
    try:
        world.go_on(back=True)
    except Killed:
        world.kill = lambda _: None
        if world.run.direction is Direction.FORWARD:  # it had not turned round yet
            kept_out(world)
            assert world.go_on(back=True).outcome is Outcome.REVERTED
        elif world.run.state is Standing.UNFINISHED:
            assert world.go_on().outcome is Outcome.REVERTED  # the journal knows the way
    if not world.locks:
        as_before(world)


def test_a_failure_is_named_and_taken_back() -> None:
    world = World(fails=1)
    ending = world.begin()
    assert ending.outcome is Outcome.FAILED
    assert "MIG manager failed to apply all-3g.40gb" in ending.why
    kept_out(world)
    assert world.layout == []
    assert world.go_on(back=True).outcome is Outcome.REVERTED
    as_before(world)


def test_a_failure_on_the_way_back_leaves_it_cordoned() -> None:
    world = World(fails=2)
    world.begin()
    ending = world.go_on(back=True)
    assert ending.outcome is Outcome.FAILED
    assert "failed to apply all-1g.10gb" in ending.why
    kept_out(world)


def test_a_lie_is_no_success() -> None:
    world = World(lies=True)
    ending = world.begin()
    assert ending.outcome is Outcome.FAILED
    assert "MIG manager says success" in ending.why
    kept_out(world)
    assert world.go_on(back=True).outcome is Outcome.REVERTED  # nothing had changed
    as_before(world)


def test_a_manager_that_stands_still_is_no_success() -> None:
    world = World(stands_still=True, timeout=3)
    ending = world.begin()
    assert ending.outcome in (Outcome.TIMED_OUT, Outcome.FAILED)
    assert "state=pending" in ending.why or "wedged" in ending.why
    kept_out(world)
    world.stands_still = False
    assert world.go_on().outcome is Outcome.SUCCEEDED
    changed(world)


def test_a_pod_bound_after_the_gpus_were_seen_idle_is_never_sliced_away() -> None:
    world = World()
    bound: list[str] = []

    def binds(number: int) -> None:
        """As soon as the journal has it that the GPUs are idle."""
        if not bound and ID in world.journals and world.run.steps[2].reached is Reached.DONE:
            bound.append("train-0")
            world.scene.add(holder())

    world.killed_after = binds
    ending = world.begin()
    assert bound
    assert ending.outcome is Outcome.FAILED
    assert "GPUs of node gpu-1 are in use again, by team-a/train-0" in ending.why
    kept_out(world)
    assert (world.label, world.layout) == (OLD, ["1g.10gb"] * 7)
    world.killed_after = lambda _: None
    world.scene.drop("Pod", "train-0")
    assert world.go_on().outcome is Outcome.SUCCEEDED
    changed(world)


def test_resumed_in_the_middle_of_a_change_it_does_not_look_at_what_is_changing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Idle, "seconds", 0.0)
    world = killed(next(iter(asks_at())), after=True)
    assert world is not None
    done, steps = world.goes_on, iter(range(10**6))

    def slowly() -> None:
        """Nothing can be seen of the GPUs until MIG manager is through with them."""
        if next(steps) > 60:
            world.scene.told.clear()
            done()

    world.goes_on = slowly  # type: ignore[method-assign]
    world.scene.told |= {
        (NAME, command): Unknown(Reason.NO_POD, "its pods are paused")
        for command in ("nvidia-smi-L", "nvidia-smi-compute-apps")
    }
    assert world.go_on().outcome is Outcome.SUCCEEDED, world.said
    changed(world)


def asks_at() -> list[int]:
    """The write by which a run asks for the new configuration."""
    world = World()
    world.begin()
    return [number for number, call in enumerate(world.writer.calls) if _asks(call)]


def _asks(call: Call) -> bool:
    return call.verb == "patch" and any(
        isinstance(each, Put) and each.path == LABEL for each in call.what or ()
    )


def test_another_label_in_the_middle_stops_the_run_and_stays() -> None:
    world = World(stands_still=True)
    done = world.goes_on

    def meddling() -> None:
        done()
        if world.phase == 2:
            world.scene.labelled({CONFIG: "all-disabled"}, "kubectl-label")

    world.goes_on = meddling  # type: ignore[method-assign]
    ending = world.begin()
    assert ending.outcome is Outcome.FAILED
    assert "somebody else set nvidia.com/mig.config" in ending.why
    kept_out(world)
    world.stands_still, world.goes_on = False, done  # type: ignore[method-assign]
    assert world.go_on(back=True).outcome is Outcome.REVERTED
    assert world.label == "all-disabled"
    assert not world.cordoned


def test_a_write_that_fails_for_a_while_is_tried_again() -> None:
    world = World()
    refused: Sequence[int] = range(3, 40, 5)

    def fails(number: int) -> None:
        if number in refused:
            raise WriteFailed(Unknown(Reason.TIMEOUT, "no answer"))

    world.kill = fails
    ending = world.begin()
    assert ending.outcome in (Outcome.SUCCEEDED, Outcome.FAILED)
    if ending.left:
        world.kill = lambda _: None
        assert world.go_on().outcome is Outcome.SUCCEEDED
    changed(world)
