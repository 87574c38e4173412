"""taint-unmigged: which node is tainted, which is left alone, whose taint is taken away, and who notices."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpuctl.audit.policy import Policy, RunbooksPolicy
from gpuctl.nvidia.node import CONFIG, STATE
from gpuctl.runbook.mig.taint_steps import KEY, TAINTED_BY, PutTaint, TakeTaint
from gpuctl.runbook.mig.taint_unmigged import RUNBOOK, reverse
from gpuctl.runbook.owned import to_be_applied
from gpuctl.runbook.records import Outcome
from gpuctl.runbook.writer import Conflict
from tests.builders.gpus import pod
from tests.runbook.booked import (
    MANAGER,
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
from tests.runbook.mig.breakages import (
    Break,
    Refusal,
    another_owner,
    asked,
    blind,
    both,
    by_gitops,
    name_of,
)
from tests.runbook.mig.mig_scenes import NAME, OPEN, RUN, UID, holder
from tests.runbook.mig.node_world import ID

pytestmark = pytest.mark.usefixtures("no_thread")

OURS = {"key": KEY, "value": "all-1g.10gb", "effect": "NoSchedule"}
OTHERS = {"key": "team", "value": "research", "effect": "NoSchedule", "timeAdded": "2026-11-01T00:00:00Z"}
SLICE, HALF = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"


def unmigged(**options: Any) -> BookScene:
    return failed(booked(RUNBOOK, **options))


def otherwise() -> BookScene:
    """Sliced otherwise than asked for; it offers what it has."""
    scene = booked(RUNBOOK)
    scene.sliced(("3g.40gb",) * 2).caught_up()
    return scene


def tainted(scene: BookScene, mark: str = "r0") -> BookScene:
    scene.node()["spec"]["taints"] = [dict(OURS)]
    return scene.annotated({TAINTED_BY: mark}) if mark else scene  # type: ignore[return-value]


def waiting(name: str = "train-1", **spec: Any) -> dict[str, Any]:
    made = pod(name, "", asks={SLICE: 1})
    made["spec"] |= spec
    return made


def steps(scene: BookScene) -> list[str]:
    return [str(each.step["step"]) for each in scene.plan.steps]


# Which nodes


@pytest.mark.parametrize("change", [failed, wedged])
def test_a_node_that_is_not_as_labelled_is_tainted(change: Any) -> None:
    plan = change(booked(RUNBOOK)).plan
    assert plan.blockers == ()
    assert [each.says for each in plan.steps] == [f"taint node {NAME} {KEY}=all-1g.10gb:NoSchedule"]


def test_other_geometry_than_asked_for_is_not_as_labelled() -> None:
    assert steps(otherwise()) == ["PutTaint"]


def test_stale_capacity_is_not_as_labelled() -> None:
    scene = booked(RUNBOOK)
    scene.node()["status"]["capacity"]["nvidia.com/mig-3g.40gb"] = "2"
    assert steps(scene) == ["PutTaint"]


def test_a_node_as_labelled_is_left_alone() -> None:
    plan = booked(RUNBOOK).plan
    assert (plan.blockers, plan.steps) == ((), ())
    assert any("as labelled" in note for note in plan.notes)


def test_a_node_without_the_label_is_left_alone() -> None:
    scene = booked(RUNBOOK)
    scene.labelled({CONFIG: None})
    plan = scene.plan
    assert (plan.blockers, plan.steps) == ((), ())
    assert any("has no label" in note for note in plan.notes)


@pytest.mark.parametrize("option", [{}, {"reconcile": True}])
def test_a_node_that_is_being_changed_is_left_as_it_is(option: dict[str, Any]) -> None:
    scene = tainted(booked(RUNBOOK, **option)) if option else booked(RUNBOOK)
    scene.labelled({STATE: "pending"}, MANAGER, -60)
    plan = scene.plan
    assert (plan.blockers, plan.steps) == ((), ())
    assert any("is being changed" in note for note in plan.notes)
    assert not any("is being changed" in note for note in wedged(booked(RUNBOOK)).plan.notes)


def test_what_can_t_be_looked_at_blocks() -> None:
    scene = booked(RUNBOOK)
    scene.states.pop(NAME)
    assert against(scene, "can't be told whether MIG")
    assert not against(booked(RUNBOOK), "can't be told")


def test_a_failed_node_that_can_t_be_looked_at_is_tainted_all_the_same() -> None:
    scene = unmigged()
    scene.states.pop(NAME)
    assert messages(scene) == []
    assert steps(scene) == ["PutTaint"]


# Guards


def intolerant(scene: BookScene) -> None:
    scene.tolerating({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"})


def of_another(scene: BookScene) -> None:
    tainted(scene, "")
    asked(remove=True)(scene)


def right(scene: BookScene) -> None:
    """As labelled, by the word of the API."""
    scene.sliced(("1g.10gb",) * 7).labelled({STATE: "success"}, MANAGER, -600)
    scene.caught_up()


def unpooled(scene: BookScene) -> None:
    """It offers something, and nothing tells of which pool."""
    scene.sliced(("3g.40gb",) * 2).caught_up()
    scene.labelled({"nvidia.com/gpu.product": None})


REFUSED: list[Refusal] = [
    (another_owner, "manager-decides", "HAMi decides"),
    (of_another, "standing-is-known", "is another's"),
    (both(right, blind), "standing-is-known", "can't be told whether MIG"),
    (intolerant, "operands-tolerate-it", "would not come back"),
    (unpooled, "pool-stays-untainted", "its pool can't be told"),
    (by_gitops, "not-owned-elsewhere", "is kept by Argo CD"),
    (asked(patch_only=True), "to-be-applied", "only printed"),
]


@pytest.mark.parametrize(("breaks", "guard", "words"), REFUSED, ids=name_of)
def test_it_refuses(breaks: Break, guard: str, words: str) -> None:
    refuses(unmigged, breaks, guard, words)


@pytest.mark.parametrize(
    "mark", ["maintenance.nvidia.com/x", "k8saas.nvidia.com/cordon-by", "remediation.medik8s.io/x"]
)
def test_a_node_that_another_holds_is_left_alone(mark: str) -> None:
    scene = unmigged()
    scene.annotated({mark: "yes"})
    assert against(scene, "held by another")
    assert not against(unmigged(), "held by another")


def test_operands_that_would_stay_away_are_named() -> None:
    scene = unmigged()
    intolerant(scene)
    assert against(scene, "would not come back")
    assert scene.with_(although_operands_stay_away=True).plan.blockers == ()
    assert messages(unmigged().tolerating({"key": KEY, "operator": "Exists"})) == []
    assert not against(tainted(scene.with_(remove=True)), "would not come back")


def test_enough_of_the_pool_stays_untainted() -> None:
    half = Policy(runbooks=RunbooksPolicy(windows=(OPEN,), max_pool_share=0.5))
    scene = replace(otherwise(), policy=half)
    assert messages(scene) == []
    scene.node("gpu-2")["metadata"].setdefault("annotations", {})[TAINTED_BY] = "r0"
    assert against(scene, "would be out of service")
    scene.labelled({"nvidia.com/gpu.product": None})
    assert against(scene, "its pool can't be told")
    scene.node()["status"]["allocatable"] = {HALF: "0", "cpu": "8"}
    assert messages(scene) == []


def test_another_owner_of_the_geometry_is_left_to_it() -> None:
    scene = unmigged()
    another_owner(scene)
    assert against(scene, "HAMi decides")


def test_a_node_that_gitops_keeps_is_left_to_it() -> None:
    scene = unmigged()
    by_gitops(scene)
    assert against(scene, "is kept by Argo CD")
    assert messages(scene.with_(although_owned=True)) == []
    assert not against(unmigged(), "is kept by")


def test_the_patch_alone_is_printed_and_never_applied() -> None:
    plan = unmigged(patch_only=True).plan
    assert plan.steps == ()
    assert [each.guard for each in plan.blockers] == [to_be_applied.id]
    assert any(each.startswith("the patch: kubectl patch nodes/gpu-1") for each in plan.effects)
    gone = tainted(booked(RUNBOOK, remove=True, patch_only=True)).plan
    assert any('"op": "remove"' in each for each in gone.effects)


# Taking away


def test_a_node_that_is_right_again_is_untainted() -> None:
    plan = tainted(booked(RUNBOOK, reconcile=True)).plan
    assert plan.blockers == ()
    assert [each.step["step"] for each in plan.steps] == ["TakeTaint"]


@pytest.mark.parametrize("mark", ["", None])
def test_nothing_without_the_mark_is_taken_away(mark: str | None) -> None:
    scene = tainted(booked(RUNBOOK, reconcile=True), mark or "")
    plan = scene.plan
    assert (plan.blockers, plan.steps) == ((), ())
    assert any("is another's" in note for note in plan.notes)
    assert against(scene.with_(reconcile=False, remove=True), "is another's")


def test_a_node_that_is_still_wrong_keeps_its_taint() -> None:
    plan = tainted(unmigged(reconcile=True)).plan
    assert (plan.blockers, plan.steps) == ((), ())
    assert any("stays" in note for note in plan.notes)


def test_reconciling_must_be_able_to_look() -> None:
    scene = tainted(booked(RUNBOOK, reconcile=True))
    scene.states.pop(NAME)
    assert against(scene, "can't be told whether MIG")


def test_a_taint_is_removed_whatever_the_node_is_like() -> None:
    scene = tainted(unmigged(remove=True))
    scene.states.pop(NAME)
    assert messages(scene) == []
    assert steps(scene) == ["TakeTaint"]


def test_without_a_taint_there_is_nothing_to_take_away() -> None:
    for option in ("reconcile", "remove"):
        plan = booked(RUNBOOK, **{option: True}).plan
        assert (plan.blockers, plan.steps) == ((), ())


def test_the_mark_of_a_taint_that_somebody_removed_is_taken_away() -> None:
    scene = booked(RUNBOOK, remove=True)
    scene.annotated({TAINTED_BY: "r0"})
    world = World(scene)
    assert world.begin().outcome is Outcome.SUCCEEDED
    assert world.marks == set()


def test_a_node_that_bears_the_taint_already_is_left_alone() -> None:
    for mark in ("r0", ""):
        plan = tainted(unmigged(), mark).plan
        assert (plan.blockers, plan.steps) == ((), ())


# Who notices


def test_the_plan_says_who_stays_and_who_is_kept_off() -> None:
    scene = unmigged()
    tolerant = [{"key": KEY, "operator": "Exists"}]
    scene.add(holder(), waiting(), waiting("train-2", tolerations=tolerant))
    scene.node()["status"]["capacity"][SLICE] = "7"
    effects = " / ".join(scene.plan.effects)
    assert "1 pod (team-a/train-0) hold its GPUs and stay" in effects
    assert "1 pod (team-a/train-1) wait for what it offers, and are kept off" in effects
    assert "1 pod (team-a/train-2) wait for what it offers, and tolerate" in effects


def test_a_pod_that_selects_another_node_does_not_notice() -> None:
    scene = unmigged()
    scene.node()["status"]["capacity"][SLICE] = "7"
    scene.add(waiting(nodeSelector={"kubernetes.io/hostname": "gpu-2"}))
    assert "no pod waits for what the node offers" in scene.plan.effects


def test_pods_that_can_t_be_read_are_said_to_be_unknown() -> None:
    scene = unmigged()
    scene.add(waiting())
    object_ = scene.one("Pod", "train-1")
    object_["spec"]["containers"] = "?"
    assert any("can't be told who waits" in each for each in scene.plan.effects)


# The steps


def test_other_taints_stay_word_for_word() -> None:
    scene = unmigged()
    scene.node()["spec"]["taints"] = [dict(OTHERS)]
    world = World(scene)
    assert world.begin().outcome is Outcome.SUCCEEDED
    assert world.taints == [OTHERS, OURS]
    back = World(replace(scene, options={"remove": True}))
    plan = back.scene.plan
    assert [each.step["step"] for each in plan.steps] == ["TakeTaint"]


def test_a_list_that_changed_in_between_is_not_written_over() -> None:
    scene = replace(unmigged(), run=RUN)
    step = PutTaint(node=NAME, node_uid=UID, value="all-1g.10gb")
    facts = scene.look(step.needs)
    scene.node()["spec"]["taints"] = [dict(OTHERS)]
    with pytest.raises(Conflict):
        step.act(facts, scene.writer)
    assert scene.node()["spec"]["taints"] == [OTHERS]


def test_anothers_taint_is_never_taken_for_ours() -> None:
    scene = tainted(replace(unmigged(), run=RUN), "")
    step = PutTaint(node=NAME, node_uid=UID, value="all-1g.10gb")
    facts = scene.look(step.needs)
    assert not step.holds(facts)
    assert "of another" in step.stuck(facts)
    assert step.undone(facts)


def test_a_taint_that_was_taken_away_stops_the_run() -> None:
    scene = replace(unmigged(), run=RUN)
    scene.annotated({TAINTED_BY: RUN})
    step = PutTaint(node=NAME, node_uid=UID, value="all-1g.10gb")
    assert "somebody took the taint" in step.stuck(scene.look(step.needs))


def test_the_taint_of_another_run_is_not_taken_away() -> None:
    scene = tainted(replace(booked(RUNBOOK), run=RUN), "r7")
    step = TakeTaint(node=NAME, node_uid=UID, value="all-1g.10gb", mark="r0")
    facts = scene.look(step.needs)
    assert "of run r7" in step.stuck(facts)
    with pytest.raises(Conflict):
        step.act(facts, scene.writer)


# Whole runs


def is_tainted(world: World) -> None:
    assert world.taints == [OURS]
    assert world.marks == {TAINTED_BY}
    assert not world.locks


def is_clean(world: World) -> None:
    assert "taints" not in world.scene.node()["spec"]
    assert world.marks == set()
    assert not world.locks


def test_killed_anywhere_a_taint_is_put_or_taken_back() -> None:
    resumed_everywhere(lambda: World(unmigged()), is_tainted)
    undone_everywhere(lambda: World(unmigged()), is_clean, is_tainted)


def test_killed_anywhere_a_taint_is_taken_away_or_put_back() -> None:
    def make() -> World:
        return World(tainted(booked(RUNBOOK, reconcile=True)))

    resumed_everywhere(make, is_clean)
    undone_everywhere(make, is_tainted, is_clean)


def test_a_write_that_fails_anywhere_is_made_again() -> None:
    disturbed_everywhere(lambda: World(unmigged()), is_tainted)
    disturbed_everywhere(lambda: World(tainted(booked(RUNBOOK, reconcile=True))), is_clean)


def test_the_undo_of_a_taint_is_its_removal_and_the_other_way_round() -> None:
    world = World(unmigged())
    world.begin()
    assert reverse(world.journals[ID]) == {"reconcile": False, "remove": True}
    other = World(tainted(booked(RUNBOOK, reconcile=True)))
    other.begin()
    assert reverse(other.journals[ID]) == {"reconcile": False, "remove": False}
    nothing = World(booked(RUNBOOK))
    nothing.begin()
    assert reverse(nothing.journals[ID]) is None
