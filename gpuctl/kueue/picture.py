"""A queue as `gpuctl queues` shows it, and as the check's JSON tells it: numbers, and what is not known as
None."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, TypeAlias, TypeVar

from gpuctl.facts.fact import Argument, Maybe, Part, given
from gpuctl.facts.gather import Facts
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Each, Inapplicable, Known, State, Unknown, attempt
from gpuctl.kueue.backlog import Backlog, backlog
from gpuctl.kueue.causes.cause import Cause
from gpuctl.kueue.causes.diagnosis import Diagnosed
from gpuctl.kueue.chain import Link, chain, first_broken
from gpuctl.kueue.footing import Footing
from gpuctl.kueue.hurt import Hurt
from gpuctl.kueue.objects import (
    PENDING_WORKLOADS,
    ClusterQueue,
    PendingWorkloads,
    ResourceFlavor,
    Workload,
)
from gpuctl.kueue.quantities import Amount, is_accelerator, shown, total
from gpuctl.kueue.queue_facts import causes_of_waiting, flavors_on_the_machine
from gpuctl.kueue.quota import NOTHING, Cell, Member, Tree, cells
from gpuctl.kueue.relief import relief
from gpuctl.kueue.scene import HOURS, Line, active
from gpuctl.kueue.standing import Standing, standing

T = TypeVar("T")
Places: TypeAlias = Mapping[tuple[str, str], int]  # by namespace and name
NO_PLACES: State[Places] = Inapplicable("the manager is asked for the line of one queue alone")


@dataclass(frozen=True, slots=True)
class CellPicture:
    """The quota of a resource in a flavor: the queue's own, what it uses, and how it lends and borrows."""

    flavor: str
    resource: str
    nominal: Amount
    used: Amount
    borrowed: Amount
    lent: Amount
    free: Amount
    most: Amount

    @property
    def important(self) -> bool:
        """Whether it is what people queue for."""
        return is_accelerator(self.resource)


IN_FULL: Argument[str] = Argument("the queue that is shown in full", "")


@given(IN_FULL)
def queues_in_full(name: str) -> Collection[Ref]:
    return (Ref(ClusterQueue.of, name),) if name else ()


POSITIONS = Part(PENDING_WORKLOADS, PendingWorkloads, queues_in_full)


@given(POSITIONS)
def places_in_line(found: Each[Ref, PendingWorkloads]) -> Each[Ref, Places]:
    """Where Workloads stand, as the manager itself says."""
    return found.map(
        lambda each: {(item.metadata.namespace, item.metadata.name): item.position for item in each.items}
    )


@dataclass(frozen=True, slots=True)
class WaiterPicture:
    """A Workload in the line. `cause` is None where that is not known.

    `place` is the one that the manager gives it; else its place by priority and age, which is an `estimate`:
    the manager also goes by when a Workload was evicted, and by what it has just tried.
    """

    namespace: str
    name: str
    local_queue: str
    priority: int
    waited: timedelta
    asks: str
    cause: str | None
    place: int
    estimate: bool = True


@dataclass(frozen=True, slots=True)
class CausePicture:
    """A cause, how many wait for it, and the smallest change that would help the first of them."""

    short: str
    text: str
    count: int
    change: str


@dataclass(frozen=True, slots=True)
class MemberPicture:
    """A queue or cohort in the tree, with its depth and the quota of one cell after another."""

    name: str
    depth: int
    is_queue: bool
    cells: tuple[CellPicture, ...]


@dataclass(frozen=True, slots=True)
class LocalQueuePicture:
    """The part of a line that came in by one LocalQueue."""

    namespace: str
    name: str
    past: Backlog


@dataclass(frozen=True, slots=True)
class QueuePicture:
    """A ClusterQueue. `unknown` tells what of it could not be read."""

    name: str
    cohort: str
    active: str
    strategy: str
    pending: int
    admitted: int
    reserving: int
    created: datetime | None
    past: Backlog
    cells: tuple[CellPicture, ...] | None
    causes: tuple[CausePicture, ...]
    diagnosed: Diagnosed
    flavors: State[Each[Ref, Footing]]
    tree: tuple[MemberPicture, ...] | None
    hurt: Hurt | None
    unknown: tuple[str, ...]
    now: datetime
    places: State[Places] = NO_PLACES

    @property
    def waiting(self) -> tuple[WaiterPicture, ...]:
        """The line, from its head."""
        waiting = self.diagnosed.line.waiting
        line = [_waiter(number, each, self.diagnosed) for number, each in enumerate(waiting)]
        if not isinstance(self.places, Known):
            return tuple(line)
        return tuple(sorted((_placed(each, self.places.value) for each in line), key=_place))

    @property
    def chains(self) -> tuple[tuple[Link, ...], ...]:
        """From each flavor to the pods on it; of what people queue for, else of the first resource."""
        known = dict(self.flavors.value.known()) if isinstance(self.flavors, Known) else {}
        wanted = cells(self.diagnosed.line.queue)
        told = [each for each in wanted if is_accelerator(each[1])] or wanted[:1]
        return tuple(
            chain(self.diagnosed.line, known[ref], resource)
            for flavor, resource in told
            if (ref := Ref(ResourceFlavor.of, flavor)) in known
        )

    @property
    def local_queues(self) -> tuple[LocalQueuePicture, ...]:
        """Where its Workloads came in, those with the oldest wait first."""
        line, found = self.diagnosed.line, dict[tuple[str, str], list[Workload]]()
        for each in (*line.everyone, *line.stopped):
            found.setdefault((each.metadata.namespace, each.spec.queue_name), []).append(each)
        drawn = (
            LocalQueuePicture(namespace, name, backlog(members, line.scene.now, HOURS))
            for (namespace, name), members in found.items()
        )
        return tuple(sorted(drawn, key=lambda each: (-each.past.oldest, each.namespace, each.name)))

    @property
    def cause(self) -> str:
        """The cause of most that wait; empty if nobody waits."""
        if self.causes:
            more = f" (+{len(self.causes) - 1})" if self.causes[1:] else ""
            return f"{self.causes[0].short}{more}"
        return "not known" if self.pending else ""


