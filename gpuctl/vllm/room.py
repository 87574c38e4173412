"""Whether a new pod of an engine finds a GPU while the old one still holds its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

from gpuctl.facts.selectors import has_all
from gpuctl.vllm.engines import gpus
from gpuctl.vllm.objects import EngineDeployment, EngineNode, EnginePod, EngineSpec


def asked(spec: EngineSpec) -> dict[str, int]:
    """The GPU resources that a pod asks for, in all its containers."""
    found: dict[str, int] = {}
    for container in spec.containers:
        for name, number in gpus(container).items():
            found[name] = found.get(name, 0) + number
    return found


def holds(pod: EnginePod) -> bool:
    """Whether a pod has what it asked for."""
    return pod.status.phase not in ("Succeeded", "Failed")


def free(node: EngineNode, pods: Iterable[EnginePod], resource: str) -> int:
    """How much of a resource no pod on the node has."""
    allocatable = node.status.allocatable.get(resource, "0")
    used = sum(
        asked(pod.spec).get(resource, 0)
        for pod in pods
        if holds(pod) and pod.spec.node_name == node.metadata.name
    )
    return (int(allocatable) if allocatable.isdecimal() else 0) - used


def usable(spec: EngineSpec, nodes: Iterable[EngineNode]) -> Iterator[EngineNode]:
    """The nodes that a new pod with this spec may run on, by their labels and taints."""
    for node in nodes:
        fits = node.in_service and has_all(node.metadata.labels, spec.node_selector)
        if fits and not any(taint.keeps_out(spec.tolerations) for taint in node.spec.taints):
            yield node


def stops_first(deployment: EngineDeployment) -> int:
    """How many old pods may end before a new one is ready. Where none may, and no new one may come on top of
    them, Kubernetes lets one end."""
    strategy, replicas = deployment.spec.strategy, deployment.spec.replicas
    if strategy.type == "Recreate":
        return replicas
    update = strategy.rolling_update
    unavailable = _part(update.max_unavailable, replicas, math.floor)
    if not unavailable and not _part(update.max_surge, replicas, math.ceil):
        unavailable = 1
    return min(unavailable, replicas)


def _part(written: int | str | None, of: int, rounded: Callable[[float], int]) -> int:
    """A number, or a share in percent; a quarter where nothing is written."""
    if isinstance(written, int):
        return written
    share = (written or "25%").rstrip("%")
    return rounded(of * int(share) / 100) if share.isdecimal() else 0
