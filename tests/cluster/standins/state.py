"""The state that the stand-ins answer from: GPUs, their MIG instances, processes, faults, as one JSON file.

`h100(0, mig=["3g.40gb", "1g.10gb+me", "1g.10gb@6"])` is a GPU with three instances: each lies where all fit,
or at the start after "@"; "1c.3g.40gb" has a compute instance smaller than itself, "0c.3g.40gb" has none.
Identifiers are derived from the node's name and the GPU's index: the same state has the same identifiers.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import msgspec

NVIDIA_SMI = Path(__file__).with_name("nvidia_smi.py")
LSPCI = Path(__file__).with_name("lspci.py")

_IDENTIFIERS = uuid.UUID("6a1d5f5c-9f0b-4c55-9d2e-7b3a0c1f2e4d")
_IDLE = 15  # MiB that an instance without processes uses


@dataclass(frozen=True, kw_only=True)
class Profile:
    """What an instance of a profile gets, and where it may lie."""

    name: str
    id: int
    compute: int
    size: int
    starts: tuple[int, ...]
    max: int
    memory: int
    sm: int
    ce: int
    dec: int
    enc: int = 0
    jpeg: int = 0
    ofa: int = 0


@dataclass(frozen=True, kw_only=True)
class ComputeInstance:
    """A compute instance: one MIG device of `nvidia-smi -L`."""

    id: int = 0
    name: str
    uuid: str
    profile_id: int
    start: int = 0
    size: int
    sm: int


@dataclass(frozen=True, kw_only=True)
class GpuInstance:
    """A GPU instance, in the order of creation."""

    id: int
    profile: str
    profile_id: int
    start: int
    size: int
    memory_total: int
    memory_used: int
    bar1_total: int
    bar1_used: int = 0
    ce: int
    enc: int
    dec: int
    ofa: int
    jpeg: int
    compute_instances: tuple[ComputeInstance, ...]


@dataclass(frozen=True, kw_only=True)
class Process:
    """A process on a GPU; `gi` and `ci` where it holds a MIG device."""

    gpu: int
    pid: int
    name: str
    memory: int
    gi: int | None = None
    ci: int | None = None
    type: str = "C"


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU. `memory_used` None: seen from inside a container; `lost`: on the PCI bus only."""

    index: int
    name: str
    uuid: str
    bus_id: str
    device_id: str
    architecture: str
    memory_total: int
    bar1_total: int
    power_limit: int
    memory_reserved: int = 480
    memory_used: int | None = 0
    utilization: int = 0
    temperature: int = 31
    power: float = 70.5
    ecc: int | None = 0
    persistence: bool = True
    compute_mode: str = "Default"
    mig_current: str = "Disabled"
    mig_pending: str = "Disabled"
    profiles: tuple[Profile, ...] = ()
    instances: tuple[GpuInstance, ...] = ()
    serial: str = "N/A"
    lost: bool = False
    clocks: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)
    xml: Mapping[str, str] = field(default_factory=dict)

    @property
    def slots(self) -> int:
        """Memory slices."""
        return max(profile.size for profile in self.profiles)

    def profile(self, name: str) -> Profile:
        """A profile by name."""
        return next(profile for profile in self.profiles if profile.name == name)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What nvidia-smi says instead; faults.py has those that have been seen.

    `on` is a pattern looked for in the arguments; `stdout` None keeps the normal answer.
    """

    on: str = ""
    stdout: str | None = None
    stderr: str = ""
    exit: int = 0
    sleep: float = 0

    def only(self, on: str) -> Fault:
        """The same for some command lines only, such as "mig -lci"."""
        return replace(self, on=on)


@dataclass(frozen=True, kw_only=True)
class NodeState:
    """Everything that the stand-ins of one node know."""

    driver: str = "580.105.08"
    cuda: str = "13.0"
    timestamp: str | None = None
    gpus: tuple[Gpu, ...] = ()
    processes: tuple[Process, ...] = ()
    faults: tuple[Fault, ...] = ()

    def write(self, path: Path) -> Path:
        """Store the state; readers never see half of it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".new")
        unfinished.write_text(json.dumps(asdict(self)), encoding="utf-8")
        return unfinished.replace(path)

    @classmethod
    def read(cls, path: Path) -> NodeState:
        """The state that was stored."""
        return msgspec.json.decode(path.read_bytes(), type=cls)

    def failing(self, *faults: Fault) -> NodeState:
        """The same node with faults."""
        return replace(self, faults=faults)


