"""Quota that is held is used, and not for ever while others wait."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import timedelta

from gpuctl.audit.assertion import every
from gpuctl.audit.finding import Code, Evidence, Finding
from gpuctl.audit.policy import POLICY, Policy
from gpuctl.checks.queue_growth import codes
from gpuctl.checks.queue_growth.words import counted, describe, patience, some, tolerance, verb
from gpuctl.facts.fact import given
from gpuctl.facts.state import NotKnown
from gpuctl.kueue.leaks import HeldLong, Leak, Leaked, held_long, leaked
from gpuctl.kueue.objects import Workload
from gpuctl.kueue.pods import Owned
from gpuctl.kueue.quantities import Amount, shown
from gpuctl.kueue.queue_facts import LINES, pods_by_owner
from gpuctl.kueue.requests import held, total_cells
from gpuctl.kueue.scene import Line
from gpuctl.kueue.standing import age, condition, span

CODES: dict[Leak, Code] = {
    Leak.EVICTED: codes.LEAKED,
    Leak.DELETED: codes.LEAKED,
    Leak.ORPHANED: codes.ORPHANED,
    Leak.NO_PODS: codes.NO_PODS,
}


@every(LINES, "quota that is held is used", given(POLICY, pods_by_owner))
def used_quota(line: Line, policy: Policy, owned: Owned) -> Iterator[Finding]:
    found: dict[Leak, list[Leaked]] = {}
    gap: NotKnown | None = None
    try:
        for each in leaked(line, owned, patience(tolerance(policy, line.name))):
            found.setdefault(each.leak, []).append(each)
    except NotKnown as unread:
        gap = unread
    for leak, members in found.items():
        yield _leak(line, leak, members)
    if gap:
        raise gap
    line.must_be_whole()


def _leak(line: Line, leak: Leak, members: Sequence[Leaked]) -> Finding:
    first = min(members, key=lambda each: (each.since or line.scene.now, each.workload.metadata.name))
    what = _amounts([each.workload for each in members])
    return Finding(
        code=CODES[leak],
        object=line.queue.ref,
        message=(
            f"{counted(len(members), 'Workload')} of {some(_namespaces(members))} "
            f"{verb(len(members), 'holds', 'hold')} {what} of ClusterQueue {line.name} for nothing, "
            f"{_named(first.workload)} since {span(age(first.since, line.scene.now))}: {leak.value}; "
            f"{counted(len(line.waiting), 'Workload')} {verb(len(line.waiting), 'waits', 'wait')} in the "
            "queue"
        ),
        evidence=tuple(_evidence(first)),
        look=f"{describe(first.workload.ref)}; kubectl -n {first.workload.metadata.namespace} get pods",
        remedy=_remedy(first),
        mark=leak.name,
    )


def _evidence(found: Leaked) -> Iterator[Evidence]:
    workload = found.workload
    for kind in ("QuotaReserved", "Admitted", "Evicted"):
        state = condition(workload, kind)
        if state:
            observed = f"{state.status} {state.reason}"
            yield Evidence(workload.ref, f'.status.conditions[?(@.type=="{kind}")]', observed)
    if found.leak is Leak.DELETED:
        yield Evidence(workload.ref, ".metadata.finalizers", ", ".join(workload.metadata.finalizers))
    if found.owner:
        where = ".metadata.ownerReferences[0]"
        gone = "does not exist" if found.leak is Leak.ORPHANED else "exists or is not read"
        yield Evidence(workload.ref, where, f"{found.owner.kind} {found.owner.name}, which {gone}")
    yield Evidence(workload.ref, "", "no pod of it is there")


def _remedy(found: Leaked) -> str:
    name, space = found.workload.metadata.name, found.workload.metadata.namespace
    if found.leak is Leak.DELETED:
        return (
            "see the manager's log for this Workload; never strip finalizers by hand while it runs; "
            "risk: none"
        )
    return (
        f"once nothing of it runs, `kubectl -n {space} delete workloads.kueue.x-k8s.io {name}`: Kueue then "
        "counts its quota as free, and makes the Workload anew if its Job still wants one; risk: a Job that "
        "does run is suspended and starts again"
    )


@every(LINES, "no Job holds GPU quota for ever while others wait", given(POLICY, pods_by_owner))
def bounded_holders(line: Line, policy: Policy, owned: Owned) -> Iterator[Finding]:
    found = list(held_long(line, owned.jobs, patience(tolerance(policy, line.name))))
    if found:
        yield _held(line, found)
    line.must_be_whole()


def _held(line: Line, found: Sequence[HeldLong]) -> Finding:
    first = min(found, key=lambda each: (each.since, each.workload.metadata.name))
    return Finding(
        code=codes.HELD_LONG,
        object=line.queue.ref,
        message=(
            f"{counted(len(found), 'Job')} without deadline {verb(len(found), 'holds', 'hold')} "
            f"{_amounts([each.workload for each in found])} of ClusterQueue {line.name}, "
            f"{first.job.namespace}/{first.job.name} for {span(line.scene.now - first.since)}, while "
            f"{counted(len(line.waiting), 'Workload')} {verb(len(line.waiting), 'waits', 'wait')}"
        ),
        evidence=(
            Evidence(first.workload.ref, '.status.conditions[?(@.type=="Admitted")]', f"since {first.since}"),
            Evidence(first.job, ".spec.activeDeadlineSeconds", "absent"),
            Evidence(first.workload.ref, ".spec.maximumExecutionTimeSeconds", "absent"),
        ),
        look=f"kubectl -n {first.job.namespace} get job {first.job.name} -o wide; gpuctl queues {line.name}",
        remedy=(
            "ask its owner whether it still works; set activeDeadlineSeconds, which counts from its start "
            f"(`gpuctl plan queue-limit job/{first.job.namespace}/{first.job.name} --deadline "
            f"{_in_a_day(line.scene.now - first.since)}` leaves it a day), or the label "
            "kueue.x-k8s.io/max-exec-time-seconds on Jobs; risk: a Job that is stopped loses its work since "
            "its last checkpoint"
        ),
        runbook="queue-limit",
    )


def _in_a_day(held: timedelta) -> int:
    """The deadline, in seconds from its start, of what has run for this long and is to end in a day."""
    hours = math.ceil(held / timedelta(hours=1)) + 24
    return hours * 3600


def _amounts(workloads: Sequence[Workload]) -> str:
    by_resource: dict[str, Amount] = {}
    for (_, resource), each in total_cells(map(held, workloads)).items():
        by_resource[resource] = by_resource.get(resource, 0) + each
    return (
        some(f"{shown(each, resource)} {resource}" for resource, each in sorted(by_resource.items()))
        or "quota"
    )


def _namespaces(members: Sequence[Leaked]) -> list[str]:
    return sorted({each.workload.metadata.namespace for each in members})


def _named(workload: Workload) -> str:
    return f"{workload.metadata.namespace}/{workload.metadata.name}"
