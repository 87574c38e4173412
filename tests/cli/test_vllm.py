"""gpuctl vllm from the outside: a snapshot's engines, one of them, and a baseline of their memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.builders import vllm as make
from tests.cli.program import gpuctl


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    """Two engines, one of whose logs is there."""
    return written(tmp_path / "snapshot", make.graphs_log())


def written(folder: Path, log: str) -> Path:
    (folder / "resources").mkdir(parents=True)
    (folder / "logs/serving/chat").mkdir(parents=True)
    items = [make.pod("chat", labels={}), make.pod("other", labels={}), make.node()]
    (folder / "resources/all.json").write_text(
        json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    )
    (folder / "logs/serving/chat/vllm.log").write_text(log)
    (folder / "capture.yaml").write_text(
        "apiVersion: gpuctl.dev/v1\nkind: Snapshot\ncapturedAt: 2026-11-30T10:00:00Z\ncomplete: ['*']\n"
    )
    return folder


def test_all_engines_and_one(snapshot: Path) -> None:
    all_ = gpuctl("vllm", "--from", str(snapshot))
    assert all_.returncode == 0, all_.stderr
    assert "serving/chat" in all_.stdout
    assert "serving/other" in all_.stdout
    one = gpuctl("vllm", "serving/chat", "--from", str(snapshot))
    assert "Graph capturing finished" in one.stdout
    assert "other" not in one.stdout


def test_no_such_pod(snapshot: Path) -> None:
    result = gpuctl("vllm", "nobody", "--from", str(snapshot))
    assert result.returncode == 1
    assert "no engine in pod nobody" in result.stderr


def test_without_logs(snapshot: Path) -> None:
    result = gpuctl("vllm", "--from", str(snapshot), "--logs", "none", "-o", "json")
    assert {each["mode"]["confidence"] for each in json.loads(result.stdout)} == {"inferred"}
    assert gpuctl("vllm", "--from", str(snapshot), "--logs", "some").returncode == 2


def test_a_baseline_and_what_drifted(snapshot: Path, tmp_path: Path) -> None:
    file = tmp_path / "baseline.json"
    assert gpuctl("vllm", "--from", str(snapshot), "--save-memory-baseline", str(file)).returncode == 0
    later = written(tmp_path / "later", make.graphs_log(kv=2.0))
    result = gpuctl("vllm", "chat", "--from", str(later), "--memory-baseline", str(file))
    assert "KV cache 4.10 to 2.00 GiB" in result.stdout
    same = gpuctl("vllm", "chat", "--from", str(snapshot), "--memory-baseline", str(file))
    assert "VLM016" not in same.stdout


@pytest.mark.parametrize("content", ["", "{}", "kind: x"])
def test_what_is_no_baseline(snapshot: Path, tmp_path: Path, content: str) -> None:
    file = tmp_path / "baseline.json"
    file.write_text(content)
    result = gpuctl("vllm", "--from", str(snapshot), "--memory-baseline", str(file))
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
