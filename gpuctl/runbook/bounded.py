"""A writer that evicts no more pods than the plan allows, whatever a step asks for, whoever goes on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Reason, Unknown
from gpuctl.runbook.records import Bounds
from gpuctl.runbook.writer import Blocked, Change, Conflict, WriteFailed, Writer

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ledger:
    """What a run's journal says of its evictions, by whichever process: `counted` are the pods that count, by
    uid; `note` adds one, before it is asked for."""

    counted: Callable[[], Collection[str]] = tuple
    note: Callable[[str], None] = lambda _: None


@dataclass(frozen=True)
class BoundedWriter:
    """Counts the pods that were evicted, or may have been. A step sees only those that are there: of pods
    that come and go behind a cordon it would evict one after the other. `_stayed`: those that count by the
    ledger, and were seen not to have gone."""

    writer: Writer
    bounds: Bounds
    ledger: Ledger = field(default_factory=Ledger)
    _spent: set[str] = field(default_factory=set)
    _stayed: set[str] = field(default_factory=set)

    def patch(self, ref: Ref, uid: str, changes: Sequence[Change]) -> None:
        self.writer.patch(ref, uid, changes)

    def create(self, ref: Ref, body: Mapping[str, Any]) -> str:
        return self.writer.create(ref, body)

    def delete(self, ref: Ref, uid: str, grace: int | None = None) -> None:
        """Of pods that are deleted in the place of being evicted the same holds. A plan that takes no pod
        from anybody deletes none but those that the runbook itself is about."""
        if ref.kind.kind != "Pod" or not self.bounds.evictions:
            self.writer.delete(ref, uid, grace)
        else:
            self._within(ref, uid, lambda: self.writer.delete(ref, uid, grace))

    def evict(self, pod: Ref, uid: str, grace: int | None = None) -> Blocked | None:
        blocked = self._within(pod, uid, lambda: self.writer.evict(pod, uid, grace))
        if blocked is not None:
            self._stays(uid)
        return blocked

    def _within(self, pod: Ref, uid: str, ask: Callable[[], T]) -> T:
        """It counts before it is asked for: an answer may be lost, and so may this process."""
        counted = self.ledger.counted()
        gone = {*counted, *self._spent} - self._stayed
        asked = uid in gone
        if not asked and len(gone) >= self.bounds.evictions:
            raise _refused(pod, f"{len(gone)} pods were evicted, and the plan allows no more")
        if pod.namespace not in self.bounds.namespaces:
            raise _refused(pod, f"the plan allows no eviction in namespace {pod.namespace}")
        if uid not in counted:
            self.ledger.note(uid)
        self._spent.add(uid)
        self._stayed.discard(uid)
        try:
            return ask()
        except Conflict:  # another pod has the name
            if not asked:
                self._stays(uid)
            raise

    def _stays(self, uid: str) -> None:
        self._spent.discard(uid)
        self._stayed.add(uid)


def _refused(pod: Ref, why: str) -> WriteFailed:
    return WriteFailed(Unknown(Reason.NOT_ASKED, why, f"eviction of {pod}"), hopeless=True)
