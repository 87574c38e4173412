"""A cluster in memory with a Kueue that does what Kueue documents, and processes that drill in it.

`settle` is Kueue: it is called after each write. Time passes with each look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from gpuctl.facts.alerts import Alert
from gpuctl.facts.fact import Argument, Fact
from gpuctl.facts.gather import Facts, gather
from gpuctl.facts.kinds import Answer, Attempt, Ref
from gpuctl.facts.metrics import Labels
from gpuctl.facts.state import Each, Inapplicable, Unknown
from gpuctl.kueue.objects import RESOURCE_FLAVOR
from gpuctl.runbook.flavors.canaries import IN_USE, UNIT
from gpuctl.runbook.flavors.drill import RUNBOOK
from gpuctl.runbook.look import Look
from gpuctl.runbook.records import Run
from gpuctl.runbook.runbook import Runbook
from tests.builders.kueue import UPSTREAM, Shape, healthy
from tests.memory import MemoryReader
from tests.runbook.little import World
from tests.runbook.memory_writer import MemoryWriter, Object

KEPT = ("ResourceFlavor", "ClusterQueue", "Workload")
TRIED = Attempt(RESOURCE_FLAVOR, "", {})


def stamp(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(kind: str, value: bool, reason: str, message: str, at: datetime) -> Object:
    status = "True" if value else "False"
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": stamp(at),
    }


@dataclass
class KueueWriter(MemoryWriter):
    """Writes as an API server with finalizers would; then Kueue looks at what it has."""

    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    works: Callable[[], bool] = lambda: True
    admits_on_terminating: bool = True
    forgets: str = ""  # a fault to be played: evicts, releases, disturbs, counts
    gives: str = ""  # the flavor that Workloads are given, in the place of their queue's
    version: str = ""
    says_of_local_queues: str = "ClusterQueueIsInactive"
    says_of_workloads: str = ""  # that wait

    def create(self, ref: Ref, body: Mapping[str, Any]) -> str:
        uid = super().create(ref, body)
        item = self.find(ref)
        assert item is not None
        if self.version and item["apiVersion"].startswith("kueue"):
            assert item["apiVersion"].endswith(self.version)
        about = item["metadata"]
        about |= {"creationTimestamp": stamp(self.clock()), "generation": 1}
        if ref.kind.kind in KEPT:
            about["finalizers"] = [IN_USE]
        self.settle()
        return uid

    def patch(self, ref: Ref, uid: str, changes: Any) -> None:
        super().patch(ref, uid, changes)
        self.settle()

    def delete(self, ref: Ref, uid: str, grace: int | None = None) -> None:
        super().delete(ref, uid, grace)
        self.settle()

    def _go(self, item: Object) -> None:
        if self._is_full(item) or item["metadata"].get("finalizers"):
            item["metadata"].setdefault("deletionTimestamp", stamp(self.clock()))
        else:
            super()._go(item)

    # Kueue

    def of(self, kind: str) -> list[Object]:
        return [each for each in self.items if each["kind"] == kind]

    def _is_full(self, item: Object) -> bool:
        """Whether it is a namespace with something in it."""
        return item["kind"] == "Namespace" and any(_space(each) == _name(item) for each in self.items)

    def settle(self) -> None:
        """Everything that follows."""
        before = ""
        while before != (now := repr(self._concerned())):
            before = now
            if self.works():
                self._kueue()
            for item in self._concerned():
                about = item["metadata"]
                if "deletionTimestamp" in about and not about.get("finalizers") and not self._is_full(item):
                    self.items.remove(item)

    def _concerned(self) -> list[Object]:
        return [each for each in self.items if each["kind"] in (*KEPT, "LocalQueue", "Namespace")]

    def _kueue(self) -> None:
        for item in self._concerned():
            if item["metadata"].get("deletionTimestamp") and self._may_go(item):
                item["metadata"]["finalizers"] = []
        for queue in self.of("ClusterQueue"):
            self._queue(queue)
        for workload in self.of("Workload"):
            self._workload(workload)

    def _may_go(self, item: Object) -> bool:
        if item["kind"] == "ResourceFlavor":
            used = any(_name(item) in _flavors(queue) for queue in self.of("ClusterQueue"))
            return not used or self.forgets == "releases"
        if item["kind"] == "ClusterQueue":
            here = (each for each in self.of("Workload") if _space(each) == _name(item))
            return not any(_admitted(each) for each in here)
        return str(item["kind"]) == "Workload"

    def _queue(self, queue: Object) -> None:
        there = {_name(each) for each in self.of("ResourceFlavor")}
        missing = sorted(set(_flavors(queue)) - there)
        if self.forgets == "disturbs" and missing == [] and not _name(queue).startswith("gpuctl-drill-"):
            drilled = any(_name(each).startswith("gpuctl-") for each in self.of("ClusterQueue"))
            missing = ["?"] if drilled else []
        reason, message = (
            ("FlavorNotFound", f"references missing ResourceFlavor(s): {','.join(missing)}.")
            if missing
            else ("Ready", "Can admit new workloads")
        )
        was = queue.get("status", {}).get("conditions", [{}])[0]
        if was.get("reason") != reason:
            active = condition("Active", not missing, reason, message, self.clock())
            queue["status"] = {"conditions": [active]}
        counted = _flavors(queue) if self.forgets != "counts" else queue.get("first", _flavors(queue))
        queue.setdefault("first", _flavors(queue))
        queue["status"]["flavorsReservation"] = [{"name": name, "resources": []} for name in counted]
        for local in self.of("LocalQueue"):
            if local["spec"]["clusterQueue"] == _name(queue) and _active(local) != (not missing):
                reason = "Ready" if not missing else self.says_of_local_queues
                active = condition("Active", not missing, reason, "", self.clock())
                local["status"] = {**local.get("status", {}), "conditions": [active]}

    def _workload(self, workload: Object) -> None:
        queue = next((each for each in self.of("ClusterQueue") if _name(each) == _space(workload)), None)
        if queue is None:
            return
        flavor = next(iter(_flavors(queue)))
        going = next(
            (each for each in self.of("ResourceFlavor") if _name(each) == flavor and _terminates(each)), None
        )
        if self.forgets == "evicts" and going and _admitted(workload):
            workload["status"]["conditions"].append(
                condition("Evicted", True, "X", "the flavor goes", self.clock())
            )
        elif not _admitted(workload) and not _evicted(workload):
            able = _active(queue) and (not going or self.admits_on_terminating)
            said = "" if able else self.says_of_workloads or f"ClusterQueue {_name(queue)} is inactive"
            if "status" in workload and not able:
                return
            given = {"podSetAssignments": [{"name": "main", "flavors": {UNIT: self.gives or flavor}}]}
            workload["status"] = {
                **({"admission": given} if able else {}),
                "conditions": [
                    condition("QuotaReserved", able, "X", said, self.clock()),
                    condition("Admitted", able, "X", said, self.clock()),
                ],
            }


def _name(item: Object) -> str:
    return str(item["metadata"]["name"])


def _space(item: Object) -> str:
    return str(item["metadata"].get("namespace", ""))


def _terminates(item: Object) -> bool:
    return "deletionTimestamp" in item["metadata"]


def _flavors(queue: Object) -> list[str]:
    return [each["name"] for group in queue["spec"]["resourceGroups"] for each in group["flavors"]]


def _active(queue: Object) -> bool:
    return bool(queue.get("status", {}).get("conditions", [{}])[0].get("status") == "True")


def _evicted(workload: Object) -> bool:
    return any(each["type"] == "Evicted" for each in workload.get("status", {}).get("conditions", ()))


def _admitted(workload: Object) -> bool:
    conditions = {each["type"]: each["status"] for each in workload.get("status", {}).get("conditions", ())}
    return conditions.get("Admitted") == "True" and conditions.get("Evicted") != "True"


def a_queue(name: str, flavor: str) -> list[Object]:
    """Somebody's flavor and queue."""
    group = {
        "coveredResources": ["cpu"],
        "flavors": [{"name": flavor, "resources": [{"name": "cpu", "nominalQuota": "4"}]}],
    }
    version = "kueue.x-k8s.io/v1beta2"
    about = {"uid": f"uid-of-{name}", "generation": 3}
    return [
        {
            "apiVersion": version,
            "kind": "ResourceFlavor",
            "metadata": {**about, "name": flavor, "finalizers": [IN_USE]},
            "spec": {},
        },
        {
            "apiVersion": version,
            "kind": "ClusterQueue",
            "metadata": {**about, "name": name, "finalizers": [IN_USE]},
            "spec": {"resourceGroups": [group]},
        },
    ]


