"""What mig-reconfigure knows of its node: how the API shows it, what nvidia-smi says, what is asked of it.

All of it concerns the one node. Steps look again and again, so nothing is waited for in here, and nvidia-smi
is kept away from GPUs that are being changed: a process of its own would be in the way.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from gpuctl.facts.fact import NOW, Fact, Later, Maybe, Named, OnNode, Within, given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.nodes import Target
from gpuctl.facts.state import Each, Inapplicable, Known, NotKnown, Reason, State, Unknown, attempt, value
from gpuctl.nvidia.facts import devices_by_node, look, target_of, the_cluster_policy
from gpuctl.nvidia.model import Hardware
from gpuctl.nvidia.node import CONFIG, Around, Node
from gpuctl.nvidia.objects import ClusterPolicySpec, GpuPod, MigConfigMap, NodeView, SliceDevice
from gpuctl.nvidia.offers import Offers, Placements
from gpuctl.nvidia.operands import MANAGER, operand_of
from gpuctl.nvidia.parted import Part
from gpuctl.nvidia.selection import Selection, selected
from gpuctl.runbook.drain.candidates import Scope
from gpuctl.runbook.drain.idle import (
    ASKED_BY,
    lasting_processes_on,
    seeing_processes,
    the_node_to_look_into,
)
from gpuctl.runbook.mig.change import MigChange, Wish, change_of, means_of, wishes
from gpuctl.runbook.target import NODE, OPTIONS, SELF, TARGET, Self

SET_BY: Final = ASKED_BY
BACK: Final = ":undo"  # what the mark ends with while the run takes its change back
AGAIN_AFTER: Final = 10.0  # seconds between the two looks that must agree
SUCCESS, FAILED, PENDING, REBOOTING = "success", "failed", "pending", "rebooting"
UNDER_WAY: Final = frozenset({PENDING, REBOOTING})
_NOT_READ: Final = Inapplicable("not read for one node")

PODS: Final = OnNode(GpuPod, TARGET)


# The node


def _around(
    view: NodeView,
    pods: State[Each[Ref, GpuPod]],
    policy: State[ClusterPolicySpec | None],
    devices: State[Mapping[str, tuple[SliceDevice, ...]]],
    now: datetime,
) -> Node:
    there = attempt(lambda: {view.metadata.name: tuple(pod for pod in value(pods) if not pod.over)})
    return Node(view, Around(there, policy, _NOT_READ, devices, now))


@given(NODE, Maybe(PODS), Maybe(the_cluster_policy), NOW)
def the_GPU_node(  # noqa: N802
    view: NodeView, pods: State[Each[Ref, GpuPod]], policy: State[ClusterPolicySpec | None], now: datetime
) -> Node:
    """The node as steps look at it."""
    return _around(view, pods, policy, _NOT_READ, now)


@given(NODE, Maybe(PODS), Maybe(the_cluster_policy), Maybe(devices_by_node), NOW)
def the_GPU_node_with_its_DRA_devices(  # noqa: N802
    view: NodeView,
    pods: State[Each[Ref, GpuPod]],
    policy: State[ClusterPolicySpec | None],
    devices: State[Mapping[str, tuple[SliceDevice, ...]]],
    now: datetime,
) -> Node:
    """The node as it is judged before anything is done."""
    return _around(view, pods, policy, devices, now)


def written(view: NodeView, name: str) -> datetime | None:
    """When a label of NVIDIA's was written last, by whomever, on the API server's clock."""
    writers = view.metadata.managed_fields
    return max((each.time for each in writers if each.time and getattr(each.labels, name)), default=None)


def server_time(view: NodeView) -> datetime | None:
    """A time that the API server's clock has passed: of the last write to the node. The kubelet makes one
    every few minutes."""
    return max((each.time for each in view.metadata.managed_fields if each.time), default=None)


def answered(view: NodeView) -> bool:
    """Whether MIG manager's state was written after the configuration was asked for."""
    asked, told = written(view, "config"), written(view, "state")
    return asked is not None and told is not None and told >= asked


