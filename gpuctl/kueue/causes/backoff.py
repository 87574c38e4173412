"""It was evicted, and is not tried again before a set time."""

from __future__ import annotations

from gpuctl.kueue.causes.cause import Cause, Trouble
from gpuctl.kueue.scene import Waiter


def cause(waiter: Waiter) -> Cause | None:
    state = waiter.workload.status.requeue_state
    if state is None or state.requeue_at is None or state.requeue_at <= waiter.line.scene.now:
        return None
    return Cause(Trouble.BACKOFF)
