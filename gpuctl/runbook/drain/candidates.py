"""A verdict on each pod of a node that is drained, from the pod and the rules alone: whether it must go, how,
and what speaks against it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from fnmatch import fnmatchcase

import msgspec

from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Each, State, attempt, value
from gpuctl.nvidia.holding import ResourceClaim, holds
from gpuctl.runbook.drain.pods import DrainPod


class Scope(StrEnum):
    """Which pods must go."""

    GPU = "gpu"
    ALL = "all"


class Mode(StrEnum):
    """How pods of a namespace go. `evict-after`: once they had time to end by themselves."""

    EVICT = "evict"
    WAIT = "wait"
    EVICT_AFTER = "evict-after"


class Obstacle(StrEnum):
    """What speaks against the eviction of a pod; the value is the flag that takes the risk."""

    SCRATCH = "--delete-emptydir-data"
    UNMANAGED = "--force"
    PROTECTED = "--evict-protected"
    RETURNING = "--ignore-returning"
    GRACE = "--grace-period"


class DrainRules(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """How pods are drained: what policy and flags say. `grace`: seconds in place of the pods' own, if given.

    `modes` and `protected` go by names or globs of namespaces, the first that matches.
    """

    modes: tuple[tuple[str, Mode], ...] = ()
    evict_after_minutes: float = 60.0
    protected: tuple[str, ...] = ()
    grace: int | None = None
    timeout: float = 900.0
    accepted: tuple[Obstacle, ...] = ()

    def mode(self, namespace: str) -> Mode:
        """How pods of a namespace go."""
        return next((mode for glob, mode in self.modes if fnmatchcase(namespace, glob)), Mode.EVICT)

    def protects(self, namespace: str) -> bool:
        """Whether nothing is evicted from this namespace."""
        return any(fnmatchcase(namespace, glob) for glob in self.protected)

    def due(self, since: datetime, now: datetime) -> bool:
        """Whether those that had time to end by themselves have had it."""
        return now - since >= timedelta(minutes=self.evict_after_minutes)


@dataclass(frozen=True, eq=False)
class Candidate:
    """A pod on the node with the verdict on it. `left`: why it is left alone, empty for one that must go."""

    pod: DrainPod
    mode: Mode
    left: str = ""
    held: State[tuple[str, ...]] = field(default=attempt(tuple), repr=False)
    obstacles: tuple[tuple[Obstacle, str], ...] = ()

    @property
    def holds(self) -> tuple[str, ...]:
        """By what it holds GPUs. Raises NotKnown."""
        return value(self.held)

    def concerned(self, scope: Scope) -> bool:
        """Whether it must go. Raises NotKnown where that hangs on what can't be read."""
        return not self.left and (scope is Scope.ALL or bool(self.holds))

    @property
    def evicted(self) -> bool:
        """Whether it is to be evicted, sooner or later."""
        return self.mode is not Mode.WAIT and not self.pod.ending


def candidate(pod: DrainPod, claims: Each[Ref, ResourceClaim], rules: DrainRules) -> Candidate:
    """The verdict on one pod."""
    left = _left(pod)
    mode = rules.mode(pod.metadata.namespace)
    goes = not left and not pod.ending and mode is not Mode.WAIT
    obstacles = tuple(_obstacles(pod, rules)) if goes else ()
    return Candidate(pod, mode, left, attempt(lambda: holds(pod, claims)), obstacles)


def _left(pod: DrainPod) -> str:
    """As kubectl drain has it, but for what is over: it holds nothing, and is left to who looks at it."""
    if pod.over:
        return "it is over"
    if pod.is_static:
        return "the kubelet runs it from a file"
    if pod.of_a_daemon_set:
        return "it belongs to a DaemonSet"
    return "gpuctl made it to look into the node" if pod.ours else ""


def _obstacles(pod: DrainPod, rules: DrainRules) -> Iterator[tuple[Obstacle, str]]:
    """All of them: one hides no other."""
    if rules.protects(pod.metadata.namespace):
        yield Obstacle.PROTECTED, f"namespace {pod.metadata.namespace} is protected by the policy"
    if pod.controller is None:
        yield Obstacle.UNMANAGED, "no controller makes it anew: it is gone for good"
    if pod.scratch:
        yield Obstacle.SCRATCH, f"what is in its emptyDir volumes is lost: {', '.join(pod.scratch)}"
    if pod.controller is not None and pod.ignores_a_cordon:
        kind = pod.controller.kind
        yield Obstacle.RETURNING, f"it tolerates a cordoned node: its {kind} would bring it straight back"
    if rules.grace is None and pod.grace > rules.timeout:
        yield Obstacle.GRACE, f"it may take {pod.grace} s to end, the drain may take {rules.timeout:g} s"


def concerned(candidates: Each[Ref, Candidate], scope: Scope) -> Each[Ref, Candidate]:
    """Those that must go. One of which that can't be told is an unknown entry."""
    return candidates.where(lambda each: each.concerned(scope))


def several(count: int, what: str) -> str:
    """`1 pod`, `3 pods`."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def listed(names: Sequence[str], most: int = 5) -> str:
    """`a, b and 3 more`: as many names as a line bears."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
