"""What a change of the MIG configuration is: from what to what on each GPU, and what it takes with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from gpuctl.facts.state import Known, NotKnown, Reason, Unknown, attempt
from gpuctl.nvidia.expected import Expected, expected
from gpuctl.nvidia.listing import MigDevice
from gpuctl.nvidia.model import ENABLED, Gpu, Hardware, counted
from gpuctl.nvidia.node import Node
from gpuctl.nvidia.operands import DRIVER, MANAGER
from gpuctl.nvidia.parted import Difference, Part, differences
from gpuctl.nvidia.profile import parse
from gpuctl.runbook.drain.candidates import Scope

_OFF: Final = "Disabled"
_PREINSTALLED: Final = "pre-installed"
_LATER: Final = frozenset({"hopper", "blackwell", "rubin"})
_AMPERE_MODELS: Final = ("A30", "A100", "A800")
_REBOOT: Final = "WITH_REBOOT"
_HOST_CLIENTS: Final = "WITH_SHUTDOWN_HOST_GPU_CLIENTS"


class Wish(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What one GPU is to be like: by data, so that a journal holds it whatever becomes of ConfigMaps."""

    gpu: int
    enabled: bool
    profiles: tuple[tuple[str, int], ...] = ()

    @property
    def part(self) -> Part:
        """The same, as a configuration asks it."""
        return Part(self.enabled, self.profiles, devices=(self.gpu,))

    def __str__(self) -> str:
        """`7x 1g.10gb`, `MIG off`, or `MIG on and empty`."""
        return str(self.part)


def wishes(parts: Sequence[Part], hardware: Hardware) -> Iterator[Wish]:
    """What a configuration asks of each GPU that it covers. Raises NotKnown."""
    for gpu in hardware.gpus:
        covering = [part for part in parts if part.covers(gpu)]
        if covering:
            yield Wish(gpu=gpu.index, enabled=covering[-1].enabled, profiles=covering[-1].wanted)


def present(gpu: Gpu) -> Wish:
    """What a GPU is like now. Raises NotKnown."""
    if not gpu.mode and not gpu.devices:
        raise NotKnown(Unknown(Reason.NOT_ASKED, "its MIG mode is not known", str(gpu)))
    profiles = (
        (each.profile for each in gpu.instances)
        if gpu.instances is not None
        else (device.profile.instance for device in gpu.devices)
    )
    counts: dict[str, int] = {}
    for profile in profiles if gpu.sliced else ():
        counts[str(profile)] = counts.get(str(profile), 0) + 1
    return Wish(gpu=gpu.index, enabled=gpu.sliced, profiles=tuple(sorted(counts.items())))


def unlike(wanted: Sequence[Wish], hardware: Hardware) -> Iterator[str]:
    """In what way the GPUs are not as wished: other, gone, or more than there were. Raises NotKnown."""
    there = {gpu.index for gpu in hardware.gpus}
    for wish in wanted:
        if wish.gpu not in there:
            yield f"GPU {wish.gpu} is gone"
    yield from map(str, differences(tuple(wish.part for wish in wanted), hardware))


def fits(wanted: Sequence[Wish], hardware: Hardware) -> bool:
    """Whether the GPUs are as wished, every one of them. Raises NotKnown."""
    return not any(True for _ in unlike(wanted, hardware))


def uncovered(parts: tuple[Part, ...], hardware: Hardware) -> Iterator[Difference]:
    """The GPUs that a configuration is silent on: with such, MIG manager never finds it applied."""
    yield from (each for each in differences(parts, hardware) if each.wanted is None)


# What it will be like


def shaped(hardware: Hardware, wanted: Iterable[Wish]) -> Hardware:
    """The GPUs as they will be."""
    by_index = {wish.gpu: wish for wish in wanted}
    return Hardware(tuple(_shaped(gpu, by_index.get(gpu.index)) for gpu in hardware.gpus))


def _shaped(gpu: Gpu, wish: Wish | None) -> Gpu:
    if wish is None:
        return gpu
    names = [name for name, count in wish.profiles for _ in range(count)]
    found = [profile for profile in map(parse, names) if profile is not None]
    mode = ENABLED if wish.enabled else _OFF
    return msgspec.structs.replace(
        gpu,
        mode=mode,
        pending=mode,
        devices=tuple(MigDevice(i, profile, "", exact=True) for i, profile in enumerate(found)),
        instances=None,
        computes=None,
    )


# What it takes with it


@dataclass(frozen=True, slots=True)
class Means:
    """How MIG manager works on a node. `resets`: a change of mode resets every GPU of the node."""

    host_driver: bool
    reboots: bool
    resets: bool

    @property
    def driver(self) -> str:
        """`host` or `container`."""
        return "host" if self.host_driver else "container"


