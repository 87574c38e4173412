"""The door through which a runbook changes a cluster. Nothing but a step is ever handed one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import NotKnown, Reason, Unknown


class WriteFailed(Exception):
    """A write that was refused, or of which it is not known whether it was carried out.

    `hopeless`: the same write would be refused again, as without the permission for it.
    """

    def __init__(self, state: Unknown, *, hopeless: bool = False) -> None:
        super().__init__(str(state))
        self.state = state
        self.hopeless = hopeless


class Conflict(WriteFailed):
    """The object is not, or no longer, as the write assumes: another value, another uid, gone."""


def blind(gap: NotKnown, what: str) -> WriteFailed:
    """A write that was not made, for what must be known before it could not be read."""
    state = gap.state
    return WriteFailed(state if isinstance(state, Unknown) else Unknown(Reason.NOT_SERVED, state.why, what))


class Fenced(Exception):
    """The run does not hold its lock any more: it must not write again."""


@dataclass(frozen=True, slots=True)
class Test:
    """Refuses the patch unless this value stands at the path; None: unless nothing does."""

    __test__ = False  # pytest takes the name for its own
    path: str
    value: Any


@dataclass(frozen=True, slots=True)
class Put:
    """Sets the value at the path, whatever stood there."""

    path: str
    value: Any


@dataclass(frozen=True, slots=True)
class Drop:
    """Removes what stands at the path; refused if nothing does."""

    path: str


Change = Test | Put | Drop


@dataclass(frozen=True, slots=True)
class Blocked:
    """An eviction that a PodDisruptionBudget does not allow now. `after`: seconds, if the server says when to
    ask again."""

    why: str
    after: float | None = None


class Writer(Protocol):
    """Each call is one request, sent once, over within its own time. Raises WriteFailed, or Fenced."""

    def patch(self, ref: Ref, uid: str, changes: Sequence[Change]) -> None:
        """Changes fields of the object with this uid, all or none. Raises Conflict."""
        ...

    def create(self, ref: Ref, body: Mapping[str, Any]) -> str:
        """Makes an object and returns its uid. Raises Conflict if there is one of this name."""
        ...

    def delete(self, ref: Ref, uid: str, grace: int | None = None) -> None:
        """Deletes the object with this uid; one that is gone is deleted. Raises Conflict for another uid.
        `grace`: seconds that a pod gets to end, its own if None."""
        ...

    def evict(self, pod: Ref, uid: str, grace: int | None = None) -> Blocked | None:
        """Asks for the eviction of the pod with this uid; None once it is accepted or the pod is gone.
        Raises Conflict when another pod has the name."""
        ...


def pointer(*parts: str) -> str:
    """A JSON pointer to a field: `/metadata/labels/nvidia.com~1mig.config`."""
    return "".join(f"/{part.replace('~', '~0').replace('/', '~1')}" for part in parts)
