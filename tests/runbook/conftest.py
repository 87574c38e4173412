"""What tests of runs in memory do without, if they say so."""

from __future__ import annotations

import pytest

from gpuctl.runbook.lock import Locks


@pytest.fixture
def no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is killed renews nothing; here it lives on in the test's own."""
    monkeypatch.setattr(Locks, "_keep_alive", lambda _: None)
