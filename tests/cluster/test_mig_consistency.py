"""mig-consistency on a real control plane: by exec, by debug pods, of which nothing is left."""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.builders.gpus import CONFIG, OPERANDS, SEVEN, config_map, operand_set, pod
from tests.cluster.bed import Bed, build
from tests.cluster.bed.simulated import NAMESPACE, GpuNode, SimulatedNodes, gpu_node
from tests.cluster.standins import faults, nvidia_smi
from tests.cluster.standins.state import A100, H100, Gpu

GPUCTL = str(Path(sys.executable).with_name("gpuctl"))
PROBES = "gpuctl-probes"
IMAGE = "localhost/busybox:1"
PREFIX = "nvidia.com/"
LONG = 600


def gpuctl(kubeconfig: Path, *arguments: str, code: int | None = None) -> subprocess.CompletedProcess[str]:
    """The program, as a person runs it."""
    done = subprocess.run(
        [GPUCTL, *arguments],
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        capture_output=True,
        text=True,
        check=False,
    )
    if code is not None:
        assert done.returncode == code, done.stdout + done.stderr
    return done


def report(kubeconfig: Path, *arguments: str) -> dict[str, Any]:
    """The check as JSON."""
    done = gpuctl(kubeconfig, "check", "mig-consistency", "-o", "json", "--probe-timeout", "90s", *arguments)
    assert done.stdout, done.stderr
    (check,) = json.loads(done.stdout)["checks"]
    return dict(check)


def codes(check: dict[str, Any]) -> dict[str, set[str]]:
    """The codes found, by name of object; what rides along left out."""
    by_name: dict[str, set[str]] = {}
    for assertion in check["assertions"]:
        for finding in assertion["findings"]:
            if finding["severity"] != "info":
                by_name.setdefault(finding["object"]["name"], set()).add(finding["code"])
    return by_name


def verdicts(check: dict[str, Any]) -> dict[str, str]:
    return {assertion["id"]: assertion["verdict"] for assertion in check["assertions"]}


def labelled(node: GpuNode, labels: dict[str, str | None]) -> GpuNode:
    return replace(node, extra={**node.extra, **{PREFIX + name: text for name, text in labels.items()}})


def offering(node: GpuNode, **counts: int | None) -> GpuNode:
    resources = {PREFIX + name.replace("__", ".").replace("_", "-"): count for name, count in counts.items()}
    return replace(node, resources=resources)


def silicon(node: GpuNode, *gpus: Gpu) -> GpuNode:
    """A node whose GPUs are others than its labels and capacity say."""
    fresh = replace(node, state=replace(node.state, gpus=gpus))
    labels: dict[str, str | None] = dict(node.labels)
    extra = {name: labels.get(name) for name in {*fresh.labels, *labels} if name.startswith(PREFIX)}
    kept = {name: int(count) for name, count in node.capacity.items() if name.startswith(PREFIX)}
    gone = {name: None for name in fresh.capacity if name.startswith(PREFIX) and name not in kept}
    return replace(fresh, extra=extra, resources={**gone, **kept})