def failed(node: Node) -> bool:
    """Whether MIG manager says that what is asked for now failed, and was not restarted since to try again.
    Raises NotKnown."""
    told, restarted = written(node.view, "state"), _restarted(node)
    again = told is not None and restarted is not None and restarted > told
    return node.state == FAILED and answered(node.view) and not again


def at_it_for(node: Node) -> timedelta:
    """For how long at least MIG manager has been at work and shown no progress, by the API server's clock
    alone. Raises NotKnown."""
    return _at_it_until(node, server_time(node.view))


def seems_at_it_for(node: Node) -> timedelta:
    """The same by the clock of this machine, which may be wrong: good for a hint. Raises NotKnown."""
    return _at_it_until(node, node.around.now)


def _at_it_until(node: Node, now: datetime | None) -> timedelta:
    times = (written(node.view, "state"), written(node.view, "config"), _restarted(node))
    since = max((time for time in times if time), default=None)
    return now - since if node.state in UNDER_WAY and since and now else timedelta()


def _restarted(node: Node) -> datetime | None:
    pods = node.operands.get(MANAGER, ())
    times = (pod.metadata.creation_timestamp for pod in pods)
    return max((time for time in times if time), default=None)


# What nvidia-smi says, where it may be asked


@dataclass(frozen=True, eq=False)
class Silicon:
    """A look into the node. `hardware` is unknown where nothing was asked."""

    hardware: Fact[Hardware]
    offers: Fact[Each[str, Offers]]
    placements: Fact[Each[str, Placements]]


def silicon(on: Fact[Collection[Target]]) -> Silicon:
    """Declares a look into the node, if the fact names it."""
    made = look(on)

    @given(TARGET, made.hardware)
    def hardware_of_the_node(name: str, found: Each[str, Hardware]) -> Hardware:
        if found.get(name) is None:
            raise NotKnown(Unknown(Reason.NOT_ASKED, "nvidia-smi is not asked now", name))
        hardware = found[name]
        if hardware.obstacle is not None or not hardware.gpus:
            why = str(hardware.obstacle or "nvidia-smi lists no GPU")
            raise NotKnown(Unknown(Reason.SERVER_ERROR, why, name))
        return hardware

    return Silicon(hardware_of_the_node, made.offers, made.placements)


SILICON: Final = silicon(the_node_to_look_into)


@given(the_GPU_node)
def the_node_while_nothing_changes(node: Node) -> Collection[Target]:
    return (target_of(node),) if node.ready and node.change is None else ()


AT_REST: Final = silicon(the_node_while_nothing_changes)


@given(the_GPU_node)
def the_node_while_success_is_in_doubt(node: Node) -> Collection[Target]:
    """Where `success` may be that of the configuration before."""
    in_doubt = node.state == SUCCESS and node.ready and not node.paused and not answered(node.view)
    return (target_of(node),) if in_doubt else ()


IN_DOUBT: Final = silicon(the_node_while_success_is_in_doubt)


@given(the_GPU_node)
def the_node_on_its_way_back(node: Node) -> Collection[Target]:
    """While nothing changes: forward, nobody looks between asking for a change and its end."""
    marked = node.view.metadata.annotations.get(SET_BY, "").endswith(BACK)
    return (target_of(node),) if marked and node.ready and node.change is None else ()


ON_THE_WAY_BACK: Final = silicon(the_node_on_its_way_back)


@given(NODE, PODS, NOW, SELF, the_GPU_node)
def the_node_before_its_way_back(
    view: NodeView, pods: Each[Ref, GpuPod], now: datetime, self: Self, node: Node
) -> Collection[Target]:
    """Once MIG manager has ended what this run asked for: any sooner, nvidia-smi would be in its way."""
    asked = self.run != "" and view.metadata.annotations.get(SET_BY) == self.run
    ended = node.state in (SUCCESS, FAILED) and answered(view) and node.change is None
    return (seeing_processes(view, pods, now),) if asked and ended and node.ready else ()


