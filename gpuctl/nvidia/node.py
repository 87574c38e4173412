"""A GPU node as the API shows it: what it is labelled with, offers, and is going through."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Final

from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Known, State, value
from gpuctl.nvidia import expected
from gpuctl.nvidia.expected import GPU, MIG, SHARED, Sharing
from gpuctl.nvidia.objects import (
    ClusterPolicySpec,
    GpuPod,
    LabelWriter,
    NodeView,
    OperandSet,
    SliceDevice,
    quantity,
)
from gpuctl.nvidia.operands import DEPLOY, PLUGIN, operand_of
from gpuctl.nvidia.profile import Profile, parse_label

PREFIX: Final = "nvidia.com/"
CONFIG: Final = "nvidia.com/mig.config"
STATE: Final = "nvidia.com/mig.config.state"
UPGRADE: Final = "nvidia.com/gpu-driver-upgrade-state"
PAUSED: Final = "paused-for-"
SETTLING: Final = timedelta(minutes=6)  # the kubelet keeps a gone plugin's resources for five
_LAST_STAMP: Final = 1 << 33
_INVALID: Final = "-MIG-INVALID"
_WAITING: Final = frozenset({"", "upgrade-required", "upgrade-done", "upgrade-failed"})


@dataclass(frozen=True, slots=True)
class Change:
    """A change under way. `since` is None where nothing tells when it began."""

    what: str
    label: str
    since: datetime | None


@dataclass(frozen=True, slots=True)
class Owner:
    """Who else decides the geometry. `judged`: expectations can be derived by this owner's rules."""

    name: str
    how: str
    judged: bool = False
    strategy: str = ""


@dataclass(frozen=True, slots=True)
class Around:
    """What was read beside the nodes; each may be unknown."""

    pods: State[Mapping[str, tuple[GpuPod, ...]]]
    policy: State[ClusterPolicySpec | None]
    sets: State[Mapping[str, tuple[OperandSet, ...]]]
    devices: State[Mapping[str, tuple[SliceDevice, ...]]]
    now: datetime


