"""MIG manager has carried out what nodes ask of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from gpuctl.audit.assertion import every
from gpuctl.audit.finding import Code, Finding, Severity
from gpuctl.audit.policy import POLICY, Policy
from gpuctl.checks.mig_consistency import codes
from gpuctl.checks.mig_consistency.words import (
    KEEP_OFF,
    RECOVER,
    RECOVERS,
    kind_of,
    label,
    logs,
    restart,
    retry,
    show,
)
from gpuctl.facts.fact import given
from gpuctl.nvidia.facts import nodes_with_GPUs
from gpuctl.nvidia.node import CONFIG, STATE, Node, age
from gpuctl.nvidia.operands import MANAGER


@every(nodes_with_GPUs, "MIG manager has carried out what nodes ask of it", given(POLICY))
def carried_out(node: Node, policy: Policy) -> Iterator[Finding]:
    budget = timedelta(minutes=policy.checks.mig_consistency.stuck_minutes)
    if node.state == "failed":
        yield _failed(node)
    elif node.state == "pending":
        yield _stuck(node, codes.STUCK_PENDING) if is_over(node, budget) else _under_way(node)
    elif node.state == "rebooting":
        yield _stuck(node, codes.STUCK_REBOOTING) if is_over(node, budget) else _under_way(node)
    elif node.change is not None and not is_over(node, budget):
        yield _under_way(node)


def is_over(node: Node, budget: timedelta) -> bool:
    """Whether a change has taken longer than it may; also where nothing tells how long it takes."""
    change = node.change
    return change is not None and (change.since is None or node.around.now - change.since > budget)


def _failed(node: Node) -> Finding:
    paused = f"; {len(node.paused)} operands are still paused" if node.paused else ""
    return Finding(
        code=codes.FAILED,
        object=node.ref,
        message=(
            f"MIG manager failed to make configuration {node.config or '(none)'} on {node.ref}: the layout "
            f"may be cleared or half made, and nothing tries again by itself{paused}"
        ),
        evidence=(label(node, STATE), label(node, CONFIG)),
        look=logs(node, MANAGER),
        remedy=(
            "read the log for the cause (a name that does not exist, a GPU in use, a mode that needs a "
            f"reboot, a GPU that the configuration does not cover), put it right, then {retry(node)}; "
            f"{KEEP_OFF}"
        ),
        runbook=RECOVERS,
        cause=kind_of(node),
    )


def _stuck(node: Node, code: Code) -> Finding:
    change = node.change
    since = change.since if change else None
    wedged = code is codes.STUCK_PENDING and bool(node.paused)
    return Finding(
        code=code,
        object=node.ref,
        message=_said(node, wedged=wedged),
        evidence=(
            label(node, STATE),
            label(node, CONFIG),
            *(label(node, name) for name in list(node.paused)[:2]),
        ),
        look=logs(node, MANAGER),
        remedy=(
            f"{RECOVER}, or unguarded `{restart(node, MANAGER)}`: at its start it runs the whole check and "
            "sets the labels right; risk: if GPUs are in use it fails, and a change of mode may reset every "
            "GPU of the node"
            if code is codes.STUCK_PENDING
            else "see on the machine's console why it does not come up; once it is Ready: "
            f"{RECOVER}; a guest of a hypervisor may need to be started anew from outside"
        ),
        runbook=RECOVERS,
        cause=f"{kind_of(node)}|{wedged}",
        severity=Severity.WARNING if since is None and not wedged else None,
    )


def _said(node: Node, *, wedged: bool) -> str:
    change = node.change
    how_long = age(change.since if change else None, node.around.now)
    what = f"MIG manager's state on {node.ref} is {node.state}, {how_long}"
    if wedged:
        return (
            f"{what}, and {len(node.paused)} operands are paused: the manager is wedged, and the node offers "
            "no GPU until somebody restarts it"
        )
    return f"{what}: the change to {node.config or '(none)'} does not come to an end"


def _under_way(node: Node) -> Finding:
    change = node.change
    what = change.what if change else ""
    how_long = age(change.since if change else None, node.around.now)
    return Finding(
        code=codes.UNDER_WAY,
        object=node.ref,
        message=(
            f"{node.ref} is being changed: {what}, {how_long}; what does not agree meanwhile is not judged"
        ),
        evidence=(label(node, change.label if change else STATE),),
        look=show(node),
        remedy="wait until it is done",
        cause=what,
    )
