"""Where the cases play: a node each, pods on it that must move, and what must be true in the end."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from gpuctl.nvidia.node import CONFIG, STATE
from gpuctl.runbook.drain.cordon import CORDONED_BY
from gpuctl.runbook.mig.facts import BACK, SET_BY
from gpuctl.runbook.records import Outcome, Reached, Standing
from tests.cluster.bed import Bed
from tests.cluster.bed.api import ApiError
from tests.cluster.bed.audit import AuditEvent, WritesSeen
from tests.cluster.bed.migworld import MigWorld, WorldNode
from tests.cluster.bed.simulated import SimulatedNodes, gpu_node
from tests.cluster.bed.workloads import Workloads

from .player import POLICY, Desk, Player, Program, make_namespace
from .strike import Order

SEVEN, HALVES = ["1g.10gb"] * 7, ["3g.40gb"] * 2
SLICED: Final = {"all-1g.10gb": SEVEN, "all-3g.40gb": HALVES}
ASKED: Final = {"all-1g.10gb": "nvidia.com/mig-1g.10gb", "all-3g.40gb": "nvidia.com/mig-3g.40gb"}
OTHER: Final = {"all-1g.10gb": "all-3g.40gb", "all-3g.40gb": "all-1g.10gb"}
MOVES: Final = ("web", "db")  # the pods that must go
STAYS: Final = "logs"  # the one that must not
UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"


@dataclass
class Slot:
    """A node with its namespaces: one case after the other plays here."""

    number: int
    node: WorldNode
    folder: Path
    plans: dict[str, Path] = field(default_factory=dict)

    @property
    def home(self) -> str:
        """The label of the nodes on which its pods may run."""
        return f"gpuctl-bed/home-{self.number}"

    @property
    def space(self) -> str:
        return f"faults-{self.number}"

    @property
    def state(self) -> str:
        return f"faults-{self.number}-state"


@dataclass
class Stage:
    """The nodes of all cases, and two that take in the pods of all of them."""

    bed: Bed
    world: MigWorld
    folder: Path
    slots: list[Slot]
    spares: tuple[str, ...]
    writes: WritesSeen

    @property
    def policy(self) -> Path:
        return self.folder / "gpuctl.yaml"


@contextmanager
def staged(bed: Bed, folder: Path, count: int) -> Iterator[Stage]:
    """A stage with so many nodes."""
    with MigWorld(SimulatedNodes(bed)) as world:
        spares = []
        for config, profiles in SLICED.items():
            name = f"faults-spare-{config[4:6]}"
            world.nodes.add(gpu_node(name, profiles=[profiles], resources={ASKED[config]: 900, "pods": None}))
            spares.append(name)
        stage = Stage(bed, world, folder, [], tuple(spares), WritesSeen(bed.audit.file, "gpuctl/"))
        stage.policy.write_text(POLICY)
        labels = [f"gpuctl-bed/home-{number}" for number in range(count)]
        made = world.add(
            *(
                gpu_node(f"faults-{number}", profiles=[SEVEN], extra={label: ""})
                for number, label in enumerate(labels)
            )
        )
        for number, node in enumerate(made):
            stage.slots.append(_slot(stage, number, node))
        yield stage


def _slot(stage: Stage, number: int, node: WorldNode) -> Slot:
    slot = Slot(number, node, stage.folder / f"slot-{number}")
    slot.folder.mkdir()
    for name in (slot.space, slot.state):
        make_namespace(stage.world.api, name)
    return slot


class Scene(Player):
    """One case on its node: pods that run, a plan, and the person who works with gpuctl."""

    def __init__(self, stage: Stage, slot: Slot, name: str) -> None:
        desk = Desk(stage.bed.kubeconfig, stage.policy, slot.state, slot.folder)
        super().__init__(stage.world.api, desk, name)
        self.stage, self.slot, self.world = stage, slot, stage.world
        self.work = Workloads(stage.bed, slot.space)
        self.pods: dict[str, str] = {}
        self.uid = ""

    @property
    def node(self) -> WorldNode:
        return self.slot.node

    @property
    def place(self) -> str:
        return self.node.name

    @property
    def pods_path(self) -> str:
        return f"/api/v1/namespaces/{self.slot.space}/pods"

    # What there is

    def raw(self) -> dict[str, Any]:
        """The Node object."""
        return self.api.get(f"/api/v1/nodes/{self.node.name}")

    def running(self, app: str) -> list[dict[str, Any]]:
        """The pods of this app that run."""
        return [
            pod
            for pod in self.api.items(self.pods_path, labelSelector=f"app={app}")
            if pod.get("status", {}).get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
        ]

    def another(self, app: str, gone: dict[str, Any]) -> dict[str, Any]:
        """The pod that runs in the place of this one."""
        found: list[dict[str, Any]] = []

        def back() -> bool:
            found[:] = [pod for pod in self.running(app) if pod["metadata"]["uid"] != gone["metadata"]["uid"]]
            return len(found) == 1

        self.wait(back, f"{app} is back")
        return found[0]

    def written(self, since: datetime | None = None) -> list[AuditEvent]:
        """What gpuctl has written on this node, and in these namespaces."""
        return [
            each
            for each in self.stage.writes.all()
            if each.at >= (since or self.began)
            and (
                each.namespace in (self.slot.space, self.slot.state)
                or (each.resource, each.name) == ("nodes", self.node.name)
            )
        ]

    def evictions(self) -> list[str]:
        """The names of the pods whose eviction was accepted."""
        return [
            each.name
            for each in self.written()
            if each.subresource == "eviction" and each.code < 300 and each.namespace == self.slot.space
        ]

    # Before

    def set_up(self) -> None:
        """Pods run on the node, and may go to the spare ones once they are evicted."""
        self.old = self.raw()["metadata"]["labels"][CONFIG]
        self.new = OTHER[self.old]
        self._open_spares(None)
        asks = {ASKED[self.old]: 1}
        self._deploy("Deployment", "web", {self.slot.home: ""}, asks)
        self._deploy("StatefulSet", "db", {self.slot.home: ""}, asks)
        self._deploy("Deployment", STAYS, {"kubernetes.io/hostname": self.node.name}, {})
        for app in (*MOVES, STAYS):
            self.wait(lambda app=app: self.running(app), f"{app} runs", 120)  # type: ignore[misc]
            (pod,) = self.running(app)
            assert pod["spec"]["nodeName"] == self.node.name
            self.pods[pod["metadata"]["name"]] = pod["metadata"]["uid"]
        self._open_spares("")
        raw = self.raw()
        self.uid = raw["metadata"]["uid"]
        self.mark_before = raw["metadata"].get("annotations", {}).get(SET_BY, "")

    def _open_spares(self, label: str | None) -> None:
        for name in self.stage.spares:
            self.api.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {self.slot.home: label}}})

    def _deploy(self, kind: str, app: str, where: Mapping[str, str], asks: Mapping[str, int]) -> None:
        limits = {"limits": {name: str(count) for name, count in asks.items()}} if asks else {}
        container = {"name": "main", "image": "registry.example.com/team/app:1", "resources": limits}
        spec: dict[str, Any] = {
            "replicas": 1,
            "selector": {"matchLabels": {"app": app}},
            "template": {
                "metadata": {"labels": {"app": app}},
                "spec": {"nodeSelector": dict(where), "containers": [container]},
            },
        }
        if kind == "StatefulSet":
            spec["serviceName"] = app
        path = f"/apis/apps/v1/namespaces/{self.slot.space}/{kind.lower()}s"
        self.wait(lambda: self.posted(path, {"metadata": {"name": app}, "spec": spec}), f"{app} is made")

    # What the person does

    def planned(self, *flags: str) -> Path:
        """The file of a plan; a plan without flags serves all cases of this node that begin alike."""
        if not flags and self.new in self.slot.plans:
            return self.slot.plans[self.new]
        file = self.slot.folder / f"plan-{self.new}{'-with-flags' * bool(flags)}.json"
        program = self.start(
            "plan",
            "mig-reconfigure",
            self.node.name,
            f"--config={self.new}",
            "--last-replica",
            "--change-timeout=120",
            "--drain-timeout=90",
            *flags,
            f"--out={file}",
        )
        assert program.ended() == 0, program.said[-2000:]
        if not flags:
            self.slot.plans[self.new] = file
        return file

    def apply(self, order: Order | None = None, plan: Path | None = None, *flags: str) -> Program:
        return self.start("apply", str(plan or self.planned()), "--yes", *flags, order=order)

    # What must be true

    def is_named(self) -> None:
        """What is left of a run that has stopped is named by its journal, and its locks by its name."""
        raw, run = self.raw(), self.journal()
        annotations = raw["metadata"].get("annotations", {})
        cordon, config = annotations.get(CORDONED_BY, ""), annotations.get(SET_BY, "")
        reached = {each.step["step"]: each.reached for each in run.steps} if run else {}
        if raw["metadata"]["uid"] == self.uid:
            assert bool(raw["spec"].get("unschedulable")) == bool(cordon), "a cordon without a mark"
        if cordon:
            assert run is not None, "a cordon without a journal"
            assert run.id == cordon, "a cordon of another run"
            assert run.state is Standing.UNFINISHED, "a cordon after the end"
            assert reached["Cordon"] in (Reached.BEGUN, Reached.DONE)
        if config not in ("", self.mark_before):
            assert run is not None, "a mark without a journal"
            assert run.id == config.removesuffix(BACK), "a mark of another run"
            assert reached["SetConfig"] in (Reached.BEGUN, Reached.DONE)
        self.locks_name(run)
        self.within_bounds()

    def within_bounds(self) -> None:
        """Nothing was evicted but the pods of the plan, each once; nothing deleted; what stays has stayed."""
        counts = Counter(self.evictions())
        beyond = [name for name, count in counts.items() if name not in self.pods or count > 1]
        assert not beyond, f"evicted beyond the plan: {beyond}"
        assert not [name for name in counts if name.startswith(STAYS)]
        deleted = [each.name for each in self.written() if (each.resource, each.verb) == ("pods", "delete")]
        assert not deleted, f"deleted: {deleted}"
        debug = self.api.items(f"/api/v1/namespaces/{self.slot.state}/pods")
        assert not debug, f"pods of gpuctl's own: {[each['metadata']['name'] for each in debug]}"

    def nothing_is_left(self, *, cordoned: bool = False) -> None:
        """No lock, taint, cordon or mark, and no pod lost."""
        raw = self.raw()
        annotations = raw["metadata"].get("annotations", {})
        assert bool(raw["spec"].get("unschedulable")) == cordoned, "cordoned"
        assert CORDONED_BY not in annotations, "the mark of a cordon"
        taints = {each["key"] for each in raw["spec"].get("taints", ())}
        assert taints <= {UNSCHEDULABLE}, taints
        leases = [each["metadata"]["name"] for each in self.leases()]
        assert not leases, f"locks are left: {leases}"
        self.within_bounds()
        for app in (*MOVES, STAYS):
            self.wait(lambda app=app: len(self.running(app)) == 1, f"{app} runs again")  # type: ignore[misc]
        (stays,) = self.running(STAYS)
        assert stays["metadata"]["uid"] == self.pods[stays["metadata"]["name"]], "logs was taken away"

    def is_done(self, *, cordoned: bool = False) -> None:
        """The change is made, verified by other eyes than gpuctl's, and journaled."""
        run = self.journal()
        assert run is not None
        assert (run.state, run.outcome) == (Standing.FINISHED, Outcome.SUCCEEDED), (run.state, run.outcome)
        assert {each.reached for each in run.steps} <= {Reached.DONE, Reached.UNDONE}
        self.has(self.new)
        self.nothing_is_left(cordoned=cordoned)

    def is_undone(self, config: str = "") -> None:
        """All is as before but for the evictions."""
        run = self.journal()
        assert run is not None
        assert (run.state, run.outcome) == (Standing.UNDONE, Outcome.REVERTED), (run.state, run.outcome)
        assert not self.raw()["metadata"].get("annotations", {}).get(SET_BY, "").startswith(run.id)
        self.has(config or self.old)
        self.nothing_is_left()

    def is_untouched(self) -> None:
        """Nothing has happened, and nobody says that it has."""
        assert self.journal() is None
        self.has(self.old)
        self.nothing_is_left()
        assert not self.evictions()
        patched = [each for each in self.written() if each.resource == "nodes" and each.code < 300]
        assert not patched

    def has(self, config: str) -> None:
        """The node has this configuration, on its GPUs too."""
        labels = self.raw()["metadata"]["labels"]
        assert labels[CONFIG] == config, f"{labels[CONFIG]}, not {config}"
        assert labels[STATE] == "success", labels[STATE]
        assert self.node.layout == [SLICED[config]], self.node.layout
        assert self.node.operands_run()
        amount = {each: self.node.capacity(ASKED[each].partition("/")[2]) for each in SLICED}
        assert amount == {each: len(SLICED[each]) if each == config else 0 for each in SLICED}, amount

    # After

    def clear(self) -> None:
        """Makes room for the next case."""
        self.end_programs()
        self.node.honest()
        for kind in ("deployments", "statefulsets"):
            self.api.delete(f"/apis/apps/v1/namespaces/{self.slot.space}/{kind}")
        deadline = time.monotonic() + 60
        self.api.delete(f"/apis/policy/v1/namespaces/{self.slot.space}/poddisruptionbudgets")
        sets = f"/apis/apps/v1/namespaces/{self.slot.space}/replicasets"
        while time.monotonic() < deadline and (self.api.items(self.pods_path) or self.api.items(sets)):
            self.api.delete(self.pods_path, gracePeriodSeconds="0")
            time.sleep(0.5)
        self.let_go()

    def mend(self) -> None:
        """After a case that went wrong: a node in service again, or another of its name."""
        node = self.node
        self.slot.plans.clear()
        with suppress(ApiError, AssertionError):
            marks = {CORDONED_BY: None, SET_BY: None}
            patch = {"spec": {"unschedulable": None}, "metadata": {"annotations": marks}}
            self.api.patch(f"/api/v1/nodes/{node.name}", patch)
            node.let_go()
            if node.down:
                node.start_kubelet()
            self.api.patch(f"/api/v1/nodes/{node.name}", {"metadata": {"labels": {CONFIG: "all-1g.10gb"}}})
            node.restart_manager()
            node.settled("all-1g.10gb", 60)
            return
        self.replace()

    def replace(self) -> None:
        """Another node of the same name."""
        self.slot.plans.clear()
        made = gpu_node(self.node.name, profiles=[SEVEN], extra={self.slot.home: ""})
        self.slot.node = self.world.replace(made)
