"""Events are where kubectl describe finds them, and a real API server takes them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from tests.cluster import gpuctl
from tests.cluster.bed import Bed
from tests.cluster.bed.simulated import SimulatedNodes, gpu_node
from tests.cluster.bed.workloads import Workloads
from tests.cluster.lenient import lenient_file

NODE = "events-a"
RENAMED = "acme.io/gpu-of-the-events"  # so that no other node of the bed offers it


class Person:
    """Who changes something by a plan file."""

    def __init__(self, bed: Bed, folder: Path) -> None:
        self.bed = bed
        self.policy, self.file = folder / "gpuctl.yaml", folder / "plan.json"
        self.policy.write_text(
            lenient_file(leaseSeconds=60)
        )  # no Event is made once a lock was read too slowly

    def changes(self, *what: str) -> CompletedProcess[str]:
        self.file.unlink(missing_ok=True)
        planned = self.does("plan", *what, "--out", str(self.file))
        assert planned.returncode == 0, planned.stdout + planned.stderr
        return self.does("apply", str(self.file), "--yes", "--reason", "the vendor waits", "--ticket", "T-7")

    def does(self, *arguments: str) -> CompletedProcess[str]:
        return gpuctl.run(*arguments, "--policy", str(self.policy), kubeconfig=self.bed.kubeconfig)

    def events(self, namespace: str, kind: str, name: str) -> list[dict[str, Any]]:
        """Those on this object, the oldest first."""
        of = f"involvedObject.kind={kind},involvedObject.name={name},reportingComponent=gpuctl"
        found = self.bed.kubectl("-n", namespace, "get", "events", "--field-selector", of, "-o", "json")
        items: list[dict[str, Any]] = json.loads(found)["items"]
        return sorted(items, key=lambda each: str(each["metadata"]["creationTimestamp"]))


@pytest.fixture
def person(bed: Bed, state_namespace: str, tmp_path: Path) -> Person:
    return Person(bed, tmp_path)


@pytest.fixture
def node(bed: Bed) -> Iterator[str]:
    nodes = SimulatedNodes(bed)
    nodes.add(gpu_node(NODE, profiles=[None], resources={RENAMED: 1}))
    yield NODE
    nodes.remove()


def test_of_a_job_they_are_in_its_namespace(person: Person, work: Workloads) -> None:
    work.job("train")
    answer = person.changes("queue-limit", f"job/{work.namespace}/train", "--deadline", "900")
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "no Event could be written" not in answer.stderr
    found = person.events(work.namespace, "Job", "train")
    assert {each["reason"] for each in found} == {"GpuctlBegun", "GpuctlSucceeded"}
    described = person.bed.kubectl("-n", work.namespace, "describe", "job", "train")
    assert "GpuctlSucceeded" in described
    assert "reason: the vendor waits; ticket: T-7" in described


def test_of_a_node_they_are_in_default_also_of_a_run_that_is_given_up(
    person: Person, work: Workloads, node: str
) -> None:
    work.deployment("deaf", asks={RENAMED: 1}, node=node, sigterm="hangs", grace=1)
    work.running("deaf")
    answer = person.changes("drain", node, "--last-replica", "--drain-timeout", "3")
    assert answer.returncode == 4, answer.stdout + answer.stderr
    (run,) = {word.strip(",;") for word in answer.stderr.split() if word[:2] == "20" and word.count("-") == 2}
    given_up = person.does("unlock", run, "--reason", "the node is replaced")
    assert given_up.returncode == 0, given_up.stderr
    found = person.events("default", "Node", node)
    assert {each["reason"] for each in found} == {"GpuctlBegun", "GpuctlTimedOut", "GpuctlAbandoned"}
    (abandoned,) = [each for each in found if each["reason"] == "GpuctlAbandoned"]
    assert f"run {run}; reason: the node is replaced" in abandoned["message"]
    assert "GpuctlAbandoned" in person.bed.kubectl("describe", "node", node)
    work.release("deaf")
