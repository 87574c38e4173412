"""The steps of a MIG change, forward and back: what holds, what stops the run, what is written, and what a
lie does not bring through."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from gpuctl.facts.state import NotKnown, Reason, Unknown
from gpuctl.nvidia.node import CONFIG, STATE
from gpuctl.runbook.mig.change import Wish
from gpuctl.runbook.mig.facts import ON_THE_WAY_BACK, SET_BY
from gpuctl.runbook.mig.steps import Follow, SetConfig, Settled, Verify, VerifyAgain
from gpuctl.runbook.step import Step
from gpuctl.runbook.writer import Conflict
from tests.builders.gpus import SEVEN
from tests.cluster.bed.simulated import gpu_node
from tests.cluster.standins.state import Process
from tests.runbook.mig.mig_scenes import BOOT, NAME, RUN, UID, MigScene, holder, job, operands, scene, stamp

OLD, NEW = "all-1g.10gb", "all-3g.40gb"
WAS = (Wish(gpu=0, enabled=True, profiles=(("1g.10gb", 7),)),)
WANTED = (Wish(gpu=0, enabled=True, profiles=(("3g.40gb", 2),)),)
HALVES = ["3g.40gb"] * 2
DEPLOY = "nvidia.com/gpu.deploy.device-plugin"
MANAGER = "nvidia-mig-manager"
DESCRIBED = ("nvidia.com/gpu.product", "nvidia.com/gpu.count")
AT: dict[str, Any] = {"node": NAME, "node_uid": UID}
ON: dict[str, Any] = {**AT, "config": NEW}
SET = SetConfig(**AT, old=OLD, new=NEW, restores=WAS)
FOLLOW = Follow(**ON, wanted=WANTED, boot=BOOT)
SETTLED = Settled(**ON, operands=("device-plugin", "gpu-feature-discovery"))
VERIFY = Verify(**ON, wanted=WANTED)
AGAIN = VerifyAgain(**ON, wanted=WANTED)


def cordoned() -> MigScene:
    """A node that is drained, with the old configuration."""
    found = scene()
    found.node()["spec"]["unschedulable"] = True
    return found


def asked(at: float = 0) -> MigScene:
    """The same, of which this run has asked for the new one."""
    return cordoned().labelled({CONFIG: NEW}, "gpuctl", at).annotated({SET_BY: RUN})


def state(found: MigScene, text: str, at: float) -> MigScene:
    """What MIG manager says, and since when."""
    return found.labelled({STATE: text}, MANAGER, at)


def fresh(found: MigScene, at: float = 60) -> MigScene:
    """Operands that were started at some time."""
    found.items[:] = [
        each
        for each in found.items
        if not (each["kind"] == "Pod" and each["metadata"]["name"].endswith(f"-{NAME}"))
    ]
    return found.add(*operands(NAME, made=at))


def changed() -> MigScene:
    """The change has come to its end, and everything agrees."""
    found = state(asked(), "success", 50).sliced(HALVES)
    return fresh(found).caught_up().at(120)


def holds(step: Step, found: MigScene) -> bool:
    return step.holds(found.look(step.needs))


def stuck(step: Step, found: MigScene) -> str:
    return step.stuck(found.look(step.needs))


def progress(step: Step, found: MigScene) -> str:
    return step.progress(found.look(step.needs))


def act(step: Step, found: MigScene) -> MigScene:
    step.act(found.look(step.needs), found.writer)
    return found


def undo(step: Step, found: MigScene) -> MigScene:
    step.undo(found.look(step.needs), found.writer)
    return found


def undone(step: Step, found: MigScene) -> bool:
    return step.undone(found.look(step.needs))


def hampered(step: Step, found: MigScene) -> str:
    return step.hampered(found.look(step.needs))


def label(found: MigScene) -> Any:
    return found.node()["metadata"]["labels"].get(CONFIG)


def mark(found: MigScene) -> Any:
    return found.node()["metadata"]["annotations"].get(SET_BY)


# Asking for it


def test_it_sets_the_label_and_its_mark_in_one_patch() -> None:
    found = cordoned()
    assert not holds(SET, found)
    assert stuck(SET, found) == ""
    writer = found.writer
    SET.act(found.look(SET.needs), writer)
    assert writer.written == ["patch Node gpu-1"]
    assert (label(found), mark(found)) == (NEW, RUN)
    assert holds(SET, found)


@pytest.mark.parametrize(
    "alter",
    [
        lambda found: found.labelled({CONFIG: "other"}),
        lambda found: found.node()["spec"].pop("unschedulable"),
        lambda found: found.node()["metadata"].update(uid="another"),
        lambda found: found.annotated({SET_BY: "run-2"}),
    ],
)
def test_what_changes_between_look_and_patch_refuses_it(alter: Any) -> None:
    found = cordoned()
    facts = found.look(SET.needs)
    alter(found)
    before = label(found)
    with pytest.raises(Conflict):
        SET.act(facts, found.writer)
    assert label(found) == before


def test_the_mark_of_an_earlier_run_is_replaced() -> None:
    found = act(SET, cordoned().annotated({SET_BY: "run-0"}))
    assert mark(found) == RUN


def test_a_node_without_annotations_gets_its_first() -> None:
    found = cordoned()
    del found.node()["metadata"]["annotations"]
    assert mark(act(SET, found)) == RUN


def test_a_state_of_this_very_second_is_waited_out() -> None:
    found = state(cordoned(), "success", -1)
    assert label(act(SET, found)) == OLD
    assert label(act(SET, found.at(5))) == NEW
    ahead = state(cordoned(), "success", 3600)  # a clock that is behind waits for nothing
    assert label(act(SET, ahead)) == NEW


@pytest.mark.parametrize(
    ("alter", "why"),
    [
        (lambda found: found.labelled({CONFIG: "all-disabled"}), "somebody else set nvidia.com/mig.config"),
        (lambda found: found.labelled({CONFIG: None}), "to nothing; the plan was made for a change from"),
        (lambda found: found.labelled({CONFIG: NEW}), "somebody else set nvidia.com/mig.config"),
        (lambda found: found.annotated({SET_BY: RUN}), "somebody else set"),  # it was ours, and was set back
        (lambda found: found.labelled({STATE: "pending"}), "at work on node gpu-1 on something else"),
        (lambda found: found.labelled({DEPLOY: "paused-for-mig-change"}), "at work on node gpu-1"),
        (lambda found: found.node()["metadata"].update(uid="another"), "was replaced"),
        (lambda found: found.add(holder(), job()), "in use again, by team-a/train-0"),
    ],
)
def test_what_stands_against_asking_stops_the_run(alter: Any, why: str) -> None:
    found = cordoned()
    alter(found)
    assert why in stuck(SET, found)
    assert not holds(SET, found)


@pytest.mark.parametrize("pod", [holder(node="gpu-2"), {**holder(), "status": {"phase": "Succeeded"}}])
def test_a_pod_that_holds_nothing_here_is_no_reason_not_to_ask(pod: Any) -> None:
    assert stuck(SET, cordoned().add(pod, job())) == ""


def test_a_label_that_was_absent_is_asked_for_too() -> None:
    step = SetConfig(**AT, old="", new=NEW)
    found = cordoned().labelled({CONFIG: None})
    assert stuck(step, found) == ""
    assert label(act(step, found)) == NEW


# Following it


@pytest.mark.parametrize(
    ("found", "done"),
    [
        (state(asked(), "success", 30), True),
        (state(asked(), "success", 0), True),
        (state(asked(), "success", -7200), False),  # that of the configuration before
        (state(asked(), "success", -7200).sliced(HALVES), True),  # there was nothing to do
        (state(asked(), "pending", 30), False),
        (state(asked(), "rebooting", 30), False),
        (state(asked(), "failed", 30), False),
    ],
)
def test_only_an_answer_to_our_question_is_an_answer(found: MigScene, done: bool) -> None:
    assert holds(FOLLOW, found.at(60)) is done


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (state(asked(), "failed", 30), "MIG manager failed to apply all-3g.40gb on node gpu-1"),
        (state(asked(), "failed", -7200), ""),  # that of before
        (state(asked(), "pending", 30), ""),
        (state(asked(), "success", 30), ""),
        (asked().labelled({CONFIG: "all-2g.20gb"}), "somebody else set nvidia.com/mig.config"),
        (asked().labelled({CONFIG: None}), "to nothing, while this run changes it to all-3g.40gb"),
        (asked().annotated({SET_BY: "run-2"}), "bears the mark of run-2"),
    ],
)  # fmt: skip
def test_what_stops_the_run_while_it_follows(found: MigScene, why: str) -> None:
    said = stuck(FOLLOW, found.at(60))
    assert bool(said) is bool(why)
    assert why in said
    if "failed" in why:
        assert "kubectl -n gpu-operator logs nvidia-mig-manager-gpu-1" in said
        assert "undo the run" in said


def test_a_failure_is_none_once_the_manager_starts_over() -> None:
    found = state(asked(), "failed", 30)
    pod = found.one("Pod", "nvidia-mig-manager-gpu-1")
    pod["metadata"]["creationTimestamp"] = stamp(40)
    assert stuck(FOLLOW, found.at(60)) == ""


def beat(found: MigScene, at: float) -> MigScene:
    """The kubelet writes the node's status."""
    entry = {"manager": "kubelet", "operation": "Update", "time": stamp(at), "fieldsV1": {}}
    found.node()["metadata"]["managedFields"].append(entry)
    return found


