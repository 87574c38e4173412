"""Pods of gpuctl's own that look into nodes: made, waited for, read, deleted.

`kubectl debug node` loses output and always exits 0, so this is not it: the pod runs to its end, its log is
read, then it is deleted, whatever happens in between. One that outlives its run ends by itself, and the next
run that may make such pods deletes it.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Event, Lock
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec

from gpuctl.cluster import errors
from gpuctl.cluster.connection import Connection, Reply
from gpuctl.cluster.deadline import Deadline
from gpuctl.cluster.discovery import typed
from gpuctl.facts.kinds import Rule
from gpuctl.facts.nodes import Target
from gpuctl.facts.state import NotKnown, Reason, Unknown
from gpuctl.nvidia.involved import HELPER

RUN: Final = "gpuctl.dev/run"
OURS: Final = f"app.kubernetes.io/managed-by=gpuctl,{HELPER}=probe"
RULES: Final = tuple(
    Rule("", resource, verb, namespaced=True)
    for resource, verb in (("pods", "create"), ("pods", "get"), ("pods/log", "get"), ("pods", "delete"))
)
HOST: Final = "/host"
POLL_SECONDS: Final = 0.3
DELETE_SECONDS: Final = 10.0
MARGIN: Final = 30  # seconds a pod may live beyond the time of its command: pulling, starting, ending
_LONGEST_LOG: Final = 16 << 20
_OK, _CREATED, _NOT_FOUND, _FORBIDDEN = 200, 201, 404, 403
# Waiting for one of these, a container will not start in time.
_HOPELESS: Final = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
    }
)


class _Waiting(msgspec.Struct, frozen=True):
    reason: str = ""
    message: str = ""


class _ContainerState(msgspec.Struct, frozen=True):
    waiting: _Waiting | None = None


class _Container(msgspec.Struct, frozen=True):
    state: _ContainerState = _ContainerState()


class _PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = ""
    reason: str = ""
    message: str = ""
    container_statuses: tuple[_Container, ...] = ()


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    creation_timestamp: datetime | None = None
    labels: dict[str, str] = {}


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    active_deadline_seconds: int = 600


class _Pod(msgspec.Struct, frozen=True):
    metadata: _Meta
    spec: _Spec = _Spec()
    status: _PodStatus = _PodStatus()


class _Pods(msgspec.Struct, frozen=True):
    items: tuple[_Pod, ...] = ()


@dataclass(frozen=True, slots=True)
class Recipe:
    """Where debug pods are made, of which image, for how long, and for which run."""

    namespace: str
    image: str
    seconds: float
    run: str


class DebugPods:
    """The debug pods of a run. Usable from several threads."""

    def __init__(self, connection: Connection, recipe: Recipe) -> None:
        self._connection = connection
        self._recipe = recipe
        self._alive: dict[str, Event] = {}  # by name: set once the answer to its creation is there
        self._lock = Lock()
        self._closed = False

    def output(self, target: Target, script: str, deadline: Deadline) -> str:
        """What the script prints on the node. Raises `NotKnown`; the pod is gone in any case."""
        name = f"gpuctl-probe-{secrets.token_hex(4)}"
        try:
            self._create(name, target, script, deadline)
            self._wait(name, target, deadline)
            return self._log(name, target, deadline)
        finally:
            self._delete(name)

    def sweep(self) -> int:
        """Deletes what earlier runs left, once it is older than it may become; returns how many."""
        what = f"debug pods in namespace {self._recipe.namespace}"
        deadline = Deadline.after(DELETE_SECONDS)
        path = f"{self._path()}?{urlencode({'labelSelector': OURS})}"
        found = typed(self._connection.get(path, what, deadline), what, _Pods)
        left = [pod.metadata.name for pod in found.items if self._is_left(pod)]
        for name in left:
            self._remove(name)
        return len(left)

    def close(self) -> None:
        """Deletes what is still there, such as after an interruption."""
        with self._lock:
            self._closed = True
            alive = dict(self._alive)
        for name, created in alive.items():
            created.wait(3)
            self._delete(name)

    def _is_left(self, pod: _Pod) -> bool:
        made = pod.metadata.creation_timestamp
        if pod.metadata.labels.get(RUN) == self._recipe.run or made is None:
            return False
        return (datetime.now(UTC) - made).total_seconds() > pod.spec.active_deadline_seconds

    def _create(self, name: str, target: Target, script: str, deadline: Deadline) -> None:
        what = f"debug pod on {target.node}"
        created = Event()
        with self._lock:
            if self._closed:
                raise NotKnown(Unknown(Reason.NOT_ASKED, "the run is being ended", what))
            self._alive[name] = created
        try:
            reply = self._connection.post(self._path(), self._body(name, target, script), what, deadline)
        finally:
            created.set()
        if reply.status != _CREATED:
            raise NotKnown(self._refused(reply, what))

    def _refused(self, reply: Reply, what: str) -> Unknown:
        gap = errors.of_status(reply.status, reply.body, what)
        if "PodSecurity" in gap.message:
            level = "pod-security.kubernetes.io/enforce=privileged"
            hint = (
                f"label namespace {self._recipe.namespace} with {level}, or name another by --probe-namespace"
            )
            return Unknown(Reason.FORBIDDEN, f"{gap.message}; {hint}", what)
        if reply.status == _NOT_FOUND:
            hint = f"namespace {self._recipe.namespace} does not exist; make it, or name another"
            return Unknown(Reason.FORBIDDEN, f"{hint} by --probe-namespace", what)
        return gap

    def _wait(self, name: str, target: Target, deadline: Deadline) -> None:
        what = f"debug pod on {target.node}"
        while True:
            pod = typed(self._connection.get(self._path(name), what, deadline), what, _Pod)
            if pod.status.phase in ("Succeeded", "Failed"):
                if pod.status.reason:  # such as OutOfpods or DeadlineExceeded: it did not run to its end
                    said = f"{pod.status.reason}: {pod.status.message}"
                    raise NotKnown(Unknown(Reason.SERVER_ERROR, errors.one_line(said), what))
                return
            for waiting in _hopeless(pod):
                raise NotKnown(Unknown(Reason.SERVER_ERROR, errors.one_line(waiting), what))
            if deadline.left <= POLL_SECONDS:
                raise deadline.passed(what)
            time.sleep(POLL_SECONDS)

    def _log(self, name: str, target: Target, deadline: Deadline) -> str:
        what = f"log of the debug pod on {target.node}"
        reply = self._connection.get(f"{self._path(name)}/log?limitBytes={_LONGEST_LOG}", what, deadline)
        if reply.status != _OK:
            raise NotKnown(errors.of_status(reply.status, reply.body, what))
        return reply.body.decode(errors="replace")

    def _delete(self, name: str) -> None:
        with self._lock:
            if name not in self._alive:
                return
        self._remove(name)
        with self._lock:
            self._alive.pop(name, None)

    def _remove(self, name: str) -> None:
        """One that can't be deleted ends by itself, and is swept later."""
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
        try:
            self._connection.delete(self._path(name), options, f"pod {name}", Deadline.after(DELETE_SECONDS))
        except NotKnown:
            return

    def _path(self, name: str = "") -> str:
        base = f"/api/v1/namespaces/{quote(self._recipe.namespace, safe='')}/pods"
        return f"{base}/{quote(name, safe='')}" if name else base

    def _body(self, name: str, target: Target, script: str) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "labels": {
                    "app.kubernetes.io/name": "gpuctl-probe",
                    "app.kubernetes.io/managed-by": "gpuctl",
                    HELPER: "probe",
                    RUN: self._recipe.run,
                },
                "annotations": {"openshift.io/required-scc": "privileged"} if target.openshift else {},
            },
            "spec": self._spec(target, script),
        }

    def _spec(self, target: Target, script: str) -> dict[str, Any]:
        image = next(iter(target.images), self._recipe.image)
        container = {
            "name": "probe",
            "image": image,
            "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-c", script],
            "securityContext": {"privileged": True, "runAsUser": 0},
            "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
            "volumeMounts": [{"name": "host", "mountPath": HOST, "readOnly": True}],
        }
        if target.runtime_class:
            container["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
        return {
            "nodeName": target.node,
            "restartPolicy": "Never",
            "hostPID": True,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 0,
            "activeDeadlineSeconds": math.ceil(self._recipe.seconds) + MARGIN,
            "tolerations": [{"operator": "Exists"}],
            "containers": [container],
            "volumes": [{"name": "host", "hostPath": {"path": "/", "type": "Directory"}}],
            **({"runtimeClassName": target.runtime_class} if target.runtime_class else {}),
        }


def _hopeless(pod: _Pod) -> Iterator[str]:
    waiting: Sequence[_Waiting | None] = [each.state.waiting for each in pod.status.container_statuses]
    for each in waiting:
        if each and each.reason in _HOPELESS:
            yield f"{each.reason}: {each.message}"
