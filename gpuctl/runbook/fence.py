"""What is asked before each write of a run: whether it still holds its lock."""

from __future__ import annotations

import time

from gpuctl.facts.state import NotKnown, Reason, Unknown
from gpuctl.runbook.heed import HeedfulWriter
from gpuctl.runbook.lock import Locks
from gpuctl.runbook.writer import WriteFailed, Writer, blind


def fenced(writer: Writer, locks: Locks) -> HeedfulWriter:
    """Raises Fenced instead of writing once the lock is lost, WriteFailed where that can't be told."""
    return HeedfulWriter(writer, lambda: _confirm(locks))


def _confirm(locks: Locks) -> None:
    asked = time.monotonic()
    try:
        locks.confirm()
    except NotKnown as gap:
        raise blind(gap, "the lock") from gap
    if time.monotonic() - asked > locks.target.claim.seconds / 2:
        late = "the answer came so late that somebody else may hold it by now"
        raise WriteFailed(Unknown(Reason.TIMEOUT, late, "the lock"))
