"""Who makes pods anew, and for whom: ReplicaSet and Deployment, StatefulSet, Job and JobSet."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

import msgspec

from gpuctl.facts.kinds import Kind, OwnerReference, Ref, View
from gpuctl.facts.objects import Deployment
from gpuctl.facts.state import Each, Inapplicable, Known, NotKnown, attempt
from gpuctl.kueue.objects import Job
from gpuctl.runbook.drain.pods import DrainPod


class _Part(msgspec.Struct, frozen=True, rename="camel", gc=False):
    pass


class ReplicaStatus(_Part, frozen=True):
    ready_replicas: int = 0


class ReplicaSet(View, frozen=True):
    of: ClassVar[Kind] = Kind("apps", ("v1",), "ReplicaSet", "replicasets", namespaced=True)
    status: ReplicaStatus = ReplicaStatus()


class StatefulSet(View, frozen=True):
    of: ClassVar[Kind] = Kind("apps", ("v1",), "StatefulSet", "statefulsets", namespaced=True)
    status: ReplicaStatus = ReplicaStatus()


class DaemonSet(View, frozen=True):
    of: ClassVar[Kind] = Kind("apps", ("v1",), "DaemonSet", "daemonsets", namespaced=True)


Controller = ReplicaSet | StatefulSet | DaemonSet | Deployment | Job
_BATCH: Final = frozenset({"Job", "CronJob", "JobSet", "PyTorchJob", "MPIJob", "TFJob", "RayJob", "Workflow"})
_SERVING: Final = frozenset(
    {"ReplicaSet", "Deployment", "StatefulSet", "LeaderWorkerSet", "InferenceService", "RayService"}
)
_COUNTED: Final = frozenset({"ReplicaSet", "StatefulSet", "Deployment"})
# Labels and annotations by which pods stand and fall together.
_GANGS: Final = {
    "kueue.x-k8s.io/pod-group-name": "Kueue pod group",
    "jobset.sigs.k8s.io/jobset-name": "JobSet",
    "leaderworkerset.sigs.k8s.io/name": "LeaderWorkerSet",
    "training.kubeflow.org/job-name": "training job",
    "ray.io/cluster": "Ray cluster",
    "scheduling.x-k8s.io/pod-group": "pod group",
    "scheduling.k8s.io/group-name": "Volcano group",
}


VIEWS: Final[tuple[type[Controller], ...]] = (ReplicaSet, StatefulSet, DaemonSet, Job, Deployment)
_BY_KIND: Final = {(view.of.group, view.of.kind): view for view in VIEWS}


def ref_of(namespace: str, owner: OwnerReference) -> Ref | None:
    """The object that an owner reference names; None for a kind that is not read."""
    group = owner.api_version.rpartition("/")[0]
    view = _BY_KIND.get((group, owner.kind))
    return Ref(view.of, owner.name, namespace) if view else None


def controllers(objects: Iterable[View]) -> Collection[Ref]:
    """The controllers of some objects, of kinds that are read."""
    found = (
        ref_of(each.metadata.namespace, owner)
        for each in objects
        for owner in each.metadata.owner_references
        if owner.controller
    )
    return tuple(dict.fromkeys(ref for ref in found if ref))


@dataclass(frozen=True, eq=False)
class Owners:
    """The controllers of the pods on a node, and theirs, as far as they could be read."""

    read: Each[Ref, Controller]

    def chain(self, pod: DrainPod) -> tuple[OwnerReference, ...]:
        """Its controller, and those above, as far as they are known."""
        return tuple(self._above(pod.metadata.namespace, pod.controller))

    def _above(self, namespace: str, owner: OwnerReference | None) -> Iterator[OwnerReference]:
        if owner is None:
            return
        yield owner
        known = attempt(lambda: self.object(namespace, owner))
        found = known.value if isinstance(known, Known) else None
        above = [each for each in found.metadata.owner_references if each.controller] if found else []
        yield from self._above(namespace, above[0] if above else None)

    def object(self, namespace: str, owner: OwnerReference) -> Controller | None:
        """The object itself; None if there is none of this name and uid. Raises NotKnown, also for a kind
        that is not read."""
        ref = ref_of(namespace, owner)
        if ref is None:
            raise NotKnown(Inapplicable(f"{owner.kind} {owner.name} is not read"))
        found = self.read.get(ref)
        return found if found is not None and found.metadata.uid in ("", owner.uid) else None

    def orphaned(self, pod: DrainPod) -> bool:
        """Whether its controller does not exist any more, so that nothing makes it anew."""
        if pod.controller is None or ref_of(pod.metadata.namespace, pod.controller) is None:
            return False
        return self.object(pod.metadata.namespace, pod.controller) is None

    def server(self, pod: DrainPod) -> tuple[OwnerReference, int] | None:
        """What it serves for, and how many Ready replicas that has; None for what does not serve, or is
        counted by nobody here. Raises NotKnown."""
        chain = self.chain(pod)
        counted = [each for each in chain if each.kind in _COUNTED]
        if not counted or any(each.kind in _BATCH for each in chain):
            return None
        found = self.object(pod.metadata.namespace, counted[-1])
        if not isinstance(found, ReplicaSet | StatefulSet | Deployment):
            return None
        return counted[-1], found.status.ready_replicas


def work(chain: Iterable[OwnerReference]) -> str:
    """`serving`, `batch`, or empty where the owners do not tell."""
    kinds = {each.kind for each in chain}
    if kinds & _BATCH:
        return "batch"
    return "serving" if kinds & _SERVING else ""


def gang(pod: DrainPod) -> str:
    """What it stands and falls with: `JobSet train`; empty for a pod by itself."""
    marks = {**pod.metadata.annotations, **pod.metadata.labels}
    return next((f"{word} {marks[key]}" for key, word in _GANGS.items() if marks.get(key)), "")
