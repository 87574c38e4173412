"""Labels and capacity of simulated GPU nodes: what real nodes have in the three MIG strategies."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.cluster.bed.simulated import GpuNode, config_of, gpu_node
from tests.cluster.standins.state import A30, H100, V100, Model

SEVEN = ["1g.10gb"] * 7
BALANCED = ["3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"]


def devices(node: GpuNode) -> dict[str, str]:
    """The GPU resources a node offers."""
    return {name: count for name, count in node.capacity.items() if name.startswith("nvidia.com/")}


def told(node: GpuNode, *names: str) -> list[str | None]:
    """Labels without their prefix."""
    return [node.labels.get(f"nvidia.com/{name}") for name in names]


@pytest.mark.parametrize(
    ("strategy", "profiles", "offered"),
    [
        ("none", [None, None], {"gpu": "2"}),
        ("none", [SEVEN, None], {"gpu": "2"}),
        ("single", [None, None], {"gpu": "2"}),
        ("single", [SEVEN, SEVEN], {"gpu": "14"}),
        ("single", [SEVEN, None], {"gpu": "0"}),
        ("single", [SEVEN, []], {"gpu": "0"}),
        ("single", [BALANCED], {"gpu": "0"}),
        ("mixed", [None], {"gpu": "1"}),
        ("mixed", [BALANCED, None], {"gpu": "1", "mig-3g.40gb": "1", "mig-2g.20gb": "1", "mig-1g.10gb": "2"}),
        ("mixed", [["1g.10gb+me", "1c.3g.40gb"]], {"gpu": "0", "mig-1g.10gb.me": "1"}),
        ("mixed", [[]], {"gpu": "0"}),
    ],
)
def test_capacity(strategy: str, profiles: Sequence[Sequence[str] | None], offered: dict[str, str]) -> None:
    node = gpu_node("n", strategy, H100, profiles)
    assert devices(node) == {f"nvidia.com/{name}": count for name, count in offered.items()}


def test_labels_of_strategy_mixed() -> None:
    node = gpu_node("n", "mixed", H100, [BALANCED])
    about = [
        "count",
        "replicas",
        "product",
        "memory",
        "multiprocessors",
        "slices.gi",
        "slices.ci",
        "engines.copy",
        "engines.ofa",
    ]
    assert told(node, "mig.strategy", "gpu.count", "gpu.replicas", "gpu.memory", "gpu.product") == [
        "mixed", "1", "0", "81559", "NVIDIA-H100-80GB-HBM3",
    ]  # fmt: skip
    assert told(node, *(f"mig-2g.20gb.{each}" for each in about)) == [
        "1", "1", "NVIDIA-H100-80GB-HBM3-MIG-2g.20gb", "20096", "32", "2", "2", "2", "0",
    ]  # fmt: skip
    assert told(node, "mig-1g.10gb.count", "mig.config", "mig.config.state") == [
        "2",
        "all-balanced",
        "success",
    ]


def test_labels_of_strategy_single() -> None:
    node = gpu_node("n", "single", A30, [["1g.6gb"] * 4] * 2)
    assert told(node, "mig.strategy", "gpu.product", "gpu.count", "gpu.memory", "gpu.slices.gi") == [
        "single", "NVIDIA-A30-MIG-1g.6gb", "8", "5952", "1",
    ]  # fmt: skip


def test_labels_of_strategy_single_when_it_gives_up() -> None:
    node = gpu_node("n", "single", H100, [SEVEN, BALANCED])
    assert told(node, "gpu.product", "gpu.count", "gpu.replicas", "gpu.sharing-strategy") == [
        "NVIDIA-H100-80GB-HBM3-MIG-INVALID", "0", "0", "",
    ]  # fmt: skip


def test_labels_without_mig() -> None:
    node = gpu_node("n", "none", V100, [None, None])
    assert told(node, "mig.strategy", "mig.capable", "mig.config", "gpu.count", "gpu.family") == [
        None, "false", None, "2", "volta",
    ]  # fmt: skip


def test_overrides() -> None:
    node = gpu_node(
        "n",
        profiles=[SEVEN],
        extra={"nvidia.com/mig.config.state": "failed", "nvidia.com/gpu.product": None},
        resources={"nvidia.com/mig-1g.10gb": 6, "nvidia.com/gpu": None},
    )
    assert told(node, "mig.config.state", "gpu.product") == ["failed", None]
    assert devices(node) == {"nvidia.com/mig-1g.10gb": "6"}


@pytest.mark.parametrize(
    ("model", "profiles", "name"),
    [
        (H100, [None], "all-disabled"),
        (H100, [[]], "all-enabled"),
        (H100, [SEVEN, SEVEN], "all-1g.10gb"),
        (H100, [BALANCED], "all-balanced"),
        (H100, [["1g.10gb+me"]], "all-1g.10gb.me"),
        (A30, [["2g.12gb"] * 2], "all-2g.12gb"),
        (A30, [["2g.12gb", "1g.6gb", "1g.6gb"]], "all-balanced"),
        (H100, [SEVEN, None], "custom"),
        (H100, [["1g.10gb"] * 3], "custom"),
    ],
)
def test_names_of_configurations(model: Model, profiles: Sequence[Sequence[str] | None], name: str) -> None:
    assert config_of([model.gpu(index, mig) for index, mig in enumerate(profiles)]) == name


def test_unknown_strategies() -> None:
    with pytest.raises(ValueError, match="always"):
        gpu_node("n", "always")


def test_the_same_node_has_the_same_identifiers() -> None:
    first, again, other = (gpu_node(name, profiles=[SEVEN]) for name in ("a", "a", "b"))
    assert first.state == again.state
    assert first.state.gpus[0].uuid != other.state.gpus[0].uuid
