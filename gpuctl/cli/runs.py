"""gpuctl runs, resume, undo, unlock: what was begun, and what becomes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuctl.cli.acting import Means, Site, with_means
from gpuctl.cli.viewing import FormOption, is_json

if TYPE_CHECKING:
    from gpuctl.facts.gather import Facts
    from gpuctl.facts.kinds import Ref
    from gpuctl.facts.state import Each, State
    from gpuctl.runbook.conduct import Crew, Ending
    from gpuctl.runbook.planning import Task
    from gpuctl.runbook.records import Lease, Run

RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="Its id, as gpuctl runs shows it.")]


@with_means
def runs(
    output: FormOption = "text",
    *,
    means: Means,
) -> None:
    """List runs: those that wait for somebody, and those that ended.

    Exit codes: 0 none waits, 1 one is unfinished, 2 usage, 3 they, or locks, could not all be read.
    """
    import json

    import msgspec

    from gpuctl.cli import screen
    from gpuctl.cli.border import INCOMPLETE, warn
    from gpuctl.report.runs import draw_runs
    from gpuctl.runbook.records import Standing

    as_json = is_json(output)
    site = means.open()
    facts, known = _read(site)
    found = [run for _, run in known.known()]
    if as_json:
        screen.data(json.dumps(msgspec.to_builtins(found), indent=2) + "\n")
    elif found:
        draw_runs(found, screen.out(), datetime.now(UTC))
    else:
        screen.out().print(
            f"no runs in namespace {means.acting.state_namespace}", markup=False, highlight=False
        )
    for orphan in _orphans(facts, known):
        warn(orphan)
    gaps = [*known.gaps(), *_unread(facts)]
    for gap in gaps:
        warn(str(gap))
    if gaps:
        raise typer.Exit(INCOMPLETE)
    raise typer.Exit(int(any(run.state is Standing.UNFINISHED for run in found)))


def _read(site: Site) -> tuple[Facts, Each[str, Run]]:
    from gpuctl.cli.border import INCOMPLETE, Stop
    from gpuctl.facts.fact import Objects
    from gpuctl.facts.own import STATE_NAMESPACE
    from gpuctl.facts.state import NotKnown
    from gpuctl.nvidia.objects import NodeView
    from gpuctl.runbook.records import LEASES
    from gpuctl.runbook.records import runs as journals

    arguments = {STATE_NAMESPACE: site.acting.state_namespace}
    facts = site.looks()(arguments)([journals, LEASES, Objects(NodeView)])
    try:
        return facts, facts[journals]
    except NotKnown as gap:
        raise Stop(f"runs can't be read: {gap}", INCOMPLETE) from gap


def _orphans(facts: Facts, known: Each[str, Run]) -> list[str]:
    """Locks without a journal, those that outlived their run, and those of nodes that are gone."""
    from gpuctl.facts.fact import Objects
    from gpuctl.facts.kinds import Ref
    from gpuctl.facts.state import Known, attempt
    from gpuctl.nvidia.objects import NodeView
    from gpuctl.runbook.records import TARGET_NAME, TARGET_UID, Standing

    nodes = attempt(lambda: facts[Objects(NodeView)])
    over = {id_ for id_, run in known.known() if run.state is not Standing.UNFINISHED}
    said = []
    for _, lease in _leases(facts):
        if lease.relevant and lease.run not in known.entries:
            said.append(f"{lease.ref} has no journal: its run never began; gpuctl unlock {lease.run}")
        elif lease.relevant and lease.run in over:
            said.append(f"{lease.ref} is left over of a run that has ended; gpuctl unlock {lease.run}")
        name, uid = (lease.metadata.annotations.get(key, "") for key in (TARGET_NAME, TARGET_UID))
        if _is_of_a_node(lease) and isinstance(nodes, Known):
            state = nodes.value.entries.get(Ref(NodeView.of, name))
            there = state.value.metadata.uid if isinstance(state, Known) else ""
            if uid and there != uid and not nodes.value.holes:
                said.append(f"{lease.ref} is of a node that is gone; gpuctl unlock {lease.run}")
    return said


def _leases(facts: Facts) -> list[tuple[Ref, Lease]]:
    """The locks that could be read: what could not be `_unread` tells."""
    from gpuctl.facts.state import Known, attempt
    from gpuctl.runbook.records import LEASES

    state = attempt(lambda: facts[LEASES])
    return list(state.value.known()) if isinstance(state, Known) else []


def _unread(facts: Facts) -> list[str]:
    """What could not be read of locks, and of the nodes that they are of: some may belong to nobody."""
    from gpuctl.facts.fact import Objects
    from gpuctl.facts.state import Known, attempt
    from gpuctl.nvidia.objects import NodeView
    from gpuctl.runbook.records import LEASES

    asked: list[tuple[State[Each[Ref, Any]], str]]
    asked = [(attempt(lambda: facts[LEASES]), "whether locks are left that belong to no run")]
    if any(_is_of_a_node(lease) for _, lease in _leases(facts)):
        asked += [
            (attempt(lambda: facts[Objects(NodeView)]), "whether locks are left of nodes that are gone")
        ]
    return [
        f"it can't be told {what}: {gap}"
        for state, what in asked
        for gap in (state.value.gaps() if isinstance(state, Known) else (state,))
    ]


def _is_of_a_node(lease: Lease) -> bool:
    return lease.relevant and lease.metadata.name.startswith("gpuctl-node-")


@with_means
def resume(ctx: typer.Context, run: RunArgument, *, means: Means) -> None:
    """Go on with an unfinished run, the way it was going.

    What may have come up since it stopped is looked at anew, unless it goes back. After RUN it takes the
    overrides of its runbook, as gpuctl plan RUNBOOK --help shows them: --outside-window, --ignore-alerts, …

    Exit codes: 0 done and verified, 1 refused, 2 usage, 3 not read, 4 failed or timed out, 130 interrupted.
    """
    _with_overrides("resume", run, ctx.args, means)


@with_means
def undo(ctx: typer.Context, run: RunArgument, *, means: Means) -> None:
    """Take back what an unfinished run changed; of a finished one, show and apply the plan that does.

    Going back is never refused. For that plan of a finished run it takes, after RUN, the overrides of its
    runbook, as gpuctl plan RUNBOOK --help shows them: --last-node, --outside-window, …

    Exit codes: 0 taken back, 1 refused, 2 usage, 3 not read, 4 failed or timed out, 130 interrupted.
    """
    _with_overrides("undo", run, ctx.args, means)


def _with_overrides(verb: str, id_: str, arguments: Sequence[str], means: Means) -> None:
    """Which overrides there are is known once the run is: the rest of the command line is read then."""
    from gpuctl.cli.apply import book_of
    from gpuctl.cli.books import run_command, with_overrides
    from gpuctl.cli.border import Stop

    if id_.startswith("-"):
        raise Stop(f"name the run first, then {id_}")
    site = means.open()
    run = _found(id_, site)
    if run.cluster_uid != site.source.cluster_uid:
        raise Stop(f"run {id_} is of cluster {run.cluster_uid}, this one is {site.source.cluster_uid}", 1)
    book = book_of(run.runbook)

    def go_on(accepted: Mapping[str, Any]) -> None:
        if accepted.get("outside_window") and not means.acting.reason:
            raise Stop("--outside-window demands --reason")
        _go_on(run, site, accepted, back=verb == "undo")

    run_command(verb, id_, arguments, with_overrides(book, go_on))


def _go_on(run: Run, site: Site, accepted: Mapping[str, Any], *, back: bool) -> None:
    """`accepted`: the overrides that the person gave now, beside those that the run was begun with."""
    from msgspec.structs import replace

    from gpuctl.cli.border import Stop
    from gpuctl.cli.endings import leave
    from gpuctl.cli.stopping import stoppable
    from gpuctl.runbook.records import Standing

    if run.state is not Standing.UNFINISHED:
        if not back or run.state is not Standing.FINISHED:
            raise Stop(f"run {run.id} is {run.state}: there is nothing to go on with", 1)
        _undo_finished(run, site, accepted)
        return
    why = {"reason": site.acting.reason} if site.acting.reason else {}
    run = replace(run, options={**run.options, **accepted, **why})
    with stoppable() as stop:
        ending = _ended(run, site, site.crew(stop), back=back)
    leave(ending)


def _ended(run: Run, site: Site, crew: Crew, *, back: bool) -> Ending:
    from gpuctl.runbook.conduct import go_on
    from gpuctl.runbook.roll import resume_roll

    if run.members:
        return resume_roll(run, lambda name: _task(run, site, name), crew, back=back)
    return go_on(run, _task(run, site, run.target), crew, back=back)


def _task(run: Run, site: Site, target: str) -> Task:
    from gpuctl.cli.border import Stop
    from gpuctl.runbook.catalogue import NoRunbook, runbook

    try:
        return site.task(runbook(run.runbook), target, run.options)
    except NoRunbook as error:
        raise Stop(f"run {run.id}: {error}") from error


def _found(id_: str, site: Site) -> Run:
    from gpuctl.cli.border import INCOMPLETE, Stop
    from gpuctl.facts.state import NotKnown

    _, known = _read(site)
    try:
        run = known.get(id_)
    except NotKnown as gap:
        raise Stop(f"run {id_} can't be read: {gap}", INCOMPLETE) from gap
    if run is None:
        raise Stop(f"there is no run {id_} in namespace {site.acting.state_namespace}; see gpuctl runs")
    return run


def _undo_finished(run: Run, site: Site, accepted: Mapping[str, Any]) -> None:
    """What a finished run did is undone by a new plan: the node is busy again."""
    from gpuctl.cli.apply import _is_terminal, book_of, carry_out, confirm
    from gpuctl.cli.books import command_of
    from gpuctl.cli.border import Stop
    from gpuctl.cli.plan import show
    from gpuctl.cli.planning import Wanted, make_plan

    if run.members:
        names = ", ".join(each.run for each in run.members)
        raise Stop(f"run {run.id} is a finished rolling change: undo the runs of its targets, {names}", 1)
    book = book_of(run.runbook)
    reverse = book.reverse(run)
    if reverse is None:
        why = f"run {run.id} is finished, and {book.id} has no plan that undoes it; nothing was done"
        raise Stop(f"{why}. Only of a run that is not finished undo brings back: {book.back}", 1)
    options = {**book.without_risks(reverse), **accepted}
    if not _is_terminal():
        raise Stop(
            f"run {run.id} is finished: undoing it is a new plan of {book.id}; make it by "
            f"`{command_of(book, run.target, options)}`, and apply it"
        )
    made = make_plan(site, Wanted(book, run.target, options=options))
    show(made, book)
    if made.blockers:
        raise typer.Exit(1)
    confirm(made.name)
    carry_out(site, made)


@with_means
def unlock(run: RunArgument, *, means: Means) -> None:
    """Give up a run by its name: its locks go, what it changed stays.

    Exit codes: 0 given up, 1 refused, 2 usage, 3 no cluster, 4 failed, 130 interrupted.
    """
    from gpuctl.cli.border import Stop, warn
    from gpuctl.cli.endings import FAILED, leave
    from gpuctl.cli.stopping import stoppable
    from gpuctl.facts.own import STATE_NAMESPACE
    from gpuctl.facts.state import NotKnown
    from gpuctl.runbook.conduct import abandon
    from gpuctl.runbook.writer import Fenced, WriteFailed

    site = means.open()
    with stoppable() as stop:
        try:
            where = {STATE_NAMESPACE: means.acting.state_namespace}
            ending = abandon(run, site.crew(stop), where, _target_of)
        except (NotKnown, WriteFailed, Fenced) as failed:
            raise Stop(f"run {run} could not be given up: {failed}", FAILED) from failed
    if ending.outcome == "succeeded":
        warn(f"run {run} is given up; what it changed stays as it is")
    leave(ending)


def _target_of(run: Run) -> Ref | None:
    """What a run is about, if that is one object, and of a runbook that there is."""
    from gpuctl.runbook.catalogue import NoRunbook, runbook

    try:
        return None if run.members else runbook(run.runbook).ref(run.target)
    except NoRunbook:
        return None
