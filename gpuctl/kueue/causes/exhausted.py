"""It would have to borrow, and all that the cohort has is in use."""

from __future__ import annotations

from gpuctl.facts.kinds import Ref
from gpuctl.kueue.causes.cause import Cause, Trouble
from gpuctl.kueue.fit import nearest
from gpuctl.kueue.objects import Cohort
from gpuctl.kueue.scene import Waiter


def cause(waiter: Waiter) -> Cause | None:
    lacking, tree = nearest(waiter.now), waiter.line.tree
    own = tree.queue(waiter.line.name)
    if lacking is None or not own.parent:
        return None
    cell, root = (lacking.flavor, lacking.resource), tree.root(own.parent)
    cohort = tree.by_key[False, root]
    if tree.has(cohort, cell) - tree.reserved(cohort, cell) >= lacking.asked:
        return None
    return Cause(
        Trouble.COHORT_EXHAUSTED,
        lacking.resource,
        lacking.flavor,
        lacking.asked,
        lacking.room,
        Ref(Cohort.of, root),
    )
