"""gpuctl can-i: whether the permissions are there that checks need, or a runbook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gpuctl.cli.access import with_access
from gpuctl.cli.needs import Needs, OfChecks, with_needs
from gpuctl.cli.viewing import DeadlineOption, FormOption, is_json
from gpuctl.facts.home import HOME

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuctl.audit.access import AccessReport, Sought
    from gpuctl.cluster.connection import Access


@with_access
@with_needs
def can_i(
    output: FormOption = "text",
    deadline: DeadlineOption = "30s",
    state_namespace: Annotated[
        str | None,
        typer.Option(
            "--state-namespace",
            help=f"Where locks and journals of the runbook are kept; else {HOME}.",
        ),
    ] = None,
    *,
    needs: Needs,
    access: Access,
) -> None:
    """Say which of the permissions are there that checks need, or a runbook.

    Asks by access reviews alone. Exit codes: 0 all are, 1 one is denied, 2 usage, 3 not known of one.
    """
    from gpuctl.cli import screen
    from gpuctl.cli.border import INCOMPLETE, Stop, warn
    from gpuctl.cli.duration import seconds
    from gpuctl.report.access import access_json, draw_access

    as_json = is_json(output)
    found = needs.found(access.namespace)
    of_checks = isinstance(found, OfChecks)
    if of_checks and state_namespace is not None:
        raise Stop("--state-namespace is for runbooks: name one by --for")
    place = access.namespace or "" if of_checks else state_namespace or HOME
    report = _asked(found.sought(place), access, seconds(deadline))
    if as_json:
        screen.data(access_json(report))
    else:
        draw_access(report, screen.out())
    broken = found.broken if isinstance(found, OfChecks) else ()
    for each in broken:
        warn(f"check {each.id} does not load, so what it needs is not known: {each.error}")
    raise typer.Exit(report.exit_code or (INCOMPLETE if broken else 0))


def _asked(sought: Iterable[Sought], access: Access, deadline: float) -> AccessReport:
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
    with screen.Progress(f"asking {connection.name}").shown():
        return access_report(
            sought,
            lambda rule, namespace: reviews.may(rule, Place(namespace)),
            cluster=connection.name,
            namespace=access.namespace or "",
        )
