"""Runs as a table: where each is, who is at it, and what can be done."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rich.console import Console

from gpuctl.report.table import print_table
from gpuctl.runbook.records import Run, Standing


def draw_runs(runs: Sequence[Run], console: Console, now: datetime) -> None:
    """The runs, the youngest first."""
    rows = [
        (
            run.id,
            run.runbook,
            run.target,
            _state(run),
            _age(run.started_at, now),
            run.people[-1].user or run.people[-1].host if run.people else "",
            run.why or _members(run) or run.at,
        )
        for run in sorted(runs, key=lambda run: run.started_at, reverse=True)
    ]
    print_table(console, ("RUN", "RUNBOOK", "TARGET", "STATE", "AGE", "BY", "AT"), rows)


def _state(run: Run) -> str:
    if run.state is Standing.UNFINISHED:
        return f"unfinished ({run.outcome})" if run.outcome else "unfinished"
    if run.state is Standing.ABANDONED:  # how it failed before that is not how it ended
        return run.state.value
    return run.outcome.value or run.state.value


def _members(run: Run) -> str:
    done = sum(1 for each in run.members if each.outcome == "succeeded")
    return f"{done} of {len(run.members)} targets done" if run.members else ""


def _age(since: datetime, now: datetime) -> str:
    seconds = max(0, int((now - since).total_seconds()))
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"
