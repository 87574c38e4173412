"""No operand is left paused when nothing is being changed any more."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from gpuctl.audit.assertion import every
from gpuctl.audit.finding import Finding, Severity
from gpuctl.audit.policy import POLICY, Policy
from gpuctl.checks.mig_consistency import codes
from gpuctl.checks.mig_consistency.state import is_over
from gpuctl.checks.mig_consistency.words import RECOVERS, label, retry, show
from gpuctl.facts.fact import given
from gpuctl.nvidia.facts import nodes_with_GPUs
from gpuctl.nvidia.node import STATE, UPGRADE, Node, age


@every(nodes_with_GPUs, "no operand is left paused", given(POLICY))
def nothing_left_paused(node: Node, policy: Policy) -> Iterator[Finding]:
    budget = timedelta(minutes=policy.checks.mig_consistency.stuck_minutes)
    change = node.change
    if not node.paused or node.state in ("pending", "rebooting") or change is None:
        return
    ended = node.state == "failed" or not node.upgrading
    if is_over(node, budget) or (node.state == "failed" and ended):
        yield _left(node)


def _left(node: Node) -> Finding:
    change = node.change
    since = change.since if change else None
    first = next(iter(node.paused.values()))
    upgrade = first.endswith("driver-upgrade")
    names = ", ".join(name.rpartition(".")[2] for name in node.paused)
    undo = " ".join(f"{name}=true" for name in node.paused)
    return Finding(
        code=codes.PAUSED,
        object=node.ref,
        message=(
            f"{names} are {first} on {node.ref}, {age(since, node.around.now)}, while no change is under "
            "way: the node offers no GPU to new pods, and nobody watches those it has"
        ),
        evidence=(
            *(label(node, name) for name in node.paused),
            label(node, UPGRADE if upgrade else STATE),
        ),
        look=show(node),
        remedy=(
            f"once the driver is loaded again, `kubectl label node NODE --overwrite {undo}`; risk: none if "
            "the upgrade is over"
            if upgrade
            else retry(node)
        ),
        runbook=None if upgrade else RECOVERS,
        cause=f"{first}|{names}",
        severity=Severity.WARNING if since is None and node.state != "failed" else None,
    )
