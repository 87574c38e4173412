"""The canary objects of a drill: a namespace, two flavors, a ClusterQueue, a LocalQueue and bare Workloads.

All of them bear the name of the run that made them, and its label: nothing without both is ever touched.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, ClassVar, Final, TypeVar

from gpuctl.facts.fact import Maybe, Named, given
from gpuctl.facts.kinds import Kind, Meta, Moment, Ref, Rule, View
from gpuctl.facts.objects import Condition, CustomResourceDefinition, Namespace
from gpuctl.facts.own import RUN
from gpuctl.facts.state import Each, Inapplicable, Known, NotKnown, Reason, State, Unknown, value
from gpuctl.kueue.drills import DRILL
from gpuctl.kueue.facts import CRDS, kueue_managers, served_versions
from gpuctl.kueue.manager import Manager, is_ready
from gpuctl.kueue.objects import (
    GROUP,
    VERSIONS,
    ClusterQueue,
    ClusterQueueSpec,
    ClusterQueueStatus,
    LocalQueue,
    ResourceFlavor,
    ResourceFlavorSpec,
    Workload,
    WorkloadSpec,
    WorkloadStatus,
)
from gpuctl.runbook.objects import NumberedMeta
from gpuctl.runbook.records import labels_of
from gpuctl.runbook.target import SELF, Self
from gpuctl.runbook.writer import Put, Test, Writer

V = TypeVar("V", bound=View)

PREFIX: Final = "gpuctl-drill-"
UNIT: Final = "gpuctl.dev/drill-unit"  # a resource that no node offers
UNITS: Final = 3  # one for each Workload
IN_USE: Final = "kueue.x-k8s.io/resource-in-use"
FIRST, SECOND, THIRD = "w1", "w2", "w3"
WORKLOADS: Final = (FIRST, SECOND, THIRD)
_PLURALS: Final = ("clusterqueues", "localqueues", "resourceflavors", "workloads")


class DrillFlavor(View, frozen=True):
    of: ClassVar[Kind] = ResourceFlavor.of
    metadata: NumberedMeta
    spec: ResourceFlavorSpec = ResourceFlavorSpec()


class DrillQueue(View, frozen=True):
    of: ClassVar[Kind] = ClusterQueue.of
    metadata: NumberedMeta
    spec: ClusterQueueSpec = ClusterQueueSpec()
    status: ClusterQueueStatus = ClusterQueueStatus()

    @property
    def flavors(self) -> frozenset[str]:
        """The flavors it refers to."""
        return frozenset(each.name for group in self.spec.resource_groups for each in group.flavors)

    @property
    def counted(self) -> frozenset[str]:
        """The flavors whose use Kueue counts in it."""
        return frozenset(each.name for each in self.status.flavors_reservation)


class DrillWorkload(View, frozen=True):
    of: ClassVar[Kind] = Workload.of
    metadata: Meta
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()

    @property
    def admitted(self) -> bool:
        """Whether it was admitted, and nobody has taken that back."""
        return _is_true(self.status.conditions, "Admitted") and not _is_true(
            self.status.conditions, "Evicted"
        )

    @property
    def flavors(self) -> frozenset[str]:
        """The flavors it was given."""
        admission = self.status.admission
        found = admission.pod_set_assignments if admission else ()
        return frozenset(flavor for each in found for flavor in each.flavors.values())


def condition(conditions: Collection[Condition], kind: str) -> Condition | None:
    """One of an object's conditions."""
    return next((each for each in conditions if each.type == kind), None)


def _is_true(conditions: Collection[Condition], kind: str) -> bool:
    found = condition(conditions, kind)
    return found is not None and found.status == "True"


def active(queue: DrillQueue | LocalQueue | None) -> bool:
    """Whether Kueue says that a queue works."""
    return queue is not None and _is_true(queue.status.conditions, "Active")


def active_condition(queue: DrillQueue | LocalQueue | None) -> Condition | None:
    """What Kueue says of a queue."""
    return condition(queue.status.conditions, "Active") if queue else None


# Names


