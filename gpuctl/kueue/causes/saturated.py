"""All quota is in use: there is nothing wrong but that there is more work than quota."""

from __future__ import annotations

from gpuctl.kueue.causes.cause import Cause, Trouble
from gpuctl.kueue.fit import nearest
from gpuctl.kueue.scene import Waiter


def cause(waiter: Waiter) -> Cause | None:
    lacking = nearest(waiter.now)
    if lacking is None:
        return None
    return Cause(Trouble.SATURATED, lacking.resource, lacking.flavor, lacking.asked, lacking.room)
