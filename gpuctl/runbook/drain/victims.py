"""Who is hurt by a drain: each pod that must go, whose it is, what it stands and falls with, what speaks
against its eviction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from gpuctl.facts.kinds import OwnerReference, Ref
from gpuctl.facts.state import Each, Known, State, Unknown, attempt
from gpuctl.kueue.objects import GROUP, Workload
from gpuctl.runbook.drain.budgets import Budget, covering
from gpuctl.runbook.drain.candidates import Candidate, Mode, listed, several
from gpuctl.runbook.drain.owners import Owners, gang, work
from gpuctl.runbook.drain.pods import DrainPod
from gpuctl.runbook.records import Bounds

T = TypeVar("T")

_WORKLOAD = (f"{GROUP}/workload", f"{GROUP}/pod-group-name")


class Victim(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """A pod that must go, as a plan and a journal hold it. What could not be read stays empty.
    `owner_kind` and `controller` (its uid) are of the controller itself, `owners` goes on to those above."""

    namespace: str
    name: str
    uid: str = ""
    holds: tuple[str, ...] = ()
    team: str = ""
    owners: tuple[str, ...] = ()
    owner_kind: str = "Pod"
    controller: str = ""
    work: str = ""
    gang: str = ""
    workload: str = ""
    queue: str = ""
    priority: int = 0
    mode: Mode = Mode.EVICT
    ending: bool = False
    grace: int = 0
    budgets: tuple[str, ...] = ()

    @property
    def evicted(self) -> bool:
        """Whether the run asks for its eviction, sooner or later."""
        return self.mode is not Mode.WAIT and not self.ending

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, eq=False)
class Surroundings:
    """What is known beside the pods of a node."""

    owners: Owners
    budgets: Each[Ref, Budget]
    workloads: Each[Ref, Workload]


@dataclass(frozen=True, eq=False)
class Hurt:
    """A pod that must go, with all that is known of it."""

    candidate: Candidate
    around: Surroundings = field(repr=False)

    @property
    def pod(self) -> DrainPod:
        """The pod."""
        return self.candidate.pod

    @property
    def chain(self) -> tuple[OwnerReference, ...]:
        """Its controller, and those above."""
        return self.around.owners.chain(self.pod)

    @property
    def budgets(self) -> tuple[Budget, ...]:
        """The PodDisruptionBudgets that are about it. Raises NotKnown."""
        return covering(self.pod, self.around.budgets)

    @property
    def workload(self) -> Workload | None:
        """The Kueue Workload that it belongs to. Raises NotKnown."""
        about = self.pod.metadata
        marks = {**about.labels, **about.annotations}
        names = {marks[key] for key in _WORKLOAD if key in marks}
        uids = {about.uid, *(owner.uid for owner in self.chain)} - {""}
        for each in self.around.workloads:
            if each.metadata.namespace == about.namespace and (
                each.metadata.name in names
                or any(owner.uid in uids for owner in each.metadata.owner_references)
            ):
                return each
        return None

    @property
    def victim(self) -> Victim:
        """As a plan holds it."""
        pod, chain = self.pod, self.chain
        workload = _told(attempt(lambda: self.workload), None)
        admission = workload.status.admission if workload else None
        budgets = _told(attempt(lambda: self.budgets), ())
        return Victim(
            namespace=pod.metadata.namespace,
            name=pod.metadata.name,
            uid=pod.metadata.uid,
            holds=_told(self.candidate.held, ()),
            team=pod.team,
            owners=tuple(f"{each.kind} {each.name}" for each in chain),
            owner_kind=kind_of_owner(pod),
            controller=pod.controller.uid if pod.controller else "",
            work="batch" if workload and not work(chain) else work(chain),
            gang=gang(pod),
            workload=workload.metadata.name if workload else "",
            queue=admission.cluster_queue if admission else "",
            priority=workload.spec.priority if workload else pod.spec.priority,
            mode=self.candidate.mode,
            ending=pod.ending,
            grace=pod.grace,
            budgets=tuple(map(str, budgets)),
        )


def kind_of_owner(pod: DrainPod) -> str:
    """The kind of its controller; `Pod` for one without."""
    return pod.controller.kind if pod.controller else "Pod"


def _told(state: State[T], otherwise: T) -> T:
    return state.value if isinstance(state, Known) else otherwise


def bounds_of(hurt: Iterable[Hurt]) -> Bounds:
    """How far a drain of these goes."""
    victims = [each.victim for each in hurt]
    gone = [each for each in victims if each.evicted]
    return Bounds(
        evictions=len(gone),
        namespaces=_sorted(each.namespace for each in gone),
        owner_kinds=_sorted(each.owner_kind for each in gone),
        budgets=_sorted(name for each in gone for name in each.budgets),
    )


def _sorted(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(names)))


def effects_of(hurt: Iterable[Hurt]) -> Iterator[str]:
    """What a drain does to others, in lines."""
    found = [(each, each.victim) for each in hurt]
    victims = [victim for _, victim in found]
    if not victims:
        yield "no pod has to go"
        return
    yield _summary(victims)
    yield from (f"  {_line(victim)}" for victim in sorted(victims, key=_order))
    yield from _workloads(found)
    yield from _gangs(victims)
    yield "evictions have no undo: what is made anew starts again, from its last checkpoint at best"


def _order(victim: Victim) -> tuple[str, str]:
    return victim.namespace, victim.name


def _summary(victims: list[Victim]) -> str:
    counts = Counter(each.namespace for each in victims if each.evicted)
    spaces = ", ".join(f"{count} of {name}" for name, count in sorted(counts.items()))
    waits = sum(each.mode is Mode.WAIT and not each.ending for each in victims)
    ends = sum(each.ending for each in victims)
    parts = [f"evicts {several(sum(counts.values()), 'pod')}" + (f": {spaces}" if spaces else "")]
    parts += [f"waits for {several(waits, 'pod')}"] if waits else []
    parts += [f"{several(ends, 'pod')} on the way out already"] if ends else []
    return "; ".join(parts)


def _line(victim: Victim) -> str:
    """`team-a/llm-0: 1x nvidia.com/gpu; serving, Deployment llm; team ml; PodDisruptionBudget team-a/llm`."""
    kind = [victim.work] if victim.work else []
    owner = [victim.owners[-1] if victim.owners else "no controller"]
    about = [
        ", ".join(victim.holds),
        ", ".join((*kind, *owner)),
        f"team {victim.team}" if victim.team != victim.namespace else "",
        f"priority {victim.priority}" if victim.priority else "",
        f"under PodDisruptionBudget {', '.join(victim.budgets)}" if victim.budgets else "",
        {Mode.WAIT: "waited for", Mode.EVICT_AFTER: "evicted if it does not end by itself"}.get(
            victim.mode, ""
        ),
    ]
    return f"{victim}: {'; '.join(part for part in about if part)}"


def _workloads(found: Iterable[tuple[Hurt, Victim]]) -> Iterator[str]:
    """What becomes of Kueue's Workloads: who makes the pods anew decides that."""
    by_name: dict[tuple[str, str], list[tuple[Hurt, Victim]]] = {}
    for hurt, victim in found:
        if victim.workload:
            by_name.setdefault((victim.namespace, victim.workload), []).append((hurt, victim))
    for (namespace, name), pods in sorted(by_name.items(), key=lambda each: each[0]):
        victim = pods[0][1]
        queue = f" of ClusterQueue {victim.queue}" if victim.queue else ""
        yield (
            f"Workload {namespace}/{name}{queue} (priority {victim.priority}) loses "
            f"{several(len(pods), 'pod')}: {_future(victim)}"
        )


