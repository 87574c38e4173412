"""A little runbook over a cluster in memory, and processes that work on it, stop, and are killed.

It closes a node (held), marks it quiet (held), evicts its pods, and changes a value from old to new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from threading import Event, RLock
from typing import Any, ClassVar

import msgspec

from gpuctl.audit.finding import Finding
from gpuctl.audit.policy import Policy, RunbooksPolicy
from gpuctl.facts.fact import Argument, Fact, Objects, given
from gpuctl.facts.gather import Facts, gather
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Each, Reason, Unknown
from gpuctl.nvidia.objects import GpuPod, NodeView
from gpuctl.runbook.conduct import Crew, Ending, Order, begin, go_on
from gpuctl.runbook.gates import held_by_nobody_else, no_other_run, slot_free, state_namespace_exists
from gpuctl.runbook.guard import before, blocks, guard
from gpuctl.runbook.look import Look
from gpuctl.runbook.plan import TargetPlan
from gpuctl.runbook.planning import Task, plan_of
from gpuctl.runbook.records import Bounds, Person, Reached, Run, StepRecord
from gpuctl.runbook.runbook import Option, Runbook
from gpuctl.runbook.step import Step
from gpuctl.runbook.target import NODE, OPTIONS, SELF, TARGET
from gpuctl.runbook.writer import Blocked, Change, Drop, Put, Test, Writer, pointer
from tests.memory import A_MOMENT, MemoryReader
from tests.runbook.memory_writer import Call, MemoryWriter

Object = dict[str, Any]
VALUE = "little.example/value"
LAST = "little.example/last"
NAMESPACE = "gpuctl-system"
PODS = Objects(GpuPod)


def _at(mark: str) -> str:
    return pointer("metadata", "annotations", mark)


class _OnNode(Step, frozen=True, kw_only=True):
    pause: ClassVar[float] = 0.0
    node: str
    uid: str

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        return (NODE, SELF)

    def mark(self, facts: Facts, name: str) -> str:
        return facts[NODE].metadata.annotations.get(name, "")

    def patch(self, writer: Writer, *changes: Change) -> None:
        writer.patch(Ref(NodeView.of, self.node), self.uid, changes)


class Close(_OnNode, frozen=True, kw_only=True):
    """Bears the run's name on the node to the end of the run."""

    held: ClassVar[bool] = True
    sign: str = "little.example/closed"

    @property
    def says(self) -> str:
        return f"put {self.sign}"

    @property
    def undoes(self) -> str:
        return f"take away {self.sign}"

    def holds(self, facts: Facts) -> bool:
        return self.mark(facts, self.sign) == facts[SELF].run

    def act(self, facts: Facts, writer: Writer) -> None:
        self.patch(writer, Test(_at(self.sign), None), Put(_at(self.sign), facts[SELF].run))

    def undone(self, facts: Facts) -> bool:
        return not self.holds(facts)

    def undo(self, facts: Facts, writer: Writer) -> None:
        self.patch(writer, Test(_at(self.sign), facts[SELF].run), Drop(_at(self.sign)))


class Empty(_OnNode, frozen=True, kw_only=True):
    """Evicts the pods of the node. `planned`: those that were there when the plan was made, by uid."""

    planned: tuple[str, ...] = ()

    @property
    def evicts(self) -> tuple[str, ...]:
        return self.planned

    @property
    def says(self) -> str:
        return f"evict the pods of {self.node}"

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        return (NODE, PODS)

    def _left(self, facts: Facts) -> list[GpuPod]:
        return [pod for pod in facts[PODS] if pod.spec.node_name == self.node]

    def holds(self, facts: Facts) -> bool:
        return not self._left(facts)

    def progress(self, facts: Facts) -> str:
        return f"{len(self._left(facts))} pods are left"

    def act(self, facts: Facts, writer: Writer) -> None:
        for pod in self._left(facts):
            writer.evict(pod.ref, pod.metadata.uid)


class Turn(_OnNode, frozen=True, kw_only=True):
    """Changes the value, and back."""

    old: str
    new: str

    @property
    def says(self) -> str:
        return f"change the value of {self.node} to {self.new}"

    @property
    def undoes(self) -> str:
        return f"change the value of {self.node} back to {self.old}"

    def holds(self, facts: Facts) -> bool:
        return self.mark(facts, VALUE) == self.new

    def stuck(self, facts: Facts) -> str:
        value = self.mark(facts, VALUE)
        return "" if value in (self.old, self.new) else f"the value is {value}: somebody else changed it"

    def act(self, facts: Facts, writer: Writer) -> None:
        self.patch(writer, Test(_at(VALUE), self.old), Put(_at(VALUE), self.new))

    def undone(self, facts: Facts) -> bool:
        return self.mark(facts, VALUE) == self.old

    def hampered(self, facts: Facts) -> str:
        return self.stuck(facts)

    def undo(self, facts: Facts, writer: Writer) -> None:
        self.patch(writer, Test(_at(VALUE), self.new), Put(_at(VALUE), self.old))


