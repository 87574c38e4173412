"""What the findings of this check have in common: how to look, who refers to a flavor, who is concerned."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator

from gpuctl.audit.finding import Evidence
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Known, attempt
from gpuctl.kueue.flavors import Flavor, Reliance, Tenant
from gpuctl.kueue.picture import amounts
from gpuctl.kueue.quantities import is_accelerator

_NAMED = 3


def get(ref: Ref) -> str:
    """The command that shows an object."""
    place = f"-n {shlex.quote(ref.namespace)} " if ref.namespace else ""
    return f"kubectl {place}get {ref.kind.resource} {shlex.quote(ref.name)} -o yaml"


def counted(number: int, what: str) -> str:
    """`1 Workload`, `3 Workloads`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def some(names: Iterable[str]) -> str:
    """`a, b, c and 4 more`."""
    found = list(names)
    rest = len(found) - _NAMED
    return ", ".join(found[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def queues(of: Reliance) -> str:
    """`ClusterQueue vision refers`, `ClusterQueues vision, research refer`."""
    names = [each.metadata.name for each in of.queues]
    if len(names) == 1:
        return f"ClusterQueue {names[0]} refers"
    return f"ClusterQueues {some(names)} refer"


def cohorts(of: Reliance) -> str:
    """`Cohort pool promises`, `Cohorts pool, lab promise`."""
    names = [each.metadata.name for each in of.cohorts]
    return f"Cohort {names[0]} promises" if len(names) == 1 else f"Cohorts {some(names)} promise"


def references(of: Reliance) -> Iterator[Evidence]:
    """Where it is referred to."""
    for each in (*of.queues[:_NAMED], *of.cohorts[:_NAMED]):
        yield Evidence(each.ref, ".spec.resourceGroups[*].flavors[*].name", of.name)


def concerned(of: Reliance) -> str:
    """Who is concerned: the end of a sentence. Empty where nobody is; says so where that can't be told."""
    found = attempt(lambda: [f"{each.name} ({doing(of, each)})" for each in of.tenants if _busy(each)])
    if not isinstance(found, Known):
        return "; who runs and waits on it could not be read"
    return (
        f"; LocalQueues concerned: {some(found.value)}" if found.value else "; nobody runs or waits on it now"
    )


def _busy(tenant: Tenant) -> bool:
    return bool(tenant.running or tenant.waiting)


def doing(of: Reliance, tenant: Tenant) -> str:
    """`2 run with 4 nvidia.com/gpu, 3 wait`."""
    held = {name: each for name, each in of.in_use(tenant.running).items() if is_accelerator(name)}
    parts = []
    if tenant.running:
        parts.append(f"{len(tenant.running)} run" + (f" with {amounts(held)}" if held else ""))
    if tenant.waiting:
        parts.append(f"{len(tenant.waiting)} wait")
    return ", ".join(parts) or "nobody runs or waits"


def deletion(flavor: Flavor) -> Iterator[Evidence]:
    """When it was deleted, and what keeps it."""
    about = flavor.written.metadata
    yield Evidence(
        flavor.ref, ".metadata.deletionTimestamp", f"{about.deletion_timestamp:%Y-%m-%dT%H:%M:%SZ}"
    )
    yield Evidence(flavor.ref, ".metadata.finalizers", ", ".join(about.finalizers) or "none")
