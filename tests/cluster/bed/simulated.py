"""GPU nodes without GPUs: simulated by kwok, labelled as real ones, nvidia-smi answered by the stand-in.

    nodes = SimulatedNodes(bed)
    nodes.add(gpu_node("gpu-1", strategy="mixed", profiles=[["3g.40gb", "2g.20gb"], None]))
    bed.kubectl("exec", "-n", NAMESPACE, nodes.driver_pod("gpu-1"), "--", "nvidia-smi", "-L")

A node has the labels that GPU feature discovery, MIG manager and GPU operator write, the capacity that the
device plugin reports, a pod of the driver's DaemonSet, and a state file that this pod's nvidia-smi reads.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from tests.cluster.standins.state import H100, Fault, Gpu, GpuInstance, Model, NodeState

from .bed import Bed

NAMESPACE = "gpu-operator"
DRIVER = "nvidia-driver-daemonset"
CONTAINER = "nvidia-driver-ctr"
IMAGE = "registry.example.com/nvidia/driver:580.105.08-ubuntu24.04"
PREFIX = "nvidia.com"
MADE_FOR = "gpuctl-bed/simulated-gpu-node"
STARTED = "1764000000"  # when feature discovery started, in seconds of Unix time
DRIVER_LABEL = f"{PREFIX}/gpu.deploy.driver"  # "pre-installed" where the host brings the driver
EIGHTHS = 8  # memory slices of all models but the smallest
COMPUTE = {"Volta": (7, 0), "Ampere": (8, 0), "Hopper": (9, 0)}
OPERANDS = (
    "container-toolkit",
    "dcgm",
    "dcgm-exporter",
    "device-plugin",
    "driver",
    "gpu-feature-discovery",
    "node-status-exporter",
    "operator-validator",
)
STRATEGIES = ("none", "single", "mixed")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class GpuNode:
    """A simulated node. `extra` labels and `resources` override what follows from the GPUs; None removes."""

    name: str
    strategy: str
    state: NodeState
    config: str
    extra: Mapping[str, str | None] = field(default_factory=dict)
    resources: Mapping[str, int | None] = field(default_factory=dict)

    @property
    def labels(self) -> dict[str, str]:
        """All labels of the node."""
        hostname = {
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/hostname": self.name,
            "kubernetes.io/os": "linux",
            MADE_FOR: "",
            "feature.node.kubernetes.io/pci-10de.present": "true",
        }
        written = labels(self.state, self.strategy, self.config)
        return _changed(hostname | _prefixed(written), self.extra)

    @property
    def capacity(self) -> dict[str, str]:
        """What the node has, of CPUs as of GPUs."""
        gpus = _changed(_prefixed(devices(self.state.gpus, self.strategy)), self.resources)
        plain = {"cpu": "128", "memory": "2113571412Ki", "ephemeral-storage": "1844284980Ki", "pods": "110"}
        return plain | {name: str(count) for name, count in gpus.items()}

    @property
    def manifest(self) -> dict[str, Any]:
        """The Node object."""
        metadata = {
            "name": self.name,
            "labels": self.labels,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        }
        status = {"capacity": self.capacity, "allocatable": self.capacity}
        return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}

    def failing(self, *faults: Fault) -> "GpuNode":
        """The same node, whose nvidia-smi fails."""
        return replace(self, state=self.state.failing(*faults))


def gpu_node(
    name: str,
    strategy: str = "mixed",
    model: Model = H100,
    profiles: Sequence[Sequence[str] | None] = (None,),
    *,
    config: str = "",
    extra: Mapping[str, str | None] | None = None,
    resources: Mapping[str, int | None] | None = None,
    driver: str = "580.105.08",
) -> GpuNode:
    """A node with one GPU per entry of `profiles`: its MIG instances, or None with MIG off."""
    if strategy not in STRATEGIES:
        raise ValueError(f"{strategy} is none of {STRATEGIES}")
    gpus = tuple(model.gpu(index, mig, node=name) for index, mig in enumerate(profiles))
    return GpuNode(
        name=name,
        strategy=strategy,
        state=NodeState(driver=driver, gpus=gpus),
        config=config or config_of(gpus),
        extra=extra or {},
        resources=resources or {},
    )


# --- what GPU operator and its parts write ----------------------------------------------------------------


def devices(gpus: Sequence[Gpu], strategy: str) -> dict[str, int]:
    """What the device plugin reports, without prefix. It knows no instances that are not whole."""
    instances = [instance for gpu in gpus for instance in gpu.instances if _whole(instance)]
    plain = sum(gpu.mig_current != "Enabled" for gpu in gpus)
    if strategy == "none":
        return {"gpu": len(gpus)}
    if strategy == "single":
        return {"gpu": 0 if invalid(gpus) else plain + len(instances)}
    sliced = Counter(f"mig-{_dotted(instance.profile)}" for instance in instances)
    return {"gpu": plain, **sliced}


def invalid(gpus: Sequence[Gpu]) -> bool:
    """Whether strategy single gives up: GPUs with and without MIG, empty ones, or several profiles."""
    enabled = [gpu for gpu in gpus if gpu.mig_current == "Enabled"]
    kinds = {instance.profile for gpu in enabled for instance in gpu.instances}
    uneven = len(enabled) != len(gpus) or not all(gpu.instances for gpu in enabled)
    return bool(enabled) and (uneven or len(kinds) != 1)


def config_of(gpus: Sequence[Gpu]) -> str:
    """The name of mig-parted's configuration that makes these GPUs; "custom" if it has none."""
    layouts = {(gpu.mig_current, tuple(sorted(each.profile for each in gpu.instances))) for gpu in gpus}
    if len(layouts) != 1:
        return "custom"
    mode, profiles = layouts.pop()
    if not profiles:
        return "all-enabled" if mode == "Enabled" else "all-disabled"
    kinds = Counter(profiles)
    if len(kinds) == 1:
        profile, count = kinds.popitem()
        return f"all-{_dotted(profile)}" if count == gpus[0].profile(profile).max else "custom"
    balanced = [1, 1, 2] if gpus[0].slots == EIGHTHS else [1, 2]
    return "all-balanced" if sorted(kinds.values()) == balanced else "custom"


