"""The drill of a flavor's loss as a part of `gpuctl check`: guarded and confirmed as by `gpuctl apply`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuctl.cli.border import INTERRUPTED, Stop, warn

if TYPE_CHECKING:
    from gpuctl.cli.acting import Site
    from gpuctl.runbook.plan import Plan

_PANEL = "Drill"
DrillOption = Annotated[
    bool,
    typer.Option(
        "--drill",
        help="First try out the loss of a flavor on canary objects; asks for confirmation.",
        rich_help_panel=_PANEL,
    ),
]
DrillPlanOption = Annotated[
    Path | None,
    typer.Option(
        "--drill-plan",
        metavar="FILE",
        help="The same by a stored plan, made by gpuctl plan flavor-drill.",
        rich_help_panel=_PANEL,
    ),
]
YesOption = Annotated[
    bool, typer.Option("--yes", help="Apply the plan of --drill-plan without asking.", rich_help_panel=_PANEL)
]


@dataclass(frozen=True, slots=True)
class Drilling:
    """Whether a drill is asked for, and how."""

    wanted: bool
    plan: Path | None
    yes: bool

    @property
    def asked(self) -> bool:
        """Whether it is."""
        return self.wanted or self.plan is not None

    def refuse_unless_possible(self, *, snapshot: bool, read_only: bool, tenant: bool) -> None:
        """Raises Stop for what can't be meant."""
        if self.yes and self.plan is None:
            raise Stop("--yes needs --drill-plan FILE: what is not reviewed is asked for")
        if self.asked and snapshot:
            raise Stop("--drill needs a cluster, and --from reads none")
        if self.asked and tenant:
            raise Stop("--drill makes flavors and queues of the cluster, and -n stays within a namespace")
        if self.asked and read_only:
            raise Stop("--read-only and --drill exclude each other")
        if self.asked and not self.yes and not _is_terminal():
            raise Stop("there is no terminal to confirm the drill on: --drill-plan FILE --yes")


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def drilled(drilling: Drilling, site: Site) -> str:
    """Carries out the drill. What came of it, as `the drill … was refused: …` says; empty if it succeeded.
    Raises Stop where it is interrupted: then the person wants no more of it.

    Everything is said on stderr: the result of the check is on stdout.
    """
    from datetime import UTC, datetime

    from gpuctl.cli.apply import confirm
    from gpuctl.cli.stopping import stoppable
    from gpuctl.runbook.catalogue import runbook
    from gpuctl.runbook.conduct import Order, begin
    from gpuctl.runbook.plan import BadPlan, refuse_unless_for
    from gpuctl.runbook.records import Outcome

    book = runbook("flavor-drill")
    made = _plan(drilling, site)
    try:
        refuse_unless_for(made, site.source.cluster_uid, datetime.now(UTC))
    except BadPlan as error:
        return f"was refused: {error}"
    _show(made)
    if made.blockers:
        return f"was refused: {'; '.join(each.message for each in made.blockers)}"
    if not drilling.yes:
        try:
            confirm(made.name)
        except Stop:
            return "was not confirmed"
    (only,) = made.targets
    with stoppable() as stop:
        ending = begin(site.task(book, only.target, made.options), Order.of(made), only, site.crew(stop))
    if ending.outcome is Outcome.SUCCEEDED:
        return ""
    if ending.left:
        warn(f"the drill is not finished: gpuctl undo {ending.run} removes what it made")
    if ending.outcome is Outcome.CANCELLED:
        raise Stop(f"the drill (run {ending.run}) was interrupted, and nothing was checked", INTERRUPTED)
    refused = ending.outcome is Outcome.REFUSED
    return f"{'was refused' if refused else f'ended as {ending.outcome}'} (run {ending.run}): {ending.why}"


def _plan(drilling: Drilling, site: Site) -> Plan:
    from gpuctl.cli.planning import Wanted, make_plan
    from gpuctl.runbook.catalogue import runbook
    from gpuctl.runbook.plan import BadPlan, from_text

    book = runbook("flavor-drill")
    if drilling.plan is None:
        return make_plan(site, Wanted(book, options={option.name: option.default for option in book.flags}))
    try:
        made = from_text(drilling.plan.read_text(encoding="utf-8"), str(drilling.plan))
    except (BadPlan, OSError, UnicodeDecodeError) as error:
        raise Stop(str(error)) from error
    if made.runbook != book.id or len(made.targets) != 1:
        raise Stop(f"{drilling.plan} is a plan of {made.runbook}, not of {book.id}")
    return made


def _show(made: Plan) -> None:
    """The plan on stderr."""
    from rich.console import Console

    from gpuctl.report.plan import draw_plan
    from gpuctl.report.text import canvas
    from gpuctl.runbook.catalogue import runbook

    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    draw_plan(made, runbook(made.runbook).back, canvas(console))
