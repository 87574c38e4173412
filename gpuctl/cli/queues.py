"""gpuctl queues: what waits in each ClusterQueue, since when, why, and what is free."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuctl.cli.access import with_access

if TYPE_CHECKING:
    from gpuctl.cli.doors import Door
    from gpuctl.cluster.connection import Access
    from gpuctl.facts.kinds import Ref
    from gpuctl.facts.state import Each, State
    from gpuctl.kueue.picture import QueuePicture


@with_access
def queues(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="One ClusterQueue in full: its cohort and its line."),
    ] = None,
    from_: Annotated[
        Path | None,
        typer.Option("--from", help="Look into a snapshot (folder or .tar.gz) instead of a cluster."),
    ] = None,
    output: Annotated[str, typer.Option("--output", "-o", help="text or json.")] = "text",
    deadline: Annotated[str, typer.Option("--deadline", help="Time for the whole run.")] = "120s",
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show everyone who waits.")] = False,
    *,
    access: Access,
) -> None:
    """Show Kueue's ClusterQueues: backlog, oldest wait, free quota, and why Workloads wait.

    Exit codes: 0 shown, 1 no such queue, 2 usage, 3 the queues could not be read, 130 interrupted.
    """
    from gpuctl.cli import doors, screen
    from gpuctl.cli.border import Stop
    from gpuctl.cli.duration import seconds
    from gpuctl.report.plain import plain
    from gpuctl.report.queues import draw_queue, draw_queues, to_json
    from gpuctl.report.text import canvas

    if output not in {"text", "json"}:
        raise Stop(f"--output is text or json, not {output!r}")
    with doors.open_door(access, from_, None, seconds(deadline), logs="none") as door:
        found = _found(_read(door), name)
    chosen = sorted(
        (each for _, each in found.known() if name in (None, each.name)), key=lambda each: each.name
    )
    if output == "json":
        screen.data(to_json(chosen, (str(gap) for gap in found.gaps())))
        return
    on = canvas(screen.out(), verbose=verbose)
    if name:
        draw_queue(chosen[0], on)
        return
    draw_queues(chosen, on)
    for gap in found.gaps():
        on.line(on.sign("unknown").append(plain(str(gap))))


def _read(door: Door) -> State[Each[Ref, QueuePicture]]:
    from gpuctl.cli import screen
    from gpuctl.facts.gather import gather
    from gpuctl.kueue.picture import pictures_of_queues

    with screen.Progress(f"reading {door.name}").shown() as progress:
        door.report_to(progress.told)
        facts = gather([pictures_of_queues], door.reader, {}, progress.fact)
    return facts.state(pictures_of_queues)


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
