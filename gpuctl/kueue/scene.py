"""Kueue's queues and all around them, as they were read. Each part may be unknown by itself."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import TypeVar

import msgspec

from gpuctl.facts.kinds import Ref
from gpuctl.facts.objects import Condition, Namespace
from gpuctl.facts.selectors import selects
from gpuctl.facts.state import Each, Inapplicable, Known, NotKnown, State, Unknown, value
from gpuctl.kueue import quota
from gpuctl.kueue.backlog import Backlog, backlog
from gpuctl.kueue.fit import Obstacle, Search
from gpuctl.kueue.objects import (
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    LocalQueue,
    PodClaim,
    ResourceClaimTemplate,
    ResourceFlavor,
    Topology,
    Workload,
)
from gpuctl.kueue.quota import Cell, Tree
from gpuctl.kueue.requests import Ask, asked
from gpuctl.kueue.settings import Settings
from gpuctl.kueue.standing import (
    Standing,
    age,
    backs_off,
    is_true,
    kept_back,
    reserved_at,
    standing,
    verdict,
    waiting_since,
)

T = TypeVar("T")
HOURS = 6  # of the past that a line is shown for
NO_TEMPLATES: State[Each[Ref, ResourceClaimTemplate]] = Known(Each())


@dataclass(frozen=True)
class Written:
    """What people have written for Kueue."""

    queues: Each[Ref, ClusterQueue]
    local_queues: State[Each[Ref, LocalQueue]]
    cohorts: State[Each[Ref, Cohort]]
    flavors: State[Each[Ref, ResourceFlavor]]
    topologies: State[Each[Ref, Topology]]
    checks: State[Each[Ref, AdmissionCheck]]


@dataclass(frozen=True)
class Scene:
    """The queues, and what a judgement of them takes."""

    written: Written
    namespaces: State[Each[Ref, Namespace]]
    settings: State[Settings]
    now: datetime

    @cached_property
    def tree(self) -> Tree:
        """All queues and cohorts, the inactive ones too."""
        return quota.tree(self.written.queues, _or_none(self.written.cohorts))

    @cached_property
    def alone(self) -> Tree:
        """The queues that are in no cohort: nothing need be known of cohorts for them."""
        return quota.tree((each for each in self.written.queues if not each.cohort), ())

    @cached_property
    def lending(self) -> Tree:
        """Those that Kueue reckons with."""
        return self.tree.without(self.inactive)

    @cached_property
    def inactive(self) -> frozenset[str]:
        """The queues that Kueue itself says to be inactive."""
        return frozenset(each.metadata.name for each in self.written.queues if not is_active(each))

    @cached_property
    def generous(self) -> Tree:
        """The tree as if every queue were active and lent all it has."""
        return Tree(tuple(_lending_all(each) for each in self.tree.members))

    def flavor(self, name: str) -> ResourceFlavor | None:
        """A flavor; None if it is known not to exist."""
        return told(self.written.flavors, "ResourceFlavors").get(Ref(ResourceFlavor.of, name))

    def levels(self, topology: str) -> frozenset[str] | None:
        """The levels of a Topology; None where there is none to be read."""
        if isinstance(self.written.topologies, Inapplicable):
            return None
        found = told(self.written.topologies, "Topologies").get(Ref(Topology.of, topology))
        return frozenset(each.node_label for each in found.spec.levels) if found else None

    def namespace(self, name: str) -> Namespace | None:
        """A namespace; None if it is known not to exist."""
        return told(self.namespaces, "namespaces").get(Ref(Namespace.of, name))

    def selected(self, queue: ClusterQueue, namespace: str) -> bool:
        """Whether a queue takes Workloads of a namespace. Without a selector it takes none."""
        selector = queue.spec.namespace_selector
        if selector is None:
            return False
        found = self.namespace(namespace)
        labels = {"kubernetes.io/metadata.name": namespace, **(found.metadata.labels if found else {})}
        return selects(selector, labels)


def told(state: State[T], what: str) -> T:
    """The value of a part. Raises NotKnown with the part's name, so that a person sees what was missing."""
    if isinstance(state, Unknown):
        raise NotKnown(Unknown(state.reason, f"{what}: {state.message}", what))
    return value(state)


