"""The stand-ins of MIG manager, device plugin and feature discovery: nodes on which MIG really changes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.bed import Bed
from tests.cluster.bed.api import Api, ApiError
from tests.cluster.bed.mig_manager import CONFIG, DEPLOY, FAILED, PAUSED, PENDING, STATE, SUCCESS, Step
from tests.cluster.bed.migworld import MigWorld, WorldNode
from tests.cluster.bed.simulated import GpuNode, SimulatedNodes, gpu_node
from tests.cluster.bed.workloads import Workloads
from tests.cluster.standins.state import A100

GPUCTL = str(Path(sys.executable).with_name("gpuctl"))
SEVEN = ["1g.10gb"] * 7
HALVES = ["3g.40gb"] * 2
WEDGING = (Step.WAIT, Step.VALIDATOR)
SLICE = "nvidia.com/mig-1g.10gb"
ONE = {SLICE: 1}


@pytest.fixture(scope="module")
def world(bed: Bed) -> Iterator[MigWorld]:
    with MigWorld(SimulatedNodes(bed)) as made:
        yield made


def sliced(name: str) -> GpuNode:
    return gpu_node(name, profiles=[SEVEN])


def ask(node: WorldNode, config: str) -> None:
    """What a person does by hand."""
    node.world.bed.kubectl("label", "node", node.name, "--overwrite", f"{CONFIG}={config}")


def ask_all(world: MigWorld, nodes: Sequence[WorldNode], config: str) -> None:
    names = [f"node/{node.name}" for node in nodes]
    world.bed.kubectl("label", *names, "--overwrite", f"{CONFIG}={config}")


def gpuctl(world: MigWorld, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "KUBECONFIG": str(world.bed.kubeconfig)}
    return subprocess.run([GPUCTL, *arguments], env=environment, capture_output=True, text=True, check=False)


def consistency(world: MigWorld, *arguments: str) -> dict[str, Any]:
    done = gpuctl(world, "check", "mig-consistency", "-o", "json", "--probe-timeout", "90s", *arguments)
    assert done.stdout, done.stderr
    (check,) = json.loads(done.stdout)["checks"]
    return dict(check)


def codes(check: dict[str, Any]) -> dict[str, set[str]]:
    """The codes found, by name of the node; what rides along left out."""
    found: dict[str, set[str]] = {}
    for assertion in check["assertions"]:
        for finding in assertion["findings"]:
            if finding["severity"] != "info":
                found.setdefault(finding["object"]["name"], set()).add(finding["code"])
    return found


def paused(node: WorldNode) -> set[str]:
    """The operands that are paused."""
    return {name.removeprefix(DEPLOY) for name, text in node.labels.items() if text == PAUSED}


# A change that goes well


def test_a_label_patched_by_hand_changes_the_node_in_mig_managers_order(world: MigWorld) -> None:
    (node,) = world.add(gpu_node("by-hand", profiles=[None, None]))
    old = {pod["metadata"]["uid"] for pod in node.pods_of("nvidia-device-plugin-daemonset")}
    seen: list[tuple[str, str, bool, bool, bool]] = []

    def look(step: Step) -> None:
        plugin = bool(node.pods_of("nvidia-device-plugin-daemonset"))
        sliced = node.layout != [None, None]
        seen.append((str(step), node.label(STATE), bool(paused(node)), plugin, sliced))

    for step in Step:
        node.before(step, lambda step=step: look(step))  # type: ignore[misc]
    ask(node, "all-1g.10gb")
    node.settled("all-1g.10gb")
    look(Step.DONE)
    assert seen == [
        ("read-labels", SUCCESS, False, True, False),
        ("valid-config", SUCCESS, False, True, False),
        ("assert", SUCCESS, False, True, False),
        ("assert-mode", SUCCESS, False, True, False),
        ("set-pending", SUCCESS, False, True, False),
        ("pause-operands", PENDING, False, True, False),
        ("wait-operands", PENDING, True, seen[6][3], False),
        ("stop-host-clients", PENDING, True, False, False),
        ("apply-mode", PENDING, True, False, False),
        ("apply", PENDING, True, False, True),  # MIG on, and empty
        ("cdi", PENDING, True, False, True),
        ("start-host-clients", PENDING, True, False, True),
        ("restart-validator", PENDING, True, False, True),
        ("resume-operands", PENDING, True, False, True),
        ("set-success", PENDING, False, seen[14][3], True),
        ("set-success", SUCCESS, False, True, True),
    ]
    assert node.layout == [SEVEN, SEVEN]
    assert (node.capacity("gpu"), node.capacity("mig-1g.10gb")) == (0, 14)
    assert node.label("nvidia.com/mig-1g.10gb.count") == "14"
    assert not old & {pod["metadata"]["uid"] for pod in node.pods_of("nvidia-device-plugin-daemonset")}
    shown = json.loads(
        gpuctl(world, "mig", "show", node.name, "-o", "json", "--probe-timeout", "90s").stdout
    )["nodes"]
    assert len(shown[0]["gpus"]) == 2
    done = gpuctl(world, "check", "mig-consistency", "--node", node.name, "--probe-timeout", "90s")
    assert done.returncode == 0, done.stdout


def test_what_is_applied_already_touches_no_pod(world: MigWorld) -> None:
    (node,) = world.add(sliced("applied"))
    node.write_labels({STATE: FAILED}, "test")
    before = sorted(pod["metadata"]["uid"] for pod in node.pods())
    node.restart_manager()
    node.settled()
    after = sorted(pod["metadata"]["uid"] for pod in node.pods())
    assert len(set(before) - set(after)) == 1  # MIG manager's own
    assert PENDING not in "".join(node.logged)


def test_only_a_change_of_the_label_wakes_it_and_what_came_in_between_is_lost(world: MigWorld) -> None:
    (node,) = world.add(sliced("triggers"))
    gate = node.stop_before("apply")
    ask(node, "all-3g.40gb")
    gate.reached()
    ask(node, "all-1g.20gb")
    ask(node, "all-7g.80gb")
    gate.open()
    node.settled("all-7g.80gb")
    assert [line for line in node.logged if "Updating" in line][1:] == [
        "Updating to MIG config: all-3g.40gb",
        "Updating to MIG config: all-7g.80gb",
    ]
    node.fail_at("apply")
    ask(node, "all-3g.40gb")
    node.ended(FAILED, "all-3g.40gb")
    ask(node, "all-3g.40gb")
    time.sleep(0.5)
    assert node.label(STATE) == FAILED
    node.restart_manager()
    node.settled("all-3g.40gb")
    assert node.layout == [HALVES]


@pytest.fixture(scope="module")
def twenty(world: MigWorld) -> tuple[list[WorldNode], float, float]:
    """Twenty nodes that were sliced anew at once, how long that took, and how much of this process's time."""
    nodes = world.add(*(sliced(f"many-{number:02}") for number in range(20)))
    used, started = time.process_time(), time.monotonic()
    ask_all(world, nodes, "all-3g.40gb")
    for node in nodes:
        node.settled("all-3g.40gb")
    return nodes, time.monotonic() - started, time.process_time() - used