@given(causes_of_waiting, Maybe(flavors_on_the_machine))
def pictures_of_queues(
    found: Each[Ref, Diagnosed], flavors: State[Each[Ref, Footing]]
) -> Each[Ref, QueuePicture]:
    """Every ClusterQueue."""
    return found.map(lambda each: picture(each, flavors))


def places_of(facts: Facts, queue: str) -> State[Places]:
    """Where Workloads stand in a queue that is shown in full."""
    found = facts.state(places_in_line)
    if not isinstance(found, Known):
        return found
    return found.value.entries.get(Ref(ClusterQueue.of, queue), NO_PLACES)


@given(pictures_of_queues)
def learned_of_queues(found: Each[Ref, QueuePicture]) -> Each[Ref, Mapping[str, Any]]:
    """The same as the JSON report has it."""
    return found.map(learned)


def picture(diagnosed: Diagnosed, flavors: State[Each[Ref, Footing]]) -> QueuePicture:
    """Draws up one queue; what could not be told is named, and leaves the rest."""
    line = diagnosed.line
    return QueuePicture(
        name=line.name,
        cohort=line.queue.cohort,
        active=_activity(line),
        strategy=line.queue.spec.queueing_strategy,
        pending=len(line.waiting),
        admitted=sum(1 for each in line.holding if standing(each) is Standing.ADMITTED),
        reserving=len(line.holding),
        created=line.queue.metadata.creation_timestamp,
        past=line.past,
        cells=_known(lambda: tuple(_cells(line.tree, line.tree.queue(line.name), cells(line.queue)))),
        causes=tuple(_causes(diagnosed)),
        diagnosed=diagnosed,
        flavors=flavors,
        tree=_known(lambda: tuple(_tree(line))),
        hurt=diagnosed.hurt.value if isinstance(diagnosed.hurt, Known) else None,
        unknown=tuple(dict.fromkeys(str(gap) for gap in (*line.gaps, *_gaps(diagnosed)))),
        now=line.scene.now,
    )


def _known(make: Callable[[], T]) -> T | None:
    state = attempt(make)
    return state.value if isinstance(state, Known) else None


def _activity(line: Line) -> str:
    if line.queue.spec.stop_policy not in ("", "None"):
        return "stopped"
    if line.queue.metadata.deletion_timestamp:
        return "deleting"
    told = active(line.queue)
    return {"True": "yes", "False": "no"}.get(told.status, "unknown") if told else "unknown"


def _gaps(diagnosed: Diagnosed) -> Iterator[Unknown]:
    seen: set[str] = set()
    for gap in diagnosed.causes.gaps():
        if str(gap) not in seen:
            seen.add(str(gap))
            yield gap


def _cells(tree: Tree, member: Member, wanted: Sequence[Cell]) -> Iterator[CellPicture]:
    for cell in sorted(dict.fromkeys(wanted), key=lambda each: (not is_accelerator(each[1]), each)):
        own, used = tree.has(member, cell), tree.reserved(member, cell)
        room = tree.room(member.name, cell) if member.is_queue else None
        free = room.free if room else own - used
        unused = max(0, own - used)
        yield CellPicture(
            flavor=cell[0],
            resource=cell[1],
            nominal=member.limits.get(cell, NOTHING).nominal if member.is_queue else own,
            used=used,
            borrowed=tree.borrowed(member, cell),
            lent=unused - min(unused, max(0, free)) if member.is_queue and member.parent else 0,
            free=max(0, free),
            most=room.most if room else own,
        )


def _causes(diagnosed: Diagnosed) -> Iterator[CausePicture]:
    for group in diagnosed.groups:
        yield CausePicture(
            group.cause.trouble.value,
            str(group.cause),
            len(group.members),
            _change(group.cause, group.line),
        )


