"""Every request can be met some day. What can never be is said at once, whatever else is running."""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.audit.assertion import every
from gpuctl.audit.finding import Code, Evidence, Finding
from gpuctl.audit.policy import POLICY, Policy
from gpuctl.checks.queue_growth import codes
from gpuctl.checks.queue_growth.words import (
    cure,
    describe,
    queue_view,
    some,
    tolerance,
    waits,
    who,
    words_of_kueue,
)
from gpuctl.facts.fact import given
from gpuctl.kueue.causes.cause import Cause, Trouble
from gpuctl.kueue.causes.diagnosis import Diagnosed, Group
from gpuctl.kueue.quantities import shown
from gpuctl.kueue.queue_facts import causes_of_waiting
from gpuctl.kueue.relief import relief
from gpuctl.kueue.standing import verdict

CODES: dict[Trouble, Code] = {
    Trouble.NEVER_FITS: codes.NEVER_FITS,
    Trouble.NOT_COVERED: codes.NOT_COVERED,
    Trouble.BARRED: codes.BARRED,
    Trouble.INVALID: codes.INVALID,
    Trouble.CLAIM: codes.CLAIM,
    Trouble.PEERS: codes.PEERS,
    Trouble.NAMESPACE: codes.NAMESPACE_NOT_SELECTED,
}


@every(causes_of_waiting, "every request can be met some day", given(POLICY))
def possible_requests(diagnosed: Diagnosed, policy: Policy) -> Iterator[Finding]:
    settled = tolerance(policy, diagnosed.line.name).settle_seconds
    for group in diagnosed.groups_of(*CODES):
        if group.longest.total_seconds() >= settled:
            yield _finding(group)
    _must_be_known(diagnosed)


def _must_be_known(diagnosed: Diagnosed) -> None:
    """Raises NotKnown for a Workload that could not be judged, or read."""
    for _ in diagnosed.causes:
        pass


def _finding(group: Group) -> Finding:
    cause, queue = group.cause, group.line.queue.ref
    return Finding(
        code=CODES[cause.trouble],
        object=queue,
        message=f"{who(group)} {waits(group)} in ClusterQueue {queue.name} for ever: {_says(group)}",
        evidence=tuple(_evidence(group)),
        look=f"{describe(group.first.ref)}; {queue_view(queue.name)}",
        remedy=_remedy(group),
        mark=cause.subject,
        runbook=cure(_remedy(group)),
    )


def _says(group: Group) -> str:
    cause = group.cause
    asks = f"it asks for {shown(cause.asked, cause.resource)} {cause.resource}"
    most = f"at most {shown(cause.room, cause.resource)} can be given in flavor {cause.flavor}"
    peer = f"{cause.other} of its cohort is inactive or lends nothing" if cause.other else ""
    return {
        Trouble.NEVER_FITS: f"{asks}, and {most}",
        Trouble.NOT_COVERED: f"{asks}, which the queue does not cover",
        Trouble.BARRED: cause.says,
        Trouble.INVALID: f"Kueue says: {cause.says}",
        Trouble.CLAIM: cause.says,
        Trouble.PEERS: f"{asks}, and {most}, because {peer}",
        Trouble.NAMESPACE: f"the queue's namespaceSelector does not select {cause.subject}",
    }[cause.trouble]


def _evidence(group: Group) -> Iterator[Evidence]:
    cause, first = group.cause, group.first
    if cause.asked:
        yield Evidence(first.ref, ".spec.podSets", f"{shown(cause.asked, cause.resource)} {cause.resource}")
    if cause.flavor:
        observed = f"at most {shown(cause.room, cause.resource)} {cause.resource} in flavor {cause.flavor}"
        yield Evidence(group.line.queue.ref, ".spec.resourceGroups", observed)
    if cause.trouble is Trouble.NOT_COVERED:
        covered = [name for each in group.line.queue.spec.resource_groups for name in each.covered_resources]
        yield Evidence(group.line.queue.ref, ".spec.resourceGroups[*].coveredResources", ", ".join(covered))
    if cause.trouble is Trouble.NAMESPACE:
        selector = group.line.queue.spec.namespace_selector
        observed = "absent, which selects nothing" if selector is None else str(_selector(group))
        yield Evidence(group.line.queue.ref, ".spec.namespaceSelector", observed)
    if cause.other and cause.trouble is Trouble.PEERS:
        yield Evidence(cause.other, ".spec.resourceGroups", "inactive, or with a lendingLimit")
    yield words_of_kueue(first, verdict(first))


def _selector(group: Group) -> str:
    selector = group.line.queue.spec.namespace_selector
    labels = selector.match_labels if selector else {}
    return some(f"{key}={label}" for key, label in labels.items()) or "matchExpressions"


def _remedy(group: Group) -> str:
    cause, line = group.cause, group.line
    found = relief(cause, line)
    help_ = found.sentence(line.name) if found else ""
    return {
        Trouble.NEVER_FITS: f"{help_}, or ask for less; risk: quota above what nodes have is not real",
        Trouble.NOT_COVERED: _cover(cause, line.name),
        Trouble.BARRED: (
            "let the pods tolerate the taint, select labels of a flavor, or ask for a level of its Topology; "
            "risk: none"
        ),
        Trouble.INVALID: "correct the request or the LimitRange of its namespace; risk: none",
        Trouble.CLAIM: (
            "map its DeviceClass in the manager's configuration (resources.deviceClassMappings) and restart "
            "the manager; releases before September 2026 need the Workload to be made anew; risk: 10 to 30 s "
            "without admissions"
        ),
        Trouble.PEERS: (
            f"let {cause.other} run, or raise its lendingLimit; or {help_}; risk: its owners lend it"
        ),
        Trouble.NAMESPACE: (
            "correct the queue's namespaceSelector or the namespace's labels, or name another queue; risk: "
            "other namespaces may become selected"
        ),
    }[cause.trouble]


def _cover(cause: Cause, queue: str) -> str:
    return (
        f"add {cause.resource} to coveredResources of ClusterQueue {queue} with a quota, or drop the request "
        "(a change of template often brought it); risk: none for what runs"
    )
