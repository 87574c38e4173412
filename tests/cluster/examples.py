"""Takes the clusters of examples/ anew from a real control plane: `make examples`."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.builders import vllm as make
from tests.builders.gpus import OPERANDS

from .bed import Bed, lifecycle
from .bed.kueue import CONFIGURATIONS
from .bed.simulated import SimulatedNodes, gpu_node
from .gpuctl import run
from .test_mig_consistency import operand_pods, serve

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
SCENARIO = Path(__file__).with_name("scenario.yaml")
SETTLED = 400  # seconds after which a change on a node or in a queue is no longer taken for one under way
STARTED = "2026-11-30T10:00:00.000000000Z"


def capture(bed: Bed, name: str) -> None:
    """Stores the cluster as it is now, with all that may be asked of it, as a person would take it."""
    with tempfile.TemporaryDirectory() as scratch:
        taken = Path(scratch) / name
        asks = ("--probe", "exec", "--dry-run", "all", "--deadline", "300s", "--probe-timeout", "120s")
        result = run("check", "-q", "--save", str(taken), *asks, kubeconfig=bed.kubeconfig)
        print(result.stdout, result.stderr)
        shutil.rmtree(EXAMPLES / name, ignore_errors=True)
        shutil.copytree(taken, EXAMPLES / name)


def job(number: int, namespace: str, queue: str, resource: str, amount: int) -> dict[str, object]:
    """A pod that waits in a queue. (Simulated nodes end a Job's pods at once, and plain ones never.)"""
    limits = {resource: str(amount)}
    container = {"name": "train", "image": "busybox", "command": ["sleep", "3600"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"train-{number}",
            "namespace": namespace,
            "labels": {"kueue.x-k8s.io/queue-name": queue},
        },
        "spec": {
            "restartPolicy": "Never",
            "tolerations": [{"operator": "Exists"}],
            "containers": [{**container, "resources": {"limits": limits}}],
        },
    }


def submit(bed: Bed, pods: Iterator[dict[str, object]]) -> None:
    items = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(pods)})
    bed.kubectl("create", "-f", "-", input=items)


def log_engines(bed: Bed, namespace: str, text: str) -> None:
    """What the simulated nodes answer when they are asked for the logs of a namespace's engines."""
    file = bed.folder / f"{namespace}.log"
    file.write_text("".join(f"{STARTED} stdout F {line}\n" for line in text.splitlines()))
    logs: dict[str, Any] = {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "ClusterLogs",
        "metadata": {"name": namespace},
        "spec": {
            "selector": {"matchNamespaces": [namespace]},
            "logs": [{"containers": ["vllm"], "logsFile": str(file)}],
        },
    }
    bed.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(logs))


def serve_beyond_the_budget(bed: Bed) -> None:
    """An engine of a version that captures its graphs outside of the budget, which leaves them no room."""
    log = make.graphs_log("0.11.0", utilization=0.95, took=4.2)
    estimates = ("Estimated CUDA graph", "Profiling CUDA graph", "CUDA graph pool")
    lines = [line for line in log.splitlines() if not any(each in line for each in estimates)]
    log_engines(bed, "chat", "\n".join(lines) + "\n")
    container = {
        "name": "vllm",
        "image": "vllm/vllm-openai:v0.11.0",
        "args": ["--model", "acme/chat-7b", "--gpu-memory-utilization", "0.95"],
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    labels = {"app": "chat"}
    pod = {
        "tolerations": [{"operator": "Exists"}],
        "nodeSelector": {"kubernetes.io/hostname": "gpu-02"},
        "containers": [container],
    }
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "chat", "namespace": "chat"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
    bed.kubectl("create", "namespace", "chat")
    bed.kubectl("apply", "-f", "-", input=json.dumps(deployment))
    bed.kubectl("-n", "chat", "rollout", "status", "deployment/chat", "--timeout=60s")


def build_healthy(nodes: SimulatedNodes) -> None:
    bed = nodes.bed
    nodes.add(
        gpu_node("gpu-01", strategy="mixed", profiles=[["1g.10gb"] * 7, ["1g.10gb"] * 7]),
        gpu_node("gpu-02", strategy="none", profiles=[None] * 8),
        gpu_node("gpu-03", strategy="single", profiles=[["3g.40gb"] * 2] * 2),
    )
    serve(bed)
    log_engines(bed, "serving", make.eager_log("0.11.0"))
    bed.kubectl("apply", "--server-side", "-f", str(SCENARIO))
    submit(bed, (job(number, "team-a", "slices", "nvidia.com/mig-1g.10gb", 2) for number in range(2)))
    submit(bed, (job(number, "team-b", "gpus", "nvidia.com/gpu", 2) for number in range(2)))
    bed.wait(lambda: _running(bed) >= 4, 90, "the admitted pods")
    bed.wait(lambda: operand_pods(bed) >= len(nodes.names) * (len(OPERANDS) - 1), 120, "pods of the operands")


def _running(bed: Bed) -> int:
    pods = bed.kubectl(
        "get", "pods", "-A", "-l", "kueue.x-k8s.io/queue-name", "-o", "jsonpath={.items[*].status.phase}"
    )
    return pods.split().count("Running")


def degrade(bed: Bed, nodes: SimulatedNodes) -> None:
    """A backlog, in it what can never fit, a deleted flavor in use, lost slices, an engine without room for
    its graphs, and a dead webhook."""
    serve_beyond_the_budget(bed)
    submit(bed, (job(number, "team-a", "slices", "nvidia.com/mig-1g.10gb", 2) for number in range(10, 22)))
    submit(bed, iter([job(30, "team-a", "slices", "nvidia.com/mig-1g.10gb", 6)]))
    bed.kubectl("delete", "resourceflavor", "whole-h100", "--wait=false")
    nodes.write("gpu-01", gpu_node("gpu-01", profiles=[["1g.10gb"] * 7, []]).state)
    bed.wait(lambda: _pending(bed) == 13, 60, "the backlog")
    bed.kueue.freeze_rotator()
    for bundle in bed.kueue.bundles():
        if bundle.resource == CONFIGURATIONS[0]:
            bed.kueue.set_bundle(bundle, b"")


def _pending(bed: Bed) -> int:
    path = "jsonpath={.status.pendingWorkloads}"
    return int(bed.kubectl("get", "clusterqueue", "research", "-o", path) or 0)


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as logs,
        lifecycle.temporary(logs=Path(logs) / "cluster") as bed,
    ):
        nodes = SimulatedNodes(bed)
        build_healthy(nodes)
        capture(bed, "healthy")
        degrade(bed, nodes)
        time.sleep(SETTLED)
        capture(bed, "degraded")


if __name__ == "__main__":
    main()
