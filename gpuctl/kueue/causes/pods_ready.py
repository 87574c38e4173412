"""The manager admits nothing before the pods of all admitted Workloads are ready."""

from __future__ import annotations

from gpuctl.kueue.causes.cause import Cause, Trouble
from gpuctl.kueue.messages import Saying, sayings
from gpuctl.kueue.scene import Waiter


def cause(waiter: Waiter) -> Cause | None:
    return Cause(Trouble.PODS_READY) if Saying.PODS_READY in sayings(waiter.message) else None
