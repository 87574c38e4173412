"""The three ways out for a node, killed at each of their writes on the real control plane, then gone on with
or taken back; and each write refused once, or carried out without an answer."""

from __future__ import annotations

import secrets
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

import pytest

from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Reason, Unknown
from gpuctl.nvidia.node import CONFIG, STATE
from gpuctl.runbook.conduct import Ending
from gpuctl.runbook.lock import Locks
from gpuctl.runbook.records import Outcome, Run, Standing
from gpuctl.runbook.writer import Blocked, Change, Conflict, WriteFailed, Writer
from tests.cluster.bed import Bed
from tests.cluster.bed.migworld import MigWorld, WorldNode
from tests.cluster.bed.simulated import gpu_node
from tests.cluster.operating import HALVES, SEVEN, Caretaker, cordoned, leases, marks, mig_world

from .test_mig_recover import ask, ours, person

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]
STATE_NAMESPACE = f"mig-faults-{secrets.token_hex(3)}"
PLUGIN = "nvidia-device-plugin-daemonset"
ABREAST = 6  # nodes on which the rounds of one runbook are played side by side


@pytest.fixture(scope="module")
def world(bed: Bed) -> Iterator[MigWorld]:
    with mig_world(bed, STATE_NAMESPACE) as made:
        yield made


class Killed(BaseException):
    """The process is gone, as after kill -9."""


class Signs:
    """Of life, of processes, each of which is a thread here: who is killed gives none any more."""

    def __init__(self) -> None:
        self._of: dict[int, list[Locks]] = defaultdict(list)

    def given(self, locks: Locks) -> None:
        self._of[threading.get_ident()].append(locks)

    def end(self) -> None:
        """Those of this thread."""
        for each in self._of.pop(threading.get_ident(), []):
            each.stop()


@pytest.fixture(autouse=True)
def signs(monkeypatch: pytest.MonkeyPatch) -> Signs:
    made = Signs()
    keep_alive = Locks._keep_alive

    def noted(locks: Locks) -> None:
        made.given(locks)
        keep_alive(locks)

    monkeypatch.setattr(Locks, "_keep_alive", noted)
    return made


@dataclass
class Hands:
    """The writer of a process that something happens to at one of its writes, before or after it. Its signs
    of life, in a thread of its own, do not count."""

    at: int = -1
    after: bool = False
    what: BaseException = field(default_factory=Killed)
    written: list[str] = field(default_factory=list)

    def of(self, writer: Writer) -> Hands:
        """Of the process of this thread, which writes through this."""
        self.writer, self.thread = writer, threading.current_thread()
        return self

    def patch(self, ref: Ref, uid: str, changes: Sequence[Change]) -> None:
        self._do(f"patch {ref}", lambda: self.writer.patch(ref, uid, changes))

    def create(self, ref: Ref, body: Mapping[str, Any]) -> str:
        return str(self._do(f"create {ref}", lambda: self.writer.create(ref, body)))

    def delete(self, ref: Ref, uid: str, grace: int | None = None) -> None:
        self._do(f"delete {ref}", lambda: self.writer.delete(ref, uid, grace))

    def evict(self, pod: Ref, uid: str, grace: int | None = None) -> Blocked | None:
        blocked: Blocked | None = self._do(f"evict {pod}", lambda: self.writer.evict(pod, uid, grace))
        return blocked

    def _do(self, what: str, write: Callable[[], Any]) -> Any:
        if threading.current_thread() is not self.thread:
            return write()
        number = len(self.written)
        self.written.append(what)
        if number == self.at and not self.after:
            raise self.what
        try:
            answer = write()
        except Conflict:  # nothing was written: another has the slot, or has changed the object
            self.written.pop()
            raise
        if number == self.at:
            raise self.what
        return answer

    @property
    def when(self) -> str:
        """`after write 3, patch Node gpu-1`."""
        what = self.written[self.at] if self.at < len(self.written) else "which there is not"
        return f"{'after' if self.after else 'before'} write {self.at}, {what}"


# The runbooks, and what they cure


@dataclass
class Way:
    """A runbook, how a node comes to need it, and how it is once it is cured or given up."""

    book: str
    breaks: Callable[[WorldNode], None]
    cured: Callable[[WorldNode], None]
    given_up: Callable[[WorldNode], None]


def wedge(node: WorldNode) -> None:
    node.wedge_at("wait-operands")
    ask(node, "all-3g.40gb" if node.label(CONFIG) == "all-1g.10gb" else "all-1g.10gb")
    node.wait(lambda: "gave up" in "".join(node.logged[-1:]), "a wedge")


def slice_otherwise(node: WorldNode) -> None:
    node.slice(HALVES if node.capacity("mig-1g.10gb") else SEVEN)


def in_service(node: WorldNode) -> None:
    assert not cordoned(node)
    assert marks(node) == set()


def recovered(node: WorldNode) -> None:
    in_service(node)
    assert node.label(STATE) == "success"
    wanted = HALVES if node.label(CONFIG) == "all-3g.40gb" else SEVEN
    assert node.layout == [wanted]
    assert node.capacity(f"mig-{wanted[0]}") == len(wanted)


def offers_its_slices(node: WorldNode) -> bool:
    (layout,) = node.layout
    return layout is not None and node.capacity(f"mig-{layout[0]}") == len(layout)


def restarted(node: WorldNode) -> None:
    in_service(node)
    assert offers_its_slices(node)