@dataclass(frozen=True, slots=True)
class Names:
    """What the objects of a run are called."""

    run: str

    @property
    def main(self) -> str:
        """The namespace, the flavor and the ClusterQueue."""
        return f"{PREFIX}{self.run}"

    @property
    def spare(self) -> str:
        """The second flavor."""
        return f"{self.main}-spare"

    def ref(self, kind: Kind, name: str) -> Ref:
        """An object by its name; in the drill's namespace, if its kind is in one."""
        return Ref(kind, name, self.main if kind.namespaced else "")

    def bodies(self, version: str) -> Mapping[Ref, Mapping[str, Any]]:
        """Everything but the Workloads, in the order in which it is made, as it is written in a version."""
        cluster_queue = {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.main}},
            "resourceGroups": [
                {
                    "coveredResources": [UNIT],
                    "flavors": [
                        {"name": self.main, "resources": [{"name": UNIT, "nominalQuota": str(UNITS)}]}
                    ],
                }
            ],
        }
        return {
            self.ref(Namespace.of, self.main): self._body(**{"kueue.openshift.io/managed": "true"}),
            self.ref(written_as(ResourceFlavor.of, version), self.main): self.flavor,
            self.ref(written_as(ResourceFlavor.of, version), self.spare): self.flavor,
            self.ref(written_as(ClusterQueue.of, version), self.main): {
                **self._body(),
                "spec": cluster_queue,
            },
            self.ref(written_as(LocalQueue.of, version), self.main): {
                **self._body(),
                "spec": {"clusterQueue": self.main},
            },
        }

    @property
    def flavor(self) -> Mapping[str, Any]:
        """A flavor of no node: a bare Workload makes no pods."""
        return {**self._body(), "spec": {"nodeLabels": {"gpuctl.dev/drill": self.run}}}

    @property
    def workload(self) -> Mapping[str, Any]:
        """A Workload that nobody owns: it takes quota, and makes no pods."""
        resources = {"requests": {UNIT: "1"}, "limits": {UNIT: "1"}}
        containers = [{"name": "none", "image": "none", "resources": resources}]
        template = {"spec": {"restartPolicy": "Never", "containers": containers}}
        spec = {"queueName": self.main, "podSets": [{"name": "main", "count": 1, "template": template}]}
        return {**self._body(), "spec": spec}

    def _body(self, **labels: str) -> Mapping[str, Any]:
        return {"metadata": {"labels": {**labels_of(self.run, DRILL), **labels}}}


def written(kind: Kind, name: str, run: str, version: str) -> Ref:
    """One of a run's objects of Kueue's, in the version that is written."""
    return Names(run).ref(written_as(kind, version), name)


def written_as(kind: Kind, version: str) -> Kind:
    """The kind in the one version in which it is written."""
    return replace(kind, versions=(version,))


@given(CRDS)
def version_that_is_written(crds: Each[Ref, CustomResourceDefinition]) -> str:
    """The version of Kueue's API that all kinds of a drill are served in."""
    for gap in crds.gaps():
        raise NotKnown(gap)
    served = served_versions(Known(crds))
    found = [each for each in VERSIONS if all(each in served.get(plural, ()) for plural in _PLURALS)]
    if not found:
        raise NotKnown(Inapplicable(f"{GROUP} is served in none of the versions {', '.join(VERSIONS)}"))
    return found[0]


# What there is of a run's objects


@given(SELF)
def namespace_of_the_drill(self: Self) -> Collection[Ref]:
    return (Names(self.run).ref(Namespace.of, Names(self.run).main),)


@given(SELF)
def flavors_of_the_drill(self: Self) -> Collection[Ref]:
    names = Names(self.run)
    return tuple(names.ref(ResourceFlavor.of, each) for each in (names.main, names.spare))


@given(SELF)
def clusterqueue_of_the_drill(self: Self) -> Collection[Ref]:
    return (Names(self.run).ref(ClusterQueue.of, Names(self.run).main),)


@given(SELF)
def localqueue_of_the_drill(self: Self) -> Collection[Ref]:
    return (Names(self.run).ref(LocalQueue.of, Names(self.run).main),)


@given(SELF)
def workloads_of_the_drill(self: Self) -> Collection[Ref]:
    return tuple(Names(self.run).ref(Workload.of, each) for each in WORKLOADS)


@dataclass(frozen=True, slots=True)
class Canaries:
    """A run's objects as they are now; None for what does not exist."""

    names: Names
    namespace: Namespace | None
    flavor: DrillFlavor | None
    spare: DrillFlavor | None
    queue: DrillQueue | None
    local_queue: LocalQueue | None
    workloads: Mapping[str, DrillWorkload]

    @property
    def left(self) -> Left:
        """All that there is."""
        flavors = tuple(each for each in (self.flavor, self.spare) if each)
        return Left(
            tuple(self.workloads.values()),
            _some(self.local_queue),
            _some(self.queue),
            flavors,
            _some(self.namespace),
        )

    def has(self, ref: Ref) -> bool:
        """Whether an object is there, whatever version it is named in."""
        return any((each.of.kind, each.metadata.name) == (ref.kind.kind, ref.name) for each in self.left.all)


def _some(each: V | None) -> tuple[V, ...]:
    return (each,) if each is not None else ()


