"""A writer that asks for no eviction sooner than the API server said to ask again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gpuctl.facts.kinds import Ref
from gpuctl.runbook.writer import Blocked, Change, Writer

LONGEST: Final = 60.0  # seconds: a longer Retry-After is taken for this one


@dataclass(frozen=True)
class PatientWriter:
    """Answers an eviction as the server did last until its Retry-After is over; all else is passed on."""

    writer: Writer
    clock: Callable[[], float] = time.monotonic
    _held: dict[str, tuple[float, Blocked]] = field(default_factory=dict)

    def patch(self, ref: Ref, uid: str, changes: Sequence[Change]) -> None:
        self.writer.patch(ref, uid, changes)

    def create(self, ref: Ref, body: Mapping[str, Any]) -> str:
        return self.writer.create(ref, body)

    def delete(self, ref: Ref, uid: str, grace: int | None = None) -> None:
        self.writer.delete(ref, uid, grace)

    def evict(self, pod: Ref, uid: str, grace: int | None = None) -> Blocked | None:
        until, said = self._held.get(uid, (0.0, None))
        if said is not None and self.clock() < until:
            return said
        blocked = self.writer.evict(pod, uid, grace)
        if blocked is not None and blocked.after:
            self._held[uid] = (self.clock() + min(blocked.after, LONGEST), blocked)
        return blocked
