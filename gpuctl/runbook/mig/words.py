"""Sentences about MIG manager that guards and steps share."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from gpuctl.nvidia.node import STATE, Node, age
from gpuctl.nvidia.objects import GpuPod
from gpuctl.nvidia.operands import DEPLOY


def retry(*managers: GpuPod) -> str:
    """How MIG manager is made to start over, by its documented way."""
    if not managers:
        return "delete MIG manager's pod on the node: it starts over when it is back"
    about = managers[0].metadata
    return f"kubectl -n {about.namespace} delete pod {about.name} (it starts over when it is back)"


def log_of(managers: Iterable[GpuPod]) -> str:
    """How a person sees what MIG manager says."""
    for pod in managers:
        return f"kubectl -n {pod.metadata.namespace} logs {pod.metadata.name}"
    return "kubectl get pods -A -l app=nvidia-mig-manager -o wide"


def paused(node: Node) -> str:
    """`device-plugin, gpu-feature-discovery`: the operands that are paused; empty if none is."""
    return ", ".join(name.removeprefix(DEPLOY) for name in node.paused)


def shown_state(node: Node) -> str:
    """`state pending, since 40 s, operands paused: device-plugin`."""
    since = next((each.time for each in node.view.metadata.managed_fields if each.labels.state), None)
    told = f"{STATE.removeprefix('nvidia.com/')}={node.state or 'none'}"
    parts = [told, age(since, node.around.now)] if since else [told]
    return ", ".join([*parts, *([f"operands paused: {paused(node)}"] if node.paused else [])])


def minutes(length: timedelta) -> str:
    """`31 min`."""
    return f"{int(length.total_seconds()) // 60} min"
