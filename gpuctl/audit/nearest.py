"""What a person may have meant by a name that there is not."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_FEW = 5


def meant(name: str, known: Iterable[str], cutoff: float) -> str:
    """`did you mean 'a'?`: the names that begin like this one, or else the nearest. Empty if none is near."""
    names = sorted(known)
    begun = _begun(name, names)
    if len(begun) > _FEW:
        return f"did you mean one of the {len(begun)} from {begun[0]!r} to {begun[-1]!r}?"
    near = begun or difflib.get_close_matches(name, names, n=1, cutoff=cutoff)
    return f"did you mean {_either(near)}?" if near else ""


def _begun(name: str, names: list[str]) -> list[str]:
    """The names that begin like this one: written as it is, or else in whatever case."""
    exactly = [each for each in names if name and each.startswith(name)]
    return exactly or [each for each in names if name and each.lower().startswith(name.lower())]


def _either(names: list[str]) -> str:
    """`'a'`, `'a', 'b' or 'c'`."""
    *others, last = map(repr, names)
    return f"{', '.join(others)} or {last}" if others else last
