"""Who works with gpuctl in the test's own process, as on a simulated GPU node; and how nodes stand."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from gpuctl.audit.policy import Policy
from gpuctl.cli.acting import Acting, Site, open_site
from gpuctl.cli.looking import Looking
from gpuctl.cli.monitoring import Monitoring
from gpuctl.cluster.connection import Access
from gpuctl.cluster.probe import Probing
from gpuctl.facts.own import STATE_NAMESPACE
from gpuctl.runbook import conduct
from gpuctl.runbook.catalogue import runbook
from gpuctl.runbook.conduct import Crew, Ending, Order
from gpuctl.runbook.plan import TargetPlan
from gpuctl.runbook.planning import Task, plan_of
from gpuctl.runbook.records import LEASES, TARGET_NAME, Person, Run, runs
from gpuctl.runbook.writer import Writer
from tests.cluster.bed import Bed
from tests.cluster.bed.migworld import MigWorld, WorldNode
from tests.cluster.bed.simulated import SimulatedNodes
from tests.cluster.lenient import lenient

SEVEN = ["1g.10gb"] * 7
HALVES = ["3g.40gb"] * 2
SLICE, HALF = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"
LOGIN = threading.Lock()  # a program logs in once; the client's certificate files are those of one login


@contextmanager
def mig_world(bed: Bed, state: str) -> Iterator[MigWorld]:
    """Simulated nodes, and the namespace that locks and journals of runs on them are kept in."""
    bed.kubectl("create", "namespace", state)
    with MigWorld(SimulatedNodes(bed)) as made:
        yield made
    bed.kubectl("delete", "namespace", state, "--wait=false")


def _as_it_is(writer: Writer) -> Writer:
    return writer


@dataclass(frozen=True)
class Operator:
    """Somebody who works with gpuctl, in this process. `state`: the namespace of locks and journals.
    `timeout`: for the whole of a run. `interrupted_at`: they interrupt a run that says this."""

    access: Access
    state: str
    policy: Policy = field(default_factory=lenient)
    timeout: float = 600
    stop: threading.Event = field(default_factory=threading.Event)
    said: list[str] = field(default_factory=list)
    interrupted_at: str = ""

    @property
    def site(self) -> Site:
        acting = Acting(self.policy, self.state, "a test", "T-1", self.timeout)
        with LOGIN:
            return open_site(self.access, acting, Looking(Probing("exec", seconds=90), (), ""), Monitoring())

    def plan_for(self, book: str, target: str, **options: Any) -> TargetPlan:
        """The plan for a target."""
        site = self.site
        task = _task(site, book, target, options)
        return plan_of(task, site.looks()(task.arguments)(task.runbook.needs))

    def carry_out(
        self,
        book: str,
        target: str,
        plan: TargetPlan,
        *,
        hands: Callable[[Writer], Writer] = _as_it_is,
        **options: Any,
    ) -> Ending:
        """From plan to end. `hands`: who writes."""
        site = self.site
        person = Person(user="ana", host="here", at=datetime.now(UTC), did="planned")
        order = Order(site.source.cluster_uid, "sha256:x", person)
        crew = self._crew(site)
        crew = replace(crew, writer=hands(crew.writer))
        return conduct.begin(_task(site, book, target, options), order, plan, crew)

    def go_on(self, run: str, *, back: bool = False) -> Ending:
        """Another process goes on with a run, or takes it back."""
        site, found = self.site, self.run(run)
        task = site.task(runbook(found.runbook), found.target, found.options)
        return conduct.go_on(found, task, self._crew(site), back=back)

    def give_up(self, run: str) -> None:
        """Lets a run be, so that the next finds none that is unfinished."""
        conduct.abandon(run, self._crew(self.site), self._where)

    def run(self, id_: str) -> Run:
        """The journal of a run."""
        return {each.id: each for each in self.runs}[id_]

    @property
    def runs(self) -> list[Run]:
        return [run for _, run in self.site.looks()(self._where)([runs])[runs].known()]

    @property
    def _where(self) -> Mapping[Any, Any]:
        return {STATE_NAMESPACE: self.state}

    def _crew(self, site: Site) -> Crew:
        return replace(site.crew(self.stop), tell=self._hear, keep=lambda _: None, note=lambda _: None)

    def _hear(self, line: str) -> None:
        self.said.append(line)
        if self.interrupted_at and line.startswith(self.interrupted_at):
            self.stop.set()


def _task(site: Site, book: str, target: str, options: Mapping[str, Any]) -> Task:
    defaults = {each.name: each.default for each in runbook(book).options}
    return site.task(runbook(book), target, {**defaults, **options})


@dataclass(frozen=True, kw_only=True)
class Caretaker(Operator):
    """Who works on one simulated node by one runbook. `options`: what every plan is made with."""

    node: WorldNode
    book: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def plan(self, **options: Any) -> TargetPlan:
        """The plan."""
        return self.plan_for(self.book, self.node.name, **{**self.options, **options})

    def against(self, **options: Any) -> str:
        """What speaks against it."""
        return "; ".join(each.message for each in self.plan(**options).blockers)

    def apply(
        self,
        plan: TargetPlan | None = None,
        *,
        hands: Callable[[Writer], Writer] = _as_it_is,
        **options: Any,
    ) -> Ending:
        """From plan to end; nothing speaks against it. `hands`: who writes."""
        made = plan or self.plan(**options)
        assert made.blockers == (), [each.message for each in made.blockers]
        given = {**self.options, **options}
        return self.carry_out(self.book, self.node.name, made, hands=hands, **given)

    def undo(self, run: str) -> Ending:
        """Back."""
        return self.go_on(run, back=True)

    def unlock(self) -> None:
        """Gives up whatever still holds the node."""
        found = self.site.looks()(self._where)([LEASES])[LEASES]
        here = (each for each in found if each.metadata.annotations.get(TARGET_NAME) == self.node.name)
        for run in {each.run for each in here if each.relevant}:
            self.give_up(run)

    def last(self) -> Run | None:
        """The youngest run on the node."""
        found = [each for each in self.runs if each.target == self.node.name]
        return max(found, key=lambda each: each.started_at, default=None)


def login_of(node: WorldNode) -> Access:
    """Of somebody who may do everything in the node's cluster."""
    return Access(kubeconfig=str(node.world.bed.kubeconfig))


# How a node stands


def raw(node: WorldNode) -> dict[str, Any]:
    """The Node object as the API server has it."""
    return dict(json.loads(node.world.bed.kubectl("get", "node", node.name, "-o", "json")))


def cordoned(node: WorldNode) -> bool:
    """Whether no pod is placed there."""
    return bool(raw(node)["spec"].get("unschedulable"))


def marks(node: WorldNode) -> set[str]:
    """gpuctl's annotations of it."""
    return {name for name in raw(node)["metadata"]["annotations"] if name.startswith("gpuctl.dev/")}


def leases(node: WorldNode, state: str) -> list[str]:
    """The locks of the node."""
    listed = json.loads(node.world.bed.kubectl("-n", state, "get", "leases", "-o", "json"))
    return [
        each["metadata"]["name"]
        for each in listed["items"]
        if each["metadata"].get("annotations", {}).get(TARGET_NAME) == node.name
    ]
