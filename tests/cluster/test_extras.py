"""What the bed has beyond a cluster: GPU nodes, a host's nvidia-smi, faults, Prometheus."""

import json
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from .bed import Bed
from .bed.faultproxy import Answer, Dropped, Expired, FaultProxy, Forbidden, Raw, TooManyRequests, Transformed
from .bed.images import BUSYBOX
from .bed.kubectl import Kubectl, KubectlError
from .bed.prometheus import scraping
from .bed.simulated import CONTAINER, NAMESPACE, GpuNode, SimulatedNodes, gpu_node
from .standins import faults
from .standins.state import A30, V100, Fault, NodeState, h100

BALANCED = ["3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"]
HOST_STATE = "var/lib/gpuctl-standin/nvidia-smi.json"


# --- the real node's host ---------------------------------------------------------------------------------


def probe(bed: Bed, namespace: str, name: str, *command: str) -> tuple[str, int]:
    """What a command says on the real node's host, and its exit code: by a privileged pod, as gpuctl asks."""
    container = {
        "name": "main",
        "image": BUSYBOX,
        "command": ["chroot", "/host", *command],
        "securityContext": {"privileged": True},
        "volumeMounts": [{"name": "host", "mountPath": "/host"}],
    }
    spec = {
        "nodeName": bed.node,
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [{"name": "host", "hostPath": {"path": "/"}}],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    bed.kubectl("-n", namespace, "create", "-f", "-", input=json.dumps(pod))
    ended = "jsonpath={.status.containerStatuses[0].state.terminated}"
    bed.kubectl("-n", namespace, "wait", f"--for={ended}", f"pod/{name}", "--timeout=60s")
    state = json.loads(bed.kubectl("-n", namespace, "get", "pod", name, "-o", ended))
    return bed.kubectl("-n", namespace, "logs", name), state["exitCode"]


@pytest.fixture
def host_state(bed: Bed) -> Iterator[Path]:
    """Where the stand-ins of the real node's host read their state."""
    file = bed.host / HOST_STATE
    yield file
    file.unlink(missing_ok=True)


def test_the_real_node_answers_from_its_state_file(bed: Bed, namespace: str, host_state: Path) -> None:
    gpu = h100(0, BALANCED)
    NodeState(gpus=(gpu, replace(h100(1), lost=True))).write(host_state)

    listed, code = probe(bed, namespace, "list", "nvidia-smi", "-L")

    assert code == 0
    assert listed.splitlines()[0] == f"GPU 0: NVIDIA H100 80GB HBM3 (UUID: {gpu.uuid})"
    assert [line.split()[1] for line in listed.splitlines()[1:]] == BALANCED
    addresses, _ = probe(bed, namespace, "bus", "lspci", "-Dn", "-d", "10de:")
    assert len(addresses.splitlines()) == 2


@pytest.mark.parametrize("fault", [faults.DRIVER_DOWN, faults.VERSION_MISMATCH, faults.NO_DEVICES])
def test_exit_codes_come_through(bed: Bed, namespace: str, host_state: Path, fault: Fault) -> None:
    NodeState(gpus=(h100(0),)).failing(fault).write(host_state)
    assert probe(bed, namespace, "list", "nvidia-smi", "-L") == (fault.stdout, fault.exit)


# --- simulated GPU nodes ----------------------------------------------------------------------------------

MIXED = gpu_node("gpu-mixed", profiles=[BALANCED, None])
SINGLE = gpu_node("gpu-single", "single", A30, [["1g.6gb"] * 4] * 2)
NONE = gpu_node("gpu-none", "none", V100, [None] * 4)


@pytest.fixture(scope="module")
def nodes(bed: Bed) -> Iterator[SimulatedNodes]:
    """One node per MIG strategy."""
    nodes = SimulatedNodes(bed)
    nodes.add(MIXED, SINGLE, NONE)
    yield nodes
    nodes.remove()


@pytest.mark.parametrize("expected", [MIXED, SINGLE, NONE], ids=lambda each: each.strategy)
def test_simulated_nodes_are_ready_and_look_real(bed: Bed, nodes: SimulatedNodes, expected: GpuNode) -> None:
    found = json.loads(bed.kubectl("get", "node", expected.name, "-o", "json"))
    conditions = {each["type"]: each["status"] for each in found["status"]["conditions"]}
    assert conditions["Ready"] == "True"
    assert expected.labels.items() <= found["metadata"]["labels"].items()
    assert expected.capacity.items() <= found["status"]["allocatable"].items()


def test_each_node_has_its_own_nvidia_smi(nodes: SimulatedNodes) -> None:
    assert nodes.nvidia_smi("gpu-mixed", "-L").count("MIG ") == 4
    assert nodes.nvidia_smi("gpu-single", "mig", "-lgi").count("MIG 1g.6gb") == 8
    assert nodes.nvidia_smi("gpu-none", "-L").count("Tesla V100") == 4


def test_a_state_changes_under_a_running_pod(nodes: SimulatedNodes) -> None:
    nodes.write("gpu-mixed", NodeState(gpus=(h100(0, ["7g.80gb"], node="gpu-mixed"),)))
    assert "MIG 7g.80gb" in nodes.nvidia_smi("gpu-mixed", "-L")
    nodes.write("gpu-mixed", MIXED.failing(faults.DRIVER_DOWN).state)
    with pytest.raises(KubectlError, match=r"couldn't communicate|exit status 9"):
        nodes.nvidia_smi("gpu-mixed", "-L")
    nodes.write("gpu-mixed", MIXED.state)


def test_gpu_pods_run_on_simulated_nodes(bed: Bed, namespace: str, nodes: SimulatedNodes) -> None:
    limits = {"limits": {"nvidia.com/mig-3g.40gb": "1"}}
    container = {"name": "main", "image": "registry.example.com/trainer", "resources": limits}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "trainer"},
        "spec": {"containers": [container]},
    }
    bed.kubectl("-n", namespace, "create", "-f", "-", input=json.dumps(pod))
    bed.kubectl("-n", namespace, "wait", "--for=condition=Ready", "pod/trainer", "--timeout=30s")
    where = bed.kubectl("-n", namespace, "get", "pod", "trainer", "-o", "jsonpath={.spec.nodeName}")
    assert where == "gpu-mixed"


