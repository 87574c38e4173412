"""It asks for more than the queue could ever give, borrowing all it may, with nothing else running."""

from __future__ import annotations

from gpuctl.kueue.causes.cause import Cause, Trouble
from gpuctl.kueue.fit import nearest
from gpuctl.kueue.scene import Waiter


def cause(waiter: Waiter) -> Cause | None:
    lacking = nearest(waiter.never)
    if lacking is None:
        return None
    return Cause(Trouble.NEVER_FITS, lacking.resource, lacking.flavor, lacking.asked, lacking.room)