def means_of(node: Node) -> Means:
    """By the node's pods and labels; what they don't tell is taken for the worse. Raises NotKnown."""
    variables = _variables(node)
    told = variables.get(_HOST_CLIENTS, "").lower()
    if told in ("true", "false"):
        host = told == "true"
    else:
        host = node.label("gpu.deploy.driver") == _PREINSTALLED or not node.operands.get(DRIVER)
    return Means(host, variables.get(_REBOOT, "").lower() in ("true", "1"), _resets(node))


def _variables(node: Node) -> Mapping[str, str]:
    return {
        variable.name: variable.value
        for pod in node.operands.get(MANAGER, ())
        for container in pod.spec.containers
        for variable in container.env
    }


def _resets(node: Node) -> bool:
    """Whether its GPUs are of Ampere: later ones change their mode without a reset."""
    family = node.label("gpu.family").lower()
    if family:
        return family not in _LATER
    if node.number("gpu.compute.major") is not None:
        return (node.number("gpu.compute.major") or 0) <= 8  # noqa: PLR2004 - Ampere's
    parts = node.product.split("-")
    return not node.product or any(part.startswith(_AMPERE_MODELS) for part in parts)


@dataclass(frozen=True, slots=True)
class MigChange:
    """A change on one node. `before` and `after` by GPU; `mode`: GPUs whose MIG mode is switched."""

    config: str
    before: tuple[Wish, ...]
    after: tuple[Wish, ...]
    changed: tuple[int, ...]
    mode: tuple[int, ...]
    means: Means

    @property
    def kind(self) -> str:
        """`mode`, `geometry`, or `label` where the GPUs are as wanted already."""
        if self.mode:
            return "mode"
        return "geometry" if self.changed else "label"

    @property
    def scope(self) -> Scope:
        """Which pods must go: all of them where more than GPUs is touched, or every GPU is reset."""
        heavy = self.means.host_driver or self.means.reboots or self.means.resets
        return Scope.ALL if self.mode and heavy else Scope.GPU

    @property
    def consequences(self) -> Iterator[str]:
        """What happens beside the change itself, in lines."""
        if not self.mode:
            return
        yield f"MIG mode is switched on GPU {', '.join(map(str, self.mode))}"
        if self.means.resets:
            yield "GPUs of Ampere are reset for that, all of the node, also those that do not change"
        if self.means.host_driver:
            yield "the driver is the host's: MIG manager stops the kubelet meanwhile, the node is not Ready"
        if self.means.reboots:
            yield "MIG manager runs WITH_REBOOT: the node reboots if the mode does not take effect at once"

    @property
    def lines(self) -> Iterator[str]:
        """`gpu 0: 7x 1g.10gb -> 2x 3g.40gb`, for each GPU."""
        old = {wish.gpu: wish for wish in self.before}
        for wish in self.after:
            if wish.gpu in self.changed:
                yield f"gpu {wish.gpu}: {old[wish.gpu]} -> {wish}"
            else:
                yield f"gpu {wish.gpu}: {wish}, as it is"


def change_of(config: str, parts: tuple[Part, ...], hardware: Hardware, means: Means) -> MigChange:
    """What a configuration changes on these GPUs. Raises NotKnown."""
    after = tuple(wishes(parts, hardware))
    before = tuple(map(present, hardware.gpus))
    other = {each.gpu.index for each in differences(tuple(wish.part for wish in after), hardware)}
    sliced = {gpu.index: gpu.sliced for gpu in hardware.gpus}
    unsettled = {gpu.index for gpu in hardware.gpus if gpu.pending and gpu.mode and gpu.pending != gpu.mode}
    return MigChange(
        config=config,
        before=before,
        after=after,
        changed=tuple(wish.gpu for wish in after if wish.gpu in other),
        mode=tuple(wish.gpu for wish in after if wish.enabled != sliced[wish.gpu] or wish.gpu in unsettled),
        means=means,
    )


# What the scheduler sees of it


def offered(node: Node, hardware: Hardware, wanted: Iterable[Wish]) -> Expected:
    """What the node will offer."""
    return expected(shaped(hardware, wanted), node.strategy, node.sharing)


def layout(hardware: Hardware) -> str:
    """`0: 7x 1g.10gb; 1: MIG off`: by which a plan knows that nobody changed it since."""
    return "; ".join(f"{gpu.index}: {_layout(gpu)}" for gpu in hardware.gpus)


def _layout(gpu: Gpu) -> str:
    known = attempt(lambda: present(gpu))
    if isinstance(known, Known):
        return str(known.value)
    return counted(device.profile for device in gpu.devices) or "unknown"