@dataclass
class DrillWorld(World):
    """A cluster with Kueue and somebody's queue. `answer`: the server's to a creation that is not stored."""

    book: Runbook = RUNBOOK
    shape: Shape = UPSTREAM
    answer: Answer | None = None
    missing: Mapping[str, Unknown | Inapplicable] = field(default_factory=dict)
    firing: Each[Labels, Alert] | Unknown | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    passed: float = 0.0

    def __post_init__(self) -> None:
        cluster = healthy(self.shape)
        cluster.drop("LocalQueue")
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gpuctl-system", "uid": "ns"}}
        self.items[:] = [*cluster.items, space, *a_queue("team", "real")]
        self.writer: KueueWriter = KueueWriter(self.items, clock=self.clock, version=self.shape.version)
        if self.answer is None:
            body = {"kind": "ResourceFlavor", "metadata": {"name": "x", "finalizers": [IN_USE]}}
            self.answer = Answer(datetime.now(UTC), 0.1, 201, body)
        self.writer.settle()

    def clock(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self.passed)

    def look_with(self, arguments: Mapping[Argument[Any], Any]) -> Look:
        def look(facts: Iterable[Fact[Any]]) -> Facts:
            number = next(self.looks)
            self.seen(number)
            with self.lock:
                self.passed += 1.0
                return gather(facts, self.reader(), arguments)

        return look

    def reader(self) -> MemoryReader:
        answers = {TRIED: self.answer} if self.answer else None
        return MemoryReader(
            self.items, missing=self.missing, answers=answers, now=self.clock(), firing=self.firing
        )

    def crew(self, hands: Any = None, **more: Any) -> Any:
        """One that gives up soon: no time passes in waits."""
        return super().crew(hands, **{"limit": 20.0, **more})

    def task(self, target: str = "canary", **options: Any) -> Any:
        return super().task(target, **{**self.options, **options})

    def plan(self, target: str = "canary", **options: Any) -> Any:
        return super().plan(target, **options)

    def begin(self, crew: Any = None, target: str = "canary", run: str = "r1") -> Any:
        return super().begin(crew, target, run)

    @property
    def canaries(self) -> list[str]:
        """What is left of drills."""
        mine = [each for each in self.items if (_space(each) or _name(each)).startswith("gpuctl-drill-")]
        return [f"{each['kind']}/{_name(each)}" for each in mine]

    @property
    def journals(self) -> dict[str, Run]:
        import msgspec

        texts = [each["data"]["run.json"] for each in self.of("ConfigMap") if "run.json" in each["data"]]
        runs = (msgspec.json.decode(text, type=Run) for text in texts)
        return {run.id: run for run in runs}

    @property
    def of_others(self) -> dict[str, Any]:
        """Somebody's queue and flavor, as they are."""
        return {_name(each): repr(each) for each in self.items if _name(each) in ("team", "real")}
