"""`gpuctl runs`, `resume`, `undo`, `unlock`: what was begun, by whomever, and what becomes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from gpuctl.facts.state import Reason, Unknown
from gpuctl.runbook.conduct import begin
from gpuctl.runbook.records import Member, Outcome, Run, Standing
from gpuctl.runbook.writer import WriteFailed
from tests.cli.little import Desk
from tests.runbook.little import LAST, VALUE, Hands, Killed, World, a_node, an_order, dies
from tests.schemas import FOLDER

NODE_LOCK, SLOT = "gpuctl-node-gpu-1", "gpuctl-slot-0"


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Desk:
    return Desk(World(), monkeypatch, capsys, tmp_path)


def killed(desk: Desk, at: int = 8, *, after: bool = True) -> World:
    """A run that is in the middle of it, of a process that is gone."""
    world = desk.world
    with pytest.raises(Killed):
        world.begin(world.crew(Hands(world, **dies(at, after=after))))
    return world


def failed(desk: Desk) -> World:
    world = desk.world
    no = WriteFailed(Unknown(Reason.FORBIDDEN, "no \x1b[31mway", "the node"), hopeless=True)

    def refuse(call: Any) -> None:
        if call.verb == "evict":
            raise no

    world.writer.before = refuse
    assert world.begin().outcome is Outcome.FAILED
    world.writer.before = lambda _: None
    return world


def rewritten(world: World, **changes: Any) -> None:
    """The journal as another version, or another cluster, wrote it."""
    (found,) = world.of("ConfigMap")
    run = msgspec.json.decode(found["data"]["run.json"], type=Run)
    found["data"]["run.json"] = msgspec.json.encode(msgspec.structs.replace(run, **changes)).decode()


# runs


def test_no_runs(desk: Desk) -> None:
    result = desk.gpuctl("runs")
    assert (result.code, result.out) == (0, "no runs in namespace gpuctl-system\n")


def test_an_unfinished_run_is_where_it_is_and_exits_with_1(desk: Desk) -> None:
    failed(desk)
    result = desk.gpuctl("runs")
    assert result.code == 1
    head, row = result.out.splitlines()
    assert head.split() == ["RUN", "RUNBOOK", "TARGET", "STATE", "AGE", "BY", "AT"]
    assert row.split()[:4] == ["r1", "little", "gpu-1", "unfinished"]
    assert "no \\x1b[31mway" in row
    assert "\x1b" not in result.all


def test_a_finished_run_waits_for_nobody(desk: Desk) -> None:
    desk.world.begin()
    result = desk.gpuctl("runs")
    assert result.code == 0
    assert "succeeded" in result.out
    assert result.err == ""


def test_json_is_ascii(desk: Desk) -> None:
    failed(desk)
    rewritten(desk.world, reason="\u202e\x1bé")
    result = desk.gpuctl("runs", "-o", "json")
    assert result.out.isascii()
    (run,) = json.loads(result.out)
    jsonschema.validate(run, json.loads((FOLDER / "run.v1.json").read_text(encoding="utf-8")))
    assert (run["id"], run["reason"], run["state"]) == ("r1", "\u202e\x1bé", "unfinished")
    assert desk.gpuctl("runs", "-o", "yaml").code == 2


def test_runs_that_cant_be_read_are_no_empty_list(desk: Desk) -> None:
    desk.world.blind = lambda _: True
    result = desk.gpuctl("runs")
    assert result.code == 3
    assert "runs can't be read" in result.err


def test_a_journal_that_cant_be_read_is_a_gap(desk: Desk) -> None:
    desk.world.begin()
    (found,) = desk.world.of("ConfigMap")
    found["data"]["run.json"] = "{"
    result = desk.gpuctl("runs")
    assert result.code == 3
    assert "malformed" in result.err
    assert desk.gpuctl("resume", "r1").code == 3


def test_locks_that_belong_to_nobody_are_named(desk: Desk) -> None:
    killed(desk, 1)
    result = desk.gpuctl("runs")
    assert f"{NODE_LOCK} has no journal: its run never began; gpuctl unlock r1" in result.err


def test_locks_that_outlived_their_run_are_named(desk: Desk) -> None:
    world = desk.world
    no = WriteFailed(Unknown(Reason.FORBIDDEN, "no", "the lock"), hopeless=True)

    def refuse(call: Any) -> None:
        if call.verb == "delete":
            raise no

    world.writer.before = refuse
    assert world.begin().outcome is Outcome.SUCCEEDED
    world.writer.before = lambda _: None
    result = desk.gpuctl("runs")
    assert result.code == 0
    assert f"{NODE_LOCK} is left over of a run that has ended; gpuctl unlock r1" in result.err
    assert f"{SLOT} is left over" in result.err
    assert desk.gpuctl("unlock", "r1").code == 0
    assert not world.leases
    assert desk.gpuctl("runs").err == ""
    assert world.run().state is Standing.FINISHED


def test_locks_that_cant_be_read_are_a_gap(desk: Desk) -> None:
    desk.world.begin()
    assert desk.gpuctl("runs").code == 0
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {"holderIdentity": 5}}
    desk.world.items.append({**lease, "metadata": {"name": SLOT, "namespace": "gpuctl-system", "uid": "u"}})
    result = desk.gpuctl("runs")
    assert result.code == 3
    assert "it can't be told whether locks are left that belong to no run" in result.err


def test_nodes_that_cant_be_read_are_a_gap_where_a_lock_is_of_one(desk: Desk) -> None:
    broken = {**a_node("gpu-9"), "metadata": {"name": "gpu-9", "uid": "u-9", "labels": 5}}
    desk.world.items.append(broken)
    assert desk.gpuctl("runs").code == 0
    desk.world.items.remove(broken)
    killed(desk)
    assert desk.gpuctl("runs").code == 1
    desk.world.items.append(broken)
    result = desk.gpuctl("runs")
    assert result.code == 3
    assert "it can't be told whether locks are left of nodes that are gone" in result.err


def test_the_lock_of_a_node_that_is_gone_is_named_a_ghost(desk: Desk) -> None:
    world = failed(desk)
    assert "gone" not in desk.gpuctl("runs").err
    world.items.remove(world.node())
    assert f"{NODE_LOCK} is of a node that is gone; gpuctl unlock r1" in desk.gpuctl("runs").err
    world.items.append({**a_node(), "metadata": {**a_node()["metadata"], "uid": "another"}})
    assert "gone" in desk.gpuctl("runs").err
    assert desk.gpuctl("unlock", "r1").code == 0
    assert not world.leases


# resume, undo


def test_resuming_what_was_killed(desk: Desk) -> None:
    world = killed(desk)
    result = desk.gpuctl("resume", "r1")
    assert result.code == 0, result.all
    assert "succeeded: run r1" in result.out
    assert "waiting 30 s to see whether" in result.err
    assert world.marks() == {VALUE: "new"}
    assert not world.leases


def test_undoing_what_was_killed(desk: Desk) -> None:
    world = killed(desk)
    result = desk.gpuctl("undo", "r1")
    assert result.code == 0, result.all
    assert "reverted: run r1" in result.out
    assert world.marks() == {VALUE: "old"}


def test_what_is_over_is_not_gone_on_with(desk: Desk) -> None:
    desk.world.begin()
    result = desk.gpuctl("resume", "r1")
    assert result.code == 1
    assert "run r1 is finished: there is nothing to go on with" in result.err
    failed_again = World()
    desk.world = failed_again
    failed(desk)
    assert desk.gpuctl("undo", "r1").code == 0
    assert desk.gpuctl("undo", "r1").code == 1
    assert desk.gpuctl("resume", "r1").code == 1


def test_a_run_that_does_not_exist(desk: Desk) -> None:
    for verb in ("resume", "undo"):
        result = desk.gpuctl(verb, "r7")
        assert result.code == 2
        assert "there is no run r7 in namespace gpuctl-system; see gpuctl runs" in result.err
    result = desk.gpuctl("unlock", "r7")
    assert result.code == 1
    assert "neither a journal nor a lock of run r7" in result.err


def test_a_run_of_another_cluster(desk: Desk) -> None:
    failed(desk)
    desk.cluster = "cluster-2"
    result = desk.gpuctl("resume", "r1")
    assert result.code == 1
    assert "run r1 is of cluster cluster-1, this one is cluster-2" in result.err


def test_a_run_of_a_later_version(desk: Desk) -> None:
    world = failed(desk)
    steps = world.run().steps
    stranger = msgspec.structs.replace(steps[0], step={"step": "Paint", "colour": "blue"})
    rewritten(world, steps=(stranger, *steps[1:]))
    result = desk.gpuctl("resume", "r1")
    assert result.code == 4
    assert "this version of gpuctl does not know a step of the run" in result.err
    assert {each["spec"]["holderIdentity"] for each in world.leases.values()} == {"r1/"}
    rewritten(world, steps=steps, runbook="larger")
    result = desk.gpuctl("resume", "r1")
    assert result.code == 2
    assert "there is no runbook 'larger'" in result.err


def test_undoing_a_finished_run_is_a_new_plan(desk: Desk) -> None:
    world = desk.world
    world.begin()
    result = desk.gpuctl("undo", "r1")
    assert result.code == 2
    assert "undoing it is a new plan of little" in result.err
    assert world.marks() == {VALUE: "new"}
    result = desk.gpuctl("undo", "r1", typed="gpu-2")
    assert result.code == 1
    assert world.marks() == {VALUE: "new"}
    desk.world.items[:] = [each for each in world.items if each["metadata"]["name"] != "newcomer"]
    result = desk.gpuctl("undo", "r1", typed="gpu-1")
    assert result.code == 0, result.all
    assert world.marks() == {VALUE: "old"}
    assert len(world.journals) == 2


# Overrides


def last_of_its_kind(desk: Desk) -> None:
    desk.world.node()["metadata"]["labels"][LAST] = ""


def test_what_came_up_since_is_refused_and_can_be_overridden_as_in_a_plan(desk: Desk) -> None:
    world = killed(desk)
    last_of_its_kind(desk)
    result = desk.gpuctl("resume", "r1")
    assert result.code == 1
    assert "Node gpu-1 is the last of its kind (override: --force)" in result.err
    assert world.marks()[VALUE] == "old"
    result = desk.gpuctl("resume", "r1", "--force", "--reason", "it must be")
    assert result.code == 0, result.all
    assert world.marks() == {VALUE: "new"}
    assert [each.overrides for each in world.run().people] == [(), (), ("--force",)]


def test_what_a_run_was_begun_with_need_not_be_said_again(desk: Desk) -> None:
    world = desk.world
    last_of_its_kind(desk)
    with pytest.raises(Killed):
        begin(world.task(force=True), an_order(), world.plan(force=True), crew_killed_at(world, 8), "r1")
    assert desk.gpuctl("resume", "r1").code == 0
    assert [each.overrides for each in world.run().people] == [(), (), ()]


def crew_killed_at(world: World, at: int) -> Any:
    return world.crew(Hands(world, **dies(at, after=True)))


def test_going_back_is_never_refused(desk: Desk) -> None:
    world = killed(desk)
    last_of_its_kind(desk)
    assert desk.gpuctl("undo", "r1").code == 0
    assert world.marks() == {VALUE: "old"}


def test_the_plan_that_undoes_a_finished_run_can_be_overridden_like_any_other(desk: Desk) -> None:
    world = desk.world
    world.begin()
    world.items[:] = [each for each in world.items if each["metadata"]["name"] != "newcomer"]
    last_of_its_kind(desk)
    result = desk.gpuctl("undo", "r1", typed="gpu-1")
    assert result.code == 1
    assert "last of its kind" in result.out
    assert "--force" in result.out
    assert world.marks() == {VALUE: "new"}
    result = desk.gpuctl("undo", "r1", "--force", typed="gpu-1")
    assert result.code == 0, result.all
    assert world.marks() == {VALUE: "old"}


def test_without_a_terminal_the_command_is_told_that_makes_that_plan(desk: Desk) -> None:
    desk.world.begin()
    result = desk.gpuctl("undo", "r1", "--force")
    assert result.code == 2
    assert "make it by `gpuctl plan little gpu-1 --to old --force`, and apply it" in result.err


@pytest.mark.parametrize("verb", ["resume", "undo"])
@pytest.mark.parametrize(
    ("rest", "says"),
    [
        (("r1", "--last-node"), "No such option: --last-node"),
        (("r1", "--skip", "a"), "No such option: --skip"),
        (("r1", "r2"), "unexpected extra argument"),
        (("--force", "r1"), "name the run first, then --force"),
    ],
)
def test_only_overrides_of_its_runbook_and_after_its_name(
    desk: Desk, verb: str, rest: tuple[str, ...], says: str
) -> None:
    world = killed(desk)
    marks = world.marks()
    result = desk.gpuctl(verb, *rest)
    assert result.code == 2, result.all
    assert says in result.err
    assert world.marks() == marks


def test_shared_flags_may_stand_anywhere(desk: Desk) -> None:
    killed(desk)
    last_of_its_kind(desk)
    result = desk.gpuctl("resume", "--context", "lab", "r1", "--force", "--ticket", "T-1")
    assert result.code == 0, result.all


# Undoing what is finished


def test_a_finished_rolling_change_is_undone_target_by_target(desk: Desk) -> None:
    desk.world.begin()
    member = Member(target="gpu-1", run="r2", outcome=Outcome.SUCCEEDED)
    rewritten(desk.world, members=(member,))
    result = desk.gpuctl("undo", "r1", typed="gpu-1")
    assert result.code == 1
    assert "undo the runs of its targets, r2" in result.err


def test_of_a_finished_run_that_no_plan_undoes_nothing_is_said_to_come_back(desk: Desk) -> None:
    desk.world.begin()
    rewritten(desk.world, runbook="drain")
    result = desk.gpuctl("undo", "r1", typed="gpu-1")
    assert result.code == 1
    assert "run r1 is finished, and drain has no plan that undoes it; nothing was done" in result.err
    assert "Only of a run that is not finished undo brings back: the node is uncordoned if" in result.err


def test_a_finished_run_of_another_version_cant_be_undone_here(desk: Desk) -> None:
    desk.world.begin()
    rewritten(desk.world, runbook="larger")
    result = desk.gpuctl("undo", "r1", typed="gpu-1")
    assert result.code == 2
    assert "there is no runbook 'larger'" in result.err


def test_a_run_that_is_verified_only_goes_forward(desk: Desk) -> None:
    world = desk.world
    counted = World()
    hands = Hands(counted)
    counted.begin(counted.crew(hands))
    killed(desk, hands.written - 6)
    assert world.run().verified
    result = desk.gpuctl("undo", "r1")
    assert result.code == 1
    assert "gpuctl resume r1 ends it" in result.err
    assert desk.gpuctl("resume", "r1").code == 0
    assert world.marks() == {VALUE: "new"}


# unlock


def test_giving_up_leaves_what_was_changed(desk: Desk) -> None:
    world = killed(desk)
    marks = world.marks()
    result = desk.gpuctl("unlock", "r1")
    assert result.code == 0
    told = world.of("Event")[-1]
    assert (told["reason"], told["involvedObject"]["name"]) == ("GpuctlAbandoned", "gpu-1")
    assert told["message"].startswith("gpuctl little abandoned by ana@bastion-1 as ana, run r1")
    assert "run r1 is given up; what it changed stays as it is" in result.err
    assert world.marks() == marks
    assert not world.leases
    assert world.run().state is Standing.ABANDONED
    assert "abandoned" in desk.gpuctl("runs").out


def test_what_cant_be_given_up_is_4(desk: Desk) -> None:
    killed(desk)
    desk.world.blind = lambda _: True
    result = desk.gpuctl("unlock", "r1")
    assert result.code == 4
    assert "could not be given up" in result.err