@given(
    SELF,
    Named(Namespace, namespace_of_the_drill),
    Maybe(Named(DrillFlavor, flavors_of_the_drill)),
    Maybe(Named(DrillQueue, clusterqueue_of_the_drill)),
    Maybe(Named(LocalQueue, localqueue_of_the_drill)),
    Maybe(Named(DrillWorkload, workloads_of_the_drill)),
)
def canaries_of_the_drill(
    self: Self,
    namespaces: Each[Ref, Namespace],
    flavors: State[Each[Ref, DrillFlavor]],
    queues: State[Each[Ref, DrillQueue]],
    local_queues: State[Each[Ref, LocalQueue]],
    workloads: State[Each[Ref, DrillWorkload]],
) -> Canaries:
    names, run = Names(self.run), self.run
    found = _own(flavors, run)
    return Canaries(
        names,
        _own(Known(namespaces), run).get(names.main),
        found.get(names.main),
        found.get(names.spare),
        _own(queues, run).get(names.main),
        _own(local_queues, run).get(names.main),
        _own(workloads, run),
    )


CANARIES: Final = canaries_of_the_drill


def _own(state: State[Each[Ref, V]], run: str) -> Mapping[str, V]:
    """By name. Where the API is not served there is nothing; what another made is not known to be ours."""
    found = () if isinstance(state, Inapplicable) else value(state)
    objects = {each.metadata.name: each for each in found}
    for each in objects.values():
        if each.metadata.labels.get(RUN) != run:
            raise NotKnown(
                Unknown(Reason.MALFORMED, f"it does not bear the label {RUN}={run}", str(each.ref))
            )
    return objects


# Taking away


@given(Maybe(kueue_managers))
def whether_kueue_is_down(managers: State[Each[Ref, Manager]]) -> bool:
    """Whether it is known that no manager works, so that nobody else will remove finalizers."""
    if not isinstance(managers, Known):
        return False
    try:
        found = list(managers.value)
        return bool(found) and not any(_works(each) for each in found)
    except NotKnown:
        return False


def _works(manager: Manager) -> bool:
    return bool(manager.ready_endpoints) or any(is_ready(pod) for pod in manager.pods)


DOWN: Final = whether_kueue_is_down


@dataclass(frozen=True, slots=True)
class Left:
    """Canary objects of a run, in the order in which they must go: a queue is kept by Workloads with quota,
    a flavor by its queue, and a namespace by what is in it."""

    workloads: tuple[DrillWorkload, ...] = ()
    local_queues: tuple[LocalQueue, ...] = ()
    queues: tuple[DrillQueue, ...] = ()
    flavors: tuple[DrillFlavor, ...] = ()
    namespaces: tuple[Namespace, ...] = ()

    @property
    def groups(self) -> Iterator[tuple[View, ...]]:
        """What may go at once, one after the other."""
        yield from (self.workloads, self.local_queues, self.queues, self.flavors, self.namespaces)

    @property
    def all(self) -> tuple[View, ...]:
        """Every object."""
        return tuple(each for group in self.groups for each in group)

    @property
    def next(self) -> tuple[View, ...]:
        """What is to go now; empty once nothing is left."""
        return next((group for group in self.groups if group), ())

    def __str__(self) -> str:
        gone = self.next
        more = len(self.all) - len(gone)
        return ", ".join(str(each.ref) for each in gone) + (f" and {more} more" if more else "")

    def clear(self, writer: Writer, version: str, *, kueue_is_down: bool) -> None:
        """Asks for the next ones to go. Their finalizers are Kueue's to remove; where it is down, nobody but
        this would."""
        for each in self.next:
            ref = _ref_to_write(each, version)
            if each.metadata.deletion_timestamp is None:
                writer.delete(ref, each.metadata.uid)
            elif kueue_is_down and IN_USE in each.metadata.finalizers:
                before = list(each.metadata.finalizers)
                after = [name for name in before if name != IN_USE]
                path = "/metadata/finalizers"
                writer.patch(ref, each.metadata.uid, (Test(path, before), Put(path, after)))


def _ref_to_write(each: View, version: str) -> Ref:
    kind = each.ref.kind
    return replace(each.ref, kind=written_as(kind, version)) if kind.group == GROUP else each.ref


def _rules() -> Iterator[Rule]:
    for verb in ("create", "delete"):
        yield Rule("", "namespaces", verb)
        for kind in (ResourceFlavor.of, ClusterQueue.of, LocalQueue.of, Workload.of):
            yield Rule(GROUP, kind.plural, verb, kind.namespaced)
    for kind in (ResourceFlavor.of, ClusterQueue.of, Workload.of):
        yield Rule(GROUP, kind.plural, "patch", kind.namespaced)


RULES: Final = frozenset(_rules())


def seconds_between(start: Moment | datetime | None, end: Moment | datetime | None) -> float | None:
    """How long it was; None if either is not written."""
    return None if start is None or end is None else (end - start).total_seconds()
