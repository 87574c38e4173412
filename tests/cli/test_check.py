"""gpuctl check from the outside: exit codes, outputs, and mistakes answered with a sentence."""

from __future__ import annotations

import json
import os
import pty
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpuctl.cli.screen import Progress
from tests.cli.program import DEGRADED, HEALTHY, PROGRAM, gpuctl, report

CHECK = "kueue-webhooks"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((CHECK, "--from", HEALTHY), 0),
        ((CHECK, "--from", DEGRADED), 1),
        ((CHECK, "--from", DEGRADED, "--fail-on", "never"), 0),
        ((CHECK, "--from", HEALTHY, "--require", CHECK), 0),
        ((CHECK, "--from", DEGRADED, "-o", "json"), 1),
        ((CHECK, "--from", DEGRADED, "-o", "yaml"), 1),
        ((CHECK, "--from", DEGRADED, "-q"), 1),
    ],
)
def test_exit_codes(arguments: tuple[str, ...], code: int) -> None:
    result = gpuctl("check", *arguments)
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code"), [((), 0), (("--require-proof",), 3), (("--min-coverage", "100"), 3)]
)
def test_proofs_and_coverage_can_be_required(unproven: Path, arguments: tuple[str, ...], code: int) -> None:
    assert gpuctl("check", CHECK, "--from", str(unproven), *arguments).returncode == code


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("check", "kueue-webhook"), 2, "did you mean 'kueue-webhooks'?"),
        (("check", "--require", "nonsense-x"), 2, "there is no 'nonsense-x'"),
        (("check", "--from", "/nowhere"), 2, "there is no snapshot at /nowhere"),
        (("check", "--fail-on", "sometimes"), 2, "--fail-on is error, warning or never"),
        (("check", "--deadline", "soon"), 2, "'soon' is no duration"),
        (("check", "-o", "xml"), 2, "unknown format 'xml'; there are text, json"),
        (("check", "-o", "json", "-o", "yaml"), 2, "only one format can go to stdout"),
        (("check", "-o", "json=/nowhere/x.json", "--from", HEALTHY), 2, "cannot write /nowhere/x.json"),
        (("check", "--policy", "nowhere"), 2, "neither a file nor one of default, strict"),
        (("check", "--fail-on-new"), 2, "--fail-on-new needs --baseline"),
        (("check", "--baseline", "/nowhere"), 2, "cannot read the report /nowhere"),
        (("check", "--from", HEALTHY, "--save", "x"), 2, "--save stores what is read from a cluster"),
        (("check", "--no-such-flag"), 2, "No such option"),
        (("chekc",), 2, "Did you mean 'check'?"),
        (("explain", "KWH999"), 2, "there is no 'KWH999'"),
        (("explain", "KWH01"), 2, "did you mean 'KWH010', 'KWH011' or 'KWH012'?"),
        (("explain", "KWH"), 2, "from 'KWH001' to 'KWH097'?"),
        (("check",), 3, "/nonexistent/config"),
        (("snapshot", "/tmp/never-written-snapshot"), 3, "/nonexistent/config"),
        (("check", "--kubeconfig", "/other/config", "--context", "prod"), 3, "/other/config"),
    ],
)
def test_mistakes_get_a_sentence(arguments: tuple[str, ...], code: int, says: str) -> None:
    result = gpuctl(*arguments)
    assert (result.returncode, result.stdout) == (code, "")
    assert says in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("empty.json", b""),
        ("truncated.json", b'{"apiVersion": "v1", "kind": "Po'),
        ("other.json", b'{"hello": "world"}'),
        ("bytes.yaml", b"\xff\xfe\xfa"),
        ("not.tar.gz", b"this is no archive"),
        ("broken.yaml", b"a: ["),
    ],
)
def test_what_is_no_snapshot_is_named_and_nothing_is_judged(
    tmp_path: Path, name: str, content: bytes
) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    result = gpuctl("check", "--from", str(file))
    assert result.returncode == 3
    assert name in result.stderr
    assert "Traceback" not in result.stderr


