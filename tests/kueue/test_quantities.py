"""Quantities, exact, in every form that Kubernetes takes."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuctl.facts.state import NotKnown
from gpuctl.kueue.quantities import ONE, amount, is_accelerator, is_share, largest, shown, total


@pytest.mark.parametrize(
    ("written", "worth"),
    [
        ("0", 0),
        ("1", ONE),
        (7, 7 * ONE),
        (0.5, ONE // 2),
        ("0.5", ONE // 2),
        (".5", ONE // 2),
        ("5.", 5 * ONE),
        ("+3", 3 * ONE),
        ("100m", ONE // 10),
        ("1u", 1000),
        ("1n", 1),
        ("0.1n", 1),  # rounded up, as Kubernetes does
        ("1k", 1000 * ONE),
        ("1e3", 1000 * ONE),
        ("1E3", 1000 * ONE),
        ("1E", 10**18 * ONE),
        ("12e-1", 12 * ONE // 10),
        ("20Gi", 20 * 2**30 * ONE),
        ("1.5Gi", 3 * 2**29 * ONE),
        ("8Ei", 8 * 2**60 * ONE),
        ("123456789012345678901234567890", 123456789012345678901234567890 * ONE),
    ],
)
def test_worth(written: str | float, worth: int) -> None:
    assert amount(written) == worth


@pytest.mark.parametrize(
    "written", ["", "x", "1 Gi", "1gi", "1e", "--1", "1K", "NaN", "1e999", "0x10", "1,5"]
)
def test_what_is_no_quantity_is_not_known(written: str) -> None:
    with pytest.raises(NotKnown):
        amount(written)


@given(st.integers(0, 10**30), st.sampled_from(["nvidia.com/gpu", "memory", "cpu"]))
def test_what_is_shown_is_worth_the_same(value: int, resource: str) -> None:
    assert amount(shown(value, resource)) == value


@given(st.decimals(0, 10**12, places=9))
def test_decimals_are_exact(number: Decimal) -> None:
    assert amount(f"{number:f}") == int(number * ONE)


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 9)), max_size=5))
def test_a_total_is_at_least_the_largest(parts: list[dict[str, int]]) -> None:
    sums, tops = total(parts), largest(parts)
    assert sums.keys() == tops.keys()
    assert all(sums[name] >= tops[name] for name in sums)


@pytest.mark.parametrize(
    ("resource", "expected"),
    [
        ("nvidia.com/gpu", True),
        ("nvidia.com/mig-1g.10gb", True),
        ("nvidia.com/mig-1g.5gb.me", True),
        ("nvidia.com/gpu.shared", True),
        ("amd.com/gpu", True),
        ("google.com/tpu", True),
        ("nvidia.com/gpu-a100", True),
        ("nvidia.com/a100-80gb", True),
        ("nvidia.com/mig-1g.10gb.shared", True),
        ("nvidia.com/GA102GL_A10", True),
        ("amd.com/cpx_nps4", True),
        ("habana.ai/gaudi", True),
        ("huawei.com/Ascend910", True),
        ("gpu.intel.com/i915", True),
        ("aws.amazon.com/neuroncore", True),
        ("cambricon.com/mlu370", True),
        ("volcano.sh/vgpu-number", True),
        ("cpu", False),
        ("memory", False),
        ("example.com/gpu-hours", False),
        ("example.com/licence", False),
        ("nvidia.com/hostdev", False),
        ("nvidia.com/sriov_rdma", False),
        ("nvidia.com/priority", False),
        ("gpu.intel.com/i915_monitoring", False),
        ("huawei.com/licence", False),
        ("nvidia.com/gpumem", False),
        ("gpu.memory", False),
    ],
)
def test_what_people_queue_for(resource: str, expected: bool) -> None:
    assert is_accelerator(resource) is expected


@pytest.mark.parametrize(
    ("resource", "expected"),
    [
        ("gpu.memory", True),
        ("nvidia.com/gpu.memory", True),
        ("nvidia.com/gpumem", True),
        ("nvidia.com/gpumem-percentage", True),
        ("nvidia.com/gpucores", True),
        ("nos.nebuly.com/gpu-memory", True),
        ("aliyun.com/gpu-core.percentage", True),
        ("volcano.sh/vgpu-memory", True),
        ("huawei.com/Ascend910A-memory", True),
        ("tencent.com/vcuda-core", True),
        ("nvidia.com/gpu", False),
        ("nvidia.com/mig-1g.10gb.me", False),
        ("aws.amazon.com/neuroncore", False),
        ("example.com/accelerator-memory", False),
        ("memory", False),
    ],
)
def test_what_is_a_share_of_a_gpu(resource: str, expected: bool) -> None:
    assert is_share(resource) is expected
