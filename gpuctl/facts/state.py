"""What is known of a thing, and what is not: the states every fact and every entry of a collection is in.

Unknown is not green. Touching a value that is not known raises `NotKnown`, so a judgement that depends on it
cannot come out as a pass by accident; a judgement that does not depend on it is not disturbed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeAlias, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
R = TypeVar("R")


class Reason(StrEnum):
    """Why a thing is not known. The words are those of capture.yaml."""

    NOT_SERVED = "not-served"
    FORBIDDEN = "forbidden"
    UNAUTHORIZED = "unauthorized"
    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"
    SERVER_ERROR = "server-error"
    MALFORMED = "malformed"
    NOT_ASKED = "not-asked"
    NO_POD = "no-pod"
    INTERNAL = "internal-error"  # gpuctl's own mistake; never stored in a snapshot


@dataclass(frozen=True, slots=True)
class Known(Generic[T_co]):
    """A value that was read, or derived from what was read."""

    value: T_co


@dataclass(frozen=True, slots=True)
class Unknown:
    """A thing that exists or may exist, and could not be read."""

    reason: Reason
    message: str = ""
    what: str = ""

    def __str__(self) -> str:
        return ": ".join(part for part in (self.what, self.reason.value, self.message) if part)


@dataclass(frozen=True, slots=True)
class Inapplicable:
    """A question that does not arise: the API is not served, or the person switched it off."""

    why: str

    def __str__(self) -> str:
        return self.why


State: TypeAlias = Known[T] | Unknown | Inapplicable


class NotKnown(Exception):
    """Raised by touching what is not known; carries the state that stands in the value's place."""

    def __init__(self, state: Unknown | Inapplicable) -> None:
        super().__init__(str(state))
        self.state = state


def value(state: State[T]) -> T:
    """The value of a known state, or `NotKnown`."""
    if isinstance(state, Known):
        return state.value
    raise NotKnown(state)


def attempt(make: Callable[[], T]) -> State[T]:
    """What `make` returns as a known state, or the state of what it touched and was not known."""
    try:
        return Known(make())
    except NotKnown as gap:
        return gap.state


@dataclass(frozen=True, slots=True)
class Each(Generic[K, V]):
    """A collection whose members may be unknown one by one.

    `entries` holds what has a key; `holes` are things without even a key, such as an object that does not
    parse or a namespace that could not be listed. Iterating gives the known members first and raises
    `NotKnown` at the end if there was a gap: so `any()` is true once a member satisfies it, `all()` is
    false once one refutes it, and everything else is unknown. Inapplicable entries are passed over.
    """

    entries: Mapping[K, State[V]] = field(default_factory=dict)
    holes: tuple[Unknown, ...] = ()

    @staticmethod
    def of(values: Mapping[K, V]) -> Each[K, V]:
        """A collection in which everything is known."""
        return Each({key: Known(member) for key, member in values.items()})

    def known(self) -> Iterator[tuple[K, V]]:
        """The known members alone. For showing what there is; a judgement iterates the collection itself."""
        return ((key, state.value) for key, state in self.entries.items() if isinstance(state, Known))

    def gaps(self) -> Iterator[Unknown]:
        """Everything in this collection that is not known."""
        yield from (state for state in self.entries.values() if isinstance(state, Unknown))
        yield from self.holes

    def items(self) -> Iterator[tuple[K, V]]:
        """The known members with their keys; then raises `NotKnown` if there was a gap."""
        yield from self.known()
        for gap in self.gaps():
            raise NotKnown(gap)

    def __iter__(self) -> Iterator[V]:
        return (member for _, member in self.items())

    def __getitem__(self, key: K) -> V:
        """The member under this key, or `NotKnown`: also when there is none."""
        member = self.get(key)
        if member is None:
            raise NotKnown(Unknown(Reason.NOT_ASKED, "does not exist", str(key)))
        return member

    def get(self, key: K) -> V | None:
        """The member under this key; None if it is known not to exist; else `NotKnown`."""
        state = self.entries.get(key)
        if state is not None:
            return value(state)
        for hole in self.holes:
            raise NotKnown(hole)
        return None

    def map(self, make: Callable[[V], R]) -> Each[K, R]:
        """The collection of results; where `make` touches something unknown, that entry is unknown."""
        return Each({key: _map(state, make) for key, state in self.entries.items()}, self.holes)

    def where(self, keep: Callable[[V], bool]) -> Each[K, V]:
        """Those that satisfy `keep`. Where that can't be told, the entry stays, as unknown."""
        kept: dict[K, State[V]] = {}
        for key, state in self.entries.items():
            answer = _map(state, keep)
            if not isinstance(answer, Known):
                kept[key] = answer
            elif answer.value:
                kept[key] = state
        return Each(kept, self.holes)


def _map(state: State[V], make: Callable[[V], R]) -> State[R]:
    if isinstance(state, Known):
        member = state.value
        return attempt(lambda: make(member))
    return state


def merged(collections: Iterable[Each[K, V]]) -> Each[K, V]:
    """Several collections as one."""
    entries: dict[K, State[V]] = {}
    holes: list[Unknown] = []
    for collection in collections:
        entries.update(collection.entries)
        holes.extend(collection.holes)
    return Each(entries, tuple(holes))
