"""PodDisruptionBudgets: which one stands in the way of an eviction, with its numbers and its owner."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import msgspec

from gpuctl.facts.kinds import Kind, View
from gpuctl.facts.objects import LabelSelector
from gpuctl.facts.selectors import selects
from gpuctl.runbook.drain.pods import DrainPod


class _Part(msgspec.Struct, frozen=True, rename="camel", gc=False):
    pass


class BudgetSpec(_Part, frozen=True):
    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str = "IfHealthyBudget"


class BudgetStatus(_Part, frozen=True):
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0


class Budget(View, frozen=True):
    """A PodDisruptionBudget."""

    of: ClassVar[Kind] = Kind(
        "policy", ("v1",), "PodDisruptionBudget", "poddisruptionbudgets", namespaced=True
    )
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()

    def __str__(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def numbers(self) -> str:
        """`allows 0, 1 of 1 healthy, 1 needed`."""
        told = self.status
        return (
            f"allows {told.disruptions_allowed}, {told.current_healthy} of {told.expected_pods} healthy, "
            f"{told.desired_healthy} needed"
        )

    @property
    def owner(self) -> str:
        """Who made it, as far as it tells: `; made by Helm release llm`."""
        about = self.metadata
        release = about.annotations.get("meta.helm.sh/release-name")
        made = [f"{each.kind} {each.name}" for each in about.owner_references]
        made += [f"Helm release {release}"] if release else []
        made += list(filter(None, [about.labels.get("app.kubernetes.io/managed-by")]))
        return f"; made by {made[0]}" if made else ""

    def covers(self, pod: DrainPod) -> bool:
        """Whether it is about this pod. Without a selector it is about none."""
        return (
            self.spec.selector is not None
            and self.metadata.namespace == pod.metadata.namespace
            and selects(self.spec.selector, pod.metadata.labels)
        )

    def forbids(self, pod: DrainPod) -> bool:
        """Whether the API server would refuse to evict this pod, by its own rules."""
        if pod.status.phase != "Running" or pod.ending or self.status.disruptions_allowed > 0:
            return False
        if pod.ready:
            return True
        # With a pod that is not ready nothing is lost, where the others are enough or that was asked for.
        always = self.spec.unhealthy_pod_eviction_policy == "AlwaysAllow"
        healthy = 0 < self.status.desired_healthy <= self.status.current_healthy
        return not (always or healthy)


def covering(pod: DrainPod, budgets: Iterable[Budget]) -> tuple[Budget, ...]:
    """The budgets that are about a pod. More than one, and the API server evicts it never."""
    return tuple(each for each in budgets if each.covers(pod))
