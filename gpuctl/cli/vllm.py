"""gpuctl vllm: the engines of a cluster, their mode and where their memory went."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuctl.cli.access import with_access
from gpuctl.cli.asking import with_asking
from gpuctl.cli.monitoring import with_prometheus
from gpuctl.cli.viewing import LogsOption, PolicyOption, with_viewing

if TYPE_CHECKING:
    from gpuctl.audit.report import AuditReport, CheckItem
    from gpuctl.audit.run import Request
    from gpuctl.cli.asking import Asking
    from gpuctl.cli.border import Stop
    from gpuctl.cli.doors import Door
    from gpuctl.cli.monitoring import Monitoring
    from gpuctl.cli.viewing import Viewing
    from gpuctl.cluster.connection import Access
    from gpuctl.facts.gather import Facts

CHECK = "vllm-mode"


@with_access
@with_prometheus
@with_asking
@with_viewing
def vllm(
    pod: Annotated[
        str | None, typer.Argument(metavar="[POD]", help="One pod in full: NAME or NAMESPACE/NAME.")
    ] = None,
    policy: PolicyOption = None,
    logs: LogsOption = "all",
    memory_baseline: Annotated[
        Path | None, typer.Option("--memory-baseline", help="An earlier baseline; says what drifted since.")
    ] = None,
    save_memory_baseline: Annotated[
        Path | None, typer.Option("--save-memory-baseline", help="Store the engines' memory in this file.")
    ] = None,
    *,
    access: Access,
    monitoring: Monitoring,
    asking: Asking,
    viewing: Viewing,
) -> None:
    """Show the vLLM engines: eager or graphs, and where their memory went.

    Exit codes: 0 shown, 1 no such engine, 2 usage, 3 the engines could not be read, 130 interrupted.
    """
    from gpuctl.cli import screen
    from gpuctl.cluster.consent import Consent
    from gpuctl.report.text import canvas
    from gpuctl.report.vllm import draw_engine, draw_engines, engines_json, views

    request = _request(policy, memory_baseline)
    consent = asking.added_to(monitoring.added_to(Consent()))
    with viewing.door(access, logs=logs, consent=consent) as door:
        report, facts = _read(request, door)
    (check,) = report.checks
    found = [view for view in views(check) if pod is None or view.is_named(pod)]
    if not found and check.verdict == "unknown":
        raise _unread(check)
    if save_memory_baseline:
        _save(save_memory_baseline, facts, report)
    on = canvas(screen.out())
    if viewing.json:
        screen.data(engines_json(found))
    elif pod is None and found:
        draw_engines(found, check, on)
    else:
        for view in found:
            draw_engine(view, on)
    raise typer.Exit(_exit_code(pod, len(found)))


def _unread(check: CheckItem) -> Stop:
    from gpuctl.cli.border import INCOMPLETE, Stop

    gap = next((gap for each in check.assertions for gap in each.unknown), None)
    why = ": ".join(filter(None, (gap.object, gap.reason, gap.message))) if gap else "nothing tells why"
    return Stop(f"the engines can't be read: {why}", INCOMPLETE)


def _exit_code(pod: str | None, found: int) -> int:
    from gpuctl.cli.border import warn

    if found:
        return 0
    warn(f"no engine in pod {pod}" if pod else "no pod here runs vLLM")
    return 1 if pod else 0


def _request(policy: str | None, memory_baseline: Path | None) -> Request:
    from gpuctl.audit.run import Request
    from gpuctl.cli.policies import load_policy
    from gpuctl.cli.selection import selected
    from gpuctl.vllm.baseline import MEMORY_BASELINE

    known = {MEMORY_BASELINE: _load(memory_baseline)} if memory_baseline else {}
    return Request(selected([CHECK]), load_policy(policy), arguments=known)


def _load(path: Path) -> object:
    import msgspec

    from gpuctl.cli.border import Stop
    from gpuctl.vllm.baseline import parse

    try:
        return parse(path.read_bytes())
    except OSError as error:
        raise Stop(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, msgspec.MsgspecError) as error:
        raise Stop(f"{path} is no memory baseline: {error}") from error


def _read(request: Request, door: Door) -> tuple[AuditReport, Facts]:
    from gpuctl.audit.run import Observer, audit
    from gpuctl.cli import screen
    from gpuctl.facts.fact import Fact

    known: list[Facts] = []

    def watch(fact: Fact[object], facts: Facts) -> None:
        known[:] = [facts]
        progress.fact(fact, facts)

    with screen.Progress(f"reading {door.name}").shown() as progress:
        door.report_to(progress.told)
        report = audit(request, door.reader, door.source, Observer(watch))
    return report, known[0]


def _save(path: Path, facts: Facts, report: AuditReport) -> None:
    import msgspec

    from gpuctl.cli.border import Stop, warn
    from gpuctl.facts.state import Known
    from gpuctl.vllm.baseline import baseline
    from gpuctl.vllm.facts import engines_of_vllm

    state = facts.state(engines_of_vllm)
    if not isinstance(state, Known):
        raise Stop(f"nothing to store: {state}")
    taken = baseline((engine for _, engine in state.value.known()), facts.now, report.run.source.name)
    try:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(taken), indent=2) + b"\n")
    except OSError as error:
        raise Stop(f"cannot write {path}: {error.strerror}") from error
    warn(f"stored the memory of {len(taken.engines)} workloads in {path}")
