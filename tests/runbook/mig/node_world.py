"""A GPU node in memory on which a runbook is run by processes that may be killed at each of their writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from gpuctl.facts.fact import Argument, Fact
from gpuctl.facts.gather import Facts
from gpuctl.facts.own import STATE_NAMESPACE
from gpuctl.runbook.conduct import Crew, Ending, Order, begin, go_on
from gpuctl.runbook.look import Look
from gpuctl.runbook.plan import TargetPlan
from gpuctl.runbook.records import RUN_MAPS, Person, Run, runs
from gpuctl.runbook.target import SELF, Self
from tests.runbook.little import Killed, Quick
from tests.runbook.memory_writer import Call, MemoryWriter
from tests.runbook.mig.mig_scenes import MigScene

NAMESPACE, ID = "gpuctl-system", "r1"


@dataclass
class NodeWorld:
    """The node, which gets a step further at each look: `goes_on` is what happens there by itself. `kill` and
    `killed_after` are told of each write, by its number; `gone` are the pods that went."""

    scene: MigScene
    said: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    writes: int = 0
    kill: Callable[[int], None] = lambda _: None
    killed_after: Callable[[int], None] = lambda _: None

    def __post_init__(self) -> None:
        self.phase = 0
        self.writer = MemoryWriter(
            self.scene.items, before=self._before, after=self._after, leaves=self._leaves
        )

    def goes_on(self) -> None:
        """What the cluster's own programs do between two looks."""
        raise NotImplementedError

    def _before(self, _call: Call) -> None:
        number, self.writes = self.writes, self.writes + 1
        self.kill(number)

    def _after(self, _call: Call) -> None:
        self.killed_after(self.writes - 1)

    def _leaves(self, item: Mapping[str, Any]) -> None:
        if item["kind"] == "Pod":
            self.gone.append(item["metadata"]["name"])

    # Who works on it

    def look_with(self, arguments: Mapping[Argument[Any], Any]) -> Look:
        def look(facts: Iterable[Fact[Any]]) -> Facts:
            self.scene.at(self.scene.seconds + 2)
            self.goes_on()
            run = arguments.get(SELF, Self()).run
            return replace(self.scene, run=run).look_with(facts, arguments)

        return look

    def crew(self, **more: Any) -> Crew:
        made = {
            "writer": self.writer,
            "look": self.look_with,
            "user": "ana",
            "host": "ana@bastion-1",
            "session": f"session-{self.writes}",
            "policy": self.scene.policy,
            "namespace": NAMESPACE,
            "stop": Quick(),
            "tell": self.said.append,
        }
        return Crew(**{**made, **more})

    def begin(self) -> Ending:
        plan = self.scene.plan
        assert plan.blockers == (), plan.blockers
        return self.begin_with(plan)

    def begin_with(self, plan: TargetPlan | None = None, **more: Any) -> Ending:
        """By this plan, and with this crew."""
        person = Person(user="ana", host="here", at=datetime.now(UTC), did="planned")
        order = Order("cluster", "sha256:1", person)
        task = replace(self.scene.task, run="")
        return begin(task, order, plan or self.scene.plan, self.crew(**more), run=ID)

    def go_on(self, *, back: bool = False) -> Ending:
        return go_on(self.run, replace(self.scene.task, run=ID), self.crew(), back=back)

    # What stands

    @property
    def journals(self) -> Mapping[str, Run]:
        facts = self.scene.look_with([runs, RUN_MAPS], {STATE_NAMESPACE: NAMESPACE})
        return dict(facts[runs].known())

    @property
    def run(self) -> Run:
        return self.journals[ID]

    @property
    def marks(self) -> set[str]:
        annotations = self.scene.node()["metadata"]["annotations"]
        return {name for name in annotations if name.startswith("gpuctl.dev/")}

    @property
    def cordoned(self) -> bool:
        return bool(self.scene.node()["spec"].get("unschedulable"))

    @property
    def locks(self) -> list[str]:
        return [each["metadata"]["name"] for each in self.scene.items if each["kind"] == "Lease"]


def dies(at: int) -> Callable[[int], None]:
    """A process that is killed at its write of this number."""

    def now(number: int) -> None:
        if number == at:
            raise Killed

    return now
