"""Queues as tables and bars: what a person sees, on a terminal and in a pipe."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from gpuctl.facts.gather import gather
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Reason, Unknown
from gpuctl.kueue.objects import ClusterQueue
from gpuctl.kueue.picture import IN_FULL, QueuePicture, pictures_of_queues, places_in_line, places_of
from gpuctl.report.queues import draw_queue, draw_queues, spark, to_json
from gpuctl.report.text import canvas
from tests.builders.queues import GPU, World, healthy

BORROWERS = World()
BORROWERS.namespace("team-a")
BORROWERS.flavor()
BORROWERS.queue("vision", {"h100": {GPU: "8"}}, cohort="all", used={"h100": {GPU: "2"}})
BORROWERS.queue("research", {"h100": {GPU: "4"}}, cohort="all", used={"h100": {GPU: "8"}})
BORROWERS.cohort("all")
BORROWERS.local_queue()
BORROWERS.workload("big", 6, waits=timedelta(hours=5))


def pictures(world: World, **reader: object) -> list[QueuePicture]:
    facts = gather([pictures_of_queues], world.reader(**reader), {})
    return [each for _, each in facts[pictures_of_queues].known()]


def drawn(draw: object, what: object, encoding: str = "utf-8", *, terminal: bool = False) -> str:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=file, force_terminal=terminal, width=160, color_system=None, legacy_windows=False)
    draw(what, canvas(console))  # type: ignore[operator]
    file.flush()
    return file.buffer.getvalue().decode(encoding)


def test_a_table_has_a_line_for_each_queue() -> None:
    text = drawn(draw_queues, pictures(BORROWERS))
    head, vision, research = text.splitlines()
    assert head.split()[:6] == ["NAME", "COHORT", "PENDING", "ADMITTED", "ACTIVE", "OLDEST"]
    assert vision.startswith("vision")
    assert "own quota is borrowed away" in vision
    assert "2/8 h100:gpu" in vision
    assert research.rstrip().endswith("-")


def test_one_queue_shows_its_cohort_what_is_lent_and_what_would_help() -> None:
    (queue,) = [each for each in pictures(BORROWERS) if each.name == "vision"]
    text = drawn(draw_queue, queue)
    assert "cohort all" in text
    assert "2 of 8, lent 4, free 2" in text
    assert "8 of 4, borrowed 4" in text
    assert (
        "would help: raise nominalQuota of nvidia.com/gpu (flavor h100) in ClusterQueue vision by 4" in text
    )
    assert "oldest waits for 5h" in text
    assert "team-a" in text


def test_a_poor_encoding_gets_plain_signs() -> None:
    for queue in pictures(BORROWERS):
        assert drawn(draw_queue, queue, "ascii").isascii()
    assert drawn(draw_queues, pictures(BORROWERS), "ascii").isascii()


def test_a_terminal_gets_the_same_facts() -> None:
    assert "own quota is borrowed away" in drawn(draw_queues, pictures(BORROWERS), terminal=True)


def test_what_could_not_be_read_is_said() -> None:
    gap = Unknown(Reason.FORBIDDEN, "no", "cohorts.kueue.x-k8s.io")
    missing = {"cohorts.kueue.x-k8s.io": gap}
    (queue,) = [each for each in pictures(BORROWERS, missing=missing) if each.name == "vision"]
    assert queue.cells is None
    text = drawn(draw_queue, queue)
    assert "quota is not known" in text
    assert "forbidden" in text
    assert json.loads(to_json([queue], []))["items"][0]["quota"] is None


def test_the_table_says_that_a_workload_could_not_be_read() -> None:
    world = healthy()
    world.workload("broken")["spec"]["podSets"] = "none"
    (gap,) = drawn(draw_queues, pictures(world)).splitlines()[2:]
    assert gap.startswith("? ")
    assert "broken" in gap


def test_json_has_the_line_and_the_causes() -> None:
    told = json.loads(to_json(pictures(healthy()), ["a gap"]))
    (queue,) = told["items"]
    assert told["unknown"] == ["a gap"]
    assert queue["pending"] == 3
    assert queue["quota"][0]["used"] == "8"
    assert [each["position"] for each in queue["waiting"]] == [0, 1, 2]
    assert queue["causes"][0]["cause"].startswith("quota is in use")


def in_full(**reader: object) -> QueuePicture:
    facts = gather([pictures_of_queues, places_in_line], healthy().reader(**reader), {IN_FULL: "vision"})
    (queue,) = [each for _, each in facts[pictures_of_queues].known()]
    return replace(queue, places=places_of(facts, "vision"))


def positions(queue: QueuePicture) -> list[list[str]]:
    lines = drawn(draw_queue, queue).splitlines()
    start = next(number for number, each in enumerate(lines) if each.startswith("POSITION"))
    return [each.split()[:3:2] for each in lines[start + 1 : start + 4]]


def test_the_manager_says_where_a_workload_stands() -> None:
    """What it does not name, or does not tell, is an estimate, and says so."""
    names = {"train-2": 0, "train-0": 1}
    items = [
        {"metadata": {"name": name, "namespace": "team-a"}, "positionInClusterQueue": place}
        for name, place in names.items()
    ]
    queue = in_full(parts={Ref(ClusterQueue.of, "vision"): {"items": items}})
    assert positions(queue) == [["0", "train-2"], ["1", "train-0"], ["~1", "train-1"]]
    assert "(~ estimated from priority and age)" in drawn(draw_queue, queue)
    (told,) = json.loads(to_json([queue], []))["items"]
    assert [each["positionIs"] for each in told["waiting"]] == ["kueue", "kueue", "estimate"]


def test_where_the_manager_may_not_be_asked_only_positions_are_estimates() -> None:
    gap = Unknown(Reason.FORBIDDEN, "no", "pendingworkloads")
    queue = in_full(missing={"clusterqueues/pendingworkloads.visibility.kueue.x-k8s.io": gap})
    assert positions(queue) == [["~0", "train-0"], ["~1", "train-1"], ["~2", "train-2"]]
    text = drawn(draw_queue, queue)
    assert "(~ estimated from priority and age; the manager's own: pendingworkloads: forbidden: no)" in text
    assert queue.unknown == ()
    assert queue.pending == 3


@given(st.lists(st.integers(0, 10**6), max_size=40), st.sampled_from(["utf-8", "ascii"]))
def test_a_spark_is_never_longer_than_its_line(line: list[int], encoding: str) -> None:
    console = Console(file=io.TextIOWrapper(io.BytesIO(), encoding=encoding))
    assert len(spark(line, canvas(console))) <= max(len(line), 0)


@pytest.mark.parametrize("name", ["\x1b[31mred", "a\nb", "\u202eevil"])
def test_strings_of_the_cluster_are_made_safe(name: str) -> None:
    world = healthy()
    world.one("Workload", "train-1")["metadata"]["name"] = name
    for queue in pictures(world):
        text = drawn(draw_queue, queue)
        assert name not in text


def test_the_chain_names_its_first_broken_link() -> None:
    world = healthy()
    (queue,) = pictures(world)
    text = drawn(draw_queue, queue)
    assert "ResourceFlavor h100 → gpu=h100 → 1 node → 8 nvidia.com/gpu → 8 promised in all → Cluster" in text
    assert "8 Workloads with quota, 3 waiting → 8 pods" in text
    assert "first broken link" not in text
    world.one("Node", "gpu-1")["metadata"]["labels"] = {}
    (queue,) = pictures(world)
    assert "first broken link: no node has the flavor's labels" in drawn(draw_queue, queue)


def test_the_chain_says_what_is_not_known() -> None:
    (queue,) = pictures(healthy(), missing={"nodes": Unknown(Reason.FORBIDDEN, "no", "nodes")})
    assert "gpu=h100 → ? (nodes: forbidden: nodes: no)" in drawn(draw_queue, queue)
