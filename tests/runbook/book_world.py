"""A cluster in memory in which a whole runbook runs, with somebody who plays the controllers; and the matrix
of kills that each runbook has to stand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuctl.facts.fact import Argument, Fact, rules
from gpuctl.facts.gather import Facts, gather
from gpuctl.facts.state import Reason, Unknown
from gpuctl.runbook.conduct import Ending, begin, go_on
from gpuctl.runbook.look import Look
from gpuctl.runbook.plan import TargetPlan
from gpuctl.runbook.planning import Task
from gpuctl.runbook.records import Outcome, Reached, Standing
from gpuctl.runbook.writer import WriteFailed
from tests.memory import MemoryReader
from tests.runbook.little import NAMESPACE, Hands, Killed, World, an_order, dies, moments
from tests.runbook.memory_writer import Call

Object = dict[str, Any]
STATE: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "uid": "u-ns"}}


@dataclass
class BookWorld(World):
    """The cluster of one runbook. `reader` are settings of the MemoryReader; `reacts` plays the controllers
    after each write, and before each look."""

    target: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    reader: Mapping[str, Any] = field(default_factory=dict)
    reacts: Callable[[list[Object], Call | None], None] = lambda _items, _call: None

    def _schedules(self, call: Call) -> None:
        self.reacts(self.items, call)

    def look_with(self, arguments: Mapping[Argument[Any], Any]) -> Look:
        def look(facts: Iterable[Fact[Any]]) -> Facts:
            with self.lock:
                self.reacts(self.items, None)
                return gather(facts, MemoryReader(self.items, **self.reader), arguments)

        return look

    def task(self, target: str = "", **options: Any) -> Task:
        return Task(self.book, target or self.target, {**self.options, **options}, self.policy, NAMESPACE)

    def of(self, kind: str) -> list[Object]:
        """The objects of a kind. Of ConfigMaps those that are journals."""
        found = super().of(kind)
        return [each for each in found if kind != "ConfigMap" or "run.json" in each.get("data", {})]

    def planned(self, **options: Any) -> TargetPlan:
        """The plan for the target."""
        return self.plan(self.target, **options)

    def against(self, guard: str = "", /, **options: Any) -> list[str]:
        """What speaks against it: all of it, or what one guard says."""
        return [each.message for each in self.planned(**options).blockers if guard in ("", each.guard)]

    def start(self, hands: Hands | None = None) -> Ending:
        """Applies the plan for the target, in a process with these hands."""
        return begin(self.task(), an_order(), self.planned(), self.crew(hands), "r1")

    def continued(self, hands: Hands | None = None, *, back: bool = False) -> Ending:
        """Goes on with the run, or takes it back."""
        return go_on(self.run(), self.task(), self.crew(hands), back=back)


Make = Callable[[], BookWorld]
Look_at = Callable[[BookWorld], None]


def writes(make: Make) -> int:
    """How many writes a run is, from begin to end."""
    world = make()
    hands = Hands(world)
    ending = world.start(hands)
    assert (ending.outcome, ending.left) == (Outcome.SUCCEEDED, False), ending
    return hands.written


def killed_anywhere(make: Make, done: Look_at, undone: Look_at) -> None:
    """Kills the run before and after each write; then resumes it, or takes it back."""
    for at, after in moments(writes(make)):
        for back in (False, True):
            world = make()
            _killed(world, at, after=after)
            _gone_on(world, done, undone, back=back)


def killed_on_the_way_back(make: Make, done: Look_at, undone: Look_at) -> None:
    """Kills the run where its last step is begun, and the undo before and after each of its writes."""
    for at, after in moments(writes(make)):
        last, number = 0, 0
        while number <= last:
            for later in (False, True):
                world = make()
                _killed(world, at, after=after)
                if not _unfinished(world):
                    break
                hands = Hands(world, **dies(number, after=later))
                try:
                    world.continued(hands, back=True)
                except Killed:
                    last = max(last, number + 1)
                _gone_on(world, done, undone, back=True)
            number += 1


def disturbed_anywhere(make: Make, done: Look_at, undone: Look_at) -> None:
    """Lets each write fail once, before it is carried out or with its answer lost: the run gets over it, or
    has not begun, or waits for a person and is then resumed."""
    for at, after in moments(writes(make)):
        world = make()

        def strike(number: int, wanted: int = at) -> None:
            if number == wanted:
                raise WriteFailed(Unknown(Reason.TIMEOUT, "no answer in time"))

        ending = world.start(Hands(world, **{"after" if after else "before": strike}))
        if ending.left:
            ending = world.continued()
        if ending.outcome is Outcome.SUCCEEDED:
            done(world)
        else:
            assert not ending.left, ending
            undone(world)


def permitted(world: BookWorld) -> None:
    """What the steps of the plan read and write is among the permissions that the runbook says it takes."""
    book = world.book
    steps = [book.step(each.step) for each in world.planned().steps]
    assert steps
    for step in steps:
        assert step.rules <= book.rules, step.says
        assert rules(*step.needs) <= book.reads, step.says


def _killed(world: BookWorld, at: int, *, after: bool) -> None:
    try:
        world.start(Hands(world, **dies(at, after=after)))
    except Killed:
        return


def _unfinished(world: BookWorld) -> bool:
    run = world.journals.get("r1")
    return run is not None and run.state is Standing.UNFINISHED and not run.verified


def _gone_on(world: BookWorld, done: Look_at, undone: Look_at, *, back: bool) -> None:
    run = world.journals.get("r1")
    if run is None:  # nothing but a lock may be left
        undone(world)
        return
    if run.state is Standing.UNFINISHED:
        back = back and not run.verified
        ending = world.continued(back=back)
        assert (ending.outcome, ending.left) == (
            Outcome.REVERTED if back else Outcome.SUCCEEDED,
            False,
        ), ending
    else:
        back = run.state is Standing.UNDONE
    assert set(world.reached()) <= (
        {Reached.UNDONE, Reached.WAITING} if back else {Reached.DONE, Reached.UNDONE}
    )
    (undone if back else done)(world)
