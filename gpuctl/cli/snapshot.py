"""gpuctl snapshot: stores what the checks read, masked, so that it can be judged elsewhere and later."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuctl.cli.access import with_access
from gpuctl.cli.asking import with_asking
from gpuctl.cli.looking import with_looking
from gpuctl.cli.monitoring import with_prometheus
from gpuctl.cli.viewing import A_DEADLINE, DeadlineOption
from gpuctl.cli.watching import WindowOption

if TYPE_CHECKING:
    from gpuctl.audit.catalogue import Catalogue
    from gpuctl.cli.asking import Asking
    from gpuctl.cli.looking import Looking
    from gpuctl.cli.monitoring import Monitoring
    from gpuctl.cluster.connection import Access
    from gpuctl.facts.gather import Facts


@with_access
@with_looking
@with_prometheus
@with_asking
def snapshot(
    path: Annotated[Path, typer.Argument(help="A folder to make, or a file ending in .tar.gz.")],
    logs: Annotated[
        str, typer.Option("--logs", help="all or none: whether the starts of engines' logs are stored.")
    ] = "all",
    window: WindowOption = None,
    deadline: DeadlineOption = A_DEADLINE,
    *,
    access: Access,
    looking: Looking,
    monitoring: Monitoring,
    asking: Asking,
) -> None:
    """Store what the checks read, for check --from.

    Secrets are never stored; values that may be secret are masked.
    Exit codes: 0 all of it, 2 usage, 3 incomplete, 130 interrupted.
    """
    from gpuctl.audit.catalogue import catalogue
    from gpuctl.audit.policy import BUILT_IN, POLICY
    from gpuctl.cli import doors, screen
    from gpuctl.cli.border import INCOMPLETE, warn
    from gpuctl.cli.duration import seconds
    from gpuctl.cli.watching import longer, watching
    from gpuctl.cluster.consent import Consent
    from gpuctl.facts.gather import gather
    from gpuctl.report.words import some

    given = asking.added_to(monitoring.added_to(watching(Consent(), window)))
    time = longer(seconds(deadline), given)
    installed = catalogue()
    wanted = [need for check in installed.checks for need in check.needs]
    with (
        doors.open_door(access, None, path, time, logs=logs, consent=given, probing=looking.probing) as door,
        screen.Progress(f"reading {door.name}").shown() as progress,
    ):
        door.report_to(progress.told)
        facts = gather(wanted, door.reader, {**looking.arguments, POLICY: BUILT_IN["default"]}, progress.fact)
    for broken in installed.broken:
        warn(f"check {broken.id} does not load: {broken.error}")
    lacking = tuple(dict.fromkeys(_lacking(installed, facts)))
    if lacking:
        warn(f"what was to be read is not all in it; missing: {some(lacking)}")
    if lacking or installed.broken:
        raise typer.Exit(INCOMPLETE)


def _lacking(installed: Catalogue, facts: Facts) -> Iterator[str]:
    """What makes a snapshot incomplete: the job that takes it must not think that it has one. As in a check,
    a proof that was not permitted or not asked for is none of it."""
    from gpuctl.audit.assertion import Strength
    from gpuctl.audit.coverage import coverage
    from gpuctl.audit.judge import NOT_ATTEMPTED
    from gpuctl.facts.state import Reason

    spared = {Strength.REQUIRED: {Reason.NOT_ASKED}, Strength.PROOF: NOT_ATTEMPTED}
    for strength, reasons in spared.items():
        assertions = (each for check in installed.checks for each in check.assertions)
        needs = [need for each in assertions if each.strength is strength for need in each.needs]
        for item in coverage(needs, facts).missing:
            if item.reason not in reasons:
                yield f"{item.resource} {item.reason}"