def test_twenty_nodes_at_once_are_cheap(twenty: tuple[list[WorldNode], float, float]) -> None:
    nodes, took, used = twenty
    assert all(node.capacity("mig-3g.40gb") == 2 for node in nodes)
    assert used < took / 2  # of one processor; most of the work is the API server's


# A change that does not


@pytest.fixture(scope="module")
def faulty(
    world: MigWorld, twenty: tuple[list[WorldNode], float, float]
) -> tuple[dict[Step, WorldNode], dict[str, WorldNode]]:
    """A node for each step, which has failed there on the way from halves to slices; and the liars."""
    steps = [step for step in Step if step is not Step.APPLY_MODE]
    failing: dict[Step, WorldNode] = dict(zip(steps, twenty[0], strict=False))
    liars = dict(zip(("unchanged", "wrong", "capacity", "labels"), twenty[0][len(steps) :], strict=False))
    for step, node in failing.items():
        node.fail_at(step)
    for how, node in liars.items():
        node.lie(how, [["7g.80gb"]] if how == "wrong" else ())
    ask_all(world, [*failing.values(), *liars.values()], "all-1g.10gb")
    for step, node in failing.items():
        node.ended(PENDING if step in WEDGING else FAILED, "all-1g.10gb")
    for node in liars.values():
        node.settled("all-1g.10gb")
    return failing, liars


def test_a_step_that_fails_leaves_what_was_done_until_then(
    faulty: tuple[dict[Step, WorldNode], dict[str, WorldNode]],
) -> None:
    order = list(Step)
    for step, node in faulty[0].items():
        done = order.index(step)
        assert bool(paused(node)) is (step in WEDGING), step
        expected = HALVES if done < order.index(Step.APPLY) else [] if step is Step.APPLY else SEVEN
        assert node.layout == [expected], step
        if step not in WEDGING:
            node.wait(node.operands_run, "operands")