def wedged(seconds: float) -> MigScene:
    found = state(asked(), "pending", 10).labelled({DEPLOY: "paused-for-mig-change"})
    return beat(found, 10 + seconds).at(10 + seconds)


def test_a_wedge_is_named_with_its_way_out() -> None:
    said = stuck(FOLLOW, wedged(1860))
    assert said.startswith("MIG manager is wedged: its state is pending for 31 min without progress")
    assert "operands paused: device-plugin" in said
    assert "kubectl -n gpu-operator delete pod nvidia-mig-manager-gpu-1" in said


@pytest.mark.parametrize("seconds", [60, 600, 1790])
def test_a_slow_manager_is_no_wedge(seconds: float) -> None:
    assert stuck(FOLLOW, wedged(seconds)) == ""
    warned = "it may be wedged" in progress(FOLLOW, wedged(seconds))
    assert warned is (seconds >= 600)


def test_a_clock_that_is_ahead_makes_no_wedge() -> None:
    assert stuck(FOLLOW, wedged(60).at(7200)) == ""


def test_a_manager_that_was_restarted_has_its_time_anew() -> None:
    found = wedged(1860)
    found.one("Pod", "nvidia-mig-manager-gpu-1")["metadata"]["creationTimestamp"] = stamp(1860)
    assert stuck(FOLLOW, found) == ""


