"""mig-recover: which node needs it, what it refuses, how a new start is followed, and the last resort."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpuctl.audit.policy import ChecksPolicy, MigConsistencyPolicy, Policy, RunbooksPolicy
from gpuctl.nvidia.node import CONFIG, STATE
from gpuctl.runbook.mig.recorded import journaled, noted
from gpuctl.runbook.mig.recover import RUNBOOK
from gpuctl.runbook.mig.recover_steps import RESUMED_BY, FollowRestart, ResumeOperands
from gpuctl.runbook.owned import to_be_applied
from gpuctl.runbook.records import Outcome, Run, StepRecord
from gpuctl.runbook.target import NODE
from gpuctl.runbook.writer import Conflict, pointer
from tests.memory import A_MOMENT
from tests.runbook.booked import (
    DEPLOY,
    GFD_LABEL,
    MANAGER,
    PAUSED,
    PLUGIN_LABEL,
    BookScene,
    World,
    against,
    booked,
    disturbed_everywhere,
    failed,
    messages,
    refuses,
    resumed_everywhere,
    undone_everywhere,
    wedged,
)
from tests.runbook.mig import mig_scenes
from tests.runbook.mig.breakages import (
    OF_A_NODE,
    Break,
    Refusal,
    another_owner,
    asked,
    both,
    by_gitops,
    in_use,
    machine_config,
    name_of,
    no_daemon_set,
    of_any_operand,
    without,
)
from tests.runbook.mig.mig_scenes import NAME, OPEN, RUN, UID, operands, stamp

pytestmark = pytest.mark.usefixtures("no_thread")

WAS = (f"{PLUGIN_LABEL}=true", "gpu-feature-discovery=true")


def broken(**options: Any) -> BookScene:
    return failed(booked(RUNBOOK, **options))


def stuck(**options: Any) -> BookScene:
    return wedged(booked(RUNBOOK, **options))


def last_resort(**options: Any) -> BookScene:
    return stuck(restore_labels=True, was=WAS, **options)


# Whether it needs it


@pytest.mark.parametrize("scene", [broken, stuck])
def test_a_manager_that_failed_or_stands_still_is_started_anew(scene: Callable[[], BookScene]) -> None:
    plan = scene().plan
    assert plan.blockers == ()
    assert [each.step["step"] for each in plan.steps] == [
        "Cordon",
        "RestartOperand",
        "FollowRestart",
        "OperandsRun",
        "VerifyRecovered",
    ]
    assert "a restart has no undo" in plan.effects


def test_a_healthy_node_needs_nothing() -> None:
    assert against(booked(RUNBOOK), "nothing to recover")


def test_a_change_that_is_not_long_under_way_is_waited_for() -> None:
    scene = wedged(booked(RUNBOOK), at=-600)
    assert against(scene, "is being changed")
    quick = Policy(
        runbooks=RunbooksPolicy(windows=(OPEN,)),
        checks=ChecksPolicy(mig_consistency=MigConsistencyPolicy(stuck_minutes=5)),
    )
    assert messages(replace(scene, policy=quick)) == []


def test_a_change_of_which_nothing_tells_its_age_is_waited_for() -> None:
    scene = stuck()
    scene.node()["metadata"]["managedFields"] = []
    assert against(scene, "since when is not known")


def test_a_driver_upgrade_is_not_its_matter() -> None:
    scene = stuck()
    scene.labelled({PLUGIN_LABEL: "paused-for-driver-upgrade"}, "driver-manager", -3600)
    assert against(scene, "not MIG's matter")


def test_operands_left_paused_after_success_need_it() -> None:
    scene = stuck()
    scene.labelled({STATE: "success"}, MANAGER, -3600)
    assert messages(scene) == []


def test_success_over_another_geometry_needs_it() -> None:
    scene = booked(RUNBOOK).sliced(("3g.40gb",) * 2).caught_up()
    assert messages(scene) == []  # type: ignore[arg-type]


def test_what_only_the_plugin_got_wrong_is_the_plugin_s() -> None:
    scene = booked(RUNBOOK)
    scene.node()["status"]["capacity"]["nvidia.com/mig-3g.40gb"] = "2"
    assert against(scene, "only what the node offers of them is wrong")


def test_a_node_that_asks_for_nothing_needs_nothing() -> None:
    scene = broken()
    scene.labelled({CONFIG: None})
    assert against(scene, "MIG manager is asked for nothing")


# What it refuses


def no_controller(scene: BookScene) -> None:
    found = scene.pod_of(MANAGER)
    assert found is not None
    found["metadata"]["ownerReferences"] = []


def two_managers(scene: BookScene) -> None:
    (found,) = [each for each in operands(NAME) if MANAGER in each["metadata"]["name"]]
    found["metadata"] |= {"name": "another", "uid": "another"}
    scene.items.append(found)


def no_such_configuration(scene: BookScene) -> None:
    scene.labelled({CONFIG: "all-9g.10gb"})


def uncovered(scene: BookScene) -> None:
    scene.sliced((), ()).labelled({CONFIG: "first-only"})


REFUSED: list[Refusal] = [
    *OF_A_NODE,
    *of_any_operand(MANAGER, "mig-manager"),
    (another_owner, "manager-decides", "HAMi decides"),
    (machine_config, "no-machine-config", "a MachineConfig is being rolled out"),
    (no_controller, "comes-back", "no controller makes it anew"),
    (two_managers, "comes-back", "which of them is meant"),
    (no_such_configuration, "configuration-can-be-made", "there is no configuration"),
    (uncovered, "configuration-can-be-made", "says nothing of"),
    (in_use, "nobody-in-the-way", "are in the way"),
    (lambda scene: scene.labelled({CONFIG: None}), "needs-recovery", "MIG manager is asked for nothing"),
    (asked(restore_labels=True), "old-labels-are-known", "nothing to restore"),
    (both(asked(restore_labels=True), by_gitops), "not-owned-elsewhere", "is kept by Argo CD"),
    (asked(patch_only=True), "to-be-applied", "only printed"),
]


@pytest.mark.parametrize(("breaks", "guard", "words"), REFUSED, ids=name_of)
def test_it_refuses(breaks: Break, guard: str, words: str) -> None:
    refuses(broken, breaks, guard, words)


def test_taints_that_its_pods_tolerate_do_not_matter() -> None:
    scene = broken().tainted("gpuctl.dev/mig-not-as-labelled", value="x")
    assert messages(scene) == []
    scene = broken().tolerating().tainted("node.kubernetes.io/unschedulable")
    assert messages(scene) == []
    scene = broken().tolerating().tainted("team", "PreferNoSchedule")
    assert messages(scene) == []


def test_pods_in_the_way_may_be_risked() -> None:
    scene = broken(although_in_use=True)
    in_use(scene)
    plan = scene.plan
    assert plan.blockers == ()
    assert [each.override for each in plan.overridden] == ["--although-in-use"]


def test_pods_do_not_matter_where_gpus_stay_as_they_are() -> None:
    scene = stuck()
    in_use(scene)
    assert messages(scene) == []
    assert any("team-a/train-0" in each for each in scene.plan.effects)


def test_the_last_resort_does_without_the_manager() -> None:
    for breaks in (without(MANAGER), no_daemon_set, no_such_configuration):
        scene = last_resort()
        breaks(scene)
        assert messages(scene) == []


# What the labels were


def test_the_last_resort_must_know_what_the_labels_were() -> None:
    scene = stuck(restore_labels=True)
    assert against(scene, "tells what")
    assert messages(last_resort()) == []


def test_the_last_resort_is_for_paused_operands() -> None:
    assert against(broken(restore_labels=True), "nothing to restore")


def test_labels_that_gitops_keeps_are_left_to_it() -> None:
    scene = last_resort()
    by_gitops(scene)
    assert against(scene, "is kept by Argo CD")
    assert messages(scene.with_(although_owned=True)) == []
    assert not against(last_resort(), "is kept by")
    assert messages(scene.with_(restore_labels=False)) == []  # which changes nothing that stays


def test_the_patch_alone_is_printed_and_never_applied() -> None:
    plan = last_resort(patch_only=True).plan
    assert plan.steps == ()
    assert [each.guard for each in plan.blockers] == [to_be_applied.id]
    (patch,) = [each for each in plan.effects if each.startswith("the patch: ")]
    assert f'"path": "{pointer("metadata", "labels", PLUGIN_LABEL)}", "value": "true"' in patch
    assert not any(each.startswith("the patch: ") for each in last_resort().plan.effects)


def test_of_a_new_start_there_is_no_patch_to_print() -> None:
    plan = broken(patch_only=True).plan
    assert plan.steps == ()
    assert [each.guard for each in plan.blockers] == [to_be_applied.id]
    assert "there is no patch to print: a new start changes nothing that stays" in plan.effects


def test_the_patch_of_labels_of_which_nobody_knows_what_they_were_leaves_them_out() -> None:
    scene = stuck(restore_labels=True, was=WAS[:1], patch_only=True)
    assert against(scene, "tells what")
    (patch,) = [each for each in scene.plan.effects if each.startswith("the patch: ")]
    assert "device-plugin" in patch
    assert "gpu-feature-discovery" not in patch


def test_a_note_that_says_paused_is_none() -> None:
    assert noted(("device-plugin=true", f"{GFD_LABEL}={PAUSED}", "dcgm", "=x")) == {
        PLUGIN_LABEL: "true",
        DEPLOY: "x",
    }


def a_run(step: dict[str, Any], **about: Any) -> Run:
    at = datetime(2026, 11, 29, tzinfo=UTC)
    record = StepRecord(says="", step=step)
    told = {"target": NAME, "target_uid": UID, "started_at": at, **about}
    return Run(id="r0", runbook="mig-reconfigure", updated_at=at, steps=(record,), **told)


def test_journals_of_the_node_tell_what_ran() -> None:
    from gpuctl.runbook.mig.facts import the_GPU_node

    node = stuck().look([the_GPU_node])[the_GPU_node]
    settled = {"step": "Settled", "operands": ["device-plugin"]}
    resumed = {"step": "ResumeOperands", "was": {PLUGIN_LABEL: "on"}}
    change = {"step": "SetConfig", "deployed": {PLUGIN_LABEL: "on", GFD_LABEL: PAUSED}}
    later = datetime(2026, 11, 30, tzinfo=UTC)
    assert journaled([a_run(change)], node) == {PLUGIN_LABEL: "on"}
    assert journaled([a_run(settled)], node) == {PLUGIN_LABEL: "true"}
    assert journaled([a_run(settled), a_run(resumed, started_at=later)], node) == {PLUGIN_LABEL: "on"}
    assert journaled([a_run(settled, target_uid="another")], node) == {}
    assert journaled([a_run(settled, target="gpu-2")], node) == {}


def test_a_change_records_what_labels_were() -> None:
    (step,) = [each.step for each in mig_scenes.scene().plan.steps if each.step["step"] == "SetConfig"]
    assert step["deployed"][PLUGIN_LABEL] == "true"
    assert all(name.startswith(DEPLOY) and text != "false" for name, text in step["deployed"].items())


# Following it


def follow(scene: BookScene, **more: Any) -> FollowRestart:
    told = A_MOMENT - timedelta(seconds=600)
    return FollowRestart(node=NAME, node_uid=UID, config="all-1g.10gb", told=told, **more)


def seen(scene: BookScene, step: FollowRestart) -> tuple[bool, str]:
    facts = replace(scene, run=RUN).look(step.needs)
    return step.holds(facts), step.stuck(facts)


def test_the_state_of_before_is_no_answer() -> None:
    scene = broken()
    assert seen(scene, follow(scene)) == (False, "")
    scene.labelled({STATE: "failed"}, MANAGER, -60)
    assert "failed again" in seen(scene, follow(scene))[1]
    scene.labelled({STATE: "success"}, MANAGER, -30)
    assert seen(scene, follow(scene)) == (True, "")


def started(scene: BookScene, seconds: float) -> None:
    found = scene.pod_of(MANAGER)
    assert found is not None
    at = (A_MOMENT + timedelta(seconds=seconds)).isoformat()
    found["status"]["containerStatuses"][0]["state"] = {"running": {"startedAt": at}}


def test_one_that_fails_at_once_where_it_failed_before_is_known_by_its_silence() -> None:
    scene = broken()
    started(scene, -30)
    assert seen(scene, follow(scene)) == (False, "")
    started(scene, -300)
    assert "failed again" in seen(scene, follow(scene))[1]


def test_success_of_before_counts_where_nothing_was_to_be_done() -> None:
    scene = booked(RUNBOOK)
    plan = broken().plan
    wanted = plan.steps[2].step["wanted"]
    step = RUNBOOK.step({**plan.steps[2].step, "told": (A_MOMENT - timedelta(seconds=60)).isoformat()})
    assert wanted
    assert isinstance(step, FollowRestart)
    assert seen(scene, step) == (True, "")
    scene.sliced(("3g.40gb",) * 2)
    assert seen(scene, step) == (False, "")
    started(scene, -300)
    assert "says nothing" in seen(scene, step)[1]


def test_another_label_meanwhile_stops_it() -> None:
    scene = broken()
    scene.labelled({CONFIG: "all-disabled"})
    assert "somebody set" in seen(scene, follow(scene))[1]


def test_one_that_stands_still_again_is_named() -> None:
    scene = stuck()
    found = scene.pod_of(MANAGER)
    assert found is not None
    kubelet = {
        "manager": "kubelet",
        "operation": "Update",
        "time": stamp(0),
        "fieldsV1": {"f:metadata": {"f:labels": {}}},
    }
    scene.node()["metadata"]["managedFields"].append(kubelet)
    assert "is wedged" in seen(scene, follow(scene, timeout=60))[1]
    found["metadata"]["creationTimestamp"] = (A_MOMENT + timedelta(seconds=1)).isoformat()
    assert seen(scene, follow(scene, timeout=60)) == (False, "")


# Restoring labels


def resume(scene: BookScene) -> ResumeOperands:
    return ResumeOperands(
        node=NAME,
        node_uid=UID,
        paused={PLUGIN_LABEL: PAUSED, GFD_LABEL: PAUSED},
        was={PLUGIN_LABEL: "true", GFD_LABEL: "true"},
    )


def test_labels_of_somebody_else_are_not_written_over() -> None:
    scene = replace(stuck(), run=RUN)
    step = resume(scene)
    facts = scene.look(step.needs)
    scene.labelled({PLUGIN_LABEL: "false"})
    assert "somebody else changed" in step.stuck(scene.look(step.needs))
    with pytest.raises(Conflict):
        step.act(facts, scene.writer)


def test_operands_that_are_paused_again_are_left_so() -> None:
    scene = replace(stuck(), run=RUN)
    scene.annotated({RESUMED_BY: RUN})
    step = resume(scene)
    assert "paused again by another" in step.stuck(scene.look(step.needs))


def test_only_what_is_still_so_is_paused_again() -> None:
    scene = replace(stuck(), run=RUN)
    step = resume(scene)
    step.act(scene.look(step.needs), scene.writer)
    assert step.holds(scene.look(step.needs))
    scene.labelled({GFD_LABEL: "false"})
    step.undo(scene.look(step.needs), scene.writer)
    assert step.undone(scene.look(step.needs))
    labels = scene.look([NODE])[NODE].metadata.labels
    assert (labels[PLUGIN_LABEL], labels[GFD_LABEL]) == (PAUSED, "false")


# Whole runs


def recovered(world: World) -> None:
    assert world.label(STATE) == "success"
    assert world.label(PLUGIN_LABEL) == "true"
    layout = [each.profile for each in world.scene.states[NAME].gpus[0].instances]
    assert layout == ["1g.10gb"] * 7
    assert world.gone == [f"{MANAGER}-{NAME}"]
    assert not world.cordoned
    assert not world.marks
    assert not world.locks


def given_up(world: World) -> None:
    """A restart is not undone; the cordon is."""
    assert not world.cordoned
    assert not world.marks
    assert set(world.gone) <= {f"{MANAGER}-{NAME}"}


@pytest.mark.parametrize("scene", [broken, stuck])
def test_killed_anywhere_it_is_resumed_or_taken_back(scene: Callable[[], BookScene]) -> None:
    resumed_everywhere(lambda: World(scene()), recovered)
    undone_everywhere(lambda: World(scene()), given_up, recovered)


def offers_again(world: World) -> None:
    assert (world.label(PLUGIN_LABEL), world.label(GFD_LABEL)) == ("true", "true")
    assert world.scene.node()["status"]["allocatable"]["nvidia.com/mig-1g.10gb"] == "7"
    assert world.label(STATE) == "pending"
    assert world.gone == []
    assert world.marks == {RESUMED_BY}
    assert not world.cordoned


def paused_again(world: World) -> None:
    assert {world.label(PLUGIN_LABEL), world.label(GFD_LABEL)} == {PAUSED}
    assert not world.marks
    assert not world.cordoned


def test_killed_anywhere_the_last_resort_is_resumed_or_taken_back() -> None:
    resumed_everywhere(lambda: World(last_resort()), offers_again)
    undone_everywhere(lambda: World(last_resort()), paused_again, offers_again)


def test_a_write_that_fails_anywhere_is_made_again() -> None:
    disturbed_everywhere(lambda: World(broken()), recovered)


def test_a_failure_again_is_no_success() -> None:
    world = World(broken(), fails=1)
    ending = world.begin()
    assert (ending.outcome, ending.left) == (Outcome.FAILED, True)
    assert "failed again" in ending.why
    assert world.cordoned
    assert world.go_on(back=True).outcome is Outcome.REVERTED
    given_up(world)


def test_a_pod_that_does_not_come_back_is_no_success() -> None:
    world = World(broken(), dead=True)
    ending = world.begin_with(limit=4.0)
    assert ending.outcome is Outcome.TIMED_OUT
    assert "made no other pod yet" in ending.why
    world.dead = False
    assert world.go_on().outcome is Outcome.SUCCEEDED
    recovered(world)


def test_one_that_is_started_by_somebody_else_meanwhile_is_not_deleted_again() -> None:
    world = World(broken())
    plan = world.scene.plan
    assert plan.blockers == ()
    found = world.scene.pod_of(MANAGER)
    assert found is not None
    found["metadata"]["uid"] = "younger"
    ending = world.begin_with(plan)
    assert ending.outcome is Outcome.REFUSED
    assert "MIG manager's pod was" in ending.why
    assert world.gone == []