@given(NODE, OPTIONS, PODS)
def little_steps(node: NodeView, options: Mapping[str, Any], pods: Each[Ref, GpuPod]) -> tuple[Step, ...]:
    about = {"node": node.metadata.name, "uid": node.metadata.uid}
    there = tuple(pod.metadata.uid for pod in pods if pod.spec.node_name == node.metadata.name)
    return (
        Close(**about),
        Close(**about, sign="little.example/quiet"),
        Empty(**about, planned=there),
        Turn(**about, old=node.metadata.annotations.get(VALUE, ""), new=options.get("to", "new")),
    )


@guard("another like it is left", given(NODE), "--force", again=before("Turn"))
def another_is_left(node: NodeView) -> Iterator[Finding]:
    if LAST in node.metadata.labels:
        yield blocks(node.ref, f"{node.ref} is the last of its kind")


@given(NODE)
def little_preconditions(node: NodeView) -> Mapping[str, str]:
    return {"value": node.metadata.annotations.get(VALUE, "")}


@given(PODS, TARGET)
def little_bounds(pods: Each[Ref, GpuPod], name: str) -> Bounds:
    there = [pod for pod in pods if pod.spec.node_name == name]
    spaces = tuple(sorted({pod.metadata.namespace for pod in there}))
    return Bounds(evictions=len(there), namespaces=spaces, owner_kinds=("ReplicaSet",))


@given(TARGET)
def little_effects(name: str) -> tuple[str, ...]:
    return (f"{name}: old -> new",)


LITTLE = Runbook(
    id="little",
    title="a little change",
    about="For tests.",
    target="NODE",
    back="the old value",
    guards=(state_namespace_exists, no_other_run, slot_free, held_by_nobody_else, another_is_left),
    steps=little_steps,
    step_types=(Close, Empty, Turn),
    options=(
        Option("--to", "The new value.", "new"),
        Option("--force", "Take the risk.", False),
        Option("--skip", "Leave these alone.", ()),
    ),
    preconditions=little_preconditions,
    bounds=little_bounds,
    effects=little_effects,
    reverse=lambda run: {**run.options, "to": "old"},
)

RUNBOOK = LITTLE


# The cluster


def a_node(name: str = "gpu-1", **labels: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": f"uid-of-{name}",
            "labels": labels,
            "annotations": {VALUE: "old"},
        },
        "spec": {},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }


def a_pod(name: str, node: str = "gpu-1") -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team-a", "uid": f"uid-of-{name}"},
        "spec": {"nodeName": node},
        "status": {"phase": "Running"},
    }


def a_cluster(*nodes: str) -> list[Object]:
    """Nodes with two pods each."""
    names = nodes or ("gpu-1",)
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "uid": "uid-of-ns"}},
        *(a_node(name) for name in names),
        *(a_pod(f"{name}-train-{number}", name) for name in names for number in range(2)),
    ]


class Killed(BaseException):
    """The process is gone, as after kill -9."""


class Quick(Event):
    """Lets no time pass."""

    def wait(self, timeout: float | None = None) -> bool:
        return self.is_set()


@dataclass
class Hands:
    """The writer of one process. `before` and `after` are told the number of each write."""

    world: World
    before: Callable[[int], None] = lambda _: None
    after: Callable[[int], None] = lambda _: None
    written: int = field(default=0, init=False)

    def patch(self, ref: Ref, uid: str, changes: Sequence[Change]) -> None:
        self._do(lambda: self.world.writer.patch(ref, uid, changes))

    def create(self, ref: Ref, body: Mapping[str, Any]) -> str:
        return str(self._do(lambda: self.world.writer.create(ref, body)))

    def delete(self, ref: Ref, uid: str, grace: int | None = None) -> None:
        self._do(lambda: self.world.writer.delete(ref, uid, grace))

    def evict(self, pod: Ref, uid: str, grace: int | None = None) -> Blocked | None:
        blocked: Blocked | None = self._do(lambda: self.world.writer.evict(pod, uid, grace))
        return blocked

    def _do(self, write: Callable[[], Any]) -> Any:
        number, self.written = self.written, self.written + 1
        self.before(number)
        with self.world.lock:
            answer = write()
        self.after(number)
        return answer


