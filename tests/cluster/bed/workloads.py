"""Pods on simulated GPU nodes as people run them: with owners, budgets, and manners in ending.

    work = Workloads(bed, namespace)
    work.deployment("web", replicas=2, asks={"nvidia.com/mig-1g.10gb": 1}, node="gpu-1")
    work.budget("web", min_available=2)
    work.running("web", 2)          # the pods' names, as soon as so many run

kwok runs them: Running at once, gone at once when deleted. Pods of Jobs would be done at once, too; `job`
lets them run on. `sigterm="ignored"`: gone when the grace period is over; `"hangs"`: never, until `release`.
Evictions, owners, budgets and schedulers are the real ones.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import stages
from .bed import Bed

IMAGE = "registry.example.com/team/app:1"
TOLERANT = ({"operator": "Exists"},)


@dataclass(frozen=True)
class Workloads:
    """The workloads of one namespace."""

    bed: Bed
    namespace: str

    def pod(self, name: str, **pod: Any) -> None:
        """A pod that nobody owns."""
        self._make("v1", "Pod", name, _template(name, **pod))

    def deployment(self, name: str, *, replicas: int = 1, **pod: Any) -> None:
        """Pods that come back, under other names."""
        self._make("apps/v1", "Deployment", name, _controller(name, replicas, pod))

    def stateful_set(self, name: str, *, replicas: int = 1, **pod: Any) -> None:
        """Pods that come back under the same names, all at once."""
        spec = {
            **_controller(name, replicas, pod)["spec"],
            "serviceName": name,
            "podManagementPolicy": "Parallel",
        }
        self._make("apps/v1", "StatefulSet", name, {"spec": spec})

    def daemon_set(self, name: str, **pod: Any) -> None:
        """A pod on every node that it may run on."""
        spec = _controller(name, 0, pod)["spec"]
        del spec["replicas"]
        self._make("apps/v1", "DaemonSet", name, {"spec": spec})

    def job(
        self, name: str, *, completions: int = 1, labels: Mapping[str, str] | None = None, **pod: Any
    ) -> None:
        """Pods that run on until they are deleted; another takes the place of each."""
        template = _template(name, annotations={stages.JOB: stages.RUNS}, **pod)
        template["spec"]["restartPolicy"] = "Never"
        spec = {
            "parallelism": completions,
            "completions": completions,
            "backoffLimit": 10,
            "template": template,
        }
        self._make("batch/v1", "Job", name, {"metadata": {"labels": dict(labels or {})}, "spec": spec})

    def budget(
        self, app: str, *, min_available: int | str | None = None, max_unavailable: int | str | None = None
    ) -> None:
        """A PodDisruptionBudget over the pods of this name; a second call changes it."""
        limit = (
            {"minAvailable": min_available}
            if min_available is not None
            else {"maxUnavailable": max_unavailable}
        )
        spec = {**limit, "selector": {"matchLabels": {"app": app}}}
        body = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": app, "namespace": self.namespace},
            "spec": spec,
        }
        self.bed.kubectl("-n", self.namespace, "delete", "pdb", app, "--ignore-not-found")
        self.bed.kubectl("create", "-f", "-", input=json.dumps(body))
        # evictions are refused until the controller has counted, so wait for it
        self.bed.wait(lambda: self._observed(app), 60, f"the budget of {app}")

    def running(self, app: str, count: int = 1, timeout: float = 60) -> list[str]:
        """The names of the pods, as soon as so many run."""
        return sorted(each["metadata"]["name"] for each in self._until_running(app, count, timeout, ()))

    def another(self, app: str, gone: str, timeout: float = 60) -> dict[str, Any]:
        """The pod that runs in the place of the one with this uid, under whatever name."""
        (pod,) = self._until_running(app, 1, timeout, (gone,))
        return pod

    def pods(self, app: str = "") -> list[dict[str, Any]]:
        """The pods as the API server has them."""
        selector = ("-l", f"app={app}") if app else ()
        listed = self.bed.kubectl("-n", self.namespace, "get", "pods", *selector, "-o", "json")
        return list(json.loads(listed)["items"])

    def release(self, app: str) -> None:
        """Let pods that hang in their end go."""
        names = [f"pod/{pod['metadata']['name']}" for pod in self.pods(app)]
        self.bed.kubectl("-n", self.namespace, "annotate", *names, f"{stages.SIGTERM}-")

    def _until_running(
        self, app: str, count: int, timeout: float, but: Collection[str]
    ) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []

        def so_many() -> bool:
            found[:] = [each for each in self.pods(app) if _runs(each) and each["metadata"]["uid"] not in but]
            return len(found) == count

        self.bed.wait(so_many, timeout, f"{count} running pods of {app}")
        return found

    def _observed(self, app: str) -> bool:
        found = json.loads(self.bed.kubectl("-n", self.namespace, "get", "pdb", app, "-o", "json"))
        return bool(found["metadata"]["generation"] == found.get("status", {}).get("observedGeneration"))

    def _make(self, version: str, kind: str, name: str, rest: Mapping[str, Any]) -> None:
        meta = {**rest.get("metadata", {}), "name": name, "namespace": self.namespace}
        body = {**rest, "apiVersion": version, "kind": kind, "metadata": meta}
        self.bed.kubectl("create", "-f", "-", input=json.dumps(body))


def _runs(pod: Mapping[str, Any]) -> bool:
    return pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]


def _controller(name: str, replicas: int, pod: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": _template(name, **pod),
        }
    }


def _template(
    name: str,
    *,
    asks: Mapping[str, int] | None = None,
    init_asks: Mapping[str, int] | None = None,
    node: str = "",
    bound: bool = False,
    grace: int = 30,
    sigterm: str = "",
    tolerations: Sequence[Mapping[str, Any]] = (),
    env: Mapping[str, str] | None = None,
    empty_dir: bool = False,
    priority_class: str = "",
    finalizers: Sequence[str] = (),
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """A pod. `node`: it may run there only; `bound`: put there past the scheduler, a cordon or not."""
    container: dict[str, Any] = {"name": "main", "image": IMAGE, "resources": _limits(asks)}
    container["env"] = [{"name": key, "value": text} for key, text in (env or {}).items()]
    spec: dict[str, Any] = {
        "terminationGracePeriodSeconds": grace,
        "tolerations": [*tolerations],
        "containers": [container],
    }
    if init_asks:
        spec["initContainers"] = [{"name": "init", "image": IMAGE, "resources": _limits(init_asks)}]
    if node and bound:
        spec["nodeName"] = node
    elif node:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    if empty_dir:
        spec["volumes"] = [{"name": "scratch", "emptyDir": {}}]
        container["volumeMounts"] = [{"name": "scratch", "mountPath": "/scratch"}]
    if priority_class:
        spec["priorityClassName"] = priority_class
    meta: dict[str, Any] = {
        "labels": {"app": name, **(labels or {})},
        "annotations": {**(annotations or {}), **({stages.SIGTERM: sigterm} if sigterm else {})},
    }
    if finalizers:
        meta["finalizers"] = [*finalizers]
    return {"metadata": meta, "spec": spec}


def _limits(asks: Mapping[str, int] | None) -> dict[str, Any]:
    return {"limits": {name: str(count) for name, count in asks.items()}} if asks else {}
