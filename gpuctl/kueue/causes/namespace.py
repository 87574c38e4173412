"""The queue does not take Workloads of this namespace."""

from __future__ import annotations

from gpuctl.facts.kinds import Ref
from gpuctl.facts.objects import Namespace
from gpuctl.kueue.causes.cause import Cause, Trouble
from gpuctl.kueue.scene import Waiter


def cause(waiter: Waiter) -> Cause | None:
    namespace = waiter.workload.metadata.namespace
    if waiter.line.scene.selected(waiter.line.queue, namespace):
        return None
    return Cause(Trouble.NAMESPACE, other=Ref(Namespace.of, namespace))
