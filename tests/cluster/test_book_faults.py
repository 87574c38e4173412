"""The runbooks for queues, engines and Kueue's manager, killed, refused and disturbed at every write.
`make test-faults` plays everything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .bed import Bed
from .faults.book_cases import COMMON, SUBSET, USUAL, all_cases, subset
from .faults.books import HOLD, LIMIT, RESTART, SWITCH
from .faults.cases import Case
from .faults.everything import USUAL as NODES
from .faults.everything import everything, in_turn
from .faults.kept import Kept
from .faults.matrix import Result
from .faults.playhouse import playhouse
from .faults.table import COMMAND, PAGE, page, told
from .faults.writes import name_of
from .test_faults import objections

FEW = {LIMIT: 1, HOLD: 1, SWITCH: 2, RESTART: 1}


@pytest.mark.timeout(600)
def test_subset(bed: Bed) -> None:
    """Some cases of each runbook, named in SUBSET."""
    chosen = subset()
    assert len(chosen) == len(SUBSET), "each of them is there"
    with playhouse(bed, FEW) as made:
        results = made.results(chosen)
    assert not objections(results), objections(results)


@pytest.mark.faults
@pytest.mark.timeout(3600)
def test_everything_of_the_other_runbooks(bed: Bed) -> None:
    cases = all_cases()
    with playhouse(bed) as made:
        assert made.known() == USUAL, "these are all their writes"
        results = made.results(in_turn(cases))
    assert not objections(results), objections(results)
    assert f"\n{len(cases)} cases of theirs, 0 of them wrong" in PAGE.read_text(), f"write it anew: {COMMAND}"


def test_each_write_is_met_by_each_kind_of_fault() -> None:
    for book, known in USUAL.items():
        names = {str(each) for each in all_cases() if each.book == book}
        for at in known.apply:
            kills = {
                f"{book}: kill -9, then {way}: {when} {at}"
                for way in ("resume", "undo")
                for when in ("before", "after")
            }
            all_ways = at == "restart" or (book != RESTART and not at.startswith(COMMON))
            assert kills <= names if all_ways else kills & names, (book, at)
        for fault in ("403", "409", "429", "500", "reset", "timeout"):
            met = ", ".join(each for each in names if f": {fault} at a write: " in each)
            assert all(at in met for at in known.apply), (book, fault)


@pytest.mark.parametrize(
    ("path", "changes", "name"),
    [
        ("deployments/chat", {"/spec/strategy": {"type": "Recreate"}}, "use Recreate"),
        ("deployments/chat", {"/spec/strategy": {}, "-/metadata/annotations/gpuctl.dev~1recreated-by": ""},
         "set the strategy back"),
        ("deployments/chat", {"/spec/template/spec/containers/0/args": []}, "set the template"),
        ("deployments/k", {"/spec/template/metadata/annotations": {"x/restarted-by": "r"}}, "restart"),
        ("deployments/k", {"/spec/template/metadata/annotations/gpuctl.dev~1restarted-by": "r"}, "restart"),
        ("clusterqueues/a", {"/spec/stopPolicy": "Hold"}, "hold the queue"),
        ("clusterqueues/a", {"-/metadata/annotations/gpuctl.dev~1held-by": ""}, "let the queue go"),
        ("clusterqueues/a", {"/spec/resourceGroups/0/flavors/0/resources/0/borrowingLimit": "1"},
         "set the limit"),
    ],
)  # fmt: skip
def test_the_writes_of_a_run_have_names_of_their_own(path: str, changes: dict[str, Any], name: str) -> None:
    body = [
        {"op": "remove", "path": each[1:]} if each[0] == "-" else {"op": "add", "path": each, "value": value}
        for each, value in changes.items()
    ]
    assert name_of("PATCH", f"/apis/x/v1/{path}", json.dumps(body).encode()) == name


def test_what_was_not_played_is_told() -> None:
    cases = all_cases()
    count = len(cases)
    assert told([], cases) == f"0 of {count} cases, 0 of them wrong. The other {count} were not played."


def test_results_that_were_kept_count_for_the_page(tmp_path: Path) -> None:
    """Those of mig-reconfigure name no runbook."""
    of_a_node, of_a_queue = everything(NODES)[0], all_cases()[0]
    nodes, books = tmp_path / "nodes.jsonl", tmp_path / "books.jsonl"
    nodes.write_text(
        json.dumps({"group": of_a_node.group, "name": of_a_node.name, "outcome": "resumed"}) + "\n"
    )
    Kept([books]).take(Result(of_a_queue.group, of_a_queue.name, "undone", book=of_a_queue.book))
    kept = Kept([nodes, books])
    assert kept.good == {of_a_node.key, of_a_queue.key}
    planned: list[Case[Any]] = [*everything(NODES), *all_cases()]
    text = page([kept.all[each] for each in (of_a_node.key, of_a_queue.key)], NODES, "It went well.", planned)
    assert f"| {of_a_node.group} | 1 of 6 | resumed 1 | 0 |" in text
    assert f"| `queue-limit` | {of_a_queue.group} | 1 of 22 | undone 1 | 0 |" in text