def tainted(node: WorldNode) -> None:
    assert ours(node) == ["all-1g.10gb"]


def untainted(node: WorldNode) -> None:
    assert ours(node) == []
    assert marks(node) == set()


WAYS = {
    "mig-recover": Way("mig-recover", wedge, recovered, in_service),
    "device-plugin-restart": Way("device-plugin-restart", slice_otherwise, restarted, in_service),
    "taint-unmigged": Way("taint-unmigged", lambda node: node.slice(HALVES), tainted, untainted),
}


def restart_plugin(node: WorldNode) -> None:
    def there() -> set[str]:
        return {pod["metadata"]["uid"] for pod in node.pods_of(PLUGIN)}

    old = there()
    node.delete_pods(PLUGIN)
    node.wait(lambda: node.operands_run() and not old & there(), "another device plugin")


def put_right(node: WorldNode, way: Way) -> None:
    """So that the next round finds it healthy."""
    node.honest()
    if way.book == "taint-unmigged":
        node.slice(SEVEN)
        _person(node, way).apply(remove=True)
    elif node.label(STATE) != "success" or not node.operands_run():
        node.restart_manager()
        node.settled()
    elif way.book == "device-plugin-restart" and not offers_its_slices(node):
        restart_plugin(node)
    node.settled()


# Rounds


@dataclass
class Rounds:
    """The rounds of one runbook, each on a node that no other is played on meanwhile."""

    way: Way
    nodes: Sequence[WorldNode]
    signs: Signs

    def each_write(self, play: Callable[[WorldNode, int, bool], None]) -> None:
        """Plays a round for each write, before it and after it in turn."""
        count = self._writes()
        free: SimpleQueue[WorldNode] = SimpleQueue()
        for node in self.nodes:
            free.put(node)

        def one(at: int) -> None:
            node = free.get()
            try:
                play(node, at, bool(at % 2))
                put_right(node, self.way)
            finally:
                free.put(node)

        with ThreadPoolExecutor(len(self.nodes)) as pool:
            for _ in pool.map(one, range(count)):
                pass

    def _writes(self) -> int:
        """How many there are in a run to which nothing happens."""
        node, hands = self.nodes[0], Hands()
        self.way.breaks(node)
        ending = self.begun(_person(node, self.way), hands)
        assert ending is not None
        assert ending.outcome is Outcome.SUCCEEDED, ending
        self.way.cured(node)
        put_right(node, self.way)
        return len(hands.written)

    def begun(self, operator: Caretaker, hands: Hands) -> Ending | None:
        """A run by these hands; None if it was killed."""
        try:
            return operator.apply(hands=hands.of)
        except Killed:
            self.signs.end()
            return None


def _person(node: WorldNode, way: Way) -> Caretaker:
    return person(node, way.book, STATE_NAMESPACE)


@pytest.fixture(params=list(WAYS))
def rounds(request: pytest.FixtureRequest, world: MigWorld, signs: Signs) -> Rounds:
    way, tag = WAYS[request.param], secrets.token_hex(2)
    nodes = [
        gpu_node(f"{way.book}-{tag}-{number}", profiles=[SEVEN], config="all-1g.10gb")
        for number in range(ABREAST)
    ]
    return Rounds(way, world.add(*nodes), signs)


def test_killed_at_each_write_it_is_gone_on_with_or_taken_back(rounds: Rounds) -> None:
    way = rounds.way

    def killed(node: WorldNode, at: int, after: bool) -> None:
        way.breaks(node)
        operator, hands = _person(node, way), Hands(at, after)
        before = operator.last()
        assert rounds.begun(operator, hands) is None, hands.when
        settle(operator, way, before, hands, back=at % 3 == 2)

    rounds.each_write(killed)


def settle(operator: Caretaker, way: Way, before: Run | None, hands: Hands, *, back: bool) -> None:
    """What a person does after `gpuctl runs`. `before`: the last run of those before this one."""
    run, node = operator.last(), operator.node
    if run is None or (before is not None and run.id == before.id):  # killed before it had a journal
        operator.unlock()
        way.given_up(node)
    elif run.state is not Standing.UNFINISHED:
        operator.unlock()
        way.cured(node)
    else:
        ending = operator.go_on(run.id, back=back)
        if ending.outcome is Outcome.REFUSED and run.verified:  # there is only the way to the end
            back, ending = False, operator.go_on(run.id)
        wanted = Outcome.REVERTED if back else Outcome.SUCCEEDED
        assert (ending.outcome, ending.left) == (wanted, False), (hands.when, ending, operator.said)
        (way.given_up if back else way.cured)(node)
    assert not leases(node, STATE_NAMESPACE), hands.when


def test_each_write_may_fail_once(rounds: Rounds) -> None:
    way = rounds.way

    def struck(node: WorldNode, at: int, after: bool) -> None:
        way.breaks(node)
        fault = WriteFailed(Unknown(Reason.TIMEOUT, "no answer"))
        operator, hands = _person(node, way), Hands(at, after, fault)
        ending = rounds.begun(operator, hands)
        assert ending is not None
        if ending.left:
            ending = operator.go_on(ending.run)
        operator.unlock()
        assert ending.outcome in (Outcome.SUCCEEDED, Outcome.REFUSED), (hands.when, ending, operator.said)
        (way.cured if ending.outcome is Outcome.SUCCEEDED else way.given_up)(node)
        assert not leases(node, STATE_NAMESPACE), hands.when

    rounds.each_write(struck)
