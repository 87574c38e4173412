"""Rolling changes: in order, a few at once, stopped by the first failure, gone on with by somebody else."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from threading import Barrier, BrokenBarrierError
from typing import Any

import pytest

from gpuctl.audit.policy import MaintenanceWindow, Policy, RunbooksPolicy
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Reason, Unknown
from gpuctl.nvidia.objects import NodeView
from gpuctl.runbook.conduct import Crew, Ending, go_on
from gpuctl.runbook.gates import reason_given, window_open
from gpuctl.runbook.lock import Locks
from gpuctl.runbook.plan import Cluster, Plan, sealed
from gpuctl.runbook.records import Direction, Outcome, Person, Run, Standing
from gpuctl.runbook.roll import begin_roll, resume_roll
from gpuctl.runbook.writer import WriteFailed
from tests.memory import A_MOMENT
from tests.runbook.little import LITTLE, VALUE, Hands, Killed, Turn, World, a_cluster, dies, moments

NODES = tuple(f"gpu-{number}" for number in range(1, 6))
FORBIDDEN = WriteFailed(Unknown(Reason.FORBIDDEN, "no", "the node"), hopeless=True)


@pytest.fixture(autouse=True)
def no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Locks, "_keep_alive", lambda _: None)


def a_world(*nodes: str, max_nodes: int = 3) -> World:
    return World(a_cluster(*(nodes or NODES)), Policy(runbooks=RunbooksPolicy(max_nodes=max_nodes)))


def a_plan(world: World, at_once: int = 1) -> Plan:
    names = sorted(node["metadata"]["name"] for node in world.of("Node"))
    return sealed(
        Plan(
            runbook="little",
            options={},
            cluster=Cluster(uid="cluster-1", name="lab"),
            created_at=A_MOMENT,
            valid_until=A_MOMENT + timedelta(hours=1),
            planner=Person(user="ana", host="ana@bastion-1", at=A_MOMENT, did="planned"),
            targets=tuple(world.plan(name) for name in names),
            selector="pool=a",
            max_unavailable=at_once,
        )
    )


def rolled(world: World, at_once: int = 1, crew: Crew | None = None) -> Ending:
    return begin_roll(a_plan(world, at_once), world.task, crew or world.crew())


def the_roll(world: World) -> Run:
    (roll,) = [run for run in world.journals.values() if run.members]
    return roll


def resumed(world: World, crew: Crew | None = None, *, back: bool = False) -> Ending:
    return resume_roll(the_roll(world), world.task, crew or world.crew(), back=back)


def values(world: World) -> list[str]:
    return [world.marks(node["metadata"]["name"])[VALUE] for node in world.of("Node")]


def outcomes(world: World) -> list[str]:
    return [each.outcome.value for each in the_roll(world).members]


def refusing(world: World, name: str) -> Hands:
    """The node's value can't be changed."""

    def strict(call: Any) -> None:
        values = [change for change in call.what or () if getattr(change, "value", None) == "new"]
        if call.ref == Ref(NodeView.of, name) and values:
            raise FORBIDDEN

    world.writer.before = strict
    return Hands(world)


def permitted(world: World) -> None:
    world.writer.before = lambda _: None


def all_done(world: World) -> None:
    assert set(values(world)) == {"new"}
    assert not world.leases
    assert len(world.left) == len(set(world.left)) == 2 * len(world.of("Node"))
    assert all(set(world.marks(node["metadata"]["name"])) == {VALUE} for node in world.of("Node"))
    assert (the_roll(world).state, the_roll(world).outcome) == (Standing.FINISHED, Outcome.SUCCEEDED)


def test_one_after_the_other_in_order_each_with_a_run_of_its_own() -> None:
    world = a_world()
    ending = rolled(world)
    assert (ending.outcome, ending.left, ending.run) == (Outcome.SUCCEEDED, False, the_roll(world).id)
    all_done(world)
    assert [name.partition("-train")[0] for name in world.left[::2]] == list(NODES)
    members = the_roll(world).members
    assert len({each.run for each in members}) == 5
    for member in members:
        child = world.run(member.run)
        assert (child.target, child.outcome) == (member.target, Outcome.SUCCEEDED)
        assert (child.plan, child.people[0].did) == (the_roll(world).plan, "planned")


def test_it_stops_at_the_first_failure_and_another_goes_on_in_the_middle() -> None:
    world = a_world()
    ending = rolled(world, crew=world.crew(refusing(world, "gpu-3")))
    assert (ending.outcome, ending.left) == (Outcome.FAILED, True)
    assert ending.why.startswith("gpu-3: ")
    assert values(world) == ["new", "new", "old", "old", "old"]
    assert outcomes(world) == ["succeeded", "succeeded", "failed", "", ""]
    assert the_roll(world).why == ending.why
    assert set(world.marks("gpu-3")) > {VALUE}
    assert world.marks("gpu-4") == {VALUE: "old"}
    permitted(world)
    before = {each.run for each in the_roll(world).members if each.run}
    ending = resumed(world)
    assert (ending.outcome, ending.left) == (Outcome.SUCCEEDED, False)
    all_done(world)
    assert before <= {each.run for each in the_roll(world).members}
    assert [each.did for each in the_roll(world).people] == ["planned", "applied", "resumed"]


def test_undoing_takes_back_what_is_unfinished_and_names_what_stays() -> None:
    world = a_world()
    rolled(world, crew=world.crew(refusing(world, "gpu-3")))
    ending = resumed(world, back=True)
    assert (ending.outcome, ending.left) == (Outcome.REVERTED, False)
    assert "gpu-1, gpu-2" in ending.why
    assert values(world) == ["new", "new", "old", "old", "old"]
    assert world.marks("gpu-3") == {VALUE: "old"}
    assert not world.leases
    assert (the_roll(world).state, the_roll(world).direction) == (Standing.UNDONE, Direction.BACK)


def test_a_member_undone_by_hand_is_begun_anew() -> None:
    world = a_world("gpu-1", "gpu-2")
    rolled(world, crew=world.crew(refusing(world, "gpu-1")))
    permitted(world)
    first = the_roll(world).members[0].run
    child = world.run(first)
    assert go_on(child, world.task("gpu-1"), world.crew(), back=True).outcome is Outcome.REVERTED
    assert resumed(world).outcome is Outcome.SUCCEEDED
    assert the_roll(world).members[0].run != first
    assert values(world) == ["new", "new"]


def test_a_member_whose_undo_was_cut_off_is_no_success_and_is_begun_anew() -> None:
    world = a_world("gpu-1", "gpu-2")
    rolled(world, crew=world.crew(refusing(world, "gpu-1")))
    permitted(world)
    first = the_roll(world).members[0].run
    killed = world.crew(Hands(world, **dies(3, after=True)))
    with pytest.raises(Killed):
        go_on(world.run(first), world.task("gpu-1"), killed, back=True)
    cut_off = world.run(first)
    assert (cut_off.state, cut_off.direction) == (Standing.UNFINISHED, Direction.BACK)
    ending = resumed(world)
    assert (ending.outcome, ending.left, ending.why) == (Outcome.FAILED, True, "gpu-1: reverted")
    assert outcomes(world) == ["reverted", ""]
    assert resumed(world).outcome is Outcome.SUCCEEDED
    assert the_roll(world).members[0].run != first
    assert values(world) == ["new", "new"]


def test_a_member_resumed_by_hand_is_done() -> None:
    world = a_world("gpu-1", "gpu-2")
    rolled(world, crew=world.crew(refusing(world, "gpu-1")))
    permitted(world)
    first = the_roll(world).members[0].run
    assert go_on(world.run(first), world.task("gpu-1"), world.crew()).outcome is Outcome.SUCCEEDED
    assert resumed(world).outcome is Outcome.SUCCEEDED
    assert the_roll(world).members[0].run == first
    all_done(world)


def test_what_a_plan_does_not_allow_stops_it() -> None:
    world = a_world()
    plan = a_plan(world)
    world.node("gpu-2")["metadata"]["annotations"][VALUE] = "other"
    ending = begin_roll(plan, world.task, world.crew())
    assert (ending.outcome, ending.left) == (Outcome.REFUSED, True)
    assert ending.why == "gpu-2: value was old, now is other"
    assert values(world) == ["new", "other", "old", "old", "old"]
    world.node("gpu-2")["metadata"]["annotations"][VALUE] = "old"
    assert resumed(world).outcome is Outcome.SUCCEEDED
    all_done(world)


def test_what_the_runs_of_its_targets_learned_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Turn, "learned", lambda step, _facts: {"heldBy": [step.node, "others"], "idle": False}
    )
    world = a_world("gpu-1", "gpu-2")
    assert rolled(world).outcome is Outcome.SUCCEEDED
    assert [line for line in world.told if "held by" in line or "idle" in line] == [
        "gpu-1: held by: gpu-1, others",
        "gpu-1: idle: no",
        "gpu-2: held by: gpu-2, others",
        "gpu-2: idle: no",
    ]


# Its time


def over_time() -> World:
    """The maintenance window closes while the second member is worked on."""
    world = a_world()
    window = MaintenanceWindow(opens="09:00", closes="11:00")
    world.policy = Policy(runbooks=RunbooksPolicy(windows=(window,)))
    world.book = replace(LITTLE, guards=(*LITTLE.guards, window_open, reason_given))

    def closes(_: int) -> None:
        if values(world)[1] == "new":
            world.now = A_MOMENT + timedelta(hours=2)

    world.seen = closes
    return world


def resumed_with(world: World, **options: Any) -> Ending:
    return resume_roll(the_roll(world), lambda name: world.task(name, **options), world.crew())


def test_beyond_the_window_what_is_begun_is_finished_and_nothing_else_is_begun() -> None:
    world = over_time()
    for ending in (rolled(world), resumed(world), resumed_with(world, outside_window=True)):
        assert (ending.outcome, ending.left) == (Outcome.REFUSED, True)
        assert values(world) == ["new", "new", "old", "old", "old"]
        assert outcomes(world) == ["succeeded", "succeeded", "refused", "", ""]
        assert world.marks("gpu-3") == {VALUE: "old"}
        assert len(world.left) == 4
        assert list(world.leases) == [f"gpuctl-roll-{the_roll(world).id}"]
    assert the_roll(world).why == "gpu-3: --outside-window demands --reason"


def test_a_person_lets_it_go_on_outside_of_the_window() -> None:
    world = over_time()
    ending = rolled(world)
    assert ending.why.startswith("gpu-3: no maintenance window is open; the next one opens at Tue 2026-12-01")
    ending = resumed_with(world, outside_window=True, reason="the vendor waits")
    assert (ending.outcome, ending.left) == (Outcome.SUCCEEDED, False)
    all_done(world)


def test_it_goes_on_in_the_next_window() -> None:
    world = over_time()
    rolled(world)
    world.seen = lambda _: None
    world.now = A_MOMENT + timedelta(days=1)
    assert resumed(world).outcome is Outcome.SUCCEEDED
    all_done(world)


def test_interrupted_it_begins_no_more() -> None:
    world = a_world()
    crew = world.crew()

    def after_two(call: Any) -> None:
        if call.verb == "evict" and len(world.left) == 4:
            crew.stop.set()

    world.writer.after = after_two
    ending = rolled(world, crew=crew)
    assert (ending.outcome, ending.left) == (Outcome.CANCELLED, True)
    assert len(world.left) == 4
    assert values(world) == ["new", "old", "old", "old", "old"]
    assert resumed(world).outcome is Outcome.SUCCEEDED
    all_done(world)


# A few at once


def test_two_at_once_and_never_more() -> None:
    world = a_world()
    closed: list[int] = []

    def count(_call: Any) -> None:
        nodes = world.of("Node")
        closed.append(sum("little.example/closed" in node["metadata"]["annotations"] for node in nodes))

    world.writer.after = count
    assert rolled(world, at_once=2).outcome is Outcome.SUCCEEDED
    all_done(world)
    assert 1 <= max(closed) <= 2


def test_two_at_once_are_really_two() -> None:
    world = a_world("gpu-1", "gpu-2")
    both = Barrier(2)
    met: list[bool] = []

    def meet(number: int) -> None:
        try:
            both.wait(2)
            met.append(True)
        except BrokenBarrierError:
            met.append(False)

    assert rolled(world, at_once=2, crew=world.crew(Hands(world, before=_once_in_each(meet)))).outcome is (
        Outcome.SUCCEEDED
    )
    assert met == [True, True]


def _once_in_each(do: Callable[[int], None]) -> Callable[[int], None]:
    """At the second write in each thread of the members: the first is of the journal that they share."""
    seen: Counter[str] = Counter()

    def strike(number: int) -> None:
        thread = threading.current_thread().name
        seen[thread] += 1
        if thread.startswith("gpuctl-roll") and seen[thread] == 2:
            do(number)

    return strike


def test_more_at_once_than_the_policy_has_slots_waits_for_them() -> None:
    world = a_world(max_nodes=1)
    assert rolled(world, at_once=3).outcome is Outcome.SUCCEEDED
    all_done(world)


def test_of_two_at_once_one_fails_and_the_other_is_finished() -> None:
    world = a_world()
    ending = rolled(world, at_once=2, crew=world.crew(refusing(world, "gpu-1")))
    assert ending.outcome is Outcome.FAILED
    assert outcomes(world)[0] == "failed"
    assert set(outcomes(world)[1:]) <= {"succeeded", ""}
    for name, value in zip(NODES[1:], values(world)[1:], strict=True):
        assert set(world.marks(name)) == {VALUE}
        assert value in ("new", "old")
    permitted(world)
    assert resumed(world).outcome is Outcome.SUCCEEDED
    all_done(world)


# Killed


def writes() -> int:
    world = a_world("gpu-1", "gpu-2")
    hands = Hands(world)
    rolled(world, crew=world.crew(hands))
    return hands.written


def test_killed_anywhere_and_resumed_by_another() -> None:
    for at, after in moments(writes()):
        world = a_world("gpu-1", "gpu-2")
        with pytest.raises(Killed):
            rolled(world, crew=world.crew(Hands(world, **dies(at, after=after))))
        rolls = [run for run in world.journals.values() if run.members]
        if not rolls:
            assert set(values(world)) == {"old"}
            assert all(name.startswith("gpuctl-roll-") for name in world.leases)
            continue
        if rolls[0].state is Standing.UNFINISHED:
            ending = resumed(world)
            assert ending.outcome is Outcome.SUCCEEDED, (at, after, ending)
            leftover = set(world.leases)
        else:
            leftover = {name for name in world.leases if not name.startswith("gpuctl-roll-")}
        # a member's run that had ended left its locks where it was killed: they are named as left over
        for name in leftover:
            run = world.leases[name]["metadata"]["labels"]["gpuctl.dev/run"]
            assert run in world.journals
            assert world.run(run).state is Standing.FINISHED
        assert set(values(world)) == {"new"}
        assert len(world.left) == len(set(world.left)) == 4


def test_killed_anywhere_and_undone_by_another() -> None:
    for at, after in moments(writes()):
        world = a_world("gpu-1", "gpu-2")
        with pytest.raises(Killed):
            rolled(world, crew=world.crew(Hands(world, **dies(at, after=after))))
        rolls = [run for run in world.journals.values() if run.members]
        if not rolls or rolls[0].state is not Standing.UNFINISHED:
            continue
        ending = resumed(world, back=True)
        if ending.outcome is Outcome.REFUSED:  # a member is verified: it goes forward by itself
            assert "gpuctl resume" in ending.why
            continue
        assert ending.outcome is Outcome.REVERTED
        for name, value in zip(("gpu-1", "gpu-2"), values(world), strict=True):
            assert set(world.marks(name)) == {VALUE}
            assert (name in ending.why) is (value == "new"), (at, after, "what stays changed is named")
        assert len(world.left) == len(set(world.left))
