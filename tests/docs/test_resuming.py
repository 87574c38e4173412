"""`docs/resuming.md` names every guard there is, once, and says truly when it is asked again."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

from gpuctl.runbook.catalogue import BOOKS, runbook
from gpuctl.runbook.guard import Guard
from gpuctl.runbook.records import Reached, Run, StepRecord

PAGE = (Path(__file__).parents[2] / "docs" / "resuming.md").read_text(encoding="utf-8")
AGAIN, NOT = PAGE.split("## What is not, and why not")
NOW = datetime(2026, 11, 30, 10, tzinfo=UTC)


def named(part: str) -> list[str]:
    cells = [row.split("|")[1] for row in part.splitlines() if row.startswith("| `")]
    return [name for cell in cells for name in re.findall(r"`([a-z-]+)`", cell)]


def guards() -> dict[str, list[Guard]]:
    found: dict[str, list[Guard]] = {}
    for name in BOOKS:
        for each in runbook(name).guards:
            found.setdefault(each.id, []).append(each)
    return found


def asked_again(guard: Guard) -> bool:
    """Whether it is, by whatever step it is asked until."""
    names = ("Cordon", "Drain", "SetConfig", "RestartOperand", "ResumeOperands")
    steps = tuple(StepRecord(says="", step={"step": name}, reached=Reached.WAITING) for name in names)
    run = Run(id="r", runbook="b", target="t", steps=steps, started_at=NOW, updated_at=NOW)
    return guard.again(run)


def test_every_guard_is_named_once() -> None:
    assert sorted(named(AGAIN) + named(NOT)) == sorted(guards())


def test_it_is_said_truly_which_are_asked_again() -> None:
    truly = {name for name, found in guards().items() if any(map(asked_again, found))}
    assert set(named(AGAIN)) == truly
