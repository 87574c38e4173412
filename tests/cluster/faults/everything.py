"""Which cases there are, and which of them are played each time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeVar

from .cases import Case, Known, cases
from .disturbances import disturbances
from .matrix import Result
from .stage import Scene

C = TypeVar("C", bound=Case[Any])

SUBSET = (
    "kill -9, then resume: before cordon",
    "kill -9, then resume: after evict db",
    "kill -9, then undo: after set the configuration",
    "kill -9, then resume: after uncordon",
    "undo killed, then resumed: after set the configuration",
    "Ctrl-C: at set the configuration, then undo",
    "SIGSTOP, another resumes, SIGCONT: before set the configuration",
    "403 at a write: evict web",
    "403 at a write: journal: Drain done",
    "500 at reads: a tenth of them once the run has begun, seed 0",
    "pods and budgets: a new GPU pod bound behind the cordon",
    "pods and budgets: a StatefulSet pod of the same name on another node",
    "others at work: a cordon between intent and act",
    "others at work: two operators at once",
    "the node: replaced under the same name",
    "the plan: edited",
    "MIG manager: wedged",
)


USUAL = Known(
    apply=(
        "make the node's lock",
        "make the slot",
        "journal: made",
        "event GpuctlBegun",
        "journal: Cordon begun",
        "cordon",
        "journal: Cordon done",
        "journal: Drain begun",
        "evict db",
        "evict web",
        "journal: Drain done",
        "journal: Idle done",
        "journal: SetConfig begun",
        "set the configuration",
        "journal: SetConfig done",
        "journal: Follow begun",
        "journal: Follow done",
        "journal: Settled done",
        "journal: Verify done",
        "journal: VerifyAgain done",
        "journal: verified",
        "uncordon",
        "journal: Cordon undone",
        "journal: finished",
        "event GpuctlSucceeded",
        "remove the slot",
        "remove the node's lock",
    ),
    undo=(
        "take over the node's lock",
        "take over the slot",
        "journal: SetConfig begun",
        "journal: turned back",
        "event GpuctlUndoing",
        "set the configuration",
        "take the mark away",
        "journal: SetConfig undone",
        "journal: Idle undone",
        "journal: Drain undone",
        "uncordon",
        "journal: Cordon undone",
        "journal: undone",
        "event GpuctlReverted",
        "remove the slot",
        "remove the node's lock",
    ),
)
"""The write calls as they were when this was written. That they are still so is tried with everything."""


def everything(known: Known) -> list[Case[Scene]]:
    """All cases."""
    return [*disturbances(), *cases(known)]


def in_turn(cases: Sequence[C]) -> list[C]:
    """The first of each group, then the second ones: so a mistake is seen early."""
    seen: Counter[tuple[str, str]] = Counter()
    order = []
    for each in cases:
        order.append((seen[each.book, each.group], each))
        seen[each.book, each.group] += 1
    return [each for _, each in sorted(order, key=lambda pair: pair[0])]


def subset() -> list[Case[Scene]]:
    """Those that are played each time."""
    return [each for each in everything(USUAL) if str(each) in SUBSET]


def told(result: Result) -> None:
    """One line, and what is wrong."""
    print(f"{result.seconds:6.1f} s  {': '.join(filter(None, result.key))}: {result.outcome}", flush=True)
    if result.wrong:
        print(result.wrong, flush=True)
