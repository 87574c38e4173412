"""The engine: look, act, verify, and back, with steps that do as a test says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any, ClassVar

import msgspec
import pytest

from gpuctl.facts.fact import Fact
from gpuctl.facts.gather import Facts
from gpuctl.facts.kinds import Ref
from gpuctl.facts.own import STATE_NAMESPACE
from gpuctl.facts.state import NotKnown, Reason, Unknown
from gpuctl.nvidia.objects import NodeView
from gpuctl.runbook import engine
from gpuctl.runbook.engine import Ended, Engine
from gpuctl.runbook.journal import Journal
from gpuctl.runbook.records import Direction, Outcome, Run, Standing
from gpuctl.runbook.step import Step
from gpuctl.runbook.target import NODE, TARGET, uid_of_the_node
from gpuctl.runbook.writer import Conflict, Fenced, Put, WriteFailed, Writer, pointer
from tests.runbook.little import NAMESPACE, Hands, World, recorded

NOW = datetime(2026, 11, 30, 10, tzinfo=UTC)
LATE = WriteFailed(Unknown(Reason.TIMEOUT, "no answer in time", "the patch"))
NO = WriteFailed(Unknown(Reason.FORBIDDEN, "nodes is forbidden", "the patch"), hopeless=True)


@dataclass
class Thing:
    """What a step is about. `act` and `undo` are plans of what happens at each call: None is done at once."""

    true: bool = False
    held: bool = False
    stuck: str = ""
    hampered: str = ""
    progress: str = ""
    acts: list[Exception | None] = field(default_factory=list)
    undos: list[Exception | None] = field(default_factory=list)
    slow: int = 0  # looks until what was done is true
    unknown: int = 0  # looks that tell nothing
    touched: bool = False


THINGS: dict[str, Thing] = {}
SAID: list[str] = []
HOOKS: dict[str, Callable[[], None]] = {}


class Do(Step, frozen=True, kw_only=True):
    pause: ClassVar[float] = 2.0
    seconds: ClassVar[float] = 60.0
    name: str

    @property
    def thing(self) -> Thing:
        return THINGS[self.name]

    @property
    def says(self) -> str:
        return f"do {self.name}"

    @property
    def undoes(self) -> str:
        return f"undo {self.name}"

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        return (NODE,)

    def holds(self, facts: Facts) -> bool:
        self._look()
        if self.thing.true and self.thing.slow:
            self.thing.slow -= 1
            return False
        return self.thing.true

    def _look(self) -> None:
        if self.thing.unknown:
            self.thing.unknown -= 1
            raise NotKnown(Unknown(Reason.TIMEOUT, "no answer in time", "the look"))

    def stuck(self, facts: Facts) -> str:
        return self.thing.stuck

    def progress(self, facts: Facts) -> str:
        return self.thing.progress

    def act(self, facts: Facts, writer: Writer) -> None:
        self._does("do", self.thing.acts)
        self.thing.true = True

    def undone(self, facts: Facts) -> bool:
        self._look()
        return not self.thing.touched

    def hampered(self, facts: Facts) -> str:
        return self.thing.hampered

    def undo(self, facts: Facts, writer: Writer) -> None:
        self._does("undo", self.thing.undos)
        self.thing.true = self.thing.touched = False

    def _does(self, what: str, plan: list[Exception | None]) -> None:
        SAID.append(f"{what} {self.name}")
        HOOKS.get(SAID[-1], lambda: None)()
        self.thing.touched = True
        failure = plan.pop(0) if plan else None
        if failure is not None:
            raise failure


class Hold(Do, frozen=True, kw_only=True):
    held: ClassVar[bool] = True


class Watch(Do, frozen=True, kw_only=True):
    """Only waits: what it waits for comes by itself, after `slow` looks."""

    def act(self, facts: Facts, writer: Writer) -> None:
        self._does("watch", [])
        self.thing.slow -= 1
        self.thing.true = self.thing.slow <= 0
        self.thing.touched = False


class Once(Do, frozen=True, kw_only=True):
    """What it did may be gone later; it keeps what it learned."""

    once: ClassVar[bool] = True

    def learned(self, facts: Facts) -> dict[str, Any]:
        return {self.name: "learned"}


class Quiet(Do, frozen=True, kw_only=True):
    """Has nothing to undo."""

    @property
    def undoes(self) -> str:
        return ""

    def undone(self, facts: Facts) -> bool:
        return True


class Mark(Do, frozen=True, kw_only=True):
    """Writes to the node, so many times in one round."""

    times: int = 1

    def act(self, facts: Facts, writer: Writer) -> None:
        for number in range(self.times):
            mark = pointer("metadata", "annotations", f"little.example/{self.name}-{number}")
            writer.patch(Ref(NodeView.of, "gpu-1"), "uid-of-gpu-1", [Put(mark, "yes")])
            HOOKS.get(f"do {self.name}", lambda: None)()
        self.thing.true = self.thing.touched = True


@dataclass
class Clock(Event):
    """Time that passes only by waiting."""

    now: float = 0.0
    interrupted_at: float = float("inf")
    waits: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def __call__(self) -> float:
        return self.now

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout or 0.0)
        self.now += timeout or 0.0
        if self.now >= self.interrupted_at:
            self.set()
        return self.is_set()


@dataclass
class Bench:
    """A run of these steps, and the process at work on it."""

    steps: tuple[Step, ...]
    world: World = field(default_factory=World)
    clock: Clock = field(default_factory=Clock)
    told: list[str] = field(default_factory=list)
    hands: Hands | None = None

    def __post_init__(self) -> None:
        THINGS.clear()
        SAID.clear()
        HOOKS.clear()
        THINGS.update({each.name: Thing() for each in self.steps if isinstance(each, Do)})
        self.journal.begin()

    @property
    def _first(self) -> Run:
        return Run(
            id="r1",
            runbook="bench",
            target="gpu-1",
            target_uid="uid-of-gpu-1",
            steps=recorded(*self.steps),
            started_at=NOW,
            updated_at=NOW,
            session="s1",
        )

    @property
    def journal(self) -> Journal:
        if not hasattr(self, "_journal"):
            arguments = {STATE_NAMESPACE: NAMESPACE}
            self.hands = Hands(self.world)
            self._journal = Journal(
                self._first, NAMESPACE, self.hands, self.world.look_with(arguments), lambda _: True
            )
        return self._journal

    def engine(self, limit: float = 7200.0) -> Engine:
        return Engine(
            steps=self.steps,
            journal=self.journal,
            look=self.world.look_with({TARGET: "gpu-1", STATE_NAMESPACE: NAMESPACE}),
            writer=Hands(self.world),
            stop=self.clock,
            tell=self.told.append,
            target_uid=uid_of_the_node,
            limit=limit,
            clock=self.clock,
        )

    def go(self, limit: float = 7200.0) -> Outcome:
        return self.engine(limit).run()

    def back(self) -> Outcome:
        self.journal.note(direction=Direction.BACK)
        return self.go()

    @property
    def run(self) -> Run:
        return self.world.run()

    def reached(self) -> dict[str, str]:
        """How far each step has come, as the journal in the cluster says."""
        return {
            step.says.partition(" ")[2]: at.value
            for step, at in zip(self.steps, self.world.reached(), strict=True)
        }


def bench(*names: str) -> Bench:
    """`!a`: held, `~a`: waits, `1a`: once, `-a`: nothing to undo."""
    kinds: dict[str, type[Do]] = {"!": Hold, "~": Watch, "1": Once, "-": Quiet}
    return Bench(tuple(kinds.get(name[0], Do)(name=name.lstrip("!~1-")) for name in names))


# Forward


def test_steps_in_order_and_held_ones_undone_in_reverse_at_the_end() -> None:
    it = bench("!lock", "!cordon", "drain", "change")
    assert it.go() is Outcome.SUCCEEDED
    assert SAID == ["do lock", "do cordon", "do drain", "do change", "undo cordon", "undo lock"]
    assert it.run.state is Standing.FINISHED
    assert it.run.outcome is Outcome.SUCCEEDED
    assert it.run.finished_at is not None
    assert it.reached() == {"lock": "undone", "cordon": "undone", "drain": "done", "change": "done"}


def test_what_is_true_already_is_not_done_and_counts() -> None:
    it = bench("a", "b")
    THINGS["a"].true = True
    assert it.go() is Outcome.SUCCEEDED
    assert SAID == ["do b"]
    assert it.run.steps[0].ended_at is not None


def test_begun_is_written_before_the_first_write_of_a_step_and_done_after_it_is_true() -> None:
    it = bench("a", "b")
    THINGS["a"].slow = 3
    seen: list[dict[str, str]] = []
    HOOKS["do a"] = lambda: seen.append(it.reached())
    HOOKS["do b"] = lambda: seen.append(it.reached())
    assert it.go() is Outcome.SUCCEEDED
    assert seen[0] == {"a": "begun", "b": "waiting"}
    assert seen[-1] == {"a": "done", "b": "begun"}
    assert len(seen) == 5  # a is acted on anew until it is true


def test_success_is_claimed_after_verification_only() -> None:
    it = bench("a")
    THINGS["a"].slow = 10**9
    assert it.go() is Outcome.TIMED_OUT
    assert it.run.state is Standing.UNFINISHED
    assert it.run.outcome is Outcome.TIMED_OUT
    assert it.reached() == {"a": "begun"}


def test_a_wait_waits_and_tells_when_what_is_waited_for_changes() -> None:
    it = bench("~sign")
    THINGS["sign"].slow = 20
    THINGS["sign"].progress = "no sign yet"
    assert it.go() is Outcome.SUCCEEDED
    assert it.told == ["do sign", *(f"  {s} s: no sign yet" for s in (0, 16, 32))]  # and every 15 s
    assert set(it.clock.waits) == {2.0}


def test_a_held_step_that_is_lost_stops_the_run() -> None:
    it = bench("!cordon", "drain", "change")
    HOOKS["do drain"] = lambda: setattr(THINGS["cordon"], "true", False)
    assert it.go() is Outcome.FAILED
    assert SAID == ["do cordon", "do drain"]
    assert it.run.why == "no longer true, so somebody else is at work: do cordon"
    assert it.run.state is Standing.UNFINISHED


def test_a_held_step_that_stays_does_not() -> None:
    it = bench("!cordon", "drain", "change")
    HOOKS["do drain"] = lambda: setattr(THINGS["change"], "progress", "well")
    assert it.go() is Outcome.SUCCEEDED


def test_a_held_step_of_which_nothing_is_known_is_waited_for_and_nothing_is_done() -> None:
    it = bench("!cordon", "drain")
    HOOKS["do cordon"] = lambda: setattr(THINGS["cordon"], "unknown", 4)
    assert it.go() is Outcome.SUCCEEDED
    assert SAID == ["do cordon", "do drain", "undo cordon"]
    it = bench("!cordon", "drain")
    THINGS["cordon"].true = True
    THINGS["cordon"].touched = True
    THINGS["cordon"].unknown = 10**6
    assert it.go() is Outcome.TIMED_OUT
    assert SAID == []


def test_a_stuck_step_fails_at_once() -> None:
    it = bench("a")
    THINGS["a"].stuck = "the value was changed by somebody else"
    assert it.go() is Outcome.FAILED
    assert it.run.why == "the value was changed by somebody else"
    assert SAID == []
    assert it.clock.now == 0.0
    assert it.reached() == {"a": "waiting"}


def test_a_timeout_says_what_was_waited_for_and_what_stood_in_the_way() -> None:
    it = bench("~a")
    THINGS["a"].slow = 10**9
    THINGS["a"].progress = "3 pods are left"
    assert it.go() is Outcome.TIMED_OUT
    assert it.run.why == "not within 60 s: do a (3 pods are left)"
    assert 60 <= it.clock.now < 64
    it = bench("a")
    THINGS["a"].acts = [LATE] * 100
    assert it.go() is Outcome.TIMED_OUT
    assert "the patch: timeout: no answer in time" in it.run.why


def test_the_time_for_the_whole_bounds_every_step() -> None:
    it = bench("a", "~b")
    THINGS["b"].slow = 10**9
    assert it.go(limit=10) is Outcome.TIMED_OUT
    assert it.clock.now == 10.0


def test_what_comes_true_when_the_time_is_over_is_followed_by_no_write() -> None:
    it = Bench((Do(name="a"), Mark(name="b")))
    THINGS["a"].true = True

    def late(_number: int) -> None:
        it.clock.now = 100.0

    it.world.seen = late
    assert it.go(limit=100.0) is Outcome.TIMED_OUT
    assert it.run.why == "not within 100 s in all: do b"
    assert not [mark for mark in it.world.marks() if mark.startswith("little.example/b")]
    it.world.seen = lambda _: None
    assert it.go(limit=100.5) is Outcome.SUCCEEDED


def test_a_round_of_many_writes_ends_with_the_time_for_everything() -> None:
    it = Bench((Mark(name="b", times=9),))

    def passes() -> None:
        it.clock.now += 10.0

    HOOKS["do b"] = passes
    assert it.go(limit=25.0) is Outcome.TIMED_OUT
    assert len([mark for mark in it.world.marks() if mark.startswith("little.example/b")]) == 3


@pytest.mark.parametrize(
    "passing",
    [LATE, Conflict(Unknown(Reason.SERVER_ERROR, "modified")), "unknown"],
    ids=["late", "conflict", "unknown"],
)
def test_what_passes_is_tried_again(passing: Exception | str) -> None:
    it = bench("a")
    if isinstance(passing, Exception):
        THINGS["a"].acts = [passing] * 3
    else:
        THINGS["a"].unknown = 3
    assert it.go() is Outcome.SUCCEEDED
    assert it.clock.now == 3 * 2.0 + 2.0


def test_what_is_hopeless_fails_at_once() -> None:
    it = bench("!cordon", "a")
    THINGS["a"].acts = [NO]
    assert it.go() is Outcome.FAILED
    assert it.run.why == "the patch: forbidden: nodes is forbidden"
    assert SAID.count("do a") == 1
    assert it.reached() == {"cordon": "done", "a": "begun"}


def test_resumed_after_a_failure_it_verifies_anew_and_goes_on() -> None:
    it = bench("!cordon", "a", "b")
    THINGS["b"].acts = [NO]
    assert it.go() is Outcome.FAILED
    THINGS["a"].true = False  # meanwhile undone by others
    SAID.clear()
    assert it.go() is Outcome.SUCCEEDED
    assert SAID == ["do a", "do b", "undo cordon"]


def test_what_is_done_once_is_not_looked_at_again_and_what_it_learned_is_kept() -> None:
    it = bench("1sign", "a", "b")
    THINGS["b"].acts = [NO]
    assert it.go() is Outcome.FAILED
    assert it.run.result["sign"] == "learned"
    THINGS["sign"].true = THINGS["a"].true = False
    SAID.clear()
    assert it.go() is Outcome.SUCCEEDED
    assert SAID == ["do a", "do b"]
    assert it.run.result["sign"] == "learned"


def test_what_has_nothing_to_undo_needs_nothing_that_holds() -> None:
    for kind, outcome in (("-", Outcome.REVERTED), ("", Outcome.FAILED)):
        it = bench("!cordon", f"{kind}drain", "more")
        THINGS["more"].stuck = "no"
        it.go()
        THINGS["cordon"].true = False  # somebody uncordons
        assert it.back() is outcome


# Interruption


def test_an_interruption_before_anything_leaves_nothing() -> None:
    it = bench("!cordon", "a")
    it.clock.set()
    assert it.go() is Outcome.CANCELLED
    assert SAID == []
    assert (it.run.state, it.run.why) == (Standing.UNFINISHED, "interrupted at: do cordon")


def test_interrupted_between_any_two_calls_what_is_begun_is_completed_and_nothing_more_begun() -> None:
    calls = ["do lock", "do cordon", "do drain", "do change", "undo cordon", "undo lock"]
    for at, call in enumerate(calls):
        it = bench("!lock", "!cordon", "drain", "change")
        HOOKS[call] = it.clock.set
        outcome = it.go()
        assert outcome is Outcome.CANCELLED
        assert calls[: at + 1] == SAID
        assert it.run.state is Standing.UNFINISHED
        it.clock.clear()
        HOOKS.clear()
        assert it.go() is Outcome.SUCCEEDED
        assert calls == SAID


def test_interrupted_while_waiting_it_does_not_wait_on() -> None:
    it = bench("~a")
    THINGS["a"].slow = 10**9
    it.clock.interrupted_at = 7.0
    assert it.go() is Outcome.CANCELLED
    assert it.clock.now < 10


# The target


def test_a_target_that_is_gone_or_replaced_fails_the_run_before_anything_is_written() -> None:
    for replaced, says in (
        (None, "it does not exist any more"),
        ("other", "another object has its name, uid other"),
    ):
        it = bench("a", "b")

        def meanwhile(it: Bench = it, replaced: str | None = replaced) -> None:
            node = it.world.node()
            if replaced:
                node["metadata"]["uid"] = replaced
            else:
                it.world.items.remove(node)

        HOOKS["do a"] = meanwhile
        assert it.go() is Outcome.FAILED
        assert SAID == ["do a"]
        assert says in it.run.why
        assert "uid-of-gpu-1" in it.run.why


def test_a_target_that_only_changed_does_not() -> None:
    it = bench("a", "b")
    HOOKS["do a"] = lambda: it.world.node()["metadata"]["labels"].update(x="y")
    assert it.go() is Outcome.SUCCEEDED


def test_a_node_that_cant_be_read_is_looked_at_again() -> None:
    it = bench("a")
    it.world.blind = lambda number: number in (0, 1, 2)
    assert it.go() is Outcome.SUCCEEDED
    assert it.clock.now > 0


# Back


def test_back_undoes_in_reverse_what_was_begun_and_only_that() -> None:
    it = bench("!lock", "!cordon", "drain", "change", "more")
    THINGS["change"].acts = [NO]
    assert it.go() is Outcome.FAILED
    SAID.clear()
    assert it.back() is Outcome.REVERTED
    assert SAID == ["undo change", "undo drain", "undo cordon", "undo lock"]
    assert (it.run.state, it.run.outcome) == (Standing.UNDONE, Outcome.REVERTED)
    assert it.reached() == {
        "lock": "undone",
        "cordon": "undone",
        "drain": "undone",
        "change": "undone",
        "more": "waiting",
    }


def test_a_step_that_was_true_before_is_noted_as_undone_without_a_write() -> None:
    it = bench("a", "b")
    THINGS["a"].true = True
    THINGS["b"].acts = [NO]
    it.go()
    SAID.clear()
    assert it.back() is Outcome.REVERTED
    assert SAID == ["undo b"]


def test_undoing_what_is_held_last_and_while_it_holds() -> None:
    it = bench("!cordon", "change", "more")
    THINGS["more"].acts = [NO]
    it.go()
    THINGS["cordon"].true = False  # somebody uncordons: the change must not be taken back under running pods
    SAID.clear()
    assert it.back() is Outcome.FAILED
    assert SAID == []
    assert it.run.direction is Direction.BACK
    THINGS["cordon"].true = True
    assert it.go() is Outcome.REVERTED


def test_an_undo_is_tried_again_hampered_late_and_hopeless_alike() -> None:
    def at_more() -> Bench:
        it = bench("a", "more")
        THINGS["more"].acts = [NO]
        it.go()
        return it

    it = at_more()
    THINGS["a"].undos = [LATE, LATE]
    assert it.back() is Outcome.REVERTED
    it = at_more()
    THINGS["a"].hampered = "somebody changed it"
    assert it.back() is Outcome.FAILED
    assert it.run.why == "somebody changed it"
    THINGS["a"].hampered = ""
    assert it.go() is Outcome.REVERTED
    it = at_more()
    THINGS["a"].undos = [NO]
    assert it.back() is Outcome.FAILED
    assert it.go() is Outcome.REVERTED


def test_the_way_back_goes_on_as_back_whatever_happened() -> None:
    it = bench("!cordon", "a", "b")
    THINGS["b"].acts = [NO]
    it.go()
    HOOKS["undo b"] = it.clock.set
    assert it.back() is Outcome.CANCELLED
    assert it.run.at == "undo: do b"
    it.clock.clear()
    HOOKS.clear()
    SAID.clear()
    assert it.go() is Outcome.REVERTED
    assert SAID == ["undo a", "undo cordon"]


# The end


def test_once_verified_the_run_is_only_released_whatever_is_true_by_then() -> None:
    it = bench("!lock", "!cordon", "drain")
    HOOKS["undo cordon"] = it.clock.set
    assert it.go() is Outcome.CANCELLED
    assert it.run.verified
    assert it.run.at == "release"
    THINGS["drain"].true = False  # the node is open: pods come
    it.clock.clear()
    HOOKS.clear()
    SAID.clear()
    assert it.go() is Outcome.SUCCEEDED
    assert SAID == ["undo lock"]


@pytest.fixture
def long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was verified is not recent any more as soon as somebody goes on with the run."""
    monkeypatch.setattr(engine, "RECENT", timedelta(seconds=-1))


