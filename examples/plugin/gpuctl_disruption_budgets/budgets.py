"""Every PodDisruptionBudget permits evictions: else no node that runs its pods can be drained."""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.audit.assertion import every
from gpuctl.audit.finding import Code, Evidence, Finding
from gpuctl.facts.fact import Objects, given
from gpuctl_disruption_budgets import codes
from gpuctl_disruption_budgets.views import Budget


@every(Objects(Budget), "every PodDisruptionBudget permits evictions", given())
def budgets_permit_evictions(budget: Budget) -> Iterator[Finding]:
    status = budget.status
    if not status.expected_pods or status.disruptions_allowed:
        return
    if budget.spec.max_unavailable in (0, "0%") or status.desired_healthy >= status.expected_pods:
        yield _finding(budget, codes.NEVER, f"permits no eviction of its {_pods(status.expected_pods)}, ever")
    elif status.current_healthy <= status.desired_healthy:
        healthy = f"{status.current_healthy} of {status.expected_pods} pods are healthy"
        yield _finding(
            budget,
            codes.NOT_NOW,
            f"permits no eviction now: {healthy}, {status.desired_healthy} must be",
        )


def _finding(budget: Budget, code: Code, what: str) -> Finding:
    return Finding(
        code=code,
        object=budget.ref,
        message=f"{budget.ref} {what}; draining a node that runs one of them does not end",
        evidence=(
            Evidence(budget.ref, ".status.disruptionsAllowed", str(budget.status.disruptions_allowed)),
            Evidence(budget.ref, ".status.desiredHealthy", str(budget.status.desired_healthy)),
        ),
        look=f"kubectl get {budget.ref.kubectl} -o yaml",
        remedy=_REMEDIES[code],
        cause=code.title,
    )


_REMEDIES = {
    codes.NEVER: "let it spare one pod, or run one replica more; risk: fewer replicas serve during a drain",
    codes.NOT_NOW: "heal the pods that are not ready, then drain; risk: none",
}


def _pods(number: int) -> str:
    return "pod" if number == 1 else f"{number} pods"
