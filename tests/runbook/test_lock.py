"""Locks: who gets one, who waits, who is turned away, and who must not write any more."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from gpuctl.audit.policy import Policy, RunbooksPolicy
from gpuctl.facts.kinds import Ref
from gpuctl.facts.own import STATE_NAMESPACE
from gpuctl.facts.state import NotKnown, Reason, Unknown
from gpuctl.nvidia.objects import NodeView
from gpuctl.runbook import lock as room
from gpuctl.runbook.conduct import abandon
from gpuctl.runbook.fence import fenced
from gpuctl.runbook.journal import Journal
from gpuctl.runbook.lock import LONGEST_NAME, Claim, Lock, Locks, Taken, lease_name
from gpuctl.runbook.records import Lease, Outcome, Run, Standing
from gpuctl.runbook.writer import Conflict, Fenced, Put, WriteFailed, pointer
from tests.runbook.little import NAMESPACE, VALUE, Hands, Killed, Quick, World, a_cluster, dies
from tests.runbook.memory_writer import Call

NODE = Ref(NodeView.of, "gpu-1")
NOW = datetime(2026, 11, 30, 10, tzinfo=UTC)
WHERE = {STATE_NAMESPACE: NAMESPACE}
NODE_LOCK, SLOT_0, SLOT_1 = "gpuctl-node-gpu-1", "gpuctl-slot-0", "gpuctl-slot-1"


def claim(run: str = "r1", session: str = "s1", seconds: float = 30.0) -> Claim:
    return Claim(run, session, "little", NAMESPACE, "gpu-1", "uid-of-gpu-1", f"ana of {run}", seconds)


def a_lock(world: World, name: str = NODE_LOCK, hands: Hands | None = None, **of: Any) -> Lock:
    ref = Ref(Lease.of, name, NAMESPACE)
    return Lock(ref, claim(**of), hands or Hands(world), world.look_with(WHERE))


def locks(world: World, slots: int = 2, hands: Hands | None = None, **of: Any) -> Locks:
    made = tuple(a_lock(world, f"gpuctl-slot-{number}", hands, **of) for number in range(slots))
    return Locks(a_lock(world, hands=hands, **of), made)


def no_time(_seconds: float) -> bool:
    return True


def silent(_text: str) -> None:
    pass


@pytest.fixture
def no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Locks, "_keep_alive", lambda _: None)


def threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "gpuctl-lock"]


@pytest.fixture(autouse=True)
def every_thread_ends() -> Any:
    before = set(threads())
    yield
    for thread in set(threads()) - before:
        thread.join(5)
        assert not thread.is_alive()


# Taking


def test_both_locks_are_named_and_both_go() -> None:
    world = World()
    held = locks(world)
    held.take()
    assert set(world.leases) == {NODE_LOCK, SLOT_0}
    about = world.leases[NODE_LOCK]
    assert about["spec"]["holderIdentity"] == "r1/s1"
    assert about["metadata"]["labels"] == {
        "app.kubernetes.io/managed-by": "gpuctl",
        "gpuctl.dev/run": "r1",
        "gpuctl.dev/runbook": "little",
    }
    assert about["metadata"]["annotations"]["gpuctl.dev/target-uid"] == "uid-of-gpu-1"
    held.release()
    assert not world.leases


def test_a_locked_target_is_not_given_twice_and_nothing_is_left_of_who_came_late() -> None:
    world = World()
    first, second = locks(world), locks(world, run="r2")
    first.take()
    with pytest.raises(Taken, match="gpu-1 is locked by run r1 of ana of r1"):
        second.take()
    assert set(world.leases) == {NODE_LOCK, SLOT_0}
    first.release()
    second.take()
    second.release()


@pytest.mark.usefixtures("no_thread")
def test_a_target_whose_run_gets_no_slot_is_free_again() -> None:
    world = World()
    a_lock(world, SLOT_0, run="r8").take()
    a_lock(world, SLOT_1, run="r9").take()
    with pytest.raises(Taken, match=r"all 2 slots of the cluster are taken: .*run r8.*run r9"):
        locks(world).take()
    assert set(world.leases) == {SLOT_0, SLOT_1}


@pytest.mark.usefixtures("no_thread")
def test_of_many_at_once_one_gets_the_target_and_slots_are_never_exceeded() -> None:
    for _ in range(10):
        world = World()
        got: list[str] = []
        start = threading.Barrier(6)

        def contend(number: int, world: World = world, start: Any = start, got: list[str] = got) -> None:
            mine = locks(world, run=f"r{number}", session=f"s{number}")
            mine.target = a_lock(world, f"gpuctl-node-{number // 2}", run=f"r{number}", session=f"s{number}")
            start.wait()
            try:
                mine.take()
            except Taken:
                return
            got.append(f"r{number}")

        crowd = [threading.Thread(target=contend, args=(number,)) for number in range(6)]
        for each in crowd:
            each.start()
        for each in crowd:
            each.join()
        assert len(got) == 2
        holders = {each["metadata"]["labels"]["gpuctl.dev/run"] for each in world.leases.values()}
        assert holders == set(got)
        assert len(world.leases) == 4


@pytest.mark.parametrize("carried_out", [False, True])
@pytest.mark.usefixtures("no_thread")
def test_a_lock_whose_answer_is_lost_is_had(carried_out: bool) -> None:
    world = World()
    late = WriteFailed(Unknown(Reason.TIMEOUT, "late"))
    hands = Hands(world, **_when(carried_out, _raising(late, {0, 2})))
    held = locks(world, hands=hands)
    held.take()
    assert held.target.uid == world.leases[NODE_LOCK]["metadata"]["uid"]
    held.release()
    assert not world.leases


def _when(after: bool, strike: Callable[[int], None]) -> dict[str, Any]:
    return {"after" if after else "before": strike}


def _raising(error: Exception, at: set[int]) -> Callable[[int], None]:
    def strike(number: int) -> None:
        if number in at:
            raise error

    return strike


def test_what_may_have_been_made_by_the_last_try_is_removed() -> None:
    world = World()
    late = WriteFailed(Unknown(Reason.TIMEOUT, "late"))
    gone = Hands(world, after=_raising(late, {0}), before=_raising(late, {1, 2}))
    with pytest.raises(WriteFailed):
        a_lock(world, hands=gone).take()
    assert not world.leases


def test_a_refusal_is_not_tried_again() -> None:
    world = World()
    no = WriteFailed(Unknown(Reason.FORBIDDEN, "no"), hopeless=True)
    hands = Hands(world, before=_raising(no, {0, 1, 2}))
    with pytest.raises(WriteFailed):
        a_lock(world, hands=hands).take()
    assert hands.written == 1


def test_a_slot_that_is_lost_between_refusal_and_look_is_taken() -> None:
    world = World()
    other = a_lock(world, run="r9")
    other.take()

    def let_go_by_the_other(number: int) -> None:
        del number
        if NODE_LOCK in world.leases:
            other.release()

    world.seen = let_go_by_the_other
    a_lock(world).take()
    assert world.leases[NODE_LOCK]["spec"]["holderIdentity"] == "r1/s1"


# Going on with one


@pytest.mark.usefixtures("no_thread")
def test_a_lock_that_no_process_holds_is_taken_over_at_once() -> None:
    world = World()
    first = locks(world)
    first.take()
    first.let_go()
    assert {each["spec"]["holderIdentity"] for each in world.leases.values()} == {"r1/"}
    told: list[str] = []
    locks(world, session="s2").take_over(_must_not_wait, told.append)
    assert {each["spec"]["holderIdentity"] for each in world.leases.values()} == {"r1/s2"}
    assert not told


def _must_not_wait(_seconds: float) -> bool:
    raise AssertionError("it waited")


@pytest.mark.usefixtures("no_thread")
def test_the_lock_of_the_dead_is_taken_over_after_its_time() -> None:
    world = World()
    locks(world).take()
    waited: list[float] = []
    locks(world, session="s2", seconds=5).take_over(lambda s: waited.append(s) or True, silent)  # type: ignore[func-returns-value]
    assert waited == [30.0]  # what the lock says, not what this person's policy does
    assert world.leases[NODE_LOCK]["spec"]["holderIdentity"] == "r1/s2"


@pytest.mark.usefixtures("no_thread")
def test_the_lock_of_the_living_is_not_taken_over() -> None:
    world = World()
    living = locks(world)
    living.take()
    before = dict(world.leases[NODE_LOCK]["spec"])

    def shows_life(_seconds: float) -> bool:
        living.target.renew()
        return True

    with pytest.raises(Taken, match="is being worked on by ana of r1; stop that first"):
        locks(world, session="s2").take_over(shows_life, silent)
    now = world.leases[NODE_LOCK]["spec"]
    assert now["holderIdentity"] == before["holderIdentity"]
    living.confirm()


@pytest.mark.usefixtures("no_thread")
def test_of_two_who_take_over_at_once_one_gets_it() -> None:
    world = World()
    locks(world).take()
    second, third = locks(world, session="s2"), locks(world, session="s3")

    def other_is_quicker(_seconds: float) -> bool:
        third.take_over(no_time, silent)
        return True

    with pytest.raises(Taken):
        second.take_over(other_is_quicker, silent)
    assert world.leases[NODE_LOCK]["spec"]["holderIdentity"] == "r1/s3"


@pytest.mark.usefixtures("no_thread")
def test_a_takeover_between_look_and_patch_is_noticed() -> None:
    world = World()
    locks(world).take()
    third = a_lock(world, session="s3")
    hands = Hands(world, before=lambda n: third.take_over(no_time, silent) if n == 0 else None)
    with pytest.raises(Taken, match="somebody else went on with run r1 at the same moment"):
        a_lock(world, hands=hands, session="s2").take_over(no_time, silent)
    assert world.leases[NODE_LOCK]["spec"]["holderIdentity"] == "r1/s3"


@pytest.mark.parametrize("carried_out", [False, True])
@pytest.mark.usefixtures("no_thread")
def test_a_takeover_whose_answer_is_lost_counts(carried_out: bool) -> None:
    world = World()
    locks(world).take()
    late = WriteFailed(Unknown(Reason.TIMEOUT, "late"))
    hands = Hands(world, **_when(carried_out, _raising(late, {0})))
    a_lock(world, hands=hands, session="s2").take_over(no_time, silent)
    assert world.leases[NODE_LOCK]["spec"]["holderIdentity"] == "r1/s2"


def test_giving_up_while_waiting_takes_nothing() -> None:
    world = World()
    a_lock(world).take()
    before = msgspec.json.encode(world.items)
    with pytest.raises(Taken, match="given up"):
        a_lock(world, session="s2").take_over(lambda _: False, silent)
    assert msgspec.json.encode(world.items) == before


@pytest.mark.parametrize("hours", [-1000, 1000])
@pytest.mark.usefixtures("no_thread")
def test_clocks_do_not_matter(hours: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A holder whose clock is wrong by weeks is alive while its times change, and dead once they don't."""
    world = World()
    monkeypatch.setattr(room, "_now", lambda: _skewed(hours))
    living = locks(world)
    living.take()
    monkeypatch.undo()
    monkeypatch.setattr(Locks, "_keep_alive", lambda _: None)

    def renewed_by_a_wrong_clock(_seconds: float) -> bool:
        with monkeypatch.context() as patch:
            patch.setattr(room, "_now", lambda: _skewed(hours + 1))
            living.target.renew()
        return True

    with pytest.raises(Taken):
        locks(world, session="s2").take_over(renewed_by_a_wrong_clock, silent)
    locks(world, session="s2").take_over(no_time, silent)
    with pytest.raises(Fenced):
        living.confirm()