def before_its_release(*names: str) -> Bench:
    """A run that is interrupted when all is verified."""
    it = bench(*names)
    it.journal.keep = lambda run: it.clock.set() if run.verified else None
    assert it.go() is Outcome.CANCELLED
    assert it.run.at == "release"
    it.journal.keep = lambda _: None
    it.clock.clear()
    SAID.clear()
    return it


def test_what_was_verified_just_now_is_released_without_another_look() -> None:
    it = before_its_release("!cordon", "drain")
    THINGS["drain"].true = False
    assert it.go() is Outcome.SUCCEEDED
    assert SAID == ["undo cordon"]


@pytest.mark.usefixtures("long_ago")
def test_what_was_verified_long_ago_is_looked_at_again_and_released() -> None:
    it = before_its_release("!lock", "!cordon", "drain", "1measure")
    THINGS["measure"].true = False  # it may be gone by then
    THINGS["drain"].unknown = 2
    assert it.go() is Outcome.SUCCEEDED
    assert SAID == ["undo cordon", "undo lock"]


@pytest.mark.usefixtures("long_ago")
def test_what_is_true_no_longer_is_not_released_and_the_run_is_as_before_it_was_verified() -> None:
    it = before_its_release("!lock", "!cordon", "drain")
    THINGS["drain"].true = False
    assert it.go() is Outcome.FAILED
    assert it.run.why == "no longer true, although it was verified: do drain"
    assert SAID == []
    assert not it.run.verified
    assert it.go() is Outcome.SUCCEEDED
    assert SAID == ["do drain", "undo cordon", "undo lock"]
    it = before_its_release("!lock", "!cordon", "drain")
    THINGS["drain"].true = False
    assert it.go() is Outcome.FAILED
    assert it.back() is Outcome.REVERTED
    assert SAID == ["undo drain", "undo cordon", "undo lock"]


