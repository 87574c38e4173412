"""Where the cases of the other runbooks play: many targets at once, and what must be true in the end."""

from __future__ import annotations

import copy
import queue
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from gpuctl.runbook.records import Outcome, Reached, Standing
from tests.cluster.bed import Bed
from tests.cluster.bed.api import Api
from tests.cluster.bed.audit import AuditEvent, WritesSeen
from tests.cluster.test_vllm_switch_mode import GPU

from .books import HOLD, LIMIT, PLACES, RESTART, SWITCH, Place
from .cases import KILLED, Case, Known, struck
from .matrix import Result, played
from .player import POLICY, Desk, Player, Program, make_namespace
from .strike import Order

LANES: Final[Mapping[str, int]] = {LIMIT: 5, HOLD: 3, SWITCH: 5, RESTART: 1}
TURNS: Final = (
    frozenset({RESTART}),  # alone: the others need Kueue's manager, its webhooks too
    frozenset({LIMIT, HOLD, SWITCH}),
)
UNSTEADY: Final = {
    f"journal: {each} begun" for each in ("Proven", "SeeMode")
}  # depends on how soon it is over


@dataclass
class Lane:
    """A target with a namespace for journals and locks: one case after the other plays here."""

    place: Place
    desk: Desk
    writes: WritesSeen
    plans: dict[str, Path] = field(default_factory=dict)


class BookScene(Player):
    """One case on its target."""

    def __init__(self, lane: Lane, name: str) -> None:
        super().__init__(lane.place.api, lane.desk, name)
        self.lane, self.target = lane, lane.place

    @property
    def place(self) -> str:
        return self.target.target

    def set_up(self) -> None:
        self.wait(self.target.calm, f"{self.place} is calm", 180)
        found = self.target.object()
        self.uid, self.before = found["metadata"]["uid"], found["spec"]

    def clear(self) -> None:
        self.let_go()

    def mend(self) -> None:
        self.lane.plans.clear()
        self.target.mend()

    def written(self, since: datetime | None = None) -> list[AuditEvent]:
        """What gpuctl has written to this object, and in its namespace."""
        return [
            each
            for each in self.lane.writes.all()
            if each.at >= (since or self.began)
            and (each.namespace == self.desk.state or self._is_target(each))
            and not each.dry_run
        ]

    def _is_target(self, event: AuditEvent) -> bool:
        namespace = self.place.rpartition("/")[0]
        about = (event.resource, event.namespace, event.name)
        return about == (self.target.resource, namespace, self.target.name)

    def changes(self) -> int:
        """How many writes to the object were carried out."""
        return sum(self._is_target(each) and each.code < 300 for each in self.written())

    def planned(self) -> Path:
        flags = self.target.flags(self.before)
        key = " ".join(flags)
        if key in self.lane.plans:
            return self.lane.plans[key]
        file = self.desk.folder / f"plan-{len(self.lane.plans)}.json"
        program = self.start("plan", self.target.book, self.place, *flags, f"--out={file}")
        assert program.ended() == 0, program.said[-2000:]
        if self.target.lasts:
            self.lane.plans[key] = file
        return file

    def apply(self, order: Order | None = None, plan: Path | None = None, *flags: str) -> Program:
        return self.start("apply", str(plan or self.planned()), "--yes", *flags, order=order)

    def held_by(self) -> str:
        """The run whose mark the object bears."""
        marks: dict[str, str] = self.target.object()["metadata"].get("annotations", {})
        return marks.get(self.target.mark, "")

    def is_named(self) -> None:
        run, holder = self.journal(), self.held_by()
        if holder:
            assert run is not None, "a mark without a journal"
            assert run.id == holder, "a mark of another run"
            assert run.state is Standing.UNFINISHED, "a mark after the end"
            assert run.steps[0].reached in (Reached.BEGUN, Reached.DONE), "a mark that the journal denies"
        self.locks_name(run)

    def nothing_is_left(self) -> None:
        """No lock and no mark, and it is the same object."""
        assert not self.held_by(), "a mark is left"
        leases = [each["metadata"]["name"] for each in self.leases()]
        assert not leases, f"locks are left: {leases}"
        assert self.target.object()["metadata"]["uid"] == self.uid

    def is_done(self) -> None:
        """As the run was to make it, by as many writes as it takes and no more."""
        run = self.journal()
        assert run is not None
        assert (run.state, run.outcome) == (Standing.FINISHED, Outcome.SUCCEEDED), (run.state, run.outcome)
        assert {each.reached for each in run.steps} <= {Reached.DONE, Reached.UNDONE}
        self.wait(self.target.calm, "success is said, and it does not work", self.target.slack)
        self._is(self.target.changed(copy.deepcopy(self.before), run))
        assert self.changes() == self.target.changes, f"written to {self.changes()} times"
        self.nothing_is_left()

    def is_undone(self) -> None:
        run = self.journal()
        assert run is not None
        assert (run.state, run.outcome) == (Standing.UNDONE, Outcome.REVERTED), (run.state, run.outcome)
        self._is(self.target.taken_back(copy.deepcopy(self.before), run))
        self.nothing_is_left()
        self.wait(self.target.calm, f"{self.place} works as before", 180)

    def is_untouched(self) -> None:
        assert self.journal() is None
        self._is(self.before)
        self.nothing_is_left()
        assert not self.changes()

    def _is(self, wanted: Mapping[str, Any]) -> None:
        """The whole of it, so that nothing else was changed."""
        spec = self.target.object()["spec"]
        assert spec == wanted, f"it is {spec}, not {wanted}"


