"""Of all causes the first that holds, and Workloads with the same cause as one group."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property, partial

from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Each, Known, State, attempt
from gpuctl.kueue.causes import (
    backoff,
    barred,
    behind_head,
    borrowed_away,
    claims,
    exhausted,
    inactive,
    invalid,
    namespace,
    no_preemption,
    peers,
    pods_ready,
    saturated,
    too_large,
    topology,
    uncovered,
    unexplained,
)
from gpuctl.kueue.causes.cause import Cause, Trouble
from gpuctl.kueue.hurt import Hurt, measured
from gpuctl.kueue.objects import Workload
from gpuctl.kueue.scene import Line, Waiter, shape_of
from gpuctl.kueue.standing import backs_off, kept_back

IN_ORDER: tuple[Callable[[Waiter], Cause | None], ...] = (
    inactive.cause,
    namespace.cause,
    backoff.cause,
    claims.cause,
    invalid.cause,
    uncovered.cause,
    barred.cause,
    peers.cause,
    too_large.cause,
    topology.cause,
    borrowed_away.cause,
    no_preemption.cause,
    exhausted.cause,
    saturated.cause,
    pods_ready.cause,
    behind_head.cause,
    unexplained.cause,
)


def diagnose(waiter: Waiter) -> Cause:
    """Why it waits. Raises NotKnown where that depends on something that could not be read."""
    found = (cause(waiter) for cause in IN_ORDER)
    return next(cause for cause in found if cause is not None)


@dataclass(frozen=True)
class Group:
    """The Workloads of one queue that wait for the same reason, the one that waits longest first.

    `cause` is that of the first; others may ask for other amounts.
    """

    cause: Cause
    line: Line
    members: tuple[Workload, ...]

    @property
    def first(self) -> Workload:
        return self.members[0]

    @property
    def longest(self) -> timedelta:
        """How long the first has waited."""
        return self.line.waited(self.first)

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Where they are, those with most first."""
        counts: dict[str, int] = {}
        for each in self.members:
            counts[each.metadata.namespace] = counts.get(each.metadata.namespace, 0) + 1
        return tuple(sorted(counts, key=lambda name: (-counts[name], name)))


@dataclass(frozen=True)
class Diagnosed:
    """A line, and the cause of each of its waiting Workloads; unknown where it depends on a gap."""

    line: Line

    @cached_property
    def causes(self) -> Each[Ref, Cause]:
        """By Workload. Equal Workloads are judged once."""
        alike: dict[Hashable, State[Cause]] = {}
        found: dict[Ref, State[Cause]] = {}
        for workload in self.line.waiting:
            likeness = _likeness(workload, self.line)
            if likeness not in alike:
                alike[likeness] = attempt(partial(diagnose, Waiter(workload, self.line)))
            found[workload.ref] = alike[likeness]
        return Each(found, self.line.gaps)

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The known causes, those with most Workloads first."""
        members: dict[tuple[Trouble, str], list[Workload]] = {}
        causes = self.causes.entries
        for workload in self.line.waiting:
            state = causes[workload.ref]
            if isinstance(state, Known):
                members.setdefault((state.value.trouble, state.value.subject), []).append(workload)
        groups = (self._group(each) for each in members.values())
        return tuple(
            sorted(groups, key=lambda each: (-len(each.members), each.cause.trouble, each.cause.subject))
        )

    def _group(self, members: list[Workload]) -> Group:
        ordered = sorted(members, key=self.line.waited, reverse=True)
        return Group(self.causes[ordered[0].ref], self.line, tuple(ordered))

    @cached_property
    def hurt(self) -> State[Hurt]:
        """How much is waited for."""
        return attempt(partial(measured, self.line))

    def groups_of(self, *troubles: Trouble) -> tuple[Group, ...]:
        """The groups with one of these causes."""
        return tuple(each for each in self.groups if each.cause.trouble in troubles)


def _likeness(workload: Workload, line: Line) -> Hashable:
    """What the cause of a Workload depends on."""
    return (
        workload.metadata.namespace,
        workload.spec.priority,
        workload is line.head,
        backs_off(workload, line.scene.now),
        kept_back(workload),
        Waiter(workload, line).message,
        shape_of(workload),
    )
