"""Pods as a drain sees them: who makes them anew, what is lost with them, whether they may go, whether they
would come back."""

from __future__ import annotations

from typing import Final

import msgspec

from gpuctl.facts.kinds import OwnerReference
from gpuctl.facts.objects import Condition, Taint, Toleration
from gpuctl.nvidia.holding import HoldingPod, HoldingSpec, HoldingStatus
from gpuctl.nvidia.operands import DEPLOY, operand_of

CORDON: Final = Taint("node.kubernetes.io/unschedulable", "NoSchedule")
GRACE: Final = 30  # seconds, where a pod names none
_MIRROR: Final = "kubernetes.io/config.mirror"
_TEAM: Final = ("team", "owner", "app.kubernetes.io/part-of")


class DrainedSpec(HoldingSpec, frozen=True):
    priority: int = 0
    tolerations: tuple[Toleration, ...] = ()
    termination_grace_period_seconds: int | None = None
    node_selector: dict[str, str] = {}


class DrainedStatus(HoldingStatus, frozen=True):
    conditions: tuple[Condition, ...] = ()


class DrainPod(HoldingPod, frozen=True):
    """A pod on a node that is drained."""

    spec: DrainedSpec = DrainedSpec()
    status: DrainedStatus = msgspec.field(default_factory=DrainedStatus)

    @property
    def controller(self) -> OwnerReference | None:
        """Who makes it anew, if anybody does."""
        return next((each for each in self.metadata.owner_references if each.controller), None)

    @property
    def of_a_daemon_set(self) -> bool:
        """Whether it is its node's own copy of something."""
        return self.controller is not None and self.controller.kind == "DaemonSet"

    @property
    def serves_gpus(self) -> bool:
        """Whether it is a part of NVIDIA's software, which sees GPUs and leaves by itself before a change."""
        selects = any(name.startswith(DEPLOY) for name in self.spec.node_selector)
        return self.of_a_daemon_set and (selects or operand_of(self.metadata.labels) is not None)

    @property
    def is_static(self) -> bool:
        """Whether the kubelet runs it from a file: the API only mirrors it."""
        return _MIRROR in self.metadata.annotations

    @property
    def ours(self) -> bool:
        """Whether gpuctl made it, to look into the node."""
        return self.metadata.labels.get("app.kubernetes.io/managed-by") == "gpuctl"

    @property
    def ending(self) -> bool:
        """Whether it is on its way out."""
        return self.metadata.deletion_timestamp is not None

    @property
    def ready(self) -> bool:
        """Whether it serves."""
        return not self.ending and any(
            each.type == "Ready" and each.status == "True" for each in self.status.conditions
        )

    @property
    def scratch(self) -> tuple[str, ...]:
        """Its emptyDir volumes: what is in them is lost with it."""
        return tuple(each.name for each in self.spec.volumes if each.empty_dir is not None)

    @property
    def grace(self) -> int:
        """The seconds it may take to end."""
        asked = self.spec.termination_grace_period_seconds
        return GRACE if asked is None else asked

    @property
    def ignores_a_cordon(self) -> bool:
        """Whether the scheduler would put its like on a cordoned node."""
        return any(each.tolerates(CORDON) for each in self.spec.tolerations)

    @property
    def team(self) -> str:
        """Whom it belongs to: what its labels say, else its namespace."""
        named = (self.metadata.labels.get(key, "") for key in _TEAM)
        return next(filter(None, named), self.metadata.namespace)

    def __str__(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"
