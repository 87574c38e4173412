"""A writer that asks before each write whether it may be begun."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuctl.facts.kinds import Ref
from gpuctl.runbook.writer import Blocked, Change, Writer


@dataclass(frozen=True, slots=True)
class HeedfulWriter:
    """`heed` raises where a write may not be begun. One that is begun is completed: of the many evictions of
    a drain an interruption stops all but that in flight."""

    writer: Writer
    heed: Callable[[], None]

    def patch(self, ref: Ref, uid: str, changes: Sequence[Change]) -> None:
        self.heed()
        self.writer.patch(ref, uid, changes)

    def create(self, ref: Ref, body: Mapping[str, Any]) -> str:
        self.heed()
        return self.writer.create(ref, body)

    def delete(self, ref: Ref, uid: str, grace: int | None = None) -> None:
        self.heed()
        self.writer.delete(ref, uid, grace)

    def evict(self, pod: Ref, uid: str, grace: int | None = None) -> Blocked | None:
        self.heed()
        return self.writer.evict(pod, uid, grace)
