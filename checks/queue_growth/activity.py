"""Every ClusterQueue is active, or stopped on purpose. Reasons are found from objects: Kueue names only
one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpuctl.audit.assertion import every
from gpuctl.audit.finding import Code, Evidence, Finding, Severity
from gpuctl.audit.policy import POLICY, Policy
from gpuctl.checks.queue_growth import codes
from gpuctl.checks.queue_growth.words import all_of, counted, describe, get, tolerance, verb
from gpuctl.facts.fact import given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Known, attempt, value
from gpuctl.kueue.causes.inactive import Inactivity, Why, reasons, said
from gpuctl.kueue.objects import Cohort
from gpuctl.kueue.queue_facts import LINES
from gpuctl.kueue.scene import Line, active
from gpuctl.kueue.standing import age, span

CODES: dict[Why, Code] = {
    Why.STOPPED: codes.STOPPED,
    Why.TERMINATING: codes.TERMINATING,
    Why.FLAVOR: codes.FLAVOR_MISSING,
    Why.CHECK: codes.CHECK_MISSING,
    Why.CHECK_INACTIVE: codes.CHECK_INACTIVE,
    Why.TOPOLOGY: codes.TOPOLOGY_MISSING,
    Why.CYCLE: codes.COHORT_CYCLE,
    Why.OTHER: codes.INACTIVE,
}


@every(LINES, "every ClusterQueue is active, or stopped on purpose", given(POLICY))
def active_queues(line: Line, policy: Policy) -> Iterator[Finding]:
    settled = tolerance(policy, line.name).settle_seconds
    if age(line.queue.metadata.creation_timestamp, line.scene.now).total_seconds() < settled:
        return
    found: list[Inactivity] = []
    yield from all_of(lambda: _from_objects(line, found, settled))
    told = said(line.queue)
    if told and not found and _lasts(line, settled):
        yield _finding(line, told)


def _from_objects(line: Line, found: list[Inactivity], settled: float) -> Iterator[Finding]:
    for each in reasons(line.queue, line.scene):
        found.append(each)
        if each.why is Why.TERMINATING:
            yield from _deleted(line, each, settled)
        else:
            yield _finding(line, each)


def _deleted(line: Line, each: Inactivity, settled: float) -> Iterator[Finding]:
    """A queue goes once nobody holds quota of it."""
    if line.waiting:
        yield _finding(line, each)
    line.must_be_whole()
    since = age(line.queue.metadata.deletion_timestamp, line.scene.now)
    if not line.waiting and not line.holding and since.total_seconds() >= settled:
        yield Finding(
            code=codes.STAYS,
            object=line.queue.ref,
            message=(
                f"ClusterQueue {line.name} was deleted {span(since)} ago, and stays though nobody uses it"
            ),
            evidence=(
                Evidence(line.queue.ref, ".metadata.finalizers", ", ".join(line.queue.metadata.finalizers)),
            ),
            look=get(line.queue.ref),
            remedy=(
                "restart the manager, which then looks at the queue anew; risk: 10 to 30 s without admissions"
            ),
        )


def _lasts(line: Line, settled: float) -> bool:
    """Whether Kueue has had the time to see what changed."""
    told = active(line.queue)
    return told is not None and age(told.last_transition_time, line.scene.now).total_seconds() >= settled


def _finding(line: Line, each: Inactivity) -> Finding:
    code = CODES[each.why]
    cycle = each.why is Why.CYCLE
    return Finding(
        code=code,
        object=line.queue.ref,
        message=f"{_says(line, each)}{_effect(line) if code.severity is not Severity.INFO else ''}",
        evidence=tuple(_evidence(line, each)),
        look="kubectl get cohorts.kueue.x-k8s.io -o yaml" if cycle else get(line.queue.ref),
        remedy=_remedy(line, each),
        mark=each.other.name if each.other else "",
        cause=_cause(each),
    )


def _cause(each: Inactivity) -> str:
    """What findings share that go back to the same object; those of other checks too."""
    if each.why is Why.CYCLE:
        return f"cycle of cohorts {each.says}"
    return f"{each.other} does not exist" if each.why is Why.FLAVOR else ""


def _says(line: Line, each: Inactivity) -> str:
    name, other = line.name, each.other.name if each.other else ""
    return {
        Why.STOPPED: f"ClusterQueue {name} is stopped on purpose (stopPolicy {each.says})",
        Why.TERMINATING: f"ClusterQueue {name} is being deleted",
        Why.FLAVOR: f"ClusterQueue {name} refers to ResourceFlavor {other}, which does not exist",
        Why.CHECK: f"ClusterQueue {name} refers to AdmissionCheck {other}, which does not exist",
        Why.CHECK_INACTIVE: f"ClusterQueue {name} depends on AdmissionCheck {other}, which is not active",
        Why.TOPOLOGY: f"a flavor of ClusterQueue {name} refers to Topology {other}, which does not exist",
        Why.CYCLE: f"ClusterQueue {name} is in a cycle of cohorts ({each.says}), and admits nothing",
        Why.OTHER: f"ClusterQueue {name} is inactive, Kueue says: {each.says}",
    }[each.why]


def _effect(line: Line) -> str:
    """Who is hurt: the end of a sentence."""
    spaces = len({each.metadata.namespace for each in line.waiting})
    if not line.waiting:
        return "; nobody waits in it now"
    return (
        f"; {counted(len(line.waiting), 'Workload')} of {counted(spaces, 'namespace')} "
        f"{verb(len(line.waiting), 'waits', 'wait')} in it"
    )


def _evidence(line: Line, each: Inactivity) -> Iterator[Evidence]:
    queue = line.queue
    if each.why is Why.STOPPED:
        yield Evidence(queue.ref, ".spec.stopPolicy", queue.spec.stop_policy)
    if each.other and each.why is not Why.CYCLE:
        there = "not active" if each.why is Why.CHECK_INACTIVE else "does not exist"
        yield Evidence(each.other, "", there)
    if each.why is Why.CYCLE:
        for _, cohort in _cohorts(line):
            if cohort.metadata.name in each.says.split(" → "):
                yield Evidence(cohort.ref, ".spec.parentName", cohort.parent)
    told = active(queue)
    observed = f"{told.status} {told.reason}: {told.message}" if told else "Kueue has said nothing of it yet"
    yield Evidence(queue.ref, '.status.conditions[?(@.type=="Active")]', observed)


def _cohorts(line: Line) -> Iterable[tuple[Ref, Cohort]]:
    cohorts = line.scene.written.cohorts
    return tuple(cohorts.value.known()) if isinstance(cohorts, Known) else ()


def _remedy(line: Line, each: Inactivity) -> str:
    other = each.other.name if each.other else ""
    return {
        Why.STOPPED: "set stopPolicy None when it may admit again; risk: what waits is then admitted at once",
        Why.TERMINATING: (
            "move what waits to another queue; a queue goes once nobody holds quota of it; risk: none"
        ),
        Why.FLAVOR: (
            f"create the flavor, or correct the name (there are: {_flavors(line)}); risk: what waits is then "
            "admitted at once"
        ),
        Why.CHECK: f"create AdmissionCheck {other}, or remove it from the queue; risk: without it, unchecked",
        Why.CHECK_INACTIVE: f"see why: `kubectl describe admissionchecks.kueue.x-k8s.io {other}`; risk: none",
        Why.TOPOLOGY: f"create Topology {other} with the node labels of its levels; risk: none",
        Why.CYCLE: (
            "remove parentName from one cohort of the cycle; risk: what waits is then admitted at once"
        ),
        Why.OTHER: f"see `{describe(line.queue.ref)}`; risk: none",
    }[each.why]


def _flavors(line: Line) -> str:
    known = attempt(lambda: sorted(each.metadata.name for each in value(line.scene.written.flavors)))
    return ", ".join(known.value[:6]) if isinstance(known, Known) and known.value else "none"
