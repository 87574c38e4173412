"""mig-parted's stand-in: what it makes of GPUs, and where it leaves them when it fails."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.cluster.bed.operands import CONFIG
from tests.cluster.standins import mig_parted
from tests.cluster.standins.mig_parted import Failed, InUse
from tests.cluster.standins.state import A100, H100, Model, NodeState

SEVEN = ["1g.10gb"] * 7
CONFIGS = mig_parted.configurations(CONFIG)
Layout = list[list[str] | None]


def node(model: Model, *profiles: Sequence[str] | None) -> NodeState:
    """A node with these GPUs."""
    return NodeState(gpus=tuple(model.gpu(index, mig) for index, mig in enumerate(profiles)))


def layout(state: NodeState) -> Layout:
    """The profiles of each GPU; None: MIG off."""
    return [
        sorted(each.profile for each in gpu.instances) if gpu.mig_current == "Enabled" else None
        for gpu in state.gpus
    ]


def reconfigured(name: str, state: NodeState, held: frozenset[mig_parted.Holder] = frozenset()) -> NodeState:
    """Both halves of apply."""
    parts = CONFIGS[name]
    return mig_parted.with_geometry(parts, mig_parted.with_mode(parts, state, held), held)


@pytest.mark.parametrize(
    ("model", "before", "name", "after"),
    [
        (H100, [None, None], "all-1g.10gb", [SEVEN, SEVEN]),
        (H100, [SEVEN, None], "all-disabled", [None, None]),
        (H100, [SEVEN], "all-enabled", [[]]),
        (H100, [SEVEN], "all-balanced", [["1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"]]),
        (A100, [None], "all-1g.10gb", [["1g.10gb"] * 4]),
        (A100, [["1g.5gb"] * 7], "all-balanced", [["1g.5gb", "1g.5gb", "2g.10gb", "3g.20gb"]]),
    ],
)
def test_what_a_configuration_makes(model: Model, before: Layout, name: str, after: Layout) -> None:
    parts, state = CONFIGS[name], node(model, *before)
    made = reconfigured(name, state)
    assert layout(made) == after
    assert mig_parted.is_applied(parts, made)
    assert not mig_parted.is_applied(parts, state)
    assert reconfigured(name, made) == made


def test_a_configuration_that_does_not_cover_a_gpu_is_made_and_yet_fails() -> None:
    with pytest.raises(Failed, match="not all GPUs match") as failed:
        reconfigured("first-only", node(H100, ["3g.40gb"], None))
    assert layout(failed.value.after) == [SEVEN, None]
    assert layout(reconfigured("first-only", node(H100, ["3g.40gb"]))) == [SEVEN]


def test_a_gpu_that_is_right_is_left_alone() -> None:
    state = node(H100, ["3g.40gb", "3g.40gb"], SEVEN)
    held = frozenset({(0, state.gpus[0].instances[0].id)})
    assert reconfigured("all-3g.40gb", state, held).gpus[0] == state.gpus[0]
    with pytest.raises(InUse):
        reconfigured("all-3g.40gb", state, frozenset({(1, state.gpus[1].instances[0].id)}))


def test_what_is_held_stays_and_the_rest_is_cleared() -> None:
    state = node(H100, SEVEN)
    held = mig_parted.granted(state, {"nvidia.com/mig-1g.10gb": 1})
    with pytest.raises(InUse, match="In use by another client") as failed:
        reconfigured("all-3g.40gb", state, held)
    assert layout(failed.value.after) == [["1g.10gb"]]
    assert layout(reconfigured("all-3g.40gb", state)) == [["3g.40gb", "3g.40gb"]]


def test_before_hopper_a_change_of_mode_needs_every_gpu_of_the_node() -> None:
    busy = frozenset({(0, None)})
    state = node(A100, None, ["7g.40gb"])
    with pytest.raises(InUse) as failed:
        mig_parted.with_mode(CONFIGS["all-disabled"], state, busy)
    gpu = failed.value.after.gpus[1]
    assert (gpu.mig_current, gpu.mig_pending) == ("Enabled", "Disabled")
    assert layout(mig_parted.after_boot(failed.value.after)) == [None, None]
    hopper = mig_parted.with_mode(CONFIGS["all-disabled"], node(H100, None, ["7g.80gb"]), busy)
    assert layout(hopper) == [None, None]


def test_a_reboot_takes_instances_and_before_hopper_not_the_mode() -> None:
    assert layout(mig_parted.after_boot(node(A100, ["7g.40gb"]))) == [[]]
    assert layout(mig_parted.after_boot(node(H100, ["7g.80gb"]))) == [None]


def test_profiles_of_another_card_leave_the_gpu_cleared() -> None:
    with pytest.raises(Failed, match=r"1g\.5gb not supported") as failed:
        reconfigured("all-1g.5gb", node(H100, SEVEN))
    assert layout(failed.value.after) == [[]]


def test_what_pods_get() -> None:
    state = node(H100, SEVEN, None, None)
    first, second, third = (each.id for each in state.gpus[0].instances[:3])
    assert mig_parted.granted(state, {}) == frozenset()
    one = mig_parted.granted(state, {"nvidia.com/gpu": 1})
    assert one == {(1, None)}
    assert mig_parted.granted(state, {"nvidia.com/gpu": 1}, one) == {(2, None)}
    two = mig_parted.granted(state, {"nvidia.com/mig-1g.10gb": 2})
    assert two == {(0, first), (0, second)}
    assert mig_parted.granted(state, {"nvidia.com/mig-1g.10gb": 1}, two) == {(0, third)}
    assert mig_parted.granted(state, {"nvidia.com/mig-3g.40gb": 1}) == frozenset()
    assert len(mig_parted.granted(node(H100, SEVEN), {"nvidia.com/gpu": 3})) == 3
