"""Pools of nodes, and the share of one that is out of service."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpuctl.nvidia.objects import NodeView
from gpuctl.runbook.pool import gpus_of, out_of_service, pool_of, serves
from tests.runbook.little import a_node

LABEL = "nvidia.com/gpu.product"
COUNT = "nvidia.com/gpu.count"


def node(
    name: str = "gpu-1", product: str = "A100", capacity: dict[str, str] | None = None, **spec: Any
) -> NodeView:
    item = a_node(name, **{LABEL: product} if product else {})
    item["metadata"]["labels"].update(spec.pop("labels", {}))
    item["spec"] = spec
    item["status"]["capacity"] = capacity or {}
    return msgspec.convert(item, NodeView)


@pytest.mark.parametrize(
    ("product", "pool"),
    [
        ("NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-SXM4-80GB"),
        ("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", "NVIDIA-A100-SXM4-80GB"),
        ("NVIDIA-A100-SXM4-80GB-SHARED", "NVIDIA-A100-SXM4-80GB"),
        ("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb-SHARED", "NVIDIA-A100-SXM4-80GB"),
        ("NVIDIA-H100", "NVIDIA-H100"),
        ("", ""),
    ],
)
def test_what_mig_and_sharing_add_to_a_product_makes_no_other_pool(product: str, pool: str) -> None:
    assert pool_of(node(product=product), LABEL) == pool
    assert pool_of(node(product=product), "no-such-label") == ""


@pytest.mark.parametrize(
    ("slice_", "count", "gpus"),
    [
        ("1g.10gb", 56, 8),
        ("2g.20gb", 24, 8),
        ("3g.40gb", 15, 8),
        ("7g.80gb", 8, 8),
        ("1g.10gb+me", 1, 1),
        ("INVALID", 0, 0),
    ],
)
def test_under_the_strategy_single_slices_are_no_gpus(slice_: str, count: int, gpus: int) -> None:
    product = f"A100-MIG-{slice_}"
    assert gpus_of(node(product=product, labels={COUNT: str(count)})) == gpus
    assert gpus_of(node(product=product, capacity={"nvidia.com/gpu": str(count)})) == gpus


@pytest.mark.parametrize(
    ("labels", "capacity", "gpus"),
    [
        ({COUNT: "8"}, {"nvidia.com/gpu": "8"}, 8),
        ({COUNT: "8"}, {"nvidia.com/mig-1g.10gb": "56"}, 8),  # mixed: the label counts GPUs
        ({COUNT: "2"}, {"nvidia.com/gpu": "16"}, 2),  # shared
        ({}, {"nvidia.com/gpu": "4"}, 4),
        ({}, {"nvidia.com/mig-1g.10gb": "7"}, 1),
        ({COUNT: "x"}, {"nvidia.com/gpu": "3"}, 3),
        ({COUNT: "0"}, {"nvidia.com/gpu": "0"}, 0),
        ({}, {"cpu": "64"}, 0),
    ],
)
def test_how_many_gpus_a_node_is_good_for(
    labels: dict[str, str], capacity: dict[str, str], gpus: int
) -> None:
    assert gpus_of(node(labels=labels, capacity=capacity)) == gpus


def test_what_serves() -> None:
    assert serves(node())
    assert not serves(node(unschedulable=True))
    item = a_node()
    item["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    assert not serves(msgspec.convert(item, NodeView))
    item["status"]["conditions"] = []
    assert not serves(msgspec.convert(item, NodeView))


def test_the_share_counts_gpus_and_each_node_once() -> None:
    four = {"nvidia.com/gpu": "4"}
    nodes = [
        node("a", labels={COUNT: "8"}),
        node("b", capacity=four),
        node("c", capacity=four, unschedulable=True),
        node("d", capacity=four),
    ]
    share = out_of_service(nodes, {"a", "c", "somebody-elses"})
    assert (share.out, share.total, share.nodes) == (12, 20, ("a", "c"))
    assert str(share) == "12 of 20 GPUs (a, c)"
    assert out_of_service([], {"a"}).total == 0