# --- models -------------------------------------------------------------------------------------------------

_SEVEN: tuple[tuple[str, int, int, int, tuple[int, ...], int], ...] = (
    ("1g", 19, 1, 1, (0, 1, 2, 3, 4, 5, 6), 7),
    ("1g+me", 20, 1, 1, (0, 1, 2, 3, 4, 5, 6), 1),
    ("1g2", 15, 1, 2, (0, 2, 4, 6), 4),
    ("2g", 14, 2, 2, (0, 2, 4), 3),
    ("3g", 9, 3, 4, (0, 4), 2),
    ("4g", 5, 4, 4, (0,), 1),
    ("7g", 0, 7, 8, (0,), 1),
)
_A30: tuple[tuple[str, int, int, int, tuple[int, ...], int], ...] = (
    ("1g", 14, 1, 1, (0, 1, 2, 3), 4),
    ("1g+me", 21, 1, 1, (0, 1, 2, 3), 1),
    ("2g", 5, 2, 2, (0, 2), 2),
    ("2g+me", 6, 2, 2, (0, 2), 1),
    ("4g", 0, 4, 4, (0,), 1),
)
# class: (name, MiB, SMs, copy engines, decoders, jpeg, ofa)
_Parts = Mapping[str, tuple[str, int, int, int, int, int, int]]
_H100_80: _Parts = {
    "1g": ("1g.10gb", 9984, 16, 1, 1, 1, 0),
    "1g+me": ("1g.10gb+me", 9984, 16, 1, 1, 1, 1),
    "1g2": ("1g.20gb", 20096, 26, 1, 1, 1, 0),
    "2g": ("2g.20gb", 20096, 32, 2, 2, 2, 0),
    "3g": ("3g.40gb", 40448, 60, 3, 3, 3, 0),
    "4g": ("4g.40gb", 40448, 64, 4, 4, 4, 0),
    "7g": ("7g.80gb", 81152, 132, 8, 7, 7, 1),
}
_H200: _Parts = {
    "1g": ("1g.18gb", 16384, 16, 1, 1, 1, 0),
    "1g+me": ("1g.18gb+me", 16384, 16, 1, 1, 1, 1),
    "1g2": ("1g.35gb", 33280, 26, 1, 1, 1, 0),
    "2g": ("2g.35gb", 33280, 32, 2, 2, 2, 0),
    "3g": ("3g.71gb", 71424, 60, 3, 3, 3, 0),
    "4g": ("4g.71gb", 71424, 64, 4, 4, 4, 0),
    "7g": ("7g.141gb", 143360, 132, 8, 7, 7, 1),
}
_A100_40: _Parts = {
    "1g": ("1g.5gb", 4864, 14, 1, 0, 0, 0),
    "1g+me": ("1g.5gb+me", 4864, 14, 1, 1, 1, 1),
    "1g2": ("1g.10gb", 9984, 14, 1, 1, 0, 0),
    "2g": ("2g.10gb", 9984, 28, 2, 1, 0, 0),
    "3g": ("3g.20gb", 20096, 42, 3, 2, 0, 0),
    "4g": ("4g.20gb", 20096, 56, 4, 2, 0, 0),
    "7g": ("7g.40gb", 40448, 98, 7, 5, 1, 1),
}
_A30_24: _Parts = {
    "1g": ("1g.6gb", 5952, 14, 1, 1, 0, 0),
    "1g+me": ("1g.6gb+me", 5952, 14, 1, 1, 1, 1),
    "2g": ("2g.12gb", 11968, 28, 2, 2, 0, 0),
    "2g+me": ("2g.12gb+me", 11968, 28, 2, 2, 1, 1),
    "4g": ("4g.24gb", 24000, 56, 4, 4, 1, 1),
}