def _change(cause: Cause, line: Line) -> str:
    found = _known(lambda: relief(cause, line))
    return found.sentence(line.name) if found else ""


def _placed(each: WaiterPicture, places: Places) -> WaiterPicture:
    place = places.get((each.namespace, each.name))
    return each if place is None else replace(each, place=place, estimate=False)


def _place(each: WaiterPicture) -> tuple[bool, int]:
    return each.estimate, each.place


def _waiter(number: int, workload: Workload, diagnosed: Diagnosed) -> WaiterPicture:
    state: State[Cause] = diagnosed.causes.entries[workload.ref]
    asks = _known(lambda: total(each.amounts for each in diagnosed.line.asks(workload)))
    return WaiterPicture(
        namespace=workload.metadata.namespace,
        name=workload.metadata.name,
        local_queue=workload.spec.queue_name,
        priority=workload.spec.priority,
        waited=diagnosed.line.waited(workload),
        asks="?" if asks is None else amounts(asks),
        cause=state.value.trouble.value if isinstance(state, Known) else None,
        place=number,
    )


def amounts(found: Mapping[str, Amount]) -> str:
    """`2 nvidia.com/gpu, 16 cpu`: what people queue for first."""
    ordered = sorted(found, key=lambda name: (not is_accelerator(name), name))
    return ", ".join(f"{shown(found[name], name)} {name}" for name in ordered)


def _tree(line: Line) -> Iterator[MemberPicture]:
    """The cohort from its root, with every queue in it; of a queue alone, that queue."""
    tree, wanted = line.tree, cells(line.queue)
    if not line.queue.cohort or line.queue.cohort in tree.looping:
        return
    yield from _below(tree, tree.by_key[False, tree.root(line.queue.cohort)], wanted, 0)


def _below(tree: Tree, member: Member, wanted: Sequence[Cell], depth: int) -> Iterator[MemberPicture]:
    yield MemberPicture(member.name, depth, member.is_queue, tuple(_cells(tree, member, wanted)))
    children = () if member.is_queue else tree.children.get(member.name, ())
    for child in sorted(children, key=lambda each: (each.is_queue, each.name)):
        yield from _below(tree, child, wanted, depth + 1)


def learned(queue: QueuePicture, *, whole: bool = False) -> Mapping[str, Any]:
    """The queue as JSON; `whole`: with every Workload that waits."""
    past = queue.past
    told: dict[str, Any] = {
        "cohort": queue.cohort,
        "active": queue.active,
        "pending": queue.pending,
        "admitted": queue.admitted,
        "reserving": queue.reserving,
        "oldestWaitSeconds": int(past.oldest.total_seconds()),
        "lastAdmission": past.last_admission,
        "backlog": {
            "hours": HOURS,
            "waiting": list(past.line),
            "arrived": past.arrived,
            "admitted": past.admitted,
            "basis": "Workloads that still exist: the past is a lower bound",
        },
        "quota": None if queue.cells is None else [_cell(each) for each in queue.cells],
        "causes": [{"cause": each.text, "count": each.count, "change": each.change} for each in queue.causes],
        "acceleratorsWaitedFor": shown(queue.hurt.asked) if queue.hurt else None,
        "acceleratorsIdle": shown(queue.hurt.idle) if queue.hurt else None,
        "acceleratorHoursWaited": round(queue.hurt.hours, 1) if queue.hurt else None,
        "unknown": list(queue.unknown),
    }
    if whole:
        told["chains"] = [
            {"links": [each.text for each in links], "firstBroken": first_broken(links)}
            for links in queue.chains
        ]
        told["localQueues"] = [_local(each) for each in queue.local_queues]
        told["waiting"] = [_waiting(each) for each in queue.waiting]
    return told


def _cell(cell: CellPicture) -> Mapping[str, str]:
    parts = ("nominal", "used", "borrowed", "lent", "free", "most")
    told = {part: shown(getattr(cell, part), cell.resource) for part in parts}
    return {"flavor": cell.flavor, "resource": cell.resource, **told}


def _local(each: LocalQueuePicture) -> Mapping[str, Any]:
    return {
        "namespace": each.namespace,
        "name": each.name,
        "pending": each.past.waiting,
        "oldestWaitSeconds": int(each.past.oldest.total_seconds()),
        "lastAdmission": each.past.last_admission,
        "backlog": {"hours": HOURS, "waiting": list(each.past.line)},
    }


def _waiting(each: WaiterPicture) -> Mapping[str, Any]:
    return {
        "position": each.place,
        "positionIs": "estimate" if each.estimate else "kueue",
        "namespace": each.namespace,
        "name": each.name,
        "localQueue": each.local_queue,
        "priority": each.priority,
        "waitedSeconds": int(each.waited.total_seconds()),
        "asks": each.asks,
        "cause": each.cause,
    }