def test_the_check_names_each_fault_and_a_restart_of_mig_manager_heals_what_failed(
    world: MigWorld, faulty: tuple[dict[Step, WorldNode], dict[str, WorldNode]], tmp_path: Path
) -> None:
    policy = tmp_path / "gpuctl.yaml"
    policy.write_text("checks:\n  mig-consistency:\n    stuckMinutes: 0\n")
    failing, liars = faulty
    looked_at = (*(failing[step] for step in (Step.VALID, Step.WAIT, Step.APPLY)), *liars.values())
    names = ",".join(node.name for node in looked_at)
    scope = ("-l", f"kubernetes.io/hostname in ({names})", "--policy", str(policy))
    found = codes(consistency(world, *scope))
    valid, wait, apply, unchanged, wrong, capacity, labels = (found[node.name] for node in looked_at)
    assert valid == {"MIG001", "MIG015"}
    assert wait == {"MIG002"}
    assert apply == {"MIG001", "MIG011", "MIG015"}
    assert unchanged == wrong == {"MIG015"}
    assert "MIG007" in capacity
    assert "MIG006" in labels
    for node in failing.values():
        node.restart_manager()
    for node in failing.values():
        node.settled("all-1g.10gb")
        assert node.layout == [SEVEN]
    wedged = failing[Step.WAIT].name
    assert codes(consistency(world, "--node", wedged, "--policy", str(policy))) == {}


def test_a_wrong_name_and_a_profile_of_another_card_fail(world: MigWorld) -> None:
    name, card = world.add(sliced("no-such-name"), sliced("other-card"))
    ask(name, "all-9g.90gb")
    ask(card, "all-1g.5gb")
    name.ended(FAILED, "all-9g.90gb")
    card.ended(FAILED, "all-1g.5gb")
    assert (name.layout, card.layout) == ([SEVEN], [[]])
    assert "selected mig-config not present" in name.logged[-2]


def test_a_gpu_in_use_is_not_sliced_anew(world: MigWorld, work: Workloads) -> None:
    by_pod, by_process = world.add(sliced("used-by-pod"), sliced("used-by-process"))
    work.pod("holder", asks=ONE, node=by_pod.name)
    work.running("holder")
    by_pod.wait(lambda: by_pod.silicon.processes, "its process")
    by_process.hold(name="/usr/bin/python3")
    shown = world.nodes.nvidia_smi(
        by_process.name, "--query-compute-apps=pid,process_name,used_gpu_memory", "--format=csv,noheader"
    )
    assert shown == "4711, /usr/bin/python3, 512 MiB\n"
    ask_all(world, [by_pod, by_process], "all-3g.40gb")
    for node in (by_pod, by_process):
        node.ended(FAILED, "all-3g.40gb")
        assert "In use by another client" in "".join(node.logged)
        assert node.layout == [["1g.10gb"]]  # the held one; the others are gone
        assert not paused(node)
    by_process.let_go()
    work.bed.kubectl("-n", work.namespace, "delete", "pod", "holder")
    for node in (by_pod, by_process):
        node.wait(lambda node=node: not node.silicon.processes, "no process")  # type: ignore[misc]
        node.restart_manager()
        node.settled()
        assert node.layout == [HALVES]


def test_a_reboot(world: MigWorld) -> None:
    (node,) = world.add(sliced("reboots"))
    boot, started = node.boot_id, len(node.logged)
    node.reboot()
    assert node.boot_id != boot
    node.settled("all-1g.10gb")
    assert node.layout == [SEVEN]
    assert "pending" in "".join(node.logged[started:])  # it was sliced anew
    assert node.capacity("mig-1g.10gb") == 7


def test_a_mode_that_needs_a_reboot(world: MigWorld, work: Workloads) -> None:
    (node,) = world.add(gpu_node("with-reboot", model=A100, profiles=[None, None]), reboots=True)
    boot = node.boot_id
    node.hold(gpu=1)
    node.slow(5)  # so that nobody who looks misses the boot
    ask(node, "all-1g.5gb")
    node.until("rebooting")
    node.wait(lambda: not node.ready, "not Ready")
    node.slow(1)
    node.settled("all-1g.5gb")
    assert node.boot_id != boot
    assert node.layout == [["1g.5gb"] * 7] * 2


