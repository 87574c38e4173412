"""Runs gpuctl in this process, and lets something happen to it at one of its write calls.

    python -m tests.cluster.faults.strike ORDER gpuctl's arguments…

The program is the real one, and so are the signals it gets and the requests it sends. What an API server does
wrong is done by a proxy, which the program takes for its API server.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from tests.cluster.bed.faultproxy import (
    Answer,
    Conflict,
    Dropped,
    Exchange,
    FaultProxy,
    Forbidden,
    InternalError,
    Request,
    Stalled,
    TooManyRequests,
)

from .writes import name_of

SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "interrupt": signal.SIGINT}
SILENCE = 60  # seconds: longer than any client waits


class Order(msgspec.Struct, frozen=True, omit_defaults=True):
    """What happens.

    `what`: a signal or a fault; `at`: at these writes, each once; `after`: when it is answered, not before it
    is sent; `share`: of the reads, by this `seed`, in place of writes; `begun`: only once there is a journal;
    `clock`: how many seconds the clock of whoever holds locks is wrong.
    """

    log: str
    what: str = ""
    at: tuple[str, ...] = ()
    after: bool = False
    share: float = 0.0
    seed: int = 0
    begun: bool = False
    clock: float = 0.0

    def text(self) -> str:
        """For the command line."""
        return msgspec.json.encode(self).decode()


@dataclass
class Diary:
    """What was written, and what happened: one line for each."""

    order: Order
    left: set[str] = field(init=False)
    mutex: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.left = set(self.order.at)

    def strikes(self, name: str) -> bool:
        """Whether it is to happen at this write; notes the write."""
        with self.mutex:
            self.say(f"write {name}")
            if name not in self.left:
                return False
            self.left.discard(name)
            self.say(f"struck {name}")
            return True

    def say(self, line: str) -> None:
        """On the disk before anything else can happen."""
        with Path(self.order.log).open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")


# Signals


def raised(number: signal.Signals) -> None:
    """To this thread where it must not go on for even a moment: others may take long to hear it."""
    if number == signal.SIGSTOP:
        signal.pthread_kill(threading.get_ident(), number)
    else:
        os.kill(os.getpid(), number)


def signalled(diary: Diary) -> None:
    """From now on a signal meets the program at these writes."""
    from gpuctl.cluster.connection import Connection

    exchange: Callable[..., Any] = Connection._exchange
    order = diary.order

    def struck(connection: Any, session: Any, request: Any, *rest: Any) -> Any:
        name = name_of(request.method, request.path, request.body or b"")
        now = bool(name) and diary.strikes(name)
        if now and not order.after:
            raised(SIGNALS[order.what])
        answer = exchange(connection, session, request, *rest)
        if now and order.after:
            raised(SIGNALS[order.what])
        return answer

    Connection._exchange = struck  # type: ignore[method-assign, assignment]


# Faults of an API server


@dataclass(frozen=True)
class CarriedOut(Answer):
    """The API server does it; of its answer nothing arrives."""

    then: Answer

    def give(self, exchange: Exchange) -> None:
        exchange.fetch()
        self.then.give(exchange)


ANSWERS: dict[str, Answer] = {
    "403": Forbidden(),
    "409": Conflict(),
    "429": TooManyRequests(1),
    "500": InternalError(),
    "timeout": Stalled(SILENCE),
    "reset": Dropped(),
}


class Striking(FaultProxy):
    """Answers writes by their names, or a share of the reads."""

    def __init__(self, kubeconfig: Path, diary: Diary) -> None:
        self._diary = diary
        self._chance = random.Random(diary.order.seed)
        self._counts = not diary.order.begun
        super().__init__(kubeconfig)

    def answer_to(self, request: Request) -> Answer | None:
        order = self._diary.order
        answer = ANSWERS[order.what]
        name = name_of(request.verb, request.path, request.body)
        if name:
            self._counts = self._counts or name == "journal: made"
            return self._carried(answer) if self._diary.strikes(name) else None
        with self._diary.mutex:
            if self._counts and order.share and request.verb == "GET" and self._chance.random() < order.share:
                self._diary.say(f"struck GET {request.path}")
                return answer
        return None

    def _carried(self, answer: Answer) -> Answer:
        return CarriedOut(answer) if self._diary.order.after else answer


def with_a_wrong_clock(seconds: float) -> None:
    """Locks are stamped by this clock."""
    from gpuctl.runbook import lock

    def now() -> str:
        return (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    lock._now = now


def main() -> None:
    """Runs gpuctl with the rest of the arguments."""
    from gpuctl.cli.main import main as program

    order = msgspec.json.decode(sys.argv[1], type=Order)
    sys.argv = ["gpuctl", *sys.argv[2:]]
    diary = Diary(order)
    if order.clock:
        with_a_wrong_clock(order.clock)
    if order.what in ANSWERS:
        with Striking(Path(os.environ["KUBECONFIG"]), diary) as proxy:
            os.environ["KUBECONFIG"] = str(proxy.kubeconfig)
            program()
        return
    signalled(diary)
    program()


if __name__ == "__main__":
    main()