def _or_none(state: State[Each[Ref, Cohort]]) -> Iterable[Cohort]:
    """Old releases have no cohorts of their own."""
    return () if isinstance(state, Inapplicable) else told(state, "Cohorts")


def _lending_all(member: quota.Member) -> quota.Member:
    open_limits = {cell: quota.Limits(each.nominal, each.borrowing) for cell, each in member.limits.items()}
    return quota.Member(member.name, member.parent, open_limits, member.used, member.is_queue)


def active(queue: ClusterQueue) -> Condition | None:
    """What Kueue says of a queue; None if it has said nothing yet."""
    return next((each for each in queue.status.conditions if each.type == "Active"), None)


def is_active(queue: ClusterQueue) -> bool:
    """Whether Kueue says so. A queue of which it says nothing does not count as inactive."""
    found = active(queue)
    return found is None or found.status != "False"


@dataclass(frozen=True)
class Crowd:
    """The Workloads of all queues, and what their claims to devices are made from."""

    workloads: tuple[Workload, ...] = ()
    templates: State[Each[Ref, ResourceClaimTemplate]] = NO_TEMPLATES

    @cached_property
    def unready(self) -> Workload | None:
        """Of those with quota whose pods are not all ready the one that has it longest; None if all are."""
        found = [
            each
            for each in self.workloads
            if is_true(each, "QuotaReserved")
            and not is_true(each, "Finished")
            and not is_true(each, "PodsReady")
        ]
        return min(found, key=_reserved, default=None)

    def template(self, claim: PodClaim, namespace: str) -> ResourceClaimTemplate | None:
        """What a claim is made from; None if it is made from none, or from one that does not exist."""
        name = claim.resource_claim_template_name
        if not name:
            return None
        ref = Ref(ResourceClaimTemplate.of, name, namespace)
        return told(self.templates, "ResourceClaimTemplates").get(ref)


def _reserved(workload: Workload) -> tuple[float, str, str]:
    since, about = reserved_at(workload), workload.metadata
    return since.timestamp() if since else 0.0, about.namespace, about.name


