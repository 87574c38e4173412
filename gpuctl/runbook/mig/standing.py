"""How MIG on a node stands against what its label asks for: as it should, under way, or wrong, and why.

Unlike a check it judges one node, and looks into it only while nothing is being changed there, or once what
was being changed has stood still for longer than the policy allows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from gpuctl.audit.policy import POLICY, Policy
from gpuctl.facts.fact import Maybe, given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.nodes import Target
from gpuctl.facts.state import Each, Known, NotKnown, Reason, State, Unknown, attempt, value
from gpuctl.nvidia.comparison import of_hardware, stale, unhealthy, wrong_capacity, wrong_labels
from gpuctl.nvidia.facts import target_of, the_cluster_policy
from gpuctl.nvidia.model import Hardware
from gpuctl.nvidia.node import CONFIG, PAUSED, Node, age
from gpuctl.nvidia.objects import ClusterPolicySpec, MigConfigMap
from gpuctl.nvidia.parted import Part, differences
from gpuctl.nvidia.selection import Selection, selected
from gpuctl.runbook.mig.change import MigChange, Wish, change_of, means_of, wishes
from gpuctl.runbook.mig.facts import CONFIG_MAPS, FAILED, UNDER_WAY, silicon, the_GPU_node
from gpuctl.runbook.mig.words import paused, shown_state

FOR_MIG: Final = f"{PAUSED}mig-change"


# What is under way


@given(POLICY)
def how_long_a_change_may_take(policy: Policy) -> timedelta:
    return timedelta(minutes=policy.checks.mig_consistency.stuck_minutes)


def under_way(node: Node, budget: timedelta) -> str:
    """What is being changed and may yet come to an end by itself; empty for nothing. One of which nothing
    tells since when may have begun just now."""
    change = node.change
    if change is None:
        return ""
    if node.upgrading or any(text != FOR_MIG for text in node.paused.values()):
        return f"{change.what}, which is not MIG's matter"
    if node.state == FAILED:
        return ""
    since = change.since
    stands = since is not None and node.around.now - since > budget
    return "" if stands else f"{change.what}, {age(since, node.around.now)}"


@given(the_GPU_node, how_long_a_change_may_take)
def the_node_that_stands_still(node: Node, budget: timedelta) -> Collection[Target]:
    return (target_of(node),) if node.ready and not under_way(node, budget) else ()


STILL: Final = silicon(the_node_that_stands_still)


# What is asked of it


@given(the_GPU_node, CONFIG_MAPS, the_cluster_policy)
def what_the_label_selects(
    node: Node, maps: Each[Ref, MigConfigMap], _policy: ClusterPolicySpec | None
) -> Selection | None:
    """None where nothing is asked, or nothing says what it means. A ClusterPolicy that can't be read may name
    another ConfigMap."""
    return selected(node, maps) if node.config else None


@given(the_GPU_node, what_the_label_selects)
def parts_of_the_label(node: Node, found: Selection | None) -> tuple[Part, ...]:
    if found is None or found.parts is None:
        raise NotKnown(Unknown(Reason.NOT_ASKED, "nothing says what it asks", f"{CONFIG}={node.config}"))
    return found.parts


@given(parts_of_the_label, STILL.hardware)
def what_the_label_asks(parts: tuple[Part, ...], hardware: Hardware) -> tuple[Wish, ...]:
    """Of each GPU that it covers."""
    return tuple(wishes(parts, hardware))


@given(the_GPU_node, parts_of_the_label, STILL.hardware)
def the_change_that_is_left(node: Node, parts: tuple[Part, ...], hardware: Hardware) -> MigChange:
    """What MIG manager would do to the GPUs if it went through."""
    return change_of(node.config, parts, hardware, means_of(node))


# How it stands


@dataclass(frozen=True, slots=True)
class MigStanding:
    """`told`: what is wrong by the word of the API. `sliced`: where the GPUs are not as configured.
    `offered`: where labels and capacity are not as the GPUs are. Each as far as nvidia-smi could be asked."""

    config: str
    under_way: str
    told: tuple[str, ...]
    sliced: State[tuple[str, ...]]
    offered: State[tuple[str, ...]]

    @property
    def wrong(self) -> tuple[str, ...]:
        """All that is known to be wrong; while something is under way nothing is."""
        if self.under_way:
            return ()
        measured = (each.value for each in (self.sliced, self.offered) if isinstance(each, Known))
        return (*self.told, *(part for parts in measured for part in parts))

    @property
    def gap(self) -> str:
        """What could not be looked at; empty if all could."""
        return next((str(each) for each in (self.sliced, self.offered) if not isinstance(each, Known)), "")

    @property
    def word(self) -> str:
        """`right`, `wrong`, `under way`, `not asked for` or `unknown`."""
        if not self.config:
            return "not asked for"
        if self.under_way:
            return "under way"
        if self.wrong:
            return "wrong"
        return "unknown" if self.gap else "right"


@given(
    the_GPU_node, Maybe(what_the_label_selects), Maybe(STILL.hardware), how_long_a_change_may_take
)  # fmt: skip
def how_MIG_stands(  # noqa: N802
    node: Node, selection: State[Selection | None], hardware: State[Hardware], budget: timedelta
) -> MigStanding:
    return MigStanding(
        config=node.config,
        under_way=under_way(node, budget),
        told=tuple(_told(node, selection)),
        sliced=attempt(lambda: tuple(_missliced(node, value(selection), value(hardware)))),
        offered=attempt(lambda: tuple(_misdescribed(node, value(hardware)))),
    )


def _told(node: Node, selection: State[Selection | None]) -> Iterator[str]:
    if node.state == FAILED:
        yield f"MIG manager failed to make {node.config or 'nothing'}"
    elif node.state in UNDER_WAY:
        yield f"MIG manager stands still: {shown_state(node)}"
    if node.paused and node.state not in UNDER_WAY:
        yield f"operands are left paused: {paused(node)}"
    if node.invalid:
        yield f"nvidia.com/gpu.product is {node.label('gpu.product')}"
    if isinstance(selection, Known) and selection.value is not None and selection.value.parts is None:
        yield f"there is no configuration {node.config} in {selection.value.source}"


def _missliced(node: Node, selection: Selection | None, hardware: Hardware) -> Iterator[str]:
    if selection is None:
        raise NotKnown(Unknown(Reason.NOT_ASKED, "nothing says what it asks", f"{CONFIG}={node.config}"))
    yield from map(str, differences(selection.parts, hardware) if selection.parts is not None else ())
    yield from unfinished(hardware)


def unfinished(hardware: Hardware) -> Iterator[str]:
    """GPU instances without a compute instance over all of them. MIG manager makes such anew."""
    for gpu in hardware.gpus:
        if gpu.instances is not None and len(gpu.devices) < len(gpu.instances):
            yield f"GPU {gpu.index}: {len(gpu.instances)} GPU instances, {len(gpu.devices)} MIG devices"
        parts = [str(each.profile) for each in gpu.devices if not each.profile.whole]
        if parts:
            yield f"GPU {gpu.index}: {', '.join(parts)} are parts of GPU instances"


def _misdescribed(node: Node, hardware: Hardware) -> Iterator[str]:
    yield from map(str, wrong_labels(node, hardware))
    yield from misoffered(node, hardware)


def misoffered(node: Node, hardware: Hardware, *, whole: bool = False) -> Iterator[str]:
    """Where capacity is not what the hardware has. `whole`: devices that are unhealthy count too."""
    offered = of_hardware(node, hardware)
    old = () if node.recent and not whole else stale(offered, node.capacity)
    gaps = (*wrong_capacity(offered, node.capacity), *old, *(unhealthy(node) if whole else ()))
    yield from dict.fromkeys(map(str, gaps))
