"""The request breaks a rule before quota comes into it. Only Kueue's own words tell."""

from __future__ import annotations

from gpuctl.kueue.causes.cause import Cause, Trouble
from gpuctl.kueue.messages import Saying, sayings
from gpuctl.kueue.scene import Waiter


def cause(waiter: Waiter) -> Cause | None:
    if sayings(waiter.message) & {Saying.LIMIT_RANGE, Saying.INVALID}:
        return Cause(Trouble.INVALID, says=waiter.message)
    return None
