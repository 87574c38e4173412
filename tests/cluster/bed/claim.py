"""Which beds there are on this machine, whose they are, and which are nobody's any more.

A bed is a numbered folder. Whoever makes one holds a lock on it for as long as it lives, and the kernel
lets go of the lock when its holder dies, however it dies. A bed that is to outlive its maker is marked
with the checkout it belongs to.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from . import down
from .machine import Machine
from .progress import say

ROOT = Path("/var/cache/gpuctl-bed")
CHECKOUT = Path(__file__).parents[3]
MOST = 50


@dataclass(frozen=True)
class Claim:
    """A bed's folder, and the lock that says somebody lives for it."""

    folder: Path
    lock: IO[str]

    @property
    def number(self) -> int:
        return int(self.folder.name)

    def keep(self) -> None:
        """Let the bed live on for this checkout after its maker has ended."""
        (self.folder / "kept").write_text(str(CHECKOUT))
        self.lock.close()

    def remove(self) -> None:
        """Take the bed down, whatever there is of it."""
        with _registry():  # else another's sweep would take the half removed folder for abandoned
            down.remove(self.folder)
        self.lock.close()


def claim() -> Claim:
    """A new bed's folder; first whatever dead beds have left is removed."""
    with _registry():
        _sweep()
        number = next(number for number in range(1, MOST) if not (ROOT / str(number)).exists())
        folder = ROOT / str(number)
        folder.mkdir()
        return Claim(folder, _locked(folder))


@contextmanager
def bringing_up() -> Iterator[None]:
    """One kept bed is brought up at a time; who comes second finds it up."""
    with _one_at_a_time("bringing-up"):
        yield


def kept() -> Path | None:
    """The folder of this checkout's kept bed, if there is one that is alive."""
    with _registry():
        return next((folder for folder in _folders() if _ours(folder) and Machine(folder).alive), None)


def remove_kept() -> None:
    """Take this checkout's kept beds down, and what dead ones have left."""
    with _registry():
        for folder in _folders():
            if _ours(folder):
                say(f"taking the cluster in {folder} down")
                down.remove(folder)
        _sweep()


def _sweep() -> None:
    for folder in _folders():
        if _abandoned(folder):
            say(f"removing what a dead bed left in {folder}")
            down.remove(folder)


def _abandoned(folder: Path) -> bool:
    if (checkout := _kept_for(folder)) is not None:
        return not (Machine(folder).alive and Path(checkout).exists())
    try:
        _locked(folder).close()
    except BlockingIOError:
        return False
    return True


def _ours(folder: Path) -> bool:
    return _kept_for(folder) == str(CHECKOUT)


def _kept_for(folder: Path) -> str | None:
    mark = folder / "kept"
    return mark.read_text() if mark.exists() else None


def _folders() -> Iterator[Path]:
    return (folder for folder in sorted(ROOT.iterdir()) if folder.name.isdigit())


def _locked(folder: Path) -> IO[str]:
    lock = (folder / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise
    return lock


@contextmanager
def _registry() -> Iterator[None]:
    with _one_at_a_time("registry"):
        yield


@contextmanager
def _one_at_a_time(what: str) -> Iterator[None]:
    ROOT.mkdir(parents=True, exist_ok=True)
    with (ROOT / f".{what}").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
