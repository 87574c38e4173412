"""What waits for others makes way in time. Nothing is wrong with a line; it is said once it lasts."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TypeAlias

from gpuctl.audit.assertion import every
from gpuctl.audit.finding import Code, Evidence, Finding, Severity
from gpuctl.audit.policy import POLICY, Policy, QueueGrowthPolicy
from gpuctl.checks.queue_growth import codes
from gpuctl.checks.queue_growth.words import cure, queue_view, tolerance, waits, who, words_of_kueue
from gpuctl.facts.fact import Maybe, given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Each, Known, State, attempt
from gpuctl.kueue.causes.cause import PASSING, Cause, Trouble
from gpuctl.kueue.causes.diagnosis import Diagnosed, Group
from gpuctl.kueue.facts import kueue_managers
from gpuctl.kueue.footing import Footing
from gpuctl.kueue.manager import Manager, silent_manager
from gpuctl.kueue.nearness import rooms
from gpuctl.kueue.objects import ResourceFlavor
from gpuctl.kueue.quantities import shown
from gpuctl.kueue.queue_facts import causes_of_waiting, flavors_on_the_machine
from gpuctl.kueue.relief import relief
from gpuctl.kueue.restarts import deployment_in_doubt, plan_of_restart
from gpuctl.kueue.standing import verdict

CODES: dict[Trouble, Code] = {
    Trouble.SATURATED: codes.SATURATED,
    Trouble.COHORT_EXHAUSTED: codes.COHORT_EXHAUSTED,
    Trouble.BORROWED_AWAY: codes.BORROWED_AWAY,
    Trouble.NO_PREEMPTION: codes.NO_PREEMPTION,
    Trouble.BEHIND_HEAD: codes.BEHIND_HEAD,
    Trouble.PODS_READY: codes.PODS_READY,
    Trouble.TOPOLOGY: codes.TOPOLOGY,
    Trouble.BACKOFF: codes.BACKOFF,
    Trouble.NOT_LOOKED_AT: codes.NOT_LOOKED_AT,
    Trouble.UNCLASSIFIED: codes.UNCLASSIFIED,
}
_UNEXPLAINED = frozenset({Trouble.NOT_LOOKED_AT, Trouble.UNCLASSIFIED})
Managers: TypeAlias = State[Each[Ref, Manager]]


@every(
    causes_of_waiting,
    "what waits for others makes way within the policy's time",
    given(POLICY, Maybe(kueue_managers), Maybe(flavors_on_the_machine)),
)
def moving_lines(
    diagnosed: Diagnosed,
    policy: Policy,
    managers: Managers,
    flavors: State[Each[Ref, Footing]],
) -> Iterator[Finding]:
    tolerated = tolerance(policy, diagnosed.line.name)
    for group in diagnosed.groups_of(*PASSING):
        severity = _severity(group, tolerated)
        if severity:
            yield _finding(group, severity, managers, _room(group, flavors))
    for _ in diagnosed.causes:  # raises NotKnown for a Workload that could not be judged, or read
        pass


def _severity(group: Group, tolerated: QueueGrowthPolicy) -> Severity | None:
    if group.longest <= timedelta(minutes=tolerated.oldest_wait_warning_minutes):
        return None
    grave = group.longest > timedelta(minutes=tolerated.oldest_wait_error_minutes)
    return Severity.ERROR if grave else Severity.WARNING


def _room(group: Group, flavors: State[Each[Ref, Footing]]) -> str:
    """What nodes say of a topology without room: the end of a sentence, empty where they can't be counted."""
    if group.cause.trouble is not Trouble.TOPOLOGY or not isinstance(flavors, Known):
        return ""
    named = {Ref(ResourceFlavor.of, name) for name in group.line.queue.flavors}
    footings = [each for ref, each in flavors.value.known() if ref in named]
    found = attempt(lambda: tuple(rooms(group.first, footings)))
    return (
        "; by nodes, " + "; ".join(map(str, found.value)) if isinstance(found, Known) and found.value else ""
    )


def _finding(group: Group, severity: Severity, managers: Managers, room: str) -> Finding:
    cause, queue = group.cause, group.line.queue.ref
    dead = silent_manager(managers)
    silent = dead is not None and cause.trouble in _UNEXPLAINED
    remedy = "see what kueue-webhooks says of the manager; risk: none" if silent else _remedy(group, managers)
    return Finding(
        code=codes.NO_MANAGER if silent else CODES[cause.trouble],
        object=queue,
        message=(
            f"{who(group)} {waits(group)} in ClusterQueue {queue.name}: "
            f"{_says(group, dead if silent else None)}{room}"
        ),
        evidence=tuple(_evidence(group)),
        look=queue_view(queue.name),
        remedy=remedy,
        runbook=cure(remedy),
        mark=cause.subject,
        cause=f"manager behind {dead.namespace}/{dead.name}" if silent and dead else "",
        severity=severity,
    )


