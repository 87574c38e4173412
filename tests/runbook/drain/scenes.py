"""A node with pods on it, as the API has them, for tests of drains."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from gpuctl.audit.policy import POLICY, DrainPolicy, Policy, RunbooksPolicy
from gpuctl.facts.fact import Argument, Fact
from gpuctl.facts.gather import Facts, gather
from gpuctl.facts.kinds import Ref
from gpuctl.facts.nodes import Output
from gpuctl.facts.state import Inapplicable, Unknown
from gpuctl.runbook.drain.pods import DrainPod
from gpuctl.runbook.guard import Blocker, Guard
from gpuctl.runbook.target import OPTIONS, SELF, TARGET, Self
from tests.memory import A_MOMENT, MemoryReader
from tests.runbook.memory_writer import MemoryWriter

NAME, UID, RUN = "gpu-1", "uid-of-gpu-1", "run-1"
GPU = "nvidia.com/gpu"
Object = dict[str, Any]


def node(**about: Any) -> Object:
    """The node that is drained."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": NAME, "uid": UID, **about},
        "spec": {},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }


def container(asks: Mapping[str, int] | None = None, **more: Any) -> Object:
    """A container that asks for extended resources."""
    limits = {name: str(count) for name, count in (asks or {}).items()}
    return {"name": "main", "image": "app:1", "resources": {"limits": limits}, **more}


def pod(
    name: str = "llm-0",
    namespace: str = "team-a",
    *,
    asks: Mapping[str, int] | None = None,
    owner: tuple[str, str] | None = ("ReplicaSet", "llm-5d8"),
    spec: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    **about: Any,
) -> Object:
    """A pod that runs on the node, and would be evicted without further ado. It holds a GPU unless `asks` is
    empty."""
    owners = [owner_of(*owner)] if owner else []
    asked = {GPU: 1} if asks is None else asks
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-of-{name}",
            "ownerReferences": owners,
            "creationTimestamp": stamp(-3600),
            **about,
        },
        "spec": {"nodeName": NAME, "containers": [container(asked)], **(spec or {})},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            **(status or {}),
        },
    }


_GROUPS = {"Job": "batch/v1", "JobSet": "jobset.x-k8s.io/v1alpha2"}


def owner_of(kind: str, name: str) -> Object:
    """A controller, as those that it makes refer to it."""
    return {
        "apiVersion": _GROUPS.get(kind, "apps/v1"),
        "kind": kind,
        "name": name,
        "uid": f"uid-of-{name}",
        "controller": True,
    }


def controller(
    kind: str, name: str, *, ready: int = 3, owner: tuple[str, str] | None = None, namespace: str = "team-a"
) -> Object:
    """A controller, with so many replicas that are Ready."""
    return {
        "apiVersion": _GROUPS.get(kind, "apps/v1"),
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-of-{name}",
            "ownerReferences": [owner_of(*owner)] if owner else [],
        },
        "spec": {},
        "status": {"readyReplicas": ready},
    }


def budget(
    name: str = "llm",
    *,
    allowed: int = 1,
    healthy: int = 2,
    needed: int = 1,
    expected: int = 2,
    selector: Mapping[str, str] | None = None,
    spec: Mapping[str, Any] | None = None,
    **about: Any,
) -> Object:
    """A PodDisruptionBudget for all pods of its namespace, or those that are selected."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "team-a", "uid": f"uid-of-{name}", **about},
        "spec": {"selector": {"matchLabels": dict(selector or {})}, **(spec or {})},
        "status": {
            "disruptionsAllowed": allowed,
            "currentHealthy": healthy,
            "desiredHealthy": needed,
            "expectedPods": expected,
        },
    }


def workload(name: str, owner: tuple[str, str] | None = None, queue: str = "gpus") -> Object:
    """A Kueue Workload that has its quota."""
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": name,
            "namespace": "team-a",
            "uid": f"uid-of-{name}",
            "ownerReferences": [owner_of(*owner)] if owner else [],
        },
        "spec": {"priority": 100},
        "status": {"admission": {"clusterQueue": queue}},
    }


def stamp(seconds: float) -> str:
    """A moment before or after that of the reading."""
    return (A_MOMENT + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


REPLICAS = (
    controller("ReplicaSet", "llm-5d8", owner=("Deployment", "llm")),
    controller("Deployment", "llm"),
)
NOT_SERVED = {
    "workloads.kueue.x-k8s.io": Inapplicable("not served"),
    "resourceclaims.resource.k8s.io": Inapplicable("not served"),
}


@dataclass(frozen=True)
class Scene:
    """A cluster with the node. Reading it again shows what was written to it."""

    items: list[Object]
    options: Mapping[str, Any] = field(default_factory=dict)
    policy: DrainPolicy = field(default_factory=DrainPolicy)
    missing: Mapping[str, Unknown | Inapplicable] = field(default_factory=dict)
    told: Mapping[tuple[str, str], Output | str | Unknown] | None = None
    later_told: Mapping[tuple[str, str], Output | str | Unknown] | None = None
    seconds: float = 0
    served: bool = False  # the API groups of Kueue and of resource claims

    @property
    def writer(self) -> MemoryWriter:
        """Who writes to it."""
        return MemoryWriter(self.items)

    @property
    def arguments(self) -> Mapping[Argument[Any], Any]:
        """What a run of it would be given."""
        policy = Policy(runbooks=RunbooksPolicy(drain=self.policy))
        return {TARGET: NAME, OPTIONS: self.options, POLICY: policy, SELF: Self(RUN)}

    def look(self, needs: Iterable[Fact[Any]]) -> Facts:
        """What is known now."""
        reader = MemoryReader(
            self.items,
            missing={**(NOT_SERVED if not self.served else {}), **self.missing},
            told=self.told,
            later_told=self.later_told,
            now=A_MOMENT + timedelta(seconds=self.seconds),
        )
        return gather(needs, reader, self.arguments)

    def blockers(self, guards: Sequence[Guard]) -> list[Blocker]:
        """What the guards say against it."""
        facts = self.look([need for each in guards for need in each.needs])
        return [blocker for each in guards for blocker in each.blockers(facts)]

    def later(self, seconds: float) -> Scene:
        """The same cluster, so many seconds later."""
        return replace(self, seconds=seconds)

    def with_(self, **changes: Any) -> Scene:
        """The same, slightly changed."""
        return replace(self, **changes)


def scene(*items: Object, **more: Any) -> Scene:
    """The node with these objects, and with the controllers that pods name by default."""
    found = [node(), *REPLICAS, *items] if not any(each["kind"] == "Node" for each in items) else list(items)
    return Scene([copy.deepcopy(each) for each in found], **more)


def ref(name: str, namespace: str = "team-a") -> Ref:
    """A pod."""
    return Ref(DrainPod.of, name, namespace)
