"""What the other runbooks change, as a case finds and leaves it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from gpuctl.runbook.flavors.hold_steps import HELD_BY
from gpuctl.runbook.records import Run
from gpuctl.runbook.rollouts import RESTARTED_AT, RESTARTED_BY
from gpuctl.runbook.vllm.engine_workloads import SWITCHED_BY
from gpuctl.runbook.vllm.switch_steps import RECREATED_BY
from tests.cluster.bed import Bed
from tests.cluster.bed.api import Api
from tests.cluster.test_queue_growth import Queues
from tests.cluster.test_vllm_switch_mode import engine

LIMIT, HOLD, SWITCH, RESTART = "queue-limit", "flavor-hold", "vllm-switch-mode", "kueue-restart"
HELD_SECONDS: Final = 1


class Place(ABC):
    """What one runbook changes. `turned`: an undo begins after this write, for it has all to take back;
    `changes`: how many writes to the target a run takes; `mark`: the annotation of what is held for the time
    of a run; `slack`: seconds in which it may come to work once it is changed; `lasts`: whether a plan serves
    all cases that begin alike."""

    book: ClassVar[str]
    turned: ClassVar[str]
    changes: ClassVar[int]
    mark: ClassVar[str] = ""
    slack: ClassVar[float] = 0.0
    lasts: ClassVar[bool] = False
    resource: ClassVar[str]

    def __init__(self, bed: Bed, api: Api, number: int) -> None:
        self.bed, self.api = bed, api
        self.space = f"books-{self.book}-{number}"

    @property
    @abstractmethod
    def target(self) -> str:
        """As the command line has it."""

    @property
    @abstractmethod
    def path(self) -> str:
        """Of the object."""

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @abstractmethod
    def make(self) -> None:
        """All that is needed of it."""

    @abstractmethod
    def remove(self) -> None:
        """Nothing of it is left."""

    @abstractmethod
    def calm(self) -> bool:
        """Whether nothing moves, and it works."""

    @abstractmethod
    def flags(self, spec: Mapping[str, Any]) -> Sequence[str]:
        """Of a plan that changes this."""

    @abstractmethod
    def changed(self, spec: dict[str, Any], run: Run) -> dict[str, Any]:
        """What it must be after a run that went through. `spec`: what it was before, to be changed."""

    def taken_back(self, spec: dict[str, Any], run: Run) -> dict[str, Any]:
        """What it must be after a run that was taken back."""
        return spec

    def object(self) -> dict[str, Any]:
        return self.api.get(self.path)

    def mend(self) -> None:
        """After a case that went wrong."""
        self.remove()
        self.make()


class Queue(Place):
    """A ClusterQueue of its own, in a cohort. Kueue says a moment later that it admits again."""

    resource, slack = "clusterqueues", 60.0

    @property
    def queues(self) -> Queues:
        return Queues(self.bed, self.space)

    @property
    def target(self) -> str:
        return self.queues.name("borrower")

    @property
    def path(self) -> str:
        return f"/apis/kueue.x-k8s.io/v1beta2/clusterqueues/{self.target}"

    def make(self) -> None:
        quota = {"nominalQuota": 2, "borrowingLimit": 4}
        flavor, borrower = (self.queues.flavor(), self.queues.queue("borrower", quota, cohort="pool"))
        self.queues.apply(flavor, borrower)

    def remove(self) -> None:
        self.bed.kubectl("delete", "clusterqueues.kueue.x-k8s.io", self.target, "--ignore-not-found")
        flavor = self.queues.name("plain")
        self.bed.kubectl("delete", "resourceflavors.kueue.x-k8s.io", flavor, "--ignore-not-found")

    def calm(self) -> bool:
        conditions = self.object().get("status", {}).get("conditions", ())
        return any(each["type"] == "Active" and each["status"] == "True" for each in conditions)


class Limited(Queue):
    """What it may borrow goes from 4 to 1, and from 1 to 4."""

    book, turned, changes, lasts = LIMIT, "set the limit", 1, True

    @staticmethod
    def _quota(spec: Mapping[str, Any]) -> dict[str, Any]:
        quota: dict[str, Any] = spec["resourceGroups"][0]["flavors"][0]["resources"][0]
        return quota

    def _other(self, spec: Mapping[str, Any]) -> str:
        return "1" if self._quota(spec)["borrowingLimit"] == "4" else "4"

    def flags(self, spec: Mapping[str, Any]) -> Sequence[str]:
        flavor = self.queues.name("plain")
        return ("--flavor", flavor, "--resource", "cpu", "--borrowing-limit", self._other(spec))

    def changed(self, spec: dict[str, Any], run: Run) -> dict[str, Any]:
        self._quota(spec)["borrowingLimit"] = self._other(spec)
        return spec


class Held(Queue):
    """It is as before after the run, too."""

    book, turned, changes, mark = HOLD, "hold the queue", 2, HELD_BY

    def flags(self, spec: Mapping[str, Any]) -> Sequence[str]:
        return ("--seconds", str(HELD_SECONDS))

    def changed(self, spec: dict[str, Any], run: Run) -> dict[str, Any]:
        assert run.result["heldForSeconds"] >= HELD_SECONDS
        return spec


class Engine(Place):
    """An engine on a GPU of its own, on the real kubelet: eager, and with graphs again. The Deployment
    controller hears of a run's last write in its own time."""

    book, turned, changes, mark, slack = SWITCH, "set the template", 3, RECREATED_BY, 30.0
    resource = "deployments"

    @property
    def target(self) -> str:
        return f"{self.space}/chat"

    @property
    def path(self) -> str:
        return f"/apis/apps/v1/namespaces/{self.space}/deployments/chat"

    def make(self) -> None:
        if f"namespace/{self.space}" not in self.bed.kubectl("get", "namespaces", "-o", "name").split():
            self.bed.kubectl("create", "namespace", self.space)
            account = ("wait", "--for=create", "serviceaccount/default", "--timeout=30s")
            self.bed.kubectl("-n", self.space, *account)
        engine(self.bed, self.space)

    def remove(self) -> None:
        self.bed.kubectl("-n", self.space, "delete", "deployment", "chat", "--ignore-not-found")
        self.bed.kubectl("-n", self.space, "delete", "pods", "--all", "--now")

    def calm(self) -> bool:
        """Its one pod is started with the words of the template."""
        found = self.object()
        status, pods = found.get("status", {}), self.api.items(f"/api/v1/namespaces/{self.space}/pods")
        counts = {status.get(name) for name in ("replicas", "updatedReplicas", "availableReplicas")}
        wanted = _container(found["spec"]["template"]["spec"])["args"]
        return (
            status.get("observedGeneration") == found["metadata"]["generation"]
            and counts == {1}
            and [_container(pod["spec"])["args"] for pod in pods] == [wanted]
            and "deletionTimestamp" not in pods[0]["metadata"]
        )

    def flags(self, spec: Mapping[str, Any]) -> Sequence[str]:
        eager = "--enforce-eager" in _container(spec["template"]["spec"])["args"]
        return ("--to", "graphs" if eager else "eager", "--recreate")

    def changed(self, spec: dict[str, Any], run: Run) -> dict[str, Any]:
        container = _container(spec["template"]["spec"])
        eager = "--enforce-eager" in container["args"]
        container["args"] = ["acme/chat-7b", *([] if eager else ["--enforce-eager"])]
        spec["template"]["metadata"].setdefault("annotations", {})[SWITCHED_BY] = run.id
        return spec


