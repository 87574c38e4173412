"""What is reserved is what pods ask for. Kueue counts a pod set once, and never its pods."""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.audit.assertion import every
from gpuctl.audit.finding import Evidence, Finding
from gpuctl.audit.policy import POLICY, Policy
from gpuctl.checks.queue_growth import codes
from gpuctl.checks.queue_growth.words import all_of, counted, describe, patience, some, tolerance, verb
from gpuctl.facts.fact import given
from gpuctl.kueue.drift import Drift, Off, Uncounted, drifts, uncounted
from gpuctl.kueue.objects import Workload
from gpuctl.kueue.pods import Owned
from gpuctl.kueue.quantities import shown
from gpuctl.kueue.queue_facts import LINES, pods_by_owner
from gpuctl.kueue.scene import Line


@every(LINES, "what is reserved is what pods ask for", given(POLICY, pods_by_owner))
def honest_reservations(line: Line, policy: Policy, owned: Owned) -> Iterator[Finding]:
    tolerated = patience(tolerance(policy, line.name))
    yield from all_of(
        lambda: (_finding(line, each) for each in drifts(line, owned, tolerated)),
        lambda: (_uncounted(line, each) for each in uncounted(line)),
    )
    line.must_be_whole()


def _finding(line: Line, drift: Drift) -> Finding:
    flavor, resource = drift.cell
    first = max(drift.off, key=lambda each: (abs(each.given - each.asked), each.workload.metadata.name))
    return Finding(
        code=codes.DRIFT,
        object=line.queue.ref,
        message=(
            f"{shown(drift.reserved, resource)} {resource} are reserved in flavor {flavor} of ClusterQueue "
            f"{line.name}, and the pods of its Workloads ask for {shown(drift.asked, resource)}: "
            f"{counted(len(drift.off), 'Workload')} of {some(_namespaces(drift))} "
            f"{verb(len(drift.off), 'differs', 'differ')}, such as {_named(first)}, which holds "
            f"{shown(first.given, resource)} while its {counted(first.pods, 'pod')} "
            f"{verb(first.pods, 'asks', 'ask')} for {shown(first.asked, resource)}{_pods(first)}"
        ),
        evidence=(
            Evidence(
                line.queue.ref,
                f'.status.flavorsReservation[?(@.name=="{flavor}")]',
                f"{shown(drift.reserved, resource)} {resource}",
            ),
            Evidence(
                first.workload.ref,
                ".status.admission.podSetAssignments",
                f"{shown(first.given, resource)} {resource} for {counted(first.expected, 'pod')}",
            ),
            Evidence(
                first.workload.ref,
                "",
                f"{counted(first.pods, 'pod')} of it: {shown(first.asked, resource)} {resource}",
            ),
        ),
        look=f"{describe(first.workload.ref)}; kubectl -n {first.workload.metadata.namespace} get pods",
        remedy=_remedy(first),
        mark=f"{flavor}/{resource}",
    )


def _pods(first: Off) -> str:
    return f" ({first.expected} expected)" if first.pods != first.expected else ""


def _remedy(first: Off) -> str:
    if first.asked < first.given:
        return (
            "see the events of its Job: a ResourceQuota, a LimitRange or a webhook may refuse its pods; or "
            "let it ask for fewer; risk: what it holds is lost to others until then"
        )
    return (
        "see what changes its pods after Kueue has counted them (a webhook, a resize in place), and put it "
        "into the Job's template; risk: until then more is used than quota allows"
    )


def _uncounted(line: Line, found: Uncounted) -> Finding:
    first, number = found.workloads[0], len(found.workloads)
    return Finding(
        code=codes.UNCOUNTED,
        object=line.queue.ref,
        message=(
            f"{counted(number, 'Workload')} in ClusterQueue {line.name} {verb(number, 'claims', 'claim')} "
            f"devices of class {found.device_class}, such as {_name(first)}, and no quota counts them"
        ),
        evidence=(
            Evidence(first.ref, ".spec.podSets[*].template.spec.resourceClaims", found.device_class),
            Evidence(line.queue.ref, "", "the manager's deviceClassMappings do not have the class"),
        ),
        look=f"{describe(first.ref)}; kubectl -n {first.metadata.namespace} get resourceclaims",
        remedy=(
            f"map {found.device_class} in the manager's configuration (resources.deviceClassMappings), cover "
            "the resource in the queue, and restart the manager; risk: what is above quota then waits"
        ),
        mark=found.device_class,
    )


def _namespaces(drift: Drift) -> list[str]:
    return sorted({each.workload.metadata.namespace for each in drift.off})


def _named(off: Off) -> str:
    return _name(off.workload)


def _name(workload: Workload) -> str:
    return f"{workload.metadata.namespace}/{workload.metadata.name}"
