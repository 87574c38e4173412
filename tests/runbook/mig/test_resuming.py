"""What is looked at anew when a reconfiguration is resumed: as long as going on could hurt, and no longer."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from gpuctl.runbook.conduct import Ending
from gpuctl.runbook.mig.device_plugin_restart import RUNBOOK as PLUGIN_RESTART
from gpuctl.runbook.mig.reconfigure import RUNBOOK
from gpuctl.runbook.mig.recover import RUNBOOK as RECOVER
from gpuctl.runbook.records import Outcome, Reached, Run, StepRecord
from tests.memory import A_MOMENT
from tests.runbook.booked import World as BookWorld
from tests.runbook.booked import booked, failed
from tests.runbook.little import Killed
from tests.runbook.mig.mig_scenes import NAME, holder
from tests.runbook.mig.node_world import ID
from tests.runbook.mig.test_runs import World, changed

pytestmark = pytest.mark.usefixtures("no_thread")

MANAGER = f"mig-manager-{NAME}"
STEPS = ("Cordon", "Drain", "Idle", "SetConfig")


def stands(run: Run, step: str, reached: Reached) -> bool:
    return any(each.name == step and each.reached is reached for each in run.steps)


POINTS: dict[str, Callable[[Run], bool]] = {
    "nothing begun": lambda run: run.untouched,
    "cordoned": lambda run: stands(run, "Cordon", Reached.DONE) and stands(run, "Drain", Reached.WAITING),
    "draining": lambda run: stands(run, "Drain", Reached.BEGUN),
    "drained": lambda run: stands(run, "Drain", Reached.DONE) and stands(run, "SetConfig", Reached.WAITING),
    "asked": lambda run: stands(run, "SetConfig", Reached.BEGUN),
}


def stopped(point: str) -> World:
    """A run whose process was killed as it was to write the first time after it had come so far."""
    world = World()

    def kill(_number: int) -> None:
        if ID in world.journals and POINTS[point](world.run):
            raise Killed

    world.kill = kill
    with pytest.raises(Killed):
        world.begin()
    world.kill = lambda _: None
    return world


def refused(world: World, words: str) -> bool:
    """Whether resuming is refused for this reason; then nothing was done."""
    before, writes = world.run, len(world.gone)
    ending = world.go_on()
    if ending.outcome is not Outcome.REFUSED:
        assert words not in ending.why
        return False
    assert words in ending.why, ending.why
    assert ending.left
    assert [each.reached for each in world.run.steps] == [each.reached for each in before.steps]
    assert len(world.gone) == writes
    return True


# Which guards

ANY_TIME = {
    "window-open",
    "no-alert-fires",
    "no-blocking-pod",
    "held-by-nobody-else",
    "reason-given",
    "no-machine-config",
}
TO_SLICE = {
    "node-is-ready",
    "node-has-sliceable-gpus",
    "gpus-are-sound",
    "manager-decides",
    "manager-runs",
    "no-change-under-way",
    "config-is-known",
    "scope-is-known",
    "scope-is-wide-enough",
    "config-covers-all",
    "profiles-are-offered",
    "instances-fit",
    "strategy-describes-it",
    "something-to-do",
    "still-as-planned",
    "way-back",
    "not-the-last",
}
TO_DRAIN_ON = {"pods-protected", "a-replica-stays", "pool-stays"}
TO_DRAIN = {
    "pods-scratch",
    "pods-unmanaged",
    "pods-returning",
    "pods-grace",
    "budgets-allow",
    "one-budget-each",
    "few-enough",
    "no-resident-holder",
    "processes-are-explained",
}
NEVER = {"state-namespace-exists", "no-other-run", "slot-free", "few-failures", "no-ghost"}


@pytest.mark.parametrize(
    ("point", "asked"),
    [
        ("cordoned", ANY_TIME | TO_SLICE | TO_DRAIN_ON | TO_DRAIN),
        ("draining", ANY_TIME | TO_SLICE | TO_DRAIN_ON),
        ("drained", ANY_TIME | TO_SLICE),
        ("asked", ANY_TIME),
    ],
)
def test_what_is_asked_again(point: str, asked: set[str]) -> None:
    run = stopped(point).run
    assert {each.id for each in RUNBOOK.guards if each.again(run)} == asked
    assert {each.id for each in RUNBOOK.guards} == ANY_TIME | TO_SLICE | TO_DRAIN_ON | TO_DRAIN | NEVER


# One after the other


def without_manager(world: World) -> None:
    world.scene.drop("Pod", MANAGER)


def nobody_else_offers_it(world: World) -> None:
    world.scene.node("gpu-2")["status"]["allocatable"] = {"nvidia.com/mig-1g.10gb": "0"}


def the_pool_is_out(world: World) -> None:
    world.scene.node("gpu-2")["spec"]["unschedulable"] = True


def a_reboot_is_rolled_out(world: World) -> None:
    state = {"machineconfiguration.openshift.io/state": "Working"}
    world.scene.node()["metadata"]["annotations"] |= state


def the_namespace_is_protected(world: World) -> None:
    policy = world.scene.policy
    drain = msgspec.structs.replace(policy.runbooks.drain, protected=("team-a",))
    runbooks = msgspec.structs.replace(policy.runbooks, drain=drain)
    world.scene.policy = msgspec.structs.replace(policy, runbooks=runbooks)


def mig_is_switched_off_and_nodes_reboot_for_it(world: World) -> None:
    """All pods must go for that, and the run drains those that hold GPUs."""
    world.scene.sliced(None)
    (manager,) = [each for each in world.scene.items if each["metadata"]["name"].endswith(MANAGER)]
    manager["spec"]["containers"][0]["env"] = [{"name": "WITH_REBOOT", "value": "true"}]


def the_configuration_means_another(world: World) -> None:
    found = world.scene.one("ConfigMap", "default-mig-parted-config")["data"]
    found["config.yaml"] = found["config.yaml"].replace('{"3g.40gb": 2}', '{"2g.20gb": 3}')


CASES: list[tuple[Callable[[World], None], str, tuple[str, ...]]] = [
    (without_manager, "MIG manager does not run", ("nothing begun", "cordoned", "draining", "drained")),
    (nobody_else_offers_it, "(override: --last-node)", ("cordoned", "draining", "drained")),
    (the_pool_is_out, "would be out of service", ("cordoned", "draining")),
    (a_reboot_is_rolled_out, "MachineConfig", ("cordoned", "drained", "asked")),
    (the_namespace_is_protected, "(override: --evict-protected)", ("cordoned", "draining")),
    (
        mig_is_switched_off_and_nodes_reboot_for_it,
        "by now all pods of Node gpu-1 must go, and the run drains those that hold GPUs only: MIG mode is",
        ("nothing begun", "cordoned", "draining", "drained"),
    ),
    (
        the_configuration_means_another,
        "asks for something else by now: GPU 0 3x 2g.20gb; the run was planned for GPU 0 2x 3g.40gb",
        ("nothing begun", "cordoned", "drained"),
    ),
]


@pytest.mark.parametrize(
    ("happens", "words", "point"), [(happens, words, point) for happens, words, at in CASES for point in at]
)
def test_what_came_up_is_refused(happens: Callable[[World], None], words: str, point: str) -> None:
    world = stopped(point)
    happens(world)
    assert refused(world, words)


@pytest.mark.parametrize("point", list(POINTS))
def test_where_nothing_came_up_it_goes_on(point: str) -> None:
    world = stopped(point)
    assert world.go_on().outcome is Outcome.SUCCEEDED, world.said
    changed(world)


def resumed_with(world: World, **options: bool) -> Ending:
    world.scene.options = {**world.scene.options, **options}
    return world.go_on()


def test_who_chose_the_pods_that_go_is_not_asked_again() -> None:
    world = stopped("cordoned")
    mig_is_switched_off_and_nodes_reboot_for_it(world)
    world.scene.options = {**world.scene.options, "scope": "gpu"}
    assert world.go_on().outcome is Outcome.SUCCEEDED, world.said


def test_what_no_longer_matters_is_not_asked() -> None:
    world = stopped("drained")
    the_pool_is_out(world)
    assert resumed_with(world, last_node=True).outcome is Outcome.SUCCEEDED
    world = stopped("asked")
    nobody_else_offers_it(world)
    assert world.go_on().outcome is Outcome.SUCCEEDED


def test_what_is_refused_can_be_overridden_or_mended() -> None:
    world = stopped("drained")
    nobody_else_offers_it(world)
    assert refused(world, "is the last Ready node")
    assert resumed_with(world, last_node=True).outcome is Outcome.SUCCEEDED
    changed(world)


def test_what_is_refused_can_be_taken_back() -> None:
    world = stopped("drained")
    without_manager(world)
    assert refused(world, "MIG manager does not run")
    assert world.go_on(back=True).outcome is Outcome.REVERTED
    assert not world.cordoned


def test_before_anything_is_begun_it_may_go_no_further_than_planned() -> None:
    world = stopped("nothing begun")
    world.scene.add(holder("train-1"))
    assert refused(world, "2 pods would be evicted, the plan allows 1")
    world.scene.drop("Pod", "train-1")
    assert world.go_on().outcome is Outcome.SUCCEEDED


# The ways out: until the pod is deleted, or its label set back


def recovery() -> BookWorld:
    return BookWorld(failed(booked(RECOVER)))


def restart() -> BookWorld:
    found = booked(PLUGIN_RESTART)
    found.node()["status"]["allocatable"]["nvidia.com/mig-1g.10gb"] = "3"
    return BookWorld(found)


@pytest.mark.parametrize("made", [recovery, restart])
def test_a_pod_that_would_not_come_back_is_not_deleted(made: Callable[[], BookWorld]) -> None:
    world = made()

    def kill(_number: int) -> None:
        if ID in world.journals and stands(world.run, "Cordon", Reached.DONE):
            raise Killed

    world.kill = kill
    with pytest.raises(Killed):
        world.begin()
    world.kill = lambda _: None
    world.scene.drop("DaemonSet", "operand")
    ending = world.go_on()
    assert ending.outcome is Outcome.REFUSED
    assert "DaemonSet" in ending.why
    assert not world.gone
    assert world.go_on(back=True).outcome is Outcome.REVERTED
    assert not world.cordoned


@pytest.mark.parametrize("made", [recovery, restart])
def test_once_it_is_deleted_the_steps_tell(made: Callable[[], BookWorld]) -> None:
    world = made()
    plan = world.scene.plan
    book = world.scene.task.runbook
    steps = tuple(
        StepRecord(says=each.says, step=each.step, reached=Reached.BEGUN) for each in plan.steps[:2]
    )
    run = Run(id=ID, runbook=book.id, target=NAME, steps=steps, started_at=A_MOMENT, updated_at=A_MOMENT)
    assert {each.id for each in book.guards if each.again(run)} == {
        "window-not-closed",
        "no-alert-fires",
        "no-blocking-pod",
        "held-by-nobody-else",
        "reason-given",
    }
