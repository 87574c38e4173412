"""A cluster on which the checks have something to read, of every kind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.builders import vllm
from tests.cluster.bed import Bed
from tests.cluster.bed.simulated import SimulatedNodes
from tests.cluster.examples import SCENARIO, build_healthy

SERVING = "serving"
NAMESPACES = ("team-a", "team-b", SERVING)  # of the scenario
QUEUES = (
    "clusterqueue/research",
    "clusterqueue/training",
    "resourceflavor/mig-1g-10gb",
    "resourceflavor/whole-h100",
)
LOGGED_AT = "2026-11-30T10:00:00.000000000Z"


@contextmanager
def scene(bed: Bed) -> Iterator[None]:
    """Nodes with GPUs, queues with jobs, and engines that serve and have logged their start."""
    _await_gone(bed)
    nodes = SimulatedNodes(bed)
    try:
        build_healthy(nodes)
        _log(bed)
        yield
    finally:
        _clear(bed)
        nodes.remove()


def _clear(bed: Bed) -> None:
    """For the tests that come after."""
    bed.kubectl("delete", "clusterlogs", SERVING, "--ignore-not-found")
    bed.kubectl("delete", "-f", str(SCENARIO), "--ignore-not-found", "--wait=false")
    for namespace in NAMESPACES:
        bed.kubectl("-n", namespace, "delete", "pods", "--all", "--force", "--grace-period=0", "--wait=false")
    # They end as the pods do, and the next test must not see it.
    bed.kubectl("wait", "--for=delete", *QUEUES, "--timeout=120s", check=False)


def _await_gone(bed: Bed) -> None:
    """An earlier scene takes its time to go."""
    bed.kubectl("wait", "--for=delete", "--timeout=180s", *(f"namespace/{each}" for each in NAMESPACES))


def _log(bed: Bed) -> None:
    file = bed.folder / "simulated" / "engine.log"
    lines = vllm.eager_log().splitlines()
    file.write_text("".join(f"{LOGGED_AT} stdout F {line}\n" for line in lines))
    _apply(
        bed,
        {
            "apiVersion": "kwok.x-k8s.io/v1alpha1",
            "kind": "ClusterLogs",
            "metadata": {"name": SERVING},
            "spec": {
                "selector": {"matchNamespaces": [SERVING]},
                "logs": [{"containers": ["vllm"], "logsFile": str(file)}],
            },
        },
    )


def _apply(bed: Bed, *items: dict[str, Any]) -> None:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    bed.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=text)
