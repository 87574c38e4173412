"""gpuctl diff: what changed between two reports or snapshots."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuctl.cli.viewing import FormOption, is_json

if TYPE_CHECKING:
    from gpuctl.audit.report import AuditReport


def diff(
    before: Annotated[Path, typer.Argument(help="The earlier report (-o json or yaml) or snapshot.")],
    after: Annotated[Path, typer.Argument(help="The later one.")],
    output: FormOption = "text",
    policy: Annotated[
        str | None, typer.Option("--policy", help="The policy snapshots are judged by; else ./gpuctl.yaml.")
    ] = None,
) -> None:
    """Compare two reports or snapshots.

    Exit codes: 0 nothing wrong appeared, 1 something did, 2 usage, 3 the later one is incomplete.
    """
    from gpuctl.audit.compare import difference
    from gpuctl.cli import screen
    from gpuctl.report.difference import difference_json, draw_difference
    from gpuctl.report.text import canvas

    as_json = is_json(output)
    found = difference(_report(before, policy), _report(after, policy))
    console = screen.out()
    if as_json:
        console.out(difference_json(found), end="", highlight=False)
    else:
        draw_difference(found, canvas(console))
    raise typer.Exit(found.exit_code)


def _report(path: Path, policy: str | None) -> AuditReport:
    """A report as it was written; a snapshot judged now."""
    from gpuctl.cli.reports import load_report

    if path.is_file() and path.suffix in {".json", ".yaml", ".yml"}:
        return load_report(path)
    return _judged(path, policy)


def _judged(path: Path, policy: str | None) -> AuditReport:
    from gpuctl.audit.catalogue import catalogue
    from gpuctl.audit.run import Request, audit
    from gpuctl.cli.doors import open_snapshot_door
    from gpuctl.cli.policies import load_policy

    door = open_snapshot_door(path)
    return audit(Request(catalogue(), load_policy(policy)), door.reader, door.source)
