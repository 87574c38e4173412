"""A large cluster in seconds: thousands of nodes and pods, written straight into etcd.

    with loaded(bed, nodes=2000, pods=20_000) as load:
        ...  # the API server lists, watches and patches them like any others

Nothing runs there and kwok leaves them alone. While the context is entered their leases are renewed, so the
nodes stay Ready; the pods belong to Jobs that no controller manages, so nobody touches either. All names
begin with "load-".

Kueue follows all nodes and pods, for its topology-aware scheduling: at this size its manager needs more than
the 512 MiB of its manifests, so the bed gives it more.
"""

import hashlib
import json
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any

from .bed import Bed
from .etcd import REGISTRY, Etcd
from .kubectl import KubectlError
from .simulated import MADE_FOR, gpu_node

MARK = "load-"
RENEWED_EVERY = 15  # seconds; the controller gives a node up after 50
PODS_PER_JOB = 20
BALANCED = ("3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb")
LAYOUTS: Mapping[str, Sequence[Sequence[str] | None]] = {
    "mixed": [BALANCED] * 8,
    "single": [("1g.10gb",) * 7] * 8,
    "none": [None] * 8,
}
MODELS = (
    "Qwen/Qwen3-32B",
    "meta-llama/Llama-3.3-70B-Instruct",
    "mistralai/Mistral-Small-3.2-24B-Instruct-2506",
)
REMOVED_FIRST = ("pods", "jobs", "minions", "namespaces")  # lest a controller replaces what is gone
EVENTS = f"{REGISTRY}events/"  # controllers still write them after the end; they expire
Object = dict[str, Any]
Stored = tuple[str, Object]


@dataclass(frozen=True)
class Load:
    """What to write: so many nodes, and so many pods in so many namespaces."""

    nodes: int
    pods: int
    namespaces: int

    def objects(self) -> Iterator[Stored]:
        """All objects by their keys; what others refer to goes first."""
        for index in range(self.namespaces):
            yield f"namespaces/{namespace(index)}", _namespace(index)
        for index in range(self.nodes):
            yield f"minions/{node(index)}", _node(index)
        for start in range(0, self.pods, PODS_PER_JOB):
            yield from self._workload(start)

    def leases(self) -> Iterator[Stored]:
        """The nodes' signs of life, as of now."""
        for index in range(self.nodes):
            yield f"leases/kube-node-lease/{node(index)}", _lease(index)

    def _workload(self, start: int) -> Iterator[Stored]:
        """A Job and its pods."""
        number = start // PODS_PER_JOB
        home = namespace(number % self.namespaces)
        job = _job(number, home)
        yield f"jobs/{home}/{job['metadata']['name']}", job
        for index in range(start, min(start + PODS_PER_JOB, self.pods)):
            pod = _pod(index, job, node(index % self.nodes))
            yield f"pods/{home}/{pod['metadata']['name']}", pod


@contextmanager
def loaded(bed: Bed, nodes: int = 2000, pods: int = 20_000, namespaces: int = 40) -> Iterator[Load]:
    """The load is there, as the API server sees it, until the end."""
    load = Load(nodes, pods, namespaces)
    etcd = Etcd(bed.control_plane.etcd)
    done = threading.Event()
    renewal = threading.Thread(target=_keep_renewing, args=(etcd, load, done), daemon=True)
    renewal.start()
    try:
        _renew(etcd, load)
        etcd.put((REGISTRY + key, value) for key, value in load.objects())
        bed.wait(lambda: _arrived(bed, load), 300, "the load's arrival at the API server")
        yield load
    finally:
        done.set()
        renewal.join()
        unload(bed)


def unload(bed: Bed) -> None:
    """Remove all of a load, and what controllers have added to it."""
    etcd = Etcd(bed.control_plane.etcd)
    while keys := [key for key in etcd.keys(REGISTRY) if f"/{MARK}" in key and not key.startswith(EVENTS)]:
        for kind in REMOVED_FIRST:
            etcd.delete(key for key in keys if key.startswith(f"{REGISTRY}{kind}/"))
        etcd.delete(keys)
        time.sleep(0.5)


def namespace(index: int) -> str:
    """The name of a namespace of the load."""
    return f"{MARK}team-{index:02}"


def node(index: int) -> str:
    """The name of a node of the load."""
    return f"{MARK}gpu-{index:04}"


def _renew(etcd: Etcd, load: Load) -> None:
    etcd.put_together((REGISTRY + key, value) for key, value in load.leases())


