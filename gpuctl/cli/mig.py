"""gpuctl mig show: the GPUs of nodes as pictures, with who holds which slice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gpuctl.cli.access import with_access
from gpuctl.cli.looking import with_looking
from gpuctl.cli.monitoring import with_prometheus
from gpuctl.cli.viewing import with_viewing

if TYPE_CHECKING:
    from gpuctl.cli.doors import Door
    from gpuctl.cli.looking import Looking
    from gpuctl.cli.monitoring import Monitoring
    from gpuctl.cli.viewing import Viewing
    from gpuctl.cluster.connection import Access
    from gpuctl.facts.kinds import Ref
    from gpuctl.facts.state import Each, State
    from gpuctl.nvidia.picture import NodePicture

app = typer.Typer(no_args_is_help=True, help="MIG: how GPUs are sliced.", rich_markup_mode=None)


@app.callback()
def mig() -> None:
    """MIG: how GPUs are sliced."""


@app.command("show")
@with_access
@with_looking
@with_prometheus
@with_viewing
def show(
    name: Annotated[str | None, typer.Argument(metavar="[NODE]", help="One node.")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Draw every node.")] = False,
    *,
    access: Access,
    looking: Looking,
    monitoring: Monitoring,
    viewing: Viewing,
) -> None:
    """Show the GPUs of nodes: how they are sliced, what is held and what is free.

    Exit codes: 0 shown, 1 no such node, 2 usage, 3 the nodes could not be read, 130 interrupted.
    """
    from gpuctl.cli import screen
    from gpuctl.cluster.consent import Consent
    from gpuctl.report.mig import draw_nodes, to_json
    from gpuctl.report.text import canvas

    if name:
        looking = looking.at(name)
    consent = monitoring.added_to(Consent())
    with viewing.door(access, consent=consent, probing=looking.probing) as door:
        pictures = _found(_read(door, looking), name)
    nodes = [picture for _, picture in sorted(pictures.known(), key=lambda item: item[0].name)]
    if viewing.json:
        screen.data(to_json(nodes, (str(gap) for gap in pictures.gaps())))
        return
    on = canvas(screen.out(), verbose=verbose)
    draw_nodes(nodes, on)
    for gap in pictures.gaps():
        on.line(on.sign("unknown").append(_safe(str(gap))))


def _safe(text: str) -> str:
    from gpuctl.report.plain import plain

    return plain(text)


def _read(door: Door, looking: Looking) -> State[Each[Ref, NodePicture]]:
    from gpuctl.cli import screen
    from gpuctl.facts.gather import gather
    from gpuctl.nvidia.picture import pictures_of_nodes

    with screen.Progress(f"reading {door.name}").shown() as progress:
        door.report_to(progress.told)
        facts = gather([pictures_of_nodes], door.reader, looking.arguments, progress.fact)
    return facts.state(pictures_of_nodes)


def _found(state: State[Each[Ref, NodePicture]], name: str | None) -> Each[Ref, NodePicture]:
    from gpuctl.cli.border import INCOMPLETE, Stop
    from gpuctl.facts.state import Inapplicable, Known
    from gpuctl.nvidia.scope import NO_SUCH_NODE

    where = f"there is no node {name!r} with NVIDIA GPUs" if name else "no node has NVIDIA GPUs"
    if isinstance(state, Known):
        if name and NO_SUCH_NODE in {gap.message for gap in state.value.gaps()}:
            raise Stop(where, 1)
        return state.value
    if isinstance(state, Inapplicable):
        raise Stop(where, 1)
    raise Stop(f"nodes can't be read: {state}", INCOMPLETE)
