"""Taking a bed down. All it takes is its folder: processes, mounts and links go with the machine's init."""

import shutil
from pathlib import Path

from . import cgroups
from .machine import Machine
from .network import Link
from .wait import wait


def remove(folder: Path) -> None:
    """Without leftovers, also when the bed is half made, dead or half removed."""
    link = Link(int(folder.name))
    cgroups.thaw(link.name)
    Machine(folder).kill()
    link.remove()
    wait(lambda: not link.exists, 30, f"the end of the link {link.name}", every=0.02)
    cgroups.remove(link.name)
    if folder.exists():
        shutil.rmtree(folder)
