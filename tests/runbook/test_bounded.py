"""No more pods are evicted than the plan allows, whatever a step asks for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Reason, Unknown
from gpuctl.runbook.bounded import BoundedWriter, Ledger
from gpuctl.runbook.conduct import begin
from gpuctl.runbook.drain.pods import DrainPod
from gpuctl.runbook.lock import Locks
from gpuctl.runbook.records import Bounds, Lease, Outcome
from gpuctl.runbook.writer import Blocked, Conflict, WriteFailed, Writer
from tests.runbook import little
from tests.runbook.little import Killed, World, an_order

POD = Ref(DrainPod.of, "web-1", "team-a")
TWO = Bounds(evictions=2, namespaces=("team-a",))
LATE = WriteFailed(Unknown(Reason.TIMEOUT, "no answer"))
ANOTHER = Conflict(Unknown(Reason.SERVER_ERROR, "another uid"))


@dataclass
class Server:
    """Answers from a list, and then with success; notes what was asked."""

    answers: list[Any] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def evict(self, pod: Ref, uid: str, grace: int | None = None) -> Blocked | None:
        self.asked.append(uid)
        answer: Blocked | Exception | None = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def delete(self, ref: Ref, uid: str, grace: int | None = None) -> None:
        self.evict(ref, uid, grace)


def bounded(server: Any, bounds: Bounds = TWO) -> BoundedWriter:
    writer: Writer = server
    return BoundedWriter(writer, bounds)


def tried(writer: BoundedWriter, *uids: str, deletes: bool = False) -> list[str]:
    """Which of them were refused."""
    refused = []
    for uid in uids:
        try:
            (writer.delete if deletes else writer.evict)(POD, uid)
        except WriteFailed as failed:
            if failed.hopeless:
                refused.append(uid)
    return refused


@pytest.mark.parametrize("deletes", [False, True])
def test_so_many_and_no_more(deletes: bool) -> None:
    server = Server()
    assert tried(bounded(server), "a", "b", "a", "c", "b", deletes=deletes) == ["c"]
    assert server.asked == ["a", "b", "a", "b"]


@pytest.mark.parametrize(
    ("answer", "counts"), [(Blocked("a budget"), False), (ANOTHER, False), (LATE, True), (None, True)]
)
def test_what_was_not_evicted_does_not_count_and_what_may_have_been_does(answer: Any, counts: bool) -> None:
    assert tried(bounded(Server([answer])), "a", "b", "c") == (["c"] if counts else [])


def test_of_an_answer_that_was_lost_a_later_conflict_takes_nothing_back() -> None:
    assert tried(bounded(Server([LATE, ANOTHER])), "a", "a", "b", "c") == ["c"]


def journaled(server: Any, *counted: str) -> tuple[BoundedWriter, list[str]]:
    """The writer of a process, and what stands in the journal of its run."""
    found = list(counted)
    writer: Writer = server
    return BoundedWriter(writer, TWO, Ledger(lambda: found, found.append)), found


def test_what_the_journal_counts_is_not_allowed_again_and_what_is_new_is_noted_before_it_is_asked() -> None:
    server = Server([LATE])
    writer, journal = journaled(server, "a")
    assert tried(writer, "b", "a", "c", "b") == ["c"]
    assert (journal, server.asked) == (["a", "b"], ["b", "a", "b"])
    later, _ = journaled(server, *journal)
    assert tried(later, "c", "a") == ["c"]


def test_what_the_journal_counts_and_is_still_there_does_not_count() -> None:
    later, journal = journaled(Server([Blocked("a budget")]), "a", "b")
    assert tried(later, "b", "c", "d") == ["d"]
    assert journal == ["a", "b", "c"]


def test_in_other_namespaces_nothing_goes() -> None:
    writer = bounded(Server(), Bounds(evictions=2, namespaces=("team-b",)))
    with pytest.raises(WriteFailed, match="no eviction in namespace team-a") as refused:
        writer.evict(POD, "a")
    assert refused.value.hopeless


def test_other_objects_and_pods_of_the_runbook_itself_are_deleted_as_ever() -> None:
    server = Server()
    assert tried(bounded(server, Bounds()), "a", "b", "c", deletes=True) == []
    lease = Ref(Lease.of, "gpuctl-slot-0", "gpuctl-system")
    for uid in ("d", "e", "f"):
        bounded(server).delete(lease, uid)
    assert server.asked == ["a", "b", "c", "d", "e", "f"]


def test_pods_that_come_back_again_and_again_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Locks, "_keep_alive", lambda _: None)
    world = World()
    leaves, numbers = world.writer.leaves, iter(range(10**6))

    def comes_back(item: dict[str, Any]) -> None:
        leaves(item)
        if item["kind"] == "Pod":
            world.items.append(little.a_pod(f"back-{next(numbers)}"))

    world.writer.leaves = comes_back
    ending = world.begin()
    assert ending.outcome is Outcome.FAILED
    assert "2 pods were evicted, and the plan allows no more" in ending.why
    assert world.left == ["gpu-1-train-0", "gpu-1-train-1"]
    again = world.go_on()
    assert again.outcome is Outcome.FAILED
    assert "2 pods were evicted, and the plan allows no more" in again.why
    assert world.left == ["gpu-1-train-0", "gpu-1-train-1"]


def test_what_a_killed_process_has_evicted_beyond_the_plans_own_counts_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The plan allows three, and names two: of those that come, one may go, whoever goes on."""
    monkeypatch.setattr(Locks, "_keep_alive", lambda _: None)
    world = World()
    plan = world.plan()
    plan = replace(plan, bounds=replace(plan.bounds, evictions=3))
    leaves, numbers = world.writer.leaves, iter(range(10**6))

    def comes_back(item: dict[str, Any]) -> None:
        leaves(item)
        if item["kind"] == "Pod":
            world.items.append(little.a_pod(f"back-{next(numbers)}"))
        if len(world.left) == 3:
            raise Killed

    world.writer.leaves = comes_back
    with pytest.raises(Killed):
        begin(world.task(), an_order(), plan, world.crew(), "r1")
    assert world.run().evicted == ("uid-of-back-0",)
    world.writer.leaves = leaves
    ending = world.go_on()
    assert ending.outcome is Outcome.FAILED
    assert "3 pods were evicted, and the plan allows no more" in ending.why
    assert world.left == ["gpu-1-train-0", "gpu-1-train-1", "back-0"]
