"""The canary objects are made, and at the end taken away again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from gpuctl.facts.fact import Fact
from gpuctl.facts.gather import Facts
from gpuctl.runbook.flavors.canaries import CANARIES, DOWN, IN_USE, active
from gpuctl.runbook.flavors.drill_steps.harm import why_inactive
from gpuctl.runbook.flavors.drill_steps.step import DrillStep
from gpuctl.runbook.writer import Writer


class Make(DrillStep, frozen=True, kw_only=True):
    """Makes everything but the Workloads. Its undo takes away everything, in the order in which it can go."""

    seconds: ClassVar[float] = 120.0
    pause: ClassVar[float] = 1.0
    measures: ClassVar[str] = "secondsToBeReady"

    @property
    def says(self) -> str:
        return f"make namespace, flavors, ClusterQueue and LocalQueue {self.names.main}"

    @property
    def undoes(self) -> str:
        return f"remove everything that is called {self.names.main}"

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        return (*super().needs, DOWN)

    def holds(self, facts: Facts) -> bool:
        canaries = facts[CANARIES]
        flavors = (canaries.flavor, canaries.spare)
        kept = all(each is not None and IN_USE in each.metadata.finalizers for each in flavors)
        return kept and active(canaries.queue) and active(canaries.local_queue)

    def progress(self, facts: Facts) -> str:
        canaries = facts[CANARIES]
        if canaries.queue is None:
            return ""
        unkept = [
            each
            for each in (canaries.flavor, canaries.spare)
            if each and IN_USE not in each.metadata.finalizers
        ]
        if unkept:
            return f"{unkept[0].ref} has no finalizer {IN_USE}"
        return f"ClusterQueue: {why_inactive(canaries)}" if not active(canaries.queue) else "LocalQueue"

    def act(self, facts: Facts, writer: Writer) -> None:
        for ref, body in self.names.bodies(self.version).items():
            self.create(ref, body, facts[CANARIES], writer)

    def undone(self, facts: Facts) -> bool:
        return not facts[CANARIES].left.all

    def undo(self, facts: Facts, writer: Writer) -> None:
        facts[CANARIES].left.clear(writer, self.version, kueue_is_down=facts[DOWN])


class Remove(DrillStep, frozen=True, kw_only=True):
    """Takes everything away, in the order in which it can go."""

    seconds: ClassVar[float] = 180.0
    pause: ClassVar[float] = 1.0

    @property
    def says(self) -> str:
        return f"remove everything that is called {self.names.main}"

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        return (*super().needs, DOWN)

    def holds(self, facts: Facts) -> bool:
        return not facts[CANARIES].left.all

    def progress(self, facts: Facts) -> str:
        return f"left: {facts[CANARIES].left}"

    def act(self, facts: Facts, writer: Writer) -> None:
        facts[CANARIES].left.clear(writer, self.version, kueue_is_down=facts[DOWN])

    def learned(self, facts: Facts) -> Mapping[str, Any]:
        return {"leftBehind": len(facts[CANARIES].left.all)}
