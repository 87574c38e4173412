"""Runs that are killed, disturbed, taken over and taken back: what is left in the cluster each time."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from gpuctl.audit.policy import Policy, RunbooksPolicy
from gpuctl.facts.own import STATE_NAMESPACE
from gpuctl.facts.state import Reason, Unknown
from gpuctl.runbook.conduct import Ending, abandon, begin, new_id
from gpuctl.runbook.lock import Locks
from gpuctl.runbook.records import Direction, Outcome, Reached, Standing
from gpuctl.runbook.writer import Conflict, WriteFailed
from tests.runbook import little
from tests.runbook.little import NAMESPACE, VALUE, Hands, Killed, Quick, World, dies, moments

CLOSED, QUIET = "little.example/closed", "little.example/quiet"


@pytest.fixture(autouse=True)
def no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is killed renews nothing; here it lives on in the test's own."""
    monkeypatch.setattr(Locks, "_keep_alive", lambda _: None)


def killed(world: World, at: int, *, after: bool, back: bool = False, on: str = "") -> bool:
    """Begins a run, or goes on with one, in a process that is killed there; whether it came so far."""
    crew = world.crew(Hands(world, **dies(at, after=after)))
    try:
        world.go_on(crew, run=on, back=back) if on else world.begin(crew)
    except Killed:
        return True
    return False


def writes_of_a_run() -> int:
    world = World()
    hands = Hands(world)
    assert world.begin(world.crew(hands)).outcome is Outcome.SUCCEEDED
    return hands.written


def writes_of_an_undo(at: int, *, after: bool) -> int:
    world = World()
    killed(world, at, after=after)
    if "r1" not in world.journals or world.run().state is not Standing.UNFINISHED or world.run().verified:
        return 0
    hands = Hands(world)
    assert world.go_on(world.crew(hands), back=True).outcome is Outcome.REVERTED
    return hands.written


def named(world: World) -> None:
    """Everything that is left is named: by the journal, or it is a lock that names its run."""
    marks, run = world.marks(), world.journals.get("r1")
    reached = dict(zip((CLOSED, QUIET, "pods", VALUE), world.reached(), strict=True)) if run else {}
    left = {mark for mark in (CLOSED, QUIET) if mark in marks}
    left |= {VALUE} if marks[VALUE] != "old" and not (run and run.verified) else set()
    for mark in left:
        assert run is not None
        assert run.state is Standing.UNFINISHED
        assert reached[mark] in (Reached.BEGUN, Reached.DONE)
    if world.left:
        assert reached["pods"] in (Reached.BEGUN, Reached.DONE, Reached.UNDONE)
    for lease in world.leases.values():
        assert lease["metadata"]["labels"]["gpuctl.dev/run"] == "r1"


def nothing_left(world: World) -> None:
    assert not {CLOSED, QUIET} & world.marks().keys()
    assert not world.leases
    assert len(world.left) == len(set(world.left))
    assert "newcomer" not in world.left


def done(world: World) -> None:
    nothing_left(world)
    assert world.marks()[VALUE] == "new"
    assert sorted(world.left) == ["gpu-1-train-0", "gpu-1-train-1"]
    run = world.run()
    assert (run.state, run.outcome, run.at, run.why) == (Standing.FINISHED, Outcome.SUCCEEDED, "", "")
    assert world.reached() == [Reached.UNDONE, Reached.UNDONE, Reached.DONE, Reached.DONE]


def undone(world: World) -> None:
    nothing_left(world)
    assert world.marks()[VALUE] == "old"
    run = world.run()
    assert (run.state, run.outcome) == (Standing.UNDONE, Outcome.REVERTED)
    assert set(world.reached()) <= {Reached.WAITING, Reached.UNDONE}


def untouched(world: World) -> None:
    nothing_left(world)
    assert world.marks()[VALUE] == "old"
    assert not world.left
    assert not world.journals


def unlocked(world: World) -> None:
    assert abandon("r1", world.crew(), {STATE_NAMESPACE: NAMESPACE}).outcome is Outcome.SUCCEEDED


def resumed(world: World) -> None:
    """What a person does after `gpuctl runs`: resume what is unfinished, unlock what is only locked."""
    run = world.journals.get("r1")
    if run is None or run.state is not Standing.UNFINISHED:
        if world.leases:
            unlocked(world)
        done(world) if run else untouched(world)
        return
    ending = world.go_on()
    assert (ending.outcome, ending.left) == (Outcome.SUCCEEDED, False), ending
    done(world)


