"""Changes to a cluster's flavors, and the journals of drills."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from tests.builders.queues import GPU, World, pods, stamp
from tests.memory import A_MOMENT

Change = Callable[[World], object]
DRILL = {
    "app.kubernetes.io/managed-by": "gpuctl",
    "gpuctl.dev/run": "run-7",
    "gpuctl.dev/runbook": "flavor-drill",
}
STATES = {"succeeded": "finished", "refused": "finished", "reverted": "undone"}


def both(*changes: Change) -> Change:
    return lambda world: [change(world) for change in changes]


def nothing(_: World) -> None:
    pass


def deleted(name: str = "h100", **since: float) -> Change:
    """A flavor whose deletion was asked for."""
    at = stamp(A_MOMENT - timedelta(**(since or {"hours": 3})))
    return lambda world: world.one("ResourceFlavor", name)["metadata"].update(deletionTimestamp=at)


def finalizers(*names: str, of: str = "h100") -> Change:
    return lambda world: world.one("ResourceFlavor", of)["metadata"].update(finalizers=list(names))


def node(**spec: Any) -> Change:
    """Changes the spec of the one node."""
    return lambda world: world.one("Node", "gpu-1")["spec"].update(spec)


def taint(key: str, effect: str = "NoSchedule") -> Change:
    return node(taints=[{"key": key, "value": "x", "effect": effect}])


def tolerating(key: str) -> Change:
    """A Workload that waits for the flavor, and tolerates a taint by itself."""
    toleration = {"key": key, "operator": "Exists"}
    return lambda world: world.workload("own", pod_sets=[pods({GPU: "1"}, tolerations=[toleration])])


def not_ready(world: World) -> None:
    world.one("Node", "gpu-1")["status"]["conditions"][0]["status"] = "Unknown"


def spec(kind: str, name: str, **fields: Any) -> Change:
    return lambda world: world.one(kind, name)["spec"].update(fields)


def annotated(kind: str, name: str, key: str) -> Change:
    def change(world: World) -> None:
        world.one(kind, name)["metadata"]["annotations"] = {key: "true"}

    return change


def limit(name: str, to: str = "2", queue: str = "vision") -> Change:
    def change(world: World) -> None:
        groups = world.one("ClusterQueue", queue)["spec"]["resourceGroups"]
        groups[0]["flavors"][0]["resources"][0][name] = to

    return change


def journal(
    outcome: str = "succeeded",
    *,
    run: str = "run-7",
    text: str | None = None,
    verified: bool = False,
    result: dict[str, Any] | None = None,
    **since: float,
) -> Change:
    """The journal of a drill that ended, or last went on, so long ago."""
    at = A_MOMENT - timedelta(**(since or {"days": 3}))
    told = {
        "apiVersion": "gpuctl.dev/v1",
        "kind": "Run",
        "id": run,
        "runbook": "flavor-drill",
        "target": {"kind": "Kueue"},
        "state": STATES.get(outcome, "unfinished"),
        "outcome": outcome,
        "why": "not within 60 s: the flavor stays" if outcome in ("failed", "timed-out") else "",
        "verified": verified,
        "result": result or {},
        "startedAt": stamp(at - timedelta(minutes=2)),
        "updatedAt": stamp(at),
        "finishedAt": stamp(at) if outcome in STATES else None,
    }
    item = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": run,
            "namespace": "gpuctl-system",
            "labels": {**DRILL, "gpuctl.dev/run": run},
            "creationTimestamp": stamp(at - timedelta(minutes=2)),
        },
        "data": {"run.json": json.dumps(told) if text is None else text, "plan.json": "{}"},
    }
    return lambda world: world.add(item)


def queue_of_drill(**since: float) -> Change:
    """A queue that a drill made so long ago, and whose flavor the drill may have taken away by force."""

    def change(world: World) -> None:
        about = world.queue("gpuctl-drill-7", {"gpuctl-drill-7": {"example.com/unit": "2"}})["metadata"]
        about.update(creationTimestamp=stamp(A_MOMENT - timedelta(**since)), labels=DRILL)

    return change


def canary(**since: float) -> Change:
    """A flavor that a drill made so long ago, and that is being deleted."""

    def change(world: World) -> None:
        about = world.flavor("gpuctl-drill-7")["metadata"]
        at = stamp(A_MOMENT - timedelta(**since))
        about.update(creationTimestamp=at, deletionTimestamp=at, labels=DRILL)

    return change
