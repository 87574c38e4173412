"""What earlier drills left behind: found by their labels, and by the journals that say that they are over. It
is swept before a new drill begins."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, ClassVar, Final, TypeVar

from gpuctl.facts.fact import NOW, Fact, Maybe, Objects, Within, given
from gpuctl.facts.gather import Facts
from gpuctl.facts.kinds import Ref, Rule, View
from gpuctl.facts.objects import Namespace
from gpuctl.facts.own import RUN, RUNBOOK
from gpuctl.facts.state import Each, Known, State
from gpuctl.kueue.drills import DRILL, LONGEST
from gpuctl.kueue.objects import LocalQueue
from gpuctl.runbook.flavors.canaries import DOWN, PREFIX, RULES, DrillFlavor, DrillQueue, DrillWorkload, Left
from gpuctl.runbook.records import Run, Standing, runs
from gpuctl.runbook.step import Step
from gpuctl.runbook.target import SELF, Self
from gpuctl.runbook.writer import Writer

V = TypeVar("V", bound=View)

LABEL: Final = f"{RUNBOOK}={DRILL}"
SPACES: Final = Objects(Namespace, LABEL)
QUEUES: Final = Objects(DrillQueue, LABEL)
FLAVORS: Final = Objects(DrillFlavor, LABEL)


def _run_of(each: View) -> str:
    """The run that made an object by its label, and by its name too; else none."""
    about = each.metadata
    run = about.labels.get(RUN, "") if about.labels.get(RUNBOOK) == DRILL else ""
    name = about.namespace or about.name
    return run if run and name.startswith(f"{PREFIX}{run}") else ""


@given(SPACES, QUEUES, FLAVORS, Maybe(runs), SELF, NOW)
def forsaken_drills(
    spaces: Each[Ref, Namespace],
    queues: Each[Ref, DrillQueue],
    flavors: Each[Ref, DrillFlavor],
    journals: State[Each[str, Run]],
    self: Self,
    now: datetime,
) -> Collection[str]:
    """Runs that nobody goes on with: their journals say so, or there is none and they are old."""
    made: dict[str, list[datetime]] = {}
    for each in (*spaces, *queues, *flavors):
        made.setdefault(_run_of(each), []).append(each.metadata.creation_timestamp or now)
    return tuple(
        sorted(
            run
            for run, times in made.items()
            if run not in ("", self.run) and _is_forsaken(run, max(times), journals, now)
        )
    )


def _is_forsaken(run: str, made: datetime, journals: State[Each[str, Run]], now: datetime) -> bool:
    """Where it can't be told, it is left alone."""
    if not isinstance(journals, Known):
        return False
    entry = journals.value.entries.get(run)
    if entry is None:
        return not journals.value.holes and now - made > LONGEST  # its journal may be kept elsewhere
    return isinstance(entry, Known) and entry.value.state is not Standing.UNFINISHED


@given(SPACES, forsaken_drills)
def namespaces_of_forsaken_drills(spaces: Each[Ref, Namespace], forsaken: Collection[str]) -> Collection[str]:
    return tuple(each.metadata.name for each in spaces if _run_of(each) in forsaken)


@given(
    forsaken_drills,
    Within(DrillWorkload, namespaces_of_forsaken_drills),
    Within(LocalQueue, namespaces_of_forsaken_drills),
    QUEUES,
    FLAVORS,
    SPACES,
)
def leftovers_of_drills(
    forsaken: Collection[str],
    workloads: Each[Ref, DrillWorkload],
    local_queues: Each[Ref, LocalQueue],
    queues: Each[Ref, DrillQueue],
    flavors: Each[Ref, DrillFlavor],
    spaces: Each[Ref, Namespace],
) -> Mapping[str, Left]:
    """What is left of each forsaken run."""
    return {
        run: Left(
            tuple(_of(run, workloads)),
            tuple(_of(run, local_queues)),
            tuple(_of(run, queues)),
            tuple(_of(run, flavors)),
            tuple(_of(run, spaces)),
        )
        for run in forsaken
    }


def _of(run: str, found: Iterable[V]) -> Iterable[V]:
    return (each for each in found if _run_of(each) == run)


LEFTOVERS: Final = leftovers_of_drills


class Sweep(Step, frozen=True, kw_only=True):
    """Removes what drills left behind that nobody goes on with."""

    once: ClassVar[bool] = True
    seconds: ClassVar[float] = 120.0
    pause: ClassVar[float] = 1.0

    version: str

    @property
    def says(self) -> str:
        return "remove what earlier drills left behind"

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        return (LEFTOVERS, DOWN)

    @property
    def rules(self) -> frozenset[Rule]:
        return RULES

    def holds(self, facts: Facts) -> bool:
        return not any(left.all for left in facts[LEFTOVERS].values())

    def progress(self, facts: Facts) -> str:
        return "left: " + "; ".join(str(left) for left in facts[LEFTOVERS].values() if left.all)

    def act(self, facts: Facts, writer: Writer) -> None:
        for left in facts[LEFTOVERS].values():
            left.clear(writer, self.version, kueue_is_down=facts[DOWN])