BEFORE_THE_WAY_BACK: Final = lasting_processes_on(the_node_before_its_way_back)


# The same once more, a while later

SECOND_LOOK: Final = Later(the_node_while_nothing_changes, AGAIN_AFTER)


@given(SECOND_LOOK)
def the_node_a_while_later(targets: Collection[Target]) -> Collection[Ref]:
    return tuple(Ref(NodeView.of, target.node) for target in targets)


@given(Named(NodeView, the_node_a_while_later), the_GPU_node)
def the_GPU_node_a_while_later(found: Each[Ref, NodeView], node: Node) -> Node:  # noqa: N802
    view = found.get(node.ref)
    if view is None:
        raise NotKnown(Unknown(Reason.NOT_ASKED, "it was not looked at a second time", node.name))
    return Node(view, node.around)


LATER: Final = silicon(SECOND_LOOK)


# What is asked of it


@given(PODS)
def namespaces_of_the_operands(pods: Each[Ref, GpuPod]) -> Collection[str]:
    return tuple(sorted({pod.metadata.namespace for pod in pods if operand_of(pod.metadata.labels)}))


CONFIG_MAPS: Final = Within(MigConfigMap, namespaces_of_the_operands)


@given(OPTIONS)
def the_wanted_configuration(options: Mapping[str, Any]) -> str:
    return str(options.get("config", ""))


def _asking(node: Node, config: str) -> Node:
    """The node as if its label asked for this."""
    about = msgspec.structs.replace(node.view.metadata, labels={**node.labels, CONFIG: config})
    return Node(msgspec.structs.replace(node.view, metadata=about), node.around)


@given(the_GPU_node, CONFIG_MAPS, the_wanted_configuration, the_cluster_policy)
def what_the_wanted_name_selects(
    node: Node, maps: Each[Ref, MigConfigMap], config: str, _policy: ClusterPolicySpec | None
) -> Selection | None:
    """A ClusterPolicy that can't be read may name another ConfigMap."""
    return selected(_asking(node, config), maps)


@given(what_the_wanted_name_selects, the_wanted_configuration)
def parts_of_the_wanted(found: Selection | None, config: str) -> tuple[Part, ...]:
    if found is None or found.parts is None:
        why = "there is no such configuration on this node"
        raise NotKnown(Unknown(Reason.NOT_ASKED, why, config or "an empty name"))
    return found.parts


@given(the_GPU_node, SILICON.hardware, parts_of_the_wanted, the_wanted_configuration)
def the_change(node: Node, hardware: Hardware, parts: tuple[Part, ...], config: str) -> MigChange:
    """From what to what."""
    return change_of(config, parts, hardware, means_of(node))


@given(the_GPU_node, CONFIG_MAPS, SILICON.hardware)
def what_the_old_name_asks(node: Node, maps: Each[Ref, MigConfigMap], hardware: Hardware) -> tuple[Wish, ...]:
    """What the configuration of before would bring back. Empty where there is none, or it is not known any
    more, or says nothing of some GPU."""
    known = attempt(lambda: selected(node, maps)) if node.config else Known(None)
    found = known.value if isinstance(known, Known) else None
    if found is None or found.parts is None:
        return ()
    parts = found.parts
    asked = attempt(lambda: tuple(wishes(parts, hardware)))
    whole = isinstance(asked, Known) and len(asked.value) == len(hardware.gpus)
    return asked.value if whole and isinstance(asked, Known) else ()


@given(OPTIONS, Maybe(the_change))
def which_pods_must_go(options: Mapping[str, Any], change: State[MigChange]) -> Scope:
    """As asked, or as the change takes it. A change that is not known takes all of them; what is no scope is
    refused by a guard."""
    asked = options.get("scope")
    if asked in tuple(Scope):
        return Scope(asked)
    return change.value.scope if isinstance(change, Known) else Scope.ALL
