"""Rooms see only rooms further down, and a violation would be noticed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def lint(root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports")), "pyproject.toml", "--no-cache"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in ("gpuctl", "checks"):
        shutil.copytree(
            ROOT / name, tmp_path / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
        )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_the_rooms_keep_their_order(copy: Path) -> None:
    result = lint(copy)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("room", "sees"),
    [
        ("facts/state.py", "gpuctl.audit.judge"),
        ("audit/judge.py", "gpuctl.cluster.decode"),
        ("report/text.py", "gpuctl.cluster.decode"),
        ("checks/kueue_webhooks/__init__.py", "gpuctl.cluster.decode"),
        ("kueue/objects.py", "gpuctl.checks.kueue_webhooks"),
    ],
)
def test_a_planted_violation_is_noticed(copy: Path, room: str, sees: str) -> None:
    file = copy / "gpuctl" / room
    file.write_text(f"{file.read_text()}\nimport {sees}\n")
    result = lint(copy)
    assert result.returncode == 1
    assert sees.rpartition(".")[0] in result.stdout