@dataclass(frozen=True, eq=False)
class Node:
    """A node with GPUs. `earlier` is the same node as it was read ten seconds before, if it was."""

    view: NodeView
    around: Around = field(repr=False)
    earlier: Node | None = field(default=None, repr=False)

    @cached_property
    def ref(self) -> Ref:
        """The Node object."""
        return self.view.ref

    @cached_property
    def name(self) -> str:
        """The node's name."""
        return self.view.metadata.name

    @cached_property
    def labels(self) -> Mapping[str, str]:
        """All labels."""
        return self.view.metadata.labels

    def label(self, name: str) -> str:
        """A label of NVIDIA's, empty if it is absent."""
        return self.labels.get(PREFIX + name, "")

    def number(self, name: str) -> int | None:
        """A label of NVIDIA's that is a number, None if it is absent or none."""
        text = self.label(name)
        return int(text) if text.isdecimal() and text.isascii() else None

    @property
    def has_gpus(self) -> bool:
        """Whether anything says that there are NVIDIA GPUs in it."""
        labels = self.labels
        return (
            labels.get("nvidia.com/gpu.present") == "true"
            or any(labels.get(PREFIX + name) for name in ("gpu.count", "mig.config", "mig.capable"))
            or any(name.startswith("feature.node.kubernetes.io/pci-") and "10de" in name for name in labels)
            or "cloud.google.com/gke-accelerator" in labels
            or any(self.capacity.values())
        )

    # What it offers

    @cached_property
    def capacity(self) -> Mapping[str, int]:
        """The resources of GPUs and MIG devices, as the kubelet reports them."""
        return _devices(self.view.status.capacity)

    @cached_property
    def allocatable(self) -> Mapping[str, int]:
        """What of them can be allocated."""
        return _devices(self.view.status.allocatable)

    # What GPU feature discovery wrote

    @cached_property
    def described(self) -> bool:
        """Whether GPU feature discovery has described the hardware."""
        return bool(self.label("gpu.product") or self.label("gpu.count"))

    @cached_property
    def product(self) -> str:
        """The model as labelled, without the suffixes of MIG and sharing."""
        product = self.label("gpu.product").removesuffix("-SHARED")
        return product.partition("-MIG-")[0].removeprefix("NVIDIA-")

    @cached_property
    def invalid(self) -> bool:
        """Whether strategy single gave up on the hardware."""
        return self.label("gpu.product").removesuffix("-SHARED").endswith(_INVALID)

    @cached_property
    def strategy(self) -> str:
        """none, single or mixed: of an owner that decides it, as labelled, or as configured."""
        if self.owner and self.owner.strategy:
            return self.owner.strategy
        if self.described:
            return self.labelled_strategy
        return self.configured_strategy or "none"

    @property
    def guessed(self) -> bool:
        """Whether nobody tells how its devices are shared, and perhaps not even by which strategy they are
        offered: labels do, or an owner with rules of its own."""
        return not self.described and not (self.owner and self.owner.strategy)

    @property
    def tells_one_model(self) -> bool:
        """Whether its labels count whole GPUs: of a node with several models they count those of one."""
        return self.strategy != "mixed" and "-MIG-" not in self.label("gpu.product")

    @cached_property
    def labelled_strategy(self) -> str:
        """The strategy that the labels tell; they have none for none."""
        label = self.label("mig.strategy")
        if label in expected.STRATEGIES:
            return label
        return "single" if "-MIG-" in self.label("gpu.product") else "none"

    @property
    def configured_strategy(self) -> str:
        """The strategy of the device plugin on this node or of the ClusterPolicy, empty if not known."""
        if isinstance(self.around.pods, Known):
            for pod in self.operands.get(PLUGIN, ()):
                for container in pod.spec.containers:
                    for variable in container.env:
                        if variable.name == "MIG_STRATEGY" and variable.value in expected.STRATEGIES:
                            return variable.value
        policy = self.around.policy
        spec = policy.value if isinstance(policy, Known) else None
        return spec.mig.strategy if spec and spec.mig and spec.mig.strategy in expected.STRATEGIES else ""

    @cached_property
    def labelled_profiles(self) -> Mapping[Profile, int]:
        """The MIG profiles that labels count, as strategy mixed has them."""
        counts: dict[Profile, int] = {}
        for name, text in self.labels.items():
            if name.startswith(MIG) and name.endswith(".count") and text.isdecimal():
                profile = parse_label(name.removeprefix(MIG).removesuffix(".count"))
                if profile is not None:
                    counts[profile] = int(text)
        return counts

    @cached_property
    def sharing(self) -> Sharing:
        """How devices are shared, as labels and resource names tell."""
        replicas = {GPU: self.number("gpu.replicas") or 1}
        shared_by_gke = self.labels.get("cloud.google.com/gke-max-shared-clients-per-gpu", "")
        if shared_by_gke.isdecimal() and int(shared_by_gke) > 0:
            replicas[GPU] = int(shared_by_gke)
        kinds = [self.label("gpu.sharing-strategy")]
        for profile in self.labelled_profiles:
            name = f"mig-{profile.label}"
            replicas[profile.resource] = self.number(f"{name}.replicas") or 1
            kinds.append(self.label(f"{name}.sharing-strategy"))
        kind = next((each for each in kinds if each not in ("", "none")), "none")
        return Sharing(kind, replicas, frozenset(self._renamed(replicas)))

    def _renamed(self, replicas: Mapping[str, int]) -> Iterator[str]:
        for name in replicas:
            if self.capacity.get(f"{name}{SHARED}") and not self.capacity.get(name):
                yield name

    @cached_property
    def promised(self) -> Mapping[str, int] | None:
        """What the labels promise, by resource; None where they tell too little.

        On a node with several models the labels of full GPUs describe one of them, so those are left out.
        """
        if not self.described or self.invalid:
            return None
        count = self.number("gpu.count")
        if self.strategy != "mixed":
            return None if count is None else self.sharing.offered({GPU: count})
        return self.sharing.offered(
            {profile.resource: number for profile, number in self.labelled_profiles.items() if profile.whole}
        )

    # Pods

    @cached_property
    def pods(self) -> tuple[GpuPod, ...]:
        """The pods on it. Raises `NotKnown` if pods could not be read."""
        return value(self.around.pods).get(self.name, ())

    @cached_property
    def operands(self) -> Mapping[str, tuple[GpuPod, ...]]:
        """The pods that serve its GPUs, by kind. Raises `NotKnown` if pods could not be read."""
        found: dict[str, list[GpuPod]] = {}
        for pod in self.pods:
            operand = operand_of(pod.metadata.labels)
            if operand is not None:
                found.setdefault(operand.name, []).append(pod)
        return {name: tuple(pods) for name, pods in found.items()}

    # Who decides the geometry

    @cached_property
    def owner(self) -> Owner | None:
        """Who decides the geometry in MIG manager's place, or None."""
        labels, annotations = self.labels, self.view.metadata.annotations
        if any(name.startswith(("hami.io/node-nvidia", "hami.io/node-handshake")) for name in annotations):
            return Owner("HAMi", "annotation hami.io/node-…")
        names = "\n".join(("", *labels, *annotations))
        if "\nnos.nebuly.com/" in names:
            return Owner("nos", "nos.nebuly.com/… on the node")
        if "instaslice" in names or any("instaslice" in name for name in self.view.status.capacity):
            return Owner("instaslice", "instaslice on the node")
        if "run.ai/mig.config" in labels or "node-role.kubernetes.io/runai-dynamic-mig" in labels:
            return Owner("Run:ai", "a label of Run:ai")
        if "cloud.google.com/gke-gpu-partition-size" in labels:
            return Owner(
                "GKE", "label cloud.google.com/gke-gpu-partition-size", judged=True, strategy="single"
            )
        if self.view.status.node_info.os_image.startswith("Bottlerocket"):
            return Owner("Bottlerocket", "the node's operating system", judged=True)
        if self.dra_devices and not any(self.capacity.values()):
            return Owner("the DRA driver", "ResourceSlices of driver gpu.nvidia.com")
        return None

    @property
    def dra_devices(self) -> tuple[SliceDevice, ...]:
        """The devices that NVIDIA's DRA driver publishes of this node, as far as that is known."""
        devices = self.around.devices
        return devices.value.get(self.name, ()) if isinstance(devices, Known) else ()

    @cached_property
    def passed_through(self) -> bool:
        """Whether its GPUs are handed to virtual machines."""
        return self.label("gpu.workload.config").startswith("vm-")

    @cached_property
    def virtual(self) -> bool:
        """Whether its GPUs are virtual, so that MIG is decided outside."""
        return self.label("vgpu.present") == "true"

    # What it is going through

    @cached_property
    def config(self) -> str:
        """The configuration that is asked for."""
        return self.labels.get(CONFIG, "")

    @cached_property
    def state(self) -> str:
        """What MIG manager says of it: success, failed, pending, rebooting, or nothing."""
        return self.labels.get(STATE, "")

    @cached_property
    def paused(self) -> Mapping[str, str]:
        """Operands that are paused, and for what, by their labels."""
        paused = [
            (name, text)
            for name, text in self.labels.items()
            if text.startswith(PAUSED) and name.startswith(DEPLOY)
        ]
        return dict(sorted(paused))

    @cached_property
    def upgrading(self) -> str:
        """The state of a driver upgrade under way, empty if none is."""
        state = self.labels.get(UPGRADE, "")
        return "" if state in _WAITING else state

    @cached_property
    def change(self) -> Change | None:
        """The change that is under way, or None."""
        if self.state in ("pending", "rebooting"):
            return Change(f"MIG manager's state is {self.state}", STATE, self._written("state"))
        if self.upgrading:
            return Change(f"a driver upgrade is at {self.upgrading}", UPGRADE, self._written("upgrade"))
        if self.paused:
            name, text = next(iter(self.paused.items()))
            return Change(f"operands are {text}", name, self._written("plugin"))
        return None

    def _written(self, *names: str) -> datetime | None:
        """When the newest of these labels was written, at the latest; None if that is not known."""
        writers = self.view.metadata.managed_fields
        times = [each.time for each in writers if each.time and _wrote(each, names)]
        return max(times, default=None)

    @cached_property
    def changed_at(self) -> datetime | None:
        """When geometry, or who reports it, changed last, as far as that is known. What people write by hand
        asks for changes, and is none."""
        times = [self._written_by_a_program("state", "plugin", "upgrade")]
        if isinstance(self.around.pods, Known):
            times += [_started(pod) for pod in self.operands.get(PLUGIN, ())]
        return max((time for time in times if time), default=None)

    @cached_property
    def described_at(self) -> datetime | None:
        """When GPU feature discovery started that wrote the labels."""
        stamp = self.number("gfd.timestamp") or 0
        return datetime.fromtimestamp(stamp, UTC) if 0 < stamp < _LAST_STAMP else None

    @cached_property
    def configured_at(self) -> datetime | None:
        """When MIG manager wrote its state, at the latest; None if that is not known."""
        return self._written_by_a_program("state")

    def _written_by_a_program(self, *names: str) -> datetime | None:
        writers = self.view.metadata.managed_fields
        times = [
            each.time
            for each in writers
            if each.time and not each.manager.startswith("kubectl") and _wrote(each, names)
        ]
        return max(times, default=None)

    @cached_property
    def recent(self) -> bool:
        """Whether the last change is so young that the kubelet may still report what was before."""
        changed = self.changed_at
        return changed is not None and self.around.now - changed < SETTLING

    @cached_property
    def ready(self) -> bool:
        """Whether the kubelet reports it as Ready."""
        return any(each.type == "Ready" and each.status == "True" for each in self.view.status.conditions)

    @property
    def not_ready_since(self) -> datetime | None:
        """Since when it is not Ready, if that is known."""
        found = [
            each for each in self.view.status.conditions if each.type == "Ready" and each.status != "True"
        ]
        return found[0].last_transition_time if found else None


def _devices(amounts: Mapping[str, str | int]) -> dict[str, int]:
    return {
        name: quantity(amount)
        for name, amount in amounts.items()
        if name in (GPU, GPU + SHARED) or name.startswith(MIG)
    }


def _wrote(writer: LabelWriter, names: tuple[str, ...]) -> bool:
    labels = writer.labels
    return any(getattr(labels, name) is not None for name in names)


def _started(pod: GpuPod) -> datetime | None:
    times = [each.state.running.started_at for each in pod.status.container_statuses if each.state.running]
    return max((time for time in times if time), default=None)


def age(since: datetime | None, now: datetime) -> str:
    """`since 40 s`, `since 3 h`, or that it is not known since when."""
    if since is None:
        return "since when is not known"
    seconds = max(0, int((now - since).total_seconds()))
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"since {seconds // length} {unit}"
    return f"since {seconds} s"
