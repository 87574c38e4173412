"""The journal: one writer at a time, nothing lost of what was answered, nothing overwritten of another's."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpuctl.cli import history
from gpuctl.facts.own import STATE_NAMESPACE
from gpuctl.facts.state import NotKnown, Reason, Unknown
from gpuctl.runbook.drain.candidates import DrainRules, Scope
from gpuctl.runbook.drain.evict import Drain
from gpuctl.runbook.drain.victims import Victim
from gpuctl.runbook.journal import HURRIED, TRIES, Journal, outdated, ref_of
from gpuctl.runbook.records import Bounds, Direction, Member, Outcome, Reached, Run, Standing, decoded, runs
from gpuctl.runbook.writer import Conflict, Fenced, Put, WriteFailed, pointer
from tests.runbook.little import NAMESPACE, Close, Hands, World, recorded

NOW = datetime(2026, 11, 30, 10, tzinfo=UTC)
WHERE = {STATE_NAMESPACE: NAMESPACE}
LATE = WriteFailed(Unknown(Reason.TIMEOUT, "late"))
STEPS = recorded(Close(node="gpu-1", uid="uid-of-gpu-1"))


def a_run(id_: str = "r1", session: str = "s1", **more: Any) -> Run:
    about: dict[str, Any] = {"steps": STEPS, "started_at": NOW, "updated_at": NOW, **more}
    return Run(id=id_, runbook="little", target="gpu-1", session=session, **about)


class Pen:
    """A journal, with what it is told of."""

    def __init__(self, world: World, session: str = "s1", patient: bool = True, **more: Any) -> None:
        self.world = world
        self.kept: list[Run] = []
        self.waits: list[float] = []
        self.hands = Hands(world)
        self.patient = patient
        look = world.look_with(WHERE)
        self.journal = Journal(
            a_run(session=session, **more), NAMESPACE, self.hands, look, self.wait, self.kept.append
        )

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        return self.patient

    def fails(self, at: set[int], error: Exception = LATE, *, after: bool = False) -> None:
        start = self.hands.written

        def strike(number: int) -> None:
            if number - start in at:
                raise error

        self.hands.before, self.hands.after = (lambda _: None, strike) if after else (strike, lambda _: None)


def begun() -> Pen:
    pen = Pen(World())
    pen.journal.begin()
    return pen


def test_a_journal_says_what_it_is() -> None:
    pen = begun()
    (found,) = pen.world.of("ConfigMap")
    assert found["metadata"]["name"] == "gpuctl-run-r1"
    assert found["metadata"]["labels"]["gpuctl.dev/state"] == "unfinished"
    assert found["metadata"]["labels"]["gpuctl.dev/run"] == "r1"
    assert json.loads(found["data"]["run.json"])["steps"][0]["step"]["step"] == "Close"
    pen.journal.note(state=Standing.FINISHED)
    (found,) = pen.world.of("ConfigMap")
    assert found["metadata"]["labels"]["gpuctl.dev/state"] == "finished"
    assert found["metadata"]["annotations"]["gpuctl.dev/revision"] == "1"
    assert pen.world.run() == pen.journal.run


def test_entries_count_up_and_the_run_is_that_of_the_last() -> None:
    pen = begun()
    for number in range(5):
        pen.journal.reached(0, reached=Reached.BEGUN, begun_at=NOW)
        assert pen.journal.run.revision == pen.world.run().revision == number + 1
    assert pen.world.reached() == [Reached.BEGUN]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("times", [1, 2, TRIES - 1])
@pytest.mark.parametrize("first", [False, True])
def test_an_entry_without_an_answer_is_written_once(after: bool, times: int, first: bool) -> None:
    pen = Pen(World()) if first else begun()
    pen.fails(set(range(times)), after=after)
    pen.journal.begin() if first else pen.journal.note(why="said once")
    assert pen.world.run() == pen.journal.run
    assert len(pen.waits) == (1 if after else times)
    pen.fails(set())
    pen.journal.note(why="and goes on")
    assert pen.world.run().why == "and goes on"


def long_named(number: int) -> Victim:
    """One of a pod with names as long as they may be."""
    name = f"{'n' * 58}{number:05}"
    return Victim(
        namespace="s" * 63,
        name=name,
        uid="0a1b2c3d-0000-4000-8000-000000000001",
        holds=("1x nvidia.com/mig-1g.10gb",),
        team="t" * 63,
        owners=(f"ReplicaSet {name}", f"Deployment {name}"),
        owner_kind="ReplicaSet",
        controller="0a1b2c3d-0000-4000-8000-000000000002",
        work="serving",
        workload=name,
        queue="q" * 63,
        budgets=(f"{'s' * 63}/{name}",),
    )


def test_a_node_full_of_pods_fits_into_a_journal() -> None:
    drain = Drain(
        node="gpu-1",
        node_uid="uid-of-gpu-1",
        scope=Scope.ALL,
        by=DrainRules(),
        bounds=Bounds(evictions=500),
        victims=tuple(map(long_named, range(500))),
        since=NOW,
    )
    pen = Pen(World(), steps=recorded(drain))
    pen.journal.begin()
    pen.journal.note(why="and grows")


def test_what_would_not_fit_into_a_journal_is_not_begun() -> None:
    def rolling(count: int) -> Pen:
        member = Member(target="n" * 63, preconditions={"GPUs": "0: 7x 1g.10gb; " * 8})
        return Pen(World(), members=(member,) * count)

    rolling(500).journal.begin()
    pen = rolling(5000)
    with pytest.raises(WriteFailed, match="name fewer targets at once") as failed:
        pen.journal.begin()
    assert failed.value.hopeless
    assert not pen.world.of("ConfigMap")


def test_an_answer_that_never_comes_ends_the_entry_and_not_the_order() -> None:
    pen = begun()
    pen.fails(set(range(TRIES)))
    with pytest.raises(WriteFailed):
        pen.journal.note(why="lost")
    assert pen.journal.run.why == ""
    assert pen.waits == sorted(pen.waits)
    assert max(pen.waits) <= 5.0
    pen.journal.note(why="next")
    assert pen.world.run().why == "next"


def test_an_entry_that_arrived_after_all_is_written_over_by_the_next_of_the_same_process() -> None:
    """Its answer was lost, and so was every one of asking again."""
    pen = begun()
    pen.fails({0}, after=True)
    start = pen.hands.written
    pen.hands.before = lambda number: (_ for _ in ()).throw(LATE) if number > start else None
    with pytest.raises(WriteFailed):
        pen.journal.note(why="arrived")
    assert pen.world.run().why == "arrived"
    assert pen.journal.run.why == ""
    pen.fails(set())
    pen.journal.note(direction=Direction.BACK)
    assert pen.world.run().direction is Direction.BACK
    assert pen.world.run().revision == 2
    assert pen.world.run() == pen.journal.run


def test_interrupted_it_hurries_and_still_tries() -> None:
    pen = begun()
    pen.patient = False
    pen.fails(set(range(HURRIED - 1)))
    pen.journal.note(why="interrupted")
    assert pen.world.run().why == "interrupted"
    pen.fails(set(range(HURRIED)))
    with pytest.raises(WriteFailed):
        pen.journal.note(why="lost")


def test_what_is_refused_is_not_asked_again() -> None:
    pen = begun()
    pen.fails({0, 1}, WriteFailed(Unknown(Reason.FORBIDDEN, "no"), hopeless=True))
    before = pen.hands.written
    with pytest.raises(WriteFailed):
        pen.journal.note(why="no")
    assert pen.hands.written == before + 1


def test_another_process_is_noticed_and_not_written_over() -> None:
    pen = begun()
    other = Pen(pen.world, "s2")
    other.journal.go_on("s2")
    other.journal.note(why="by the other")
    for _ in range(2):
        with pytest.raises(Fenced, match="another process has written"):
            pen.journal.note(why="by the old one")
    assert pen.world.run().why == "by the other"
    other.journal.note(why="still")


def test_another_process_before_a_lost_answer_is_noticed_too() -> None:
    pen = begun()
    pen.fails({0})
    start = pen.hands.written

    def meanwhile(number: int) -> None:
        if number == start:
            Pen(pen.world, "s2").journal.go_on("s2")
            raise LATE

    pen.hands.before = meanwhile
    with pytest.raises(Fenced):
        pen.journal.note(why="by the old one")
    assert pen.world.run().session == "s2"


def test_a_conflict_that_is_nobodys_entry_is_written_over() -> None:
    """As when a person adds an annotation at the same moment."""
    pen = begun()
    pen.fails({0}, Conflict(Unknown(Reason.SERVER_ERROR, "modified")))
    pen.journal.note(why="written")
    assert pen.world.run().why == "written"


def test_a_journal_that_is_gone_or_another_ends_the_run() -> None:
    pen = begun()
    pen.world.items.remove(pen.world.of("ConfigMap")[0])
    with pytest.raises(Fenced):
        pen.journal.note(why="x")
    with pytest.raises(Fenced, match="gone"):
        Pen(pen.world, "s2").journal.go_on("s2")


def test_two_processes_that_begin_one_name_are_one_too_many() -> None:
    pen = begun()
    with pytest.raises(Fenced):
        Pen(pen.world, "s2").journal.begin()


def test_who_wrote_it_is_asked_again_where_that_cant_be_read() -> None:
    pen = begun()
    pen.fails({0}, after=True)
    pen.world.blind = lambda number: number == 0
    pen.journal.note(why="arrived")
    assert pen.world.run().why == "arrived"
    assert pen.journal.run == pen.world.run()


def test_annotations_that_were_taken_away_stop_the_run() -> None:
    pen = begun()
    (found,) = pen.world.of("ConfigMap")
    del found["metadata"]["annotations"]
    with pytest.raises(Fenced, match="keeps changing"):
        pen.journal.note(why="x")


def test_a_journal_too_large_is_refused_and_nothing_of_it_stands() -> None:
    pen = begun()
    limit = 1 << 20

    def as_the_server(number: int) -> None:
        text = msgspec.json.encode(entry)
        if len(text) > limit:
            raise WriteFailed(
                Unknown(Reason.SERVER_ERROR, "Too long: may not be more than 1048576 bytes"), hopeless=True
            )

    entry = msgspec.structs.replace(pen.journal.run, why="x" * limit)
    pen.hands.before = as_the_server
    with pytest.raises(WriteFailed, match="Too long"):
        pen.journal.note(why="x" * limit)
    assert pen.world.run().why == ""


def test_a_rolling_change_over_a_thousand_nodes_fits() -> None:
    members = tuple(
        Member(
            target=f"gpu-node-{number:04d}.example.internal",
            target_uid="01234567-89ab-cdef-0123-456789abcdef",
            preconditions={"config": "all-1g.10gb", "driver": "container", "mode": "mixed", "boot": "x" * 36},
            run="20261130-100000-abcdef",
            outcome=Outcome.SUCCEEDED,
        )
        for number in range(1000)
    )
    assert len(msgspec.json.encode(a_run(members=members))) < 1 << 20


# Copies and reading


def test_the_copy_on_this_machine_is_written_first_and_is_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "folder", lambda: tmp_path)
    pen = begun()
    assert pen.kept[-1].id == "r1"
    pen.fails(set(range(TRIES)))
    with pytest.raises(WriteFailed):
        pen.journal.note(why="intended")
    assert pen.kept[-1].why == "intended"
    history.keep(pen.journal.run, pytest.fail)
    (path,) = (tmp_path / "runs").iterdir()
    assert path.name == "r1.json"
    assert msgspec.json.decode(path.read_bytes(), type=Run) == pen.journal.run
    history.note({"run": "r1"}, pytest.fail)
    history.note({"run": "r2"}, pytest.fail)
    assert len((tmp_path / "audit.jsonl").read_text().splitlines()) == 2


def test_a_disk_that_takes_nothing_is_told_and_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(history, "folder", lambda: tmp_path / "file")
    told: list[str] = []
    history.keep(a_run(), told.append)
    history.note({}, told.append)
    assert len(told) == 2


def test_what_is_in_a_journal_comes_back_whole() -> None:
    pen = begun()
    assert pen.world.run() == pen.journal.run
    facts = pen.world.look_with(WHERE)([runs])
    assert facts[runs]["r1"] == pen.journal.run


@pytest.mark.parametrize("spoilt", ["{", "{}", '{"id": "r1"}', "\ud800"])
def test_a_journal_that_cant_be_read_is_a_gap_and_the_others_are_read(spoilt: str) -> None:
    pen = begun()
    pen.world.writer.create(ref_of("r2", NAMESPACE), _body("r2", spoilt if spoilt.isascii() else "ÿ"))
    found = pen.world.look_with(WHERE)([runs])[runs]
    assert found["r1"].id == "r1"
    with pytest.raises(NotKnown):
        found.get("r2")


def test_the_journal_of_another_run_is_not_that_of_its_label() -> None:
    """A name goes into paths and requests: it must be the one that was looked for."""
    pen = begun()
    for name in ("../../etc/x", "r3"):
        text = msgspec.json.encode(a_run(name)).decode()
        pen.world.writer.create(ref_of("r2", NAMESPACE), _body("r2", text))
        found = pen.world.look_with(WHERE)([runs])[runs]
        with pytest.raises(NotKnown, match="it is the journal of run"):
            found.get("r2")
        pen.world.items.pop()


def _body(run: str, text: str) -> dict[str, Any]:
    return {"metadata": {"labels": {"gpuctl.dev/run": run}}, "data": {"run.json": text}}


def test_other_config_maps_are_no_journals() -> None:
    pen = begun()
    pen.world.items.append(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "kube-root-ca.crt", "namespace": NAMESPACE, "uid": "u"},
            "data": {"ca.crt": "x"},
        }
    )
    assert list(pen.world.look_with(WHERE)([runs])[runs].entries) == ["r1"]
    assert decoded is not None


def test_a_field_of_a_later_version_does_not_hide_a_journal() -> None:
    pen = begun()
    (found,) = pen.world.of("ConfigMap")
    content = json.loads(found["data"]["run.json"])
    text = json.dumps({**content, "somethingNew": 1})
    pen.world.writer.patch(
        ref_of("r1", NAMESPACE), found["metadata"]["uid"], (Put(pointer("data", "run.json"), text),)
    )
    assert pen.world.look_with(WHERE)([runs])[runs]["r1"] == pen.journal.run


def test_old_journals_go_and_unfinished_ones_stay() -> None:
    def of(number: int, state: Standing = Standing.FINISHED) -> Run:
        return a_run(f"r{number}", state=state, started_at=NOW + timedelta(hours=number))

    every = [of(3), of(1), of(2), of(0, Standing.UNFINISHED), of(4, Standing.ABANDONED)]
    assert [each.id for each in outdated(every, 2)] == ["r2", "r1"]
    assert not list(outdated(every, 9))


def test_what_is_done_often_pushes_out_no_journal_of_another_runbook() -> None:
    def of(number: int, runbook: str) -> Run:
        run = a_run(f"r{number}", state=Standing.FINISHED, started_at=NOW + timedelta(hours=number))
        return msgspec.structs.replace(run, runbook=runbook)

    drill = of(0, "flavor-drill")
    every = [drill, *(of(number, "taint-unmigged") for number in range(1, 4))]
    assert [each.id for each in outdated(every, 2)] == ["r1"]
    assert {each.id for each in outdated([*every, of(4, drill.runbook)], 1)} == {"r2", "r1", "r0"}
