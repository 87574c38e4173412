"""Makes plans: reads, evaluates every guard, computes every step. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec

from gpuctl.audit.policy import POLICY, Policy
from gpuctl.facts.fact import Argument
from gpuctl.facts.gather import Facts
from gpuctl.facts.own import STATE_NAMESPACE
from gpuctl.facts.state import Known, State
from gpuctl.nvidia.facts import SCOPE
from gpuctl.nvidia.scope import Scope
from gpuctl.runbook.guard import Blocker, Guard
from gpuctl.runbook.plan import ALLOWED, PlannedStep, TargetPlan
from gpuctl.runbook.records import Bounds
from gpuctl.runbook.runbook import Runbook
from gpuctl.runbook.step import Step
from gpuctl.runbook.target import OPTIONS, SELF, TARGET, Self
from gpuctl.runbook.windows import open_until


@dataclass(frozen=True, slots=True)
class Task:
    """What a run is about, before anything is known of the cluster."""

    runbook: Runbook
    target: str
    options: Mapping[str, Any]
    policy: Policy
    namespace: str
    run: str = ""
    allowed: Bounds | None = None

    @property
    def arguments(self) -> Mapping[Argument[Any], Any]:
        """What guards and steps are given."""
        name = self.target
        return {
            TARGET: name,
            OPTIONS: self.options,
            POLICY: self.policy,
            STATE_NAMESPACE: self.namespace,
            SELF: Self(self.run),
            ALLOWED: self.allowed,
            SCOPE: Scope((name,)),
            **self.runbook.arguments(name, self.options),
        }


def plan_of(task: Task, facts: Facts) -> TargetPlan:
    """The plan for one target. Whatever of it can't be computed is a blocker."""
    book = task.runbook
    parts = _Parts(facts, book)
    blockers = (*_blockers(book, facts), *parts.gaps)
    notes = dict.fromkeys(note for guard in book.guards for note in guard.notes(facts))
    chosen = {name for name, value in task.options.items() if value is True}
    overridden = tuple(each for each in blockers if _flag(each) in chosen)
    return TargetPlan(
        target=task.target,
        target_uid=parts.uid,
        preconditions=dict(parts.preconditions),
        bounds=parts.bounds,
        effects=parts.effects,
        notes=tuple(notes),
        blockers=tuple(each for each in blockers if each not in overridden),
        overridden=overridden,
        steps=tuple(planned(step) for step in parts.steps),
    )


def in_the_way(task: Task, guards: Iterable[Guard], facts: Facts) -> tuple[Blocker, ...]:
    """What speaks against going on with a run that stood still, and was not overridden."""
    chosen = {name for name, value in task.options.items() if value is True}
    blockers = (each for guard in guards for each in guard.blockers(facts))
    return tuple(each for each in blockers if _flag(each) not in chosen)


def _flag(blocker: Blocker) -> str:
    return blocker.override.removeprefix("--").replace("-", "_")


def _blockers(book: Runbook, facts: Facts) -> Iterator[Blocker]:
    for guard in book.guards:
        yield from guard.blockers(facts)


def planned(step: Step) -> PlannedStep:
    """A step as a plan shows it and a journal holds it."""
    return PlannedStep(
        says=step.says,
        undoes=step.undoes,
        seconds=step.limit,
        held=step.held,
        step=msgspec.to_builtins(step),
    )


class _Parts:
    """What a runbook computes for a plan, with a blocker for each part that could not be computed."""

    def __init__(self, facts: Facts, book: Runbook) -> None:
        self.gaps: list[Blocker] = []
        self.uid: str = self._part("which object the target is", facts.state(book.target_uid), "")
        self.preconditions: Mapping[str, str] = self._part(
            "what the plan rests on", facts.state(book.preconditions), {}
        )
        self.bounds: Bounds = self._part("whom it concerns", facts.state(book.bounds), Bounds())
        self.effects: tuple[str, ...] = self._part("what it does", facts.state(book.effects), ())
        self.steps: Sequence[Step] = self._part("its steps", facts.state(book.steps), ())

    def _part(self, what: str, state: State[Any], default: Any) -> Any:
        if isinstance(state, Known):
            return state.value
        message = f"it can't be told {what}: {state}"
        if all(gap.message.partition(": ")[2] != str(state) for gap in self.gaps):
            self.gaps.append(Blocker(guard="plan", message=message))
        return default


def valid_until(policy: Policy, now: datetime, seconds: float | None) -> datetime:
    """Until when a plan may be applied: for so long, and not beyond the end of an open window."""
    length = (
        timedelta(minutes=policy.runbooks.valid_minutes) if seconds is None else timedelta(seconds=seconds)
    )
    end = open_until(policy.runbooks.windows, now)
    return now + length if end is None else min(end, now + length)
