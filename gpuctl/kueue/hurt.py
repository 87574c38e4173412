"""Who is hurt by a backlog, and how much: accelerators waited for against such as are idle."""

from __future__ import annotations

from dataclasses import dataclass

from gpuctl.facts.state import Known, State
from gpuctl.kueue.quantities import ONE, Amount, is_accelerator, shown
from gpuctl.kueue.quota import cells
from gpuctl.kueue.scene import Line

_HOUR = 3600


@dataclass(frozen=True, slots=True)
class Hurt:
    """`idle` is quota that nobody uses. `hours`: accelerators asked for, times how long, so far."""

    asked: Amount
    idle: Amount
    hours: float


def measured(line: Line) -> Hurt:
    """Raises NotKnown if it can't be told what is asked for."""
    asked, hours = 0, 0.0
    for workload in line.waiting:
        amounts = (each.amounts for each in line.asks(workload))
        own = sum(each for part in amounts for resource, each in part.items() if is_accelerator(resource))
        asked += own
        hours += own / ONE * line.waited(workload).total_seconds() / _HOUR
    return Hurt(asked, _idle(line), hours)


def _idle(line: Line) -> Amount:
    rooms = (line.tree.room(line.name, cell).free for cell in cells(line.queue) if is_accelerator(cell[1]))
    return sum(max(0, each) for each in rooms)


def sentence(found: State[Hurt]) -> str:
    """The end of a sentence; empty where no accelerators are waited for, or that can't be told."""
    if not isinstance(found, Known) or not found.value.asked:
        return ""
    each = found.value
    return (
        f"; {shown(each.asked)} GPUs or slices are waited for, {shown(each.idle)} of the quota are idle, "
        f"{each.hours:.1f} GPU-hours were waited so far (estimate)"
    )
