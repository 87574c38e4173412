"""The step that drains, against a cluster in memory that can refuse, delay and change under it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpuctl.audit.policy import DrainPolicy
from gpuctl.facts.gather import gather
from gpuctl.facts.state import NotKnown, Reason, Unknown
from gpuctl.runbook.drain.evict import DELETES, EVICTS, Drain, drain_step
from gpuctl.runbook.drain.runbook import DRAINING
from gpuctl.runbook.plan import ALLOWED
from gpuctl.runbook.records import Bounds
from gpuctl.runbook.writer import Fenced, WriteFailed
from tests.memory import MemoryReader
from tests.runbook.drain import scenes
from tests.runbook.drain.scenes import Scene, ref, scene
from tests.runbook.memory_writer import Call, MemoryWriter

STEP = drain_step(DRAINING)


def planned(found: Scene, **changes: Any) -> Drain:
    return msgspec.structs.replace(found.look([STEP])[STEP], **changes)


def done(step: Drain, found: Scene) -> bool:
    return step.holds(found.look(step.needs))


def stuck(step: Drain, found: Scene) -> str:
    return step.stuck(found.look(step.needs))


def progress(step: Drain, found: Scene) -> str:
    return step.progress(found.look(step.needs))


def act(step: Drain, found: Scene, writer: MemoryWriter) -> list[str]:
    """What one round asks for."""
    before = len(writer.calls)
    step.act(found.look(step.needs), writer)
    return [str(call) for call in writer.calls[before:]]


def test_pods_are_evicted_with_their_uids_until_none_is_left() -> None:
    found = scene(
        scenes.pod("one"),
        scenes.pod("two"),
        scenes.pod("plugin", owner=("DaemonSet", "d")),
        scenes.controller("DaemonSet", "d"),
    )
    step, writer = planned(found), found.writer
    assert not done(step, found)
    assert act(step, found, writer) == ["evict Pod team-a/one", "evict Pod team-a/two"]
    assert [call.uid for call in writer.calls] == ["uid-of-one", "uid-of-two"]
    assert done(step, found)
    assert act(step, found, writer) == []


def test_a_pod_that_takes_its_time_is_waited_for_and_asked_once() -> None:
    found = scene(scenes.pod())
    step, writer = planned(found), found.writer
    writer.lingers = lambda _: True
    assert act(step, found, writer) == ["evict Pod team-a/llm-0"]
    assert act(step, found, writer) == []
    assert not done(step, found)
    late = found.later(90)
    assert progress(step, found) == "1 pod to go; ending: team-a/llm-0"
    assert progress(step, late) == "1 pod to go; ending: team-a/llm-0 (beyond its time)"
    assert stuck(step, late) == ""  # it may still come to its end: never by force
    writer.gone(ref("llm-0"))
    assert done(step, found)


def test_the_step_survives_a_journal() -> None:
    found = scene(scenes.pod(), policy=DrainPolicy(modes={"x-*": "evict-after"}))
    step = planned(found)
    assert msgspec.convert(msgspec.to_builtins(step), Drain) == step
    assert msgspec.json.decode(msgspec.json.encode(step), type=Drain) == step


# PodDisruptionBudgets


def test_a_budget_holds_a_pod_back_until_it_lets_go_and_is_named_meanwhile() -> None:
    closed = scenes.budget(allowed=0, healthy=1, needed=1, expected=1)
    found = scene(scenes.pod(), closed)
    step, writer = planned(found), found.writer
    assert act(step, found, writer) == ["evict Pod team-a/llm-0"]
    assert not done(step, found)
    assert progress(step, found.later(61)) == (
        "1 pod to go; held back by PodDisruptionBudget team-a/llm (allows 0, 1 of 1 healthy, 1 needed): "
        "team-a/llm-0"
    )
    found.items[-1]["status"]["disruptionsAllowed"] = 1
    act(step, found, writer)
    assert done(step, found)


def test_what_a_round_uses_up_itself_is_no_failure() -> None:
    found = scene(scenes.pod("a"), scenes.pod("b"), scenes.budget(allowed=1))
    step, writer = planned(found), found.writer
    act(step, found, writer)
    assert [item["metadata"]["name"] for item in found.items if item["kind"] == "Pod"] == ["b"]
    assert "held back by PodDisruptionBudget team-a/llm (allows 0" in progress(step, found)


def test_one_that_is_held_back_keeps_no_other() -> None:
    found = scene(
        scenes.pod("a", labels={"app": "held"}),
        scenes.pod("b"),
        scenes.budget(allowed=0, selector={"app": "held"}),
    )
    step, writer = planned(found), found.writer
    act(step, found, writer)
    assert [item["metadata"]["name"] for item in found.items if item["kind"] == "Pod"] == ["a"]


def test_a_refusal_that_no_budget_explains_is_told_as_the_server_put_it() -> None:
    found = scene(scenes.pod(), scenes.budget(allowed=0))
    step = planned(found)
    blind = found.with_(missing={"poddisruptionbudgets.policy": Unknown(Reason.FORBIDDEN, "no")})
    with pytest.raises(WriteFailed, match="would violate the pod's disruption budget"):
        act(step, blind, found.writer)


def test_deleting_goes_past_budgets_only_where_it_was_asked_for() -> None:
    found = scene(
        scenes.pod(), scenes.budget(allowed=0), options={"disable_eviction": True, "grace_period": 5}
    )
    step, writer = planned(found), found.writer
    assert step.deletes
    assert step.rules == {DELETES}
    assert act(step, found, writer) == ["delete Pod team-a/llm-0"]
    assert writer.calls[0].what == 5
    assert planned(scene(scenes.pod())).rules == {EVICTS}


# What fails


def test_a_failure_with_one_pod_keeps_no_other_and_is_told() -> None:
    found = scene(scenes.pod("one"), scenes.pod("two"))
    step, writer = planned(found), found.writer

    def fail(call: Call) -> None:
        if call.ref.name == "one":
            raise WriteFailed(Unknown(Reason.SERVER_ERROR, "500", str(call.ref)))

    writer.before = fail
    with pytest.raises(WriteFailed, match="500"):
        act(step, found, writer)
    assert writer.written == ["evict Pod team-a/one", "evict Pod team-a/two"]
    writer.before = lambda _: None
    act(step, found, writer)
    assert done(step, found)


def test_an_answer_that_was_lost_costs_nothing() -> None:
    found = scene(scenes.pod())
    step, writer = planned(found), found.writer

    def lose(_: Call) -> None:
        raise WriteFailed(Unknown(Reason.TIMEOUT, "no answer"))

    writer.after = lose
    with pytest.raises(WriteFailed):
        act(step, found, writer)
    assert done(step, found)


def test_a_refusal_for_good_comes_before_one_that_may_pass() -> None:
    found = scene(scenes.pod("one"), scenes.pod("two"))
    step, writer = planned(found), found.writer

    def fail(call: Call) -> None:
        raise WriteFailed(Unknown(Reason.FORBIDDEN, "403"), hopeless=call.ref.name == "two")

    writer.before = fail
    with pytest.raises(WriteFailed) as failed:
        act(step, found, writer)
    assert failed.value.hopeless


def test_a_lost_lock_ends_the_round_at_once() -> None:
    found = scene(scenes.pod("one"), scenes.pod("two"))
    step, writer = planned(found), found.writer

    def lost(_: Call) -> None:
        raise Fenced

    writer.before = lost
    with pytest.raises(Fenced):
        act(step, found, writer)
    assert writer.written == ["evict Pod team-a/one"]


def test_a_stateful_pod_of_the_same_name_elsewhere_is_never_touched() -> None:
    found = scene(scenes.pod("db-0", owner=("StatefulSet", "db")))
    step, writer = planned(found), found.writer
    seen = found.look(step.needs)
    there = found.items[-1]
    there["metadata"]["uid"], there["spec"]["nodeName"] = "another", "gpu-2"
    step.act(seen, writer)  # looked at before it moved: the server refuses by the uid
    assert there in found.items
    assert "deletionTimestamp" not in there["metadata"]
    assert done(step, found)
    assert act(step, found, writer) == []


def test_what_can_t_be_read_is_not_gone() -> None:
    found = scene(scenes.pod())
    step = planned(found)
    blind = found.with_(missing={"pods": Unknown(Reason.TIMEOUT, "no answer")})
    with pytest.raises(NotKnown):
        done(step, blind)


# What came since


def test_a_pod_that_the_plan_does_not_allow_stops_the_run_and_is_not_touched() -> None:
    found = scene(scenes.pod())
    step, writer = planned(found), found.writer
    found.items.append(scenes.pod("intruder", "team-b"))
    assert stuck(step, found) == (
        "Pod team-b/intruder appeared on node gpu-1, which the plan does not allow: it is in namespace team-b"
    )
    assert writer.calls == []


WIDE = Bounds(
    evictions=9, namespaces=("team-a",), owner_kinds=("ReplicaSet", "Job", "Pod"), budgets=("team-a/llm",)
)


@pytest.mark.parametrize(
    ("pod", "why"),
    [
        ({"namespace": "team-b"}, "it is in namespace team-b"),
        ({"owner": ("StatefulSet", "db")}, "it belongs to a StatefulSet"),
        (
            {"spec": {"volumes": [{"name": "t", "emptyDir": {}}]}},
            "what is in its emptyDir volumes is lost: t",
        ),
        ({"owner": None}, "no controller makes it anew"),
        ({"labels": {"app": "x"}}, "it is under PodDisruptionBudget team-a/other"),
        (
            {"creationTimestamp": scenes.stamp(5), "owner": ("ReplicaSet", "llm-5d8")},
            "it was made anew in the place of one that went",
        ),
    ],
)
def test_in_each_way_a_new_pod_may_be_beyond_the_plan(pod: dict[str, Any], why: str) -> None:
    found = scene(scenes.pod(), scenes.budget("other", selector={"app": "x"}))
    step = planned(found, bounds=WIDE)
    found.items.append(scenes.pod(**{"name": "new", "owner": ("ReplicaSet", "other"), **pod}))
    assert why in stuck(step, found)


@pytest.mark.parametrize(
    "pod",
    [
        {},
        {"owner": ("Job", "train")},
        {"owner": ("ReplicaSet", "llm-5d8"), "creationTimestamp": scenes.stamp(-5)},
        {"owner": ("DaemonSet", "d"), "namespace": "team-b"},
        {"status": {"phase": "Succeeded"}, "namespace": "team-b"},
        {"deletionTimestamp": scenes.stamp(9), "namespace": "team-b"},
    ],
)
def test_within_the_bounds_a_new_pod_is_no_surprise(pod: dict[str, Any]) -> None:
    found = scene(scenes.pod())
    step = planned(found, bounds=WIDE)
    found.items.append(scenes.pod(**{"name": "new", "owner": ("ReplicaSet", "other"), **pod}))
    assert stuck(step, found) == ""


def test_risks_that_were_taken_hold_for_new_pods_too() -> None:
    scratch = {"volumes": [{"name": "t", "emptyDir": {}}]}
    found = scene(scenes.pod(), options={"delete_emptydir_data": True})
    step = planned(found, bounds=WIDE)
    found.items.append(scenes.pod("new", owner=("ReplicaSet", "other"), spec=scratch))
    assert stuck(step, found) == ""


def test_more_evictions_than_the_plan_allows_stop_the_run() -> None:
    found = scene(scenes.pod())
    step = planned(found)
    found.items.append(scenes.pod("new", owner=("ReplicaSet", "other")))
    assert stuck(step, found) == "team-a/new appeared: 2 evictions in all, the plan allows 1"


def test_the_bounds_are_those_of_the_plan_that_is_applied() -> None:
    found = scene(scenes.pod())

    reader = MemoryReader(found.items, missing=scenes.NOT_SERVED)
    facts = gather([STEP], reader, {**found.arguments, ALLOWED: WIDE})
    assert facts[STEP].bounds == WIDE


def test_another_node_of_the_same_name_is_not_drained() -> None:
    found = scene(scenes.pod())
    step = planned(found)
    found.items[0]["metadata"]["uid"] = "another"
    assert "was replaced by another of the same name" in stuck(step, found)
    assert not done(step, found)


# Namespaces with modes of their own


def test_pods_that_are_waited_for_are_never_asked() -> None:
    found = scene(scenes.pod(), policy=DrainPolicy(modes={"team-*": "wait"}))
    step, writer = planned(found), found.writer
    assert act(step, found.later(10**6), writer) == []
    assert not done(step, found)
    assert "given time to end: team-a/llm-0" in progress(step, found)
    writer.gone(ref("llm-0"))
    assert done(step, found)


def test_pods_that_had_their_time_are_evicted() -> None:
    policy = DrainPolicy(modes={"team-a": "evict-after"}, evict_after_minutes=10)
    found = scene(scenes.pod(), policy=policy)
    step, writer = planned(found), found.writer
    assert act(step, found.later(599), writer) == []
    assert act(step, found.later(600), writer) == ["evict Pod team-a/llm-0"]
    assert step.limit == 900 + 600


def test_an_orphan_of_a_daemon_set_that_is_in_the_plan_goes() -> None:
    found = scene(scenes.pod("orphan", owner=("DaemonSet", "gone")), options={"force": True})
    step, writer = planned(found), found.writer
    assert act(step, found, writer) == ["evict Pod team-a/orphan"]
    assert done(step, found)


def test_there_is_no_way_back() -> None:
    found = scene(scenes.pod())
    step = planned(found)
    assert step.undone(found.look(step.needs))
    assert step.undoes == ""