@dataclass(frozen=True)
class Line:
    """A ClusterQueue with its Workloads. `gaps`: Workloads that may be its own, and could not be read."""

    queue: ClusterQueue
    scene: Scene
    waiting: tuple[Workload, ...] = ()  # in the order in which they are tried
    holding: tuple[Workload, ...] = ()
    others: tuple[Workload, ...] = ()  # finished, deactivated, on hold
    stopped: tuple[Workload, ...] = ()  # in LocalQueues that are stopped on purpose: Kueue does not try them
    gaps: tuple[Unknown, ...] = ()
    crowd: Crowd = Crowd()

    @property
    def name(self) -> str:
        return self.queue.metadata.name

    @property
    def everyone(self) -> Sequence[Workload]:
        """All its Workloads."""
        return (*self.waiting, *self.holding, *self.others)

    @property
    def tree(self) -> Tree:
        """The tree of quota it is in, as Kueue reckons. Raises NotKnown if its cohorts are unknown."""
        return self.scene.lending if self.queue.cohort else self.scene.alone

    @property
    def oldest(self) -> Workload | None:
        """Who waits longest; None if nobody waits."""
        return max(self.waiting, key=self.waited, default=None)

    def waited(self, workload: Workload) -> timedelta:
        """How long a Workload has waited without a break."""
        return age(waiting_since(workload), self.scene.now)

    def must_be_whole(self) -> None:
        """Raises NotKnown if some of its Workloads could not be read."""
        for gap in self.gaps:
            raise NotKnown(gap)

    @property
    def strict(self) -> bool:
        """Whether nobody may overtake the first in line."""
        return self.queue.spec.queueing_strategy == "StrictFIFO"

    def in_line(self, workload: Workload) -> bool:
        """Whether Kueue has one that waits among those it tries, in which a first can hold up the others."""
        return not kept_back(workload) and not backs_off(workload, self.scene.now)

    @cached_property
    def head(self) -> Workload | None:
        """The first that Kueue tries; None if there is none."""
        return next(filter(self.in_line, self.waiting), None)

    @cached_property
    def past(self) -> Backlog:
        """How it came about, as far as its Workloads still exist."""
        return backlog(self.everyone, self.scene.now, HOURS)

    def asks(self, workload: Workload) -> tuple[Ask, ...]:
        """What a Workload asks for, pod set by pod set. Equal ones are counted once. Raises NotKnown."""
        shape = shape_of(workload)
        if shape not in self._asks:
            self._asks[shape] = asked(workload, self.scene.settings)
        return self._asks[shape]

    @cached_property
    def _asks(self) -> dict[bytes, tuple[Ask, ...]]:
        return {}

    @cached_property
    def at_most(self) -> Search:
        """A search in an empty cluster."""
        return self._search(self.tree, now=False)

    @cached_property
    def at_once(self) -> Search:
        """A search with what is in use."""
        return self._search(self.tree, now=True)

    @cached_property
    def if_all_lent(self) -> Search:
        """A search in an empty cluster whose queues are all active and lend all they have."""
        return self._search(self.scene.generous if self.queue.cohort else self.scene.alone, now=False)

    def _search(self, tree: Tree, *, now: bool) -> Search:
        def room(cell: Cell) -> int:
            found = tree.room(self.name, cell)
            return found.free if now else found.most

        settings = self.scene.settings
        undeclared = isinstance(settings, Known) and settings.value.undeclared_pass
        return Search(self.queue, self.scene.flavor, room, undeclared, self.scene.levels)


def shape_of(workload: Workload) -> bytes:
    """The same for Workloads that ask for the same, for pods that may run in the same places."""
    return msgspec.json.encode((workload.spec.pod_sets, workload.status.resource_requests))


@dataclass(frozen=True)
class Waiter:
    """A Workload that waits, in its line."""

    workload: Workload
    line: Line

    @property
    def message(self) -> str:
        """Kueue's last word on it."""
        return verdict(self.workload)

    @cached_property
    def asks(self) -> tuple[Ask, ...]:
        """What it asks for, pod set by pod set."""
        return self.line.asks(self.workload)

    @cached_property
    def never(self) -> tuple[Obstacle, ...]:
        """What stands in its way even when nothing else runs."""
        return self.line.at_most.obstacles(self.workload, self.least)

    @cached_property
    def now(self) -> tuple[Obstacle, ...]:
        """What stands in its way as things are."""
        return self.line.at_once.obstacles(self.workload, self.least)

    @cached_property
    def least(self) -> tuple[Ask, ...]:
        """The least it can do with: some pod sets may start with fewer pods."""
        fewest = {each.name: each.min_count for each in self.workload.spec.pod_sets}
        return tuple(_with_fewer(each, fewest.get(each.name)) for each in self.asks)


