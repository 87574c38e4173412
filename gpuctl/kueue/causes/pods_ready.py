"""The manager admits nothing before the pods of all Workloads with quota are ready, in whatever queue."""

from __future__ import annotations

from gpuctl.facts.state import Known
from gpuctl.kueue.causes.cause import Cause, Trouble
from gpuctl.kueue.messages import Saying, sayings
from gpuctl.kueue.scene import Waiter


def cause(waiter: Waiter) -> Cause | None:
    """Only the Workload that is next is told so; those behind it are told nothing. What was told is over once
    all pods are ready."""
    settings, unready = waiter.line.scene.settings, waiter.line.crowd.unready
    said = Saying.PODS_READY in sayings(waiter.message)
    if not isinstance(settings, Known):
        return Cause(Trouble.PODS_READY, other=unready.ref if unready else None) if said else None
    if unready is None or not (said or settings.value.blocks_admission):
        return None
    return Cause(Trouble.PODS_READY, other=unready.ref)
