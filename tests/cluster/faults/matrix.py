"""All cases, many at once, each on a node of its own, and what came of each."""

from __future__ import annotations

import queue
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tests.cluster.bed import Bed

from .cases import Case, Known, clean, clean_undo
from .player import NotReached, Player
from .rolling import rolling
from .stage import Scene, Slot, Stage, staged

SLOTS = 20
NOT_REACHED = "not reached"
ROLLED = "a rolling change"
S = TypeVar("S", bound=Player)


@dataclass(frozen=True)
class Result:
    """What came of a case: in a word, and what is wrong with it."""

    group: str
    name: str
    outcome: str
    wrong: str = ""
    seconds: float = 0.0
    single: bool = False
    book: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.book, self.group, self.name)


@dataclass
class Matrix:
    """A stage whose nodes play cases, each one after the other."""

    stage: Stage
    known: Known
    free: queue.SimpleQueue[Slot]

    def results(
        self, cases: Iterable[Case[Scene]], told: Callable[[Result], None] = lambda _: None
    ) -> list[Result]:
        """Plays them all."""
        with ThreadPoolExecutor(len(self.stage.slots)) as pool:
            going = [pool.submit(self.result, case) for case in cases]
            for done in as_completed(going):
                told(done.result())
        return [each.result() for each in going]

    def rolled(self) -> Result:
        """A rolling change over all nodes."""
        began, outcome, wrong = time.monotonic(), "", ""
        try:
            outcome = rolling(self.stage)
        except Exception as error:
            wrong = f"{error}\n{traceback.format_exc(-3)}"
        return Result(ROLLED, "", outcome, wrong, round(time.monotonic() - began, 1))

    def result(self, case: Case[Scene]) -> Result:
        """Plays one on the next free node."""
        slot = self.free.get()
        try:
            return played(Scene(self.stage, slot, str(case)), case)
        finally:
            self.free.put(slot)


def played(scene: S, case: Case[S]) -> Result:
    """What comes of it. A target on which something is wrong is mended for the next one."""
    began, outcome, wrong = time.monotonic(), "", ""
    try:
        scene.set_up()
        outcome = case.play(scene)
    except NotReached:
        outcome = NOT_REACHED
    except Exception as error:
        said = "".join(traceback.format_exception(error)[-3:])
        words = scene.programs[-1].said[-600:] if scene.programs else ""
        outcome, wrong = "wrong", f"{error or said}\n{said}\n--- {scene.place}, gpuctl said:\n{words}"
    return _cleared(scene, case, outcome, wrong, began)


def _cleared(scene: Player, case: Case[Any], outcome: str, wrong: str, began: float) -> Result:
    try:
        scene.clear()
        if wrong or outcome == NOT_REACHED:
            scene.mend()
    except Exception as error:
        wrong = wrong or f"it could not be cleared: {error!r}"
    took = round(time.monotonic() - began, 1)
    return Result(case.group, case.name, outcome, wrong, took, case.single, case.book)


@contextmanager
def matrix(bed: Bed, slots: int = SLOTS, known: Known | None = None) -> Iterator[Matrix]:
    """A stage, and what a run writes there when nothing goes wrong, unless that is known."""
    with tempfile.TemporaryDirectory() as folder, staged(bed, Path(folder), slots) as stage:
        free: queue.SimpleQueue[Slot] = queue.SimpleQueue()
        for slot in stage.slots:
            free.put(slot)
        yield Matrix(stage, known or _known(stage), free)


def _known(stage: Stage) -> Known:
    first, second = stage.slots[:2]
    with ThreadPoolExecutor(2) as pool:
        return Known(*pool.map(lambda each: _learned(stage, *each), ((first, clean), (second, clean_undo))))


def _learned(stage: Stage, slot: Slot, learn: Callable[[Scene], tuple[str, ...]]) -> tuple[str, ...]:
    scene = Scene(stage, slot, learn.__name__)
    scene.set_up()
    try:
        return learn(scene)
    finally:
        scene.clear()