def _keep_renewing(etcd: Etcd, load: Load, done: threading.Event) -> None:
    while not done.wait(RENEWED_EVERY):
        _renew(etcd, load)


def _arrived(bed: Bed, load: Load) -> bool:
    """Whether the API server has the load in its cache, and no backlog of news about it."""
    pods, version = _count(bed, "pods")
    nodes, _ = _count(bed, "nodes")
    try:
        bed.kubectl("get", "--raw", f"/api/v1/pods?limit=1&resourceVersion={version}")
    except KubectlError:  # its cache is not there yet
        return False
    return pods >= load.pods and nodes >= load.nodes


def _count(bed: Bed, resource: str) -> tuple[int, str]:
    """How many objects of a kind there are, and in which version."""
    listed = json.loads(bed.kubectl("get", "--raw", f"/api/v1/{resource}?limit=1"))
    about = listed["metadata"]
    return len(listed["items"]) + int(about.get("remainingItemCount", 0)), about["resourceVersion"]


# --- the objects ------------------------------------------------------------------------------------------


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _metadata(name: str, where: str = "", labels: dict[str, str] | None = None) -> Object:
    scope = {"namespace": where} if where else {}
    about = {"uid": str(uuid.uuid4()), "creationTimestamp": _now(), "labels": labels or {}}
    return {"name": name, **scope, **about}


def _namespace(index: int) -> Object:
    name = namespace(index)
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": _metadata(name, labels={"kubernetes.io/metadata.name": name}),
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }


def _lease(index: int) -> Object:
    name = node(index)
    renewed = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": _metadata(name, "kube-node-lease"),
        "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": renewed},
    }


@cache
def _prototype(strategy: str) -> Object:
    return gpu_node("prototype", strategy, profiles=LAYOUTS[strategy]).manifest


def _node(index: int) -> Object:
    prototype = _prototype(tuple(LAYOUTS)[index % len(LAYOUTS)])
    name = node(index)
    hostname = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"zone-{'abc'[index % 3]}"}
    beta = {"beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux"}
    labels = {key: value for key, value in prototype["metadata"]["labels"].items() if key != MADE_FOR}
    annotations = {
        "node.alpha.kubernetes.io/ttl": "300",
        "volumes.kubernetes.io/controller-managed-attach-detach": "true",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {**_metadata(name, labels=labels | beta | hostname), "annotations": annotations},
        "spec": {"taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]},
        "status": prototype["status"] | _node_status(index),
    }


def _node_status(index: int) -> Object:
    names = {"MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False", "Ready": "True"}
    since = {"lastHeartbeatTime": _now(), "lastTransitionTime": _now()}
    reason = {"reason": "KubeletSays", "message": "the kubelet says so"}
    images = [
        {
            "names": [f"registry.example.com/team/image-{image}:v{image}.{index % 7}"],
            "sizeBytes": 900_000_000 + image,
        }
        for image in range(20)
    ]
    return {
        "addresses": [
            {"type": "InternalIP", "address": f"10.{64 + index // 65536}.{index // 256 % 256}.{index % 256}"},
            {"type": "Hostname", "address": node(index)},
        ],
        "conditions": [{"type": name, "status": status, **since, **reason} for name, status in names.items()],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "images": images,
        "nodeInfo": {
            "architecture": "amd64",
            "bootID": str(uuid.uuid4()),
            "containerRuntimeVersion": "containerd://2.1.4",
            "kernelVersion": "6.8.0-79-generic",
            "kubeProxyVersion": "",
            "kubeletVersion": "v1.36.3",
            "machineID": uuid.uuid4().hex,
            "operatingSystem": "linux",
            "osImage": "Ubuntu 24.04.3 LTS",
            "systemUUID": str(uuid.uuid4()),
        },
    }


def _job(number: int, home: str) -> Object:
    name = f"{MARK}job-{number:05}"
    spec = _pod_spec(number * PODS_PER_JOB, "")
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(name, home, {"app.kubernetes.io/name": "trainer"}),
        "spec": {
            "parallelism": PODS_PER_JOB,
            "completions": PODS_PER_JOB,
            "managedBy": "gpuctl.dev/load",
            "selector": {"matchLabels": {"job-name": name}},
            "template": {"metadata": {"labels": {"job-name": name}}, "spec": spec},
        },
        "status": {"active": PODS_PER_JOB},
    }


