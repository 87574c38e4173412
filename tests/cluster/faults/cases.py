"""The cases: a signal or a fault at each write call, and what becomes of the run."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Generic, TypeVar

from gpuctl.runbook.records import Direction, Standing
from tests.cluster.lenient import LEASE_SECONDS

from .player import NotReached, Player, Program
from .stage import Scene
from .strike import Order

P_contra = TypeVar("P_contra", bound=Player, contravariant=True)  # whoever can play it
Play = Callable[[Scene], str]
Deed = Callable[[Player], str]
"""What happens; says in a word what came of it, and raises what must not be. A deed is about any target."""

INTERRUPTED, KILLED = 130, -signal.SIGKILL
REFUSED = 400  # and more: the answers to what was not carried out
HOPELESS, PASSING, SLOW = "403", ("409", "429", "500", "reset"), ("timeout",)
SHARES = 4  # runs over which the writes are spread, each of which meets a fault that passes
SLOW_SHARES = 8  # the same for those that take their time
READ_SHARE, READ_SEEDS = 0.1, 2
WAITS = {f"journal: {each} begun" for each in ("Idle", "Follow", "Settled", "Verify", "VerifyAgain")}
LONG_WAIT = "Follow"
TURNED = "set the configuration"  # an undo begins after this: it has all to take back


@dataclass(frozen=True)
class Case(Generic[P_contra]):
    """One thing that goes wrong. `single`: it is not about a write call; `book`: the runbook, where it is
    another than mig-reconfigure."""

    group: str
    name: str
    play: Callable[[P_contra], str]
    single: bool = False
    book: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.book, self.group, self.name)

    def __str__(self) -> str:
        return ": ".join(filter(None, self.key))


@dataclass(frozen=True)
class Known:
    """The write calls of a run that meets nothing, and of an undo."""

    apply: tuple[str, ...]
    undo: tuple[str, ...]


def clean(scene: Scene) -> tuple[str, ...]:
    """The writes of a run from begin to end."""
    program = scene.apply(Order(log=""))
    assert program.ended() == 0, program.said[-900:]
    scene.is_done()
    assert sorted(name.partition("-")[0] for name in scene.evictions()) == ["db", "web"]
    return steady(program.lines("write"))


def steady(writes: Sequence[str]) -> tuple[str, ...]:
    """The same ones each time: whether a wait is journaled as begun depends on how soon it is over. One of
    them never is over at once."""
    names = [each for each in dict.fromkeys(writes) if each not in WAITS]
    names.insert(names.index(f"journal: {LONG_WAIT} done"), f"journal: {LONG_WAIT} begun")
    return tuple(names)


def clean_undo(scene: Scene) -> tuple[str, ...]:
    """The writes of an undo that has all to take back."""
    killed(scene, TURNED, after=True)
    program = scene.go_on("undo", Order(log=""))
    assert program.ended() == 0, program.said[-900:]
    scene.is_undone()
    return tuple(dict.fromkeys(program.lines("write")))


def struck(program: Program) -> None:
    """Raises NotReached if it was over without what was to happen."""
    if not program.lines("struck"):
        raise NotReached(program.said[-300:])


def killed(scene: Player, at: str, *, after: bool) -> None:
    program = scene.apply(Order(log="", what="kill", at=(at,), after=after))
    code = program.ended()
    struck(program)
    assert code == KILLED, code
    scene.is_named()


# kill -9


def kill_then(at: str, *, after: bool, back: bool) -> Deed:
    """Killed there, and then resumed or undone."""

    def play(scene: Player) -> str:
        killed(scene, at, after=after)
        run = scene.journal()
        if back and run is not None and run.state is Standing.UNFINISHED and run.verified:
            program = scene.go_on("undo")  # others may use the node again: there is no way back any more
            assert program.ended() == 1, program.said[-900:]
            scene.is_named()
        return scene.settle(back=back)

    return play


def kill_the_undo(at: str, *, after: bool, turned: str = TURNED) -> Deed:
    """An undo is killed there, and resumed: it must not go forward."""

    def play(scene: Player) -> str:
        killed(scene, turned, after=True)
        program = scene.go_on("undo", Order(log="", what="kill", at=(at,), after=after))
        code = program.ended()
        struck(program)
        assert code == KILLED, code
        scene.is_named()
        run = scene.journal()
        assert run is not None
        word = scene.settle(back=run.direction is not Direction.BACK)
        scene.is_undone()
        return word

    return play


# Other signals


def interrupt_then(at: str, *, back: bool) -> Deed:
    """Ctrl-C there: 130, or the end if there was nothing left to begin."""

    def play(scene: Player) -> str:
        program = scene.apply(Order(log="", what="interrupt", at=(at,)))
        code = program.ended()
        struck(program)
        assert "Traceback" not in program.said, program.said
        run = scene.journal()
        over = run is not None and run.state is Standing.FINISHED
        assert code == (0 if over else INTERRUPTED), (code, program.said[-900:])
        if run is not None and not over:
            assert f"gpuctl resume {run.id}, or gpuctl undo {run.id}" in program.said
        return scene.settle(back=back)

    return play


def stop_then(at: str, *, after: bool) -> Deed:
    """Stands still beyond the time of its lock; another goes on. When it wakes up it must not write."""

    def play(scene: Player) -> str:
        program = scene.apply(Order(log="", what="stop", at=(at,), after=after))
        program.stopped()
        run = scene.journal()
        if run is None or run.state is not Standing.UNFINISHED:
            raise NotReached(f"no run to go on with at {at}")
        time.sleep(LEASE_SECONDS)
        word = scene.settle()
        journal, continued = scene.journal(), datetime.now(UTC)
        program.send(signal.SIGCONT)
        code = program.ended(90)
        late = [each for each in scene.written(continued) if each.code < REFUSED]
        assert not late, f"written after it had lost its lock: {late}"
        assert code != 0, "the one that lost its lock says success"
        assert scene.journal() == journal
        scene.is_done()
        return word

    return play


# Faults of the API server


def fault_at(what: str, at: Sequence[str], *, after: bool = False) -> Deed:
    """These writes meet a fault, each once."""

    def play(scene: Player) -> str:
        flags = ("--request-timeout=4s",) if what in SLOW else ()
        program = scene.apply(Order(log="", what=what, at=tuple(at), after=after), None, *flags)
        return _however(scene, program)

    return play


def fault_at_undo(what: str, at: Sequence[str], *, turned: str = TURNED) -> Deed:
    """The same on the way back."""

    def play(scene: Player) -> str:
        killed(scene, turned, after=True)
        program = scene.go_on("undo", Order(log="", what=what, at=tuple(at)))
        code = program.ended()
        struck(program)
        run = scene.journal()
        assert run is not None
        if code == 0:
            scene.settle()
            scene.is_undone()
            return "went on"
        word = scene.settle(back=True)
        scene.is_undone()
        return word

    return play


def reads_fail(what: str, seed: int, *, begun: bool) -> Deed:
    """A share of the reads meets a fault; `begun`: of those once the run has begun."""

    def play(scene: Player) -> str:
        flags = ("--request-timeout=4s",) if what in SLOW else ()
        order = Order(log="", what=what, share=READ_SHARE, seed=seed, begun=begun)
        return _however(scene, scene.apply(order, None, *flags))

    return play


def _however(scene: Player, program: Program) -> str:
    """However it ended: success is one, and what is not can be brought to its end."""
    code = program.ended()
    struck(program)
    assert "Traceback" not in program.said, program.said[-1500:]
    run = scene.journal()
    if code == 0:
        assert run is not None
        assert run.state is Standing.FINISHED, "success without an end"
        if scene.leases():  # one that could not be removed is named, and unlocked
            unlock = scene.go_on("unlock")
            assert unlock.ended() == 0, unlock.said[-900:]
        scene.is_done()
        return "went on"
    return scene.settle()


# All of them


def cases(known: Known) -> Iterator[Case[Player]]:
    """Those at each write call."""
    for at in known.apply:
        for after in (False, True):
            yield a_kill(at, after=after, back=False)
            yield a_kill(at, after=after, back=True)
    for at in known.undo:
        for after in (False, True):
            yield a_killed_undo(at, after=after)
    for number, at in enumerate(known.apply):
        back = number % 2 == 1
        yield Case("Ctrl-C", f"at {at}, then {'undo' if back else 'resume'}", interrupt_then(at, back=back))
    for at in known.apply:
        if not at.startswith(("make", "remove", "event", "journal: finished")) and "begun" not in at:
            yield Case("SIGSTOP, another resumes, SIGCONT", f"after {at}", stop_then(at, after=True))
    for at in (*(each for each in known.apply if each.startswith("evict")), "cordon", TURNED, "uncordon"):
        yield Case("SIGSTOP, another resumes, SIGCONT", f"before {at}", stop_then(at, after=False))
    yield from _faults(known)


def a_kill(at: str, *, after: bool, back: bool) -> Case[Player]:
    way, when = ("undo" if back else "resume"), ("after" if after else "before")
    return Case(f"kill -9, then {way}", f"{when} {at}", kill_then(at, after=after, back=back))


def a_killed_undo(at: str, *, after: bool, turned: str = TURNED) -> Case[Player]:
    when = "after" if after else "before"
    return Case("undo killed, then resumed", f"{when} {at}", kill_the_undo(at, after=after, turned=turned))


def refusals(known: Known, turned: str = TURNED) -> Iterator[Case[Player]]:
    """Each write is refused for good."""
    for at in known.apply:
        yield Case(f"{HOPELESS} at a write", at, fault_at(HOPELESS, (at,)))
    for at in known.undo:
        yield Case(f"{HOPELESS} at a write of an undo", at, fault_at_undo(HOPELESS, (at,), turned=turned))


def passing(known: Known, shares: int = SHARES, slow_shares: int = SLOW_SHARES) -> Iterator[Case[Player]]:
    """Faults that pass, each at a share of the writes."""
    for what, count in (*((each, shares) for each in PASSING), *((each, slow_shares) for each in SLOW)):
        for share in range(count):
            some = known.apply[share::count]
            yield Case(f"{what} at a write", ", ".join(some), fault_at(what, some))
            if what in ("reset", "timeout"):
                name = f"{what} after a write was carried out"
                yield Case(name, ", ".join(some), fault_at(what, some, after=True))


def _faults(known: Known) -> Iterator[Case[Player]]:
    yield from refusals(known)
    yield from passing(known)
    for what in ("403", "429", "500", "reset", "timeout"):
        for seed in range(READ_SEEDS):
            yield Case(
                f"{what} at reads", f"a tenth of them, seed {seed}", reads_fail(what, seed, begun=False)
            )
            name = f"a tenth of them once the run has begun, seed {seed}"
            yield Case(f"{what} at reads", name, reads_fail(what, seed, begun=True))
