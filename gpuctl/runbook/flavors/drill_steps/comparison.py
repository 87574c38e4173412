"""Nobody else was disturbed: all other ClusterQueues and flavors are compared with what they were."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sized
from typing import Any, ClassVar, Final

import msgspec

from gpuctl.facts.fact import Fact, Objects
from gpuctl.facts.gather import Facts
from gpuctl.facts.kinds import Ref
from gpuctl.facts.own import RUNBOOK
from gpuctl.facts.state import Each
from gpuctl.kueue.drills import DRILL
from gpuctl.runbook.flavors.canaries import DrillFlavor, DrillQueue, active
from gpuctl.runbook.flavors.drill_steps.step import DrillStep

ALL_QUEUES: Final = Objects(DrillQueue)
ALL_FLAVORS: Final = Objects(DrillFlavor)


class Other(msgspec.Struct, frozen=True, rename="camel"):
    """A ClusterQueue or flavor that is none of the drill's, as it was before."""

    uid: str
    generation: int
    active: bool = True
    flavors: tuple[str, ...] = ()


class Compare(DrillStep, frozen=True, kw_only=True):
    """No other queue was disturbed. What their owners changed meanwhile is told, and no failure."""

    seconds: ClassVar[float] = 30.0
    pause: ClassVar[float] = 2.0

    queues: Mapping[str, Other]
    flavors: Mapping[str, Other]

    @property
    def says(self) -> str:
        return f"{all_others(self.queues, self.flavors)} are as they were"

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        return (*super().needs, ALL_QUEUES, ALL_FLAVORS)

    def holds(self, facts: Facts) -> bool:
        return not self._disturbed(facts)

    def progress(self, facts: Facts) -> str:
        return "; ".join(self._disturbed(facts))

    def _disturbed(self, facts: Facts) -> list[str]:
        """Queues that stopped working although nobody touched them or their flavors."""
        now, edited = others(facts[ALL_QUEUES]), {*self._edited(facts)}
        return [
            f"ClusterQueue {name} was Active, and is not any more"
            for name, before in self.queues.items()
            if before.active
            and name in now
            and not now[name].active
            and not {f"ClusterQueue {name}", *(f"ResourceFlavor {each}" for each in before.flavors)} & edited
        ]

    def _edited(self, facts: Facts) -> Iterator[str]:
        """What others changed, made anew or removed meanwhile."""
        for word, before, now in (
            ("ClusterQueue", self.queues, others(facts[ALL_QUEUES])),
            ("ResourceFlavor", self.flavors, others(facts[ALL_FLAVORS])),
        ):
            for name, each in before.items():
                found = now.get(name)
                if found is None or (found.uid, found.generation) != (each.uid, each.generation):
                    yield f"{word} {name}"

    def learned(self, facts: Facts) -> Mapping[str, Any]:
        edited = list(self._edited(facts))
        told = {"changedByOthers": edited} if edited else {}
        return {"othersCompared": len(self.queues) + len(self.flavors), **told}


def others(found: Each[Ref, Any]) -> Mapping[str, Other]:
    """Those of them that no drill made, by name. Raises NotKnown."""
    return {each.metadata.name: _other(each) for each in found if each.metadata.labels.get(RUNBOOK) != DRILL}


def all_others(queues: Sized, flavors: Sized) -> str:
    """`all other ClusterQueues (3) and ResourceFlavors (2)`."""
    return f"all other ClusterQueues ({len(queues)}) and ResourceFlavors ({len(flavors)})"


def _other(each: DrillQueue | DrillFlavor) -> Other:
    about = each.metadata
    if isinstance(each, DrillQueue):
        return Other(about.uid, about.generation, active(each), tuple(sorted(each.flavors)))
    return Other(about.uid, about.generation)
