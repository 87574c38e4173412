"""Series of numbers over time, as Prometheus has them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from itertools import pairwise
from typing import TypeAlias

Labels: TypeAlias = tuple[tuple[str, str], ...]  # sorted by name
Points: TypeAlias = tuple[tuple[datetime, float], ...]  # the oldest first


def labels(found: Mapping[str, str]) -> Labels:
    """Labels in the order in which they are compared."""
    return tuple(sorted(found.items()))


def increase(points: Points) -> float:
    """How much a counter has counted; it starts at zero again when its process does."""
    steps = pairwise(each for _, each in points)
    return sum(after - before if after >= before else after for before, after in steps)
