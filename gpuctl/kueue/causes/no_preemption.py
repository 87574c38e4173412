"""Workloads of lower priority hold the quota, and the queue may not take it from them."""

from __future__ import annotations

from gpuctl.kueue.causes.cause import Cause, Trouble
from gpuctl.kueue.fit import nearest
from gpuctl.kueue.requests import held
from gpuctl.kueue.scene import Waiter


def cause(waiter: Waiter) -> Cause | None:
    lacking, line = nearest(waiter.now), waiter.line
    if lacking is None or line.queue.spec.preemption.within_cluster_queue != "Never":
        return None
    cell = lacking.flavor, lacking.resource
    lower = [each for each in line.holding if each.spec.priority < waiter.workload.spec.priority]
    if not lower or sum(held(each).get(cell, 0) for each in lower) < lacking.missing:
        return None
    return Cause(Trouble.NO_PREEMPTION, lacking.resource, lacking.flavor, lacking.asked, lacking.room)