def labels(state: NodeState, strategy: str, config: str) -> dict[str, str]:
    """The node's labels, without prefix."""
    if not state.gpus:
        return {}
    written = _version_labels(state) | _operator_labels(state, config) | _gpu_labels(state.gpus, strategy)
    if strategy != "none":
        written["mig.strategy"] = strategy
    return written


def discovered(state: NodeState, strategy: str) -> dict[str, str]:
    """Those of the labels that GPU feature discovery writes, without prefix."""
    by_operator = _operator_labels(state, "")
    return {name: text for name, text in labels(state, strategy, "").items() if name not in by_operator}


def _version_labels(state: NodeState) -> dict[str, str]:
    major, minor, revision = (*state.driver.split("."), "")[:3]
    cuda_major, cuda_minor = state.cuda.split(".")
    return {
        "cuda.driver-version.full": state.driver,
        "cuda.driver-version.major": major,
        "cuda.driver-version.minor": minor,
        "cuda.driver-version.revision": revision,
        "cuda.driver.major": major,
        "cuda.driver.minor": minor,
        "cuda.driver.rev": revision,
        "cuda.runtime-version.full": state.cuda,
        "cuda.runtime-version.major": cuda_major,
        "cuda.runtime-version.minor": cuda_minor,
        "cuda.runtime.major": cuda_major,
        "cuda.runtime.minor": cuda_minor,
        "gfd.timestamp": STARTED,
    }


def _operator_labels(state: NodeState, config: str) -> dict[str, str]:
    capable = any(gpu.profiles for gpu in state.gpus)
    written = {f"gpu.deploy.{operand}": "true" for operand in OPERANDS}
    written |= {"gpu.present": "true", "gpu-driver-upgrade-state": "upgrade-done"}
    if capable:
        written |= {"gpu.deploy.mig-manager": "true", "mig.config": config, "mig.config.state": "success"}
    return written


