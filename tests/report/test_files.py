"""Reports in files: whole or not at all, and the exit code does not depend on the formats."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuctl.cli.border import Stop
from gpuctl.cli.output import FORMATS, Output, parse, write
from tests.report.readers import READERS
from tests.report.reports import BROKEN

RUN = "from gpuctl.cli.main import main; main()"
QUEUE = """\
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: "gpus\\e[31m]]>|::"}
"""


def gpuctl(folder: Path, *arguments: str, encoding: str = "utf-8") -> subprocess.CompletedProcess[str]:
    (folder / "capture" / "resources").mkdir(parents=True, exist_ok=True)
    (folder / "capture" / "resources" / "queue.yaml").write_text(QUEUE)
    command = [sys.executable, "-c", RUN, "check", "--from", str(folder / "capture"), *arguments]
    env = {**os.environ, "PYTHONIOENCODING": encoding}
    return subprocess.run(
        command, cwd=folder, env=env, capture_output=True, encoding="utf-8", errors="strict", check=False
    )


def test_several_files_in_one_run_tell_the_exit_code_of_the_process(tmp_path: Path) -> None:
    result = gpuctl(tmp_path, "-q", *(f"-o{name}={name}.out" for name in FORMATS))
    assert result.returncode in {1, 3}, result.stderr
    seen = [read((tmp_path / f"{name}.out").read_text("utf-8")) for name, read in READERS.items()]
    assert {each.exit_code for each in seen} == {result.returncode}
    assert all(each == seen[0] for each in seen)
    assert {path.name for path in tmp_path.iterdir()} == {"capture", *(f"{name}.out" for name in FORMATS)}


def test_no_format_on_stdout_changes_the_exit_code(tmp_path: Path) -> None:
    results = {name: gpuctl(tmp_path, "-o", name) for name in FORMATS}
    (code,) = {result.returncode for result in results.values()}
    assert not any("\x1b" in result.stdout for result in results.values())
    assert {read(results[name].stdout).exit_code for name, read in READERS.items()} == {code}


def test_an_ascii_terminal_breaks_no_output(tmp_path: Path) -> None:
    there = tmp_path / "größe"
    there.mkdir()
    for name in ("text", "markdown", "github", "prometheus", "junit"):
        result = gpuctl(there, "-o", name, encoding="ascii")
        assert result.returncode in {1, 3}, result.stderr
        assert "mistake in gpuctl" not in result.stderr
        assert name != "markdown" or "größe" in result.stdout


def test_a_file_that_cannot_be_written_is_told_before_anything_is_read(tmp_path: Path) -> None:
    result = gpuctl(tmp_path, "-o", "junit=nowhere/report.xml")
    assert (result.returncode, result.stdout) == (2, "")
    assert "cannot write nowhere/report.xml: there is no folder" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["capture"]


@pytest.mark.parametrize("path", [".", os.devnull])
def test_what_is_no_ordinary_file_is_not_replaced(path: str) -> None:
    with pytest.raises(Stop, match="no ordinary file"):
        parse([f"json={path}"])


@pytest.mark.parametrize(("module", "step"), [(os, "fdopen"), (Path, "replace")])
def test_a_write_that_fails_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: object, step: str
) -> None:
    def fail(*_arguments: object, **_options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    file = tmp_path / "report.xml"
    file.write_text("old")
    monkeypatch.setattr(module, step, fail)
    with pytest.raises(Stop, match="No space left on device") as stop:
        write(BROKEN, Output("junit", file))
    assert stop.value.code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["report.xml"]
    assert file.read_text() == "old"


def test_long_and_short_exclude_each_other(tmp_path: Path) -> None:
    assert gpuctl(tmp_path, "-q", "-v").returncode == 2
