"""The runbook drain against a real API server: real evictions, real budgets, real controllers."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from http.client import BAD_REQUEST
from pathlib import Path
from typing import Any

import pytest

from gpuctl.runbook.drain.cordon import CORDONED_BY, DRAINED_BY
from tests.cluster import gpuctl
from tests.cluster.bed import Bed
from tests.cluster.bed.audit import AuditEvent
from tests.cluster.bed.simulated import GpuNode, SimulatedNodes, gpu_node
from tests.cluster.bed.stages import SIGTERM
from tests.cluster.bed.workloads import TOLERANT, Workloads
from tests.cluster.lenient import lenient_file

NODE, OTHER = "drain-a", "drain-b"
RENAMED = "acme.io/gpu-of-the-drain"  # so that no other node of the bed offers it
GPU = {RENAMED: 1}


def whole(name: str) -> GpuNode:
    """A node with GPUs that are not sliced, by a name of its own."""
    return gpu_node(name, profiles=[None] * 4, resources={RENAMED: 4})


@pytest.fixture(scope="module")
def nodes(bed: Bed) -> Iterator[SimulatedNodes]:
    made = SimulatedNodes(bed)
    made.add(whole(NODE), whole(OTHER))
    yield made
    made.remove()


@pytest.fixture
def work(bed: Bed, namespace: str, nodes: SimulatedNodes) -> Iterator[Workloads]:
    made = Workloads(bed, namespace)
    yield made
    bed.kubectl("-n", namespace, "delete", "deployments,statefulsets,daemonsets,jobs", "--all")
    bed.kubectl("-n", namespace, "annotate", "pods", "--all", f"{SIGTERM}-", check=False)  # some go just now
    bed.kubectl("-n", namespace, "delete", "pods", "--all", "--force", "--grace-period=0")
    for name in (NODE, OTHER):
        bed.kubectl("uncordon", name)
        bed.kubectl("annotate", "node", name, f"{CORDONED_BY}-", f"{DRAINED_BY}-")  # of a run that has failed


class Drain:
    """A person who drains the node from the command line, by a plan file."""

    def __init__(self, bed: Bed, folder: Path) -> None:
        self.bed, self.folder = bed, folder
        self.policy = folder / "gpuctl.yaml"
        self.policy.write_text(lenient_file())
        self.file = folder / "drain.json"

    def plan(self, *flags: str) -> dict[str, Any]:
        """The plan for the node; it is stored, too."""
        self.file.unlink(missing_ok=True)
        arguments = ("plan", "drain", NODE, *flags, "--policy", str(self.policy), "-o", "json")
        answer = gpuctl.run(*arguments, "--out", str(self.file), kubeconfig=self.bed.kubeconfig)
        assert answer.stdout, answer.stderr
        found: dict[str, Any] = json.loads(answer.stdout)["targets"][0]
        assert answer.returncode == (1 if found["blockers"] else 0)
        return found

    def apply(self) -> subprocess.CompletedProcess[str]:
        arguments = ("apply", str(self.file), "--yes", "--policy", str(self.policy))
        return gpuctl.run(*arguments, kubeconfig=self.bed.kubeconfig)

    def begin(self) -> subprocess.Popen[str]:
        """The same in the background."""
        return subprocess.Popen(
            [str(gpuctl.PROGRAM), "apply", str(self.file), "--yes", "--policy", str(self.policy)],
            env={"KUBECONFIG": str(self.bed.kubeconfig), "PATH": "/usr/bin:/bin", "HOME": str(self.folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def go_on(self, verb: str, said: str, *flags: str) -> subprocess.CompletedProcess[str]:
        """Resumes or undoes the run that the end of another tells of."""
        (run,) = {word.strip(",:;") for word in said.split() if word[:2] == "20" and word.count("-") == 2}
        return gpuctl.run(verb, run, "--policy", str(self.policy), *flags, kubeconfig=self.bed.kubeconfig)

    @property
    def node(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.bed.kubectl("get", "node", NODE, "-o", "json"))
        return found

    @property
    def cordoned(self) -> bool:
        return bool(self.node["spec"].get("unschedulable"))

    @property
    def marks(self) -> set[str]:
        return {
            name for name in self.node["metadata"].get("annotations", {}) if name in (CORDONED_BY, DRAINED_BY)
        }


@pytest.fixture
def drain(bed: Bed, state_namespace: str, tmp_path: Path) -> Drain:
    return Drain(bed, tmp_path)


def blockers(plan: dict[str, Any]) -> set[tuple[str, str]]:
    return {(each["guard"], each.get("override", "")) for each in plan["blockers"]}


def on_the_node(work: Workloads) -> set[str]:
    return {pod["metadata"]["name"] for pod in work.pods() if pod["spec"].get("nodeName") == NODE}


def evictions(work: Workloads, since: datetime) -> list[AuditEvent]:
    """Those that were asked for in the namespace."""
    asked = work.bed.audit.requests(since=since)
    return [each for each in asked if each.subresource == "eviction" and each.namespace == work.namespace]


def test_a_busy_node_is_drained_under_a_budget_and_stays_cordoned(
    work: Workloads, drain: Drain, bed: Bed
) -> None:
    bed.kubectl("cordon", OTHER)
    work.deployment("llm", replicas=3, asks=GPU)
    work.daemon_set("agent", node=NODE)
    before = set(work.running("llm", 3)) | set(work.running("agent"))
    bed.kubectl("uncordon", OTHER)
    work.budget("llm", min_available=2)
    plan = drain.plan()
    assert plan["blockers"] == []
    assert plan["bounds"]["evictions"] == 3
    assert plan["bounds"]["budgets"] == [f"{work.namespace}/llm"]
    answer = drain.apply()
    assert answer.returncode == 0, answer.stderr
    assert on_the_node(work) == {name for name in before if name.startswith("agent")}
    assert drain.cordoned
    assert drain.marks == {DRAINED_BY}
    assert "uncordon" not in answer.stderr


def test_all_blockers_are_told_at_once_and_nothing_is_written(work: Workloads, drain: Drain) -> None:
    work.deployment("tolerant", asks=GPU, node=NODE, tolerations=TOLERANT, empty_dir=True)
    work.deployment("held", asks=GPU, node=NODE)
    work.pod("bare", node=NODE, grace=86400)
    for app in ("tolerant", "held", "bare"):
        work.running(app)
    work.budget("held", min_available=1)
    assert blockers(drain.plan()) == {
        ("pods-scratch", "--delete-emptydir-data"),
        ("pods-returning", "--ignore-returning"),
        ("pods-unmanaged", "--force"),
        ("pods-grace", "--grace-period"),
        ("budgets-allow", "--wait-for-budgets"),
        ("a-replica-stays", "--last-replica"),
    }
    assert not drain.cordoned
    assert drain.apply().returncode == 1
    assert not drain.cordoned
    assert len(on_the_node(work)) == 3


def test_a_budget_at_zero_is_waited_for_and_the_run_goes_on_in_another_process(
    work: Workloads, drain: Drain
) -> None:
    drain.bed.kubectl("cordon", OTHER)
    work.stateful_set("db", asks=GPU)
    work.running("db")
    (before,), began = work.pods("db"), datetime.now(UTC)
    drain.bed.kubectl("uncordon", OTHER)
    work.budget("db", min_available=1)
    drain.plan("--wait-for-budgets")
    process = drain.begin()
    drain.bed.wait(lambda: drain.cordoned, 60, "the cordon")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert on_the_node(work) == {"db-0"}
    work.budget("db", min_available=0)
    refused = drain.go_on("resume", said)  # the budget that kept a replica does so no more
    assert refused.returncode == 1
    assert "(override: --last-replica)" in refused.stderr
    assert on_the_node(work) == {"db-0"}
    answer = drain.go_on("resume", said, "--last-replica")
    assert answer.returncode == 0, answer.stderr
    pod = work.another("db", before["metadata"]["uid"])
    assert pod["spec"].get("nodeName") != NODE  # the one of the same name is elsewhere, and was left alone
    assert len([each for each in evictions(work, began) if each.code < BAD_REQUEST]) == 1


def test_a_killed_drain_is_undone_by_another_process(work: Workloads, drain: Drain) -> None:
    work.deployment("llm", asks=GPU, node=NODE)
    work.running("llm")
    work.budget("llm", min_available=1)
    drain.plan("--wait-for-budgets")
    process = drain.begin()
    drain.bed.wait(lambda: drain.marks == {CORDONED_BY}, 60, "the cordon with its mark")
    process.kill()
    process.communicate(timeout=60)
    run = drain.node["metadata"]["annotations"][CORDONED_BY]
    answer = drain.go_on("undo", run)
    assert answer.returncode == 0, answer.stderr
    assert not drain.cordoned
    assert drain.marks == set()
    assert len(on_the_node(work)) == 1


def test_a_pod_that_ignores_its_end_lets_the_run_time_out(work: Workloads, drain: Drain) -> None:
    work.deployment("deaf", asks=GPU, node=NODE, sigterm="hangs", grace=1)
    work.running("deaf")
    drain.plan("--last-replica", "--drain-timeout", "20")
    answer = drain.apply()
    assert answer.returncode == 4, answer.stderr
    assert "timed-out" in answer.stdout + answer.stderr
    assert "ending" in answer.stderr
    assert drain.cordoned
    work.release("deaf")
    assert drain.go_on("resume", answer.stderr).returncode == 0


def test_a_pod_that_comes_straight_back_stops_the_run(work: Workloads, drain: Drain) -> None:
    work.deployment("tolerant", asks=GPU, node=NODE, tolerations=TOLERANT)
    work.running("tolerant")
    work.deployment("deaf", asks=GPU, node=NODE, sigterm="hangs", grace=1)  # until the other is back
    work.running("deaf")
    began = datetime.now(UTC)
    drain.plan("--ignore-returning", "--last-replica")
    answer = drain.apply()
    assert answer.returncode == 4, answer.stderr
    assert "which the plan does not allow" in answer.stderr
    assert len(evictions(work, began)) == 2
    assert drain.go_on("undo", answer.stderr).returncode == 0
    assert not drain.cordoned


@pytest.fixture
def queue(bed: Bed, namespace: str) -> Iterator[str]:
    """A LocalQueue with quota for the GPUs of these nodes."""
    flavor = {"kind": "ResourceFlavor", "metadata": {"name": namespace}}
    quota = {"name": namespace, "resources": [{"name": RENAMED, "nominalQuota": 8}]}
    groups = [{"coveredResources": [RENAMED], "flavors": [quota]}]
    cluster_queue = {
        "kind": "ClusterQueue",
        "metadata": {"name": namespace},
        "spec": {"namespaceSelector": {}, "resourceGroups": groups},
    }
    local_queue = {
        "kind": "LocalQueue",
        "metadata": {"name": "q", "namespace": namespace},
        "spec": {"clusterQueue": namespace},
    }
    for each in (flavor, cluster_queue, local_queue):
        made = {"apiVersion": "kueue.x-k8s.io/v1beta2", **each}
        bed.kubectl("create", "-f", "-", input=json.dumps(made))
    yield "q"
    bed.kubectl("-n", namespace, "delete", "jobs", "--all")  # their quota keeps the queue
    bed.kubectl("delete", "clusterqueue,resourceflavor", namespace, "--timeout=120s")


def test_a_job_of_kueue_keeps_its_quota_and_waits_elsewhere(
    work: Workloads, drain: Drain, queue: str
) -> None:
    work.job("train", completions=2, asks=GPU, node=NODE, labels={"kueue.x-k8s.io/queue-name": queue})
    before = set(work.running("train", 2))
    plan = drain.plan()
    assert plan["blockers"] == []
    (line,) = (each for each in plan["effects"] if each.startswith("Workload"))
    assert f"of ClusterQueue {work.namespace} (priority 0) loses 2 pods: Job train makes them anew" in line
    assert drain.apply().returncode == 0
    assert not before & {pod["metadata"]["name"] for pod in work.pods("train")}
    (workload,) = json.loads(drain.bed.kubectl("-n", work.namespace, "get", "workloads", "-o", "json"))[
        "items"
    ]
    standing = {each["type"]: each["status"] for each in workload["status"]["conditions"]}
    assert (standing["QuotaReserved"], standing["Admitted"]) == ("True", "True")
