"""Runs as a table."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.console import Console

from gpuctl.report.runs import draw_runs
from gpuctl.runbook.records import Direction, Member, Outcome, Person, Reached, Run, Standing, StepRecord

NOW = datetime(2026, 11, 30, 10, tzinfo=UTC)


def a_run(id_: str = "r1", ago: float = 3600, **more: Any) -> Run:
    at = NOW - timedelta(seconds=ago)
    about: dict[str, Any] = {"target": "gpu-1", "people": (Person(user="ana", host="h", at=at),), **more}
    return Run(id=id_, runbook="little", started_at=at, updated_at=at, **about)


def drawn(*runs: Run) -> list[list[str]]:
    text = io.StringIO()
    draw_runs(runs, Console(file=text, width=300), NOW)
    return [
        [cell.strip() for cell in line.split("  ") if cell.strip()] for line in text.getvalue().splitlines()
    ]


def steps(*reached: Reached) -> tuple[StepRecord, ...]:
    return tuple(StepRecord(says=f"step {n}", step={}, reached=each) for n, each in enumerate(reached, 1))


def test_the_youngest_first() -> None:
    table = drawn(a_run("old", 200000), a_run("young", 30), a_run("middle", 7200))
    assert [row[0] for row in table] == ["RUN", "young", "middle", "old"]
    assert [row[4] for row in table[1:]] == ["30s", "2h", "2d"]


@pytest.mark.parametrize(
    ("more", "state", "at"),
    [
        ({"steps": steps(Reached.DONE, Reached.BEGUN)}, "unfinished", "step 2"),
        ({"steps": steps(Reached.DONE, Reached.WAITING)}, "unfinished", "step 2"),
        ({"steps": steps(Reached.DONE), "outcome": Outcome.FAILED, "why": "no"}, "unfinished (failed)", "no"),
        (
            {"steps": steps(Reached.DONE, Reached.BEGUN), "direction": Direction.BACK},
            "unfinished",
            "undo: step 2",
        ),
        (
            {"steps": steps(Reached.DONE, Reached.UNDONE), "direction": Direction.BACK},
            "unfinished",
            "undo: step 1",
        ),
        ({"steps": steps(Reached.UNDONE), "direction": Direction.BACK}, "unfinished", "undo: release"),
        ({"steps": steps(Reached.UNDONE, Reached.DONE), "verified": True}, "unfinished", "release"),
        ({"state": Standing.FINISHED, "outcome": Outcome.SUCCEEDED}, "succeeded", None),
        ({"state": Standing.UNDONE, "outcome": Outcome.REVERTED}, "reverted", None),
    ],
)
def test_where_each_is(more: dict[str, Any], state: str, at: str | None) -> None:
    (_, row) = drawn(a_run(**more))
    assert row[3] == state
    assert row[6:] == ([at] if at else [])


def test_who_was_at_it_last() -> None:
    people = (Person(user="ana", host="h", at=NOW), Person(user="", host="ben@desk", at=NOW))
    assert drawn(a_run(people=people))[1][5] == "ben@desk"
    assert drawn(a_run(people=()))[1][0] == "r1"


def test_a_given_up_run_says_so_whatever_it_failed_of() -> None:
    assert drawn(a_run(state=Standing.ABANDONED))[1][3] == "abandoned"
    assert drawn(a_run(state=Standing.ABANDONED, outcome=Outcome.FAILED))[1][3] == "abandoned"


def test_a_rolling_change_says_how_far_it_is() -> None:
    members = (Member(target="a", outcome=Outcome.SUCCEEDED), Member(target="b"), Member(target="c"))
    assert drawn(a_run(members=members))[1][6] == "1 of 3 targets done"


def test_what_a_cluster_says_is_escaped() -> None:
    text = io.StringIO()
    evil = "x\x1b[31my"
    draw_runs([a_run(evil, why=evil, target=evil)], Console(file=text, width=300), NOW)
    assert "\x1b" not in text.getvalue()
    assert text.getvalue().count("x\\x1b[31my") == 3
