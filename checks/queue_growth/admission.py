"""What has quota or had it goes on: admission checks close, returns to the queue end, nothing is
deactivated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

from gpuctl.audit.assertion import every
from gpuctl.audit.finding import Evidence, Finding
from gpuctl.audit.policy import POLICY, Policy
from gpuctl.checks.queue_growth import codes
from gpuctl.checks.queue_growth.words import counted, describe, some, tolerance, verb
from gpuctl.facts.fact import given
from gpuctl.kueue.objects import CheckState, Workload
from gpuctl.kueue.queue_facts import LINES
from gpuctl.kueue.scene import Line
from gpuctl.kueue.standing import Standing, age, condition, reserved_at, span, standing


@every(LINES, "admission checks close within the policy's time", given(POLICY))
def closing_admission_checks(line: Line, policy: Policy) -> Iterator[Finding]:
    limit = timedelta(minutes=tolerance(policy, line.name).oldest_wait_warning_minutes)
    late: dict[str, list[Workload]] = {}
    for workload in line.holding:
        open_ = _open(workload) if standing(workload) is Standing.RESERVED else None
        if open_ and age(reserved_at(workload), line.scene.now) > limit:
            late.setdefault(open_.name, []).append(workload)
    for name, workloads in sorted(late.items()):
        yield _late(line, name, workloads)
    line.must_be_whole()


def _open(workload: Workload) -> CheckState | None:
    return next((each for each in workload.status.admission_checks if each.state != "Ready"), None)


def _late(line: Line, name: str, workloads: Sequence[Workload]) -> Finding:
    first = min(workloads, key=lambda each: (reserved_at(each) or line.scene.now, each.metadata.name))
    state = _open(first)
    says = f"{state.state}: {state.message}".rstrip(": ") if state else ""
    return Finding(
        code=codes.CHECKS_OPEN,
        object=line.queue.ref,
        message=(
            f"{counted(len(workloads), 'Workload')} of {some(_namespaces(workloads))} "
            f"{verb(len(workloads), 'has', 'have')} quota of ClusterQueue {line.name} and "
            f"{verb(len(workloads), 'waits', 'wait')} for AdmissionCheck {name}, the oldest "
            f"({_named(first)}) for {span(age(reserved_at(first), line.scene.now))}"
        ),
        evidence=(Evidence(first.ref, f'.status.admissionChecks[?(@.name=="{name}")]', says),),
        look=f"{describe(first.ref)}; kubectl describe admissionchecks.kueue.x-k8s.io {name}",
        remedy="see the controller of the check (its spec.controllerName) and its log; risk: none",
        mark=name,
    )


@every(LINES, "no Workload returns to its queue again and again", given(POLICY))
def few_returns(line: Line, policy: Policy) -> Iterator[Finding]:
    limit = tolerance(policy, line.name).requeues
    often = [each for each in (*line.waiting, *line.holding) if _returns(each) >= limit]
    if often:
        yield _often(line, often)
    line.must_be_whole()


def _returns(workload: Workload) -> int:
    return workload.status.requeue_state.count if workload.status.requeue_state else 0


def _often(line: Line, workloads: Sequence[Workload]) -> Finding:
    worst = max(workloads, key=lambda each: (_returns(each), each.metadata.name))
    evicted = condition(worst, "Evicted")
    return Finding(
        code=codes.BACKOFF,
        object=line.queue.ref,
        message=(
            f"{counted(len(workloads), 'Workload')} of {some(_namespaces(workloads))} in ClusterQueue "
            f"{line.name} {verb(len(workloads), 'keeps', 'keep')} coming back to the queue, {_named(worst)} "
            f"for the {_returns(worst)}. time" + (f": {evicted.reason}" if evicted else "")
        ),
        evidence=(
            Evidence(worst.ref, ".status.requeueState.count", str(_returns(worst))),
            Evidence(
                worst.ref, '.status.conditions[?(@.type=="Evicted")]', evicted.message if evicted else ""
            ),
        ),
        look=describe(worst.ref),
        remedy="see why its pods do not become ready: image, crash, or nodes; risk: none",
        mark="returns",
    )


@every(LINES, "no Workload was deactivated", given(POLICY))
def active_workloads(line: Line, policy: Policy) -> Iterator[Finding]:  # noqa: ARG001 - as its neighbours
    put_aside = [each for each in line.others if standing(each) is Standing.DEACTIVATED and _by_kueue(each)]
    if put_aside:
        yield _deactivated(line, put_aside)
    line.must_be_whole()


def _by_kueue(workload: Workload) -> bool:
    """Whether Kueue did it, and not a person (who has not let it run before either)."""
    evicted = condition(workload, "Evicted")
    return evicted is not None and evicted.status == "True"


def _deactivated(line: Line, workloads: Sequence[Workload]) -> Finding:
    first = workloads[0]
    evicted = condition(first, "Evicted")
    return Finding(
        code=codes.DEACTIVATED,
        object=line.queue.ref,
        message=(
            f"{counted(len(workloads), 'Workload')} of {some(_namespaces(workloads))} in ClusterQueue "
            f"{line.name} {verb(len(workloads), 'was', 'were')} deactivated and not tried again, such as "
            f"{_named(first)}" + (f": {evicted.reason}" if evicted else "")
        ),
        evidence=(
            Evidence(first.ref, ".spec.active", "false"),
            Evidence(
                first.ref, '.status.conditions[?(@.type=="Evicted")]', evicted.message if evicted else ""
            ),
        ),
        look=describe(first.ref),
        remedy=(
            "remove what made it fail, then set spec.active true, or delete its Job; risk: it is admitted "
            "again"
        ),
    )


def _namespaces(workloads: Sequence[Workload]) -> list[str]:
    return sorted({each.metadata.namespace for each in workloads})


def _named(workload: Workload) -> str:
    return f"{workload.metadata.namespace}/{workload.metadata.name}"
