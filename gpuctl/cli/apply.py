"""gpuctl apply: confirm by typing the target's name, then act and verify."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuctl.cli import books, complete
from gpuctl.cli.acting import Means, Site, with_means
from gpuctl.cli.flags import Flags
from gpuctl.cli.plan import code_of, show

if TYPE_CHECKING:
    from gpuctl.runbook.plan import Plan
    from gpuctl.runbook.runbook import Runbook

_FLAGS: Flags = {
    "dry_run": (
        Annotated[bool, typer.Option("--dry-run", help="Show the plan; the same as gpuctl plan.")],
        False,
    ),
}


def apply(
    ctx: typer.Context,
    what: Annotated[
        str,
        typer.Argument(
            metavar="FILE|RUNBOOK", help="A stored plan, or a runbook.", autocompletion=complete.runbooks
        ),
    ],
) -> None:
    """Apply a stored plan, or plan a runbook and apply it once its target's name is typed.

    gpuctl apply RUNBOOK --help shows what a runbook takes, gpuctl apply FILE --help what a plan does.
    Exit codes: 0 done and verified, 1 refused by a guard, 2 usage, 3 the cluster could not be asked,
    4 failed or timed out, 130 interrupted.
    """
    from gpuctl.cli.border import Stop
    from gpuctl.runbook.catalogue import BOOKS

    if what in BOOKS:
        books.run_book("apply", what, ctx.args, _apply_book, _FLAGS)
    elif what.startswith("-"):
        raise Stop(f"name the plan file or the runbook first, then {what}")
    elif not Path(what).exists():
        raise Stop(f"{what!r} is neither a plan file nor one of the runbooks {', '.join(BOOKS)}")
    else:
        books.run_command("apply", what, ctx.args, with_means(_of_file(Path(what))))


def _apply_book(asked: books.Asked) -> None:
    from gpuctl.cli.border import Stop
    from gpuctl.cli.planning import make_plan

    only_shown: bool = asked.flags["dry_run"]
    if not only_shown and not _is_terminal():
        raise Stop("there is no terminal to type the target's name on; store a plan and apply it with --yes")
    site = asked.means.open()
    made = make_plan(site, asked.wanted)
    show(made, asked.wanted.book)
    if only_shown or made.blockers:
        raise typer.Exit(code_of(made) if only_shown else 1)
    confirm(made.name)
    carry_out(site, made)


def _of_file(path: Path) -> Callable[..., None]:
    def file(
        yes: Annotated[bool, typer.Option("--yes", help="Apply it without asking.")] = False,
        expect_digest: Annotated[
            str, typer.Option("--expect-digest", help="Refuse unless the plan has this digest.")
        ] = "",
        *,
        means: Means,
    ) -> None:
        """Apply a stored plan: everything is read again, and what it does not allow is refused."""
        from gpuctl.cli.border import Stop
        from gpuctl.runbook.plan import BadPlan, from_text

        if not yes and not _is_terminal():
            raise Stop("there is no terminal to ask on, and --yes was not given")
        try:
            made = from_text(path.read_text(encoding="utf-8"), str(path))
        except (BadPlan, OSError, UnicodeDecodeError) as error:
            raise Stop(str(error)) from error
        if expect_digest and expect_digest != made.digest:
            raise Stop(f"{path} has digest {made.digest}, not {expect_digest}", 1)
        book = book_of(made.runbook)
        site = means.open()
        _must_be_for(made, site)
        show(made, book)
        if made.blockers:
            raise Stop("the plan was blocked when it was made; plan again", 1)
        if not yes:
            confirm(made.name)
        carry_out(site, made)

    return file


def _must_be_for(made: Plan, site: Site) -> None:
    """Raises Stop for a plan of another cluster, and for one whose time is over."""
    from datetime import UTC, datetime

    from gpuctl.cli.border import Stop
    from gpuctl.runbook.plan import BadPlan, refuse_unless_for

    try:
        refuse_unless_for(made, site.source.cluster_uid, datetime.now(UTC))
    except BadPlan as error:
        raise Stop(str(error), 1) from error


def book_of(name: str) -> Runbook:
    """The runbook of a plan or a run. Raises Stop."""
    from gpuctl.cli.border import Stop
    from gpuctl.runbook.catalogue import NoRunbook, runbook

    try:
        return runbook(name)
    except NoRunbook as error:
        raise Stop(str(error)) from error


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm(name: str) -> None:
    """Asks for the target's name to be typed. Raises Stop for anything else."""
    from gpuctl.cli.border import Stop
    from gpuctl.report.plain import plain

    print(f"gpuctl: type {plain(name)} to go on: ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip() != name:
        raise Stop("nothing was done", 1)


def carry_out(site: Site, made: Plan) -> None:
    """Acts on the plan, and leaves with the exit code of how it ended."""
    from msgspec.structs import replace

    from gpuctl.cli.endings import leave
    from gpuctl.cli.stopping import stoppable
    from gpuctl.runbook.conduct import Order, begin
    from gpuctl.runbook.roll import begin_roll

    _must_be_for(made, site)  # it may have waited long for its name to be typed
    book = book_of(made.runbook)
    said = site.acting
    made = replace(made, reason=said.reason or made.reason, ticket=said.ticket or made.ticket)
    with stoppable() as stop:
        crew = site.crew(stop)
        if len(made.targets) == 1 and not made.selector:
            (only,) = made.targets
            ending = begin(site.task(book, only.target, made.options), Order.of(made), only, crew)
        else:
            ending = begin_roll(made, lambda name: site.task(book, name, made.options), crew)
    leave(ending)