def pairs() -> dict[str, tuple[GpuNode, set[str], GpuNode]]:
    """By name: a faulty node, its codes, and the same node slightly changed."""

    def sliced(name: str, **changes: Any) -> GpuNode:
        return gpu_node(name, profiles=[SEVEN], **{"config": "all-1g.10gb", **changes})

    def off(name: str, count: int = 2) -> GpuNode:
        return gpu_node(name, profiles=[None] * count)

    def using(name: str, mebibytes: int) -> GpuNode:
        node = sliced(name)
        gpu = H100.gpu(0, SEVEN, node=name, used={"9": mebibytes})
        return replace(node, state=replace(node.state, gpus=(gpu,)))

    def pending(name: str, index: int, mode: str) -> Gpu:
        return replace(H100.gpu(index, None, node=name), mig_pending=mode)

    return {
        "failed": (
            labelled(sliced("failed-bad"), {"mig.config.state": "failed"}),
            {"MIG001"},
            sliced("failed-good"),
        ),
        "invalid": (
            gpu_node("invalid-bad", strategy="single", profiles=[SEVEN, None], config="first-only"),
            {"MIG005", "MIG014", "MIG015"},
            gpu_node("invalid-good", strategy="single", profiles=[SEVEN, SEVEN], config="all-1g.10gb"),
        ),
        "labels": (
            labelled(sliced("labels-bad"), {"mig-1g.10gb.count": "2"}),
            {"MIG006"},
            labelled(sliced("labels-good"), {"mig-1g.10gb.count": "7"}),
        ),
        "capacity": (
            offering(sliced("capacity-bad"), mig_1g__10gb=3),
            {"MIG007"},
            offering(sliced("capacity-good"), mig_1g__10gb=7),
        ),
        "stale": (
            offering(sliced("stale-bad"), mig_2g__20gb=3),
            {"MIG009"},
            offering(sliced("stale-good"), mig_2g__20gb=0),
        ),
        "pending": (
            silicon(
                off("pending-bad"),
                pending("pending-bad", 0, "Disabled"),
                pending("pending-bad", 1, "Enabled"),
            ),
            {"MIG010"},
            off("pending-good"),
        ),
        "empty": (
            gpu_node("empty-bad", profiles=[[]], config="all-balanced"),
            {"MIG011", "MIG015"},
            gpu_node("empty-good", profiles=[[]], config="all-enabled"),
        ),
        "no-ci": (
            gpu_node("no-ci-bad", profiles=[["0c.3g.40gb"]], config="custom"),
            {"MIG012"},
            gpu_node("no-ci-good", profiles=[["3g.40gb"]], config="custom"),
        ),
        "part": (
            gpu_node("part-bad", profiles=[["1c.3g.40gb"]], config="custom"),
            {"MIG013"},
            gpu_node("part-good", profiles=[["3g.40gb"]], config="custom"),
        ),
        "config": (
            sliced("config-bad", config="all-3g.40gb"),
            {"MIG015"},
            gpu_node("config-good", profiles=[["3g.40gb", "3g.40gb"]], config="all-3g.40gb"),
        ),
        "name": (
            labelled(sliced("name-bad"), {"mig.config": "all-1g.12gb"}),
            {"MIG016"},
            sliced("name-good"),
        ),
        "card": (
            gpu_node("card-bad", profiles=[[]], config="all-1g.5gb"),
            {"MIG011", "MIG017"},
            gpu_node("card-good", model=A100, profiles=[["1g.5gb"] * 7], config="all-1g.5gb"),
        ),
        "lost": (
            silicon(off("lost-bad", 4), *(H100.gpu(index, None, node="lost-bad") for index in range(3))),
            {"MIG020", "MIG007"},
            off("lost-good", 4),
        ),
        "driver": (
            sliced("driver-bad").failing(faults.DRIVER_DOWN),
            {"MIG021"},
            sliced("driver-good").failing(faults.EXIT_6),
        ),
        "mps": (
            labelled(sliced("mps-bad"), {"mig-1g.10gb.sharing-strategy": "mps", "mps.capable": "true"}),
            {"MIG024"},
            offering(
                labelled(
                    sliced("mps-good"),
                    {"mig-1g.10gb.sharing-strategy": "time-slicing", "mig-1g.10gb.replicas": "2"},
                ),
                mig_1g__10gb=14,
            ),
        ),
        "unhealthy": (sliced("unhealthy-bad"), {"MIG008"}, sliced("unhealthy-good")),
        "hand": (
            labelled(gpu_node("hand-bad", strategy="none"), {"mig-1g.5gb.count": "7"}),
            {"MIG018"},
            gpu_node("hand-good", strategy="none"),
        ),
        "manager": (
            labelled(sliced("manager-bad"), {"gpu.deploy.mig-manager": "false"}),
            {"MIG019"},
            labelled(off("manager-good"), {"gpu.deploy.mig-manager": "false"}),
        ),
        "memory": (using("memory-bad", 12000), {"MIG033"}, using("memory-good", 9984)),
        "me": (
            sliced("me-bad", config="with-media"),
            {"MIG015"},
            gpu_node("me-good", profiles=[["1g.10gb+me", *["1g.10gb"] * 6]], config="with-media"),
        ),
    }  # fmt: skip


@pytest.fixture(scope="module")
def nodes(bed: Bed) -> Iterator[SimulatedNodes]:
    """Simulated nodes for this module, with the DaemonSets and the configurations of the GPU operator."""
    simulated = SimulatedNodes(bed)
    yield simulated
    simulated.remove()


