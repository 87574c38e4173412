"""Nobody waits longer than the policy allows. The wait of a Workload that exists is exact, whatever was
deleted."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from gpuctl.audit.assertion import every
from gpuctl.audit.finding import Evidence, Finding, Severity
from gpuctl.audit.policy import POLICY, Policy
from gpuctl.checks.queue_growth import codes
from gpuctl.checks.queue_growth.words import counted, queue_view, some, tolerance, verb, words_of_kueue
from gpuctl.facts.fact import given
from gpuctl.kueue.backlog import Backlog
from gpuctl.kueue.causes.cause import Trouble
from gpuctl.kueue.causes.diagnosis import Diagnosed
from gpuctl.kueue.hurt import sentence
from gpuctl.kueue.queue_facts import causes_of_waiting
from gpuctl.kueue.scene import Line
from gpuctl.kueue.standing import age, span, verdict


@every(causes_of_waiting, "nobody waits longer than the policy allows", given(POLICY))
def bearable_waits(diagnosed: Diagnosed, policy: Policy) -> Iterator[Finding]:
    line, past = diagnosed.line, diagnosed.line.past
    if past.in_future:
        yield _ahead(line, past)
    tolerated = tolerance(policy, line.name)
    stopped = line.queue.spec.stop_policy not in ("", "None")
    if past.oldest > timedelta(minutes=tolerated.oldest_wait_warning_minutes) and not stopped:
        grave = past.oldest > timedelta(minutes=tolerated.oldest_wait_error_minutes)
        yield _finding(diagnosed, past, Severity.ERROR if grave else Severity.WARNING)
    line.must_be_whole()


def _finding(diagnosed: Diagnosed, past: Backlog, severity: Severity) -> Finding:
    line, oldest = diagnosed.line, diagnosed.line.oldest
    assert oldest is not None, "somebody waits"  # noqa: S101
    return Finding(
        code=codes.WAITS_TOO_LONG,
        object=line.queue.ref,
        message=(
            f"{counted(past.waiting, 'Workload')} {verb(past.waiting, 'waits', 'wait')} in ClusterQueue "
            f"{line.name}, the oldest for {span(past.oldest)}; {_last(line, past)}; "
            f"{_why(diagnosed)}{sentence(diagnosed.hurt)}"
        ),
        evidence=(
            Evidence(oldest.ref, ".metadata.creationTimestamp", f"waits for {span(past.oldest)}"),
            words_of_kueue(oldest, verdict(oldest)),
            Evidence(line.queue.ref, ".status.pendingWorkloads", str(line.queue.status.pending_workloads)),
            Evidence(line.queue.ref, "", _basis(line, past)),
        ),
        look=queue_view(line.name),
        remedy="see the causes below it, which name the smallest change that helps; risk: none to look",
        severity=severity,
    )


def _basis(line: Line, past: Backlog) -> str:
    """What the verdict rests on, and since when it is proven."""
    since = line.scene.now - past.oldest
    return (
        f"judged by the oldest wait, which is exact since {since:%Y-%m-%dT%H:%M:%SZ}; how many waited before "
        "is rebuilt from the Workloads that still exist, which proves no rise"
    )


def _last(line: Line, past: Backlog) -> str:
    if past.last_admission is None:
        return "none that still exists was ever admitted"
    since = span(age(past.last_admission, line.scene.now))
    return f"the last admission of one that still exists was {since} ago"


def _why(diagnosed: Diagnosed) -> str:
    causes: dict[Trouble, int] = {}
    for group in diagnosed.groups:
        causes[group.cause.trouble] = causes.get(group.cause.trouble, 0) + len(group.members)
    return (
        some(f"{trouble.value} ({number})" for trouble, number in causes.items()) or "the cause is not known"
    )


def _ahead(line: Line, past: Backlog) -> Finding:
    return Finding(
        code=codes.CLOCKS,
        object=line.queue.ref,
        message=(
            f"{counted(past.in_future, 'Workload')} of ClusterQueue {line.name} "
            f"{verb(past.in_future, 'bears a time', 'bear times')} after that of this reading; they count as "
            "having come just now"
        ),
        evidence=(Evidence(line.queue.ref, "", f"read at {line.scene.now:%Y-%m-%dT%H:%M:%SZ}"),),
        look="kubectl get workloads.kueue.x-k8s.io -A --sort-by=.metadata.creationTimestamp",
        remedy="compare the clocks of the control plane's machines; risk: none",
    )
