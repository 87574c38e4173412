"""Interrupting a run: the first signal lets it finish what is begun, the second ends it at once."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from threading import Event, Thread
from types import FrameType
from typing import Final

from gpuctl.cli.border import INTERRUPTED

_HEARD: Final = b"gpuctl: interrupted: finishing what is begun; once more ends at once, in the middle of it\n"


@contextmanager
def stoppable() -> Iterator[Event]:
    """The event that the first Ctrl-C or SIGTERM sets, for as long as the block runs; and SIGHUP, which says
    that the terminal is gone, once or oftener. What was told to survive that (nohup) does."""
    stop = Event()
    heard: SimpleQueue[None] = SimpleQueue()
    signals = 0

    def listen() -> None:
        heard.get()
        stop.set()

    def interrupted(_signal: int, _frame: FrameType | None) -> None:
        """Sets the event from another thread: this one may be inside of the event's own lock."""
        nonlocal signals
        signals += 1
        if signals > 1:
            os._exit(INTERRUPTED)
        heard.put(None)
        with suppress(OSError, ValueError):  # a terminal that is gone hears nothing
            os.write(sys.stderr.fileno(), _HEARD)

    def hung_up(_signal: int, _frame: FrameType | None) -> None:
        heard.put(None)

    Thread(target=listen, daemon=True, name="gpuctl-signals").start()
    # The third is how an interruption comes that came just before, and got lost: see border.py.
    handlers = dict.fromkeys((signal.SIGINT, signal.SIGTERM, signal.SIGALRM), interrupted)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        handlers[signal.SIGHUP] = hung_up
    before = {each: signal.signal(each, handler) for each, handler in handlers.items()}
    try:
        yield stop
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        heard.put(None)