def test_a_run_from_begin_to_end() -> None:
    world = World()
    ending = world.begin()
    assert (ending.outcome, ending.left, ending.why) == (Outcome.SUCCEEDED, False, "")
    done(world)
    assert world.writer.written[0] == "create Lease gpuctl-system/gpuctl-node-gpu-1"
    assert [note["what"] for note in world.notes] == ["begun", "succeeded"]
    assert {event["metadata"]["namespace"] for event in world.of("Event")} == {"default"}


def test_killed_anywhere_and_resumed() -> None:
    for at, after in moments(writes_of_a_run()):
        world = World()
        assert killed(world, at, after=after)
        named(world)
        resumed(world)


def test_killed_anywhere_and_undone() -> None:
    for at, after in moments(writes_of_a_run()):
        world = World()
        assert killed(world, at, after=after)
        run = world.journals.get("r1")
        if run is None or run.state is not Standing.UNFINISHED:
            continue
        ending = world.go_on(back=True)
        if run.verified:  # others may use the node again: forward is the only way
            assert (ending.outcome, ending.left) == (Outcome.REFUSED, True)
            resumed(world)
        else:
            assert (ending.outcome, ending.left) == (Outcome.REVERTED, False), ending
            undone(world)


def test_killed_anywhere_and_the_undo_killed_anywhere_and_resumed() -> None:
    for at, after in moments(writes_of_a_run()):
        for then, after_that in moments(writes_of_an_undo(at, after=after)):
            world = World()
            assert killed(world, at, after=after)
            assert killed(world, then, after=after_that, on="r1", back=True)
            named(world)
            run = world.run()
            if run.state is Standing.UNDONE:
                if world.leases:
                    unlocked(world)
            elif run.direction is Direction.BACK:
                assert world.go_on().outcome is Outcome.REVERTED
            else:  # killed before it was written which way it goes
                assert world.go_on(back=True).outcome is Outcome.REVERTED
            undone(world)


def test_killed_twice_on_the_way_forward() -> None:
    writes = writes_of_a_run()
    for at, after in moments(writes):
        for then in range(0, writes, 2):
            world = World()
            killed(world, at, after=after)
            run = world.journals.get("r1")
            if run is None or run.state is not Standing.UNFINISHED:
                continue
            killed(world, then, after=after, on="r1")
            named(world)
            resumed(world)


# Interrupted


def interrupted(at: int, verb: str) -> tuple[World, Ending]:
    """A run over seven pods, interrupted while its call of this kind and number is in flight."""
    world, stop, calls = World(), Quick(), iter(range(10**6))
    world.items += [little.a_pod(f"more-{number}") for number in range(5)]

    def hears(call: Any) -> None:
        if call.verb == verb and next(calls) == at:
            stop.set()

    world.writer.before = hears
    return world, world.begin(world.crew(stop=stop))


@pytest.mark.parametrize("at", range(7))
def test_an_interruption_lets_the_call_in_flight_end_and_begins_no_other(at: int) -> None:
    world, ending = interrupted(at, "evict")
    assert (ending.outcome, ending.left) == (Outcome.CANCELLED, True)
    assert len(world.left) == at + 1
    assert world.run().why == "interrupted at: evict the pods of gpu-1"
    assert {each["spec"]["holderIdentity"] for each in world.leases.values()} == {"r1/"}
    assert world.go_on().outcome is Outcome.SUCCEEDED
    assert len(world.left) == len(set(world.left)) == 7


def test_who_is_interrupted_while_waiting_for_a_lock_was_refused_nothing() -> None:
    world, stop = World(), Quick()
    assert killed(world, 8, after=True)
    stop.set()
    ending = world.go_on(world.crew(stop=stop))
    assert (ending.outcome, ending.left) == (Outcome.CANCELLED, True)
    assert world.go_on().outcome is Outcome.SUCCEEDED


def test_a_process_that_shows_life_refuses_it() -> None:
    world = World()
    assert killed(world, 8, after=True)
    lease = world.leases["gpuctl-node-gpu-1"]

    class Renewing(Quick):
        def wait(self, timeout: float | None = None) -> bool:
            lease["spec"]["renewTime"] = "2026-11-30T10:00:01.000000Z"
            return False

    ending = world.go_on(world.crew(stop=Renewing()))
    assert (ending.outcome, ending.left) == (Outcome.REFUSED, True)
    assert "is being worked on" in ending.why


def test_without_an_interruption_all_go_in_one_round() -> None:
    world, ending = interrupted(7, "evict")
    assert ending.outcome is Outcome.SUCCEEDED
    assert len(world.left) == 7


# What the API server does