# --- faults -----------------------------------------------------------------------------------------------


@pytest.fixture
def proxy(bed: Bed) -> Iterator[FaultProxy]:
    with FaultProxy(bed.kubeconfig) as proxy:
        yield proxy


def test_the_proxy_speaks_as_the_kubeconfig_s_user(bed: Bed, proxy: FaultProxy) -> None:
    assert "admin" in Kubectl(proxy.kubeconfig)("auth", "whoami", "-o", "jsonpath={.status.userInfo}")


def test_a_token_is_carried_through(bed: Bed, proxy: FaultProxy, namespace: str) -> None:
    token = bed.kubectl("create", "token", "default", "-n", namespace).strip()
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    request = urllib.request.Request(
        f"{proxy.url}/apis/authentication.k8s.io/v1/selfsubjectreviews",
        json.dumps(review).encode(),
        {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:
        who = json.load(answer)["status"]["userInfo"]["username"]
    assert who == f"system:serviceaccount:{namespace}:default"


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (Forbidden("nodes are forbidden"), r"Forbidden.*nodes are forbidden"),
        (Dropped(), r"EOF|reset"),
        (Raw(b"{"), r"unexpected end of JSON"),
    ],
)
def test_kubectl_meets_the_faults(bed: Bed, proxy: FaultProxy, answer: Answer, says: str) -> None:
    ask = Kubectl(proxy.kubeconfig)
    fault = proxy.fault(answer, path="/api/v1/nodes", verb="GET")
    with pytest.raises(KubectlError, match=says):
        ask("get", "nodes")
    assert fault.hits
    proxy.clear()
    assert bed.node in ask("get", "nodes")


def test_too_many_requests_is_waited_out(proxy: FaultProxy) -> None:
    proxy.fault(TooManyRequests(retry_after=1), path="/api/v1/nodes", times=1)
    began = time.monotonic()
    Kubectl(proxy.kubeconfig)("get", "nodes")
    assert time.monotonic() - began > 1
    assert [request.path for request in proxy.requests].count("/api/v1/nodes") == 2


def test_a_list_expires_in_its_middle(proxy: FaultProxy) -> None:
    ask = Kubectl(proxy.kubeconfig)
    proxy.fault(Expired(), path="/apis/rbac.authorization.k8s.io/v1/clusterroles", times=1)
    with pytest.raises(KubectlError, match="Expired"):
        ask("get", "clusterroles", "--chunk-size=20")
    assert "continue=" in proxy.requests[-1].query
    assert "cluster-admin" in ask("get", "clusterroles", "--chunk-size=20")


def test_one_object_is_spoilt(proxy: FaultProxy) -> None:
    def spoil(listed: dict[str, list[dict[str, object]]]) -> object:
        listed["items"][0]["metadata"] = 7
        return listed

    proxy.fault(Transformed(spoil), path="/api/v1/nodes")
    listed = json.loads(Kubectl(proxy.kubeconfig)("get", "--raw", "/api/v1/nodes"))
    assert listed["items"][0]["metadata"] == 7


def test_exec_passes_through_the_proxy(proxy: FaultProxy, nodes: SimulatedNodes) -> None:
    where = ("-n", NAMESPACE, nodes.driver_pod("gpu-none"), "-c", CONTAINER)
    said = Kubectl(proxy.kubeconfig)("exec", *where, "--", "nvidia-smi", "-L")
    assert said.count("GPU ") == 4
    assert any(request.path.endswith("/exec") for request in proxy.requests)


# --- Prometheus -------------------------------------------------------------------------------------------


def test_prometheus_scrapes_kueue(bed: Bed) -> None:
    with scraping(bed) as prometheus:
        [up] = prometheus.query("up")
        assert (up.value, up.labels["job"], up.labels["namespace"]) == (1, "kueue", bed.kueue.namespace)
        assert prometheus.query("kueue_build_info")