def _pod(index: int, job: Object, where: str) -> Object:
    about = job["metadata"]
    name = f"{about['name']}-{index % PODS_PER_JOB}-{uuid.uuid4().hex[:5]}"
    labels = {
        "app.kubernetes.io/name": "trainer",
        "batch.kubernetes.io/job-completion-index": str(index % PODS_PER_JOB),
        "job-name": about["name"],
        "team": about["namespace"].removeprefix(MARK),
    }
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": about["name"],
        "uid": about["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**_metadata(name, about["namespace"], labels), "ownerReferences": [owner]},
        "spec": _pod_spec(index, where),
        "status": _pod_status(index),
    }


def _pod_spec(index: int, where: str) -> Object:
    resource = ("nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb")[index % 3]
    amounts = {"cpu": "8", "memory": "64Gi", resource: "1"}
    main = {
        "name": "main",
        "image": f"registry.example.com/serving/vllm-openai:v0.11.{index % 3}",
        "imagePullPolicy": "IfNotPresent",
        "command": ["vllm", "serve"],
        "args": _arguments(index),
        "env": [
            {"name": f"SETTING_{number}", "value": f"value-{number}-{index}" * 2} for number in range(25)
        ],
        "ports": [{"name": "http", "containerPort": 8000, "protocol": "TCP"}],
        "resources": {"limits": amounts, "requests": amounts},
        "readinessProbe": _probe("/health", 10),
        "livenessProbe": _probe("/health", 30),
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "volumeMounts": _mounts(),
    }
    sidecar = {
        "name": "logs",
        "image": "registry.example.com/platform/fluent-bit:4.0.3",
        "imagePullPolicy": "IfNotPresent",
        "resources": {"limits": {"memory": "256Mi"}, "requests": {"cpu": "50m", "memory": "128Mi"}},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "volumeMounts": _mounts(),
    }
    return {
        **({"nodeName": where} if where else {}),
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "default",
        "schedulerName": "default-scheduler",
        "securityContext": {"fsGroup": 1000, "runAsNonRoot": True, "runAsUser": 1000},
        "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority",
        "enableServiceLinks": True,
        "containers": [main, sidecar],
        "tolerations": _tolerations(),
        "volumes": _volumes(index),
    }


def _arguments(index: int) -> list[str]:
    model = MODELS[index % len(MODELS)]
    return [
        f"--model={model}",
        f"--served-model-name={model.rpartition('/')[2].lower()}",
        "--tensor-parallel-size=1",
        "--gpu-memory-utilization=0.92",
        "--max-model-len=32768",
        "--max-num-seqs=256",
        "--enable-prefix-caching",
        "--port=8000",
        *(["--enforce-eager"] if index % 50 == 0 else []),
    ]


def _probe(path: str, period: int) -> Object:
    return {
        "httpGet": {"path": path, "port": "http", "scheme": "HTTP"},
        "initialDelaySeconds": 60,
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "successThreshold": 1,
        "failureThreshold": 3,
    }


def _mounts() -> list[Object]:
    return [
        {"name": "cache", "mountPath": "/root/.cache/huggingface"},
        {"name": "shm", "mountPath": "/dev/shm"},
        {"name": "config", "mountPath": "/etc/serving", "readOnly": True},
        {"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": True},
    ]


def _volumes(index: int) -> list[Object]:
    token = [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
    ]
    return [
        {"name": "cache", "persistentVolumeClaim": {"claimName": f"models-{index % 7}"}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}},
        {"name": "config", "configMap": {"name": "serving", "defaultMode": 420}},
        {"name": "token", "projected": {"defaultMode": 420, "sources": token}},
    ]


def _tolerations() -> list[Object]:
    away = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    return [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
        *(
            {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            for key in away
        ),
    ]


def _pod_status(index: int) -> Object:
    names = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    address = f"10.128.{index // 250 % 250}.{index % 250 + 1}"
    return {
        "phase": "Running",
        "qosClass": "Burstable",
        "hostIP": f"10.64.{index // 256 % 256}.{index % 256}",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": _now(),
        "conditions": [
            {"type": name, "status": "True", "lastProbeTime": None, "lastTransitionTime": _now()}
            for name in names
        ],
        "containerStatuses": [_container_status(name, index) for name in ("main", "logs")],
    }


def _container_status(name: str, index: int) -> Object:
    digest = hashlib.sha256(f"{name}:{index % 3}".encode()).hexdigest()
    return {
        "name": name,
        "image": f"registry.example.com/{name}:v{index % 3}",
        "imageID": f"registry.example.com/{name}@sha256:{digest}",
        "containerID": f"containerd://{uuid.uuid4().hex * 2}",
        "ready": True,
        "started": True,
        "restartCount": index % 4,
        "state": {"running": {"startedAt": _now()}},
        "lastState": {},
    }