def test_a_broken_kubeconfig_is_named(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text("apiVersion: v1\nkind: [")
    result = gpuctl("check", "--kubeconfig", str(file))
    assert (result.returncode, result.stdout) == (3, "")
    assert str(file) in result.stderr


@pytest.mark.parametrize(
    ("asked", "closed", "code"),
    [
        (("list",), "2>&-", 0),
        (("check", CHECK, "--from", DEGRADED), "2>&-", 1),
        (("check", CHECK, "--from", DEGRADED), "<&-", 1),
        (("list",), ">&-", 3),
        (("check", CHECK, "--from", DEGRADED), ">&-", 3),
        (("check", CHECK, "--from", DEGRADED, "-o", "json"), "<&- >&- 2>&-", 3),
    ],
)
def test_a_closed_stream_is_no_verdict(asked: tuple[str, ...], closed: str, code: int) -> None:
    """What a result can't be written to is told from one that only the remarks can't be."""
    line = f"{shlex.join([str(PROGRAM), *asked])} {closed}"
    result = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == code
    assert "Traceback" not in result.stderr
    assert bool(result.stdout) is (code != 3)
    assert ("could not be written whole" in result.stderr) is (closed == ">&-")


def test_a_misspelt_node_is_no_green() -> None:
    asked = ("check", "mig-consistency", "--from", HEALTHY, "--node")
    wrong = gpuctl(*asked, "gpu-O1")
    assert wrong.returncode == 3
    assert "Node gpu-O1: not-asked: there is no such node" in wrong.stdout
    assert gpuctl(*asked, "gpu-01").returncode == 0


def test_data_goes_to_stdout_alone_and_files_are_written_beside(tmp_path: Path) -> None:
    files = [f"{name}={tmp_path / name}" for name in ("json", "yaml", "junit", "sarif", "markdown")]
    outputs = [word for file in files for word in ("-o", file)]
    result = gpuctl("check", CHECK, "--from", DEGRADED, *outputs)
    assert result.returncode == 1
    assert "KWH001" in result.stdout
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(each.split("=")[0] for each in files)
    assert json.loads((tmp_path / "json").read_text())["outcome"]["exitCode"] == 1
    assert json.loads(gpuctl("check", CHECK, "--from", DEGRADED, "-o", "json").stdout)


def test_a_baseline_and_a_diff_of_real_reports(tmp_path: Path) -> None:
    before, after = tmp_path / "before.json", tmp_path / "after.yaml"
    gpuctl("check", CHECK, "--from", HEALTHY, "-o", f"json={before}")
    gpuctl("check", CHECK, "--from", DEGRADED, "-o", f"yaml={after}")
    known = gpuctl("check", CHECK, "--from", DEGRADED, "--baseline", str(after), "--fail-on-new")
    assert known.returncode == 0
    new = gpuctl("check", CHECK, "--from", DEGRADED, "--baseline", str(before), "--fail-on-new")
    assert new.returncode == 1
    worse, better = gpuctl("diff", str(before), str(after)), gpuctl("diff", str(after), str(before))
    assert (worse.returncode, better.returncode) == (1, 0)
    assert "Appeared" in worse.stdout
    assert "Gone" in better.stdout
    assert gpuctl("diff", HEALTHY, DEGRADED, "-o", "json").returncode == 1


def test_waivers_hold_until_they_expire(tmp_path: Path) -> None:
    policy = tmp_path / "gpuctl.yaml"

    def waived(until: str) -> str:
        codes = ("KWH001", "KWH090")
        items = (f"{{code: {code}, reason: window, owner: sre, expires: {until}}}" for code in codes)
        return f"waivers: [{', '.join(items)}]\n"

    policy.write_text(waived("2999-01-01"))
    assert gpuctl("check", CHECK, "--from", DEGRADED, cwd=tmp_path).returncode == 0
    policy.write_text(waived("2001-01-01"))
    expired = gpuctl("check", CHECK, "--from", DEGRADED, cwd=tmp_path)
    assert expired.returncode == 1
    assert "expired on 2001-01-01" in expired.stdout


def test_reports_from_one_snapshot_are_the_same_but_for_run_and_time() -> None:
    one, other = (report(CHECK, "--from", DEGRADED) for _ in range(2))
    assert one.pop("run")["id"] != other.pop("run")["id"]
    assert one == other


@pytest.mark.parametrize("environment", [{}, {"NO_COLOR": "1"}, {"TERM": "dumb"}, {"COLUMNS": "80"}])
def test_a_real_terminal(environment: dict[str, str]) -> None:
    screen = on_terminal("check", CHECK, "--from", DEGRADED, **environment)
    assert "KWH001" in screen
    coloured = "\x1b[31m" in screen
    assert coloured == (not environment or "COLUMNS" in environment)


def on_terminal(*arguments: str, **environment: str) -> str:
    """What the program writes to a terminal of its own."""
    leader, follower = pty.openpty()
    variables = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", **environment}
    with subprocess.Popen(
        [str(PROGRAM), *arguments], stdout=follower, stderr=follower, stdin=follower, env=variables
    ):
        os.close(follower)
        written = b""
        while chunk := _read(leader):
            written += chunk
    os.close(leader)
    return written.decode()


def _read(leader: int) -> bytes:
    try:
        return os.read(leader, 65536)
    except OSError:  # Linux's way to say that the other end is closed
        return b""


@pytest.mark.parametrize("arguments", [(), ("-o", "json")])
def test_a_reader_that_leaves_early_gets_no_verdict(arguments: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [str(PROGRAM), "check", CHECK, "--from", HEALTHY, *arguments]
    result = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert result.returncode == 3
    assert "Traceback" not in result.stderr


def test_a_full_disk_gets_no_verdict() -> None:
    with Path("/dev/full").open("w") as full:
        command = [str(PROGRAM), "check", CHECK, "--from", HEALTHY]
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert result.returncode == 3
    assert "could not be written whole" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_130_and_nothing_else(tmp_path: Path, number: signal.Signals) -> None:
    """A server that takes the connection and never answers keeps the run waiting."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = f"http://127.0.0.1:{silent.getsockname()[1]}"
        config = tmp_path / "config"
        config.write_text(
            f"apiVersion: v1\nkind: Config\ncurrent-context: c\n"
            f"clusters: [{{name: c, cluster: {{server: '{server}'}}}}]\n"
            f"users: [{{name: u, user: {{}}}}]\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n"
        )
        command = [str(PROGRAM), "check", "--kubeconfig", str(config), "--save", str(tmp_path / "saved")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
            silent.accept()
            running.send_signal(number)
            _, said = running.communicate(timeout=20)
    assert running.returncode == 130
    assert "interrupted" in said
    assert "Traceback" not in said
    assert [each.name for each in tmp_path.iterdir()] == ["config"]


DROPPING = """
import os, signal, time
from gpuctl.cli.border import guarded

class Dropping:
    def __del__(self) -> None:
        os.kill(os.getpid(), signal.%s)
        time.sleep(1)

def run() -> None:
    Dropping()
    time.sleep(30)

guarded(run)
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_an_interruption_is_heard_also_where_python_drops_what_is_raised(name: str) -> None:
    """As while a module is imported, whose locks are let go in callbacks."""
    command = [sys.executable, "-c", DROPPING % name]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert (ended.returncode, ended.stderr) == (130, "gpuctl: interrupted\n")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"severity": "error"', '"severity": "dire"'),
        ('"verdict": "pass"', '"verdict": "fine"'),
        ("AuditReport", "Other"),
    ],
)
def test_a_report_in_other_words_is_refused(tmp_path: Path, old: str, new: str) -> None:
    file = tmp_path / "r.json"
    file.write_text(gpuctl("check", CHECK, "--from", DEGRADED, "-o", "json").stdout.replace(old, new))
    result = gpuctl("diff", str(file), str(file))
    assert (result.returncode, "is no report of gpuctl check" in result.stderr) == (2, True), result.stderr


