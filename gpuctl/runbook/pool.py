"""Pools of nodes alike, and how much of one is out of service."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from gpuctl.nvidia.objects import NodeView, quantity

COUNT: Final = "nvidia.com/gpu.count"
GPU: Final = "nvidia.com/gpu"
MIG: Final = "nvidia.com/mig-"
PRODUCT: Final = "nvidia.com/gpu.product"
GPU_SLICES: Final = 7
_SLICE = re.compile(r"-MIG-([1-7])g")


def pool_of(node: NodeView, label: str) -> str:
    """The name of its pool, empty if it bears no such label. What MIG and sharing add to a product's name
    does not make another pool."""
    return node.metadata.labels.get(label, "").removesuffix("-SHARED").partition("-MIG-")[0]


def gpus_of(node: NodeView) -> int:
    """How many GPUs a node is good for: as labelled, or as offered; one of which only slices are seen.

    Under the strategy single slices are counted as GPUs; they are taken together again.
    """
    count = node.metadata.labels.get(COUNT, "")
    if count.isdecimal():
        return -(-int(count) // _slices(node))
    offered = quantity(node.status.capacity.get(GPU, "0"))
    sliced = any(name.startswith(MIG) for name in node.status.capacity)
    return max(-(-offered // _slices(node)), int(sliced))


def _slices(node: NodeView) -> int:
    """How many of the slices that its product names make one GPU; 1 if it names none."""
    named = _SLICE.search(node.metadata.labels.get(PRODUCT, ""))
    return max(1, GPU_SLICES // int(named[1])) if named else 1


def serves(node: NodeView) -> bool:
    """Whether pods can be placed on it now."""
    ready = any(each.type == "Ready" and each.status == "True" for each in node.status.conditions)
    return ready and not node.spec.unschedulable


@dataclass(frozen=True, slots=True)
class Share:
    """GPUs of a pool, those out of service, and whose nodes they are."""

    out: int
    total: int
    nodes: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.out} of {self.total} GPUs ({', '.join(self.nodes)})"


def out_of_service(nodes: Iterable[NodeView], gone: Collection[str]) -> Share:
    """What of these nodes is out of service, those in `gone` counted as such."""
    members = list(nodes)
    out = [node for node in members if node.metadata.name in gone or not serves(node)]
    names = tuple(sorted(node.metadata.name for node in out))
    return Share(sum(map(gpus_of, out)), sum(map(gpus_of, members)), names)
