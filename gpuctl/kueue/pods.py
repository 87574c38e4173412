"""Which pods belong to which Workload, and what pods take of nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Each, State
from gpuctl.kueue.objects import GROUP, Job, PlacedPod, Workload
from gpuctl.kueue.quantities import Amount
from gpuctl.kueue.requests import of_pod
from gpuctl.kueue.scene import told

_WORKLOAD = f"{GROUP}/workload"
QUEUE = f"{GROUP}/queue-name"
FINALIZER = f"{GROUP}/managed"
_MARKS = (f"{GROUP}/managed", QUEUE, f"{GROUP}/podset")


@dataclass(frozen=True)
class Owned:
    """The pods of a cluster, by whom they belong to. Between them and a Workload's owner may be Jobs."""

    pods: State[Each[Ref, PlacedPod]]
    jobs: State[Each[Ref, Job]]

    def of(self, workload: Workload) -> tuple[PlacedPod, ...]:
        """The pods of a Workload that are not over. Raises NotKnown if pods could not be read."""
        return tuple(each for each in self.ever(workload) if not each.over)

    def ever(self, workload: Workload) -> tuple[PlacedPod, ...]:
        """Its pods, those that are over too."""
        by_name = self._by_name.get((workload.metadata.namespace, workload.metadata.name), ())
        owners = [owner.uid for owner in workload.metadata.owner_references]
        found = {pod.ref: pod for pod in by_name}
        found.update((pod.ref, pod) for uid in owners for pod in self._by_uid.get(uid, ()))
        return tuple(found.values())

    @cached_property
    def alive(self) -> tuple[PlacedPod, ...]:
        """Every pod that takes something or waits to."""
        return tuple(each for each in told(self.pods, "pods") if not each.over)

    @cached_property
    def _by_name(self) -> Mapping[tuple[str, str], list[PlacedPod]]:
        found: dict[tuple[str, str], list[PlacedPod]] = {}
        for pod in told(self.pods, "pods"):
            name = pod.metadata.annotations.get(_WORKLOAD)
            if name:
                found.setdefault((pod.metadata.namespace, name), []).append(pod)
        return found

    @cached_property
    def _by_uid(self) -> Mapping[str, list[PlacedPod]]:
        found: dict[str, list[PlacedPod]] = {}
        for pod in told(self.pods, "pods"):
            for uid in filter(None, self._uids(pod)):
                found.setdefault(uid, []).append(pod)
        return found

    def _uids(self, pod: PlacedPod) -> Iterator[str]:
        """The pod itself, its owners, and their owners."""
        yield pod.metadata.uid
        for owner in pod.metadata.owner_references:
            yield owner.uid
            yield from self._owners_of_jobs.get(owner.uid, ())

    @cached_property
    def _owners_of_jobs(self) -> Mapping[str, tuple[str, ...]]:
        return {
            job.metadata.uid: tuple(owner.uid for owner in job.metadata.owner_references)
            for job in told(self.jobs, "Jobs")
        }


def is_kueues(pod: PlacedPod) -> bool:
    """Whether Kueue counts the pod, as far as its marks tell."""
    return any(mark in pod.metadata.labels for mark in _MARKS) or _WORKLOAD in pod.metadata.annotations


def of_workload(pod: PlacedPod) -> str:
    """The Workload that it names, with its namespace; empty if none."""
    name = pod.metadata.annotations.get(_WORKLOAD)
    return f"{pod.metadata.namespace}/{name}" if name else ""


def is_kept(pod: PlacedPod) -> bool:
    """Whether it was deleted, and goes once Kueue lets go of it."""
    return pod.metadata.deletion_timestamp is not None and FINALIZER in pod.metadata.finalizers


def takes(pod: PlacedPod, resource: str) -> Amount:
    """How much of a resource it takes."""
    return of_pod(pod.spec).get(resource, 0)


def unschedulable(pod: PlacedPod) -> str:
    """Why the scheduler found no node, in its own words; empty if it did, or has not tried."""
    for each in pod.status.conditions:
        if each.type == "PodScheduled" and each.status == "False" and each.reason == "Unschedulable":
            return each.message or each.reason
    return ""


def by_node(pods: Iterable[PlacedPod]) -> dict[str, list[PlacedPod]]:
    """The pods on each node."""
    found: dict[str, list[PlacedPod]] = {}
    for pod in pods:
        if pod.spec.node_name:
            found.setdefault(pod.spec.node_name, []).append(pod)
    return found