@dataclass
class Playhouse:
    """The lanes of all runbooks."""

    lanes: Mapping[str, Sequence[Lane]]
    free: dict[str, queue.SimpleQueue[Lane]] = field(init=False)

    def __post_init__(self) -> None:
        self.free = {book: queue.SimpleQueue() for book in self.lanes}
        for book, lanes in self.lanes.items():
            for lane in lanes:
                self.free[book].put(lane)

    def results(
        self, cases: Iterable[Case[BookScene]], told: Callable[[Result], None] = lambda _: None
    ) -> list[Result]:
        """Plays them all, in the order of TURNS."""
        chosen = list(cases)
        by_name: dict[str, Result] = {}
        with ExitStack() as stack:
            pools = {
                book: stack.enter_context(ThreadPoolExecutor(len(lanes)))
                for book, lanes in self.lanes.items()
            }
            for turn in TURNS:
                going = {
                    pools[case.book].submit(self._result, case): str(case)
                    for case in chosen
                    if case.book in turn
                }
                for done in as_completed(going):
                    by_name[going[done]] = done.result()
                    told(done.result())
        return [by_name[str(case)] for case in chosen]

    def _result(self, case: Case[BookScene]) -> Result:
        """Plays one on the next free target."""
        with self._lane(case.book) as lane:
            return played(BookScene(lane, str(case)), case)

    @contextmanager
    def _lane(self, book: str) -> Iterator[Lane]:
        lane = self.free[book].get()
        try:
            yield lane
        finally:
            self.free[book].put(lane)

    def known(self) -> dict[str, Known]:
        """The write calls of each runbook as they are now."""
        found: dict[str, Known] = {}
        with ThreadPoolExecutor(2 * len(self.lanes)) as pool:
            for turn in TURNS:
                going: dict[str, tuple[Future[tuple[str, ...]], Future[tuple[str, ...]]]] = {
                    book: (
                        pool.submit(self._learned, book, clean),
                        pool.submit(self._learned, book, clean_undo),
                    )
                    for book in turn & self.lanes.keys()
                }
                found |= {book: Known(*(each.result() for each in both)) for book, both in going.items()}
        return found

    def _learned(self, book: str, learn: Callable[[BookScene], tuple[str, ...]]) -> tuple[str, ...]:
        with self._lane(book) as lane:
            scene = BookScene(lane, learn.__name__)
            scene.set_up()
            try:
                return learn(scene)
            finally:
                scene.clear()


def clean(scene: BookScene) -> tuple[str, ...]:
    """The writes of a run from begin to end."""
    program = scene.apply(Order(log=""))
    assert program.ended() == 0, program.said[-900:]
    scene.is_done()
    return _steady(program)


def clean_undo(scene: BookScene) -> tuple[str, ...]:
    """The writes of an undo that has all to take back."""
    first = scene.apply(Order(log="", what="kill", at=(scene.target.turned,), after=True))
    assert first.ended() == KILLED, first.said[-900:]
    struck(first)
    program = scene.go_on("undo", Order(log=""))
    assert program.ended() == 0, program.said[-900:]
    scene.is_undone()
    return _steady(program)


def _steady(program: Program) -> tuple[str, ...]:
    return tuple(each for each in dict.fromkeys(program.lines("write")) if each not in UNSTEADY)


@contextmanager
def playhouse(bed: Bed, lanes: Mapping[str, int] = LANES) -> Iterator[Playhouse]:
    """So many targets of each runbook."""
    bed.kueue.wait_healthy()
    api = Api(bed.control_plane, "gpuctl-bed")
    places = [of(bed, api, number) for of in PLACES for number in range(lanes.get(of.book, 0))]
    bed.gpu_capacity(bed.node, {GPU: lanes.get(SWITCH, 0)})
    with tempfile.TemporaryDirectory() as folder:
        policy, writes = Path(folder) / "gpuctl.yaml", WritesSeen(bed.audit.file, "gpuctl/")
        policy.write_text(POLICY)
        try:
            yield Playhouse(_lanes(places, policy, writes))
        finally:
            with ThreadPoolExecutor() as pool:
                list(pool.map(lambda place: place.remove(), places))
            bed.gpu_capacity(bed.node, {GPU: 0})


def _lanes(places: Sequence[Place], policy: Path, writes: WritesSeen) -> Mapping[str, Sequence[Lane]]:
    made: dict[str, list[Lane]] = {}
    for place in places:
        state = f"{place.space}-state"
        make_namespace(place.api, state)
        desk = Desk(place.bed.kubeconfig, policy, state, policy.parent / place.space)
        desk.folder.mkdir()
        made.setdefault(place.book, []).append(Lane(place, desk, writes))
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda place: place.make(), places))
    return made
