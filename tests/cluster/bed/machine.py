"""The machine that a bed runs on: namespaces held by one process, `init`, and what is started inside them.

Nothing of it needs to be recorded to be found again: a bed's init is the process whose last argument is
the bed's folder.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import init
from .wait import wait

INIT = Path(init.__file__)
NAMESPACES = ("--pid", "--mount", "--net", "--uts", "--ipc")
DIES_WITH_ITS_STARTER = ("setpriv", "--pdeathsig", "KILL")
_CHILDREN: dict[int, subprocess.Popen[bytes]] = {}  # started by this program, to be collected by it


@dataclass(frozen=True)
class Process:
    """A component that runs in the machine, led by the process group it was started as."""

    name: str
    group: int
    log: Path

    @property
    def alive(self) -> bool:
        if child := _CHILDREN.get(self.group):
            return child.poll() is None
        return Path(f"/proc/{self.group}").exists()

    def require_alive(self) -> bool:
        """True, or an error with the end of its log: to be asked while waiting for it."""
        if not self.alive:
            raise RuntimeError(f"{self.name} has ended; the end of {self.log}:\n{tail(self.log)}")
        return True

    def signal(self, number: signal.Signals) -> None:
        os.killpg(self.group, number)

    def stop(self) -> None:
        """Ask it to end, and wait until it has."""
        if self.alive:
            self.signal(signal.SIGTERM)
            wait(lambda: not (self.alive or self._has_children), 60, f"the end of {self.name}")

    @property
    def _has_children(self) -> bool:
        """Whether any is left of its group: who leads that, nsenter, ends before what it has started."""
        try:
            os.killpg(self.group, 0)
        except ProcessLookupError:
            return False
        return True


@dataclass(frozen=True)
class Machine:
    """A bed's machine, found by the folder that all of it lives in."""

    folder: Path

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def standins(self) -> Path:
        """Commands that stand in for those of a GPU node: found in /usr/local/bin on the machine."""
        return self.folder / "standins"

    @property
    def init(self) -> int:
        return int((self.folder / init.READY).read_text())

    @property
    def root(self) -> Path:
        """The file system as the machine sees it."""
        return Path(f"/proc/{self.init}/root")

    @property
    def alive(self) -> bool:
        return bool(self.processes_of_init())

    def boot(self, host_name: str, dies_with_starter: bool) -> None:
        """Start init in its namespaces; on request the kernel kills it when the calling thread ends."""
        for folder in (self.logs, self.standins, self.folder / "run"):
            folder.mkdir(parents=True, exist_ok=True)
        prefix, kill_child = (DIES_WITH_ITS_STARTER, ("--kill-child",)) if dies_with_starter else ((), ())
        script = (sys.executable, "-I", str(INIT), host_name, str(self.folder))
        command = (*prefix, "unshare", "--fork", *kill_child, *NAMESPACES, *script)
        booted = self._spawn("init", command)
        ready = self.folder / init.READY
        wait(lambda: booted.require_alive() and ready.exists(), 60, "the machine's start")

    def start(
        self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> Process:
        """Start a component inside; what it prints goes to logs/<name>.log."""
        process = self._spawn(name, self.inside(*command), environment)
        (self.folder / "run" / name).write_text(str(process.group))
        return process

    def process(self, name: str) -> Process:
        """The component of that name, whichever program started it."""
        return Process(name, int((self.folder / "run" / name).read_text()), self.log(name))

    def run(self, *command: str) -> str:
        """Run a short command inside and give what it printed."""
        done = subprocess.run(
            self.inside(*command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}")
        return done.stdout

    def inside(self, *command: str) -> tuple[str, ...]:
        """The command that runs this command inside."""
        return "nsenter", "--target", str(self.init), *NAMESPACES, "--", *command

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def kill(self) -> None:
        """End init and with it all that runs inside. The kernel lets init go last."""
        for pid in self.processes_of_init():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        wait(lambda: not self.processes_of_init(), 30, f"the end of the machine in {self.folder}", every=0.02)
        for child in _CHILDREN.values():
            child.poll()

    def processes_of_init(self) -> list[int]:
        """Init, and the programs that started it and wait for it."""
        return [pid for pid, arguments in _command_lines() if _is_init(arguments, self.folder)]

    def _spawn(
        self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> Process:
        with self.log(name).open("ab") as log:
            started = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd="/",
                env=os.environ | (environment or {}),
                start_new_session=True,
            )
        _CHILDREN[started.pid] = started
        return Process(name, started.pid, self.log(name))


def tail(log: Path, lines: int = 20) -> str:
    """The last lines of a log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def _command_lines() -> list[tuple[int, list[str]]]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                arguments = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except (FileNotFoundError, ProcessLookupError):
                continue
            found.append((int(entry.name), arguments[:-1]))
    return found


def _is_init(arguments: Sequence[str], folder: Path) -> bool:
    return INIT.name in map(os.path.basename, arguments) and arguments[-1] == str(folder)