@pytest.mark.usefixtures("long_ago")
def test_what_can_t_be_told_is_not_released() -> None:
    it = before_its_release("!cordon", "drain")
    THINGS["drain"].unknown = 10**9
    assert it.go() is Outcome.TIMED_OUT
    assert "no answer in time" in it.run.why
    assert SAID == []
    assert it.run.verified


@pytest.mark.usefixtures("long_ago")
def test_what_is_open_already_is_released_whatever_is_true_by_then() -> None:
    """By the run itself, killed before it could say so, or by somebody else: others may be there by now."""
    it = before_its_release("!lock", "!cordon", "drain")
    THINGS["cordon"].true = THINGS["drain"].true = False
    assert it.go() is Outcome.SUCCEEDED
    assert SAID == ["undo cordon", "undo lock"]


# Without a journal


@pytest.mark.parametrize("hopeless", [False, True])
def test_without_its_journal_nothing_is_done(hopeless: bool) -> None:
    it = bench("a")
    no = WriteFailed(Unknown(Reason.FORBIDDEN, "configmaps is forbidden"), hopeless=hopeless)

    def refuse(_number: int) -> None:
        raise no

    assert it.hands is not None
    it.hands.before = refuse
    with pytest.raises(Ended) as ended:
        it.go()
    assert ended.value.outcome in (Outcome.FAILED, Outcome.TIMED_OUT)
    assert "journal can't be written" in str(ended.value)
    assert SAID == []


def test_an_interruption_that_cant_be_journaled_is_one() -> None:
    it = bench("a", "b")
    no = WriteFailed(Unknown(Reason.FORBIDDEN, "configmaps is forbidden"), hopeless=True)

    def refuse(_number: int) -> None:
        raise no

    def interrupt() -> None:
        it.clock.set()
        assert it.hands is not None
        it.hands.before = refuse

    HOOKS["do a"] = interrupt
    with pytest.raises(Ended) as ended:
        it.go()
    assert ended.value.outcome is Outcome.CANCELLED
    assert "interrupted at: do a" in str(ended.value)


def test_fenced_is_passed_on() -> None:
    it = bench("a")
    HOOKS["do a"] = lambda: (_ for _ in ()).throw(Fenced("the lock is lost"))
    with pytest.raises(Fenced):
        it.go()
    assert it.run.outcome is Outcome.NONE


def test_steps_survive_the_journal() -> None:
    it = bench("!cordon", "a")
    texts = [each.step for each in it.run.steps]
    back = [msgspec.convert(text, Do | Hold | Watch) for text in texts]
    assert tuple(back) == it.steps