@pytest.fixture(scope="module")
def fleet(bed: Bed, nodes: SimulatedNodes) -> dict[str, tuple[GpuNode, set[str], GpuNode]]:
    """Every pair of nodes, with all operands running."""
    made = pairs()
    nodes.add(*(node for bad, _, good in made.values() for node in (bad, good)), timeout=300)
    serve(bed)
    unhealthy = {"status": {"allocatable": {"nvidia.com/mig-1g.10gb": "6"}}}
    patch = ("patch", "node", "unhealthy-bad", "--subresource=status", "--type=merge", "-p")
    bed.kubectl(*patch, json.dumps(unhealthy))
    wanted = sum(
        node.labels.get(f"{PREFIX}gpu.deploy.{name}") == "true"
        for bad, _, good in made.values()
        for node in (bad, good)
        for name in OPERANDS
        if name != "driver"
    )
    bed.wait(lambda: operand_pods(bed) >= wanted, 300, "pods of the operands")
    return made


def serve(bed: Bed) -> None:
    """The operator's DaemonSets beside the driver's, and MIG manager's configurations."""
    sets = [runnable(operand_set(name)) for name in OPERANDS if name != "driver"]
    items = {"apiVersion": "v1", "kind": "List", "items": [*sets, config_map(CONFIG)]}
    bed.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(items))


def runnable(operand: dict[str, Any]) -> dict[str, Any]:
    """A DaemonSet that the API server takes; simulated nodes alone run it."""
    template = operand["spec"]["template"]
    selector = {"matchLabels": template["metadata"]["labels"]}
    spec = {
        **template["spec"],
        "nodeSelector": {**template["spec"]["nodeSelector"], "gpuctl-bed/simulated-gpu-node": ""},
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "operand", "image": IMAGE}],
    }
    return {**operand, "spec": {"selector": selector, "template": {**template, "spec": spec}}}


def operand_pods(bed: Bed) -> int:
    listed = json.loads(bed.kubectl("get", "pods", "-n", NAMESPACE, "-o", "json"))["items"]
    return sum(
        pod["status"].get("phase") == "Running" and pod["metadata"]["labels"].get("app") in OPERANDS.values()
        for pod in listed
        if pod["metadata"]["labels"].get("app") != OPERANDS["driver"]
    )


@pytest.mark.timeout(LONG)
def test_each_state_is_found_by_its_code_and_the_same_slightly_changed_is_silent(
    bed: Bed, fleet: dict[str, tuple[GpuNode, set[str], GpuNode]]
) -> None:
    selector = ("-l", "gpuctl-bed/simulated-gpu-node")
    found = codes(report(bed.kubeconfig, "--probe", "exec", "--deadline", "300s", *selector))
    wanted = {bad.name: expected for bad, expected, _ in fleet.values()}
    # the kubelet may keep names for six minutes, and the plugin pods are younger than that
    wanted["stale-bad"] = set()
    assert {name: found.get(name, set()) for name in wanted} == wanted
    assert {good.name: found.get(good.name, set()) for _, _, good in fleet.values()} == {
        good.name: set() for _, _, good in fleet.values()
    }


