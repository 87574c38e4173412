"""It would fit the queue's own quota, which others have borrowed, and the queue may not take it back."""

from __future__ import annotations

from gpuctl.facts.kinds import Ref
from gpuctl.kueue.causes.cause import Cause, Trouble
from gpuctl.kueue.fit import nearest
from gpuctl.kueue.objects import ClusterQueue
from gpuctl.kueue.scene import Waiter


def cause(waiter: Waiter) -> Cause | None:
    lacking, line = nearest(waiter.now), waiter.line
    if lacking is None or line.queue.spec.preemption.reclaim_within_cohort != "Never":
        return None
    cell, tree = (lacking.flavor, lacking.resource), line.tree
    own = tree.queue(line.name)
    if tree.reserved(own, cell) + lacking.asked > tree.has(own, cell):
        return None
    borrowers = {each.name: tree.borrowed(each, cell) for each in tree.peers(line.name)}
    most = max(sorted(borrowers), key=lambda name: borrowers[name], default="")
    if not borrowers.get(most):
        return None
    other = Ref(ClusterQueue.of, most)
    return Cause(Trouble.BORROWED_AWAY, lacking.resource, lacking.flavor, lacking.asked, lacking.room, other)
