"""What may be wrong with an API server, or on the way to it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tests.cluster.bed.faultproxy import (
    Answer,
    Conflict,
    Dropped,
    Forbidden,
    GatewayPage,
    Gone,
    InternalError,
    NotFound,
    Raw,
    Severed,
    Slow,
    Stalled,
    TooManyRequests,
    Transformed,
    Truncated,
    Unauthorized,
    Unavailable,
)

from .asked import Asked

PATIENT, IMPATIENT = 180.0, 6.0  # deadlines: of a run that must not feel it, and of one that does
PAGE = b"<html><head><title>Sign in</title></head><body></body></html>"


def _any(_: Asked) -> bool:
    return True


def _has_body(asked: Asked) -> bool:
    return not asked.is_stream


def _is_stream(asked: Asked) -> bool:
    return asked.is_stream


def _has_json(asked: Asked) -> bool:
    return _has_body(asked) and asked.kind != "log"


def _has_objects(asked: Asked) -> bool:
    return asked.kind in {"list", "next page of a list", "object"}


class Hidden(StrEnum):
    """Which objects of a list."""

    ALL = "all"
    FIRST = "first"
    LAST = "last"


@dataclass(frozen=True)
class Trouble:
    """One fault. `times`: how often a request meets it, None for always; `fits`: which requests may; `hides`:
    what of a list it keeps from the client."""

    name: str
    answer: Answer
    reasons: frozenset[str]
    fits: Callable[[Asked], bool] = _any
    deadline: float = PATIENT
    times: int | None = None
    hides: Hidden = Hidden.ALL

    @property
    def heals(self) -> bool:
        """Whether the client may come by the true answer."""
        return self.times is not None or isinstance(self.answer, Slow)

    @property
    def is_vain_without_a_thing(self) -> bool:
        """Whether it says nothing else than an API server that has no such thing."""
        return self.name in ("403", "404") or isinstance(self.answer, Transformed)

    @property
    def lasts(self) -> bool:
        """Whether the run is over only at its deadline."""
        return self.deadline == IMPATIENT


def _spoilt(tree: Any) -> Any:
    """An object that keeps its name and nothing else of its shape; of a list the first one."""
    if "items" in tree:
        items = tree["items"]
        return {**tree, "items": [_spoilt(items[0]), *items[1:]]} if items else _nameless(tree)
    return {key: _spoilt_part(key, part) for key, part in tree.items()}


def _spoilt_part(key: str, part: Any) -> Any:
    if key in ("apiVersion", "kind"):
        return part
    if key == "metadata":
        kept = {name: part[name] for name in ("name", "namespace") if name in part}
        return {**kept, "labels": 7, "uid": []}
    return 7


def _nameless(tree: Any) -> Any:
    if "items" in tree:
        return {**tree, "items": [*tree["items"][:-1], {"metadata": "?"}]}
    return {**tree, "metadata": "?"}


def _trouble(name: str, answer: Answer, *reasons: str, **more: Any) -> Trouble:
    return Trouble(name, answer, frozenset(reasons), **more)


def _without_first(tree: Any) -> Any:
    return {**tree, "items": tree["items"][1:]}


def _without_last(tree: Any) -> Any:
    return {**tree, "items": tree["items"][:-1]}


def _emptied(tree: Any) -> Any:
    return {**tree, "metadata": {}, "items": []}


_LACKING = {Hidden.ALL: _emptied, Hidden.FIRST: _without_first, Hidden.LAST: _without_last}


_FAILS = ("server-error",)
LASTING = (
    _trouble("401", Unauthorized(), "unauthorized"),
    _trouble("403", Forbidden(), "forbidden"),
    _trouble("404", NotFound(), "not-served", "server-error", "malformed"),
    _trouble("409", Conflict(), *_FAILS),
    _trouble("410", Gone(), *_FAILS),
    _trouble("429, Retry-After 1", TooManyRequests(1), *_FAILS),
    _trouble("429, Retry-After 3600", TooManyRequests(3600), *_FAILS),
    _trouble("500", InternalError(), *_FAILS),
    _trouble("503", Unavailable(), *_FAILS),
    _trouble("502 with HTML", GatewayPage(), *_FAILS),
    _trouble("200 with HTML", Raw(PAGE, headers={"Content-Type": "text/html"}), "malformed"),
    _trouble("truncated body", Truncated(12), "malformed", "unreachable", fits=_has_body),
    _trouble("broken stream", Severed(200), "malformed", "unreachable", fits=_is_stream),
    _trouble("slow body", Slow(1.0), fits=_has_body),
    _trouble("endless body", Slow(3600, pieces=600), "timeout", fits=_has_body, deadline=IMPATIENT),
    _trouble("reset", Dropped(), "unreachable"),
    _trouble("stall", Stalled(), "timeout", deadline=IMPATIENT),
    _trouble("malformed object", Transformed(_spoilt), "malformed", fits=_has_json, hides=Hidden.FIRST),
    _trouble("nameless object", Transformed(_nameless), "malformed", fits=_has_objects, hides=Hidden.LAST),
)
PASSING = (
    _trouble("401 once", Unauthorized(), "unauthorized", times=1),
    _trouble("410 once", Gone(), *_FAILS, times=1),
    _trouble("429 once", TooManyRequests(1), *_FAILS, times=1),
    _trouble("500 once", InternalError(), *_FAILS, times=1),
    _trouble("503 once", Unavailable(), *_FAILS, times=1),
    _trouble("reset once", Dropped(), "unreachable", times=1),
    _trouble("truncated once", Truncated(12), "malformed", "unreachable", fits=_has_body, times=1),
)
TROUBLES = (*LASTING, *PASSING)


def may_be_absent(asked: Asked) -> bool:
    """Whether it could be otherwise that what is asked for does not exist."""
    return _has_objects(asked)


def absence(asked: Asked, hidden: Hidden) -> Trouble:
    """No fault: what would be so if it did not exist."""
    if asked.kind != "object":
        return _trouble("absent", Transformed(_LACKING[hidden]))
    name = asked.path.rpartition("/")[2]
    status = {"kind": "Status", "apiVersion": "v1", "reason": "NotFound", "message": f'"{name}" not found'}
    return _trouble("absent", Raw(json.dumps(status).encode(), 404))
