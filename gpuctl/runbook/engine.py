"""Carries a run through its steps: look, act, verify; and back again.

The journal says where the run is and which way it goes; what *is* is looked at anew before everything that is
done. Nothing is done while the lock or a held step does not hold, and success is claimed after verification.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any, Final

from gpuctl.facts.fact import Fact
from gpuctl.facts.gather import Facts
from gpuctl.facts.state import Known, NotKnown, attempt
from gpuctl.runbook.heed import HeedfulWriter
from gpuctl.runbook.journal import Journal
from gpuctl.runbook.look import Look
from gpuctl.runbook.records import STOPPED, Direction, Outcome, Reached, Standing
from gpuctl.runbook.step import Step
from gpuctl.runbook.writer import Fenced, WriteFailed, Writer

TELL_EVERY: Final = 15.0  # seconds between two lines about the same wait
RECENT: Final = timedelta(minutes=5)  # for so long what was verified needs no other look before the release


class Ended(Exception):
    """The run stops here, with this outcome. It stays unfinished: somebody resumes or undoes it."""

    def __init__(self, outcome: Outcome, why: str) -> None:
        super().__init__(why)
        self.outcome = outcome
        self.why = why


@dataclass
class Engine:
    """One process at work on one run. `stop` is set by the first interruption: the write in flight is
    completed, and no other is begun. `limit`: seconds for everything."""

    steps: Sequence[Step]
    journal: Journal
    look: Look
    writer: Writer
    stop: Event
    tell: Callable[[str], None]
    target_uid: Fact[str]
    limit: float = 7200.0
    clock: Callable[[], float] = time.monotonic
    _end: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        self._end = self.clock() + self.limit

    def run(self) -> Outcome:
        """Goes the way the journal says, to its end. What stops it on the way is journaled.

        Raises Fenced when another process goes on with the run: then nothing more may be written.
        """
        try:
            if self.journal.run.direction is Direction.BACK:
                return self._back()
            return self._forward()
        except Ended as ended:
            return self._stopped(ended.outcome, ended.why)
        except WriteFailed as failed:  # of the journal: without it nothing may be done
            raise Ended(Outcome.FAILED, f"the journal can't be written: {failed}") from failed

    def _stopped(self, outcome: Outcome, why: str) -> Outcome:
        run = self.journal.run
        failed = outcome in (Outcome.FAILED, Outcome.TIMED_OUT) and run.direction is Direction.FORWARD
        told = {STOPPED: {"outcome": outcome.value, "why": why}} if failed else {}
        try:
            self.journal.note(outcome=outcome, why=why, result={**run.result, **told})
        except WriteFailed as failed:
            raise Ended(outcome, f"{why}; and the journal can't be written: {failed}") from failed
        return outcome

    # Forward

    def _forward(self) -> Outcome:
        held = [index for index, step in enumerate(self.steps) if step.held]
        if self.journal.run.verified and self._verified_long_ago():
            self._look_again()
        if not self.journal.run.verified:
            for index, step in enumerate(self.steps):
                self._complete(index, step)
            if held:  # from here on others may use the target again: resuming must not begin from the start
                self.journal.note(verified=True)
        for index in reversed(held):
            self._release(index)
        result = {name: each for name, each in self.journal.run.result.items() if name != STOPPED}
        self._finish(Standing.FINISHED, Outcome.SUCCEEDED, result=result)
        return Outcome.SUCCEEDED

    def _verified_long_ago(self) -> bool:
        ended = [each.ended_at for each in self.journal.run.steps if each.reached is Reached.DONE]
        last = max((each for each in ended if each), default=None)
        return last is None or not timedelta() <= datetime.now(UTC) - last <= RECENT

    def _look_again(self) -> None:
        """A run that stood still before its release: much may have come since. What is true no longer is left
        to whoever resumes or undoes it, as a run that is not verified."""
        again = StillTrue(steps=tuple(self.steps))

        def act(facts: Facts) -> bool:
            self._stuck(again.stuck(facts))
            return True

        try:
            self._until(again, [], act)
        except Ended as ended:
            if ended.outcome is Outcome.FAILED:
                self.journal.note(verified=False)
            raise

    def _complete(self, index: int, step: Step) -> None:
        done = self.journal.run.steps[index].reached is Reached.DONE
        if done and step.once:
            return
        if not done:
            self.tell(step.says)
        learned: dict[str, Any] = {}
        held = [each for each in self.steps[:index] if each.held]

        def act(facts: Facts) -> bool:
            if step.holds(facts):
                learned.update(step.learned(facts))
                return True
            self._stuck(step.stuck(facts))
            if self.journal.run.steps[index].reached is Reached.WAITING:
                self.journal.reached(index, reached=Reached.BEGUN, begun_at=datetime.now(UTC))
            step.act(facts, self._heeding(step))
            return False

        self._until(step, held, act)
        if not done:
            now = datetime.now(UTC)
            begun = self.journal.run.steps[index].begun_at or now
            self.journal.reached(index, learned, reached=Reached.DONE, begun_at=begun, ended_at=now)

    # Back

    def _back(self) -> Outcome:
        for index in reversed(range(len(self.steps))):
            self._undo(index, self.steps[index])
        self._finish(Standing.UNDONE, Outcome.REVERTED)
        return Outcome.REVERTED

    def _undo(self, index: int, step: Step) -> None:
        if self.journal.run.steps[index].reached not in (Reached.BEGUN, Reached.DONE):
            return
        # Where nothing is to be undone nothing has to hold: else whoever uncordons bars the way back.
        held = [each for each in self.steps[:index] if each.held] if step.undoes and not step.held else []
        self._take_back(index, step, held)

    def _release(self, index: int) -> None:
        """Undoes a held step at the end of a run that went well."""
        if self.journal.run.steps[index].reached is not Reached.UNDONE:
            self._take_back(index, self.steps[index], [])

    def _take_back(self, index: int, step: Step, held: Sequence[Step]) -> None:
        told = not step.undoes

        def act(facts: Facts) -> bool:
            nonlocal told
            if step.undone(facts):
                return True
            self._stuck(step.hampered(facts))
            if not told:  # what is undone already, or was handed over to somebody, is no news
                self.tell(step.undoes)
                told = True
            step.undo(facts, self._heeding(step))
            return False

        self._until(step, held, act)
        self.journal.reached(index, reached=Reached.UNDONE, ended_at=datetime.now(UTC))

    # Both ways

    def _until(self, step: Step, held: Sequence[Step], act: Callable[[Facts], bool]) -> None:
        """Looks and acts until `act` says that it is true. What fails or is not known on the way is tried
        again until the step's time is over."""
        start = self.clock()
        end = min(start + step.limit, self._end)
        needs = (self.target_uid, *dict.fromkeys(need for each in (*held, step) for need in each.needs))
        news = _News(self.tell, self.clock, start)
        while True:
            self._heed(step)
            facts = self.look(needs)
            obstacle = self._round(facts, held, act)
            if obstacle is None:
                return
            waiting = attempt(lambda: step.progress(facts))  # noqa: B023 - called at once
            doing = waiting.value if isinstance(waiting, Known) else ""
            news.of("; ".join(part for part in (doing, obstacle) if part))
            if self.clock() >= end:
                why = "; ".join(part for part in (doing, obstacle) if part)
                raise Ended(
                    Outcome.TIMED_OUT, f"not within {step.limit:g} s: {step.says}" + f" ({why})" * bool(why)
                )
            self.stop.wait(min(step.pause, max(0.0, end - self.clock())))

    def _round(self, facts: Facts, held: Sequence[Step], act: Callable[[Facts], bool]) -> str | None:
        """One look and one act. None once it is true; else what stood in the way, empty for nothing."""
        try:
            self._same_target(facts)
            for each in held:
                if not each.holds(facts):
                    raise Ended(Outcome.FAILED, f"no longer true, so somebody else is at work: {each.says}")
            return None if act(facts) else ""
        except NotKnown as gap:
            return str(gap.state)
        except WriteFailed as failed:
            if failed.hopeless:
                raise Ended(Outcome.FAILED, str(failed.state)) from failed
            return str(failed.state)

    def _heed(self, step: Step) -> None:
        if self.stop.is_set():
            raise Ended(Outcome.CANCELLED, f"interrupted at: {step.says}")

    def _heeding(self, step: Step) -> Writer:
        """A look may come true late: what follows it is not begun once the time for everything is over."""

        def heed() -> None:
            self._heed(step)
            if self.clock() >= self._end:
                raise Ended(Outcome.TIMED_OUT, f"not within {self.limit:g} s in all: {step.says}")

        return HeedfulWriter(self.writer, heed)

    def _same_target(self, facts: Facts) -> None:
        run = self.journal.run
        uid = facts[self.target_uid]
        if uid != run.target_uid:
            now = f"another object has its name, uid {uid}" if uid else "it does not exist any more"
            raise Ended(
                Outcome.FAILED, f"{run.target} is not what the run began with (uid {run.target_uid}): {now}"
            )

    def _stuck(self, why: str) -> None:
        if why:
            raise Ended(Outcome.FAILED, why)

    def _finish(self, state: Standing, outcome: Outcome, **more: Any) -> None:
        self.journal.note(state=state, outcome=outcome, why="", finished_at=datetime.now(UTC), **more)


class StillTrue(Step, frozen=True, kw_only=True):
    """What a run has verified and not released. Once a held step does not hold any more, be it by the release
    or by somebody else, others may use the target: then there is nothing to see to."""

    steps: tuple[Any, ...]

    @property
    def says(self) -> str:
        return "see that what was verified is still true"

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        return tuple(dict.fromkeys(need for each in self.steps for need in each.needs))

    def stuck(self, facts: Facts) -> str:
        if not all(each.holds(facts) for each in self.steps if each.held):
            return ""
        untrue = (each.says for each in self.steps if not (each.held or each.once or each.holds(facts)))
        first = next(untrue, "")
        return f"no longer true, although it was verified: {first}" if first else ""


@dataclass
class _News:
    """Says what is waited for when that changes, and again now and then."""

    tell: Callable[[str], None]
    clock: Callable[[], float]
    start: float
    last: str = ""
    told: float = float("-inf")

    def of(self, text: str) -> None:
        if text and (text != self.last or self.clock() - self.told >= TELL_EVERY):
            self.last, self.told = text, self.clock()
            self.tell(f"  {self.told - self.start:.0f} s: {text}")


__all__ = ["Ended", "Engine", "Fenced"]
