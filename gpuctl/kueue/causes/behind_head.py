"""It would fit, but in a StrictFIFO queue nobody overtakes the first in line."""

from __future__ import annotations

from gpuctl.kueue.causes.cause import Cause, Trouble
from gpuctl.kueue.scene import Waiter


def cause(waiter: Waiter) -> Cause | None:
    line, head = waiter.line, waiter.line.head
    if not line.strict or head is None or head is waiter.workload or not line.in_line(waiter.workload):
        return None
    return Cause(Trouble.BEHIND_HEAD, other=head.ref)
