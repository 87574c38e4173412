"""Who works with gpuctl on one target: what is started, what is journaled, how it is brought to its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from gpuctl.facts.own import RUN
from gpuctl.runbook.records import Run, Standing
from tests.cluster.bed.api import Api, ApiError
from tests.cluster.bed.audit import AuditEvent
from tests.cluster.gpuctl import PROGRAM
from tests.cluster.lenient import lenient_file

from .strike import Order

ROOT: Final = Path(__file__).parents[3]
PATIENCE: Final = 300.0  # seconds for one program
POLICY: Final = lenient_file(validMinutes=600)
ALREADY_THERE: Final = 409


def make_namespace(api: Api, name: str) -> None:
    """Or have it, from the last time that cases were played on this bed."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    api.apply(f"/api/v1/namespaces/{name}", body)


class NotReached(Exception):
    """The run did not come to what the case is about."""


@dataclass(frozen=True)
class Program:
    """gpuctl at work, or how it ended."""

    process: subprocess.Popen[bytes]
    out: Path
    diary: Path

    def ended(self, seconds: float = PATIENCE) -> int:
        """Its exit code, once it has ended."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"gpuctl did not end within {seconds:g} s: {self.said[-900:]}") from None

    @property
    def said(self) -> str:
        """All that it printed."""
        return self.out.read_text(errors="replace")

    def lines(self, kind: str) -> list[str]:
        """Of its diary: write, struck."""
        text = self.diary.read_text() if self.diary.exists() else ""
        return [line.removeprefix(f"{kind} ") for line in text.splitlines() if line.startswith(f"{kind} ")]

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def stopped(self) -> None:
        """Until it stands still. Raises NotReached if it has ended before."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise NotReached(self.said[-900:])
            with suppress(OSError):
                if Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T":
                    return
            time.sleep(0.1)
        raise AssertionError("it did not stand still")


@dataclass(frozen=True)
class Desk:
    """From where a person works. `state`: the namespace of journals and locks."""

    kubeconfig: Path
    policy: Path
    state: str
    folder: Path


