"""What holds GPUs of a node beside pods is told of a drain, before and after, as nvidia-smi there has it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.cluster import gpuctl
from tests.cluster.bed import Bed
from tests.cluster.bed.migworld import MigWorld, WorldNode
from tests.cluster.bed.simulated import SimulatedNodes, gpu_node
from tests.cluster.lenient import lenient_file

NODE, BARE = "held-a", "held-bare"
STRAY = "4711 (/usr/bin/nv-hostengine) on GPU-"


@pytest.fixture(scope="module")
def node(bed: Bed) -> Iterator[WorldNode]:
    nodes = SimulatedNodes(bed)
    nodes.add(gpu_node(BARE, resources={"nvidia.com/gpu": None}))
    labels = json.loads(bed.kubectl("get", "node", BARE, "-o", "json"))["metadata"]["labels"]
    told = [f"{name}-" for name in labels if name.startswith(("nvidia.com/", "feature.node.kubernetes.io/"))]
    bed.kubectl("label", "node", BARE, *told)
    with MigWorld(nodes) as world:
        (made,) = world.add(gpu_node(NODE, profiles=[["1g.10gb"] * 7]))
        yield made


class Drain:
    """A person who drains a node by a plan file."""

    def __init__(self, bed: Bed, folder: Path) -> None:
        self.bed = bed
        self.policy, self.file = folder / "gpuctl.yaml", folder / "drain.json"
        self.policy.write_text(lenient_file())

    def plan(self, node: str = NODE, *flags: str) -> list[str]:
        """What the plan notes."""
        self.file.unlink(missing_ok=True)
        answer = self._run("plan", "drain", node, "--gpu-only", "--out", str(self.file), "-o", "json", *flags)
        (found,) = json.loads(answer.stdout)["targets"]
        assert found["blockers"] == []
        return [each for each in found["notes"] if "process" in each]

    def apply(self, *flags: str) -> CompletedProcess[str]:
        return self._run("apply", str(self.file), "--yes", *flags)

    def _run(self, *arguments: str) -> CompletedProcess[str]:
        flags = ("--probe-timeout", "90s", "--policy", str(self.policy))
        answer = gpuctl.run(*arguments, *flags, kubeconfig=self.bed.kubeconfig)
        assert answer.returncode == 0, answer.stderr
        return answer


@pytest.fixture
def drain(bed: Bed, state_namespace: str, tmp_path: Path, node: WorldNode) -> Iterator[Drain]:
    yield Drain(bed, tmp_path)
    node.let_go()
    bed.kubectl("uncordon", NODE, BARE)


def test_a_process_that_no_pod_explains_is_told_before_and_after(drain: Drain, node: WorldNode) -> None:
    assert drain.plan() == []
    node.hold()
    (note,) = drain.plan()
    assert f"that no pod explains: {STRAY}" in note
    answer = drain.apply()
    assert "  gpus: held\n" in answer.stdout
    assert f"  held by: process {STRAY}" in answer.stdout
    (run,) = json.loads(_journals(drain.bed))
    assert run["result"]["gpus"] == "held"
    assert run["outcome"] == "succeeded"


def test_a_node_without_one_is_said_to_be_idle(drain: Drain) -> None:
    assert drain.plan() == []
    assert "  gpus: idle\n" in drain.apply().stdout


def test_what_is_not_looked_into_is_not_known(drain: Drain, node: WorldNode) -> None:
    node.hold()
    (note,) = drain.plan(NODE, "--probe", "none")
    assert note.startswith("it can't be told whether processes hold GPUs")
    answer = drain.apply("--probe", "none")
    assert "  gpus: unknown\n" in answer.stdout
    assert "  not read: " in answer.stdout


def test_a_node_without_gpus_is_not_looked_into(drain: Drain) -> None:
    assert drain.plan(BARE, "--probe", "debug") == []
    answer = drain.apply("--probe", "debug")
    assert "gpus:" not in answer.stdout
    assert "looking into nodes" not in answer.stderr


def _journals(bed: Bed) -> str:
    return gpuctl.run("runs", "-o", "json", kubeconfig=bed.kubeconfig).stdout
