"""Kueue's queues and what waits in them, as kubectl prints it, in either version of the API."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from tests.memory import A_MOMENT, MemoryReader

Item = dict[str, Any]
GPU = "nvidia.com/gpu"
OLD, NEW = "v1beta1", "v1beta2"


def ago(**since: float) -> datetime:
    return A_MOMENT - timedelta(**since)


def stamp(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


def condition(kind: str, status: str, reason: str, message: str = "", at: datetime | None = None) -> Item:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": stamp(at or ago(hours=1)),
    }


@dataclass
class World:
    """A cluster whose queues tests fill. What is made here is healthy."""

    version: str = NEW
    items: list[Item] = field(default_factory=list)

    def add(self, item: Item) -> Item:
        self.items.append(item)
        return item

    def reader(self, **settings: Any) -> MemoryReader:
        return MemoryReader(copy.deepcopy(self.items), **settings)

    def one(self, kind: str, name: str) -> Item:
        (found,) = [each for each in self.items if each["kind"] == kind and each["metadata"]["name"] == name]
        return found

    def drop(self, kind: str, name: str = "") -> None:
        self.items = [
            each for each in self.items if each["kind"] != kind or (name and each["metadata"]["name"] != name)
        ]

    def _kueue(self, kind: str, name: str, namespace: str = "", **body: Any) -> Item:
        about: Item = {"name": name, "creationTimestamp": stamp(ago(days=30))}
        if namespace:
            about["namespace"] = namespace
        return self.add(
            {"apiVersion": f"kueue.x-k8s.io/{self.version}", "kind": kind, "metadata": about, **body}
        )

    def namespace(self, name: str, **labels: str) -> Item:
        return self.add(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        )

    def flavor(self, name: str = "h100", **spec: Any) -> Item:
        item = self._kueue("ResourceFlavor", name, spec={"nodeLabels": {"gpu": name}, **spec})
        item["metadata"]["finalizers"] = ["kueue.x-k8s.io/resource-in-use"]
        return item

    def queue(
        self,
        name: str = "vision",
        quota: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        cohort: str = "",
        used: Mapping[str, Mapping[str, str]] | None = None,
        **spec: Any,
    ) -> Item:
        """`quota` by flavor and resource: a nominalQuota, or a whole entry."""
        quota = {"h100": {GPU: "8"}} if quota is None else quota
        covered = list(dict.fromkeys(resource for each in quota.values() for resource in each))
        groups = [
            {
                "coveredResources": covered,
                "flavors": [
                    {
                        "name": flavor,
                        "resources": [_quota(resource, each) for resource, each in entries.items()],
                    }
                    for flavor, entries in quota.items()
                ],
            }
        ]
        if cohort:
            spec["cohortName" if self.version == NEW else "cohort"] = cohort
        return self._kueue(
            "ClusterQueue",
            name,
            spec={"namespaceSelector": {}, "resourceGroups": groups, **spec},
            status={
                "conditions": [condition("Active", "True", "Ready", "Can admit new workloads")],
                "flavorsReservation": [
                    {
                        "name": flavor,
                        "resources": [{"name": each, "total": total} for each, total in uses.items()],
                    }
                    for flavor, uses in (used or {}).items()
                ],
                "pendingWorkloads": 0,
            },
        )

    def local_queue(self, name: str = "main", namespace: str = "team-a", to: str = "vision") -> Item:
        return self._kueue("LocalQueue", name, namespace, spec={"clusterQueue": to})

    def cohort(
        self, name: str, parent: str = "", quota: Mapping[str, Mapping[str, Any]] | None = None
    ) -> Item:
        groups = [
            {
                "coveredResources": list(entries),
                "flavors": [
                    {
                        "name": flavor,
                        "resources": [_quota(resource, each) for resource, each in entries.items()],
                    }
                ],
            }
            for flavor, entries in (quota or {}).items()
        ]
        return self._kueue("Cohort", name, spec={"parentName": parent, "resourceGroups": groups})

    def workload(
        self,
        name: str = "train-1",
        gpus: Any = 1,
        *,
        namespace: str = "team-a",
        queue: str = "main",
        waits: timedelta = timedelta(minutes=5),
        message: str = "",
        pod_sets: Iterable[Item] | None = None,
        **spec: Any,
    ) -> Item:
        """A Workload that waits."""
        item = self._kueue(
            "Workload",
            name,
            namespace,
            spec={
                "active": True,
                "queueName": queue,
                "podSets": list(pod_sets) if pod_sets is not None else [pods({GPU: str(gpus)})],
                **spec,
            },
            status={
                "conditions": [condition("QuotaReserved", "False", "Pending", message)] if message else []
            },
        )
        item["metadata"]["creationTimestamp"] = stamp(A_MOMENT - waits)
        return item

    def admitted(
        self,
        name: str = "busy-1",
        gpus: Any = 1,
        *,
        flavor: str = "h100",
        to: str = "vision",
        since: timedelta = timedelta(minutes=30),
        resource: str = GPU,
        with_pod: bool = True,
        namespace: str = "team-a",
        **spec: Any,
    ) -> Item:
        """A Workload of a Job that runs."""
        at = A_MOMENT - since
        item = self.workload(name, gpus, namespace=namespace, waits=since + timedelta(minutes=1), **spec)
        item["metadata"]["ownerReferences"] = [
            {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": f"uid-{name}", "controller": True}
        ]
        item["status"] = {
            "conditions": [
                condition("QuotaReserved", "True", "QuotaReserved", at=at),
                condition("Admitted", "True", "Admitted", at=at),
            ],
            "admission": {
                "clusterQueue": to,
                "podSetAssignments": [
                    {
                        "name": "main",
                        "flavors": {resource: flavor},
                        "resourceUsage": {resource: str(gpus)},
                        "count": 1,
                    }
                ],
            },
        }
        self.job(name, namespace=namespace, suspend=False)
        if with_pod:
            self.pod(f"{name}-x", {resource: str(gpus)}, owner=name, namespace=namespace)
        return item

    def job(
        self,
        name: str,
        *,
        namespace: str = "team-a",
        queue: str = "main",
        suspend: bool = True,
        made: timedelta = timedelta(hours=1),
        **spec: Any,
    ) -> Item:
        labels = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
        return self.add(
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {
                    "name": name,
                    "namespace": namespace,
                    "uid": f"uid-{name}",
                    "labels": labels,
                    "annotations": {},
                    "creationTimestamp": stamp(A_MOMENT - made),
                },
                "spec": {"suspend": suspend, "template": {"metadata": {}, "spec": {}}, **spec},
                "status": {},
            }
        )

    def pod(
        self,
        name: str,
        requests: Mapping[str, str],
        *,
        owner: str = "",
        node: str = "gpu-1",
        namespace: str = "team-a",
        phase: str = "Running",
    ) -> Item:
        owners = (
            [{"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": f"uid-{owner}"}] if owner else []
        )
        return self.add(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": name,
                    "namespace": namespace,
                    "uid": f"uid-pod-{name}",
                    "labels": {},
                    "ownerReferences": owners,
                },
                "spec": {
                    "nodeName": node,
                    "containers": [{"name": "main", "resources": {"requests": dict(requests)}}],
                },
                "status": {"phase": phase, "conditions": []},
            }
        )

    def node(
        self, name: str = "gpu-1", gpus: int = 8, *, flavor: str = "h100", ready: bool = True, **more: str
    ) -> Item:
        return self.add(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": {"gpu": flavor}},
                "spec": {},
                "status": {
                    "allocatable": {"cpu": "64", "memory": "512Gi", GPU: str(gpus), **more},
                    "conditions": [condition("Ready", "True" if ready else "False", "KubeletReady")],
                },
            }
        )


def _quota(resource: str, each: Any) -> Item:
    entry = dict(each) if isinstance(each, Mapping) else {"nominalQuota": each}
    return {"name": resource, **entry}


def pods(requests: Mapping[str, Any], count: int = 1, name: str = "main", **spec: Any) -> Item:
    """A pod set."""
    container = {"name": "main", "resources": {"requests": dict(requests)}}
    return {"name": name, "count": count, "template": {"spec": {"containers": [container], **spec}}}


def healthy(version: str = NEW) -> World:
    """A busy cluster in which nothing is wrong: all GPUs in use, and a few Workloads that have just come."""
    world = World(version)
    world.namespace("team-a")
    world.namespace("team-b")
    world.flavor()
    world.node()
    world.queue(used={"h100": {GPU: "8"}})
    world.local_queue()
    for number in range(8):
        world.admitted(f"busy-{number}")
    for number in range(3):
        world.workload(
            f"train-{number}",
            message=(
                "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in "
                "flavor h100, 1 more needed"
            ),
        )
    return world