class Player(ABC):
    """One case: a target, a plan for it, and the person who works with gpuctl."""

    def __init__(self, api: Api, desk: Desk, name: str) -> None:
        self.api, self.desk, self.name = api, desk, name
        self.began = datetime.now(UTC)
        self.count = 0
        self.programs: list[Program] = []

    @property
    @abstractmethod
    def place(self) -> str:
        """What is changed."""

    # Before and after

    @abstractmethod
    def set_up(self) -> None:
        """As it is before the run."""

    @abstractmethod
    def clear(self) -> None:
        """Makes room for the next case."""

    @abstractmethod
    def mend(self) -> None:
        """After a case that went wrong."""

    # What there is

    @abstractmethod
    def written(self, since: datetime | None = None) -> list[AuditEvent]:
        """What gpuctl has written on this target, and in its namespaces."""

    @property
    def leases_path(self) -> str:
        return f"/apis/coordination.k8s.io/v1/namespaces/{self.desk.state}/leases"

    def journals(self) -> list[Run]:
        found = self.api.items(f"/api/v1/namespaces/{self.desk.state}/configmaps", labelSelector=RUN)
        return [msgspec.json.decode(each["data"]["run.json"], type=Run) for each in found]

    def journal(self) -> Run | None:
        """The journal of the only run."""
        found = self.journals()
        assert len(found) <= 1, [each.id for each in found]
        return found[0] if found else None

    def leases(self) -> list[dict[str, Any]]:
        return self.api.items(self.leases_path)

    def locks_name(self, run: Run | None) -> None:
        """What locks are left bear the name of the run that the journal tells of."""
        for lease in self.leases():
            held = lease["spec"]["holderIdentity"].partition("/")[0]
            assert held == lease["metadata"]["labels"][RUN], "a lock that names no run"
            assert run is None or run.id == held, "a lock of another run than the journal's"

    def let_go(self) -> None:
        """Neither programs nor journals and locks are left."""
        self.end_programs()
        self.api.delete(f"/api/v1/namespaces/{self.desk.state}/configmaps", labelSelector=RUN)
        self.api.delete(self.leases_path)

    # What the person does

    @abstractmethod
    def apply(self, order: Order | None = None, plan: Path | None = None, *flags: str) -> Program:
        """Starts a plan for the target."""

    def start(self, verb: str, *arguments: str, order: Order | None = None) -> Program:
        """Starts gpuctl as it is, or so that something happens to it."""
        self.count += 1
        out, diary = (self.desk.folder / f"{self.count}-{verb}.{kind}" for kind in ("out", "diary"))
        diary.unlink(missing_ok=True)
        program = [str(PROGRAM)]
        if order is not None:
            text = msgspec.structs.replace(order, log=str(diary)).text()
            program = [sys.executable, "-m", "tests.cluster.faults.strike", text]
        rest = (
            "--policy",
            str(self.desk.policy),
            "--state-namespace",
            self.desk.state,
            "--probe-timeout=60s",
        )
        environment = {
            **os.environ,
            "KUBECONFIG": str(self.desk.kubeconfig),
            "HOME": str(self.desk.folder),
            "XDG_STATE_HOME": str(self.desk.folder),
            "COLUMNS": "160",
        }
        with out.open("wb") as file:
            process = subprocess.Popen(
                [*program, verb, *arguments, *rest],
                env=environment,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.programs.append(Program(process, out, diary))
        return self.programs[-1]

    def go_on(self, verb: str, order: Order | None = None) -> Program:
        """Resumes, undoes or unlocks the run by its name."""
        run = self.journal()
        names = {each["metadata"]["labels"][RUN] for each in self.leases()} | ({run.id} if run else set())
        (name,) = names
        return self.start(verb, name, order=order)

    def end_programs(self) -> None:
        """None is left."""
        for program in self.programs:
            if program.process.poll() is None:
                with suppress(ProcessLookupError):
                    program.send(signal.SIGKILL)
                program.process.wait()

    # What must be true

    def wait(self, condition: Callable[[], object], what: str, seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {seconds:g} s: {what}")
            time.sleep(0.2)

    def posted(self, path: str, body: Mapping[str, Any]) -> bool:
        """Kueue's webhooks are asked too, and may be away on a busy machine."""
        try:
            self.api.post(path, body)
        except ApiError as error:
            if error.status != ALREADY_THERE:
                return False
        return True

    @abstractmethod
    def is_named(self) -> None:
        """What is left of a run that has stopped is named by its journal, and its locks by its name."""

    @abstractmethod
    def is_done(self) -> None:
        """The change is made, verified by other eyes than gpuctl's, and journaled."""

    @abstractmethod
    def is_undone(self) -> None:
        """All is as before."""

    @abstractmethod
    def is_untouched(self) -> None:
        """Nothing has happened, and nobody says that it has."""

    # How a person brings it to its end

    def settle(self, *, back: bool = False) -> str:
        """Resumes or undoes what is unfinished, unlocks what is only locked; says what it took."""
        self.is_named()
        run = self.journal()
        if run is not None and run.state is Standing.UNFINISHED:
            way = "undo" if back and not run.verified else "resume"
            program = self.go_on(way)
            assert program.ended() == 0, f"{way}: {program.said[-900:]}"
            run = self.journal()
            assert run is not None
            self.is_undone() if run.state is Standing.UNDONE else self.is_done()
            return "undone" if run.state is Standing.UNDONE else "resumed"
        word = ""
        if self.leases():
            program = self.go_on("unlock")
            assert program.ended() == 0, program.said[-900:]
            word = "unlocked"
        if run is None:
            self.is_untouched()
        else:
            self.is_undone() if run.state is Standing.UNDONE else self.is_done()
        return word or ("nothing begun" if run is None else "ended")