def test_a_preinstalled_driver_stops_the_kubelet_for_a_change_of_mode(world: MigWorld) -> None:
    (node,) = world.add(gpu_node("host-driver", profiles=[None]), host_driver=True)
    assert not node.pods_of("nvidia-driver-daemonset")
    gate = node.stop_before("apply")
    ask(node, "all-1g.10gb")
    gate.reached()
    node.wait(lambda: not node.ready, "not Ready", 1)
    gate.open()
    node.settled("all-1g.10gb")
    node.wait(lambda: node.ready, "Ready", 1)
    gate = node.stop_before("apply")
    ask(node, "all-3g.40gb")  # no change of mode
    gate.reached()
    assert node.ready
    gate.open()
    node.settled("all-3g.40gb")
    shown = json.loads(
        gpuctl(world, "mig", "show", node.name, "-o", "json", "--probe-timeout", "90s").stdout
    )["nodes"]
    assert shown[0]["gpus"]  # asked in MIG manager's pod


def test_without_mig_manager_the_label_says_nothing(world: MigWorld) -> None:
    (node,) = world.add(sliced("no-manager"))
    node.remove_manager()
    ask(node, "all-3g.40gb")
    time.sleep(1)
    assert (node.label(STATE), node.layout) == (SUCCESS, [SEVEN])
    node.restore_manager()
    node.settled("all-3g.40gb")
    assert node.layout == [HALVES]


def test_another_node_of_the_same_name(world: MigWorld) -> None:
    (old,) = world.add(sliced("replaced"))
    uid = (old.seen or {})["metadata"]["uid"]
    new = world.replace(gpu_node("replaced", profiles=[HALVES]))
    assert (new.seen or {})["metadata"]["uid"] != uid
    ask(new, "all-1g.10gb")
    new.settled("all-1g.10gb")
    assert new.layout == [SEVEN]
    assert "1g.10gb" in world.nodes.nvidia_smi("replaced", "-L")


# Pods on such nodes


def test_pods_are_evicted_as_everywhere(world: MigWorld, work: Workloads) -> None:
    (node,) = world.add(sliced("evictions"))
    work.deployment("web", replicas=2, asks=ONE, node=node.name)
    work.stateful_set("db", replicas=1, asks=ONE, node=node.name)
    work.job("train", asks=ONE, node=node.name)
    work.budget("web", min_available=2)
    first, _ = work.running("web", 2)
    (database,), (training,) = work.running("db"), work.running("train")
    node.wait(lambda: len(node.silicon.processes) == 4, "their processes")
    assert "429" in evict(work, first)
    work.budget("web", max_unavailable=1)
    assert evict(work, first) == ""
    assert first not in work.running("web", 2)
    world.bed.kubectl("cordon", node.name)
    assert evict(work, database) == ""
    assert evict(work, training) == ""
    world.bed.wait(lambda: phases(work, "db") == {"Pending"}, 30, "db-0 waiting")
    world.bed.wait(lambda: "Pending" in phases(work, "train"), 30, "another pod of train waiting")
    node.wait(lambda: len(node.silicon.processes) == 2, "the processes of those that are left")


def test_pods_that_do_not_heed_sigterm(world: MigWorld, work: Workloads) -> None:
    (node,) = world.add(sliced("manners"))
    work.pod("slow", asks=ONE, node=node.name, sigterm="ignored", grace=3)
    work.pod("stuck", asks=ONE, node=node.name, sigterm="hangs", grace=1)
    work.pod("good", asks=ONE, node=node.name)
    for name in ("slow", "stuck", "good"):
        work.running(name)
    started = time.monotonic()
    for name in ("slow", "stuck", "good"):
        assert evict(work, name) == ""
    for name in ("good", "slow"):
        world.bed.wait(lambda name=name: not work.pods(name), 60, f"the end of {name}")  # type: ignore[misc]
    assert time.monotonic() - started > 2  # the end of its grace
    node.wait(lambda: len(node.silicon.processes) == 1, "the process of the one that hangs")
    assert work.pods("stuck")
    work.release("stuck")
    world.bed.wait(lambda: not work.pods("stuck"), 60, "the end of what hung")
    node.wait(lambda: not node.silicon.processes, "no process")


def phases(work: Workloads, app: str) -> set[str]:
    return {pod["status"]["phase"] for pod in work.pods(app)}


def evict(work: Workloads, pod: str) -> str:
    """Through the Eviction API; what it said if it refused."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": work.namespace},
    }
    path = f"/api/v1/namespaces/{work.namespace}/pods/{pod}/eviction"
    try:
        Api(work.bed.control_plane).post(path, body)
    except ApiError as refused:
        return str(refused)
    return ""
