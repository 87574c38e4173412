"""Beds that live as long as this program, and the one that is kept for the whole checkout."""

import atexit
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from . import claim, packages
from .bed import Bed
from .progress import say


@contextmanager
def temporary(logs: Path) -> Iterator[Bed]:
    """A bed of one's own: down at the end, however the end comes, but the components' logs are kept."""
    packages.check()
    claimed = claim.claim()
    atexit.register(claimed.remove)
    bed = Bed(claimed.folder)
    try:
        bed.start(dies_with_starter=True)
        yield bed
    finally:
        shutil.copytree(bed.logs, logs, dirs_exist_ok=True, ignore_dangling_symlinks=True)
        claimed.remove()
        atexit.unregister(claimed.remove)


def running() -> Bed | None:
    """This checkout's kept bed, if it is up and healthy."""
    folder = claim.kept()
    if folder and (bed := Bed(folder)).healthy():
        return bed
    return None


def up() -> Bed:
    """This checkout's kept bed, brought up unless it is up already."""
    packages.check()
    if bed := running():
        return bed
    claim.remove_kept()
    claimed = claim.claim()
    try:
        bed = Bed(claimed.folder)
        bed.start(dies_with_starter=False)
    except BaseException:
        say("taking down what was started")
        claimed.remove()
        raise
    claimed.keep()
    return bed


def down() -> None:
    """Remove this checkout's kept bed, and whatever dead beds have left."""
    claim.remove_kept()
