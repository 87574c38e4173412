"""A door that is left in an unusual way leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gpuctl.audit.report import Source
from gpuctl.cli.doors import Door, open_door
from gpuctl.cluster.connection import Access
from tests.memory import MemoryReader


def door(close: Callable[[], None], abandon: Callable[[], None]) -> Door:
    return Door("x", MemoryReader([]), lambda: Source(kind="live", name="x"), close, abandon)


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def test_an_interrupted_close_is_an_abandonment() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt), door(interrupted, lambda: done.append("abandoned")):
        pass
    assert done == ["abandoned"]


def test_a_closed_door_is_not_abandoned() -> None:
    done: list[str] = []
    with door(lambda: done.append("closed"), lambda: done.append("abandoned")):
        pass
    assert done == ["closed"]


def test_an_interrupted_login_leaves_no_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuctl.cluster.connection.connect", interrupted)
    with pytest.raises(KeyboardInterrupt):
        open_door(Access(), None, tmp_path / "stored", 1.0)
    assert list(tmp_path.iterdir()) == []
