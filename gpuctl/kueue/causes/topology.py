"""There is quota, and no place in the topology that takes all its pods. Kueue counts nodes here itself."""

from __future__ import annotations

from gpuctl.kueue.causes.cause import Cause, Trouble
from gpuctl.kueue.messages import Saying, only
from gpuctl.kueue.scene import Waiter


def cause(waiter: Waiter) -> Cause | None:
    if not only(waiter.message, Saying.TOPOLOGY):
        return None
    return Cause(Trouble.TOPOLOGY, says=waiter.message)
