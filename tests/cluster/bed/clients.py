"""The processes that pods have on the GPUs of a simulated node, as its nvidia-smi shows them.

A pod holds its devices from Running on until it is gone. As on real nodes its process ends first, and only
then does the kubelet delete the pod: so whoever sees no pod any more sees no process of it either.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from tests.cluster.standins import mig_parted
from tests.cluster.standins.mig_parted import Holder
from tests.cluster.standins.state import Gpu, GpuInstance, NodeState, Process

from . import stages
from .api import ApiError, Object

if TYPE_CHECKING:
    from .migworld import WorldNode

FIRST_PID = 100_000  # processes of pods; those below are nobody's
MEMORY = 512  # MiB of each
IDLE = 15


class Clients:
    """Which pod of a node holds which of its devices."""

    def __init__(self, node: WorldNode) -> None:
        self._node = node
        self._held: dict[str, frozenset[Holder]] = {}
        self._pids: dict[str, int] = {}

    def seen(self, pod: Object, *, gone: bool) -> None:
        """A pod of the node has changed."""
        if self._node.down:
            return
        runs = not gone and _has_process(pod)
        if runs != (pod["metadata"]["uid"] in self._held):
            self._node.alter(lambda state: self._changed(state, pod, runs=runs))
        sigterm = _sigterm(pod)
        if gone:
            return
        if sigterm == stages.HEEDED and "deletionTimestamp" in pod["metadata"]:
            self._delete(pod)
        elif runs and not sigterm:
            self.mark(pod, stages.HEEDED)

    def caught_up(self, pods: list[Object]) -> None:
        """The kubelet is back, and sees these pods."""
        there = {pod["metadata"]["uid"] for pod in pods}
        for uid in self._held.keys() - there:
            self.seen({"metadata": {"uid": uid}}, gone=True)
        for pod in pods:
            self.seen(pod, gone=False)

    def kill(self, pods: Iterable[Object]) -> None:
        """End the processes of pods whose grace ends within half a second, before kwok deletes them."""
        soon = datetime.now(UTC) + timedelta(seconds=0.5)
        for pod in pods:
            ends = pod["metadata"].get("deletionTimestamp")
            known = pod["metadata"]["uid"] in self._held
            if known and ends and _sigterm(pod) == stages.IGNORED and datetime.fromisoformat(ends) <= soon:
                self._node.alter(partial(self._changed, pod=pod, runs=False))

    def mark(self, pod: Object, sigterm: str | None) -> None:
        """Say who deletes the pod in the end; None: kwok does."""
        about: Object = {"uid": pod["metadata"]["uid"], "annotations": {stages.SIGTERM: sigterm}}
        if sigterm is not None:  # as it was seen: a pod that has changed since is seen again
            about["resourceVersion"] = pod["metadata"]["resourceVersion"]
        with suppress(ApiError):
            self._node.world.api.patch(_path(pod), {"metadata": about}, fieldManager="gpuctl-bed")

    def _delete(self, pod: Object) -> None:
        with suppress(ApiError):
            self._node.world.api.remove(_path(pod), pod["metadata"]["uid"])

    def forget(self) -> None:
        """No process has outlived the reboot."""
        self._held.clear()

    def holders(self, state: NodeState, pods: Iterable[Object]) -> frozenset[Holder]:
        """What these pods, and processes without a pod, hold now."""
        held = {(each.gpu, each.gi) for each in state.processes if each.pid < FIRST_PID}
        for pod in pods:
            if pod.get("status", {}).get("phase") == "Running" and (asked := requests(pod)):
                known = self._held.get(pod["metadata"]["uid"])
                held |= mig_parted.granted(state, asked, held) if known is None else known
        return frozenset(held)

    def _changed(self, state: NodeState, pod: Object, *, runs: bool) -> NodeState:
        uid = pod["metadata"]["uid"]
        if runs:
            taken = {holder for held in self._held.values() for holder in held}
            self._held[uid] = mig_parted.granted(state, requests(pod), taken)
            self._pids[uid] = FIRST_PID + 100 * len(self._pids)
        else:
            self._held.pop(uid, None)
        others = tuple(each for each in state.processes if each.pid < FIRST_PID)
        return with_processes(state, (*others, *self._processes()))

    def _processes(self) -> Iterable[Process]:
        for uid, held in self._held.items():
            for number, (gpu, gi) in enumerate(sorted(held, key=str)):
                yield Process(
                    gpu=gpu,
                    pid=self._pids[uid] + number,
                    name="python3",
                    memory=MEMORY,
                    gi=gi,
                    ci=None if gi is None else 0,
                )


def requests(pod: Object) -> dict[str, int]:
    """The GPU resources that a pod asks for."""
    asked: dict[str, int] = {}
    for container in (*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]):
        for name, count in container.get("resources", {}).get("limits", {}).items():
            if name.startswith("nvidia.com/"):
                asked[name] = asked.get(name, 0) + int(count)
    return asked


def with_processes(state: NodeState, processes: tuple[Process, ...]) -> NodeState:
    """The node with exactly these processes, and with the memory that they use."""
    gpus = tuple(_using(gpu, [each for each in processes if each.gpu == gpu.index]) for gpu in state.gpus)
    return replace(state, processes=processes, gpus=gpus)


def _using(gpu: Gpu, processes: list[Process]) -> Gpu:
    if gpu.mig_current != mig_parted.ON:
        return replace(gpu, memory_used=sum(each.memory for each in processes))
    instances = tuple(_instance(each, processes) for each in gpu.instances)
    return replace(gpu, instances=instances, memory_used=sum(each.memory_used for each in instances))


def _instance(instance: GpuInstance, processes: list[Process]) -> GpuInstance:
    used = sum(each.memory for each in processes if each.gi == instance.id)
    return replace(instance, memory_used=IDLE + used)


def _has_process(pod: Object) -> bool:
    meta = pod["metadata"]
    if pod.get("status", {}).get("phase") != "Running" or not requests(pod):
        return False
    return "deletionTimestamp" not in meta or _sigterm(pod) in (stages.IGNORED, stages.HANGS)


def _sigterm(pod: Object) -> str:
    return str(pod["metadata"].get("annotations", {}).get(stages.SIGTERM, ""))


def _path(pod: Object) -> str:
    meta = pod["metadata"]
    return f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
