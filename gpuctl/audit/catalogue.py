"""Which checks there are: gpuctl's own and other people's, through one entry-point group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points

from gpuctl.audit.check import Check
from gpuctl.audit.nearest import meant

GROUP = "gpuctl.checks"


class UnknownName(Exception):
    """A name that no check, code or assertion bears."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        hint = meant(name, known, cutoff=0.4) or f"there are {', '.join(known)}"
        super().__init__(f"there is no {name!r}; {hint}")


@dataclass(frozen=True, slots=True)
class Broken:
    """A plugin that does not load. It makes the run incomplete; it never stops it."""

    id: str
    error: str


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The checks that loaded, and those that did not."""

    checks: tuple[Check, ...]
    broken: tuple[Broken, ...] = ()

    def select(self, names: Sequence[str]) -> Catalogue:
        """The named checks, or all when none is named. Raises UnknownName."""
        known = [*(check.id for check in self.checks), *(broken.id for broken in self.broken)]
        for name in names:
            if name not in known:
                raise UnknownName(name, known)
        if not names:
            return self
        return Catalogue(
            tuple(check for check in self.checks if check.id in names),
            tuple(broken for broken in self.broken if broken.id in names),
        )


def catalogue(names: Sequence[str] = ()) -> Catalogue:
    """Loads every check that is installed, in the order of their names; no others than the named ones where
    all of those are known by their entries: loading takes time."""
    entries = sorted(entry_points(group=GROUP), key=lambda entry: entry.name)
    named = [entry for entry in entries if entry.name in names]
    few = {entry.name for entry in named} == set(names)
    loaded = [_load(entry) for entry in (named if names and few else entries)]
    return Catalogue(
        tuple(each for each in loaded if isinstance(each, Check)),
        tuple(each for each in loaded if isinstance(each, Broken)),
    )


def _load(entry: EntryPoint) -> Check | Broken:
    try:
        check = entry.load()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the border around one entry: even exit(0) is no all-clear
        return Broken(entry.name, f"{type(error).__name__}: {error}")
    if not isinstance(check, Check):
        return Broken(entry.name, f"{entry.value} is not a gpuctl check")
    return check
