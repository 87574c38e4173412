"""mig-reconfigure against a real control plane, real evictions, and stand-ins of NVIDIA's programs."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuctl.nvidia.node import CONFIG, STATE
from gpuctl.runbook.conduct import Ending
from gpuctl.runbook.drain.cordon import CORDONED_BY
from gpuctl.runbook.mig.facts import SET_BY
from gpuctl.runbook.mig.reconfigure import RUNBOOK
from gpuctl.runbook.records import Direction, Outcome, Reached, Standing
from tests.cluster import gpuctl
from tests.cluster.bed import Bed
from tests.cluster.bed.migworld import MigWorld, WorldNode
from tests.cluster.bed.simulated import gpu_node
from tests.cluster.bed.workloads import Workloads
from tests.cluster.lenient import lenient_file
from tests.cluster.operating import HALVES, SEVEN, SLICE, Caretaker, leases, login_of, mig_world, raw
from tests.cluster.standins.state import A100

PATIENCE = 180  # seconds for a run in a thread to end
NAMESPACE = f"mig-runs-{secrets.token_hex(3)}"  # of this test's locks and journals
pytestmark = pytest.mark.usefixtures("quick_second_looks")


@pytest.fixture(scope="module")
def world(bed: Bed) -> Iterator[MigWorld]:
    with mig_world(bed, NAMESPACE) as made:
        made.add(gpu_node("mig-spare", profiles=[SEVEN]))  # so that no node is the last of its kind
        yield made


def person(node: WorldNode, timeout: float = 120) -> Caretaker:
    """Who changes the configuration of a node. `timeout`: of the change."""
    options = {"change_timeout": timeout, "drain_timeout": 60}
    return Caretaker(login_of(node), NAMESPACE, node=node, book=RUNBOOK.id, options=options)


def in_service(node: WorldNode, config: str) -> None:
    """Nothing is left of the run but what it is about."""
    found = raw(node)
    assert "unschedulable" not in found["spec"]
    assert CORDONED_BY not in found["metadata"]["annotations"]
    assert found["metadata"]["labels"][CONFIG] == config
    assert found["metadata"]["labels"][STATE] == "success"
    assert not leases(node, NAMESPACE)


def out_of_service(node: WorldNode) -> None:
    """Cordoned by the run, which keeps its lock."""
    found = raw(node)
    assert found["spec"]["unschedulable"] is True
    assert CORDONED_BY in found["metadata"]["annotations"]
    assert leases(node, NAMESPACE)


def ready_to_move(world: MigWorld, work: Workloads, node: WorldNode) -> None:
    """Pods on the node, of which a budget lets go one after the other, and which can run elsewhere."""
    spare = world.node("mig-spare")
    world.bed.kubectl("cordon", spare.name)
    try:
        work.deployment("web", replicas=2, asks={SLICE: 1})
        work.budget("web", max_unavailable=1)
        work.running("web", 2)
    finally:
        world.bed.kubectl("uncordon", spare.name)
    assert {each["spec"]["nodeName"] for each in work.pods("web")} == {node.name}


def begun(operator: Caretaker, config: str) -> tuple[threading.Thread, list[Ending]]:
    """A run in a thread of its own."""
    endings: list[Ending] = []
    plan = operator.plan(config=config)
    thread = threading.Thread(target=lambda: endings.append(operator.apply(plan, config=config)))
    thread.start()
    return thread, endings


# From a busy node to a verified one


def test_a_busy_node_is_drained_changed_verified_and_back_in_service(
    world: MigWorld, work: Workloads
) -> None:
    (node,) = world.add(gpu_node("mig-busy", profiles=[SEVEN]))
    ready_to_move(world, work, node)
    work.job("train", asks={SLICE: 1}, node=node.name)
    work.deployment("logs", asks={}, node=node.name)
    work.running("train")
    work.running("logs")
    operator = person(node)
    plan = operator.plan(config="all-3g.40gb")
    assert "gpu 0: 7x 1g.10gb -> 2x 3g.40gb" in plan.effects
    assert plan.bounds.evictions == 3
    assert plan.bounds.budgets == (f"{work.namespace}/web",)
    logs = work.running("logs")

    ending = operator.apply(plan, config="all-3g.40gb")

    assert ending == Ending(Outcome.SUCCEEDED, run=ending.run), operator.said
    in_service(node, "all-3g.40gb")
    assert node.layout == [HALVES]
    assert (node.capacity("mig-3g.40gb"), node.capacity("mig-1g.10gb")) == (2, 0)
    assert work.running("logs") == logs  # it held no GPU
    assert {each["spec"]["nodeName"] for each in work.pods("web")} == {"mig-spare"}
    journal = operator.run(ending.run)
    assert {step.reached for step in journal.steps} <= {Reached.DONE, Reached.UNDONE}
    assert journal.state is Standing.FINISHED

    blocked = operator.plan(config="all-3g.40gb")
    assert any("nothing to do" in each.message for each in blocked.blockers)


def test_by_the_command_line_and_back_again(world: MigWorld, tmp_path: Path) -> None:
    (node,) = world.add(gpu_node("mig-cli", profiles=[SEVEN]))
    policy, file = tmp_path / "gpuctl.yaml", tmp_path / "plan.json"
    policy.write_text(lenient_file())
    where = ("--policy", str(policy), "--state-namespace", NAMESPACE)

    def said(*arguments: str) -> str:
        done = gpuctl.run(*arguments, *where, kubeconfig=world.bed.kubeconfig)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def planned(config: str, *more: str) -> str:
        look = ("--probe-timeout", "90s", "--out", str(file))
        return said("plan", "mig-reconfigure", node.name, "--config", config, *look, *more)

    def applied() -> None:
        said("apply", str(file), "--yes", "--probe-timeout", "90s")

    assert "7x 1g.10gb -> 2x 3g.40gb" in planned("all-3g.40gb")
    assert node.label(CONFIG) == "all-1g.10gb"
    applied()
    in_service(node, "all-3g.40gb")
    assert node.layout == [HALVES]

    (run,) = [each for each in json.loads(said("runs", "-o", "json")) if each["target"] == node.name]
    options = RUNBOOK.reverse(person(node).run(run["id"]))
    assert options is not None
    assert options["config"] == "all-1g.10gb"
    assert "2x 3g.40gb -> 7x 1g.10gb" in planned(options["config"], "--last-node")
    applied()
    in_service(node, "all-1g.10gb")
    assert node.layout == [SEVEN]


# What goes wrong


def test_a_failed_change_is_named_and_undone_by_the_same_road(world: MigWorld) -> None:
    (node,) = world.add(gpu_node("mig-failed", profiles=[SEVEN]))
    node.fail_at("apply")
    operator = person(node)
    ending = operator.apply(config="all-3g.40gb")
    assert ending.outcome is Outcome.FAILED
    assert "MIG manager failed to apply all-3g.40gb" in ending.why
    out_of_service(node)
    assert operator.run(ending.run).at.startswith("follow MIG manager")

    undone = person(node).undo(ending.run)
    assert undone.outcome is Outcome.REVERTED, undone
    in_service(node, "all-1g.10gb")
    assert node.layout == [SEVEN]
    assert SET_BY not in raw(node)["metadata"]["annotations"]
    assert person(node).run(ending.run).direction is Direction.BACK


def test_a_wedged_manager_is_named_and_its_way_out_taken(world: MigWorld) -> None:
    (node,) = world.add(gpu_node("mig-wedged", profiles=[SEVEN]))
    node.wedge_at("wait-operands")
    operator = person(node, timeout=45)
    ending = operator.apply(config="all-3g.40gb")
    assert ending.outcome in (Outcome.FAILED, Outcome.TIMED_OUT)
    assert "delete pod nvidia-mig-manager" in ending.why
    assert "wedged" in ending.why
    out_of_service(node)

    node.restart_manager()
    resumed = person(node).go_on(ending.run)
    assert resumed.outcome is Outcome.SUCCEEDED, resumed
    in_service(node, "all-3g.40gb")


def test_success_over_other_hardware_is_no_success(world: MigWorld) -> None:
    (node,) = world.add(gpu_node("mig-liar", profiles=[SEVEN]))
    node.lie("unchanged")
    operator = person(node)
    ending = operator.apply(config="all-3g.40gb")
    assert ending.outcome is Outcome.FAILED
    assert "says success" in ending.why
    out_of_service(node)

    node.honest()
    undone = person(node).undo(ending.run)
    assert undone.outcome is Outcome.REVERTED, undone
    in_service(node, "all-1g.10gb")


@pytest.mark.parametrize("how", ["capacity", "labels"])
def test_success_that_only_the_silicon_knows_of_is_no_success(world: MigWorld, how: str) -> None:
    (node,) = world.add(gpu_node(f"mig-lies-{how}", profiles=[SEVEN]))
    node.lie(how)
    operator = person(node, timeout=45)
    ending = operator.apply(config="all-3g.40gb")
    assert ending.outcome is Outcome.TIMED_OUT
    assert "verify that nvidia-smi, labels, capacity" in ending.why
    out_of_service(node)
    operator.give_up(ending.run)


def test_a_slow_manager_is_waited_for(world: MigWorld) -> None:
    (node,) = world.add(gpu_node("mig-slow", profiles=[SEVEN]))
    node.slow(8)
    ending = person(node).apply(config="all-3g.40gb")
    assert ending.outcome is Outcome.SUCCEEDED, ending


def test_the_kubelet_is_stopped_for_a_change_of_mode(world: MigWorld, work: Workloads) -> None:
    (node,) = world.add(gpu_node("mig-host", profiles=[None]), host_driver=True)
    work.deployment("logs", asks={}, node=node.name)
    work.running("logs")
    operator = person(node)
    options: dict[str, Any] = {"last_replica": True, "last_node": True}
    plan = operator.plan(config="all-1g.10gb", **options)
    assert "all pods of the node must go" in plan.effects
    assert plan.preconditions["driver"] == "host"
    ending = operator.apply(plan, config="all-1g.10gb", **options)
    assert ending.outcome is Outcome.SUCCEEDED, ending
    in_service(node, "all-1g.10gb")
    assert node.layout == [SEVEN]


def test_a_reboot_is_followed(world: MigWorld) -> None:
    (node,) = world.add(gpu_node("mig-reboots", model=A100, profiles=[None]), reboots=True)
    node.before("apply-mode", node.hold)  # which keeps the mode from taking effect at once
    before = node.boot_id
    operator = person(node)
    ending = operator.apply(config="all-1g.5gb", last_node=True)
    assert ending.outcome is Outcome.SUCCEEDED, (ending, node.logged)
    assert node.boot_id != before
    in_service(node, "all-1g.5gb")


def test_a_process_that_no_pod_explains_can_t_be_overridden(world: MigWorld) -> None:
    (node,) = world.add(gpu_node("mig-held", profiles=[SEVEN]))
    node.hold()
    found = person(node).plan(config="all-3g.40gb").blockers
    assert ["that no pod explains" in each.message and not each.override for each in found] == [True]


def test_a_pod_bound_behind_the_cordon_hampers_change_and_undo(world: MigWorld, work: Workloads) -> None:
    (node,) = world.add(gpu_node("mig-intruder", profiles=[SEVEN]))
    gate = node.stop_before("apply")
    operator = person(node)
    thread, endings = begun(operator, "all-3g.40gb")
    gate.reached()
    work.pod("intruder", asks={SLICE: 1}, node=node.name, bound=True)
    work.running("intruder")
    gate.open()
    thread.join(PATIENCE)
    (ending,) = endings
    assert ending.outcome is Outcome.FAILED
    assert "MIG manager failed to apply" in ending.why
    hampered = person(node).undo(ending.run)
    assert hampered.outcome is Outcome.FAILED
    assert f"in use by {work.namespace}/intruder" in hampered.why
    out_of_service(node)

    world.bed.kubectl("-n", work.namespace, "delete", "pod", "intruder")
    undone = person(node).undo(ending.run)
    assert undone.outcome is Outcome.REVERTED, undone
    in_service(node, "all-1g.10gb")
    assert node.layout == [SEVEN]


def test_a_process_that_no_pod_explains_hampers_the_undo(world: MigWorld) -> None:
    (node,) = world.add(gpu_node("mig-held-back", profiles=[SEVEN]))
    node.fail_at("apply")
    ending = person(node).apply(config="all-3g.40gb")
    assert ending.outcome is Outcome.FAILED
    node.hold()
    hampered = person(node).undo(ending.run)
    assert hampered.outcome is Outcome.FAILED
    assert "that no pod explains holds a GPU" in hampered.why
    assert raw(node)["metadata"]["labels"][CONFIG] == "all-3g.40gb", "nothing is asked for"
    out_of_service(node)

    node.let_go()
    undone = person(node).undo(ending.run)
    assert undone.outcome is Outcome.REVERTED, undone
    in_service(node, "all-1g.10gb")


def test_the_label_changed_by_another_stops_the_run(world: MigWorld) -> None:
    (node,) = world.add(gpu_node("mig-foreign", profiles=[SEVEN]))
    gate = node.stop_before("apply")
    operator = person(node)
    thread, endings = begun(operator, "all-3g.40gb")
    gate.reached()
    world.bed.kubectl("label", "node", node.name, "--overwrite", f"{CONFIG}=all-2g.20gb")
    thread.join(PATIENCE)
    gate.open()
    (ending,) = endings
    assert ending.outcome is Outcome.FAILED
    assert f"somebody else set {CONFIG} of node {node.name} to all-2g.20gb" in ending.why

    undone = person(node).undo(ending.run)
    assert undone.outcome is Outcome.REVERTED, undone
    in_service(node, "all-2g.20gb")  # which is not this run's to take back


def test_an_uncordon_in_the_middle_stops_the_run(world: MigWorld) -> None:
    (node,) = world.add(gpu_node("mig-uncordoned", profiles=[SEVEN]))
    gate = node.stop_before("apply")
    operator = person(node)
    thread, endings = begun(operator, "all-3g.40gb")
    gate.reached()
    world.bed.kubectl("uncordon", node.name)
    thread.join(PATIENCE)
    gate.open()
    (ending,) = endings
    assert ending.outcome is Outcome.FAILED
    assert "somebody else is at work" in ending.why
    assert "unschedulable" not in raw(node)["spec"]
    operator.give_up(ending.run)


@pytest.mark.parametrize("back", [False, True])
def test_an_interrupted_run_goes_on_or_back(world: MigWorld, back: bool) -> None:
    (node,) = world.add(gpu_node(f"mig-stopped-{str(back).lower()}", profiles=[SEVEN]))
    gate = node.stop_before("apply")
    operator = person(node)
    thread, endings = begun(operator, "all-3g.40gb")
    gate.reached()
    operator.stop.set()
    thread.join(PATIENCE)
    (ending,) = endings
    assert ending.outcome is Outcome.CANCELLED
    out_of_service(node)
    gate.open()

    again = person(node).go_on(ending.run, back=back)
    assert again.outcome is (Outcome.REVERTED if back else Outcome.SUCCEEDED), again
    in_service(node, "all-1g.10gb" if back else "all-3g.40gb")
    assert node.layout == [SEVEN if back else HALVES]
