"""It would fit, and nothing that was read keeps it from being admitted. Kueue's words stay as they are."""

from __future__ import annotations

from gpuctl.kueue.causes.cause import Cause, Trouble
from gpuctl.kueue.scene import Waiter
from gpuctl.kueue.standing import kept_back


def cause(waiter: Waiter) -> Cause:
    says = waiter.message or kept_back(waiter.workload)
    return Cause(Trouble.UNCLASSIFIED, says=says) if says else Cause(Trouble.NOT_LOOKED_AT)
