"""It would fit, and nothing that was read keeps it from being admitted. Kueue's words stay as they are."""

from __future__ import annotations

from gpuctl.kueue.causes.cause import Cause, Trouble
from gpuctl.kueue.scene import Waiter


def cause(waiter: Waiter) -> Cause:
    if not waiter.message:
        return Cause(Trouble.NOT_LOOKED_AT)
    return Cause(Trouble.UNCLASSIFIED, says=waiter.message)
