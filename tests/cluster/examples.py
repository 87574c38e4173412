"""Takes the clusters of examples/ anew from a real control plane: `make examples`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from gpuctl.audit.catalogue import catalogue
from gpuctl.audit.policy import BUILT_IN, POLICY
from gpuctl.cluster.connection import Access, connect
from gpuctl.cluster.live import LiveReader
from gpuctl.cluster.record import Recorder
from gpuctl.facts.fact import Objects
from gpuctl.facts.gather import gather
from gpuctl.facts.kinds import Kind, View

from .bed import Bed, lifecycle
from .bed.kueue import CONFIGURATIONS
from .bed.simulated import SimulatedNodes, gpu_node
from .standins import nvidia_smi

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
SCENARIO = Path(__file__).with_name("scenario.yaml")
KUEUE = ("v1beta2", "v1beta1")
COMMANDS = {
    "nvidia-smi-L": ("-L",),
    "nvidia-smi-mig-lgi": ("mig", "-lgi"),
    "nvidia-smi-mig-lci": ("mig", "-lci"),
    "nvidia-smi-mig-lgip": ("mig", "-lgip"),
}
# What the cluster holds beside what the checks declare: whoever reads the example will look for it.
KINDS = (
    Kind("", ("v1",), "Node", "nodes", namespaced=False),
    Kind("", ("v1",), "Pod", "pods", namespaced=True),
    Kind("batch", ("v1",), "Job", "jobs", namespaced=True),
    Kind("kueue.x-k8s.io", KUEUE, "ResourceFlavor", "resourceflavors", namespaced=False),
    Kind("kueue.x-k8s.io", KUEUE, "ClusterQueue", "clusterqueues", namespaced=False),
    Kind("kueue.x-k8s.io", KUEUE, "Workload", "workloads", namespaced=True),
)


def view(kind: Kind) -> type[View]:
    class Any(View, frozen=True):
        of: ClassVar[Kind] = kind

    return Any


def capture(bed: Bed, nodes: SimulatedNodes, name: str) -> None:
    """Stores the cluster as it is now: what the checks read, the kinds above, and what the nodes tell."""
    with tempfile.TemporaryDirectory() as scratch:
        taken = Path(scratch) / name
        recorder = Recorder(taken)
        reader = LiveReader(connect(Access(kubeconfig=str(bed.kubeconfig))), 60, sink=recorder)
        wanted = [need for check in catalogue().checks for need in check.needs]
        gather([*wanted, *(Objects(view(kind)) for kind in KINDS)], reader, {POLICY: BUILT_IN["default"]})
        recorder.close(reader.source())
        _ask_nodes(nodes, taken)
        shutil.rmtree(EXAMPLES / name, ignore_errors=True)
        shutil.copytree(taken, EXAMPLES / name)


def _ask_nodes(nodes: SimulatedNodes, taken: Path) -> None:
    for node in nodes.names:
        folder = taken / "nodes" / node
        folder.mkdir(parents=True, exist_ok=True)
        for file, arguments in COMMANDS.items():
            _ask(nodes.state_file(node), arguments, folder / file)


def _ask(state: Path, arguments: tuple[str, ...], file: Path) -> None:
    """The stand-in's own answer: the simulated kubelet would hide the exit code."""
    answer = subprocess.run(
        [sys.executable, nvidia_smi.__file__, *arguments],
        env={"NVIDIA_SMI_STATE": str(state)},
        capture_output=True,
        text=True,
        check=False,
    )
    file.with_suffix(".txt").write_text(answer.stdout)
    if answer.returncode:
        file.with_suffix(".err").write_text(f"exit {answer.returncode}\n{answer.stderr}")


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


def build_healthy(bed: Bed) -> SimulatedNodes:
    nodes = SimulatedNodes(bed)
    nodes.add(
        gpu_node("gpu-01", strategy="mixed", profiles=[["1g.10gb"] * 7, ["1g.10gb"] * 7]),
        gpu_node("gpu-02", strategy="none", profiles=[None] * 8),
        gpu_node("gpu-03", strategy="single", profiles=[["3g.40gb"] * 2] * 2),
    )
    bed.kubectl("apply", "--server-side", "-f", str(SCENARIO))
    submit(bed, (job(number, "team-a", "slices", "nvidia.com/mig-1g.10gb", 2) for number in range(2)))
    submit(bed, (job(number, "team-b", "gpus", "nvidia.com/gpu", 2) for number in range(2)))
    bed.wait(lambda: _running(bed) >= 4, 90, "the admitted pods")
    return nodes


def _running(bed: Bed) -> int:
    pods = bed.kubectl(
        "get", "pods", "-A", "-l", "kueue.x-k8s.io/queue-name", "-o", "jsonpath={.items[*].status.phase}"
    )
    return pods.split().count("Running")


def degrade(bed: Bed, nodes: SimulatedNodes) -> None:
    """A backlog, a flavor that was deleted while in use, a node that lost its slices, and a dead webhook."""
    submit(bed, (job(number, "team-a", "slices", "nvidia.com/mig-1g.10gb", 2) for number in range(10, 22)))
    bed.kubectl("delete", "resourceflavor", "whole-h100", "--wait=false")
    nodes.write("gpu-01", gpu_node("gpu-01", profiles=[["1g.10gb"] * 7, []]).state)
    bed.wait(lambda: _pending(bed) == 12, 60, "the backlog")
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
        nodes = build_healthy(bed)
        capture(bed, nodes, "healthy")
        degrade(bed, nodes)
        capture(bed, nodes, "degraded")


if __name__ == "__main__":
    main()
