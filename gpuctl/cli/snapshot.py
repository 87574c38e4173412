"""gpuctl snapshot: stores what the checks read, masked, so that it can be judged elsewhere and later."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuctl.cli.access import with_access

if TYPE_CHECKING:
    from gpuctl.cluster.connection import Access


@with_access
def snapshot(
    path: Annotated[Path, typer.Argument(help="A folder to make, or a file ending in .tar.gz.")],
    logs: Annotated[
        str, typer.Option("--logs", help="all or none: whether the starts of engines' logs are stored.")
    ] = "all",
    deadline: Annotated[str, typer.Option("--deadline", help="Time for the whole run.")] = "120s",
    *,
    access: Access,
) -> None:
    """Store what the checks read, for check --from.

    Secrets are never stored; values that may be secret are masked.
    """
    from gpuctl.audit.catalogue import catalogue
    from gpuctl.audit.policy import BUILT_IN, POLICY
    from gpuctl.cli import doors, screen
    from gpuctl.cli.duration import seconds
    from gpuctl.facts.gather import gather

    wanted = [need for check in catalogue().checks for need in check.needs]
    with (
        doors.open_door(access, None, path, seconds(deadline), logs=logs) as door,
        screen.Progress(f"reading {door.name}").shown() as progress,
    ):
        door.report_to(progress.told)
        gather(wanted, door.reader, {POLICY: BUILT_IN["default"]}, progress.fact)
