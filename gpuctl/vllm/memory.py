"""Where an engine's GPU memory went: vLLM's own figures, and what follows from them. GiB throughout."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from gpuctl.nvidia.expected import GPU, SHARED, profile_of
from gpuctl.vllm.log import Rank, Start
from gpuctl.vllm.version import Version

ESTIMATE_INSIDE_SINCE: Final = (0, 20, 0)
NOISE_GIB: Final = 0.25  # by which an estimate may be wrong without a word
PLAIN: Final = frozenset({GPU, f"{GPU}{SHARED}"})  # whole GPUs, or slices where the node has nothing else
PRODUCT: Final = "nvidia.com/gpu.product"
GKE_SLICES: Final = "cloud.google.com/gke-gpu-partition-size"
_GKE_GPU: Final = "cloud.google.com/gke-accelerator"
_MIB_PER_GIB: Final = 1024


@dataclass(frozen=True, slots=True)
class Memory:
    """One rank. `inside`: whether the graphs' memory is taken out of the budget; None if it can't be told."""

    rank: Rank
    total: float | None
    budget: float | None
    inside: bool | None

    @property
    def outside_graphs(self) -> float:
        """Graph memory that comes on top of the budget: all of it, or what the estimate within was short of
        (vllm#49224: a new model runner estimated nothing)."""
        graphs, estimate = self.rank.graphs or 0.0, self.rank.graphs_estimate
        if self.inside is False:
            return graphs
        short = graphs - estimate if self.inside and estimate is not None else 0.0
        return round(short, 2) if short > NOISE_GIB else 0.0

    @property
    def free_outside(self) -> float | None:
        """What is left of the GPU beside the budget and the graphs outside of it."""
        if self.total is None or self.budget is None:
            return None
        return round(self.total - self.budget - self.outside_graphs, 2) + 0.0  # never -0.0

    @property
    def others_at_start(self) -> float | None:
        """What was taken already when the engine started."""
        if self.total is None or self.rank.free_at_start is None:
            return None
        return round(self.total - self.rank.free_at_start, 2)


def default_utilization(version: Version | None) -> float | None:
    """--gpu-memory-utilization if nobody sets it; None if the version is not known."""
    if version is None:
        return None
    return 0.9 if version.before(*ESTIMATE_INSIDE_SINCE) else 0.92


def of_start(
    start: Start, version: Version | None, utilization: float | None, device: float | None
) -> tuple[Memory, ...]:
    """The memory of every rank that said something. `device`: the GPU's or slice's size by its labels."""
    inside = graphs_inside(start, version)
    return tuple(_of_rank(rank, start.utilization or utilization, device, inside) for rank in start.ranks)


def _of_rank(rank: Rank, utilization: float | None, device: float | None, inside: bool | None) -> Memory:
    total = rank.total or device
    budget = rank.budget
    if budget is None and total is not None and utilization is not None:
        budget = round(total * utilization, 2)
    return Memory(rank, total, budget, inside)


def graphs_inside(start: Start, version: Version | None) -> bool | None:
    """Whether the budget holds the graphs: the log's word, else the version's default. Even then the
    estimate may be too small."""
    if start.manual_kv:
        return None
    if start.estimate_inside is not None:
        return start.estimate_inside
    return None if version is None else not version.before(*ESTIMATE_INSIDE_SINCE)


def is_slice(resource: str) -> bool:
    """Whether a resource is a MIG slice by its name."""
    return profile_of(resource) is not None


def offers_slices(labels: Mapping[str, str]) -> bool | None:
    """Whether a node offers MIG slices as GPUs (strategy single); None where its labels don't tell."""
    product = labels.get(PRODUCT, "").removesuffix("-SHARED")
    if GKE_SLICES in labels:
        return True
    if product.endswith("-MIG-INVALID") or not (product or _GKE_GPU in labels):
        return None
    return "-MIG-" in product


def device_gib(resources: Iterable[str], labels: Mapping[str, str]) -> float | None:
    """The size of the GPU or slice that a container gets, by the node's labels; None if they don't tell."""
    named = next((each for each in resources if each in PLAIN or is_slice(each)), None)
    return _mib(labels, f"{named.removesuffix(SHARED)}.memory") if named else None


def _mib(labels: Mapping[str, str], name: str) -> float | None:
    text = labels.get(name, "")
    return round(int(text) / _MIB_PER_GIB, 2) if text.isdecimal() and len(text) < 10 else None  # noqa: PLR2004