LATE = Unknown(Reason.TIMEOUT, "not finished within 15 s", "the write")
DENIED = Unknown(Reason.FORBIDDEN, "nodes is forbidden", "the write")
FAULTS: Mapping[str, tuple[bool, Callable[[], WriteFailed]]] = {
    "late, and not carried out": (False, lambda: WriteFailed(LATE)),
    "late, and carried out": (True, lambda: WriteFailed(LATE)),
    "a conflict": (False, lambda: Conflict(Unknown(Reason.SERVER_ERROR, "was modified", "the write"))),
    "forbidden": (False, lambda: WriteFailed(DENIED, hopeless=True)),
}


def failing(at: int, fault: str, times: int = 1) -> dict[str, Any]:
    """Hands whose writes from this number on meet a fault so many times."""
    after, made = FAULTS[fault]

    def strike(number: int) -> None:
        if at <= number < at + times:
            raise made()

    return {"after" if after else "before": strike}


def settled(world: World, ending: Ending) -> None:
    """However it ended: a success is one, and what is not can be brought to its end."""
    named(world)
    if ending.outcome is not Outcome.SUCCEEDED:
        assert ending.why or ending.blockers
        resumed(world)
        return
    assert not ending.left
    if world.leases:
        unlocked(world)
    done(world)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_any_write(fault: str) -> None:
    passing = "late" in fault
    for at in range(writes_of_a_run()):
        world = World()
        ending = world.begin(world.crew(Hands(world, **failing(at, fault))))
        if passing:  # what passes is no reason to stop, and leaves nothing behind
            assert (at, ending.outcome, ending.left) == (at, Outcome.SUCCEEDED, False)
            done(world)
        settled(world, ending)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_from_any_write_on(fault: str) -> None:
    for at in range(writes_of_a_run()):
        world = World()
        ending = world.begin(world.crew(Hands(world, **failing(at, fault, 30)), limit=0.2))
        settled(world, ending)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_any_write_of_an_undo(fault: str) -> None:
    kill = writes_of_a_run() - 9
    for at in range(writes_of_an_undo(kill, after=True)):
        world = World()
        assert killed(world, kill, after=True)
        ending = world.go_on(world.crew(Hands(world, **failing(at, fault))), back=True)
        assert world.run().direction is Direction.BACK or ending.outcome is Outcome.FAILED
        if "late" in fault:
            assert (at, ending.outcome, ending.left) == (at, Outcome.REVERTED, False)
        if ending.left:
            assert world.go_on(back=True).outcome is Outcome.REVERTED
        if world.leases:
            unlocked(world)
        undone(world)


@pytest.mark.parametrize("seed", range(40))
def test_reads_that_fail_now_and_then(seed: int) -> None:
    chance = random.Random(seed)
    rate = chance.choice((0.05, 0.2, 0.5))
    world = World()
    planned = world.plan()
    world.blind = lambda _: chance.random() < rate
    task, order = world.task(), little.an_order()
    ending = begin(task, order, planned, world.crew(), "r1")
    world.blind = lambda _: False
    settled(world, ending)


def test_a_read_that_fails_at_any_time_is_made_again() -> None:
    looks = World()
    looks.begin()
    refused = 0
    for at in range(1, next(looks.looks)):
        world = World()
        world.blind = lambda number, at=at: number == at  # type: ignore[misc]
        ending = world.begin()
        refused += ending.outcome is Outcome.REFUSED
        if ending.outcome is not Outcome.REFUSED:
            assert (at, ending.outcome) == (at, Outcome.SUCCEEDED)
        settled(world, ending)
    assert refused == 1  # the one from which the plan is made anew: what is not known blocks


# Beside the run


def test_journals_beyond_those_that_are_kept_go_once_a_run_is_over() -> None:
    world = World(policy=Policy(runbooks=RunbooksPolicy(max_nodes=2, keep_runs=2)))
    for number in range(4):
        world.items[:] = [each for each in world.items if each["metadata"]["name"] != "newcomer"]
        world.node()["metadata"]["annotations"][VALUE] = "old"
        assert world.begin(run=f"r{number}").outcome is Outcome.SUCCEEDED
    assert sorted(world.journals) == ["r2", "r3"]
    assert not [each for each in world.told if "old journals" in each]


def test_journals_that_cant_be_removed_are_told_of_and_change_nothing() -> None:
    world = World(policy=Policy(runbooks=RunbooksPolicy(keep_runs=0)))

    def refuse(call: Any) -> None:
        if call.verb == "delete" and call.ref.kind.kind == "ConfigMap":
            raise WriteFailed(DENIED, hopeless=True)

    world.writer.before = refuse
    assert world.begin().outcome is Outcome.SUCCEEDED
    assert any("old journals could not be removed" in each for each in world.told)


