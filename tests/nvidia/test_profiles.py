"""Profiles by their grammar, what a node should offer, and configurations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuctl.nvidia.expected import Sharing, expected, loosely, uneven
from gpuctl.nvidia.model import Gpu, Hardware
from gpuctl.nvidia.parted import Part, differences, impossible, parse_configs
from gpuctl.nvidia.profile import Profile, gigabytes, made, parse, parse_label

parts = st.builds(
    lambda compute, more, size, attributes: made(compute, compute + more, size, attributes),
    st.integers(1, 7),
    st.integers(0, 6),
    st.integers(1, 300),
    st.sampled_from(["", "+me", "+me.all", "+gfx", "-me"]),
)


@given(profile=parts)
def test_names_are_read_as_they_are_written(profile: Profile) -> None:
    assert parse(str(profile)) == profile
    assert parse_label(profile.label) == profile


@pytest.mark.parametrize(
    "text", ["", "1g", "1g.10gb+", "g.10gb", "1g.10GB", "1g.10gb+me-gfx!", "MIG 1g.10gb", "١g.10gb x"]
)
def test_what_is_no_profile_is_none(text: str) -> None:
    assert parse(text) is None


@pytest.mark.parametrize(
    ("mib", "total", "name"),
    [
        (16384, 143771, 18), (33280, 143771, 35), (71424, 143771, 71), (9984, 81559, 10), (40448, 81559, 40),
        (5952, 24576, 6), (24192, 97887, 24), (4864, 40960, 5),
    ],
)  # fmt: skip
def test_the_gigabytes_of_a_name_are_a_share_of_the_whole(mib: int, total: int, name: int) -> None:
    assert gigabytes(mib, total) == name


def sliced(index: int, *names: str, mode: str = "Enabled") -> Gpu:
    from gpuctl.nvidia.listing import MigDevice

    devices = tuple(
        MigDevice(number, profile, f"MIG-{index}-{number}", exact=True)
        for number, name in enumerate(names)
        if (profile := parse(name))
    )
    return Gpu(index, "NVIDIA H100 80GB HBM3", f"GPU-{index}", mode=mode, devices=devices, memory_total=81559)


def off(index: int) -> Gpu:
    return Gpu(index, "NVIDIA H100 80GB HBM3", f"GPU-{index}", mode="Disabled", memory_total=81559)


SEVEN = ("1g.10gb",) * 7


@pytest.mark.parametrize(
    ("strategy", "gpus", "offered"),
    [
        ("none", (sliced(0, *SEVEN), off(1)), {"nvidia.com/gpu": 2}),
        ("single", (sliced(0, *SEVEN), sliced(1, *SEVEN)), {"nvidia.com/gpu": 14}),
        ("single", (off(0), off(1)), {"nvidia.com/gpu": 2}),
        ("single", (sliced(0, *SEVEN), off(1)), {"nvidia.com/gpu": 0}),
        ("single", (sliced(0),), {"nvidia.com/gpu": 0}),
        ("single", (sliced(0, "1g.10gb", "2g.20gb"),), {"nvidia.com/gpu": 0}),
        ("single", (sliced(0, "1c.3g.40gb"),), {"nvidia.com/gpu": 0}),
        ("mixed", (sliced(0, *SEVEN), off(1)), {"nvidia.com/gpu": 1, "nvidia.com/mig-1g.10gb": 7}),
        (
            "mixed",
            (sliced(0, "1g.10gb+me", "1c.3g.40gb"),),
            {"nvidia.com/gpu": 0, "nvidia.com/mig-1g.10gb.me": 1},
        ),
        ("mixed", (sliced(0),), {"nvidia.com/gpu": 0}),
    ],
)  # fmt: skip
def test_what_a_node_should_offer(strategy: str, gpus: tuple[Gpu, ...], offered: dict[str, int]) -> None:
    assert dict(expected(Hardware(gpus), strategy, Sharing()).resources) == offered


def test_replicas_multiply_and_renaming_moves() -> None:
    hardware = Hardware((sliced(0, *SEVEN), off(1)))
    plain = Sharing("time-slicing", {"nvidia.com/mig-1g.10gb": 2, "nvidia.com/gpu": 4})
    assert expected(hardware, "mixed", plain).resources == {"nvidia.com/gpu": 4, "nvidia.com/mig-1g.10gb": 14}
    renamed = Sharing("time-slicing", {"nvidia.com/gpu": 4}, frozenset({"nvidia.com/gpu"}))
    assert expected(hardware, "mixed", renamed).resources == {
        "nvidia.com/gpu.shared": 4, "nvidia.com/gpu": 0, "nvidia.com/mig-1g.10gb": 7
    }  # fmt: skip


def test_attributes_are_left_out_where_they_are_not_known() -> None:
    assert loosely({"nvidia.com/mig-1g.10gb.me": 1, "nvidia.com/mig-1g.10gb": 6, "nvidia.com/gpu": 0}) == {
        "nvidia.com/mig-1g.10gb": 7, "nvidia.com/gpu": 0
    }  # fmt: skip


def test_why_gpus_are_uneven_is_said() -> None:
    assert uneven(Hardware((sliced(0, *SEVEN), off(1)))) == "MIG is on for GPU 0 and off for GPU 1"
    assert "no MIG device" in uneven(Hardware((sliced(0),)))
    assert "1g.10gb, 2g.20gb" in uneven(Hardware((sliced(0, "1g.10gb", "2g.20gb"),)))


CONFIG = """
version: v1
mig-configs:
  x:
  - {devices: [0], mig-enabled: true, mig-devices: {"1g.10gb": 7}}
  - {devices: [1], mig-enabled: false}
"""


def test_a_configuration_is_compared_gpu_by_gpu() -> None:
    wanted = parse_configs(CONFIG)["x"]
    assert list(differences(wanted, Hardware((sliced(0, *SEVEN), off(1))))) == []
    (odd,) = differences(wanted, Hardware((off(0), off(1))))
    assert "wanted 7x 1g.10gb; is MIG off" in str(odd)
    (odd,) = differences(wanted, Hardware((sliced(0, *SEVEN), off(1), off(2))))
    assert odd.wanted is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "version: v1",
        "version: v1\nmig-configs: {x: [{devices: some, mig-enabled: true}]}",
        "{",
        "a: &a [*a]",
    ],
)
def test_a_broken_configuration_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_configs(text)


@pytest.mark.parametrize(
    ("name", "possible"),
    [
        ("1g.10gb", True),
        ("3g.40gb", True),
        ("7g.80gb", True),
        ("7g.79gb", True),
        ("1g.5gb", False),
        ("1g.18gb", False),
    ],
)
def test_profiles_of_another_card_are_told_by_the_memory(name: str, possible: bool) -> None:
    assert bool(impossible(Part(True, ((name, 1),)), off(0), None)) is not possible


def test_what_the_gpu_offers_goes_before_its_memory() -> None:
    offered = frozenset({made(7, 7, 80, "")})
    assert impossible(Part(True, (("7g.79gb", 1),)), off(0), offered) == ("7g.79gb",)
