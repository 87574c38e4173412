"""The end of a run: nothing is waited for beyond it, whatever a server, a proxy or a resolver does."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from threading import Thread
from typing import Any, TypeVar

from gpuctl.facts.state import NotKnown, Reason, Unknown

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment `seconds` after the run's start. `end` is on the monotonic clock."""

    seconds: float
    end: float

    @staticmethod
    def after(seconds: float) -> Deadline:
        """The moment so many seconds from now."""
        return Deadline(seconds, time.monotonic() + seconds)

    @property
    def left(self) -> float:
        """Seconds until then, never below zero."""
        return max(0.0, self.end - time.monotonic())

    def sooner(self, seconds: float | None) -> Deadline:
        """This deadline, or the one so many seconds from now if that is earlier."""
        if seconds is None or seconds >= self.left:
            return self
        return Deadline.after(seconds)

    def passed(self, what: str) -> NotKnown:
        """What to raise when it has come. `what` names the thing that was waited for."""
        return NotKnown(Unknown(Reason.TIMEOUT, f"not finished within {self.seconds:g} s", what))

    def first_of(self, what: str, *futures: Future[Any]) -> None:
        """Waits until one of them is done. Raises `NotKnown` when the deadline comes first."""
        if not wait(futures, self.left, FIRST_COMPLETED).done:
            raise self.passed(what)

    def result(self, what: str, future: Future[T]) -> T:
        """Its result, or `NotKnown` when the deadline comes first."""
        self.first_of(what, future)
        return future.result()


def in_background(work: Callable[[], T]) -> Future[T]:
    """Starts the work in a thread that may be abandoned: a blocked one holds up neither run nor exit."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except Exception as error:  # noqa: BLE001 - handed on to whoever asks for the result
            future.set_exception(error)

    Thread(target=run, daemon=True, name="gpuctl-request").start()
    return future
