"""What wakes MIG manager's stand-in, what its faults do, and what processes are seen on GPUs."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from tests.cluster.bed import stages
from tests.cluster.bed.clients import requests, with_processes
from tests.cluster.bed.mig_manager import Faults, Killed, Slot, Step
from tests.cluster.standins.state import H100, NodeState, Process


def alive() -> bool:
    return True


def waiting(slot: Slot) -> tuple[threading.Thread, list[str]]:
    """A reader that waits at the slot, and what it has taken."""
    taken: list[str] = []
    reader = threading.Thread(target=lambda: taken.append(slot.take(alive)), daemon=True)
    reader.start()
    while not slot.idle:
        pass
    return reader, taken


def test_values_in_between_are_lost() -> None:
    slot = Slot()
    slot.begin("a")
    assert slot.take(alive) == "a"
    slot.put("b")
    slot.put("c")
    assert slot.take(alive) == "c"


def test_the_same_value_while_busy_is_lost_and_while_waiting_is_not() -> None:
    slot = Slot()
    slot.begin("a")
    slot.take(alive)
    slot.put("b")
    slot.put("a")
    reader, taken = waiting(slot)
    reader.join(0.2)
    assert taken == []
    slot.put("")  # the label is taken away: nobody wakes
    reader.join(0.2)
    assert taken == []
    slot.put("a")
    reader.join(5)
    assert taken == ["a"]


def test_what_came_before_the_start_counts_less_than_what_came_after() -> None:
    slot = Slot()
    slot.put("new")
    slot.begin("old")
    assert slot.take(alive) == "new"


def test_a_pod_that_is_gone_waits_no_more() -> None:
    slot = Slot()
    slot.begin("a")
    slot.take(alive)
    with pytest.raises(Killed):
        slot.take(lambda: False)


def test_faults_count() -> None:
    faults = Faults()
    faults.failing[Step.APPLY] = (2, "no", False)
    faults.wedging[Step.WAIT] = None
    assert [faults.fails(Step.APPLY) for _ in range(3)] == [("no", False), ("no", False), None]
    assert faults.fails(Step.CDI) is None
    assert [faults.wedges(Step.WAIT) for _ in range(3)] == [True] * 3
    assert not faults.wedges(Step.APPLY)


def test_processes_use_memory() -> None:
    gpus = (H100.gpu(0, ["3g.40gb", "3g.40gb"]), H100.gpu(1))
    first, second = gpus[0].instances
    processes = (
        Process(gpu=0, pid=1, name="x", memory=500, gi=second.id, ci=0),
        Process(gpu=1, pid=2, name="y", memory=700),
    )
    state = with_processes(NodeState(gpus=gpus), processes)
    assert [each.memory_used for each in state.gpus[0].instances] == [15, 515]
    assert [gpu.memory_used for gpu in state.gpus] == [530, 700]
    assert first.id != second.id
    assert with_processes(state, ()) == replace(state, processes=(), gpus=gpus)


def test_what_a_pod_asks_for() -> None:
    limits = {"limits": {"nvidia.com/mig-1g.10gb": "2", "cpu": "1"}}
    container = {"name": "a", "resources": limits}
    assert requests({"spec": {"containers": [container, container]}}) == {"nvidia.com/mig-1g.10gb": 4}
    assert requests({"spec": {"containers": [{"name": "a"}]}}) == {}


def test_stages_leave_out_what_is_annotated(tmp_path: Path) -> None:
    names = (
        "node/fast/node-initialize",
        "node/heartbeat-with-lease/node-heartbeat-with-lease",
        "pod/fast/pod-ready",
        "pod/fast/pod-complete",
        "pod/fast/pod-delete",
    )
    for name in names:
        file = tmp_path / "module" / f"{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        stage = {
            "metadata": {"name": name.rpartition("/")[2]},
            "spec": {"selector": {"matchExpressions": []}},
        }
        file.write_text(yaml.safe_dump(stage))
    files = stages.write(tmp_path / "module", tmp_path / "stages")
    read = {file.stem: yaml.safe_load(file.read_text())["spec"] for file in files}
    assert [*read] == [*(name.rpartition("/")[2] for name in names), "pod-kill"]
    assert read["pod-ready"]["selector"]["matchExpressions"] == []
    (left_out,) = read["pod-delete"]["selector"]["matchExpressions"]
    assert left_out["values"] == [stages.IGNORED, stages.HANGS, stages.HEEDED]
    assert read["pod-kill"]["delay"] == {"durationFrom": {"expressionFrom": ".metadata.deletionTimestamp"}}
