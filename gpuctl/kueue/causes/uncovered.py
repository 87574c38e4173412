"""It asks for a resource that the queue has no quota for, not even zero."""

from __future__ import annotations

from gpuctl.kueue.causes.cause import Cause, Trouble
from gpuctl.kueue.fit import Bar
from gpuctl.kueue.scene import Waiter


def cause(waiter: Waiter) -> Cause | None:
    found = [each for each in waiter.never if each.bar is Bar.NOT_COVERED]
    return Cause(Trouble.NOT_COVERED, found[0].resource, asked=found[0].asked) if found else None