@dataclass
class World:
    """A cluster, and who is at work in it. `blind`: for which looks, by number, nothing can be read."""

    items: list[Object] = field(default_factory=a_cluster)
    policy: Policy = field(default_factory=lambda: Policy(runbooks=RunbooksPolicy(max_nodes=2)))
    blind: Callable[[int], bool] = lambda _: False
    seen: Callable[[int], None] = lambda _: None
    looks: count[int] = field(default_factory=count)
    told: list[str] = field(default_factory=list)
    kept: list[Run] = field(default_factory=list)
    notes: list[Mapping[str, Any]] = field(default_factory=list)
    lock: RLock = field(default_factory=RLock)
    book: Runbook = LITTLE
    sessions: count[int] = field(default_factory=lambda: count(1))
    now: datetime = A_MOMENT

    def __post_init__(self) -> None:
        self.left: list[str] = []
        self.writer = MemoryWriter(self.items, leaves=self._leaves, after=self._schedules)

    def _schedules(self, call: Call) -> None:
        """As soon as a node is open again, somebody else's pod is placed there."""
        opened = call.verb == "patch" and Drop(_at("little.example/closed")) in call.what
        if opened:
            self.items.append(a_pod("newcomer", call.ref.name))

    def _leaves(self, item: Object) -> None:
        if item["kind"] == "Pod":
            self.left.append(item["metadata"]["name"])

    # Eyes

    def look_with(self, arguments: Mapping[Argument[Any], Any]) -> Look:
        def look(facts: Iterable[Fact[Any]]) -> Facts:
            number = next(self.looks)
            self.seen(number)
            gap = Unknown(Reason.TIMEOUT, "no answer in time")
            kinds = ("nodes", "pods", "configmaps", "leases.coordination.k8s.io", "namespaces")
            with self.lock:
                missing = dict.fromkeys(kinds, gap) if self.blind(number) else {}
                reader = MemoryReader(self.items, missing=missing, now=self.now)
                return gather(facts, reader, arguments)

        return look

    # Processes

    def crew(self, hands: Hands | None = None, **more: Any) -> Crew:
        made = {
            "writer": hands or Hands(self),
            "look": self.look_with,
            "user": "ana",
            "host": "ana@bastion-1",
            "session": f"session-{next(self.sessions)}",
            "policy": self.policy,
            "namespace": NAMESPACE,
            "stop": Quick(),
            "tell": self.told.append,
            "keep": self.kept.append,
            "note": self.notes.append,
        }
        return Crew(**{**made, **more})

    def task(self, target: str = "gpu-1", **options: Any) -> Task:
        return Task(self.book, target, options, self.policy, NAMESPACE)

    def plan(self, target: str = "gpu-1", **options: Any) -> TargetPlan:
        task = self.task(target, **options)
        return plan_of(task, self.look_with(task.arguments)(task.runbook.needs))

    def begin(self, crew: Crew | None = None, target: str = "gpu-1", run: str = "r1") -> Ending:
        return begin(self.task(target), an_order(), self.plan(target), crew or self.crew(), run)

    def go_on(self, crew: Crew | None = None, *, run: str = "r1", back: bool = False) -> Ending:
        found = self.run(run)
        return go_on(found, self.task(found.target), crew or self.crew(), back=back)

    # What stands there

    def node(self, name: str = "gpu-1") -> Object:
        return next(each for each in self.of("Node") if each["metadata"]["name"] == name)

    def marks(self, name: str = "gpu-1") -> dict[str, str]:
        return dict(self.node(name)["metadata"]["annotations"])

    def of(self, kind: str) -> list[Object]:
        return [each for each in self.items if each["kind"] == kind]

    @property
    def leases(self) -> dict[str, Object]:
        return {each["metadata"]["name"]: each for each in self.of("Lease")}

    @property
    def journals(self) -> dict[str, Run]:
        texts = (each["data"]["run.json"] for each in self.of("ConfigMap"))
        runs = (msgspec.json.decode(text, type=Run) for text in texts)
        return {run.id: run for run in runs}

    def run(self, id_: str = "r1") -> Run:
        return self.journals[id_]

    def reached(self, id_: str = "r1") -> list[Reached]:
        return [each.reached for each in self.run(id_).steps]


def an_order() -> Order:
    planner = Person(
        user="ana", host="ana@bastion-1", at=datetime(2026, 11, 30, 10, tzinfo=UTC), did="planned"
    )
    return Order("cluster-1", "sha256:0", planner, "a test", "T-1")


def recorded(*steps: Step) -> tuple[StepRecord, ...]:
    return tuple(StepRecord(says=each.says, step=msgspec.to_builtins(each)) for each in steps)


def dies(at: int, *, after: bool) -> dict[str, Any]:
    """A process that is killed before, or after, its write of this number."""

    def strike(number: int) -> None:
        if number == at:
            raise Killed

    return {"after" if after else "before": strike}


def moments(writes: int) -> Iterator[tuple[int, bool]]:
    """Before and after each of so many writes."""
    for number in range(writes):
        yield number, False
        yield number, True
