"""A record's logs tell as much as was read of them, each for itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuctl.cluster.logs import STEPS
from gpuctl.cluster.snapshot import open_snapshot
from gpuctl.facts.kinds import Kind, Log, LogReading, Ref
from gpuctl.facts.state import Known, Reason, State, Unknown

POD = Kind("", ("v1",), "Pod", "pods", namespaced=True)
LOG = Log(Ref(POD, "llm-0", "serving"), "vllm")
BEFORE = Log(Ref(POD, "llm-0", "serving"), "vllm", previous=True)
OTHER = Log(Ref(POD, "llm-1", "serving"), "vllm")
CAPTURE = {"apiVersion": "gpuctl.dev/v1", "kind": "Snapshot", "capturedAt": "2026-11-30T10:00:00Z"}
FOLDER = "logs/serving/llm-0"


def parse(text: str) -> str:
    if "boom" in text:
        raise ValueError("boom")
    return text


READING = LogReading(parse, keep=str, enough=lambda text: "told" in text)


def write(folder: Path, files: dict[str, str], **capture: Any) -> None:
    for name, text in {**files, "capture.yaml": yaml.safe_dump({**CAPTURE, **capture})}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def read(folder: Path, *logs: Log) -> dict[Log, State[str]]:
    state = open_snapshot(folder).logs(logs, READING)
    assert isinstance(state, Known)
    return dict(state.value.entries)


def test_a_log_without_more_is_whole(tmp_path: Path) -> None:
    write(tmp_path, {f"{FOLDER}/vllm.log": "a"}, complete=["pods/log"])
    assert read(tmp_path, LOG, OTHER) == {LOG: Known("a")}


ABOUT: list[tuple[str, str, Reason | None]] = [
    ("readFrom: tail", "a", Reason.NOT_ASKED),
    ("readFrom: tail", "told", Reason.NOT_ASKED),
    ("readFrom: start\nfiltered: true\nnews: 1", "a", None),
    ("truncatedAt: 1000", "a", Reason.NOT_ASKED),
    ("truncatedAt: 1000", "told", None),
    (f"truncatedAt: {STEPS[-1]}", "a", None),
    ("readFrom: middle", "a", Reason.MALFORMED),
    ("readFrom: [", "a", Reason.MALFORMED),
    ("", "a", Reason.MALFORMED),
]


@pytest.mark.parametrize(("about", "text", "reason"), ABOUT)
def test_a_part_of_a_log_is_not_the_log(tmp_path: Path, about: str, text: str, reason: Reason | None) -> None:
    write(tmp_path, {f"{FOLDER}/vllm.log": text, f"{FOLDER}/vllm.meta.yaml": about})
    state = read(tmp_path, LOG)[LOG]
    if reason is None:
        assert state == Known(text)
    else:
        assert isinstance(state, Unknown)
        assert state.reason is reason


def test_what_is_said_of_one_log_is_not_said_of_the_one_before(tmp_path: Path) -> None:
    files = {"vllm.log": "a", "vllm.previous.log": "b", "vllm.previous.meta.yaml": "readFrom: tail"}
    write(tmp_path, {f"{FOLDER}/{name}": text for name, text in files.items()})
    found = read(tmp_path, LOG, BEFORE)
    assert found[LOG] == Known("a")
    assert isinstance(found[BEFORE], Unknown)


def test_a_mistake_with_one_log_costs_no_other(tmp_path: Path) -> None:
    write(tmp_path, {f"{FOLDER}/vllm.log": "boom", "logs/serving/llm-1/vllm.log": "b"})
    found = read(tmp_path, LOG, OTHER)
    assert found[OTHER] == Known("b")
    assert isinstance(lost := found[LOG], Unknown)
    assert (lost.reason, lost.what) == (Reason.INTERNAL, str(LOG))


def test_a_log_that_got_lost_was_not_never_written(tmp_path: Path) -> None:
    write(tmp_path, {f"{FOLDER}/vllm.log": "a"}, complete=["pods/log"], objects={"pods/log": 2})
    found = read(tmp_path, LOG, OTHER)
    assert found[LOG] == Known("a")
    assert isinstance(lost := found[OTHER], Unknown)
    assert lost.message == "2 logs were stored, and 1 of them are here"
