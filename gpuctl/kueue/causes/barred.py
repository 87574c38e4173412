"""No flavor lets its pods in: taints it does not tolerate, labels it does not select, a topology that is not
the flavor's."""

from __future__ import annotations

from gpuctl.kueue.causes.cause import Cause, Trouble
from gpuctl.kueue.fit import Bar, Obstacle
from gpuctl.kueue.scene import Waiter

_BARS = frozenset(Bar) - {Bar.NOT_COVERED, Bar.NO_ROOM}


def cause(waiter: Waiter) -> Cause | None:
    found = waiter.never
    if not found or not all(each.bar in _BARS for each in found):
        return None
    if all(each.bar is Bar.NO_FLAVOR for each in found):
        return Cause(Trouble.INACTIVE)
    return Cause(Trouble.BARRED, found[0].resource, says="; ".join(map(_said, found)))


def _said(obstacle: Obstacle) -> str:
    detail = f" {obstacle.detail}" if obstacle.detail else ""
    return f"flavor {obstacle.flavor}: {obstacle.bar.value}{detail}"
