"""Whether a backlog grows, from counts over time. A burst that then drains, or stands, is no growth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TypeAlias

Count: TypeAlias = tuple[datetime, float]

LEAST = 3  # counts, below which nothing can be told
_PARTS = 3
LEAST_OVER_HOURS = LEAST * _PARTS


@dataclass(frozen=True, slots=True)
class Growth:
    """How a backlog rose: from, to, over how long."""

    first: float
    last: float
    over: timedelta


def growth(counts: Sequence[Count]) -> Growth | None:
    """The rise of a backlog that never falls and rises early as well as late; None for everything else.

    One burst rises once, and a line that drains falls; both are left alone.
    """
    values = [value for _, value in counts]
    if len(values) < LEAST or any(after < before for before, after in pairwise(values)):
        return None
    third = max(1, (len(values) - 1) // _PARTS)
    early, late = values[third] - values[0], values[-1] - values[-1 - third]
    if early <= 0 or late <= 0:
        return None
    return Growth(values[0], values[-1], counts[-1][0] - counts[0][0])


def long_growth(counts: Sequence[Count], admitted: float) -> Growth | None:
    """The rise of a backlog over hours, in which small falls happen: its thirds rise one above the other, it
    ends near its top, and fewer were admitted than came on top."""
    values = [value for _, value in counts]
    if len(values) < LEAST_OVER_HOURS:
        return None
    size = len(values) // _PARTS
    means = [sum(part) / len(part) for part in (values[:size], values[size:-size], values[-size:])]
    top = max(values)
    rises = means[0] < means[1] < means[2] and values[-1] > values[0] and values[-1] >= 0.9 * top
    if not rises or admitted >= values[-1] - values[0]:
        return None
    return Growth(values[0], values[-1], counts[-1][0] - counts[0][0])