def test_without_permission_for_events_a_run_goes_on_and_says_so() -> None:
    world = World()

    def refuse(call: Any) -> None:
        if call.ref.kind.kind == "Event":
            raise WriteFailed(DENIED, hopeless=True)

    world.writer.before = refuse
    assert world.begin().outcome is Outcome.SUCCEEDED
    assert any("no Event could be written" in each for each in world.told)
    done(world)


def test_an_event_says_who_did_what_and_why() -> None:
    world = World()
    world.begin()
    begun, ended = world.of("Event")
    assert begun["involvedObject"]["name"] == "gpu-1"
    assert begun["reason"] == "GpuctlBegun"
    assert ended["reason"] == "GpuctlSucceeded"
    for part in ("ana@bastion-1", "run r1", "reason: a test", "ticket: T-1"):
        assert part in begun["message"]
    assert begun["metadata"]["labels"]["gpuctl.dev/run"] == "r1"


def test_the_audit_log_tells_what_came_to_nothing_too() -> None:
    world = World()
    planned = world.plan()
    assert world.begin(run="r9").outcome is Outcome.SUCCEEDED
    world.notes.clear()
    refused = begin(world.task(), little.an_order(), planned, world.crew(), "r1")  # it is stale by now
    assert refused.outcome is Outcome.REFUSED
    (note,) = world.notes
    assert (note["what"], note["run"], note["why"]) == ("refused", "r1", refused.why)
    assert (note["planner"], note["user"], note["reason"], note["ticket"]) == ("ana", "ana", "a test", "T-1")


def test_each_who_goes_on_says_why() -> None:
    world = World()
    assert killed(world, 8, after=True)
    said = {"user": "bo", "reason": "the window is over", "ticket": "T-2"}
    assert world.go_on(world.crew(None, **said)).outcome is Outcome.SUCCEEDED
    planner, applier, resumer = world.run().people
    assert (applier.reason, resumer.reason, resumer.ticket) == ("", "the window is over", "T-2")
    assert (world.run().reason, world.run().ticket) == ("a test", "T-1")
    assert {(note["reason"], note["planner"]) for note in world.notes[-2:]} == {("the window is over", "ana")}
    assert "reason: the window is over" in world.of("Event")[-1]["message"]
    assert planner.did == "planned"


def test_giving_up_is_told_with_its_reason() -> None:
    world = World()
    assert killed(world, 8, after=True)
    world.notes.clear()
    crew = world.crew(reason="the node is gone")
    assert abandon("r1", crew, {STATE_NAMESPACE: NAMESPACE}).outcome is Outcome.SUCCEEDED
    assert [(note["what"], note["reason"]) for note in world.notes] == [("abandoned", "the node is gone")]
    assert world.run().people[-1].reason == "the node is gone"


def test_a_step_of_a_version_that_is_not_this_one_is_not_guessed_at() -> None:
    world = World()
    assert killed(world, 8, after=True)
    (journal,) = world.of("ConfigMap")
    journal["data"]["run.json"] = journal["data"]["run.json"].replace('"step":"Turn"', '"step":"Spin"')
    before = dict(world.marks())
    ending = world.go_on()
    assert (ending.outcome, ending.left) == (Outcome.FAILED, True)
    assert "does not know a step" in ending.why
    assert world.marks() == before
    assert {each["spec"]["holderIdentity"] for each in world.leases.values()} == {"r1/"}


def test_what_came_up_while_a_run_stood_still_stops_it_from_going_on_but_not_back() -> None:
    world = World()
    assert killed(world, 12, after=True)
    mark = "maintenance.nvidia.com/wanted"
    world.node()["metadata"]["labels"][mark] = "yes"

    refused = world.go_on()
    assert (refused.outcome, refused.left) == (Outcome.REFUSED, True)
    assert mark in refused.why
    assert world.run().state is Standing.UNFINISHED
    assert all(each["spec"]["holderIdentity"] == "r1/" for each in world.leases.values())

    assert world.go_on(back=True).outcome is Outcome.REVERTED
    undone(world)


def test_once_that_is_over_it_goes_on() -> None:
    world = World()
    assert killed(world, 12, after=True)
    world.node()["metadata"]["labels"]["maintenance.nvidia.com/wanted"] = "yes"
    world.go_on()
    del world.node()["metadata"]["labels"]["maintenance.nvidia.com/wanted"]
    assert world.go_on().outcome is Outcome.SUCCEEDED
    done(world)


def test_ids_are_sorted_by_time_and_differ() -> None:
    ids = {new_id() for _ in range(300)}
    assert len(ids) == 300
    assert all(len(each) == len("20261130-100000-abcdef") for each in ids)