def _gpu_labels(gpus: Sequence[Gpu], strategy: str) -> dict[str, str]:
    """GPU feature discovery's account of the hardware."""
    gpu = gpus[0]
    product = gpu.name.replace(" ", "-")
    major, minor = COMPUTE[gpu.architecture]
    written = {
        "gpu.compute.major": str(major),
        "gpu.compute.minor": str(minor),
        "gpu.family": gpu.architecture.lower(),
        "gpu.machine": "SYS-821GE-TNHR",
        "gpu.mode": "compute",
        "gpu.product": product,
        "gpu.count": str(len(gpus)),
        "gpu.replicas": "1",
        "gpu.sharing-strategy": "none",
        "gpu.memory": str(gpu.memory_total),
        "mig.capable": str(any(each.profiles for each in gpus)).lower(),
        "mps.capable": "false",
    }
    if strategy == "mixed":
        return written | _mixed_labels(gpus, product)
    if strategy == "single" and any(each.mig_current == "Enabled" for each in gpus):
        return written | _single_labels(gpus, product)
    return written


def _mixed_labels(gpus: Sequence[Gpu], product: str) -> dict[str, str]:
    sliced = all(gpu.mig_current == "Enabled" for gpu in gpus)
    written = {"gpu.replicas": "0"} if sliced else {}
    instances = [instance for gpu in gpus for instance in gpu.instances if _whole(instance)]
    for profile in {instance.profile: None for instance in instances}:
        alike = [instance for instance in instances if instance.profile == profile]
        name = f"mig-{_dotted(profile)}"
        written |= {f"{name}.{key}": value for key, value in _instance_labels(alike, product).items()}
    return written


def _single_labels(gpus: Sequence[Gpu], product: str) -> dict[str, str]:
    if invalid(gpus):
        return {
            "gpu.product": f"{product}-MIG-INVALID",
            "gpu.count": "0",
            "gpu.replicas": "0",
            "gpu.sharing-strategy": "",
            "gpu.memory": "0",
        }
    instances = [instance for gpu in gpus for instance in gpu.instances if _whole(instance)]
    return {f"gpu.{key}": value for key, value in _instance_labels(instances, product).items()}


def _instance_labels(alike: Sequence[GpuInstance], product: str) -> dict[str, str]:
    instance = alike[0]
    slices = instance.profile.partition("g.")[0]
    return {
        "count": str(len(alike)),
        "engines.copy": str(instance.ce),
        "engines.decoder": str(instance.dec),
        "engines.encoder": str(instance.enc),
        "engines.jpeg": str(instance.jpeg),
        "engines.ofa": str(instance.ofa),
        "memory": str(instance.memory_total),
        "multiprocessors": str(instance.compute_instances[0].sm),
        "product": f"{product}-MIG-{_dotted(instance.profile)}",
        "replicas": "1",
        "sharing-strategy": "none",
        "slices.ci": slices,
        "slices.gi": slices,
    }


def _whole(instance: GpuInstance) -> bool:
    """Whether one compute instance has all of the instance."""
    slices = instance.profile.partition("g.")[0]
    return [str(each.size) for each in instance.compute_instances] == [slices]


def _dotted(profile: str) -> str:
    return profile.replace("+", ".")


def _prefixed(values: Mapping[str, T]) -> dict[str, T]:
    return {f"{PREFIX}/{name}": value for name, value in values.items()}


def _changed(values: Mapping[str, T], changes: Mapping[str, T | None]) -> dict[str, T]:
    return {name: value for name, value in {**values, **changes}.items() if value is not None}


# --- on a bed ---------------------------------------------------------------------------------------------