def test_a_node_that_is_not_ready_is_waited_for() -> None:
    found = state(asked(), "rebooting", 30)
    found.node()["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    found.node()["status"]["nodeInfo"]["bootID"] = "boot-2"
    assert stuck(FOLLOW, found.at(60)) == ""
    said = progress(FOLLOW, found)
    assert "mig.config.state=rebooting" in said
    assert "the node is not Ready" in said
    assert "it was rebooted" in said


def test_a_missing_manager_is_told() -> None:
    found = asked().drop("Pod", "mig-manager-gpu-1")
    assert "MIG manager does not run there" in progress(FOLLOW, found)
    assert "does not run" not in progress(FOLLOW, asked())


def test_nvidia_smi_is_kept_away_while_gpus_change() -> None:
    def runs(found: MigScene) -> bool:
        hardware = found.look(AGAIN.needs).state(VERIFY.needs[-1])
        return not isinstance(hardware, Unknown)

    assert runs(changed())
    assert not runs(state(changed(), "pending", 60))
    assert not runs(changed().labelled({DEPLOY: "paused-for-mig-change"}))


def test_nvidia_smi_is_kept_away_while_a_change_is_asked_for() -> None:
    def asked_of(found: MigScene) -> bool:
        return not isinstance(found.look(SET.needs).state(ON_THE_WAY_BACK.hardware), Unknown)

    assert not asked_of(cordoned())
    assert not asked_of(asked())
    assert asked_of(asked().annotated({SET_BY: f"{RUN}:undo"}))


# The operands


def test_operands_that_were_left_paused_are_told_with_the_way_out() -> None:
    found = fresh(state(asked(), "success", 30)).labelled({DEPLOY: "paused-for-mig-change"})
    assert "its way out, if it lasts: kubectl -n gpu-operator delete pod" in progress(SETTLED, found)
    back = asked().annotated({SET_BY: f"{RUN}:undo"}).labelled({CONFIG: OLD}, "gpuctl", 10)
    state(back, "success", 30).labelled({DEPLOY: "paused-for-mig-change"})
    assert "operands were left paused" in progress(SET, back)


def test_operands_must_be_those_of_after_the_change() -> None:
    found = state(asked(), "success", 30)
    assert progress(SETTLED, found) == (
        "device-plugin is the one of before the change; gpu-feature-discovery is the one of before the change"
    )
    assert not holds(SETTLED, found)
    assert holds(SETTLED, fresh(found))
    assert holds(msgspec.structs.replace(SETTLED, anew=False), state(asked(), "success", 30))


@pytest.mark.parametrize(
    ("alter", "what"),
    [
        (lambda found: found.labelled({DEPLOY: "paused-for-mig-change"}), "operands are paused"),
        (lambda found: found.labelled({STATE: "pending"}), "state is pending"),
        (lambda found: found.drop("Pod", "feature-discovery-gpu-1"), "gpu-feature-discovery is not Ready"),
        (
            lambda found: found.one("Pod", "gpu-feature-discovery-gpu-1")["status"].update(phase="Pending"),
            "gpu-feature-discovery is not Ready",
        ),
        (
            lambda found: found.one("Pod", "gpu-feature-discovery-gpu-1")["status"].update(
                containerStatuses=[{"name": "x", "ready": False}]
            ),
            "gpu-feature-discovery is not Ready",
        ),
        (
            lambda found: found.node()["status"].update(conditions=[{"type": "Ready", "status": "False"}]),
            "the node is not Ready",
        ),
    ],
)
def test_operands_that_are_not_back_are_waited_for(alter: Any, what: str) -> None:
    found = fresh(state(asked(), "success", 30))
    assert holds(SETTLED, found)
    alter(found)
    assert not holds(SETTLED, found)
    assert what in progress(SETTLED, found)
    assert stuck(SETTLED, found) == ""


def test_operands_that_are_switched_off_are_not_waited_for() -> None:
    found = fresh(state(asked(), "success", 30)).drop("Pod", "feature-discovery-gpu-1")
    assert holds(SETTLED, found.labelled({"nvidia.com/gpu.deploy.gpu-feature-discovery": "false"}))


# Believing it


def test_what_agrees_is_verified() -> None:
    assert holds(VERIFY, changed())
    assert holds(AGAIN, changed())
    assert stuck(AGAIN, changed()) == ""


@pytest.mark.parametrize(
    ("alter", "left"),
    [
        (lambda found: found.labelled({"nvidia.com/mig-3g.40gb.count": "1"}), "40gb.count: 1 instead of 2"),
        (lambda found: found.labelled(dict.fromkeys(DESCRIBED)), "has not described the GPUs yet"),
        (
            lambda found: found.labelled({"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-MIG-INVALID"}),
            "nvidia.com/gpu.product is",
        ),
        (
            lambda found: found.node()["status"]["capacity"].pop("nvidia.com/mig-3g.40gb"),
            "nvidia.com/mig-3g.40gb: 0 instead of 2",
        ),
        (
            lambda found: found.node()["status"]["capacity"].update({"nvidia.com/mig-1g.10gb": "7"}),
            "nvidia.com/mig-1g.10gb: 7 instead of 0",
        ),
        (
            lambda found: found.node()["status"]["allocatable"].update({"nvidia.com/mig-3g.40gb": "1"}),
            "nvidia.com/mig-3g.40gb: 1 instead of 2",
        ),
    ],
)  # fmt: skip
def test_what_does_not_agree_is_waited_for(alter: Any, left: str) -> None:
    found = changed()
    alter(found)
    assert not holds(VERIFY, found)
    assert not holds(AGAIN, found)
    assert stuck(VERIFY, found) == ""
    assert left in progress(VERIFY, found)
    assert "up to 6 min" in progress(VERIFY, found)


@pytest.mark.parametrize("strategy", ["single", "mixed"])
@pytest.mark.parametrize(
    ("profiles", "wish"),
    [
        (HALVES, {"enabled": True, "profiles": (("3g.40gb", 2),)}),
        (["1g.10gb+me"], {"enabled": True, "profiles": (("1g.10gb+me", 1),)}),
        (None, {"enabled": False}),
    ],
)
def test_each_strategy_is_verified_by_its_own_labels(strategy: str, profiles: Any, wish: Any) -> None:
    found = scene(gpu_node(NAME, strategy, profiles=[SEVEN], config=OLD))
    found.node()["spec"]["unschedulable"] = True
    found.labelled({CONFIG: NEW}, "gpuctl", 0).annotated({SET_BY: RUN})
    fresh(state(found, "success", 50).sliced(profiles)).caught_up(strategy).at(120)
    step = msgspec.structs.replace(VERIFY, wanted=(Wish(gpu=0, **wish),))
    assert holds(step, found), progress(step, found)
    assert not holds(msgspec.structs.replace(VERIFY, wanted=WAS), found)


@pytest.mark.parametrize("profiles", [SEVEN, ["3g.40gb"], None, ["4g.40gb", "3g.40gb"]])
def test_a_lie_with_success_is_never_verified(profiles: Any) -> None:
    found = fresh(state(asked(), "success", 50).sliced(profiles)).caught_up().at(120)
    assert not holds(VERIFY, found)
    assert not holds(AGAIN, found)
    assert stuck(VERIFY, found).startswith(
        "MIG manager says success on node gpu-1, but nvidia-smi shows GPU 0"
    )


def test_a_gpu_that_is_gone_is_not_verified() -> None:
    two = (*WANTED, Wish(gpu=1, enabled=False))
    step = msgspec.structs.replace(VERIFY, wanted=two)
    assert not holds(step, changed())
    assert "GPU 1 is gone" in stuck(step, changed())


def test_what_nvidia_smi_does_not_tell_is_not_verified() -> None:
    found = changed()
    found.told[NAME, "nvidia-smi-L"] = Unknown(Reason.TIMEOUT, "hung")
    with pytest.raises(NotKnown):
        holds(VERIFY, found)
    assert stuck(VERIFY, found) == ""
    assert "hung" in progress(VERIFY, found)


def test_both_looks_must_agree() -> None:
    found = changed()
    found.later = fresh(state(asked(), "success", 50).sliced(["3g.40gb"])).caught_up()
    assert holds(VERIFY, found)
    assert not holds(AGAIN, found)
    found = changed()
    found.later = changed().labelled({CONFIG: "all-2g.20gb"})
    assert not holds(AGAIN, found)


# Taking it back


def test_what_was_never_asked_for_needs_no_undoing() -> None:
    assert undone(SET, cordoned())
    assert undone(SET, asked().annotated({SET_BY: "run-2"}))
    found = asked()
    found.node()["metadata"]["uid"] = "another"
    assert undone(SET, found)


def test_it_asks_for_the_old_one_and_waits_until_it_is_there() -> None:
    found = changed()
    assert not undone(SET, found)
    assert hampered(SET, found) == ""
    undo(SET, found)
    assert (label(found), mark(found)) == (OLD, f"{RUN}:undo")
    assert not undone(SET, found)

    found.labelled({CONFIG: OLD}, "gpuctl", 130)
    state(found, "pending", 131)
    assert (undone(SET, found), mark(undo(SET, found))) == (False, f"{RUN}:undo")

    state(found, "success", 150).sliced(SEVEN)
    assert (undone(SET, found), mark(undo(SET, found))) == (False, f"{RUN}:undo")  # the kubelet lags

    found.caught_up()
    undo(SET, found)
    assert (label(found), mark(found)) == (OLD, None)
    assert undone(SET, found)


def test_stale_success_is_not_the_way_back() -> None:
    found = undo(SET, changed()).labelled({CONFIG: OLD}, "gpuctl", 130)
    assert found.node()["metadata"]["labels"][STATE] == "success"
    assert mark(undo(SET, found)) == f"{RUN}:undo"
    assert hampered(SET, found) == ""


def test_a_lie_on_the_way_back_is_named() -> None:
    found = undo(SET, changed()).labelled({CONFIG: OLD}, "gpuctl", 130)
    state(found, "success", 140)
    assert "says success" in hampered(SET, found)
    assert not undone(SET, found)


def test_a_manager_at_work_is_waited_for_before_it_is_asked_again() -> None:
    found = state(asked(), "pending", 10).at(60)
    assert label(undo(SET, found)) == NEW
    assert hampered(SET, found) == ""
    state(found, "failed", 70).at(80)
    assert label(undo(SET, found)) == OLD


def test_a_wedged_one_is_not_waited_for() -> None:
    assert label(undo(SET, wedged(1860))) == OLD
    gone = state(asked(), "pending", 10).drop("Pod", "mig-manager-gpu-1").at(60)
    assert label(undo(SET, gone)) == OLD


def test_gpus_in_use_hamper_the_way_back() -> None:
    found = changed().add(holder(), job())
    assert "are in use by team-a/train-0" in hampered(SET, found)
    assert hampered(msgspec.structs.replace(SET, restores=()), found) == ""


def with_a_process(found: MigScene) -> MigScene:
    """One of no pod holds a GPU of it."""
    held = Process(gpu=0, pid=4711, name="python", memory=1024, gi=1, ci=0)
    states = {**found.states, NAME: replace(found.states[NAME], processes=(held,))}
    return replace(found, states=states)


def test_a_process_that_no_pod_explains_hampers_the_way_back() -> None:
    found = with_a_process(changed())
    assert "a process that no pod explains holds a GPU of node gpu-1: 4711 (python)" in hampered(SET, found)
    assert "4711 (python)" in hampered(SET, state(found, "failed", 50))
    assert hampered(msgspec.structs.replace(SET, restores=()), found) == ""


def test_a_process_that_ends_by_itself_hampers_nothing() -> None:
    assert hampered(SET, replace(with_a_process(changed()), later=changed())) == ""


def test_nobody_looks_for_processes_while_mig_manager_may_be_at_work() -> None:
    """Before it has answered this run, or once it is asked for the way back."""
    assert hampered(SET, with_a_process(asked())) == ""
    assert hampered(SET, with_a_process(state(asked(), "pending", 10))) == ""
    going = undo(SET, changed()).labelled({CONFIG: OLD}, "gpuctl", 130)
    assert hampered(SET, with_a_process(going)) == ""


def test_a_failure_on_the_way_back_is_named() -> None:
    found = undo(SET, changed()).labelled({CONFIG: OLD}, "gpuctl", 130)
    state(found, "failed", 140)
    assert "failed to apply all-1g.10gb" in hampered(SET, found)
    assert "then undo again" in hampered(SET, found)
    assert not undone(SET, found)


def test_a_wedge_on_the_way_back_is_named() -> None:
    found = undo(SET, changed()).labelled({CONFIG: OLD}, "gpuctl", 130)
    beat(state(found, "pending", 131), 131 + 1860)
    assert "MIG manager is wedged" in hampered(SET, found)


def test_a_label_that_was_absent_is_taken_away_and_no_more() -> None:
    step = SetConfig(**AT, old="", new=NEW)
    found = undo(step, changed())
    assert (label(found), mark(found)) == (None, f"{RUN}:undo")
    assert not undone(step, found)
    undo(step, found)
    assert undone(step, found)
    assert "stay as they are" in step.undoes


def test_an_unknown_old_configuration_gives_the_label_back_and_no_more() -> None:
    step = SetConfig(**AT, old="gone", new=NEW)
    found = undo(step, undo(step, changed()))
    assert (label(found), mark(found)) == ("gone", None)
    assert "gives no GPU back" in step.undoes


def test_anothers_label_is_not_taken_back() -> None:
    found = state(asked(), "pending", 10).labelled({CONFIG: "all-2g.20gb"}, "kubectl-label", 20).at(60)
    assert mark(undo(SET, found)) == RUN  # while MIG manager is at work
    state(found, "success", 70).at(75)
    assert mark(undo(SET, found)) == RUN  # it may be of our change still, and the other's may come at once
    undo(SET, found.at(80))
    assert (label(found), mark(found)) == ("all-2g.20gb", None)
    assert undone(SET, found)


def test_anothers_label_that_failed_hampers() -> None:
    found = state(asked(), "pending", 10).labelled({CONFIG: "all-2g.20gb"}, "kubectl-label", 20)
    state(found, "failed", 70).at(80)
    assert "failed to apply all-2g.20gb" in hampered(SET, found)
    assert not undone(SET, found)


def test_the_old_label_set_by_hand_is_followed_as_our_own() -> None:
    found = changed().labelled({CONFIG: OLD}, "kubectl-label", 130)
    assert (label(undo(SET, found)), mark(found)) == (OLD, f"{RUN}:undo")


def test_the_way_back_can_be_walked_again_and_again() -> None:
    found = undo(SET, undo(SET, undo(SET, changed())))
    assert (label(found), mark(found)) == (OLD, f"{RUN}:undo")


def test_an_uncordoned_node_is_not_taken_back() -> None:
    found = changed()
    del found.node()["spec"]["unschedulable"]
    with pytest.raises(Conflict):
        undo(SET, found)
    assert label(found) == NEW


def test_the_rest_has_nothing_to_undo() -> None:
    for step in (FOLLOW, SETTLED, VERIFY, AGAIN):
        assert undone(step, changed())
        assert step.undoes == ""
        assert not step.held
