"""gpuctl queues: what waits in each ClusterQueue, since when, why, and what is free."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from gpuctl.cli.access import with_access
from gpuctl.cli.viewing import with_viewing

if TYPE_CHECKING:
    from gpuctl.cli.doors import Door
    from gpuctl.cli.viewing import Viewing
    from gpuctl.cluster.connection import Access
    from gpuctl.facts.gather import Facts
    from gpuctl.facts.kinds import Ref
    from gpuctl.facts.state import Each, State
    from gpuctl.kueue.picture import QueuePicture


@with_access
@with_viewing
def queues(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="One ClusterQueue in full: its cohort and its line."),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show everyone who waits.")] = False,
    *,
    access: Access,
    viewing: Viewing,
) -> None:
    """Show Kueue's ClusterQueues: backlog, oldest wait, free quota, and why Workloads wait.

    Where Workloads stand in the line of NAME the manager tells, to whoever may get
    clusterqueues/pendingworkloads.visibility.kueue.x-k8s.io; else it is estimated.

    Exit codes: 0 shown, 1 no such queue, 2 usage, 3 the queues could not be read, 130 interrupted.
    """
    from gpuctl.cli import screen
    from gpuctl.kueue.picture import pictures_of_queues, places_of
    from gpuctl.report.plain import plain
    from gpuctl.report.queues import draw_queue, draw_queues, to_json
    from gpuctl.report.text import canvas

    with viewing.door(access, logs="none") as door:
        facts = _read(door, name or "")
        found = _found(facts.state(pictures_of_queues), name)
    chosen = sorted(
        (each for _, each in found.known() if name in (None, each.name)), key=lambda each: each.name
    )
    if name:
        chosen = [replace(each, places=places_of(facts, each.name)) for each in chosen]
    if viewing.json:
        screen.data(to_json(chosen, (str(gap) for gap in found.gaps())))
        return
    on = canvas(screen.out(), verbose=verbose)
    if name:
        draw_queue(chosen[0], on)
        return
    draw_queues(chosen, on)
    for gap in found.gaps():
        on.line(on.sign("unknown").append(plain(str(gap))))


def _read(door: Door, name: str) -> Facts:
    from gpuctl.cli import screen
    from gpuctl.facts.gather import gather
    from gpuctl.kueue.picture import IN_FULL, pictures_of_queues, places_in_line

    with screen.Progress(f"reading {door.name}").shown() as progress:
        door.report_to(progress.told)
        wanted = [pictures_of_queues, places_in_line] if name else [pictures_of_queues]
        return gather(wanted, door.reader, {IN_FULL: name}, progress.fact)


def _found(state: State[Each[Ref, QueuePicture]], name: str | None) -> Each[Ref, QueuePicture]:
    from gpuctl.cli.border import INCOMPLETE, Stop
    from gpuctl.facts.state import Inapplicable, Known

    if isinstance(state, Inapplicable):
        raise Stop(f"there are no ClusterQueues here: {state}", 1)
    if not isinstance(state, Known):
        raise Stop(f"queues can't be read: {state}", INCOMPLETE)
    names = {each.name for _, each in state.value.known()}
    if name and name not in names:
        gap = next(state.value.gaps(), None)
        raise Stop(f"there is no ClusterQueue {name!r}" + (f" that could be read ({gap})" if gap else ""), 1)
    if not names and not any(state.value.gaps()):
        raise Stop("there are no ClusterQueues here", 1)
    return state.value
