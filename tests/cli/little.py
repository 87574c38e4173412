"""The command line over a cluster in memory, with the little runbook in the catalogue."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpuctl.audit.report import Source
from gpuctl.cli import acting, apply, history
from gpuctl.cli.app import app
from gpuctl.cli.border import Stop, warn
from gpuctl.runbook.catalogue import BOOKS
from gpuctl.runbook.conduct import Crew
from gpuctl.runbook.lock import Locks
from gpuctl.runbook.planning import Task
from gpuctl.runbook.runbook import Runbook
from tests.runbook.little import World


@dataclass
class FakeSite:
    """What `open_site` would connect to."""

    world: World
    acting: Any
    cluster: str = "cluster-1"
    user: str = "ana"

    @property
    def source(self) -> Source:
        return Source(kind="live", name="lab\x1b[31m", cluster_uid=self.cluster, server_version="v1.36.3")

    def looks(self, *, quiet: bool = False) -> Any:
        return self.world.look_with

    def task(self, book: Runbook, target: str, options: Mapping[str, Any]) -> Task:
        return Task(book, target, options, self.world.policy, self.acting.state_namespace)

    def crew(self, stop: Any) -> Crew:
        if stop.is_set():
            raise AssertionError
        return self.world.crew(tell=warn)


@dataclass
class Result:
    code: int
    out: str
    err: str

    @property
    def all(self) -> str:
        return self.out + self.err


@dataclass
class Desk:
    """A person at a command line. `typed`: what they type when they are asked; None: there is no terminal."""

    world: World
    patch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]
    folder: Path
    cluster: str = "cluster-1"
    opened: int = 0

    def __post_init__(self) -> None:
        self.patch.setitem(BOOKS, "little", ("tests.runbook.little", "a little change"))
        self.patch.setattr(acting, "open_site", self._open)
        self.patch.setattr(Locks, "_keep_alive", lambda _: None)
        self.patch.setattr(history, "folder", lambda: self.folder / "state")
        self.patch.chdir(self.folder)

    def _open(self, _access: Any, given: Any, _looking: Any, _monitoring: Any) -> FakeSite:
        self.opened += 1
        return FakeSite(self.world, given, self.cluster)

    def gpuctl(self, *arguments: str, typed: str | None = None) -> Result:
        self.patch.setattr(apply, "_is_terminal", lambda: typed is not None)
        self.patch.setattr("sys.stdin", io.StringIO(f"{typed}\n" if typed is not None else ""))
        self.capsys.readouterr()
        code = self._run(arguments)
        told = self.capsys.readouterr()
        return Result(code, told.out, told.err)

    def _run(self, arguments: tuple[str, ...]) -> int:
        try:
            app(list(arguments), prog_name="gpuctl")
        except Stop as stop:
            warn(str(stop))
            return stop.code
        except SystemExit as leaving:
            return int(leaving.code or 0)
        return 0

    def stored(self, *arguments: str, name: str = "change.json") -> Path:
        result = self.gpuctl("plan", "little", "gpu-1", "--out", name, *arguments)
        assert result.code == 0, result.all
        return self.folder / name

    def edited(self, path: Path, **changes: Any) -> None:
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