def _container(pod: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = pod["containers"][0]
    return found


class Manager(Place):
    """Kueue's, of which there is one. Beyond what a run waits for, its API service must answer: that the API
    server looks at in its own time."""

    book, turned, changes, slack = RESTART, "restart", 1, 60.0
    resource = "deployments"

    @property
    def target(self) -> str:
        return f"{self.bed.kueue.namespace}/{self.bed.kueue.deployment}"

    @property
    def path(self) -> str:
        return f"/apis/apps/v1/namespaces/{self.bed.kueue.namespace}/deployments/{self.bed.kueue.deployment}"

    def make(self) -> None:
        self.bed.kueue.wait_healthy()

    def remove(self) -> None:
        self.bed.kueue.wait_healthy()

    def mend(self) -> None:
        self.bed.kueue.restore()

    def calm(self) -> bool:
        return self.bed.kueue.healthy()

    def flags(self, spec: Mapping[str, Any]) -> Sequence[str]:
        return ()

    def changed(self, spec: dict[str, Any], run: Run) -> dict[str, Any]:
        marks = self.object()["spec"]["template"]["metadata"]["annotations"]
        there = spec["template"]["metadata"].setdefault("annotations", {})
        there |= {RESTARTED_BY: run.id, RESTARTED_AT: marks.get(RESTARTED_AT, "")}
        return spec

    def taken_back(self, spec: dict[str, Any], run: Run) -> dict[str, Any]:
        """A restart stays one."""
        marks = self.object()["spec"]["template"]["metadata"].get("annotations", {})
        return self.changed(spec, run) if marks.get(RESTARTED_BY) == run.id else spec


PLACES: Final = (Limited, Held, Engine, Manager)
