"""Whole clusters with GPU nodes, in memory: objects as the API has them, and nvidia-smi by the stand-in."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from gpuctl.audit.judge import Judgement, judge
from gpuctl.checks.mig_consistency import CHECK
from gpuctl.facts.gather import gather
from gpuctl.facts.nodes import Output
from gpuctl.facts.state import Inapplicable, Unknown
from tests.cluster.bed.simulated import GpuNode, gpu_node
from tests.cluster.standins import nvidia_smi
from tests.memory import MemoryReader

OPERATOR = "gpu-operator"
READY = [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-01T00:00:00Z"}]
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "nvidia-smi-L": ("-L",),
    "nvidia-smi-query-gpu": (
        "--query-gpu=index,uuid,name,mig.mode.current,mig.mode.pending,memory.used,memory.total,pci.bus_id",
        "--format=csv,noheader,nounits",
    ),
    "nvidia-smi-mig-lgi": ("mig", "-lgi"),
    "nvidia-smi-mig-lci": ("mig", "-lci"),
    "nvidia-smi-mig-lgip": ("mig", "-lgip"),
    "nvidia-smi-mig-lgipp": ("mig", "-lgipp"),
    "nvidia-smi-q-x": ("-q", "-x"),
}
OPERANDS = {
    "device-plugin": "nvidia-device-plugin-daemonset",
    "gpu-feature-discovery": "gpu-feature-discovery",
    "mig-manager": "nvidia-mig-manager",
    "driver": "nvidia-driver-daemonset",
    "dcgm-exporter": "nvidia-dcgm-exporter",
}
CONFIG = """
version: v1
mig-configs:
  all-disabled:
  - {devices: all, mig-enabled: false}
  all-enabled:
  - {devices: all, mig-enabled: true, mig-devices: {}}
  all-1g.10gb:
  - {devices: all, mig-enabled: true, mig-devices: {"1g.10gb": 7}}
  all-1g.5gb:
  - {devices: all, mig-enabled: true, mig-devices: {"1g.5gb": 7}}
  all-3g.40gb:
  - {devices: all, mig-enabled: true, mig-devices: {"3g.40gb": 2}}
  first-only:
  - {devices: [0], mig-enabled: true, mig-devices: {"1g.10gb": 7}}
  with-media:
  - {devices: all, mig-enabled: true, mig-devices: {"1g.10gb": 6, "1g.10gb+me": 1}}
  all-balanced:
  - {device-filter: ["0x233010DE"], devices: all, mig-enabled: true,
     mig-devices: {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}}
  half:
  - {devices: [0, 1], mig-enabled: true, mig-devices: {"3g.40gb": 2}}
  - {devices: [2, 3], mig-enabled: false}
  two-of-eight:
  - {devices: [0, 1], mig-enabled: true, mig-devices: {"1g.10gb": 7}}
  - {devices: [2, 3, 4, 5, 6, 7], mig-enabled: false}
  a30:
  - {devices: all, mig-enabled: true, mig-devices: {"1g.6gb": 2, "2g.12gb": 1}}
  custom:
  - {devices: all, mig-enabled: true, mig-devices: {"3g.40gb": 1}}
"""
SEVEN = ("1g.10gb",) * 7


def operand_set(name: str) -> dict[str, Any]:
    """The DaemonSet of an operand."""
    selector = {f"nvidia.com/gpu.deploy.{name}": "true"}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": OPERANDS[name], "namespace": OPERATOR},
        "spec": {
            "template": {
                "metadata": {"labels": {"app": OPERANDS[name]}},
                "spec": {"nodeSelector": selector, "containers": []},
            }
        },
    }


def operand_pod(name: str, node: str, **status: Any) -> dict[str, Any]:
    """The pod of an operand on a node."""
    container = f"nvidia-{name}"
    return pod(
        f"{OPERANDS[name]}-{node}",
        node,
        namespace=OPERATOR,
        labels={"app": OPERANDS[name]},
        containers=[{"name": container, "image": "nvcr.io/nvidia/x:1"}],
        status={"phase": "Running", "containerStatuses": [{"name": container, "ready": True}], **status},
    )


def pod(
    name: str,
    node: str,
    *,
    asks: Mapping[str, int] | None = None,
    namespace: str = "team-a",
    labels: Mapping[str, str] | None = None,
    containers: Sequence[Mapping[str, Any]] | None = None,
    status: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """A pod; on no node if `node` is empty."""
    own = {
        "name": "main",
        "image": "app:1",
        "resources": {"limits": {key: str(count) for key, count in (asks or {}).items()}},
        "env": [{"name": key, "value": text} for key, text in (env or {}).items()],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "labels": dict(labels or {}),
        },
        "spec": {"nodeName": node, "containers": list(containers or [own])},
        "status": dict(status or {"phase": "Running" if node else "Pending"}),
    }


def config_map(text: str = CONFIG, name: str = "default-mig-parted-config") -> dict[str, Any]:
    """MIG manager's configurations."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": OPERATOR},
        "data": {"config.yaml": text},
    }


