"""A large cluster as a snapshot: many Workloads in many queues, with nodes, Jobs and pods."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.builders.queues import GPU, World, ago, condition, stamp
from tests.memory import A_MOMENT

PAGE = 500
MESSAGE = (
    "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor h100, "
    "{} more needed"
)


def write(path: Path, workloads: int, queues: int) -> None:
    """One snapshot, written page by page."""
    world = World()
    world.flavor()
    for number in range(queues // 10):
        world.namespace(f"team-{number}")
        world.cohort(f"pool-{number}")
    for number in range(queues):
        world.queue(f"q-{number}", cohort=f"pool-{number // 10}", used={"h100": {GPU: "8"}})
        world.local_queue(f"q-{number}", f"team-{number // 10}", f"q-{number}")
    for number in range(queues):
        world.node(f"node-{number}")
    kinds = {
        "ResourceFlavor": "resourceflavors.kueue.x-k8s.io",
        "ClusterQueue": "clusterqueues.kueue.x-k8s.io",
        "Cohort": "cohorts.kueue.x-k8s.io",
        "LocalQueue": "localqueues.kueue.x-k8s.io",
        "Node": "nodes",
        "Namespace": "namespaces",
    }
    for kind, resource in kinds.items():
        _pages(path, resource, (item for item in world.items if item["kind"] == kind))
    _pages(path, "workloads.kueue.x-k8s.io", _workloads(workloads, queues))
    path.joinpath("capture.yaml").write_text(
        "apiVersion: gpuctl.dev/v1\nkind: Snapshot\n"
        f"capturedAt: {stamp(A_MOMENT)}\nwriter: test\ncomplete: ['*']\n"
    )


def _workloads(number: int, queues: int) -> Iterator[dict[str, Any]]:
    for index in range(number):
        yield _workload(index, index % queues)


def _workload(index: int, queue: int) -> dict[str, Any]:
    """As the API server gives it, with the parts of a template that nobody here reads."""
    waits = index % 4 != 0
    amount = 1 + index % 3
    container = {
        "name": "main",
        "image": "registry.example.com/team/trainer:2.9.1",
        "command": ["python", "-m", "train"],
        "args": [f"--seed={index}", "--epochs=90", "--data=/data/shards/{000..511}.tar"],
        "env": [{"name": f"VARIABLE_{each}", "value": "x" * 30} for each in range(20)],
        "resources": {"requests": {GPU: str(amount)}, "limits": {GPU: str(amount)}},
        "volumeMounts": [{"name": f"volume-{each}", "mountPath": f"/mnt/{each}"} for each in range(6)],
    }
    item = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": f"job-train-{index}-{index * 7919 % 99991:05x}",
            "namespace": f"team-{queue // 10}",
            "uid": f"0000{index:08d}-aaaa-bbbb",
            "labels": {"kueue.x-k8s.io/job-uid": f"uid-{index}"},
            "creationTimestamp": stamp(ago(seconds=index % 40000)),
            "finalizers": ["kueue.x-k8s.io/resource-in-use"],
            "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": f"train-{index}", "uid": f"uid-{index}"}
            ],
        },
        "spec": {
            "active": True,
            "queueName": f"q-{queue}",
            "priority": index % 3,
            "podSets": [
                {
                    "name": "main",
                    "count": 1,
                    "template": {
                        "metadata": {"labels": {"app": "train"}},
                        "spec": {"containers": [container]},
                    },
                }
            ],
        },
        "status": {"conditions": [condition("QuotaReserved", "False", "Pending", MESSAGE.format(amount))]},
    }
    if not waits:
        item["status"] = {
            "conditions": [
                condition("QuotaReserved", "True", "QuotaReserved", at=ago(minutes=9)),
                condition("Admitted", "True", "Admitted", at=ago(minutes=9)),
                condition("Finished", "True", "Succeeded", "Job finished successfully", at=ago(minutes=2)),
            ],
        }
    return item


def _pages(path: Path, resource: str, items: Iterable[dict[str, Any]]) -> None:
    folder = path / "resources" / resource
    folder.mkdir(parents=True)
    page: list[dict[str, Any]] = []
    number = 0
    for item in items:
        page.append(item)
        if len(page) == PAGE:
            number = _page(folder, number, page)
            page = []
    if page:
        _page(folder, number, page)


def _page(folder: Path, number: int, page: list[dict[str, Any]]) -> int:
    version, kind = page[0]["apiVersion"], page[0]["kind"]
    text = json.dumps({"apiVersion": version, "kind": f"{kind}List", "items": page}).encode()
    (folder / f"{number + 1:04}.json.gz").write_bytes(gzip.compress(text, 1))
    return number + 1
