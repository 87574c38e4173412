"""gpuctl list: the checks that are installed, and the runbooks there are."""

from __future__ import annotations

from typing import Annotated

import typer


def list_checks(
    what: Annotated[str, typer.Argument(metavar="[checks|runbooks]", help="What to list.")] = "checks",
) -> None:
    """List the checks that are installed, or the runbooks."""
    from gpuctl.cli.border import Stop

    if what not in ("checks", "runbooks"):
        raise Stop(f"there are checks and runbooks to list, no {what!r}")
    if what == "runbooks":
        _runbooks()
    else:
        _checks()


def _checks() -> None:
    from gpuctl.audit.catalogue import catalogue
    from gpuctl.cli import screen
    from gpuctl.cli.border import INCOMPLETE, warn
    from gpuctl.report.table import print_table

    installed = catalogue()
    rows = [(check.id, _span([code.id for code in check.codes]), check.title) for check in installed.checks]
    print_table(screen.out(), ("CHECK", "CODES", "WHAT IT LOOKS AT"), rows)
    for broken in installed.broken:
        warn(f"check {broken.id} does not load: {broken.error}")
    if installed.broken:
        raise typer.Exit(INCOMPLETE)


def _runbooks() -> None:
    from gpuctl.cli import screen
    from gpuctl.report.table import print_table
    from gpuctl.runbook.catalogue import BOOKS

    rows = [(name, title) for name, (_, title) in BOOKS.items()]
    print_table(screen.out(), ("RUNBOOK", "WHAT IT DOES"), rows)


def _span(codes: list[str]) -> str:
    return f"{codes[0]}-{codes[-1][3:]}" if codes else ""
