"""What pods ask for is offered, what they see they have asked for, and sharing is legal."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from gpuctl.audit.assertion import every
from gpuctl.audit.finding import Evidence, Finding, Severity
from gpuctl.checks.mig_consistency import codes
from gpuctl.checks.mig_consistency.words import RECONFIGURES, kind_of, label, show
from gpuctl.facts.fact import NOW, Maybe, given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Each, Known, NotKnown, Reason, State, Unknown, value
from gpuctl.nvidia.expected import MIG
from gpuctl.nvidia.facts import (
    DRA_DRIVER,
    NODES,
    PODS,
    devices_by_node,
    namespaces_of_operands,
    nodes_with_GPUs,
)
from gpuctl.nvidia.holding import GPU_RESOURCES
from gpuctl.nvidia.involved import seen_unasked
from gpuctl.nvidia.node import SETTLING, Node
from gpuctl.nvidia.objects import GpuPod, NodeView, quantity

# Counted by a scheduler of their own, and never part of a node's capacity.
_ELSEWHERE: Final = re.compile(
    r".*/(?:gpumem|gpucores|gpumem-percentage|priority|vgpu-.*|gpu-memory|gpu-core.*)"
)
# Labels and annotations of nodes that a pool, a machine set or Karpenter made, and can make more of.
_POOLS: Final = frozenset(
    {
        "karpenter.sh/nodepool",
        "karpenter.sh/provisioner-name",
        "cloud.google.com/gke-nodepool",
        "eks.amazonaws.com/nodegroup",
        "kubernetes.azure.com/agentpool",
        "cluster.x-k8s.io/machine",
        "machine.openshift.io/machine",
    }
)


@given(PODS, NODES)
def resources_that_waiting_pods_ask_for(
    pods: Each[Ref, GpuPod], nodes: Each[Ref, NodeView]
) -> Each[str, Mapping[Ref, GpuPod]]:
    """The GPU resources that pods without a node ask for, with those pods. One with gates waits for those."""
    wanted: dict[str, dict[Ref, GpuPod]] = {}
    for ref, pod in pods.known():
        if pod.spec.node_name or pod.over or pod.spec.scheduling_gates:
            continue
        for name, count in pod.requests.items():
            if count and GPU_RESOURCES.fullmatch(name) and not _ELSEWHERE.fullmatch(name):
                wanted.setdefault(name, {})[ref] = pod
    gaps = (*pods.gaps(), *nodes.gaps())
    return Each({name: Known(waiting) for name, waiting in wanted.items()}, tuple(gaps))


@dataclass(frozen=True)
class Supply:
    """What all nodes together offer, and what they know by name alone. `growing`: more nodes may be made."""

    amounts: Mapping[str, int]
    growing: bool

    def may_come(self, name: str) -> bool:
        """Whether a resource that is not offered may be on its way."""
        return self.growing or name in self.amounts


@given(NODES)
def offered_resources(nodes: Each[Ref, NodeView]) -> Supply:
    """What all nodes together offer."""
    offered: dict[str, int] = {}
    growing = False
    for node in nodes:
        about = node.metadata
        growing = growing or not _POOLS.isdisjoint((*about.labels, *about.annotations))
        for name, amount in node.status.capacity.items():
            if "/" in name:
                offered[name] = offered.get(name, 0) + quantity(amount)
    return Supply(offered, growing)


@every(
    resources_that_waiting_pods_ask_for,
    "every GPU resource that pods wait for is offered by a node",
    given(offered_resources, Maybe(devices_by_node), NOW),
)
def offered(
    waiting: Mapping[Ref, GpuPod], supply: Supply, published: State[Mapping[str, Any]], now: datetime
) -> Iterator[Finding]:
    names = {name for pod in waiting.values() for name in pod.requests if not supply.amounts.get(name)}
    for name in sorted(names):
        if all(name in pod.requests for pod in waiting.values()) and GPU_RESOURCES.fullmatch(name):
            missed = [ref for ref, pod in waiting.items() if not _may_be_served(pod, name, supply, now)]
            if missed:
                _must_not_be_claimed(name, published)
            yield from (_not_offered(ref, name, supply) for ref in missed)


def _may_be_served(pod: GpuPod, name: str, supply: Supply, now: datetime) -> bool:
    """Whether a pod waits for so short a time that what it asks for may just be on its way."""
    made = pod.metadata.creation_timestamp
    return supply.may_come(name) and made is not None and now - made < SETTLING


def _must_not_be_claimed(name: str, published: State[Mapping[str, Any]]) -> None:
    """Raises NotKnown where a device may be claimed for a pod that asks for a resource by name."""
    if value(published):
        why = "whether a DeviceClass serves it (spec.extendedResourceName) was not asked"
        raise NotKnown(Unknown(Reason.NOT_ASKED, f"ResourceSlices of {DRA_DRIVER} are there: {why}", name))


def _not_offered(pod: Ref, name: str, supply: Supply) -> Finding:
    like = sorted(
        each
        for each, count in supply.amounts.items()
        if count and each.partition("/")[0] == name.partition("/")[0]
    )
    until = " now: they wait until one does" if supply.may_come(name) else ": they wait for ever"
    waived = " (where an autoscaler brings such nodes, waive this)" if supply.growing else ""
    return Finding(
        code=codes.NOT_OFFERED,
        object=pod,
        message=f"Pods ask for {name}, which no node offers{until}",
        evidence=(Evidence(pod, ".spec.containers[*].resources", name),),
        look=f"kubectl -n {pod.namespace} describe pod {pod.name}",
        remedy=(
            f"ask for a resource that nodes offer ({', '.join(like[:8]) or 'there is none of this vendor'}), "
            "or slice a node so that it offers this one"
            f"{f' (`gpuctl explain {RECONFIGURES}`)' if name.startswith(MIG) else ''}{waived}"
        ),
        mark=name,
        cause=name,
    )


@given(Maybe(namespaces_of_operands))
def namespaces_that_serve_GPUs(namespaces: State[Collection[str]]) -> frozenset[str]:  # noqa: N802
    """Where pods live whose work it is to see all GPUs."""
    return frozenset(namespaces.value if isinstance(namespaces, Known) else ()) | {"kube-system"}


@every(nodes_with_GPUs, "pods that see GPUs have asked for them", given(namespaces_that_serve_GPUs))
def asked_for(node: Node, serving: frozenset[str]) -> Iterator[Finding]:
    for pod in node.pods:
        seen = seen_unasked(pod)
        if seen and not _asks(pod) and pod.metadata.namespace not in serving and pod.running:
            yield _unrequested(node, pod, seen)


def _asks(pod: GpuPod) -> bool:
    return bool(pod.spec.resource_claims) or any(map(GPU_RESOURCES.fullmatch, pod.requests))


def _unrequested(node: Node, pod: GpuPod, seen: str) -> Finding:
    mounted = "/dev/" in seen
    return Finding(
        code=codes.UNREQUESTED,
        object=pod.ref,
        message=(
            f"{pod.ref} on {node.ref} has {seen} and asks for no GPU: it sees GPUs that the scheduler gives "
            "to others, and keeps MIG from being changed"
        ),
        evidence=(Evidence(pod.ref, ".spec.volumes" if mounted else ".spec.containers[*].env", seen),),
        look=f"kubectl -n {pod.metadata.namespace} get pod {pod.metadata.name} -o yaml",
        remedy=(
            "take the mount away and ask for a GPU; risk: the pod starts anew"
            if mounted
            else "take the variable away and ask for a GPU, or have the container toolkit ignore it "
            "(ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED=false); risk: the pod starts anew"
        ),
        cause=f"{pod.metadata.namespace}|{_owner(pod)}|{seen}",
    )


def _owner(pod: GpuPod) -> str:
    owners = pod.metadata.owner_references
    return f"{owners[0].kind} {owners[0].name}" if owners else pod.metadata.name


@every(nodes_with_GPUs, "MPS is not asked for on MIG devices", given())
def legal_sharing(node: Node) -> Iterator[Finding]:
    sliced = bool(node.labelled_profiles) or (
        node.strategy == "single" and "-MIG-" in node.label("gpu.product")
    )
    if node.sharing.kind != "mps" or not sliced or node.owner:
        return
    names = [name for name in node.labels if name.endswith("sharing-strategy") and node.labels[name] == "mps"]
    on_mig = [name for name in names if ".mig-" in name or "/mig-" in name or node.strategy == "single"]
    if not on_mig and node.label("mps.capable") != "true":
        return
    if node.strategy == "mixed" and not on_mig:
        return
    yield Finding(
        code=codes.MPS_ON_MIG,
        object=node.ref,
        message=(
            f"{node.ref} shares MIG devices by MPS, which is not supported on MIG: feature discovery and "
            "plugin refuse it. Time-slicing on MIG is supported, without isolation between those that share"
        ),
        evidence=tuple(label(node, name) for name in (*on_mig, "nvidia.com/mps.capable")),
        look=show(node),
        remedy=(
            "use time-slicing in the device plugin's configuration, or MPS on GPUs with MIG off; risk: "
            "plugin pods start anew"
        ),
        cause=kind_of(node),
        severity=Severity.ERROR,
    )