@dataclass
class SimulatedNodes:
    """The simulated GPU nodes of a bed, and the driver's pods on them."""

    bed: Bed
    names: list[str] = field(default_factory=list)

    def state_file(self, name: str) -> Path:
        """Where a node's nvidia-smi reads its state."""
        return self.bed.folder / "simulated" / f"{name}.json"

    def add(self, *nodes: GpuNode, timeout: float = 120) -> None:
        """Until the nodes are Ready, the driver's pods run there and exec into them answers."""
        for node in nodes:
            self.write(node.name, node.state)
        self.names += [node.name for node in nodes]
        self._create(node.manifest for node in nodes)
        self._await_an_end()
        self._apply([_namespace(), _driver()])
        wanted = {node.name for node in nodes if node.labels.get(DRIVER_LABEL, "true") == "true"}
        self.bed.wait(lambda: wanted <= {*self.driver_pods()}, timeout, f"driver pods on {len(wanted)} nodes")
        self._apply(self.exec(pod, name) for name, pod in self.driver_pods().items() if name in wanted)

    def write(self, name: str, state: NodeState) -> None:
        """From now on the node's nvidia-smi answers like this."""
        state.write(self.state_file(name))

    def driver_pods(self) -> dict[str, str]:
        """The running pods of the driver by their nodes."""
        listed = self.bed.kubectl("get", "pods", "-n", NAMESPACE, "-l", f"app={DRIVER}", "-o", "json")
        return {
            pod["spec"]["nodeName"]: pod["metadata"]["name"]
            for pod in json.loads(listed)["items"]
            if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
        }

    def driver_pod(self, name: str) -> str:
        """The name of the driver's pod on a node."""
        return self.driver_pods()[name]

    def nvidia_smi(self, name: str, *arguments: str) -> str:
        """What nvidia-smi says on a node, asked through the API server."""
        where = ("-n", NAMESPACE, self.driver_pod(name), "-c", CONTAINER)
        return self.bed.kubectl("exec", *where, "--", "nvidia-smi", *arguments)

    def remove(self) -> None:
        """Take all simulated GPU nodes away, and what was made for them. The operands' DaemonSets go first:
        as long as there are any, pods are made anew."""
        self.bed.kubectl("delete", "daemonsets", "--all", "-n", NAMESPACE, "--cascade=orphan")
        for collection in (
            f"namespaces/{NAMESPACE}/pods?gracePeriodSeconds=0",
            f"nodes?labelSelector={MADE_FOR}",
        ):
            self.bed.kubectl("delete", "--raw", f"/api/v1/{collection}")
        self.bed.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=false")
        for name in self.names:
            self.state_file(name).unlink(missing_ok=True)
        self.names.clear()

    def _await_an_end(self) -> None:
        """Of an earlier namespace of this name: it goes on ending after `remove`."""
        phase = ("--ignore-not-found", "-o", "jsonpath={.status.phase}")
        if self.bed.kubectl("get", "namespace", NAMESPACE, *phase) == "Terminating":
            self.bed.kubectl("wait", "--for=delete", f"namespace/{NAMESPACE}", "--timeout=240s")

    def exec(self, pod: str, node: str, container: str = CONTAINER) -> dict[str, Any]:
        """The object that lets kwok run commands in a pod with the state file of its node."""
        environment = [{"name": "NVIDIA_SMI_STATE", "value": str(self.state_file(node))}]
        return {
            "apiVersion": "kwok.x-k8s.io/v1alpha1",
            "kind": "Exec",
            "metadata": {"name": pod, "namespace": NAMESPACE},
            "spec": {"execs": [{"containers": [container], "local": {"envs": environment}}]},
        }

    def _create(self, objects: Iterable[dict[str, Any]]) -> None:
        self.bed.kubectl("create", "-f", "-", input=_list(objects))

    def _apply(self, objects: Iterable[dict[str, Any]]) -> None:
        if items := [*objects]:
            self.bed.kubectl("apply", "--server-side", "-f", "-", input=_list(items))


def _list(objects: Iterable[dict[str, Any]]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})


def _namespace() -> dict[str, Any]:
    levels = {"pod-security.kubernetes.io/enforce": "privileged"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": levels}}


def _driver() -> dict[str, Any]:
    """The driver's DaemonSet as GPU operator writes it, shortened."""
    names = {"app": DRIVER, "app.kubernetes.io/component": "nvidia-driver"}
    container = {
        "name": CONTAINER,
        "image": IMAGE,
        "command": ["nvidia-driver", "init"],
        "securityContext": {"privileged": True},
    }
    pod = {
        "metadata": {
            "labels": names,
            "annotations": {"kubectl.kubernetes.io/default-container": CONTAINER},
        },
        "spec": {
            "hostPID": True,
            "nodeSelector": {f"{PREFIX}/gpu.deploy.driver": "true", MADE_FOR: ""},
            "tolerations": [{"operator": "Exists"}],
            "containers": [container],
        },
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": DRIVER, "namespace": NAMESPACE, "labels": names},
        "spec": {
            "selector": {"matchLabels": {"app": DRIVER}},
            "updateStrategy": {"type": "OnDelete"},
            "template": pod,
        },
    }
