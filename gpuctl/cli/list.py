"""gpuctl list: the checks that are installed."""

from __future__ import annotations

import typer


def list_checks() -> None:
    """List the checks that are installed."""
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


def _span(codes: list[str]) -> str:
    return f"{codes[0]}-{codes[-1][3:]}" if codes else ""
