"""How a run ended, as sentences and an exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import typer

from gpuctl.cli.border import INTERRUPTED, warn

if TYPE_CHECKING:
    from gpuctl.runbook.conduct import Ending

FAILED = 4
_CODES = {"succeeded": 0, "reverted": 0, "refused": 1, "cancelled": INTERRUPTED}


def leave(ending: Ending) -> NoReturn:
    """Says how it ended and what can be done, and leaves."""
    tell(ending)
    raise typer.Exit(_CODES.get(ending.outcome.value, FAILED))


def tell(ending: Ending) -> None:
    """Says how it ended, what was learned, and what can be done."""
    from gpuctl.cli import screen
    from gpuctl.report.plain import plain

    line = f"{ending.outcome}: run {ending.run}"
    for text in (*(f"  {each}" for each in ending.learned), line):
        screen.out().print(plain(text), markup=False, highlight=False)
    if ending.blockers:
        for blocker in ending.blockers:
            warn(plain(blocker))
    elif ending.why:
        warn(plain(ending.why))
    if ending.left:
        warn(
            f"the run is not finished: gpuctl resume {ending.run}, or gpuctl undo {ending.run}; "
            f"if what it changed is gone, gpuctl unlock {ending.run}"
        )