def _profiles(
    geometry: Iterable[tuple[str, int, int, int, tuple[int, ...], int]], parts: _Parts
) -> tuple[Profile, ...]:
    """The profiles of a model."""
    made = []
    for kind, number, compute, size, starts, most in geometry:
        name, memory, sm, ce, dec, jpeg, ofa = parts[kind]
        made.append(
            Profile(
                name=name, id=number, compute=compute, size=size, starts=starts, max=most,
                memory=memory, sm=sm, ce=ce, dec=dec, jpeg=jpeg, ofa=ofa,
            )
        )  # fmt: skip
    return tuple(made)


@dataclass(frozen=True, kw_only=True)
class Model:
    """A GPU model: what nvidia-smi says of it, and what GPU feature discovery writes on its nodes."""

    name: str
    device_id: str
    architecture: str
    compute_capability: tuple[int, int]
    memory: int
    bar1: int
    power_limit: int
    profiles: tuple[Profile, ...] = ()
    clocks: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)

    @property
    def product(self) -> str:
        """The name as label value."""
        return self.name.replace(" ", "-")

    def gpu(
        self,
        index: int,
        mig: Sequence[str] | None = None,
        *,
        node: str = "node",
        used: Mapping[str, int] | None = None,
    ) -> Gpu:
        """A GPU; `mig` None: mode off, empty: no instances; `used`: MiB by the number of the instance."""
        gpu = Gpu(
            index=index,
            name=self.name,
            uuid=f"GPU-{identifier(node, index)}",
            bus_id=f"00000000:{0x1B + 0x12 * index:02X}:00.0",
            device_id=f"{self.device_id}10DE",
            architecture=self.architecture,
            memory_total=self.memory,
            bar1_total=self.bar1,
            power_limit=self.power_limit,
            profiles=self.profiles,
            clocks=self.clocks,
            mig_current="Disabled" if self.profiles else "N/A",
            mig_pending="Disabled" if self.profiles else "N/A",
        )
        return gpu if mig is None else sliced(gpu, mig, used or {})


def identifier(*parts: object) -> str:
    """A made-up identifier that is always the same for the same parts."""
    return str(uuid.uuid5(_IDENTIFIERS, "/".join(str(part) for part in parts)))


def sliced(gpu: Gpu, mig: Sequence[str], used: Mapping[str, int]) -> Gpu:
    """The GPU in MIG mode with these instances, each "[Cc.]PROFILE[@START]"."""
    wished = [_Wish.read(gpu, text) for text in mig]
    starts = _fit(wished, frozenset())
    if starts is None:
        raise ValueError(f"{', '.join(mig)} do not fit together on a {gpu.name}")
    instances = tuple(_instance(gpu, wish, start, used) for wish, start in zip(wished, starts, strict=True))
    return replace(
        gpu,
        mig_current="Enabled",
        mig_pending="Enabled",
        instances=instances,
        memory_used=sum(instance.memory_used for instance in instances),
    )


@dataclass(frozen=True)
class _Wish:
    """An instance that is asked for."""

    profile: Profile
    compute: int
    starts: tuple[int, ...]

    @classmethod
    def read(cls, gpu: Gpu, text: str) -> _Wish:
        """Read "[Cc.]PROFILE[@START]"."""
        name, _, start = text.partition("@")
        compute, smaller, rest = name.partition("c.")
        profile = gpu.profile(rest if smaller else name)
        starts = (int(start),) if start else profile.starts
        return cls(profile, int(compute) if smaller else profile.compute, starts)