def policy(**spec: Any) -> dict[str, Any]:
    """The ClusterPolicy of NVIDIA's operator."""
    return {
        "apiVersion": "nvidia.com/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "cluster-policy"},
        "spec": spec,
    }


@dataclass(frozen=True)
class GpuCluster:
    """A cluster of such nodes. `extra` objects are added, `told` overrides answers by node and command."""

    nodes: tuple[GpuNode, ...]
    extra: tuple[Mapping[str, Any], ...] = ()
    told: Mapping[tuple[str, str], Output | str | Unknown] = field(default_factory=dict)
    without: frozenset[str] = frozenset()  # operands that have no pods
    conditions: Sequence[Mapping[str, Any]] = tuple(READY)
    written: Sequence[Mapping[str, Any]] = ()  # managedFields
    probed: bool = True
    missing: Mapping[str, Unknown | Inapplicable] = field(default_factory=dict)
    config: str = CONFIG
    allocatable: Mapping[str, int] = field(default_factory=dict)
    later: GpuCluster | None = None

    @property
    def items(self) -> list[Mapping[str, Any]]:
        """All objects."""
        sets = [operand_set(name) for name in OPERANDS]
        pods = [
            operand_pod(name, node.name)
            for node in self.nodes
            for name in OPERANDS
            if name not in self.without and node.labels.get(f"nvidia.com/gpu.deploy.{name}") == "true"
        ]
        return [*map(self._node, self.nodes), *sets, *pods, config_map(self.config), *self.extra]

    def _node(self, node: GpuNode) -> Mapping[str, Any]:
        manifest: dict[str, Any] = json.loads(json.dumps(node.manifest))
        manifest["status"]["conditions"] = list(self.conditions)
        manifest["status"]["allocatable"] |= {name: str(count) for name, count in self.allocatable.items()}
        manifest["metadata"]["managedFields"] = list(self.written)
        return manifest

    @property
    def answers(self) -> Mapping[tuple[str, str], Output | str | Unknown]:
        """What nvidia-smi says on each node."""
        return {**{key: each for node in self.nodes for key, each in answers(node).items()}, **self.told}

    @property
    def reader(self) -> MemoryReader:
        """A reader of the cluster."""
        unserved = {"clusterpolicies.nvidia.com": Inapplicable("not served")}
        with_policy = any(each["kind"] == "ClusterPolicy" for each in self.items)
        return MemoryReader(
            self.items,
            missing={**({} if with_policy else unserved), **self.missing},
            told=self.answers if self.probed else None,
            later_told=self.later.answers if self.later else None,
            later_items=self.later.items if self.later else None,
        )

    def with_(self, **changes: Any) -> GpuCluster:
        """The same, slightly changed."""
        return replace(self, **changes)


def answers(node: GpuNode) -> dict[tuple[str, str], Output]:
    """What nvidia-smi says on a node."""
    state = json.loads(json.dumps(asdict(node.state)))
    return {
        (node.name, command): Output(*nvidia_smi.run(state, list(arguments)))
        for command, arguments in COMMANDS.items()
    }


def cluster(*nodes: GpuNode, **changes: Any) -> GpuCluster:
    """A cluster of these nodes."""
    return GpuCluster(tuple(nodes), **changes)


def sliced(name: str = "gpu-1", **changes: Any) -> GpuNode:
    """A node with one H100 in seven slices, strategy mixed."""
    return gpu_node(name, profiles=[SEVEN], **{"config": "all-1g.10gb", **changes})


def judgements(of: GpuCluster) -> dict[str, Judgement]:
    """What each assertion of the check comes to."""
    facts = gather(CHECK.needs, of.reader, {})
    return {assertion.id: judge(assertion, facts) for assertion in CHECK.assertions}


def found(of: GpuCluster) -> dict[str, list[str]]:
    """The messages of what is found, by code; nothing that only rides along."""
    return messages(judgements(of).values(), info=False)


def messages(results: Iterable[Judgement], *, info: bool) -> dict[str, list[str]]:
    """Messages by code."""
    by_code: dict[str, list[str]] = {}
    for result in results:
        for finding in result.findings:
            if info or finding.weight != "info":
                by_code.setdefault(finding.code.id, []).append(finding.message)
    return by_code
