"""gpuctl can-i: whether the permissions are there that checks need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gpuctl.cli import complete
from gpuctl.cli.access import with_access

if TYPE_CHECKING:
    from gpuctl.audit.access import AccessReport
    from gpuctl.audit.permissions import Grant
    from gpuctl.cluster.connection import Access


@with_access
def can_i(
    for_: Annotated[
        str,
        typer.Option(
            "--for", metavar="check|CHECK", help="All checks, or one.", autocompletion=complete.checks
        ),
    ] = "check",
    output: Annotated[str, typer.Option("--output", "-o", help="text or json.")] = "text",
    secret: Annotated[
        bool,
        typer.Option("--read-webhook-secret", help="Also what check --read-webhook-secret needs."),
    ] = False,
    deadline: Annotated[str, typer.Option("--deadline", help="Time for the whole run.")] = "30s",
    *,
    access: Access,
) -> None:
    """Say which of the permissions that checks need are there.

    Asks by access reviews alone. Exit codes: 0 all are, 1 one is denied, 2 usage, 3 not known of one.
    """
    from gpuctl.audit.permissions import Purpose, grants
    from gpuctl.cli import screen
    from gpuctl.cli.border import INCOMPLETE, Stop, warn
    from gpuctl.cli.duration import seconds
    from gpuctl.cli.selection import selected
    from gpuctl.report.access import access_json, draw_access

    if output not in {"text", "json"}:
        raise Stop(f"--output is text or json, not {output!r}")
    chosen = selected([] if for_ == "check" else [for_])
    needed = tuple(each for each in grants(chosen.checks) if secret or each.purpose is not Purpose.SECRET)
    report = _asked(needed, access, seconds(deadline))
    if output == "json":
        screen.data(access_json(report))
    else:
        draw_access(report, screen.out())
    for broken in chosen.broken:
        warn(f"check {broken.id} does not load, so what it needs is not known: {broken.error}")
    raise typer.Exit(report.exit_code or (INCOMPLETE if chosen.broken else 0))


def _asked(needed: tuple[Grant, ...], access: Access, deadline: float) -> AccessReport:
    from gpuctl.audit.access import access_report
    from gpuctl.cli import screen
    from gpuctl.cli.border import INCOMPLETE, Stop
    from gpuctl.cluster.connection import CannotConnect, connect
    from gpuctl.cluster.deadline import Deadline
    from gpuctl.cluster.reviews import Place, Reviews

    try:
        connection = connect(access, deadline)
    except CannotConnect as error:
        raise Stop(str(error), INCOMPLETE) from error
    reviews = Reviews(connection, Deadline.after(deadline))
    place = Place(access.namespace or "")
    with screen.Progress(f"asking {connection.name}").shown():
        return access_report(
            needed,
            lambda rule: reviews.may(rule, place),
            cluster=connection.name,
            namespace=place.namespace,
        )
