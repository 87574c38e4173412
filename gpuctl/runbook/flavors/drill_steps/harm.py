"""What must not happen to Workloads that were admitted, whatever becomes of their flavor; and what Kueue says
of those that wait."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from gpuctl.facts.gather import Facts
from gpuctl.runbook.flavors.canaries import (
    CANARIES,
    WORKLOADS,
    Canaries,
    DrillWorkload,
    active_condition,
    condition,
)
from gpuctl.runbook.flavors.own_journal import this_run


def admitted_so_far(facts: Facts) -> tuple[str, ...]:
    """The Workloads that this run saw admitted."""
    result = this_run(facts).result
    return tuple(name for name in WORKLOADS if result.get(f"{name}Admitted") is True)


def harm(facts: Facts) -> str:
    """What must not happen to Workloads that were admitted, whatever becomes of their flavor; empty if
    nothing did."""
    return next(_harms(facts[CANARIES], admitted_so_far(facts)), "")


def _harms(canaries: Canaries, admitted: Collection[str]) -> Iterator[str]:
    for name in admitted:
        workload = canaries.workloads.get(name)
        if workload is None:
            yield f"Workload {name} is gone"
        elif not workload.admitted:
            yield f"Workload {name} is no longer admitted: {why_not(workload)}"
        elif workload.status.reclaimable_pods:
            yield f"Workload {name} has reclaimablePods, which nothing but its own pods may change"


def why_not(workload: DrillWorkload | None) -> str:
    """Why a Workload is not admitted, as Kueue says it."""
    if workload is None:
        return "it does not exist"
    for kind in ("Evicted", "Admitted", "QuotaReserved"):
        found = condition(workload.status.conditions, kind)
        if found and found.message and (kind == "Evicted") == (found.status == "True"):
            return found.message
    return "Kueue says nothing of it"


def why_inactive(canaries: Canaries) -> str:
    """What Kueue says of the ClusterQueue."""
    found = active_condition(canaries.queue)
    return f"{found.reason}: {found.message}" if found else "Kueue says nothing of it"
