"""Names for the write calls of a run by what they say: the same ones in every run, however often it looks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

WRITES = ("POST", "PATCH", "DELETE")
LEASES, MAPS, EVENTS, NODES = "leases", "configmaps", "events", "nodes"
QUEUES, DEPLOYMENTS = "clusterqueues", "deployments"


def name_of(verb: str, path: str, body: bytes) -> str:
    """What a request changes; empty for one that changes nothing, or only shows that its sender lives."""
    parts = urlsplit(path).path.split("/")
    if (
        verb not in WRITES
        or "dryRun=All" in path
        or "authorization.k8s.io" in path
        or "authentication.k8s.io" in path
    ):
        return ""
    if parts[-1] == "eviction":
        return f"evict {_app(parts[-2])}"
    if parts[-1] in ("exec", "log"):
        return ""
    content: Any = json.loads(body) if body else {}
    if LEASES in parts:
        return _of_lease(verb, parts[-1], content)
    if MAPS in parts:
        return _of_journal(verb, content)
    if EVENTS in parts:
        return f"event {content['reason']}"
    if NODES in parts:
        return _of_node(content)
    if QUEUES in parts:
        return _of_queue(content)
    if DEPLOYMENTS in parts:
        return _of_deployment(content)
    return f"{verb.lower()} {parts[-2]}"


def _app(pod: str) -> str:
    return pod.partition("-")[0]


def _of_lease(verb: str, name: str, content: Any) -> str:
    if verb == "POST":
        return f"make {_lock(content['metadata']['name'])}"
    if verb == "DELETE":
        return f"remove {_lock(name)}"
    puts = _puts(content)
    holder = puts.get("/spec/holderIdentity")
    if holder is None:
        return ""
    return f"{'let go of' if holder.endswith('/') else 'take over'} {_lock(name)}"


def _lock(name: str) -> str:
    kind = name.split("-")[1]
    return {"slot": "the slot", "node": "the node's lock"}.get(kind, f"the lock of a {kind}")


def _of_journal(verb: str, content: Any) -> str:
    if verb == "POST":
        return "journal: made"
    if verb == "DELETE":
        return "journal: forgotten"
    return f"journal: {_entry(json.loads(_puts(content)['/data/run.json']))}"


def _entry(run: Mapping[str, Any]) -> str:
    if run["state"] != "unfinished":
        return str(run["state"])
    if run["outcome"]:
        return f"stopped, {run['outcome']}"
    if run["members"]:
        return "members"
    reached = [(each["step"]["step"], each["reached"]) for each in run["steps"]]
    undone = [step for step, how in reached if how == "undone"]
    if undone:
        return f"{undone[0]} undone"
    if run["direction"] == "back":
        return "turned back"
    if run["verified"]:
        return "verified"
    far = [f"{step} {how}" for step, how in reached if how in ("begun", "done")]
    return far[-1] if far else "taken over"


def _of_node(content: Sequence[Mapping[str, Any]]) -> str:
    puts = _puts(content)
    drops = {each["path"] for each in content if each["op"] == "remove"}
    if "/spec/unschedulable" in puts:
        return "cordon"
    if "/spec/unschedulable" in drops:
        return "uncordon"
    if "/metadata/labels/nvidia.com~1mig.config" in puts:
        return "set the configuration"
    return "take the mark away" if drops else "mark"


def _of_queue(content: Sequence[Mapping[str, Any]]) -> str:
    if any(each["op"] == "remove" and each["path"].endswith("held-by") for each in content):
        return "let the queue go"
    return "hold the queue" if "/spec/stopPolicy" in _puts(content) else "set the limit"


def _of_deployment(content: Sequence[Mapping[str, Any]]) -> str:
    puts = _puts(content)
    if any(path.startswith("/spec/template/spec/") for path in puts):
        return "set the template"
    if any("restarted-by" in f"{path} {value}" for path, value in puts.items()):
        return "restart"
    back = any(each["op"] == "remove" and each["path"].endswith("recreated-by") for each in content)
    return "set the strategy back" if back else "use Recreate"


def _puts(content: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {each["path"]: each["value"] for each in content if each["op"] == "add"}
