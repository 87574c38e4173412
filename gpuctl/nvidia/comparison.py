"""Where selected configuration, hardware, labels, capacity and allocatable of a node do not agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpuctl.facts.state import Known, attempt
from gpuctl.nvidia.expected import GPU, MIG, SHARED, Expected, expected, loosely, uneven
from gpuctl.nvidia.model import Hardware
from gpuctl.nvidia.node import PREFIX, Node
from gpuctl.nvidia.objects import GpuPod
from gpuctl.nvidia.profile import Profile


@dataclass(frozen=True, slots=True)
class Gap:
    """A quantity that is not as it should be. `name` is a resource or a label."""

    name: str
    wanted: str
    found: str

    def __str__(self) -> str:
        return f"{self.name}: {self.found} instead of {self.wanted}"


def of_hardware(node: Node, hardware: Hardware) -> Expected:
    """What the node should offer for this hardware."""
    return expected(hardware, node.strategy, node.sharing)


def wrong_capacity(wanted: Expected, capacity: Mapping[str, int]) -> tuple[Gap, ...]:
    """Resources whose quantity is not that of the hardware, such as it does not have left aside."""
    asked = wanted.resources if wanted.exact else loosely(wanted.resources)
    found = capacity if wanted.exact else loosely(capacity)
    return tuple(
        Gap(name, str(count), str(found.get(name, 0)))
        for name, count in sorted(asked.items())
        if count != found.get(name, 0) and (count or name == GPU)
    )


def stale(wanted: Expected, capacity: Mapping[str, int]) -> tuple[Gap, ...]:
    """Resources that are offered, and of which the hardware has nothing."""
    asked = wanted.resources if wanted.exact else loosely(wanted.resources)
    found = capacity if wanted.exact else loosely(capacity)
    return tuple(
        Gap(name, "0", str(count))
        for name, count in sorted(found.items())
        if count and not asked.get(name) and name != GPU
    )


def unhealthy(node: Node) -> tuple[Gap, ...]:
    """Resources of which less can be allocated than there is."""
    return tuple(
        Gap(name, str(count), str(node.allocatable.get(name, 0)))
        for name, count in sorted(node.capacity.items())
        if node.allocatable.get(name, 0) < count
    )


def unlike_labels(node: Node) -> tuple[Gap, ...]:
    """Resources whose quantity is not what the labels promise."""
    promise = node.promised
    if promise is None:
        return ()
    return tuple(
        Gap(name, str(count), str(node.capacity.get(name, 0)))
        for name, count in sorted(promise.items())
        if count != node.capacity.get(name, 0)
    )


def unpromised(node: Node) -> tuple[Gap, ...]:
    """MIG resources that are offered, and that labels of strategy mixed do not know."""
    promise = node.promised
    if promise is None or node.strategy != "mixed":
        return ()
    return tuple(
        Gap(name, "0", str(count))
        for name, count in sorted(node.capacity.items())
        if count and name.startswith(MIG) and name not in promise
    )


def wrong_labels(node: Node, hardware: Hardware) -> tuple[Gap, ...]:
    """Labels of GPU feature discovery that do not describe the hardware."""
    if not node.described or node.invalid:
        return ()
    parts = {"single": _single_labels, "mixed": _mixed_labels}.get(node.strategy, _count_labels)
    return tuple(parts(node, hardware))


def _count_labels(node: Node, hardware: Hardware) -> Iterator[Gap]:
    """gpu.count is that of the labelled model; of which model of several, is chance."""
    models = hardware.models
    count = node.number("gpu.count")
    if not models or count is None:
        return
    gpus = models.get(node.product)
    if gpus is None:
        if node.label("gpu.product"):
            yield Gap(f"{PREFIX}gpu.product", " or ".join(sorted(models)), node.product)
    elif count != len(gpus):
        yield Gap(f"{PREFIX}gpu.count", str(len(gpus)), str(count))


def _mixed_labels(node: Node, hardware: Hardware) -> Iterator[Gap]:
    yield from _count_labels(node, hardware)
    present = hardware.whole_profiles
    labelled = dict(node.labelled_profiles)
    if not hardware.exact:
        labelled = _plain(labelled)
    for profile in sorted({*present, *labelled}, key=str):
        wanted, found = present.get(profile, 0), labelled.get(profile, 0)
        if wanted != found:
            yield Gap(f"{MIG}{profile.label}.count", str(wanted), str(found))


def _plain(counts: Mapping[Profile, int]) -> dict[Profile, int]:
    plain: dict[Profile, int] = {}
    for profile, count in counts.items():
        plain[profile.plain] = plain.get(profile.plain, 0) + count
    return plain


def _single_labels(node: Node, hardware: Hardware) -> Iterator[Gap]:
    if not any(gpu.sliced for gpu in hardware.gpus):
        yield from _count_labels(node, hardware)
        return
    if uneven(hardware):
        yield Gap(f"{PREFIX}gpu.product", "…-MIG-INVALID", node.label("gpu.product"))
        return
    devices = list(hardware.devices)
    count = node.number("gpu.count")
    if count is not None and count != len(devices):
        yield Gap(f"{PREFIX}gpu.count", str(len(devices)), str(count))
    wanted = f"-MIG-{devices[0].profile.label}"
    product = node.label("gpu.product").removesuffix("-SHARED")
    if hardware.exact and product and not product.endswith(wanted):
        yield Gap(f"{PREFIX}gpu.product", f"…{wanted}", product)


def unoffered(node: Node) -> Iterator[tuple[GpuPod, list[str]]]:
    """Running pods with resources that the node does not offer any more. Raises `NotKnown` if pods could not
    be read."""
    for pod in node.pods:
        gone = [
            name
            for name, count in pod.requests.items()
            if count and _is_ours(name) and not node.capacity.get(name)
        ]
        if gone and pod.running:
            yield pod, gone


def _is_ours(name: str) -> bool:
    return name in (GPU, GPU + SHARED) or name.startswith(MIG)


def in_doubt(node: Node) -> bool:
    """Whether what the API shows of a node does not agree, so that it is worth a second look."""
    if node.change is not None:
        return False
    if node.invalid or unhealthy(node) or unlike_labels(node) or unpromised(node):
        return True
    held = attempt(lambda: any(True for _ in unoffered(node)))
    return isinstance(held, Known) and held.value


def hardware_in_doubt(node: Node, hardware: Hardware) -> bool:
    """Whether what nvidia-smi shows does not agree with the node, or in itself."""
    if hardware.said or node.change is not None:
        return node.change is None
    wanted = of_hardware(node, hardware)
    return bool(
        wrong_capacity(wanted, node.capacity)
        or stale(wanted, node.capacity)
        or wrong_labels(node, hardware)
        or any(gpu.pending and gpu.pending != gpu.mode for gpu in hardware.gpus)
        or any(gpu.sliced and not gpu.devices for gpu in hardware.gpus)
        or any(not device.profile.whole for device in hardware.devices)
        or (node.recent and node.config)
    )
