"""The cgroup that all pods of a bed are under: a folder in each hierarchy (version 2 has but one)."""

from collections.abc import Iterator
from pathlib import Path

from .wait import wait

TOP = Path("/sys/fs/cgroup")


def make(name: str) -> None:
    """The kubelet wants it to exist."""
    for hierarchy in _hierarchies():
        (hierarchy / name).mkdir(exist_ok=True)


def thaw(name: str) -> None:
    """A frozen process can't be killed, and runc freezes a container for a moment when it changes it."""
    for cgroup in _existing(name):
        for state in cgroup.rglob("freezer.state"):
            state.write_text("THAWED")


def remove(name: str) -> None:
    """From the leaves to the top, each as soon as its last process has gone."""
    for cgroup in _existing(name):
        for leaf in sorted((path for path in cgroup.rglob("*") if path.is_dir()), reverse=True):
            _remove(leaf)
        _remove(cgroup)


def _remove(cgroup: Path) -> None:
    wait(lambda: _removed(cgroup), 10, f"the end of the cgroup {cgroup}", every=0.02)


def _removed(cgroup: Path) -> bool:
    try:
        cgroup.rmdir()
    except FileNotFoundError:
        return True
    except OSError:  # busy: its last process is still on the way out
        return False
    return True


def _existing(name: str) -> Iterator[Path]:
    return (hierarchy / name for hierarchy in _hierarchies() if (hierarchy / name).is_dir())


def _hierarchies() -> list[Path]:
    if (TOP / "cgroup.controllers").exists():
        return [TOP]
    return [
        folder for folder in TOP.iterdir() if (folder / "cgroup.procs").exists() and not folder.is_symlink()
    ]
