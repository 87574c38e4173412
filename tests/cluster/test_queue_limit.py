"""The runbook queue-limit on a real Kueue: a borrower is held back and let go, and a Job gets a deadline."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from . import gpuctl
from .bed import Bed
from .bed.kueue import Kueue
from .test_queue_growth import Queues


@pytest.fixture
def queues(bed: Bed, kueue: Kueue, namespace: str, state_namespace: str) -> Iterator[Queues]:
    kueue.wait_healthy()
    made = Queues(bed, namespace)
    yield made
    made.remove()


def plan(bed: Bed, file: Path, target: str, *flags: str) -> dict[str, Any]:
    arguments = ("plan", "queue-limit", target, *flags, "-o", "json", "--out", str(file))
    answer = gpuctl.run(*arguments, kubeconfig=bed.kubeconfig)
    assert answer.stdout, answer.stderr
    found: dict[str, Any] = json.loads(answer.stdout)["targets"][0]
    return found


def apply(bed: Bed, file: Path) -> subprocess.CompletedProcess[str]:
    answer = gpuctl.run("apply", str(file), "--yes", kubeconfig=bed.kubeconfig)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer


def admitted(queues: Queues, name: str) -> bool:
    path = r'jsonpath={.status.conditions[?(@.type=="Admitted")].status}'
    return (
        queues.bed.kubectl("-n", queues.space, "get", "workloads.kueue.x-k8s.io", name, "-o", path) == "True"
    )


def test_a_borrower_is_held_back_and_let_go(bed: Bed, queues: Queues, tmp_path: Path) -> None:
    queues.apply(
        queues.flavor(),
        *queues.line("lender", {"nominalQuota": 8}, cohort="pool"),
        *queues.line("borrower", {"nominalQuota": 2}, cohort="pool"),
        queues.queue("alone", 2),
    )
    quota = ("--flavor", queues.name("plain"), "--resource", "cpu")
    alone = plan(bed, tmp_path / "p.json", queues.name("alone"), *quota, "--borrowing-limit", "1")
    assert {each["guard"] for each in alone["blockers"]} == {"kueue-takes-it"}
    queues.apply(queues.workload("one", "borrower", 5))
    bed.wait(lambda: admitted(queues, "one"), 60, "the first Workload")

    target, file = queues.name("borrower"), tmp_path / "plan.json"
    printed = plan(bed, file, target, *quota, "--borrowing-limit", "2", "--patch-only")
    (command,) = [line for line in printed["effects"] if line.startswith("the patch: kubectl patch")]
    assert "borrowingLimit" in command
    found = plan(bed, file, target, *quota, "--borrowing-limit", "2")
    assert found["blockers"] == []
    assert any("nothing more is admitted" in line for line in found["effects"])
    apply(bed, file)
    queues.apply(queues.workload("two", "borrower", 1))
    bed.wait(lambda: "limit" in _says(queues, "two") or "quota" in _says(queues, "two"), 60, "that it waits")
    assert admitted(queues, "one"), "a limit evicts nobody"
    assert not admitted(queues, "two")

    plan(bed, file, target, *quota, "--borrowing-limit", "none")
    apply(bed, file)
    bed.wait(lambda: admitted(queues, "two"), 60, "the second Workload")


def _says(queues: Queues, name: str) -> str:
    path = r'jsonpath={.status.conditions[?(@.type=="QuotaReserved")].message}'
    return queues.bed.kubectl("-n", queues.space, "get", "workloads.kueue.x-k8s.io", name, "-o", path)


def test_a_deadline_counts_from_the_start_of_the_job(bed: Bed, queues: Queues, tmp_path: Path) -> None:
    container = {
        "name": "main",
        "image": "localhost/busybox:1",
        "imagePullPolicy": "Never",
        "command": ["sleep", "1000"],
    }
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "long", "namespace": queues.space},
        "spec": {"template": {"spec": spec}},
    }
    queues.apply(job)
    path = "jsonpath={.status.ready}"
    bed.wait(
        lambda: bed.kubectl("-n", queues.space, "get", "job", "long", "-o", path) == "1", 60, "the Job's pod"
    )
    target, file = f"job/{queues.space}/long", tmp_path / "plan.json"
    now = plan(bed, file, target, "--deadline", "1")
    assert [each["override"] for each in now["blockers"]] == ["--although-it-ends-now"]
    assert any("it ends AT ONCE" in line for line in now["effects"])
    later = plan(bed, file, target, "--deadline", "900")
    assert later["blockers"] == []
    apply(bed, file)
    assert bed.kubectl("-n", queues.space, "get", "job", "long", "-o", "jsonpath={.status.active}") == "1"
    plan(bed, file, target, "--deadline", "1", "--although-it-ends-now")
    apply(bed, file)
    bed.wait(lambda: "DeadlineExceeded" in _ends(queues), 60, "the end of the Job")


def _ends(queues: Queues) -> str:
    path = "jsonpath={.status.conditions[*].reason}"
    return queues.bed.kubectl("-n", queues.space, "get", "job", "long", "-o", path)
