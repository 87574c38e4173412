"""The cases of the other runbooks, and which of them are played each time.

What they have in common (locks, the first and last entries of the journal, events) is killed in all ways, and
on the way back, with mig-reconfigure and queue-limit; with the others once, in one way after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from .books import HOLD, LIMIT, PLACES, RESTART, SWITCH
from .cases import HOPELESS, Case, Known, a_kill, a_killed_undo, fault_at, passing, refusals
from .player import Player

USUAL: Final[Mapping[str, Known]] = {
    LIMIT: Known(
        apply=(
            "make the lock of a clusterqueue",
            "make the slot",
            "journal: made",
            "event GpuctlBegun",
            "journal: SetLimit begun",
            "set the limit",
            "journal: SetLimit done",
            "journal: finished",
            "event GpuctlSucceeded",
            "remove the slot",
            "remove the lock of a clusterqueue",
        ),
        undo=(
            "take over the lock of a clusterqueue",
            "take over the slot",
            "journal: SetLimit begun",
            "journal: turned back",
            "event GpuctlUndoing",
            "set the limit",
            "journal: SetLimit undone",
            "journal: undone",
            "event GpuctlReverted",
            "remove the slot",
            "remove the lock of a clusterqueue",
        ),
    ),
    HOLD: Known(
        apply=(
            "make the lock of a clusterqueue",
            "make the slot",
            "journal: made",
            "event GpuctlBegun",
            "journal: Hold begun",
            "hold the queue",
            "journal: Hold done",
            "journal: Watch begun",
            "journal: Watch done",
            "journal: verified",
            "let the queue go",
            "journal: Hold undone",
            "journal: finished",
            "event GpuctlSucceeded",
            "remove the slot",
            "remove the lock of a clusterqueue",
        ),
        undo=(
            "take over the lock of a clusterqueue",
            "take over the slot",
            "journal: Hold begun",
            "journal: turned back",
            "event GpuctlUndoing",
            "let the queue go",
            "journal: Hold undone",
            "journal: undone",
            "event GpuctlReverted",
            "remove the slot",
            "remove the lock of a clusterqueue",
        ),
    ),
    SWITCH: Known(
        apply=(
            "make the lock of a deployment",
            "make the slot",
            "journal: made",
            "event GpuctlBegun",
            "journal: UseRecreate begun",
            "use Recreate",
            "journal: UseRecreate done",
            "journal: SetMode begun",
            "set the template",
            "journal: SetMode done",
            "journal: SeeMode done",
            "journal: verified",
            "set the strategy back",
            "journal: UseRecreate undone",
            "journal: finished",
            "event GpuctlSucceeded",
            "remove the slot",
            "remove the lock of a deployment",
        ),
        undo=(
            "take over the lock of a deployment",
            "take over the slot",
            "journal: SetMode begun",
            "journal: turned back",
            "event GpuctlUndoing",
            "set the template",
            "journal: SetMode undone",
            "set the strategy back",
            "journal: UseRecreate undone",
            "journal: undone",
            "event GpuctlReverted",
            "remove the slot",
            "remove the lock of a deployment",
        ),
    ),
    RESTART: Known(
        apply=(
            "make the lock of a deployment",
            "make the slot",
            "journal: made",
            "event GpuctlBegun",
            "journal: Restart begun",
            "restart",
            "journal: Restart done",
            "journal: TakenOver begun",
            "journal: TakenOver done",
            "journal: Proven done",
            "journal: finished",
            "event GpuctlSucceeded",
            "remove the slot",
            "remove the lock of a deployment",
        ),
        undo=(
            "take over the lock of a deployment",
            "take over the slot",
            "journal: Restart begun",
            "journal: turned back",
            "event GpuctlUndoing",
            "journal: Restart undone",
            "journal: undone",
            "event GpuctlReverted",
            "remove the slot",
            "remove the lock of a deployment",
        ),
    ),
}
"""The write calls of each as they were when this was written. That they are still so is tried with all."""

COMMON: Final = (
    *("make ", "take over ", "remove ", "event "),
    *("journal: made", "journal: turned back", "journal: finished", "journal: undone"),
)
COURTESIES: Final = ("event ", "remove ")  # a run goes on without them: so all may be refused to one
SHARES: Final = {LIMIT: 3, HOLD: 2, SWITCH: 3, RESTART: 1}  # over which the writes are spread, as in cases.py
WAYS: Final = ((False, False), (True, True), (True, False), (False, True))  # to be killed: after it, and back
SUBSET: Final = (
    "queue-limit: kill -9, then undo: after set the limit",
    "flavor-hold: kill -9, then resume: after hold the queue",
    "vllm-switch-mode: kill -9, then undo: after set the template",
    "vllm-switch-mode: 403 at a write: set the strategy back",
    "kueue-restart: kill -9, then resume: after restart",
)


def all_cases(known: Mapping[str, Known] = USUAL) -> list[Case[Player]]:
    """Those of all runbooks."""
    turned = {each.book: each.turned for each in PLACES}
    return [
        replace(case, book=book)
        for book, writes in known.items()
        for case in _of_one(book, writes, turned[book])
    ]


def subset() -> list[Case[Player]]:
    """Those that are played each time."""
    return [each for each in all_cases() if str(each) in SUBSET]


def _of_one(book: str, known: Known, turned: str) -> Iterator[Case[Player]]:
    for number, at in enumerate(known.apply):
        for after, back in _ways(book, at, turned, number):
            yield a_kill(at, after=after, back=back)
    own = tuple(each for each in known.undo if _is_own(book, each))
    for at in own:
        for after in (False, True):
            yield a_killed_undo(at, after=after, turned=turned)
    courtesies = tuple(each for each in known.apply if book == RESTART and each.startswith(COURTESIES))
    yield from refusals(Known(tuple(each for each in known.apply if each not in courtesies), own), turned)
    if courtesies:
        yield Case(f"{HOPELESS} at a write", ", ".join(courtesies), fault_at(HOPELESS, courtesies))
    yield from passing(known, SHARES[book], SHARES[book])


def _ways(book: str, at: str, turned: str, number: int) -> Sequence[tuple[bool, bool]]:
    """Of a restart, which has one target to be played on, all ways at the restart alone."""
    all_ways = at == turned if book == RESTART else _is_own(book, at)
    return WAYS if all_ways else [WAYS[number % len(WAYS)]]


def _is_own(book: str, at: str) -> bool:
    """Whether it is tried with this runbook in all ways."""
    return book == LIMIT or not at.startswith(COMMON)
