"""What mig-parted does to the GPUs of a node, and where it leaves them when it fails.

A configuration is the text of mig-parted's file. GPUs are those of the nvidia-smi stand-in's state: each
function takes a state and gives the one after; `InUse` carries the state in which a failure left the GPUs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import yaml

from tests.cluster.standins.state import Gpu, GpuInstance, NodeState, sliced

ON, OFF = "Enabled", "Disabled"
Holder = tuple[int, int | None]  # a GPU and the GPU instance on it that is in use; None: the GPU as a whole


@dataclass(frozen=True)
class Part:
    """What a configuration asks of the GPUs it covers."""

    devices: Any
    filters: tuple[str, ...]
    enabled: bool
    profiles: tuple[str, ...]

    @classmethod
    def read(cls, entry: Mapping[str, Any]) -> Part:
        """One entry of a configuration."""
        filters = entry.get("device-filter") or ()
        wanted: Mapping[str, int] = entry.get("mig-devices") or {}
        return cls(
            devices=entry["devices"],
            filters=(filters,) if isinstance(filters, str) else tuple(filters),
            enabled=bool(entry["mig-enabled"]),
            profiles=tuple(name for name, count in wanted.items() for _ in range(count)),
        )

    def covers(self, gpu: Gpu) -> bool:
        """Whether it is about this GPU."""
        known = {each.partition(":")[0].lower() for each in self.filters}
        indexed = self.devices == "all" or gpu.index in self.devices
        return indexed and (not known or f"0x{gpu.device_id}".lower() in known)


class Failed(Exception):
    """mig-parted ends with an error; `after` is the state it leaves."""

    def __init__(self, text: str, after: NodeState) -> None:
        super().__init__(text)
        self.after = after


class InUse(Failed):
    """A GPU or an instance is in use by another client."""


def configurations(text: str) -> dict[str, tuple[Part, ...]]:
    """The configurations of a file, by name."""
    configs: Mapping[str, Sequence[Mapping[str, Any]]] = yaml.safe_load(text)["mig-configs"]
    return {name: tuple(map(Part.read, entries)) for name, entries in configs.items()}


def wanted(parts: Iterable[Part], gpu: Gpu) -> Part | None:
    """What the configuration asks of a GPU; None if it is silent on it."""
    covering = [part for part in parts if part.covers(gpu)]
    return covering[-1] if covering else None


def mode_is_right(parts: Sequence[Part], state: NodeState) -> bool:
    """`assert --mode-only`: every GPU that is covered has the mode."""
    return all((part := wanted(parts, gpu)) is None or _mode(part) == gpu.mig_current for gpu in state.gpus)


def is_applied(parts: Sequence[Part], state: NodeState) -> bool:
    """`assert`: every GPU is covered, and as wanted."""
    return all((part := wanted(parts, gpu)) is not None and _is_as(part, gpu) for gpu in state.gpus)


def with_mode(parts: Sequence[Part], state: NodeState, held: Collection[Holder] = ()) -> NodeState:
    """`apply --mode-only`: instances cleared, the mode set, before Hopper all GPUs of the node reset."""
    odd = {gpu.index for gpu in state.gpus if (part := wanted(parts, gpu)) and _mode(part) != gpu.mig_current}
    if not odd:
        return state
    ampere = any(gpu.architecture == "Ampere" for gpu in state.gpus if gpu.index in odd)
    busy = {gpu for gpu, _ in held}
    blocked = busy if ampere else busy & odd
    gpus = []
    for gpu in state.gpus:
        if gpu.index not in odd:
            gpus.append(gpu)
            continue
        mode = ON if gpu.mig_current == OFF else OFF
        cleared = without_instances(gpu, held)
        done = gpu.index not in blocked and not (ampere and blocked)
        gpus.append(replace(cleared, mig_pending=mode, mig_current=mode if done else gpu.mig_current))
    after = replace(state, gpus=tuple(gpus))
    if blocked:
        raise InUse(f"error resetting GPUs {sorted(blocked)}: In use by another client", after)
    return after


def with_geometry(parts: Sequence[Part], state: NodeState, held: Collection[Holder] = ()) -> NodeState:
    """`apply`: GPUs that are right are left alone, the others are cleared and sliced anew."""
    if not mode_is_right(parts, state):
        raise Failed("unable to apply MIG config with MIG mode disabled", state)
    odd = {
        gpu.index: part
        for gpu in state.gpus
        if (part := wanted(parts, gpu)) is not None and not _is_as(part, gpu)
    }
    busy = {gpu for gpu, _ in held} & odd.keys()
    cleared = tuple(without_instances(gpu, held) if gpu.index in odd else gpu for gpu in state.gpus)
    if busy:
        raise InUse(
            f"error destroying GPU instances of GPUs {sorted(busy)}: In use by another client",
            replace(state, gpus=cleared),
        )
    try:
        made = tuple(_sliced(gpu, odd[gpu.index]) if gpu.index in odd else gpu for gpu in cleared)
    except ValueError as error:
        raise Failed(f"unable to create MIG devices: {error}", replace(state, gpus=cleared)) from error
    after = replace(state, gpus=made)
    if not is_applied(parts, after):
        raise Failed("not all GPUs match the specified config", after)
    return after


def cleared(parts: Sequence[Part], state: NodeState) -> NodeState:
    """The GPUs that are not as wanted without their instances: where a failed `apply` leaves them."""
    odd = {g.index for g in state.gpus if (part := wanted(parts, g)) is not None and not _is_as(part, g)}
    gpus = tuple(without_instances(gpu) if gpu.index in odd else gpu for gpu in state.gpus)
    return replace(state, gpus=gpus)


def after_boot(state: NodeState) -> NodeState:
    """No instance outlives a reboot; the mode does before Hopper, where a pending one takes effect."""
    return replace(state, processes=(), gpus=tuple(map(_booted, state.gpus)))


def granted(state: NodeState, asked: Mapping[str, int], taken: Collection[Holder] = ()) -> frozenset[Holder]:
    """What a pod that asks for these resources gets: the first that fit of what is not taken."""
    free = [(gpu, each) for gpu in state.gpus for each in gpu.instances if (gpu.index, each.id) not in taken]
    whole = [g.index for g in state.gpus if g.mig_current != ON and (g.index, None) not in taken]
    held: set[Holder] = set()
    for name, count in asked.items():
        if name == "nvidia.com/gpu" and whole:
            held |= {(index, None) for index in whole[:count]}
            continue
        fitting = [each for each in free if name in ("nvidia.com/gpu", _resource(each[1]))][:count]
        held |= {(gpu.index, instance.id) for gpu, instance in fitting}
    return frozenset(held)


def without_instances(gpu: Gpu, held: Collection[Holder] = ()) -> Gpu:
    """The GPU without those of its instances that nobody holds."""
    kept = tuple(each for each in gpu.instances if {(gpu.index, each.id), (gpu.index, None)} & set(held))
    return replace(gpu, instances=kept, memory_used=sum(each.memory_used for each in kept))


def _resource(instance: GpuInstance) -> str:
    return f"nvidia.com/mig-{instance.profile.replace('+', '.')}"


def _mode(part: Part) -> str:
    return ON if part.enabled else OFF


def _is_as(part: Part, gpu: Gpu) -> bool:
    there = Counter(each.profile for each in gpu.instances if each.compute_instances)
    return _mode(part) == gpu.mig_current and there == Counter(part.profiles)


def _sliced(gpu: Gpu, part: Part) -> Gpu:
    if not part.enabled:
        return gpu
    offered = {profile.name: profile for profile in gpu.profiles}
    if missing := sorted(set(part.profiles) - offered.keys()):
        raise ValueError(f"{', '.join(missing)} not supported by {gpu.name}")
    return sliced(gpu, sorted(part.profiles, key=lambda name: -offered[name].size), {})


def _booted(gpu: Gpu) -> Gpu:
    mode = gpu.mig_pending if gpu.architecture == "Ampere" else (OFF if gpu.profiles else gpu.mig_current)
    return replace(without_instances(gpu), mig_current=mode, mig_pending=mode)