def _says(group: Group, dead: Ref | None) -> str:
    cause, line = group.cause, group.line
    asks = f"it asks for {shown(cause.asked, cause.resource)} {cause.resource}"
    free = f"{shown(max(0, cause.room), cause.resource)} are free in flavor {cause.flavor}"
    if dead:
        return f"it would fit, but the manager behind {dead} does not answer"
    return {
        Trouble.SATURATED: f"{asks}, and {free}; all else is in use",
        Trouble.COHORT_EXHAUSTED: f"{asks}, and {free}; nothing is left in {cause.other} to borrow",
        Trouble.BORROWED_AWAY: (
            f"{asks}, which the queue's own quota would hold, but {cause.other} has borrowed it and "
            "reclaimWithinCohort is Never"
        ),
        Trouble.NO_PREEMPTION: (
            f"{asks}, and {free}; Workloads of lower priority hold the rest, and withinClusterQueue is Never"
        ),
        Trouble.BEHIND_HEAD: (
            f"it would fit, but the queue is StrictFIFO and {cause.other} is first in line"
        ),
        Trouble.PODS_READY: (
            "the manager admits nothing until the pods of all Workloads with quota are ready "
            f"(blockAdmission){_awaited(cause)}"
        ),
        Trouble.TOPOLOGY: f"there is quota, but no place that takes all its pods; Kueue says: {cause.says}",
        Trouble.BACKOFF: f"it was evicted, and waits out a backoff until {_until(group)}",
        Trouble.NOT_LOOKED_AT: f"it would fit, and Kueue has not said anything of it ({line.queue.ref})",
        Trouble.UNCLASSIFIED: f"it would fit as far as objects tell; unclassified, Kueue says: {cause.says}",
    }[cause.trouble]


def _awaited(cause: Cause) -> str:
    return f", and those of {cause.other} are not" if cause.other else ""


def _until(group: Group) -> str:
    state = group.first.status.requeue_state
    at = state.requeue_at if state else None
    return f"{at:%Y-%m-%dT%H:%M:%SZ}" if at else "an unknown time"


def _evidence(group: Group) -> Iterator[Evidence]:
    cause, queue = group.cause, group.line.queue
    if cause.flavor:
        observed = f"{shown(cause.room, cause.resource)} {cause.resource} free in flavor {cause.flavor}"
        yield Evidence(queue.ref, ".status.flavorsReservation", observed)
    if cause.trouble is Trouble.BORROWED_AWAY and cause.other:
        yield Evidence(cause.other, ".status.flavorsReservation", "borrowed more than 0")
        yield Evidence(queue.ref, ".spec.preemption.reclaimWithinCohort", "Never")
    if cause.trouble is Trouble.NO_PREEMPTION:
        yield Evidence(queue.ref, ".spec.preemption.withinClusterQueue", "Never")
    if cause.trouble is Trouble.BEHIND_HEAD and cause.other and group.line.head:
        yield Evidence(queue.ref, ".spec.queueingStrategy", "StrictFIFO")
        yield words_of_kueue(group.line.head, verdict(group.line.head))
    if cause.trouble is Trouble.PODS_READY and cause.other:
        yield Evidence(cause.other, '.status.conditions[?(@.type=="PodsReady")]', "absent or not True")
    yield words_of_kueue(group.first, verdict(group.first))


def _remedy(group: Group, managers: Managers) -> str:
    found = relief(group.cause, group.line)
    change = found.sentence(group.line.name) if found else "ask for less"
    other = group.cause.other
    return {
        Trouble.SATURATED: f"{change}, or wait; risk: quota above what nodes have is not real",
        Trouble.COHORT_EXHAUSTED: f"{change}, or add quota to {other}; risk: as above nodes it is not real",
        Trouble.BORROWED_AWAY: (
            "set preemption.reclaimWithinCohort to Any or LowerPriority, or let borrowers finish; risk: "
            f"borrowers of {other} are evicted. So that no more of it is lent: `gpuctl plan queue-limit "
            f"{group.line.name} --flavor {group.cause.flavor} --resource {group.cause.resource} "
            "--lending-limit 0`, which evicts nobody"
        ),
        Trouble.NO_PREEMPTION: (
            "set preemption.withinClusterQueue to LowerPriority; risk: Workloads of lower priority are "
            "evicted"
        ),
        Trouble.BEHIND_HEAD: (
            f"let {other} in or take it away, or set queueingStrategy BestEffortFIFO; risk: large requests "
            "may then be overtaken for long"
        ),
        Trouble.PODS_READY: (
            f"see why the pods of {other or 'a Workload without condition PodsReady'} are not ready, or set "
            "waitForPodsReady.blockAdmission false; risk: pods of several Jobs may then block each other"
        ),
        Trouble.TOPOLOGY: "free a whole domain, or ask for a looser topology; risk: slower communication",
        Trouble.BACKOFF: "see why its pods do not become ready: events and logs of its pods; risk: none",
        Trouble.NOT_LOOKED_AT: (
            "see whether the manager's scheduler is alive (its Lease, its log); if not, restart it"
            f"{_restart(managers)}; risk: 10 to 30 s without admissions"
        ),
        Trouble.UNCLASSIFIED: "read Kueue's words; the reason is not one that is known here; risk: none",
    }[group.cause.trouble]


def _restart(managers: Managers) -> str:
    """The runbook that restarts it, in brackets; nothing where the manager can't be told."""
    deployment = deployment_in_doubt(managers)
    return f" (`{plan_of_restart(deployment)}`)" if deployment else ""
