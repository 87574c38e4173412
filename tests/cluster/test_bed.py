"""The bed is what it promises to be."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from .bed import Bed
from .bed.images import BUSYBOX
from .bed.kubectl import Kubectl, KubectlError
from .bed.kueue import ROTATOR, Kueue

MIG = "nvidia.com/mig-1g.10gb"


def test_it_is_healthy(bed: Bed) -> None:
    bed.wait(bed.healthy, 60, "a healthy bed")
    assert bed.node in bed.kubectl("get", "nodes")


def test_every_component_logs(bed: Bed) -> None:
    components = {log.stem for log in bed.logs.glob("*.log")}
    assert components >= {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet"}
    assert components >= {"containerd", "kwok"}


@pytest.fixture
def queue(bed: Bed, namespace: str) -> Iterator[str]:
    """A LocalQueue whose ClusterQueue has three MIG instances to give; the node offers seven."""
    bed.gpu_capacity(bed.node, {MIG: 7})
    flavor = {"kind": "ResourceFlavor", "metadata": {"name": namespace}}
    quota = {"name": namespace, "resources": [{"name": MIG, "nominalQuota": 3}]}
    cluster_queue = {
        "kind": "ClusterQueue",
        "metadata": {"name": namespace},
        "spec": {
            "namespaceSelector": {},
            "resourceGroups": [{"coveredResources": [MIG], "flavors": [quota]}],
        },
    }
    local_queue = {
        "kind": "LocalQueue",
        "metadata": {"name": "gpus", "namespace": namespace},
        "spec": {"clusterQueue": namespace},
    }
    for made in (flavor, cluster_queue, local_queue):
        bed.kubectl("create", "-f", "-", input=json.dumps({"apiVersion": "kueue.x-k8s.io/v1beta2", **made}))
    yield "gpus"
    bed.kubectl("delete", "clusterqueue,resourceflavor", namespace, "--wait=false")
    bed.gpu_capacity(bed.node, {MIG: 0})


def test_a_job_is_admitted_by_kueue_and_runs_in_a_container(bed: Bed, namespace: str, queue: str) -> None:
    container = {
        "name": "main",
        "image": BUSYBOX,
        "command": ["echo", "trained"],
        "resources": {"limits": {MIG: "2"}},
    }
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "labels": {"kueue.x-k8s.io/queue-name": queue}},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }
    bed.kubectl("-n", namespace, "create", "-f", "-", input=json.dumps(job))

    bed.kubectl("-n", namespace, "wait", "--for=condition=Complete", "job/train", "--timeout=60s")

    assert bed.kubectl("-n", namespace, "logs", "job/train") == "trained\n"
    workloads = json.loads(bed.kubectl("-n", namespace, "get", "workloads", "-o", "json"))["items"]
    assert [workload["status"]["admission"]["clusterQueue"] for workload in workloads] == [namespace]


def test_the_audit_log_knows_who_asked_for_what(bed: Bed, namespace: str, user: Callable[..., Path]) -> None:
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
    ask = Kubectl(user("asker", namespaced={namespace: [rule]}))
    begin = datetime.now(UTC)

    ask("-n", namespace, "get", "pods")
    ask("-n", namespace, "delete", "pod", "absent", "--dry-run=server", check=False)

    requests = bed.audit.requests(since=begin, user="asker", user_agent_prefix="kubectl/")
    about_pods = [event for event in requests if event.resource == "pods"]
    assert [(event.verb, event.name, event.code) for event in about_pods] == [
        ("list", "", 200),
        ("delete", "absent", 403),
    ]
    assert about_pods[0].namespace == namespace
    assert about_pods[0].uri.startswith(f"/api/v1/namespaces/{namespace}/pods?limit=500")


def test_a_user_may_do_what_was_granted_and_nothing_else(
    bed: Bed, namespace: str, user: Callable[..., Path]
) -> None:
    nodes = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list"]}
    ask = Kubectl(user("reader", [nodes]))
    assert bed.node in ask("get", "nodes")
    with pytest.raises(KubectlError, match="forbidden"):
        ask("-n", namespace, "get", "pods")


def test_a_privileged_pod_finds_the_stand_in_on_its_host(bed: Bed, namespace: str) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "probe"},
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "main",
                    "image": BUSYBOX,
                    "command": ["chroot", "/host", "which", "nvidia-smi"],
                    "securityContext": {"privileged": True},
                    "volumeMounts": [{"name": "host", "mountPath": "/host"}],
                }
            ],
            "volumes": [{"name": "host", "hostPath": {"path": "/"}}],
        },
    }
    bed.kubectl("-n", namespace, "create", "-f", "-", input=json.dumps(pod))
    bed.kubectl(
        "-n", namespace, "wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/probe", "--timeout=60s"
    )
    assert bed.kubectl("-n", namespace, "logs", "probe") == "/usr/local/bin/nvidia-smi\n"
    assert not Path("/usr/local/bin/nvidia-smi").exists()


@pytest.fixture
def simulated_node(bed: Bed, namespace: str) -> Iterator[str]:
    name = f"{namespace}-node"
    about = {"name": name, "annotations": {"kwok.x-k8s.io/node": "fake"}}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": about, "status": {"capacity": {"pods": "10"}}}
    bed.kubectl("create", "-f", "-", input=json.dumps(node))
    bed.kubectl("wait", "--for=condition=Ready", "node", name, "--timeout=30s")
    yield name
    bed.kubectl("delete", "node", name)


def test_a_simulated_node_answers_exec_and_logs(
    bed: Bed, namespace: str, simulated_node: str, tmp_path: Path
) -> None:
    log = tmp_path / "pod.log"
    log.write_text("2026-01-01T00:00:00.000000000Z stdout F said by nobody\n")
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "engine"},
        "spec": {
            "nodeName": simulated_node,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "main", "image": "whatever"}],
        },
    }
    environment = [{"name": "WHO", "value": "nobody"}]
    answers = [
        ("Exec", {"execs": [{"local": {"envs": environment}}]}),
        ("Logs", {"logs": [{"logsFile": str(log)}]}),
    ]
    bed.kubectl("-n", namespace, "create", "-f", "-", input=json.dumps(pod))
    kwok = {"apiVersion": "kwok.x-k8s.io/v1alpha1", "metadata": {"name": "engine"}}
    for kind, spec in answers:
        answer = {**kwok, "kind": kind, "spec": spec}
        bed.kubectl("-n", namespace, "create", "-f", "-", input=json.dumps(answer))
    bed.kubectl("-n", namespace, "wait", "--for=condition=Ready", "pod/engine", "--timeout=30s")

    assert bed.kubectl("-n", namespace, "exec", "engine", "--", "sh", "-c", "echo $WHO") == "nobody\n"
    assert bed.kubectl("-n", namespace, "logs", "engine") == "said by nobody\n"


def test_kueue_heals_a_bundle_unless_its_rotator_is_frozen(bed: Bed, kueue: Kueue) -> None:
    bundle = kueue.bundles()[0]
    kueue.set_bundle(bundle, b"")
    bed.wait(lambda: kueue.bundles()[0].value == bundle.value, 60, "the rotator's healing")

    kueue.freeze_rotator()
    kueue.set_bundle(bundle, bundle.value[: len(bundle.value) // 2])
    with pytest.raises(AssertionError, match="not within"):
        bed.wait(lambda: kueue.bundles()[0].value == bundle.value, 5, "a healing that must not come")


@pytest.mark.parametrize("value", [b"", None], ids=["wrong", "right by another hand"])
def test_kueues_bundles_are_given_back_as_its_own_writing(
    bed: Bed, kueue: Kueue, value: bytes | None
) -> None:
    kueue.freeze_rotator()
    own = kueue.bundles()[0].value
    for written in (b"", own if value is None else value):
        kueue.set_bundles(kueue.bundles(), written)
    assert not kueue.healthy()
    kueue.restore()
    assert {(each.value, each.writers) for each in kueue.bundles()} == {(own, frozenset({ROTATOR}))}


@pytest.mark.parametrize("kind", ["deployment", "service", "secret"])
def test_kueue_is_restored_when_a_part_of_it_is_deleted(bed: Bed, kueue: Kueue, kind: str) -> None:
    bed.kubectl("-n", kueue.namespace, "delete", kind, getattr(kueue, kind))
    kueue.restore()
    bed.wait(kueue.healthy, 60, "a healthy Kueue")