def test_a_required_check_must_be_run() -> None:
    result = gpuctl("check", CHECK, "--from", HEALTHY, "--require", "mig-consistency")
    assert result.returncode == 3
    assert "the run is incomplete" in result.stdout


def test_progress_takes_no_name_for_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with Progress("reading we[/x]ird\x1b[2J").shown() as progress:
        progress.told("1 of 2")


@pytest.fixture
def nobody(tmp_path: Path) -> Path:
    """A kubeconfig of a server that does not answer."""
    config = tmp_path / "config"
    cluster = {"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    user = {"name": "u", "user": {"token": "t"}}
    config.write_text(
        json.dumps({"clusters": [cluster], "contexts": [context], "users": [user], "current-context": "c"})
    )
    return config


@pytest.mark.parametrize(
    "verb",
    ["runs", "undo r1", "plan drain gpu-1", "vllm -o json", "queues -o json", "mig show -o json"],
)
def test_whatever_is_asked_of_a_server_that_does_not_answer_says_so(nobody: Path, verb: str) -> None:
    result = gpuctl(*verb.split(), "--kubeconfig", str(nobody))
    assert (result.returncode, result.stdout) == (3, "")
    assert "unreachable: cannot connect to https://127.0.0.1:1: Connection refused" in result.stderr


def test_a_snapshot_of_a_cluster_that_does_not_answer_is_incomplete(tmp_path: Path, nobody: Path) -> None:
    result = gpuctl("snapshot", str(tmp_path / "s"), "--kubeconfig", str(nobody))
    assert result.returncode == 3
    assert "is not all in it; missing:" in result.stderr
    assert (tmp_path / "s" / "capture.yaml").exists()
