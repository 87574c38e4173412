"""The cordon and the word to NVSentinel: what this run did is undone, what others did is not touched."""

from __future__ import annotations

from typing import Any

import pytest

from gpuctl.runbook.drain.cordon import (
    CORDONED_BY,
    DRAINED_BY,
    SENTINEL_KEPT_OFF_BY,
    SENTINEL_LABEL,
    Cordon,
    KeepSentinelOff,
    StayCordoned,
    sees_sentinel,
)
from gpuctl.runbook.step import Step
from gpuctl.runbook.target import NODE
from gpuctl.runbook.writer import Conflict
from tests.runbook.drain import scenes
from tests.runbook.drain.scenes import NAME, RUN, UID, Scene, scene

OTHERS = {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
CORDON = Cordon(node=NAME, node_uid=UID)
STAY = StayCordoned(node=NAME, node_uid=UID)


def on(spec: dict[str, Any] | None = None, **about: Any) -> Scene:
    made = scenes.node(**about)
    made["spec"] = spec or {}
    return scene(made)


def act(step: Step, found: Scene) -> None:
    step.act(found.look(step.needs), found.writer)


def undo(step: Step, found: Scene) -> None:
    step.undo(found.look(step.needs), found.writer)


def holds(step: Step, found: Scene) -> bool:
    return step.holds(found.look(step.needs))


def undone(step: Step, found: Scene) -> bool:
    return step.undone(found.look(step.needs))


def stuck(step: Step, found: Scene) -> str:
    return step.stuck(found.look(step.needs))


def the_node(found: Scene) -> dict[str, Any]:
    return found.items[0]


def marks_of(found: Scene) -> dict[str, str]:
    marks: dict[str, str] = the_node(found)["metadata"].get("annotations", {})
    return marks


@pytest.mark.parametrize("before", [{}, {"annotations": OTHERS}])
def test_a_cordon_bears_its_mark_and_goes_with_it(before: dict[str, Any]) -> None:
    found = on(**before)
    assert not holds(CORDON, found)
    act(CORDON, found)
    assert holds(CORDON, found)
    assert the_node(found)["spec"] == {"unschedulable": True}
    assert marks_of(found) == {**before.get("annotations", {}), CORDONED_BY: RUN}
    assert not undone(CORDON, found)
    undo(CORDON, found)
    assert undone(CORDON, found)
    assert the_node(found)["spec"] == {}
    assert marks_of(found) == before.get("annotations", {})


def test_anothers_cordon_of_before_is_kept_and_never_undone() -> None:
    found = on({"unschedulable": True})
    step = Cordon(node=NAME, node_uid=UID, before=True)
    assert holds(step, found)
    assert undone(step, found)
    assert step.undoes == ""
    the_node(found)["spec"] = {}
    assert stuck(step, found) == "node gpu-1 was cordoned when the plan was made, and is not any more"


def test_anothers_cordon_between_intent_and_act_is_not_taken_for_ours() -> None:
    found = on()
    seen = found.look(CORDON.needs)
    the_node(found)["spec"] = {"unschedulable": True}
    with pytest.raises(Conflict):
        CORDON.act(seen, found.writer)
    assert holds(CORDON, found)
    assert undone(CORDON, found)
    assert marks_of(found) == {}


def test_somebody_who_uncordons_is_noticed() -> None:
    found = on(annotations=OTHERS)
    act(CORDON, found)
    del the_node(found)["spec"]["unschedulable"]
    assert not holds(CORDON, found)
    assert stuck(CORDON, found) == "node gpu-1 was cordoned by this run, and uncordoned by somebody else"
    undo(CORDON, found)
    assert marks_of(found) == OTHERS
    assert undone(CORDON, found)


@pytest.mark.parametrize("left", [CORDONED_BY, DRAINED_BY])
def test_the_left_over_mark_of_an_earlier_run_is_in_nobodys_way(left: str) -> None:
    found = on(annotations={left: "run-0"})
    assert stuck(CORDON, found) == ""
    act(CORDON, found)
    assert marks_of(found) == {CORDONED_BY: RUN}
    undo(CORDON, found)
    assert marks_of(found) == {}


def test_a_mark_that_changed_in_between_refuses_the_patch() -> None:
    found = on(annotations=OTHERS)
    act(CORDON, found)
    seen = found.look(CORDON.needs)
    marks_of(found)[CORDONED_BY] = "run-2"
    with pytest.raises(Conflict):
        CORDON.undo(seen, found.writer)
    assert the_node(found)["spec"] == {"unschedulable": True}
    assert undone(CORDON, found)


@pytest.mark.parametrize("step", [CORDON, STAY, KeepSentinelOff(node=NAME, node_uid=UID)])
def test_another_node_of_the_same_name_is_not_touched(step: Step) -> None:
    found = on({"unschedulable": True}, labels={SENTINEL_LABEL: "false"})
    the_node(found)["metadata"]["uid"] = "another"
    assert not holds(step, found)
    assert "was replaced by another of the same name: uid another, not uid-of-gpu-1" in stuck(step, found)
    assert undone(step, found)  # ours went with the node
    with pytest.raises(Conflict):
        CORDON.act(on().look(CORDON.needs), found.writer)


def test_a_drained_node_stays_cordoned_after_the_run() -> None:
    found = on(annotations=OTHERS)
    act(CORDON, found)
    assert not holds(STAY, found)
    act(STAY, found)
    assert holds(STAY, found)
    assert undone(CORDON, found)
    assert the_node(found)["spec"] == {"unschedulable": True}
    assert marks_of(found) == {**OTHERS, DRAINED_BY: RUN}
    undo(STAY, found)
    assert undone(STAY, found)
    undo(CORDON, found)
    assert the_node(found)["spec"] == {}
    assert marks_of(found) == OTHERS


def test_of_anothers_cordon_nothing_is_handed_over() -> None:
    found = on({"unschedulable": True})
    assert holds(STAY, found)
    assert undone(STAY, found)
    assert not holds(STAY, on())


# NVSentinel


@pytest.mark.parametrize("before", ["", "true"])
def test_nvsentinel_is_kept_off_and_let_on_again(before: str) -> None:
    labels = {SENTINEL_LABEL: before} if before else {"a": "b"}
    found = on(labels=dict(labels))
    step = KeepSentinelOff(node=NAME, node_uid=UID, before=before)
    assert not holds(step, found)
    act(step, found)
    assert holds(step, found)
    assert marks_of(found) == {SENTINEL_KEPT_OFF_BY: RUN}
    undo(step, found)
    assert undone(step, found)
    assert the_node(found)["metadata"]["labels"] == labels
    assert marks_of(found) == {}


def test_whoever_kept_nvsentinel_off_before_goes_on_to() -> None:
    found = on(labels={SENTINEL_LABEL: "false"})
    step = KeepSentinelOff(node=NAME, node_uid=UID, before="false")
    assert holds(step, found)
    assert undone(step, found)


def test_a_label_that_another_changed_is_left_as_it_is() -> None:
    found = on(labels={"a": "b"})
    step = KeepSentinelOff(node=NAME, node_uid=UID)
    act(step, found)
    the_node(found)["metadata"]["labels"][SENTINEL_LABEL] = "true"
    assert SENTINEL_KEPT_OFF_BY in stuck(step, found)
    undo(step, found)
    assert the_node(found)["metadata"]["labels"][SENTINEL_LABEL] == "true"
    assert marks_of(found) == {}


@pytest.mark.parametrize(
    ("labels", "there"),
    [
        ({"dgxc.nvidia.com/nvsentinel-state": "healthy"}, True),
        ({SENTINEL_LABEL: "true"}, True),
        ({"nvidia.com/gpu.present": "true"}, False),
    ],
)
def test_nvsentinel_is_known_by_its_labels(labels: dict[str, str], there: bool) -> None:
    assert sees_sentinel(on(labels=labels).look([NODE])[NODE]) is there
