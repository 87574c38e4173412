"""It would fit if others of the cohort were active, or lent what they have."""

from __future__ import annotations

from gpuctl.facts.kinds import Ref
from gpuctl.kueue.causes.cause import Cause, Trouble
from gpuctl.kueue.fit import nearest
from gpuctl.kueue.objects import ClusterQueue
from gpuctl.kueue.quota import NOTHING, Cell
from gpuctl.kueue.scene import Line, Waiter


def cause(waiter: Waiter) -> Cause | None:
    lacking = nearest(waiter.never)
    line = waiter.line
    if lacking is None or line.if_all_lent.obstacles(waiter.workload, waiter.least):
        return None
    peer = withholding(line, (lacking.flavor, lacking.resource))
    if peer is None:
        return None
    return Cause(
        Trouble.PEERS,
        lacking.resource,
        lacking.flavor,
        lacking.asked,
        lacking.room,
        Ref(ClusterQueue.of, peer),
    )


def withholding(line: Line, cell: Cell) -> str | None:
    """The queue of the cohort that withholds most of a cell: inactive, or lending less than it has."""
    amounts = {
        member.name: (
            member.limits[cell].nominal
            if member.name in line.scene.inactive
            else member.limits[cell].nominal - (member.limits[cell].lending or 0)
        )
        for member in line.scene.tree.peers(line.name)
        if member.limits.get(cell, NOTHING).nominal
        and (member.name in line.scene.inactive or member.limits[cell].lending is not None)
    }
    return max(sorted(amounts), key=lambda name: amounts[name], default=None)
