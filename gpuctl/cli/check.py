"""gpuctl check: reads a cluster or a snapshot, and shows the verdict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuctl.cli import complete
from gpuctl.cli.access import with_access
from gpuctl.cli.acting import Acting, Means
from gpuctl.cli.asking import with_asking
from gpuctl.cli.consent import DryRunOption, ReadOnlyOption, SecretOption
from gpuctl.cli.drilling import Drilling, DrillOption, DrillPlanOption, YesOption
from gpuctl.cli.looking import with_looking
from gpuctl.cli.monitoring import with_prometheus
from gpuctl.cli.viewing import A_DEADLINE, DeadlineOption, LogsOption, PolicyOption
from gpuctl.cli.watching import WindowOption
from gpuctl.facts.home import HOME

_DRILL_SECONDS = 1800.0  # for the whole of a drill

if TYPE_CHECKING:
    from gpuctl.audit.report import AuditReport, CheckItem
    from gpuctl.audit.run import Request
    from gpuctl.cli.asking import Asking
    from gpuctl.cli.doors import Door
    from gpuctl.cli.looking import Looking
    from gpuctl.cli.monitoring import Monitoring
    from gpuctl.cli.output import Output
    from gpuctl.cluster.connection import Access


@with_access
@with_looking
@with_prometheus
@with_asking
def check(
    checks: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="CHECK", help="Checks to run; all by default.", autocompletion=complete.checks
        ),
    ] = None,
    from_: Annotated[
        Path | None, typer.Option("--from", help="Judge a snapshot (folder or .tar.gz) instead of a cluster.")
    ] = None,
    output: Annotated[
        list[str] | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FORMAT[=FILE]",
            help="text, json, yaml, junit, sarif, markdown, github or prometheus; repeatable.",
            autocompletion=complete.formats,
        ),
    ] = None,
    fail_on: Annotated[
        str | None, typer.Option("--fail-on", help="error, warning or never: what makes the exit code 1.")
    ] = None,
    require: Annotated[
        list[str] | None,
        typer.Option("--require", help="This check must apply; repeatable.", autocompletion=complete.checks),
    ] = None,
    require_proof: Annotated[
        bool, typer.Option("--require-proof", help="What is not proven makes the run incomplete.")
    ] = False,
    min_coverage: Annotated[
        float, typer.Option("--min-coverage", min=0, max=100, help="Percentage of reads that must succeed.")
    ] = 0,
    baseline: Annotated[
        Path | None, typer.Option("--baseline", help="An earlier report; its findings are marked as known.")
    ] = None,
    fail_on_new: Annotated[
        bool,
        typer.Option("--fail-on-new", help="Only findings that the baseline lacks make the exit code 1."),
    ] = False,
    policy: PolicyOption = None,
    save: Annotated[
        Path | None, typer.Option("--save", help="Store what is read as a snapshot at this path.")
    ] = None,
    logs: LogsOption = "all",
    dry_run: DryRunOption = None,
    read_only: ReadOnlyOption = False,
    read_webhook_secret: SecretOption = False,
    window: WindowOption = None,
    state_namespace: Annotated[
        str, typer.Option("--state-namespace", help="Where journals of drills are kept.")
    ] = HOME,
    drill: DrillOption = False,
    drill_plan: DrillPlanOption = None,
    yes: YesOption = False,
    deadline: DeadlineOption = A_DEADLINE,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show every object concerned.")] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Show only what failed or is unknown, to paste into a chat.")
    ] = False,
    *,
    access: Access,
    looking: Looking,
    monitoring: Monitoring,
    asking: Asking,
) -> None:
    """Check a cluster, or a snapshot of one.

    Exit codes: 0 clean, 1 findings, 2 usage, 3 incomplete, 130 interrupted.
    """
    from gpuctl.audit.outcome import Gate
    from gpuctl.audit.run import Request
    from gpuctl.cli import doors
    from gpuctl.cli import output as outputs
    from gpuctl.cli.border import Stop
    from gpuctl.cli.consent import consent
    from gpuctl.cli.duration import seconds
    from gpuctl.cli.policies import load_policy
    from gpuctl.cli.reports import fingerprints
    from gpuctl.cli.selection import selected
    from gpuctl.cli.watching import longer, watching
    from gpuctl.facts.own import STATE_NAMESPACE
    from gpuctl.kueue.drills import ASKED

    request_outputs = outputs.parse(output or [])
    chosen = load_policy(policy)
    if required := require or []:
        selected(required)
    gate = Gate(
        fail_on=_level(fail_on or chosen.fail_on),
        only_new=fail_on_new,
        require=required,
        require_proof=require_proof,
        min_coverage=min_coverage,
    )
    if fail_on_new and baseline is None:
        raise Stop("--fail-on-new needs --baseline: without one, every finding is new")
    if verbose and quiet:
        raise Stop("--verbose and --quiet exclude each other")
    drilling = Drilling(drill, drill_plan, yes)
    drilling.refuse_unless_possible(
        snapshot=from_ is not None, read_only=read_only, tenant=bool(access.namespace)
    )
    acting = Acting(chosen, state_namespace, "gpuctl check --drill", ticket="", timeout=_DRILL_SECONDS)
    came_of_it = _drilled(drilling, Means(access, looking, acting, monitoring)) if drilling.asked else ""
    request = Request(
        selected(checks or []),
        chosen,
        gate,
        fingerprints(baseline),
        arguments={**looking.arguments, STATE_NAMESPACE: state_namespace, ASKED: came_of_it},
    )
    given = watching(consent(dry_run, read_only=read_only, webhook_secret=read_webhook_secret), window)
    given = asking.added_to(monitoring.added_to(given), read_only=read_only)
    probing = looking.unless(read_only=read_only)
    with doors.open_door(
        access, from_, save, longer(seconds(deadline), given), logs=logs, consent=given, probing=probing
    ) as door:
        report = _run(request, door, request_outputs, verbose=verbose, quiet=quiet)
    for each in request_outputs:
        if each.file:
            outputs.write(report, each)
    raise typer.Exit(report.outcome.exit_code)


def _drilled(drilling: Drilling, means: Means) -> str:
    """What came of the drill that was asked for; empty if it succeeded."""
    from gpuctl.cli.drilling import drilled

    return drilled(drilling, means.open())


def _level(name: str) -> str:
    from gpuctl.cli.border import Stop

    if name not in {"error", "warning", "never"}:
        raise Stop(f"--fail-on is error, warning or never, not {name!r}")
    return name


def _run(
    request: Request, door: Door, outputs: tuple[Output, ...], *, verbose: bool, quiet: bool
) -> AuditReport:
    """Runs the checks. Text on stdout is drawn while it goes on, every other format at the end."""
    from gpuctl.audit.run import Observer, audit
    from gpuctl.cli import screen
    from gpuctl.cli.output import TEXT, rendered
    from gpuctl.report.short import draw_short
    from gpuctl.report.text import canvas, draw_check, draw_conclusion

    console = screen.out()
    on = canvas(console, verbose=verbose)
    to_stdout = next(output.format for output in outputs if output.file is None)

    def show(item: CheckItem) -> None:
        if to_stdout == TEXT and not quiet:
            progress.hide()
            draw_check(item, on)

    with screen.Progress(f"reading {door.name}").shown() as progress:
        door.report_to(progress.told)
        report = audit(request, door.reader, door.source, Observer(progress.fact, show))
    if to_stdout == TEXT:
        (draw_short if quiet else draw_conclusion)(report, on)
    else:
        screen.data(rendered(report, to_stdout))
    return report
