"""It was evicted, and is not tried again before a set time."""

from __future__ import annotations

from gpuctl.kueue.causes.cause import Cause, Trouble
from gpuctl.kueue.scene import Waiter
from gpuctl.kueue.standing import backs_off


def cause(waiter: Waiter) -> Cause | None:
    return Cause(Trouble.BACKOFF) if backs_off(waiter.workload, waiter.line.scene.now) else None
