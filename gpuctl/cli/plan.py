"""gpuctl plan: what a runbook would do. Changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuctl.cli import books, complete
from gpuctl.cli.flags import Flags
from gpuctl.cli.viewing import FormOption, is_json

if TYPE_CHECKING:
    from gpuctl.runbook.plan import Plan
    from gpuctl.runbook.runbook import Runbook

_FLAGS: Flags = {
    "out": (
        Annotated[Path | None, typer.Option("--out", help="Store the plan in this file, to be applied.")],
        None,
    ),
    "output": (FormOption, "text"),
}


def plan(
    ctx: typer.Context,
    book: Annotated[
        str,
        typer.Argument(metavar="RUNBOOK", help="See gpuctl list runbooks.", autocompletion=complete.runbooks),
    ],
) -> None:
    """Compute and show what a runbook would do; change nothing.

    gpuctl plan RUNBOOK --help shows what a runbook takes.
    Exit codes: 0 can be applied, 1 blocked, 2 usage, 3 the cluster could not be asked.
    """
    books.run_book("plan", book, ctx.args, _plan, _FLAGS)


def _plan(asked: books.Asked) -> None:
    from gpuctl.cli import screen
    from gpuctl.cli.planning import make_plan
    from gpuctl.runbook.plan import to_text

    as_json, out = is_json(asked.flags["output"]), asked.flags["out"]
    made = make_plan(asked.means.open(), asked.wanted)
    if out is not None:
        _store(out, to_text(made))
    if as_json:
        screen.data(to_text(made))
    else:
        show(made, asked.wanted.book)
        if out is not None:
            screen.out().print(f"stored in {out}, {made.digest}", markup=False, highlight=False)
    raise typer.Exit(code_of(made))


def code_of(made: Plan) -> int:
    """The exit code of a plan: one that is made to print a patch has done so."""
    from gpuctl.runbook.owned import is_only_printed

    return int(bool(made.blockers) and not is_only_printed(made))


def show(made: Plan, book: Runbook) -> None:
    """Draws a plan on stdout."""
    from gpuctl.cli import screen
    from gpuctl.report.plan import draw_plan
    from gpuctl.report.text import canvas

    draw_plan(made, book.back, canvas(screen.out()))


def _store(path: Path, text: str) -> None:
    from gpuctl.cli.border import Stop

    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Stop(f"cannot write {path}: {error.strerror}") from error
