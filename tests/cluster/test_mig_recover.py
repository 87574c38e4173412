"""mig-recover, device-plugin-restart and taint-unmigged on the real control plane, from broken to cured."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpuctl.audit.policy import ChecksPolicy, MigConsistencyPolicy
from gpuctl.nvidia.node import CONFIG, STATE
from gpuctl.runbook.mig.taint_steps import KEY, TAINTED_BY
from gpuctl.runbook.records import Outcome
from tests.cluster import gpuctl
from tests.cluster.bed import Bed
from tests.cluster.bed.migworld import MigWorld, WorldNode
from tests.cluster.bed.simulated import gpu_node
from tests.cluster.bed.workloads import Workloads
from tests.cluster.lenient import lenient
from tests.cluster.operating import HALVES, SEVEN, SLICE, Caretaker, cordoned, login_of, marks, mig_world, raw

PLUGIN = "nvidia.com/gpu.deploy.device-plugin"
NAMESPACE = f"mig-ways-out-{secrets.token_hex(3)}"


@pytest.fixture(scope="module")
def world(bed: Bed) -> Iterator[MigWorld]:
    with mig_world(bed, NAMESPACE) as made:
        yield made


def person(node: WorldNode, book: str, state: str = NAMESPACE) -> Caretaker:
    """Who brings a node back. A change is stuck at once for them."""
    checks = ChecksPolicy(mig_consistency=MigConsistencyPolicy(stuck_minutes=0))
    policy = replace(lenient(), checks=checks)
    return Caretaker(login_of(node), state, policy, timeout=120, node=node, book=book)


def ask(node: WorldNode, config: str) -> None:
    node.world.bed.kubectl("label", "node", node.name, "--overwrite", f"{CONFIG}={config}")


def ours(node: WorldNode) -> list[str]:
    return [each["value"] for each in raw(node)["spec"].get("taints", []) if each["key"] == KEY]


def test_a_wedged_manager_is_started_anew(world: MigWorld) -> None:
    (node,) = world.add(gpu_node("out-wedged", profiles=[SEVEN]))
    node.wedge_at("wait-operands")
    ask(node, "all-3g.40gb")
    node.wait(lambda: "gave up" in "".join(node.logged[-1:]), "a wedge")
    assert (node.label(STATE), node.label(PLUGIN)) == ("pending", "paused-for-mig-change")
    operator = person(node, "mig-recover")
    manager = node.manager_life()

    ending = operator.apply()

    assert ending.outcome is Outcome.SUCCEEDED, (ending, operator.said)
    assert node.manager_life() not in ("", manager)
    assert node.layout == [HALVES]
    assert (node.label(STATE), node.label(PLUGIN)) == ("success", "true")
    assert node.capacity("mig-3g.40gb") == 2
    assert not cordoned(node)
    assert marks(node) == set()
    assert "nothing to recover" in operator.against()


def test_a_failed_manager_waits_for_the_gpu_to_be_free(world: MigWorld, work: Workloads) -> None:
    (node,) = world.add(gpu_node("out-failed", profiles=[SEVEN]))
    work.job("train", asks={SLICE: 1}, node=node.name)
    work.running("train")
    ask(node, "all-3g.40gb")
    node.ended("failed", "all-3g.40gb")
    operator = person(node, "mig-recover")
    assert "are in the way" in operator.against()
    work.bed.kubectl("-n", work.namespace, "delete", "job", "train", "--cascade=foreground")

    ending = operator.apply()

    assert ending.outcome is Outcome.SUCCEEDED, (ending, operator.said)
    assert node.layout == [HALVES]
    assert node.label(STATE) == "success"


@pytest.mark.slow
def test_one_that_fails_again_leaves_the_node_cordoned_and_undo_uncordons_it(world: MigWorld) -> None:
    (node,) = world.add(gpu_node("out-again", profiles=[SEVEN]))
    node.fail_at("apply", times=None)
    ask(node, "all-3g.40gb")
    node.ended("failed", "all-3g.40gb")
    operator = person(node, "mig-recover")
    ending = operator.apply()
    assert ending.outcome is Outcome.FAILED, (ending, operator.said)
    assert "failed again" in ending.why
    assert cordoned(node)
    assert operator.undo(ending.run).outcome is Outcome.REVERTED
    assert not cordoned(node)


def test_the_last_resort_gives_labels_back(world: MigWorld) -> None:
    (node,) = world.add(gpu_node("out-labels", profiles=[SEVEN]))
    node.wedge_at("wait-operands", times=None)
    ask(node, "all-3g.40gb")
    node.wait(lambda: "gave up" in "".join(node.logged[-1:]), "a wedge")
    operator = person(node, "mig-recover")
    paused = [name for name, text in node.labels.items() if text == "paused-for-mig-change"]
    assert "tells what" in operator.against(restore_labels=True)

    ending = operator.apply(restore_labels=True, was=tuple(f"{name}=true" for name in paused))

    assert ending.outcome is Outcome.SUCCEEDED, (ending, operator.said)
    assert {node.label(name) for name in paused} == {"true"}
    assert node.label(STATE) == "pending"  # of which the last resort makes no secret
    assert node.capacity("mig-1g.10gb") == 7
    assert not cordoned(node)


def test_a_stale_plugin_is_restarted(world: MigWorld) -> None:
    (node,) = world.add(gpu_node("out-stale", profiles=[SEVEN]))
    node.slice(HALVES)
    operator = person(node, "device-plugin-restart")
    plan = operator.plan()
    assert {"nvidia.com/mig-3g.40gb: 0 -> 2", f"{SLICE}: 7 -> 0"} <= set(plan.effects)

    ending = operator.apply()

    assert ending.outcome is Outcome.SUCCEEDED, (ending, operator.said)
    found = raw(node)["status"]
    for amounts in (found["capacity"], found["allocatable"]):
        assert (amounts["nvidia.com/mig-3g.40gb"], amounts[SLICE]) == ("2", "0")
    assert not cordoned(node)
    assert "nothing to do" in operator.against()


def test_a_node_is_tainted_until_it_is_as_labelled(world: MigWorld) -> None:
    (node,) = world.add(gpu_node("out-taint", profiles=[SEVEN]))
    operator = person(node, "taint-unmigged")
    assert operator.plan().steps == ()
    node.fail_at("apply")
    ask(node, "all-3g.40gb")
    node.ended("failed", "all-3g.40gb")

    ending = operator.apply()

    assert ending.outcome is Outcome.SUCCEEDED, (ending, operator.said)
    assert ours(node) == ["all-3g.40gb"]
    assert marks(node) == {TAINTED_BY}
    assert operator.apply(reconcile=True).outcome is Outcome.SUCCEEDED
    assert ours(node) == ["all-3g.40gb"]  # it is not right yet
    assert person(node, "mig-recover").apply().outcome is Outcome.SUCCEEDED
    assert operator.apply(reconcile=True).outcome is Outcome.SUCCEEDED
    assert ours(node) == []
    assert marks(node) == set()


@pytest.mark.slow
def test_by_the_command_line(world: MigWorld, tmp_path: Path) -> None:
    (node,) = world.add(gpu_node("out-cli", profiles=[SEVEN]))
    node.slice(HALVES)
    kubeconfig = world.bed.kubeconfig
    common = ("--probe-timeout", "90s", "--state-namespace", NAMESPACE)
    file = tmp_path / "plan.json"
    made = gpuctl.run(
        "plan", "device-plugin-restart", node.name, "--out", str(file), *common, kubeconfig=kubeconfig
    )
    assert made.returncode == 0, made.stdout + made.stderr
    assert "a restart has no undo" in made.stdout
    done = gpuctl.run("apply", str(file), "--yes", *common, kubeconfig=kubeconfig)
    assert done.returncode == 0, done.stdout + done.stderr
    assert node.capacity("mig-3g.40gb") == 2
