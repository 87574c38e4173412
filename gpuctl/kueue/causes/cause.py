"""A cause: what a Workload waits for. The check makes sentences of it, the view a cell."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gpuctl.facts.kinds import Ref
from gpuctl.kueue.quantities import Amount, shown


class Trouble(StrEnum):
    """Why a Workload waits. The words are those of `gpuctl queues`."""

    INACTIVE = "queue is inactive"
    STOPPED = "queue is stopped on purpose"
    NAMESPACE = "namespace is not selected"
    BACKOFF = "waits out a backoff"
    INVALID = "request is not valid here"
    CLAIM = "resource claims can't be counted"
    NOT_COVERED = "resource is not covered"
    BARRED = "no flavor lets its pods in"
    PEERS = "others neither run nor lend"
    NEVER_FITS = "can never fit"
    TOPOLOGY = "topology has no room"
    BORROWED_AWAY = "own quota is borrowed away"
    NO_PREEMPTION = "lower priorities hold the quota"
    COHORT_EXHAUSTED = "cohort is exhausted"
    SATURATED = "quota is in use"
    BEHIND_HEAD = "waits behind the first in line"
    PODS_READY = "waits for others' pods"
    NOT_LOOKED_AT = "Kueue has not looked at it"
    UNCLASSIFIED = "unclassified"


# What time may heal, as others finish: of interest once it lasts longer than the policy allows.
PASSING = frozenset(
    {
        Trouble.BACKOFF,
        Trouble.TOPOLOGY,
        Trouble.BORROWED_AWAY,
        Trouble.NO_PREEMPTION,
        Trouble.COHORT_EXHAUSTED,
        Trouble.SATURATED,
        Trouble.BEHIND_HEAD,
        Trouble.PODS_READY,
        Trouble.NOT_LOOKED_AT,
        Trouble.UNCLASSIFIED,
    }
)


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a Workload waits, as far as it is the same for others like it.

    `asked` and `room` are amounts of `resource`: what it asks for, and what there is for it, at most or
    now. `other` is the object that it is owed to; `says` is Kueue's own text, where that is all there is.
    """

    trouble: Trouble
    resource: str = ""
    flavor: str = ""
    asked: Amount = 0
    room: Amount = 0
    other: Ref | None = None
    says: str = ""

    @property
    def missing(self) -> Amount:
        """How much more it would take."""
        return max(0, self.asked - self.room)

    @property
    def subject(self) -> str:
        """What it is about, apart from amounts and culprits: the same as long as the fault stays."""
        if self.trouble is Trouble.NAMESPACE and self.other:
            return self.other.name
        return "/".join(filter(None, (self.flavor, self.resource)))

    def __str__(self) -> str:
        """`can never fit: asks 16 nvidia.com/gpu, at most 8 in flavor h100`."""
        return f"{self.trouble.value}{self._detail()}"

    def _detail(self) -> str:
        if self.says:
            return f": {self.says}"
        if self.resource and self.asked:
            room = f", {shown(self.room, self.resource)} {self._there}" if self.flavor else ""
            return f": asks {shown(self.asked, self.resource)} {self.resource}{room}"
        return f": {self.other}" if self.other else ""

    @property
    def _there(self) -> str:
        ever = self.trouble in {Trouble.NEVER_FITS, Trouble.PEERS}
        return f"{'at most' if ever else 'free'} in flavor {self.flavor}"
