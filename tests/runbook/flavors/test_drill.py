"""The whole drill in memory: what it learns, what stops it, and that nothing of it remains."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from gpuctl.facts.alerts import Alert, AlertState
from gpuctl.facts.state import Each, Reason, Unknown
from gpuctl.runbook.flavors.drill import RUNBOOK
from gpuctl.runbook.permissions import permissions_of
from gpuctl.runbook.records import Outcome, Standing
from tests.builders.kueue import OLD, UPSTREAM, Shape
from tests.runbook.flavors.drill_world import DrillWorld
from tests.runbook.little import Hands, Killed, Quick, dies, moments

MISSING = {"force_missing": True}
VARIANTS: dict[str, dict[str, Any]] = {"default": {}, "missing": MISSING}
WRITES = {"default": 60, "missing": 75}  # at least as many as a whole drill makes


@pytest.mark.parametrize("shape", [UPSTREAM, OLD], ids=["v1beta2", "v1beta1"])
def test_a_loss_without_a_fault(shape: Shape) -> None:
    world = DrillWorld(shape=shape)
    before = world.of_others
    ending = world.begin()
    assert (ending.outcome, ending.why) == (Outcome.SUCCEEDED, "")
    assert world.canaries == []
    assert world.of_others == before
    result = world.run().result
    assert result == ending.result
    assert result["stayedAdmitted"] == ["w1", "w2"]
    assert {"secondsToNotice", "secondsToRelease", "secondsTerminating"} <= {*result}
    assert result["secondsTerminating"] >= 10
    assert "differences" not in result


def test_a_real_loss() -> None:
    world = DrillWorld(options=MISSING)
    before = world.of_others
    assert world.begin().outcome is Outcome.SUCCEEDED
    assert world.canaries == []
    assert world.of_others == before
    result = world.run().result
    assert result["inactiveReason"] == "FlavorNotFound"
    assert "is inactive" in result["w3Waits"]
    assert {"secondsToGoInactive", "secondsToRecover", "secondsToAdmitAgain"} <= {*result}
    assert "differences" not in result


def test_a_workload_that_waits_on_the_flavor_that_goes_is_a_difference_and_no_failure() -> None:
    world = DrillWorld()
    world.writer.admits_on_terminating = False
    ending = world.begin()
    assert (ending.outcome, ending.why) == (Outcome.SUCCEEDED, "")
    result = world.run().result
    assert result["w2Admitted"] is False
    (difference,) = result["differences"]
    assert "w2 was not admitted on the flavor that is going" in difference
    assert result["stayedAdmitted"] == ["w1"]


def test_a_workload_on_another_flavor_fails_the_drill() -> None:
    world = DrillWorld()
    world.writer.gives = "real"
    ending = world.begin()
    assert ending.outcome is Outcome.FAILED
    assert "Workload w1 was admitted on the flavor real, not on gpuctl-drill-r1" in ending.why


@pytest.mark.parametrize(
    ("variant", "fault", "says"),
    [
        ("default", {"forgets": "counts"}, "counts the use of the flavor that it dropped"),
        ("missing", {"says_of_local_queues": "Gone"}, "the LocalQueue gives the reason 'Gone'"),
        ("missing", {"says_of_workloads": "wait"}, "Workload w3 waits, and Kueue says: wait"),
    ],
)
def test_what_goes_otherwise_than_documented_is_told(variant: str, fault: dict[str, str], says: str) -> None:
    world = DrillWorld(options=VARIANTS[variant])
    for name, value in fault.items():
        setattr(world.writer, name, value)
    ending = world.begin()
    assert (ending.outcome, ending.why) == (Outcome.SUCCEEDED, "")
    (difference,) = world.run().result["differences"]
    assert says in difference


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("evicts", "Workload w1 is no longer admitted: the flavor goes"),
        ("releases", "is gone: nothing kept it"),
    ],
)
def test_what_must_never_happen_fails_the_drill_until_another_succeeds(fault: str, says: str) -> None:
    world = DrillWorld()
    world.writer.forgets = fault
    ending = world.begin()
    assert ending.outcome is Outcome.FAILED
    assert says in ending.why
    assert ending.left
    world.writer.forgets = ""
    assert world.go_on(back=True).outcome is Outcome.REVERTED
    assert world.canaries == []
    run = world.run()
    assert run.result["stopped"]["outcome"] == "failed"
    assert says in run.result["stopped"]["why"]


def test_another_queue_that_stops_fails_the_drill() -> None:
    world = DrillWorld()
    world.writer.forgets = "disturbs"
    ending = world.begin(world.crew(limit=2.0))
    assert ending.outcome is Outcome.TIMED_OUT
    assert "ClusterQueue team was Active, and is not any more" in ending.why


def test_what_others_edit_meanwhile_is_told() -> None:
    world = DrillWorld()

    def edited(number: int) -> None:
        if number == 12:
            queue = next(each for each in world.of("ClusterQueue") if each["metadata"]["name"] == "team")
            queue["metadata"]["generation"] += 1

    ending = world.begin(world.crew(Hands(world, after=edited)))
    assert ending.outcome is Outcome.SUCCEEDED
    assert world.run().result["changedByOthers"] == ["ClusterQueue team"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_nothing_remains_wherever_it_is_killed(variant: str) -> None:
    """Before and after each write; then undone by another process: nothing is left, nobody was disturbed."""
    ended = False
    for at, after in moments(WRITES[variant]):
        world = DrillWorld(options=VARIANTS[variant])
        before = world.of_others
        with suppress(Killed):
            ended = world.begin(world.crew(Hands(world, **dies(at, after=after)))).outcome == "succeeded"
        if world.journals and world.run().state is Standing.UNFINISHED:
            ending = world.go_on(back=True)
            assert (ending.outcome, ending.why) == (Outcome.REVERTED, ""), (at, after)
        assert world.canaries == [], (at, after)
        assert world.of_others == before, (at, after)
        if ended:
            return
    raise AssertionError("a drill makes more writes than are tried here")


def test_it_is_resumed_to_its_end() -> None:
    for at in (6, 14, 22, 30, 38):
        world = DrillWorld(options=MISSING)
        with pytest.raises(Killed):
            world.begin(world.crew(Hands(world, **dies(at, after=True))))
        ending = world.go_on()
        assert (ending.outcome, ending.why) == (Outcome.SUCCEEDED, ""), at
        assert world.canaries == []


def test_an_undo_that_is_killed_is_undone() -> None:
    for at in range(1, 12):
        world = DrillWorld(options=MISSING)
        with pytest.raises(Killed):
            world.begin(world.crew(Hands(world, **dies(30, after=True))))
        try:
            world.go_on(world.crew(Hands(world, **dies(at, after=True))), back=True)
        except Killed:
            ways = {Outcome.REVERTED} if at > 4 else {Outcome.REVERTED, Outcome.SUCCEEDED}
            assert world.go_on().outcome in ways  # the way it went, once that was written down
        assert world.canaries == []


def test_where_kueue_is_down_its_finalizers_are_taken_off_the_canaries_alone() -> None:
    world = DrillWorld()
    with pytest.raises(Killed):
        world.begin(world.crew(Hands(world, **dies(20, after=True))))
    assert world.canaries != []
    world.writer.works = lambda: False
    stuck = world.go_on(world.crew(limit=1.0), back=True)
    assert stuck.outcome is Outcome.TIMED_OUT  # a manager that looks alive is waited for
    world.items[:] = [each for each in world.items if each["kind"] not in ("Pod", "EndpointSlice")]
    before = world.of_others
    assert world.go_on(back=True).outcome is Outcome.REVERTED
    assert world.canaries == []
    assert world.of_others == before


def test_an_alert_is_waited_for() -> None:
    options = {**MISSING, "expect_alert": "QueueStands"}
    world = DrillWorld(options=options, firing=Each.of({}))

    def fires(queue: str) -> Any:
        def after(number: int) -> None:
            if number == 28:
                labels = (("alertname", "QueueStands"), ("cluster_queue", queue))
                world.firing = Each.of({labels: Alert(labels, AlertState.FIRING)})

        return after

    ending = world.begin(world.crew(Hands(world, after=fires("gpuctl-drill-r1")), stop=Quick()))
    assert (ending.outcome, ending.why) == (Outcome.SUCCEEDED, "")
    assert ending.result["secondsToFire"] > 0
    assert ending.result["alertSilenced"] is False

    world = DrillWorld(options={**options, "alert_timeout": 0.01}, firing=Each.of({}))
    ending = world.begin(world.crew(Hands(world, after=fires("team"))))  # of another queue: it proves nothing
    assert ending.outcome is Outcome.TIMED_OUT
    assert "the alert QueueStands fires" in ending.why


def test_leftovers_are_swept_of_runs_that_nobody_goes_on_with() -> None:
    world = DrillWorld()
    with pytest.raises(Killed):
        world.begin(world.crew(Hands(world, **dies(16, after=True))), run="old")
    left = world.canaries
    assert left
    for item in world.items[:]:
        if item["kind"] == "Lease":
            world.items.remove(item)
    blocked = world.plan()
    assert {each.guard for each in blocked.blockers} == {"no-other-run"}  # it may be resumed
    _settle_journal(world, Standing.ABANDONED)
    assert any("run old left behind" in each for each in world.plan().effects)
    assert world.begin(run="new").outcome is Outcome.SUCCEEDED
    assert world.canaries == []


def test_objects_of_an_unknown_run_are_swept_once_they_are_old() -> None:
    world = DrillWorld()
    with pytest.raises(Killed):
        world.begin(world.crew(Hands(world, **dies(16, after=True))), run="old")
    world.items[:] = [each for each in world.items if each["kind"] != "Lease" and "old" not in _journal(each)]
    left = world.canaries
    assert world.begin(run="young").outcome is Outcome.SUCCEEDED
    assert world.canaries == left  # a drill whose journal is elsewhere may be under way
    world.passed += 3700
    assert world.begin(run="later").outcome is Outcome.SUCCEEDED
    assert world.canaries == []


def test_what_only_looks_like_a_drills_is_left_alone() -> None:
    world = DrillWorld()
    label = {"gpuctl.dev/runbook": "flavor-drill", "gpuctl.dev/run": "other"}
    mine = {"name": "precious", "uid": "p", "labels": label, "creationTimestamp": "2020-01-01T00:00:00Z"}
    world.items.append({"apiVersion": "v1", "kind": "Namespace", "metadata": mine})
    assert world.begin().outcome is Outcome.SUCCEEDED
    assert any(each["metadata"]["name"] == "precious" for each in world.of("Namespace"))


def _journal(item: dict[str, Any]) -> str:
    return str(item["metadata"].get("labels", {}).get("gpuctl.dev/run", "")) if "data" in item else ""


def _settle_journal(world: DrillWorld, state: Standing) -> None:
    for item in world.of("ConfigMap"):
        if _journal(item):
            item["data"]["run.json"] = item["data"]["run.json"].replace(
                '"state":"unfinished"', f'"state":"{state}"'
            )


def test_where_the_plan_can_t_see_it_is_blocked() -> None:
    world = DrillWorld(missing={"clusterqueues.kueue.x-k8s.io": Unknown(Reason.FORBIDDEN, "no")})
    assert any("forbidden" in each.message and not each.override for each in world.plan().blockers)


def test_the_permissions_are_those_of_its_steps_and_looks() -> None:
    granted = {grant.rule for grant in permissions_of(RUNBOOK).cluster}
    world = DrillWorld(options=MISSING)
    plan = world.plan()
    for step in plan.steps:
        made = RUNBOOK.step(step.step)
        assert made.rules <= granted
    verbs = {(rule.resource, rule.verb) for rule in granted if rule.verb in ("get", "list")}
    for kind in ("namespaces", "resourceflavors", "clusterqueues", "localqueues", "workloads"):
        assert (kind, "get") in verbs
        assert (kind, "list") in verbs


def test_a_drill_that_is_resumed_and_succeeds_has_not_failed() -> None:
    world = DrillWorld()
    world.writer.forgets = "disturbs"
    assert world.begin(world.crew(limit=2.0)).outcome is Outcome.TIMED_OUT
    assert world.run().result["stopped"]["outcome"] == "timed-out"
    world.writer.forgets = ""
    world.writer.settle()
    ending = world.go_on()
    assert (ending.outcome, ending.why) == (Outcome.SUCCEEDED, "")
    assert "stopped" not in ending.result
    assert "secondsToNotice" in ending.result
