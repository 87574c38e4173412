"""Puts the lines of a log together to attempts to start: which line belongs to which, and to which rank."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from gpuctl.vllm import fields
from gpuctl.vllm.failures import Failure
from gpuctl.vllm.lines import Line
from gpuctl.vllm.log import EngineLog, Load, Quote, Rank, Sign, Start

LONGEST_EVIDENCE: Final = 240
MOST_QUOTES: Final = 12  # of one start
OPENING, WEIGHTS, MEMORY, SERVING = range(4)


@dataclass(slots=True)
class Attempt:
    values: dict[str, object] = field(default_factory=dict)
    ranks: dict[str, dict[str, float]] = field(default_factory=dict)
    signs: set[Sign] = field(default_factory=set)
    quotes: list[Quote] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    seen: set[tuple[str, str]] = field(default_factory=set)  # process and key of what opened it
    stage: int = -1
    workers: set[str] = field(default_factory=set)

    def restarted_by(self, line: Line, stage: int, key: str) -> bool:
        if stage > WEIGHTS or (self.stage < WEIGHTS and not self.failures):
            return False
        if self.failures:
            return True
        again = (line.process, key) in self.seen
        return again and (self.stage >= MEMORY or stage == OPENING)

    def note(self, line: Line, stage: int, key: str) -> None:
        self.stage = max(self.stage, stage)
        if stage <= WEIGHTS:
            self.seen.add((line.process, key))

    def set(self, **values: object) -> None:
        self.values.update({name: value for name, value in values.items() if value not in (None, "")})

    def rank(self, line: Line, **values: float | None) -> None:
        name = rank_name(line)
        mine = self.ranks.setdefault(name, {})
        mine.update({key: value for key, value in values.items() if value is not None})

    def show(self, line: Line, sign: Sign | None = None) -> None:
        if sign:
            self.signs.add(sign)
        if len(self.quotes) < MOST_QUOTES or (sign and all(each.sign is not sign for each in self.quotes)):
            self.quotes.append(Quote(fields.reduced(line.message)[:LONGEST_EVIDENCE], line.at, sign))

    def start(self) -> Start:
        values = dict(self.values)
        for name, number in _sizes(self.workers).items():
            values.setdefault(name, number)
        worst = max(self.failures, key=lambda each: each.kind.telling, default=None)
        return Start(
            signs=frozenset(self.signs),
            ranks=tuple(Rank(name, **self.ranks[name]) for name in sorted(self.ranks)),
            failure=worst,
            quotes=tuple(self.quotes),
            **values,  # type: ignore[arg-type]
        )


def rank_name(line: Line) -> str:
    """Which worker said it. An engine that has no workers of its own is itself the rank."""
    if line.process.startswith(("Worker", "VllmWorker", "RayWorker")):
        name = line.process.removeprefix("VllmWorkerProcess").removeprefix("RayWorkerWrapper")
        return name or f"pid={line.pid}"
    return line.process if line.process.startswith("EngineCore") and line.process != "EngineCore" else ""


_PLACE: Final = re.compile(r"(TP|PP|DP)(\d+)")
_PARALLEL: Final = {"TP": "tensor_parallel", "PP": "pipeline_parallel", "DP": "data_parallel"}


def _sizes(workers: set[str]) -> dict[str, int]:
    """How parallel an engine is, by its workers' names, where no configuration says so."""
    sizes: dict[str, int] = {}
    for worker in workers:
        for dimension, place in _PLACE.findall(worker):
            sizes[_PARALLEL[dimension]] = max(sizes.get(_PARALLEL[dimension], 0), int(place) + 1)
    unnamed = [worker for worker in workers if worker.startswith("VllmWorker")]
    return sizes or ({"tensor_parallel": len(unnamed)} if len(unnamed) > 1 else {})


@dataclass(slots=True)
class Collected:
    starts: list[Attempt] = field(default_factory=list)
    load: Load | None = None
    peak: float | None = None
    steady: bool = False
    first: datetime | None = None
    last: datetime | None = None

    def attempt(self, line: Line, stage: int, key: str = "") -> Attempt:
        """The attempt a line belongs to: a new one if the line begins what was begun already."""
        if not self.starts or self.starts[-1].restarted_by(line, stage, key):
            self.starts.append(Attempt())
        current = self.starts[-1]
        current.note(line, stage, key)
        return current

    def result(self) -> EngineLog:
        starts = tuple(attempt.start() for attempt in self.starts)
        return EngineLog(starts, self.load, self.peak, self.steady, self.first, self.last)
