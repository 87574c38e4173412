"""`gpuctl apply`: who may act without being asked, what is refused, and how it ends."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpuctl.cli.acting import _tell
from gpuctl.cli.stopping import stoppable
from gpuctl.facts.state import Reason, Unknown
from gpuctl.runbook.plan import Plan, from_text, sealed, to_text
from gpuctl.runbook.records import Run, Standing
from gpuctl.runbook.writer import WriteFailed
from tests.cli.little import Desk
from tests.runbook.little import VALUE, World, a_cluster, a_pod


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Desk:
    return Desk(World(), monkeypatch, capsys, tmp_path)


def untouched(desk: Desk) -> None:
    assert not desk.world.writer.calls
    assert desk.world.marks() == {VALUE: "old"}


class Gone(io.TextIOBase):
    """A terminal that is not there any more."""

    def write(self, _text: str) -> int:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")


def test_a_terminal_that_is_gone_ends_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Gone())
    _tell("drain node gpu-1")
    with stoppable() as stop:
        signal.raise_signal(signal.SIGTERM)
        assert stop.wait(5)


def the_run(desk: Desk) -> Run:
    (run,) = desk.world.journals.values()
    return run


# Confirming


def test_the_name_of_the_target_is_typed_and_it_is_done(desk: Desk) -> None:
    result = desk.gpuctl("apply", "little", "gpu-1", "--reason", "spring", "--ticket", "T-7", typed="gpu-1")
    assert result.code == 0, result.all
    run = the_run(desk)
    assert f"succeeded: run {run.id}" in result.out
    assert desk.world.marks() == {VALUE: "new"}
    assert "type gpu-1 to go on" in result.err
    assert (run.reason, run.ticket) == ("spring", "T-7")
    assert run.plan.startswith("sha256:")


@pytest.mark.parametrize("typed", ["gpu-2", "", "y", "yes", "GPU-1"])
def test_anything_else_that_is_typed_does_nothing(desk: Desk, typed: str) -> None:
    result = desk.gpuctl("apply", "little", "gpu-1", typed=typed)
    assert result.code == 1
    assert "nothing was done" in result.err
    untouched(desk)


def test_without_a_terminal_nothing_is_done_and_not_even_asked(desk: Desk) -> None:
    result = desk.gpuctl("apply", "little", "gpu-1")
    assert result.code == 2
    assert "there is no terminal" in result.err
    assert desk.opened == 0
    path = desk.stored()
    result = desk.gpuctl("apply", str(path))
    assert (result.code, desk.opened) == (2, 1)
    assert "--yes was not given" in result.err
    untouched(desk)


def test_yes_only_with_a_plan_file(desk: Desk) -> None:
    result = desk.gpuctl("apply", "little", "gpu-1", "--yes", typed="gpu-1")
    assert result.code == 2
    assert "No such option" in result.err
    untouched(desk)
    path = desk.stored()
    assert desk.gpuctl("apply", str(path), "--yes").code == 0
    assert desk.world.marks() == {VALUE: "new"}


def test_a_plan_file_on_a_terminal_is_confirmed_by_name(desk: Desk) -> None:
    path = desk.stored()
    assert desk.gpuctl("apply", str(path), typed="gpu-2").code == 1
    untouched(desk)
    assert desk.gpuctl("apply", str(path), typed="gpu-1").code == 0


def test_a_dry_run_is_the_plan(desk: Desk) -> None:
    result = desk.gpuctl("apply", "little", "gpu-1", "--dry-run")
    assert result.code == 0
    assert "can be applied until" in result.out
    assert desk.gpuctl("apply", "little", "gpu-l", "--dry-run").code == 1
    untouched(desk)


def test_a_blocked_plan_is_not_asked_about(desk: Desk) -> None:
    result = desk.gpuctl("apply", "little", "gpu-l", typed="gpu-l")
    assert result.code == 1
    assert "type" not in result.err
    untouched(desk)


def test_the_name_to_type_is_shown_so_that_it_cant_lie(desk: Desk) -> None:
    desk.world.items.append({**a_cluster("\x1b[2Jevil")[1]})
    result = desk.gpuctl("apply", "little", "\x1b[2Jevil", typed="\\x1b[2Jevil")
    assert result.code == 1
    assert "\x1b" not in result.all
    untouched(desk)


# Plan files


def test_the_digest_that_was_reviewed(desk: Desk) -> None:
    path = desk.stored()
    digest = from_text(path.read_text(), "x").digest
    result = desk.gpuctl("apply", str(path), "--yes", "--expect-digest", "sha256:0")
    assert (result.code, desk.opened) == (1, 1)
    assert f"has digest {digest}, not sha256:0" in result.err
    untouched(desk)
    assert desk.gpuctl("apply", str(path), "--yes", "--expect-digest", digest).code == 0


def test_an_edited_file(desk: Desk) -> None:
    path = desk.stored()
    desk.edited(path, validUntil="2036-01-01T00:00:00Z")
    result = desk.gpuctl("apply", str(path), "--yes")
    assert result.code in (1, 2)
    assert "was edited after it was made" in result.err
    untouched(desk)


def resealed(path: Path, **changes: Any) -> None:
    plan = msgspec.convert(json.loads(path.read_text()), Plan)
    path.write_text(to_text(sealed(msgspec.structs.replace(plan, **changes))))


def test_a_foreign_file(desk: Desk) -> None:
    path = desk.stored()
    desk.cluster = "cluster-2"
    result = desk.gpuctl("apply", str(path), "--yes")
    assert result.code == 1
    assert "this one is cluster-2" in result.err
    assert "\x1b" not in result.all
    untouched(desk)


def test_a_file_whose_time_is_over(desk: Desk) -> None:
    path = desk.stored("--valid-for", "1s")
    time.sleep(1.1)
    result = desk.gpuctl("apply", str(path), "--yes")
    assert result.code == 1
    assert "plan again" in result.err
    untouched(desk)


@pytest.mark.parametrize("of_file", [True, False])
def test_a_plan_whose_time_is_over_before_its_name_is_typed(desk: Desk, of_file: bool) -> None:
    soon = ("--valid-for", "2s")
    what = (str(desk.stored(*soon)),) if of_file else ("little", "gpu-1", *soon)
    desk.patch.setattr("gpuctl.cli.apply.confirm", lambda _name: time.sleep(2.1))
    result = desk.gpuctl("apply", *what, typed="gpu-1")
    assert result.code == 1
    assert "the plan was valid until" in result.err
    untouched(desk)


def test_a_stale_file_says_what_has_changed(desk: Desk) -> None:
    path = desk.stored()
    desk.world.items.append(a_pod("one-more"))
    desk.world.node()["metadata"]["annotations"][VALUE] = "other"
    result = desk.gpuctl("apply", str(path), "--yes")
    assert result.code == 1
    assert "refused: run " in result.out
    assert "value was old, now is other" in result.err
    assert "3 pods would be evicted, the plan allows 2" in result.err
    assert not desk.world.leases
    assert not desk.world.journals


def test_a_file_that_was_blocked(desk: Desk) -> None:
    desk.gpuctl("plan", "little", "gpu-l", "--out", "bad.json")
    result = desk.gpuctl("apply", "bad.json", "--yes")
    assert result.code == 1
    assert "blocked when it was made" in result.err
    untouched(desk)


def test_a_runbook_that_is_not_there_any_more(desk: Desk) -> None:
    path = desk.stored()
    resealed(path, runbook="larger")
    result = desk.gpuctl("apply", str(path), "--yes")
    assert result.code == 2
    assert "there is no runbook 'larger'" in result.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("no-such-file",), "is neither a plan file nor one of the runbooks"),
        (("--yes",), "name the plan file or the runbook first"),
        ((".", "--yes"), ""),
    ],
)
def test_usage(desk: Desk, arguments: tuple[str, ...], says: str) -> None:
    result = desk.gpuctl("apply", *arguments)
    assert result.code == 2, result.all
    assert says in result.all


# How it ends


def test_a_failure_is_4_and_says_how_to_go_on(desk: Desk) -> None:
    def refuse(call: Any) -> None:
        if call.verb == "evict":
            raise WriteFailed(Unknown(Reason.FORBIDDEN, "pods/eviction is \x1b[31mforbidden"), hopeless=True)

    desk.world.writer.before = refuse
    result = desk.gpuctl("apply", "little", "gpu-1", typed="gpu-1")
    run = the_run(desk)
    assert result.code == 4
    assert f"failed: run {run.id}" in result.out
    assert f"gpuctl resume {run.id}, or gpuctl undo {run.id}" in result.err
    assert "\\x1b[31mforbidden" in result.err
    assert "\x1b" not in result.all
    assert run.state is Standing.UNFINISHED


def test_several_are_confirmed_by_their_selector(desk: Desk) -> None:
    desk.world = World(a_cluster("gpu-1", "gpu-2"))
    for node in desk.world.of("Node"):
        node["metadata"]["labels"]["pool"] = "a"
    result = desk.gpuctl("apply", "little", "-l", "pool=a", typed="gpu-1")
    assert result.code == 1
    assert not desk.world.writer.calls
    result = desk.gpuctl("apply", "little", "-l", "pool=a", typed="pool=a")
    assert result.code == 0, result.all
    assert [desk.world.marks(name)[VALUE] for name in ("gpu-1", "gpu-2")] == ["new", "new"]


# Signals


def slow(tmp_path: Path) -> subprocess.Popen[str]:
    """A process whose first eviction takes a while, during which it is interrupted."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.cli.slow"],
        cwd=Path(__file__).parent.parent.parent,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def interrupted(tmp_path: Path, *signals: int) -> tuple[int, str, str]:
    process = slow(tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "evicting\n"
    for each in signals:
        process.send_signal(each)
        time.sleep(0.3)
    out, err = process.communicate(timeout=30)
    return process.returncode, out, err


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_finishes_what_is_begun_and_says_how_to_go_on(tmp_path: Path, first: int) -> None:
    code, out, err = interrupted(tmp_path, first)
    assert code == 130, err
    assert "evicted\n" in out  # the call in flight is finished
    assert "cancelled: run r1" in out
    assert "gpuctl: interrupted: finishing what is begun" in err
    assert "gpuctl resume r1, or gpuctl undo r1" in err
    state = json.loads(out.splitlines()[-1])
    assert state["outcome"] == "cancelled"
    assert state["state"] == "unfinished"
    assert state["holders"] == ["r1/", "r1/"]
    assert state["evictions"] == 1  # and no other is begun


def test_a_terminal_that_hangs_up_stops_it_in_order(tmp_path: Path) -> None:
    code, out, _ = interrupted(tmp_path, signal.SIGHUP, signal.SIGHUP)
    assert code == 130
    assert "cancelled: run r1" in out
    assert json.loads(out.splitlines()[-1])["holders"] == ["r1/", "r1/"]


def test_what_was_told_to_survive_the_terminal_does() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stoppable() as stop:
            signal.raise_signal(signal.SIGHUP)
            assert not stop.wait(0.2)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    start = time.monotonic()
    code, out, _ = interrupted(tmp_path, signal.SIGINT, signal.SIGINT)
    assert code == 130
    assert "evicted\n" not in out
    assert "cancelled" not in out
    assert time.monotonic() - start < 20
