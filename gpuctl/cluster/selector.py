"""Label selectors, as the API server understands them in a list request."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

Test: TypeAlias = Callable[[Mapping[str, str]], bool]

_SPLIT: Final = re.compile(r",(?![^(]*\))")
_SET: Final = re.compile(r"(\S+)\s+(in|notin)\s*\(([^)]*)\)")
_EQUAL: Final = re.compile(r"([^!=\s]+)\s*(!=|==?)\s*(\S*)")


def selector(text: str) -> Test:
    """Whether labels match `a=b,c!=d,e in (x, y),f notin (z),g,!h`. Raises ValueError."""
    tests = tuple(_tests(text))
    return lambda labels: all(test(labels) for test in tests)


def _tests(text: str) -> Iterator[Test]:
    for term in _SPLIT.split(text):
        if term.strip():
            yield _test(term.strip())


def _test(term: str) -> Test:
    if found := _SET.fullmatch(term):
        return _among(found[1], {value.strip() for value in found[3].split(",")}, wanted=found[2] == "in")
    if found := _EQUAL.fullmatch(term):
        return _among(found[1], {found[3]}, wanted=found[2] != "!=")
    if re.search(r"[\s=()]", term):
        raise ValueError(f"not a label selector: {term!r}")
    return _exists(term.removeprefix("!").strip(), wanted=not term.startswith("!"))


def _among(key: str, values: set[str], *, wanted: bool) -> Test:
    """As in Kubernetes, an absent label satisfies `!=` and `notin`."""
    return lambda labels: (key in labels and labels[key] in values) is wanted


def _exists(key: str, *, wanted: bool) -> Test:
    return lambda labels: (key in labels) is wanted