@pytest.mark.timeout(LONG)
def test_a_snapshot_gives_the_same_findings_as_the_live_run(
    bed: Bed, fleet: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "snapshot"
    # the plugin pods are young here, and of a snapshot one read counts only after six quiet minutes
    scope = ("--node", "failed-bad", "--node", "name-bad", "--node", "mps-bad", "--node", "me-good")
    live = report(bed.kubeconfig, "--save", str(path), *scope)
    replayed = report(bed.kubeconfig, "--from", str(path), *scope)
    assert fingerprints(live) == fingerprints(replayed)
    assert fingerprints(live)
    assert (path / "nodes" / "me-good" / "nvidia-smi-L.txt").read_text().startswith("GPU 0:")


def make_namespace(bed: Bed, name: str) -> None:
    """A namespace in which pods can be made: not before it has its account."""
    bed.kubectl("create", "namespace", name)
    there = ("-n", name, "get", "serviceaccount", "--ignore-not-found", "default")
    bed.wait(lambda: bool(bed.kubectl(*there)), 60, f"the account of namespace {name}")


@pytest.fixture
def team(bed: Bed) -> Iterator[str]:
    """A namespace for pods."""
    make_namespace(bed, "mig-team")
    yield "mig-team"
    bed.kubectl("delete", "namespace", "mig-team", "--wait=false")


@pytest.mark.timeout(LONG)
def test_pods_that_see_hold_and_wait_for_what_they_should_not(
    bed: Bed, fleet: dict[str, Any], team: str
) -> None:
    node = "capacity-good"
    pods = [
        pod("sees-bad", node, env={"NVIDIA_VISIBLE_DEVICES": "all"}, namespace=team),
        pod("sees-good", node, env={"NVIDIA_VISIBLE_DEVICES": "void"}, namespace=team),
        pod("holds-bad", node, asks={"nvidia.com/mig-3g.40gb": 1}, namespace=team),
        pod("holds-good", node, asks={"nvidia.com/mig-1g.10gb": 1}, namespace=team),
        pod("waits-bad", "", asks={"nvidia.com/A100-40GB-MIG-1g.5gb": 1}, namespace=team),
        pod("waits-good", "", asks={"nvidia.com/mig-1g.10gb": 1}, namespace=team),
    ]
    bed.kubectl("apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}))
    holding = ("sees-bad", "sees-good", "holds-bad", "holds-good")
    bed.kubectl("-n", team, "wait", "--for=jsonpath={.status.phase}=Running", "--timeout=120s",
                *(f"pod/{name}" for name in holding))  # fmt: skip
    found = codes(report(bed.kubeconfig, "--node", node, "--probe", "none"))
    assert {name: found.get(name, set()) for name in ("sees-bad", "holds-bad", "waits-bad")} == {
        "sees-bad": {"MIG023"},
        "holds-bad": {"MIG022"},
        "waits-bad": {"MIG032"},
    }
    assert not {name for name in found if name.endswith("-good")}


def fingerprints(check: dict[str, Any]) -> set[str]:
    return {finding["fingerprint"] for assertion in check["assertions"] for finding in assertion["findings"]}


def test_a_hung_nvidia_smi_costs_its_own_node_only(bed: Bed, nodes: SimulatedNodes) -> None:
    slow = gpu_node("slow", profiles=[None]).failing(faults.hang(60))
    quick = gpu_node("quick", profiles=[None])
    nodes.add(slow, quick)
    started = time.monotonic()
    done = gpuctl(bed.kubeconfig, "mig", "show", "-o", "json", "--probe-timeout", "25s", "-l",
                  "kubernetes.io/hostname in (slow,quick)")  # fmt: skip
    took = time.monotonic() - started
    shown = {node["name"]: node for node in json.loads(done.stdout)["nodes"]}
    assert shown["quick"]["gpus"]
    assert not shown["slow"]["gpus"]
    assert shown["slow"]["unknown"]
    assert took < 55, "less than nvidia-smi hangs"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_hundred_nodes_are_looked_into_in_one_wave(bed: Bed, nodes: SimulatedNodes) -> None:
    """Each of them takes ten seconds for -L alone, so one after the other would take a quarter of an hour."""
    slow = faults.hang(10, on="^-L$")
    many = [gpu_node(f"wave-{number:03}", profiles=[None]).failing(slow) for number in range(100)]
    nodes.add(*many, timeout=600)
    started = time.monotonic()
    names = ",".join(node.name for node in many)
    limits = ("--probe-timeout", "240s", "--deadline", "300s")
    scope = ("-l", f"kubernetes.io/hostname in ({names})")
    done = gpuctl(bed.kubeconfig, "mig", "show", "-o", "json", *limits, *scope)
    took = time.monotonic() - started
    shown = json.loads(done.stdout)["nodes"]
    assert {node["name"]: node["unknown"] for node in shown if not node["gpus"]} == {}
    assert len(shown) == 100
    assert took < 300, took


# The real node


@pytest.fixture(scope="module")
def probes(bed: Bed) -> Iterator[None]:
    """The namespace of debug pods. Whether privileged ones may be there is for each test to say."""
    make_namespace(bed, PROBES)
    yield
    bed.kubectl("delete", "namespace", PROBES, "--wait=false")


@pytest.fixture
def worker(bed: Bed, probes: None) -> Iterator[str]:
    """The real node as a GPU node: labels, capacity, and a stand-in for nvidia-smi on its host."""
    node = gpu_node(bed.node, profiles=[SEVEN], config="all-1g.10gb")
    state = bed.host / nvidia_smi.STATE.lstrip("/")
    node.state.write(state)
    labels = {name: text for name, text in node.labels.items() if name.startswith(PREFIX)}
    bed.kubectl(
        "label", "node", bed.node, "--overwrite", *(f"{name}={text}" for name, text in labels.items())
    )
    offer(bed, {name: count for name, count in node.capacity.items() if name.startswith(PREFIX)})
    bed.kubectl("label", "namespace", PROBES, "--overwrite", "pod-security.kubernetes.io/enforce=privileged")
    yield bed.node
    bed.kubectl("label", "node", bed.node, *(f"{name}-" for name in labels))
    offer(bed, {name: None for name in node.capacity if name.startswith(PREFIX)})
    bed.kubectl("-n", PROBES, "delete", "pods", "--all")
    state.unlink()


def offer(bed: Bed, amounts: dict[str, Any]) -> None:
    patch = json.dumps({"status": {"capacity": amounts, "allocatable": amounts}})
    bed.kubectl("patch", "node", bed.node, "--subresource=status", "--type=merge", "-p", patch)


DEBUG = ("--probe", "debug", "--probe-namespace", PROBES, "--probe-image", IMAGE)


def debug_pods(bed: Bed) -> list[str]:
    listed = bed.kubectl("get", "pods", "-A", "-l", "app.kubernetes.io/managed-by=gpuctl", "-o", "json")
    return [pod["metadata"]["name"] for pod in json.loads(listed)["items"]]


def test_a_debug_pod_looks_into_the_real_node_and_is_gone(bed: Bed, worker: str) -> None:
    check = report(bed.kubeconfig, "--node", worker, *DEBUG)
    assert verdicts(check)["true-capacity"] == "pass"
    assert debug_pods(bed) == []
    offer(bed, {"nvidia.com/mig-1g.10gb": "5"})
    assert "MIG007" in codes(report(bed.kubeconfig, "--node", worker, *DEBUG))[worker]
    assert debug_pods(bed) == []


def test_without_a_word_no_pod_is_made(bed: Bed, worker: str) -> None:
    check = report(bed.kubeconfig, "--node", worker)
    assert verdicts(check)["true-capacity"] == "not-proven"
    assert verdicts(check)["kept-promises"] == "pass"
    assert debug_pods(bed) == []


def test_exec_into_a_driver_pod_of_the_real_kubelet(bed: Bed, worker: str) -> None:
    labels = {"app.kubernetes.io/component": "nvidia-driver"}
    driver = on_the_host(worker, "driver", labels, ["sleep", "3600"])
    bed.kubectl("apply", "-f", "-", input=json.dumps(driver))
    bed.kubectl("-n", PROBES, "wait", "--for=condition=Ready", "pod/driver", "--timeout=60s")
    check = report(bed.kubeconfig, "--node", worker, "--probe", "exec")
    assert verdicts(check)["true-capacity"] == "pass"
    assert verdicts(check)["kept-memory"] == "pass"


@pytest.mark.parametrize(("answer", "verdict"), [(b"y\n", "pass"), (b"n\n", "not-proven")])
def test_on_a_terminal_the_person_is_asked_once(
    bed: Bed, worker: str, tmp_path: Path, answer: bytes, verdict: str
) -> None:
    terminal, its = pty.openpty()
    file = tmp_path / "report.json"
    limits = ("--probe-timeout", "90s", "--deadline", "240s", *DEBUG[2:])
    running = subprocess.Popen(
        [GPUCTL, "check", "mig-consistency", "--node", worker, "-o", f"json={file}", *limits],
        env={**os.environ, "KUBECONFIG": str(bed.kubeconfig), "TERM": "dumb"},
        stdin=its, stdout=its, stderr=its,
    )  # fmt: skip
    os.close(its)
    shown = on_the_terminal(terminal, b"to agree", 90)
    assert debug_pods(bed) == []
    os.write(terminal, answer)
    shown += on_the_terminal(terminal, b"\x00", 180)
    running.wait(60)
    os.close(terminal)
    assert shown.count(b"1 node has no pod with nvidia-smi") == 1, shown
    assert verdicts(json.loads(file.read_text())["checks"][0])["true-capacity"] == verdict
    assert debug_pods(bed) == []


def on_the_terminal(terminal: int, until: bytes, seconds: float) -> bytes:
    """What a terminal shows, up to some words or the end of who writes."""
    shown = b""
    ends = time.monotonic() + seconds
    while until not in shown and time.monotonic() < ends:
        ready, _, _ = select.select([terminal], [], [], 0.2)
        try:
            shown += os.read(terminal, 4096) if ready else b""
        except OSError:
            break
    return shown


SLICES = "gpuctl.dev/mig-slice"


@pytest.fixture
def device_plugin(bed: Bed, worker: str) -> Iterator[None]:
    """A device plugin on the real kubelet, with the slices of the stand-in: under a name of its own, for the
    kubelet goes on reporting a name when its plugin is gone."""
    build.ensure((build.DEVICE_PLUGIN,))
    program = bed.host / "var/tmp/device-plugin"
    shutil.copy(build.DEVICE_PLUGIN.binary(), program)
    uuids = uuids_of(gpu_node(worker, profiles=[SEVEN]))
    command = ["chroot", "/host", "/var/tmp/device-plugin", SLICES, *uuids]
    bed.kubectl("apply", "-f", "-", input=json.dumps(on_the_host(worker, "plugin", {}, command)))
    bed.wait(lambda: offered(bed, worker) == str(len(uuids)), 60, "the plugin's devices")
    yield
    program.unlink()


def uuids_of(node: GpuNode) -> list[str]:
    return [
        each.uuid
        for gpu in node.state.gpus
        for instance in gpu.instances
        for each in instance.compute_instances
    ]


def offered(bed: Bed, node: str) -> str:
    status = json.loads(bed.kubectl("get", "node", node, "-o", "json"))["status"]
    return str(status["allocatable"].get(SLICES, ""))


def on_the_host(node: str, name: str, labels: dict[str, str], command: list[str]) -> dict[str, Any]:
    """A privileged pod with the host's root."""
    container = {
        "name": "nvidia-driver-ctr",
        "image": IMAGE,
        "command": command,
        "securityContext": {"privileged": True},
        "volumeMounts": [{"name": "host", "mountPath": "/host"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": PROBES, "labels": labels},
        "spec": {
            "nodeName": node,
            "tolerations": [{"operator": "Exists"}],
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
            "volumes": [{"name": "host", "hostPath": {"path": "/"}}],
        },
    }


@pytest.mark.timeout(LONG)
def test_the_kubelet_tells_who_holds_a_slice_and_of_what_is_gone(
    bed: Bed, worker: str, device_plugin: None
) -> None:
    holder = pod("holder", worker, asks={SLICES: 1}, namespace=PROBES)
    holder["spec"]["containers"][0] |= {"image": IMAGE, "command": ["sleep", "3600"]}
    holder["spec"] |= {"tolerations": [{"operator": "Exists"}], "terminationGracePeriodSeconds": 0}
    bed.kubectl("apply", "-f", "-", input=json.dumps(holder))
    bed.kubectl("-n", PROBES, "wait", "--for=condition=Ready", "pod/holder", "--timeout=60s")
    shown = gpuctl(bed.kubeconfig, "mig", "show", worker, "-o", "json", *DEBUG, code=0)
    (node,) = json.loads(shown.stdout)["nodes"]
    slices = node["gpus"][0]["slices"]
    assert (
        sorted(str(each.get("holders", [])) for each in slices) == ["['gpuctl-probes/holder']"] + ["[]"] * 6
    )
    assert {each["toldBy"] for each in slices} == {"kubelet"}
    gpu_node("sliced-anew", profiles=[SEVEN]).state.write(bed.host / nvidia_smi.STATE.lstrip("/"))
    assert codes(report(bed.kubeconfig, "--node", worker, *DEBUG))["holder"] == {"MIG022"}


def test_a_privileged_pod_that_the_namespace_refuses_is_not_proven_and_says_what_to_do(
    bed: Bed, worker: str
) -> None:
    bed.kubectl("label", "namespace", PROBES, "--overwrite", "pod-security.kubernetes.io/enforce=baseline")
    done = gpuctl(bed.kubeconfig, "check", "mig-consistency", "--node", worker, *DEBUG)
    assert "enforce=privileged" in done.stdout
    assert debug_pods(bed) == []


def test_an_interrupted_run_leaves_no_debug_pod(bed: Bed, worker: str) -> None:
    gpu_node(worker, profiles=[SEVEN]).failing(faults.hang(300)).state.write(
        bed.host / nvidia_smi.STATE.lstrip("/")
    )
    running = start(bed, worker, "110s")
    bed.wait(lambda: bool(debug_pods(bed)), 60, "a debug pod")
    running.send_signal(signal.SIGINT)
    assert running.wait(30) == 130
    bed.wait(lambda: not debug_pods(bed), 30, "the debug pod to be gone")


def test_what_a_killed_run_left_is_swept_by_the_next(bed: Bed, worker: str) -> None:
    gpu_node(worker, profiles=[SEVEN]).failing(faults.hang(60)).state.write(
        bed.host / nvidia_smi.STATE.lstrip("/")
    )
    running = start(bed, worker, "20s")
    bed.wait(lambda: bool(debug_pods(bed)), 60, "a debug pod")
    running.kill()
    running.wait()
    (left,) = debug_pods(bed)
    gpu_node(worker, profiles=[SEVEN]).state.write(bed.host / nvidia_smi.STATE.lstrip("/"))
    bring_forward_the_end_of(bed, left)
    gpuctl(bed.kubeconfig, "check", "mig-consistency", "--node", worker, *DEBUG)
    assert debug_pods(bed) == []


def bring_forward_the_end_of(bed: Bed, pod: str) -> None:
    """Until the kubelet has ended it: it was to live for 20 s and half a minute."""
    one = ("-n", PROBES, "pod", pod)
    assert bed.kubectl("get", *one, "-o", "jsonpath={.spec.activeDeadlineSeconds}") == "50"
    bed.kubectl("patch", *one, "--type=merge", "-p", json.dumps({"spec": {"activeDeadlineSeconds": 3}}))
    bed.kubectl("wait", *one[:2], f"pod/{pod}", "--for=jsonpath={.status.phase}=Failed", "--timeout=60s")


def start(bed: Bed, node: str, timeout: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [GPUCTL, "check", "mig-consistency", "--node", node, "--probe-timeout", timeout, *DEBUG],
        env={**os.environ, "KUBECONFIG": str(bed.kubeconfig)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def test_without_permission_to_exec_or_to_make_pods_the_rest_is_judged(
    bed: Bed, fleet: dict[str, Any], user: Callable[..., Path]
) -> None:
    reading = user("mig-reader", READS)
    for way in ((), ("--probe", "exec"), DEBUG):
        check = report(reading, "--node", "failed-bad", *way)
        assert verdicts(check)["true-capacity"] == "not-proven", way
        assert verdicts(check)["carried-out"] == "fail", way
    assert debug_pods(bed) == []


def test_the_printed_role_is_enough_and_nothing_else_is_done(bed: Bed, fleet: dict[str, Any]) -> None:
    role = gpuctl(bed.kubeconfig, "rbac", "--for", "mig-consistency", "--account", "mig-audit/gpuctl").stdout
    bed.kubectl("apply", "-f", "-", input=role)
    account = "system:serviceaccount:mig-audit:gpuctl"
    started = datetime.now(UTC)
    check = report(bed.kubeconfig, "--node", "config-good", "--as", account)
    bed.kubectl("delete", "-f", "-", input=role)
    assert verdicts(check)["true-capacity"] == "pass"
    assert codes(check).get("config-good", set()) == set()
    done = {
        f"{each.verb} {each.resource}/{each.subresource}".rstrip("/")
        for each in bed.audit.requests(since=started, user_agent_prefix="gpuctl/")
        if each.impersonated == account and (each.verb not in READING or each.subresource)
    }
    assert done <= {*REVIEWS, "get pods/exec", "create pods/exec"}


def test_debug_pods_are_the_only_thing_that_is_written(bed: Bed, worker: str) -> None:
    started = datetime.now(UTC)
    report(bed.kubeconfig, "--node", worker, *DEBUG)
    done = {
        f"{each.verb} {each.resource}"
        for each in bed.audit.requests(since=started, user_agent_prefix="gpuctl/")
        if each.verb not in READING
    }
    assert done == {*REVIEWS, "create pods", "delete pods"}


READING = ("get", "list", "watch")
REVIEWS = ("create selfsubjectaccessreviews", "create selfsubjectreviews")
READS = [
    {"apiGroups": [group], "resources": kinds, "verbs": ["get", "list"]}
    for group, kinds in (
        ("", ["nodes", "pods", "configmaps"]),
        ("apps", ["daemonsets"]),
        ("resource.k8s.io", ["resourceslices"]),
        ("nvidia.com", ["clusterpolicies"]),
    )
]
