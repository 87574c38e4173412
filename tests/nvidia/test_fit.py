"""Which GPU instances fit on one GPU together: by what nvidia-smi tells, and by the grids of the models."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from gpuctl.facts.nodes import Output
from gpuctl.facts.state import NotKnown
from gpuctl.nvidia.fit import obstacle
from gpuctl.nvidia.model import Gpu
from gpuctl.nvidia.offers import Offers, Placements, parse_offers, parse_placements
from gpuctl.nvidia.profile import Profile, parse
from tests.cluster.bed.simulated import gpu_node
from tests.cluster.standins import nvidia_smi
from tests.cluster.standins.state import A30, H100, Model

H100_GPU = Gpu(0, "NVIDIA H100 80GB HBM3", "GPU-a", memory_total=81559)
A30_GPU = Gpu(0, "NVIDIA A30", "GPU-a", memory_total=24576)
RTX_GPU = Gpu(0, "NVIDIA RTX PRO 6000 Blackwell Server Edition", "GPU-a", memory_total=97887)
H200_GPU = Gpu(0, "NVIDIA H200", "GPU-a", memory_total=143771)


def wanted(text: str) -> list[tuple[Profile, int]]:
    """`2x 3g.40gb, 1g.10gb`."""
    found = []
    for part in text.split(", "):
        count, _, name = part.rpartition("x ")
        profile = parse(name)
        assert profile is not None
        found.append((profile, int(count or 1)))
    return found


def told(model: Model) -> tuple[Offers, Placements]:
    """What a GPU with MIG on and nothing in it tells."""
    state = json.loads(json.dumps(asdict(gpu_node("gpu-1", model=model, profiles=[()]).state)))
    offers = parse_offers(Output(*nvidia_smi.run(state, ["mig", "-lgip"])))
    placements = parse_placements(Output(*nvidia_smi.run(state, ["mig", "-lgipp"])))
    assert offers.found
    assert placements.found
    return offers, placements


SEVENS = [
    ("7x 1g.10gb", True),
    ("8x 1g.10gb", False),
    ("2x 3g.40gb", True),
    ("3x 3g.40gb", False),
    ("4g.40gb, 3g.40gb", True),
    ("4g.40gb, 3g.40gb, 1g.10gb", False),
    ("3g.40gb, 2x 2g.20gb", True),
    ("3x 2g.20gb, 1g.10gb", True),
    ("3x 2g.20gb, 2x 1g.10gb", False),
    ("2x 3g.40gb, 1g.10gb", False),
    ("4g.40gb, 2g.20gb, 1g.10gb", True),
    ("4x 1g.20gb", True),
    ("6x 1g.10gb, 1g.20gb", True),
    ("4x 1g.20gb, 1g.10gb", False),
    ("7g.80gb", True),
    ("7g.80gb, 1g.10gb", False),
    ("6x 1g.10gb, 1g.10gb+me", True),
    ("2x 1g.10gb+me", False),
]


@pytest.mark.parametrize(("text", "fits"), SEVENS)
def test_the_grid_of_seven(text: str, fits: bool) -> None:
    assert (obstacle(wanted(text), H100_GPU, None, None) == "") is fits


@pytest.mark.parametrize(("text", "fits"), SEVENS)
def test_what_nvidia_smi_tells_comes_to_the_same(text: str, fits: bool) -> None:
    assert (obstacle(wanted(text), H100_GPU, *told(H100)) == "") is fits


@pytest.mark.parametrize(
    ("text", "gpu", "fits"),
    [
        ("4x 1g.6gb", A30_GPU, True),
        ("2x 1g.6gb, 2g.12gb", A30_GPU, True),
        ("3x 1g.6gb, 2g.12gb", A30_GPU, False),
        ("4g.24gb, 1g.6gb", A30_GPU, False),
        ("4x 1g.24gb", RTX_GPU, True),
        ("5x 1g.24gb", RTX_GPU, False),
        ("2x 2g.48gb", RTX_GPU, True),
        ("7x 1g.18gb", H200_GPU, True),
        ("4x 1g.35gb", H200_GPU, True),
        ("5x 1g.35gb", H200_GPU, False),
        ("2g.35gb, 3g.71gb, 2x 1g.18gb", H200_GPU, True),
    ],
)
def test_the_grids_of_other_models(text: str, gpu: Gpu, fits: bool) -> None:
    assert (obstacle(wanted(text), gpu, None, None) == "") is fits


def test_a_small_model_tells_its_own_grid() -> None:
    assert obstacle(wanted("2x 1g.6gb, 2g.12gb"), A30_GPU, *told(A30)) == ""
    assert obstacle(wanted("3x 1g.6gb, 2g.12gb"), A30_GPU, *told(A30)).startswith("5 compute slices")


def test_it_says_why() -> None:
    def why(text: str) -> str:
        return obstacle(wanted(text), H100_GPU, None, None)

    assert why("8x 1g.10gb") == "8x 1g.10gb, of which 7 at most fit on GPU 0 (GPU-a)"
    assert why("4g.40gb, 2x 2g.20gb") == "8 compute slices, GPU 0 (GPU-a) has 7"
    assert why("2x 3g.40gb, 1g.10gb") == "no places for all of them on GPU 0 (GPU-a)"
    assert why("1g.10gb+me, 1g.20gb+me.all").endswith("has one set of media engines")


def test_a_profile_of_no_known_shape_is_not_judged() -> None:
    with pytest.raises(NotKnown):
        obstacle(wanted("5g.50gb"), H100_GPU, None, None)
