"""The writing side of a cluster in memory: a MemoryReader over the same objects sees what is written."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Reason, Unknown
from gpuctl.runbook.writer import Blocked, Change, Conflict, Drop, Put, WriteFailed

Object = dict[str, Any]
_NOTHING = object()


@dataclass(frozen=True, slots=True)
class Call:
    """One write: `patch`, `create`, `delete` or `evict`, of what, and with what."""

    verb: str
    ref: Ref
    uid: str = ""
    what: Any = None

    def __str__(self) -> str:
        return f"{self.verb} {self.ref}"


def _nothing(_call: Call) -> None:
    pass


@dataclass
class MemoryWriter:
    """Writes to `items`, which a MemoryReader may share. Each write that is asked for stands in `calls`.

    `before` and `after` are told of each: what they raise is what the caller gets, with the write not done,
    or done. An evicted or deleted pod is gone at once, unless `lingers` says that it takes its time: then it
    is terminating, until `gone` is called for it. `leaves` is told of each pod that is gone, so that a test
    can play the controller that makes another.
    """

    items: list[Object]
    before: Callable[[Call], None] = _nothing
    after: Callable[[Call], None] = _nothing
    lingers: Callable[[Object], bool] = lambda _: False
    leaves: Callable[[Object], None] = lambda _: None
    calls: list[Call] = field(default_factory=list)
    _numbers: count[int] = field(default_factory=lambda: count(1))

    @property
    def written(self) -> list[str]:
        """What was asked for, in words: `evict Pod team-a/train-0`."""
        return [str(call) for call in self.calls]

    def patch(self, ref: Ref, uid: str, changes: Sequence[Change]) -> None:
        with_ = self._called(Call("patch", ref, uid, tuple(changes)))
        item = self._the(ref, uid)
        changed = copy.deepcopy(item)
        for change in changes:
            _apply(changed, change, ref)
        item.clear()
        item.update(changed)
        self._bump(item)
        self.after(with_)

    def create(self, ref: Ref, body: Mapping[str, Any]) -> str:
        call = self._called(Call("create", ref, what=body))
        if self.find(ref) is not None:
            raise Conflict(Unknown(Reason.SERVER_ERROR, "already exists", str(ref)))
        item = copy.deepcopy(dict(body))
        item.setdefault("apiVersion", ref.kind.api_version())
        item.setdefault("kind", ref.kind.kind)
        about = item.setdefault("metadata", {})
        about |= {"name": ref.name, "uid": f"made-{next(self._numbers)}"}
        if ref.namespace:
            about["namespace"] = ref.namespace
        self._bump(item)
        self.items.append(item)
        self.after(call)
        return str(about["uid"])

    def delete(self, ref: Ref, uid: str, grace: int | None = None) -> None:
        call = self._called(Call("delete", ref, uid, grace))
        item = self.find(ref)
        if item is not None:
            self._go(self._the(ref, uid))
        self.after(call)

    def evict(self, pod: Ref, uid: str, grace: int | None = None) -> Blocked | None:
        call = self._called(Call("evict", pod, uid, grace))
        if self.find(pod) is None:
            return None
        item = self._the(pod, uid)
        blocked = self._blocked(item)
        if blocked is None:
            self._go(item)
        self.after(call)
        return blocked

    # What else happens in a cluster

    def find(self, ref: Ref) -> Object | None:
        """The object of this name, or None."""
        for item in self.items:
            about = item["metadata"]
            same = item["kind"] == ref.kind.kind and about["name"] == ref.name
            if same and about.get("namespace", "") == ref.namespace:
                return item
        return None

    def gone(self, ref: Ref) -> None:
        """Ends a pod that lingers."""
        item = self.find(ref)
        if item is not None:
            self.items.remove(item)
            self.leaves(item)

    def _called(self, call: Call) -> Call:
        self.calls.append(call)
        self.before(call)
        return call

    def _the(self, ref: Ref, uid: str) -> Object:
        item = self.find(ref)
        found = item["metadata"].get("uid", "") if item else ""
        if item is None or found != uid:
            raise Conflict(Unknown(Reason.SERVER_ERROR, f"uid is {found or 'gone'}, not {uid}", str(ref)))
        return item

    def _go(self, item: Object) -> None:
        if item["kind"] == "Pod" and self.lingers(item):
            item["metadata"].setdefault("deletionTimestamp", "2026-11-30T10:00:00Z")
            return
        self.items.remove(item)
        self.leaves(item)

    def _bump(self, item: Object) -> None:
        item["metadata"]["resourceVersion"] = str(next(self._numbers))

    def _blocked(self, pod: Object) -> Blocked | None:
        """As the API server decides: pods that wait or are over are no concern of a budget."""
        if pod.get("status", {}).get("phase") != "Running":
            return None
        budgets = [
            each for each in self.items if each["kind"] == "PodDisruptionBudget" and _covers(each, pod)
        ]
        if len(budgets) > 1:
            why = "This pod has more than one PodDisruptionBudget, which the eviction does not support."
            raise WriteFailed(Unknown(Reason.SERVER_ERROR, why))
        for budget in budgets:
            if budget["status"].get("disruptionsAllowed", 0) <= 0:
                return Blocked("Cannot evict pod as it would violate the pod's disruption budget.")
            budget["status"]["disruptionsAllowed"] -= 1
        return None


def _covers(budget: Object, pod: Object) -> bool:
    wanted = budget["spec"].get("selector", {}).get("matchLabels", {})
    labels = pod["metadata"].get("labels", {})
    same = budget["metadata"].get("namespace") == pod["metadata"].get("namespace")
    return same and all(labels.get(key) == value for key, value in wanted.items())


def _apply(item: Object, change: Change, ref: Ref) -> None:
    """One operation of a JSON patch, as strictly as the API server."""
    *way, last = [part.replace("~1", "/").replace("~0", "~") for part in change.path.split("/")[1:]]
    parent: Any = item
    for part in way:
        parent = _under(parent, part)
        if not isinstance(parent, dict | list):
            raise _refused(ref, f"{change.path}: no such path")
    if not isinstance(parent, dict):
        raise _refused(ref, f"{change.path}: no such path")
    _apply_at(parent, last, change, ref)


def _under(parent: Any, part: str) -> Any:
    if isinstance(parent, list):
        return parent[int(part)] if part.isdigit() and int(part) < len(parent) else _NOTHING
    return parent.get(part, _NOTHING) if isinstance(parent, dict) else _NOTHING


def _apply_at(parent: Object, last: str, change: Change, ref: Ref) -> None:
    if isinstance(change, Put):
        parent[last] = copy.deepcopy(change.value)
    elif isinstance(change, Drop):
        if parent.pop(last, _NOTHING) is _NOTHING:
            raise _refused(ref, f"{change.path}: nothing to remove")
    elif parent.get(last) != change.value:
        raise _refused(ref, f"{change.path} is {parent.get(last)!r}, not {change.value!r}")


def _refused(ref: Ref, why: str) -> Conflict:
    return Conflict(Unknown(Reason.SERVER_ERROR, why, str(ref)))
