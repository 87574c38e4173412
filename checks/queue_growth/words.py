"""What the findings of this check have in common: how to look, who waits, how long."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta

from gpuctl.audit.finding import Evidence, Finding
from gpuctl.audit.policy import Policy, QueueGrowthPolicy
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Inapplicable, NotKnown
from gpuctl.kueue.causes.diagnosis import Group
from gpuctl.kueue.leaks import Patience
from gpuctl.kueue.objects import Workload
from gpuctl.kueue.standing import span

_NAMED = 3
VERDICT = '.status.conditions[?(@.type=="QuotaReserved")].message'


def tolerance(policy: Policy, queue: str) -> QueueGrowthPolicy:
    """What is tolerated of a ClusterQueue."""
    return policy.checks.queue_growth.of(queue)


def patience(tolerated: QueueGrowthPolicy) -> Patience:
    """The same, as times."""
    return Patience(
        settled=timedelta(seconds=tolerated.settle_seconds),
        without_pods=timedelta(minutes=tolerated.without_pods_minutes),
        held=timedelta(hours=tolerated.held_hours),
    )


def get(ref: Ref) -> str:
    """The command that shows an object."""
    place = f"-n {shlex.quote(ref.namespace)} " if ref.namespace else ""
    return f"kubectl {place}get {ref.kind.resource} {shlex.quote(ref.name)} -o yaml"


def describe(ref: Ref) -> str:
    """The command that shows an object with its conditions and events."""
    place = f"-n {shlex.quote(ref.namespace)} " if ref.namespace else ""
    return f"kubectl {place}describe {ref.kind.resource} {shlex.quote(ref.name)}"


def queue_view(name: str) -> str:
    """The command that shows a queue with all that waits in it."""
    return f"gpuctl queues {shlex.quote(name)}"


def counted(number: int, what: str) -> str:
    """`1 Workload`, `3 Workloads`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def who(group: Group) -> str:
    """`Workload team-a/train-1 (3h2m)`, or `3 Workloads of team-a, the oldest (team-a/train-1) for 3h2m,`."""
    about, number = group.first.metadata, len(group.members)
    first, waited = f"{about.namespace}/{about.name}", span(group.longest)
    if number == 1:
        return f"Workload {first} ({waited})"
    return f"{number} Workloads of {some(group.namespaces)}, the oldest ({first}) for {waited},"


def verb(number: int, one: str, many: str) -> str:
    """The form of a verb that follows so many."""
    return one if number == 1 else many


def waits(group: Group) -> str:
    """The verb that follows `who`."""
    return verb(len(group.members), "waits", "wait")


def some(names: Iterable[str]) -> str:
    """`a, b, c and 4 more`."""
    found = list(names)
    rest = len(found) - _NAMED
    return ", ".join(found[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def words_of_kueue(workload: Workload, message: str) -> Evidence:
    """What Kueue last said of a Workload."""
    return Evidence(workload.ref, VERDICT, message or "Kueue has said nothing of it yet")


def all_of(*parts: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """The findings of several parts: one that can't be judged costs nothing but itself. Raises NotKnown at
    the end for the first that could not be, before those to which the question does not apply."""
    gap: NotKnown | None = None
    for part in parts:
        try:
            yield from part()
        except NotKnown as unread:
            gap = unread if gap is None or isinstance(gap.state, Inapplicable) else gap
    if gap:
        raise gap


def cure(remedy: str) -> str | None:
    """The runbook that a remedy names."""
    return next((book for book in ("queue-limit", "kueue-restart") if f"gpuctl plan {book}" in remedy), None)
