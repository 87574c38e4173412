"""Beds that live as long as this program, and the one that is kept for the whole checkout."""

import atexit
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from . import claim, packages
from .bed import Bed
from .progress import say
from .start import start
from .wait import TooLong, wait

PATIENCE = 20  # seconds in which a kept bed may become healthy, before a new one takes its place


@contextmanager
def temporary(logs: Path) -> Iterator[Bed]:
    """A bed of one's own: down at the end, however the end comes, but the components' logs are kept."""
    packages.check()
    claimed = claim.claim()
    atexit.register(claimed.remove)
    bed = Bed(claimed.folder)
    try:
        start(bed, dies_with_starter=True)
        yield bed
    finally:
        _save(bed.logs, logs)
        claimed.remove()
        atexit.unregister(claimed.remove)


def up() -> Bed:
    """This checkout's kept bed, brought up unless it is up already."""
    packages.check()
    with claim.bringing_up():
        return _running() or _kept()


def down() -> None:
    """Remove this checkout's kept bed, and whatever dead beds have left."""
    claim.remove_kept()


def _running() -> Bed | None:
    if not (folder := claim.kept()):
        return None
    bed = Bed(folder)
    try:
        wait(bed.healthy, PATIENCE, "a healthy cluster")
    except TooLong:
        say(f"the cluster in {folder} is not healthy: it makes room for a new one")
        return None
    return bed


def _kept() -> Bed:
    claim.remove_kept()
    claimed = claim.claim()
    bed = Bed(claimed.folder)
    try:
        start(bed, dies_with_starter=False)
    except BaseException:
        logs = tempfile.mkdtemp(prefix="gpuctl-bed-logs-")
        _save(bed.logs, Path(logs))
        say(f"taking down what was started; the components' logs are in {logs}")
        claimed.remove()
        raise
    claimed.keep()
    return bed


def _save(logs: Path, to: Path) -> None:
    with suppress(OSError):  # a log that is rotated meanwhile is no reason to fail
        shutil.copytree(logs, to, dirs_exist_ok=True, ignore_dangling_symlinks=True)
