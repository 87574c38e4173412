"""A large cluster as a snapshot: nodes with eight GPUs each, what -L and -lgi say of them, and their pods."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.builders.gpus import READY, answers, config_map, operand_pod, pod
from tests.cluster.bed.simulated import GpuNode, gpu_node

COMMANDS = ("nvidia-smi-L", "nvidia-smi-mig-lgi")
CAPTURE = """\
apiVersion: gpuctl.dev/v1
kind: Snapshot
capturedAt: 2026-11-30T10:00:00Z
complete: ["*"]
"""
BALANCED = ("3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb")
FULL = ("1g.10gb",) * 7


def write(path: Path, nodes: int, pods: int = 0) -> None:
    """One snapshot. Every second node has seven slices on each GPU, the others are sliced unevenly; one of
    all has lost a slice that its labels and capacity still have.
    """
    kinds = [
        gpu_node("node-x", profiles=[FULL] * 8, config="all-1g.10gb"),
        gpu_node("node-x", profiles=[BALANCED] * 8),
    ]
    told = [{command: answers(kind)["node-x", command].stdout for command in COMMANDS} for kind in kinds]
    names = [f"node-{number:04}" for number in range(nodes)]
    (path / "resources").mkdir(parents=True)
    (path / "capture.yaml").write_text(CAPTURE)
    _list(path, "nodes", (_node(name, kinds[at % 2]) for at, name in enumerate(names)))
    _list(path, "configmaps", [config_map()])
    managers = (operand_pod("mig-manager", name) for name in names)
    web = (pod(f"web-{at}", names[at % nodes]) for at in range(pods))
    _list(path, "pods", (*managers, *web))
    for at, name in enumerate(names):
        folder = path / "nodes" / name
        folder.mkdir(parents=True)
        for command, text in told[at % 2].items():
            (folder / f"{command}.txt").write_text(_own(text, at))
    odd = path / "nodes" / names[0] / "nvidia-smi-L.txt"
    odd.write_text(
        "".join(line for line in odd.read_text().splitlines(keepends=True) if "Device  6" not in line)
    )


def _own(text: str, number: int) -> str:
    """The text with UUIDs of its own."""
    return text.replace("UUID: GPU-", f"UUID: GPU-{number:04}").replace(
        "UUID: MIG-", f"UUID: MIG-{number:04}"
    )


def _node(name: str, kind: GpuNode) -> Mapping[str, Any]:
    manifest = kind.manifest
    metadata = {**manifest["metadata"], "name": name}
    return {**manifest, "metadata": metadata, "status": {**manifest["status"], "conditions": READY}}


def _list(path: Path, name: str, items: Iterable[Mapping[str, Any]]) -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": list(items)}
    (path / "resources" / f"{name}.json").write_text(json.dumps(listed))