def _skewed(hours: int) -> str:
    return datetime.fromtimestamp(time.time() + hours * 3600, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def test_another_runs_lock_is_never_taken_over() -> None:
    world = World()
    a_lock(world, run="r9").take()
    with pytest.raises(Taken, match="locked by run r9"):
        a_lock(world).take_over(no_time, silent)


@pytest.mark.usefixtures("no_thread")
def test_a_takeover_without_a_free_slot_lets_go_of_the_target() -> None:
    world = World()
    first = locks(world)
    first.take()
    first.let_go()
    world.items.remove(world.leases[SLOT_0])  # by hand; then both are given to others
    a_lock(world, SLOT_0, run="r8").take()
    a_lock(world, SLOT_1, run="r9").take()
    with pytest.raises(Taken, match="all 2 slots"):
        locks(world, session="s2").take_over(no_time, silent)
    assert world.leases[NODE_LOCK]["spec"]["holderIdentity"] == "r1/"


@pytest.mark.usefixtures("no_thread")
def test_a_slot_beyond_this_persons_policy_is_found_and_goes_too() -> None:
    world = World()
    a_lock(world, SLOT_0, run="r8").take()
    first = locks(world)
    first.take()
    assert set(world.leases) == {NODE_LOCK, SLOT_0, SLOT_1}
    with_a_narrower_policy = locks(world, slots=1, session="s2")
    with_a_narrower_policy.take_over(no_time, silent)
    with_a_narrower_policy.release()
    assert set(world.leases) == {SLOT_0}


# Being fenced off


@pytest.mark.usefixtures("no_thread")
def test_who_lost_the_lock_is_told_so() -> None:
    world = World()
    old, new = locks(world), locks(world, session="s2")
    old.take()
    old.confirm()
    new.take_over(no_time, silent)
    with pytest.raises(Fenced, match="gpu-1 is locked by run r1"):
        old.confirm()
    before = len(world.writer.calls)
    with pytest.raises(Fenced, match="is lost"):
        old.confirm()
    assert len(world.writer.calls) == before


@pytest.mark.usefixtures("no_thread")
def test_a_lock_that_is_gone_is_lost_and_one_that_cant_be_read_is_not_known() -> None:
    world = World()
    held = locks(world)
    held.take()
    world.blind = lambda _: True
    with pytest.raises(NotKnown):
        held.confirm()
    world.blind = lambda _: False
    held.confirm()
    world.items.remove(world.leases[NODE_LOCK])
    with pytest.raises(Fenced, match="is gone"):
        held.confirm()


@pytest.mark.usefixtures("no_thread")
def test_a_conflict_that_is_no_loss_is_none() -> None:
    world = World()
    conflict = Conflict(Unknown(Reason.SERVER_ERROR, "the object has been modified"))
    hands = Hands(world, before=_raising(conflict, {2}))
    held = locks(world, hands=hands)
    held.take()
    held.target.renew()
    held.confirm()


def test_the_old_process_that_wakes_up_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped before any of its writes, past its lock's end; another ends the run; then it goes on."""
    monkeypatch.setattr(Locks, "_keep_alive", lambda _: None)
    begun = World()
    hands = Hands(begun)
    begun.begin(begun.crew(hands))
    for at in range(3, hands.written):
        for look in (0, 1):
            _stopped_and_continued(at, look)


def _stopped_and_continued(at: int, looks_before: int) -> None:
    """It is stopped before the look that comes so many looks before the write: between a look and its write
    nobody can see to it but the server, which refuses by what the write tests."""
    world = World()
    counted = World()
    when: list[int] = []
    seen = [0]
    counted.seen = seen.append
    counted.begin(counted.crew(Hands(counted, before=lambda _: when.append(seen[-1]))))
    stop_at = when[at] - looks_before
    woken: list[int] = []
    resumed: list[Outcome] = []

    def stops(number: int) -> None:
        if number == stop_at and not woken:
            woken.append(len(world.writer.calls))
            if "r1" in world.journals and world.run().state is Standing.UNFINISHED:
                resumed.append(world.go_on().outcome)
                woken.append(len(world.writer.calls))

    world.seen = stops
    ending = world.begin()
    if not resumed:
        return
    assert resumed == [Outcome.SUCCEEDED]
    later = world.writer.calls[woken[-1] :]
    assert not [call for call in later if call.verb != "create" or call.ref.kind.kind != "Event"], later
    assert not later
    assert ending.outcome is Outcome.FAILED
    assert world.marks() == {VALUE: "new"}
    assert (world.run().state, world.run().outcome) == (Standing.FINISHED, Outcome.SUCCEEDED)
    assert sorted(world.left) == ["gpu-1-train-0", "gpu-1-train-1"]
    assert not world.leases


# Showing life


def test_the_thread_renews_and_ends() -> None:
    world = World()
    held = locks(world, seconds=0.06)
    held.take()
    before = {name: each["spec"]["renewTime"] for name, each in world.leases.items()}
    _soon(lambda: all(each["spec"]["renewTime"] != before[name] for name, each in world.leases.items()))
    held.release()
    time.sleep(0.1)
    assert not world.leases


def test_a_thread_goes_on_through_failures() -> None:
    world = World()
    late = WriteFailed(Unknown(Reason.TIMEOUT, "late"))
    hands = Hands(world, before=_raising(late, set(range(2, 8))))
    held = locks(world, hands=hands, seconds=0.03)
    held.take()
    before = world.leases[NODE_LOCK]["spec"]["renewTime"]
    _soon(lambda: world.leases[NODE_LOCK]["spec"]["renewTime"] != before)
    held.stop()


def test_a_lost_slot_fences_and_the_target_stays_alive() -> None:
    world = World()
    held = locks(world, seconds=0.06)
    held.take()
    with world.lock:
        world.items.remove(world.leases[SLOT_0])
    _soon(lambda: held.slot is not None and held.slot.lost.is_set())
    with pytest.raises(Fenced, match=SLOT_0):
        held.confirm()
    before = world.leases[NODE_LOCK]["spec"]["renewTime"]
    _soon(lambda: world.leases[NODE_LOCK]["spec"]["renewTime"] != before)
    with pytest.raises(Conflict):
        held.let_go()
    assert world.leases[NODE_LOCK]["spec"]["holderIdentity"] == "r1/"


def test_the_thread_of_a_lost_lock_writes_nothing_over_the_new_holder() -> None:
    world = World()
    old = locks(world, seconds=0.06)
    old.take()
    old.stop()
    new = locks(world, session="s2", seconds=1000)
    new.take_over(no_time, silent)
    renewed = world.leases[NODE_LOCK]["spec"]["renewTime"]
    old.done.clear()
    old._keep_alive()
    _soon(old.target.lost.is_set)
    assert world.leases[NODE_LOCK]["spec"]["renewTime"] == renewed
    old.stop()
    new.release()


def test_renewing_and_releasing_at_once_leaves_nothing() -> None:
    for _ in range(30):
        world = World()
        held = locks(world, seconds=0.003)
        held.take()
        time.sleep(0.002)
        held.release()
        time.sleep(0.002)
        assert not world.leases


def _soon(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 5
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)


# Letting go


@pytest.mark.usefixtures("no_thread")
@pytest.mark.parametrize("how", ["release", "let_go"])
def test_what_cant_be_let_go_does_not_keep_the_other(how: str) -> None:
    world = World()
    no = WriteFailed(Unknown(Reason.FORBIDDEN, "no"), hopeless=True)
    hands = Hands(world, before=_raising(no, {2}))
    held = locks(world, hands=hands)
    held.take()
    with pytest.raises(WriteFailed):
        getattr(held, how)()
    still = [each for each in world.leases.values() if each["spec"]["holderIdentity"] == "r1/s1"]
    assert len(still) == 1


def test_names_are_those_kubernetes_takes() -> None:
    assert lease_name("Node", "gpu-1") == NODE_LOCK
    assert lease_name("Deployment", "serving/llm") == "gpuctl-deployment-serving.llm"
    long = lease_name("Node", "n" * 250)
    assert len(long) <= LONGEST_NAME
    assert long != lease_name("Node", "n" * 251)


# Giving up


def unlock(world: World, run: str = "r1", **more: Any) -> Any:
    return abandon(run, world.crew(**more), WHERE)


@pytest.mark.usefixtures("no_thread")
def test_a_process_that_slept_writes_nothing_once_its_run_is_given_up() -> None:
    world = World()
    old = locks(world)
    old.take()
    asleep = fenced(Hands(world), old)
    journal = Journal(
        Run(id="r1", runbook="little", target="gpu-1", started_at=NOW, updated_at=NOW, session="s1"),
        NAMESPACE,
        asleep,
        world.look_with(WHERE),
        lambda _: True,
    )
    journal.begin()
    asleep.patch(NODE, "uid-of-gpu-1", [Put(pointer("metadata", "annotations", "a"), "1")])
    woken: list[Exception] = []

    def wakes(call: Call) -> None:
        """As soon as the journal says that the run is given up."""
        if call.ref.kind.kind == "ConfigMap" and world.run().state is Standing.ABANDONED:
            with pytest.raises(Fenced) as stopped:
                asleep.patch(NODE, "uid-of-gpu-1", [Put(pointer("metadata", "annotations", "a"), "2")])
            woken.append(stopped.value)

    world.writer.after = wakes
    assert unlock(world).outcome is Outcome.SUCCEEDED
    assert woken
    assert world.marks()["a"] == "1"


@pytest.mark.usefixtures("no_thread")
def test_a_run_that_somebody_takes_up_at_that_moment_is_not_given_up() -> None:
    world = World()
    first = locks(world)
    first.take()
    first.let_go()
    second = locks(world, session="s2")

    def takes_up(call: Call) -> None:
        world.writer.before = lambda _: None
        second.take_over(no_time, silent)

    world.writer.before = takes_up
    ending = unlock(world)
    assert (ending.outcome, ending.left) == (Outcome.REFUSED, True)
    second.confirm()


@pytest.mark.usefixtures("no_thread")
def test_a_run_is_given_up_by_its_name_and_what_it_changed_stays() -> None:
    world = World()
    with pytest.raises(Killed):
        world.begin(world.crew(Hands(world, **dies(8, after=True))))
    marks = world.marks()
    assert len(marks) > 1
    assert unlock(world).outcome is Outcome.SUCCEEDED
    assert not world.leases
    assert world.marks() == marks
    assert world.run().state is Standing.ABANDONED
    assert [each.did for each in world.run().people] == ["planned", "applied", "abandoned"]
    assert unlock(world, "r7").outcome is Outcome.REFUSED


@pytest.mark.usefixtures("no_thread")
def test_a_run_that_shows_life_is_not_given_up() -> None:
    world = World()
    living = locks(world)
    living.take()

    class Renewing(Quick):
        def wait(self, timeout: float | None = None) -> bool:
            living.target.renew()
            return super().wait(timeout)

    ending = unlock(world, stop=Renewing())
    assert (ending.outcome, ending.why) == (
        Outcome.REFUSED,
        "run r1 is being worked on; stop that process first",
    )
    assert set(world.leases) == {NODE_LOCK, SLOT_0}
    assert unlock(world).outcome is Outcome.SUCCEEDED
    assert not world.leases


@pytest.mark.usefixtures("no_thread")
def test_who_is_interrupted_while_giving_up_has_given_up_nothing() -> None:
    world = World()
    locks(world).take()
    stop = Quick()
    stop.set()
    assert unlock(world, stop=stop).outcome is Outcome.CANCELLED
    assert set(world.leases) == {NODE_LOCK, SLOT_0}


@pytest.mark.usefixtures("no_thread")
def test_two_operators_on_one_node_and_on_two() -> None:
    world = World(a_cluster("gpu-1", "gpu-2"), Policy(runbooks=RunbooksPolicy(max_nodes=1)))
    planned = world.plan("gpu-2")
    with pytest.raises(Killed):
        world.begin(world.crew(Hands(world, **dies(6, after=True))))
    assert not planned.blockers
    again = world.begin(run="r2")
    assert (again.outcome, again.left) == (Outcome.REFUSED, False)
    assert "locked by run r1" in again.why
    other = world.begin(target="gpu-2", run="r3")
    assert other.outcome is Outcome.REFUSED
    assert "slot" in other.why
    assert set(world.leases) == {NODE_LOCK, SLOT_0}
    assert world.go_on().outcome is Outcome.SUCCEEDED
    assert world.begin(target="gpu-2", run="r4").outcome is Outcome.SUCCEEDED
