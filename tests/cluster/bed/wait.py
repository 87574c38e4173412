"""Waiting for what a cluster does in its own time."""

import os
import time
from collections.abc import Callable


class TooLong(AssertionError):
    """What was waited for did not come in time."""


def wait(condition: Callable[[], object], timeout: float, what: str, every: float = 0.2) -> None:
    """Until the condition is true; `what` names it in the message when it isn't by then."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise TooLong(f"not within {timeout:g} s: {what}")
        time.sleep(every)


def crowding() -> float:
    """How many want each processor, and 1 at least: everybody's work takes so many times longer."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