def _with_fewer(ask: Ask, fewest: int | None) -> Ask:
    if fewest is None or not ask.count:
        return ask
    return Ask(ask.name, fewest, {name: each * fewest // ask.count for name, each in ask.amounts.items()})


@dataclass(frozen=True)
class Door:
    """A LocalQueue that Workloads name. `missing`: the object that does not exist; None if it leads
    somewhere. `stopped`: the policy by which it is stopped; empty if it is not."""

    local_queue: Ref
    missing: Ref | None
    waiting: tuple[Workload, ...]
    now: datetime
    stopped: str = ""


@dataclass(frozen=True)
class Sorted:
    """All Workloads, by where they belong."""

    lines: Each[Ref, Line]
    doors: Each[Ref, Door]


def sort(
    scene: Scene,
    workloads: Each[Ref, Workload],
    templates: State[Each[Ref, ResourceClaimTemplate]],
) -> Sorted:
    """Puts every Workload into its queue's line, or among those whose queue does not exist."""
    crowd = Crowd(tuple(each for _, each in workloads.known()), templates)
    gaps = (*workloads.gaps(), *_unlisted(scene.written.local_queues))
    local_queues = _known(scene.written.local_queues)
    stopped = frozenset(place for place, each in local_queues.items() if each.stopped)
    members: dict[str, list[Workload]] = {}
    lost: dict[Ref, list[Workload]] = {}
    for _, workload in workloads.known():
        place = _door_of(workload)
        admission = workload.status.admission
        if admission:
            members.setdefault(admission.cluster_queue, []).append(workload)
        elif place in local_queues:
            members.setdefault(local_queues[place].spec.cluster_queue, []).append(workload)
        elif workload.spec.queue_name:
            lost.setdefault(place, []).append(workload)
    lines = scene.written.queues.map(
        lambda queue: replace(
            _line(queue, scene, members.get(queue.metadata.name, ()), stopped, gaps), crowd=crowd
        )
    )
    return Sorted(lines, _doors(scene, local_queues, members, lost, gaps))


def _unlisted(state: State[Each[Ref, LocalQueue]]) -> Iterable[Unknown]:
    if isinstance(state, Known):
        return tuple(state.value.gaps())
    return (state,) if isinstance(state, Unknown) else ()


def _known(state: State[Each[Ref, LocalQueue]]) -> Mapping[Ref, LocalQueue]:
    return dict(state.value.known()) if isinstance(state, Known) else {}


def _line(
    queue: ClusterQueue,
    scene: Scene,
    workloads: Iterable[Workload],
    stopped: Collection[Ref],
    gaps: tuple[Unknown, ...],
) -> Line:
    waiting: list[Workload] = []
    holding: list[Workload] = []
    others: list[Workload] = []
    held_up: list[Workload] = []
    for workload in workloads:
        stands = standing(workload)
        if stands is Standing.WAITING:
            (held_up if stopped and _door_of(workload) in stopped else waiting).append(workload)
        else:
            (holding if stands.holds_quota else others).append(workload)
    waiting.sort(key=_turn)
    return Line(queue, scene, tuple(waiting), tuple(holding), tuple(others), tuple(held_up), gaps)


def _door_of(workload: Workload) -> Ref:
    return Ref(LocalQueue.of, workload.spec.queue_name, workload.metadata.namespace)


def _turn(workload: Workload) -> tuple[int, float, str, str]:
    """Kueue's order: priority, then age; then by name, so that every run has the same."""
    since = waiting_since(workload)
    about = workload.metadata
    return -workload.spec.priority, since.timestamp() if since else 0.0, about.namespace, about.name


def _doors(
    scene: Scene,
    local_queues: Mapping[Ref, LocalQueue],
    members: Mapping[str, Sequence[Workload]],
    lost: Mapping[Ref, Sequence[Workload]],
    gaps: tuple[Unknown, ...],
) -> Each[Ref, Door]:
    found: dict[Ref, State[Door]] = {}
    if isinstance(scene.written.local_queues, Known):
        for place, workloads in lost.items():
            found[place] = Known(Door(place, place, _those_waiting(workloads), scene.now))
    for place, local_queue in local_queues.items():
        name = local_queue.spec.cluster_queue
        queue = Ref(ClusterQueue.of, name)
        missing = queue not in scene.written.queues.entries
        concerned = missing or local_queue.stopped
        here = [each for each in members.get(name, ()) if _door_of(each) == place] if concerned else ()
        gone = queue if missing else None
        found[place] = Known(Door(place, gone, _those_waiting(here), scene.now, local_queue.stopped))
    return Each(found, (*gaps, *scene.written.queues.holes))


def _those_waiting(workloads: Iterable[Workload]) -> tuple[Workload, ...]:
    return tuple(sorted((each for each in workloads if standing(each) is Standing.WAITING), key=_turn))
