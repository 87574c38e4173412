"""The pods that serve GPUs on a node, known by their labels: names and namespaces differ everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gpuctl.facts.nodes import Place
from gpuctl.nvidia.objects import GpuPod

DEPLOY: Final = "nvidia.com/gpu.deploy."
PLUGIN: Final = "device-plugin"
GFD: Final = "gpu-feature-discovery"
MANAGER: Final = "mig-manager"
DRIVER: Final = "driver"


@dataclass(frozen=True)
class Operand:
    """One kind of such pods. `name` is also the end of its label `nvidia.com/gpu.deploy.<name>` on nodes."""

    name: str
    title: str
    marks: tuple[tuple[str, str], ...]


# In the order in which nvidia-smi is looked for.
OPERANDS: Final = (
    Operand(
        DRIVER,
        "driver pod",
        (
            ("app.kubernetes.io/component", "nvidia-driver"),
            ("app", "nvidia-driver-daemonset"),
            ("openshift.driver-toolkit", "true"),
        ),
    ),
    Operand(
        MANAGER,
        "MIG manager",
        (("app", "nvidia-mig-manager"), ("app.kubernetes.io/component", "nvidia-mig-manager")),
    ),
    Operand(
        PLUGIN,
        "device plugin",
        (
            ("app", "nvidia-device-plugin-daemonset"),
            ("app.kubernetes.io/name", "nvidia-device-plugin"),
            ("name", "nvidia-device-plugin-ds"),
            ("k8s-app", "nvidia-gpu-device-plugin"),
        ),
    ),
    Operand(
        GFD,
        "GPU feature discovery",
        (("app", "gpu-feature-discovery"), ("app.kubernetes.io/name", "gpu-feature-discovery")),
    ),
    Operand("dcgm", "DCGM", (("app", "nvidia-dcgm"),)),
    Operand(
        "dcgm-exporter",
        "DCGM exporter",
        (("app", "nvidia-dcgm-exporter"), ("app.kubernetes.io/name", "dcgm-exporter")),
    ),
    Operand("operator-validator", "operator validator", (("app", "nvidia-operator-validator"),)),
    Operand("container-toolkit", "container toolkit", (("app", "nvidia-container-toolkit-daemonset"),)),
)
BY_NAME: Final = {operand.name: operand for operand in OPERANDS}
_BY_MARK: Final = {mark: operand for operand in reversed(OPERANDS) for mark in operand.marks}
_KEYS: Final = tuple(dict.fromkeys(key for key, _ in _BY_MARK))
# Those without which a node does not offer its GPUs, or nobody sees what they do.
WATCHED: Final = (DRIVER, PLUGIN, GFD, "dcgm", "dcgm-exporter")


def operand_of(labels: Mapping[str, str]) -> Operand | None:
    """The kind of a pod with these labels, or None for any other pod."""
    found = [_BY_MARK[mark] for key in _KEYS if (mark := (key, labels.get(key, ""))) in _BY_MARK]
    return min(found, key=OPERANDS.index) if found else None


def places(pods: Mapping[str, tuple[GpuPod, ...]]) -> tuple[Place, ...]:
    """Where nvidia-smi may be run among these pods of one node, by kind of pod; the best place first."""
    return tuple(
        Place(pod.metadata.namespace, pod.metadata.name, container, operand.title)
        for operand in OPERANDS
        for pod in pods.get(operand.name, ())
        if pod.running and (container := _container(pod, operand))
    )


def _container(pod: GpuPod, operand: Operand) -> str:
    """The container to run commands in: the driver's own, that of the annotation, or the first."""
    names = [container.name for container in pod.spec.containers]
    default = pod.metadata.annotations.get("kubectl.kubernetes.io/default-container", "")
    wanted = ("nvidia-driver-ctr", f"nvidia-{operand.name}", default)
    name = next((name for name in wanted if name in names), names[0] if names else "")
    statuses = {status.name: status.ready for status in pod.status.container_statuses}
    return name if statuses.get(name, True) else ""