def _fit(wished: Sequence[_Wish], taken: frozenset[int]) -> list[int] | None:
    """A start for each, so that none overlap; the largest go last, as the driver puts them."""
    if not wished:
        return []
    size = wished[0].profile.size
    starts = wished[0].starts
    for start in reversed(starts) if size == max(starts) else starts:
        slots = frozenset(range(start, start + size))
        rest = None if slots & taken else _fit(wished[1:], taken | slots)
        if rest is not None:
            return [start, *rest]
    return None


def _instance(gpu: Gpu, wish: _Wish, start: int, used: Mapping[str, int]) -> GpuInstance:
    """A GPU instance; its number is its place in the tree of halves, quarters and eighths."""
    profile = wish.profile
    number = gpu.slots // profile.size - 1 + start // profile.size
    return GpuInstance(
        id=number,
        profile=profile.name,
        profile_id=profile.id,
        start=start,
        size=profile.size,
        memory_total=profile.memory,
        memory_used=used.get(str(number), _IDLE),
        bar1_total=gpu.bar1_total * profile.size // gpu.slots - 1,
        ce=profile.ce,
        enc=profile.enc,
        dec=profile.dec,
        ofa=profile.ofa,
        jpeg=profile.jpeg,
        compute_instances=_compute_instances(gpu, profile, number, wish.compute),
    )


def _compute_instances(gpu: Gpu, profile: Profile, number: int, compute: int) -> tuple[ComputeInstance, ...]:
    """The compute instance of a GPU instance; none if `compute` is 0."""
    plain = profile.name.partition("+")[0]
    if compute == 0:
        return ()
    return (
        ComputeInstance(
            name=plain if compute == profile.compute else f"{compute}c.{plain}",
            uuid=f"MIG-{identifier(gpu.uuid, number, 0)}",
            profile_id=compute - 1,
            size=compute,
            sm=profile.sm if compute == profile.compute else gpu.profiles[0].sm * compute,
        ),
    )


_HOPPER_CLOCKS = {"2619": (1980, 345, 15), "1593": (1980, 345, 15)}
H100 = Model(
    name="NVIDIA H100 80GB HBM3", device_id="2330", architecture="Hopper", compute_capability=(9, 0),
    memory=81559, bar1=131072, power_limit=700, profiles=_profiles(_SEVEN, _H100_80), clocks=_HOPPER_CLOCKS,
)  # fmt: skip
H200 = Model(
    name="NVIDIA H200", device_id="2335", architecture="Hopper", compute_capability=(9, 0),
    memory=143771, bar1=262144, power_limit=700, profiles=_profiles(_SEVEN, _H200), clocks=_HOPPER_CLOCKS,
)  # fmt: skip
A100 = Model(
    name="NVIDIA A100-SXM4-40GB", device_id="20B0", architecture="Ampere", compute_capability=(8, 0),
    memory=40960, bar1=65536, power_limit=400, profiles=_profiles(_SEVEN, _A100_40),
    clocks={"1215": (1410, 210, 15)},
)  # fmt: skip
A30 = Model(
    name="NVIDIA A30", device_id="20B7", architecture="Ampere", compute_capability=(8, 0),
    memory=24576, bar1=32768, power_limit=165, profiles=_profiles(_A30, _A30_24),
    clocks={"1215": (1440, 210, 15)},
)  # fmt: skip
V100 = Model(
    name="Tesla V100-PCIE-32GB", device_id="1DB6", architecture="Volta", compute_capability=(7, 0),
    memory=32768, bar1=32768, power_limit=250, clocks={"877": (1380, 135, 15)},
)  # fmt: skip
MODELS = {"h100": H100, "h200": H200, "a100": A100, "a30": A30, "v100": V100}

h100 = H100.gpu
h200 = H200.gpu
a100 = A100.gpu
a30 = A30.gpu
v100 = V100.gpu