def _future(victim: Victim) -> str:
    if victim.owners:
        return (
            f"{victim.owners[-1]} makes them anew, they wait for GPUs elsewhere in the quota it holds; if "
            "Kueue waits for pods to be ready, the Workload is requeued when that takes too long"
        )
    if victim.gang:
        return "it waits for pods that replace them, and is requeued if none come in time"
    return "nothing makes them anew: it ends with them"


def _gangs(victims: Iterable[Victim]) -> Iterator[str]:
    counts = Counter((each.namespace, each.gang) for each in victims if each.gang and each.evicted)
    for (namespace, name), count in sorted(counts.items()):
        yield f"{name} in namespace {namespace} loses {several(count, 'pod')}: all its work stops"


@dataclass(frozen=True, eq=False)
class Served:
    """What serves and loses Ready replicas here. `ready`: how many it has in all."""

    namespace: str
    name: str
    ready: int
    leaving: list[Hurt]

    @property
    def ends(self) -> bool:
        """Whether none is left."""
        return len(self.leaving) >= self.ready


def served(hurt: Each[Ref, Hurt]) -> Each[str, Served]:
    """What serves with pods that go. Where the number of replicas can't be read, there is a hole."""
    found: dict[str, Served] = {}
    holes = list(hurt.gaps())
    for _, each in hurt.known():
        state = _server(each)
        if isinstance(state, Unknown):
            holes.append(state)
        elif isinstance(state, Known) and state.value is not None:
            owner, ready = state.value
            namespace, name = each.pod.metadata.namespace, f"{owner.kind} {owner.name}"
            one = found.setdefault(f"{namespace}/{name}", Served(namespace, name, ready, []))
            one.leaving.append(each)
    return Each({key: Known(each) for key, each in found.items()}, tuple(holes))


def _server(hurt: Hurt) -> State[tuple[OwnerReference, int] | None]:
    if not (hurt.pod.ready and hurt.candidate.evicted):
        return Known(None)
    return attempt(lambda: hurt.around.owners.server(hurt.pod))


def left_alone(candidates: Iterable[Candidate]) -> Iterator[str]:
    """Which pods stay, and why, in lines."""
    by_reason: dict[str, list[str]] = {}
    for each in candidates:
        if each.left:
            by_reason.setdefault(each.left, []).append(str(each.pod))
    for reason, names in sorted(by_reason.items()):
        yield f"left alone, as {reason}: {listed(sorted(names))}"
