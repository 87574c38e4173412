"""The runbook `device-plugin-restart`: a node's device plugin starts anew, and lists the hardware again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from gpuctl.audit.finding import Finding
from gpuctl.facts.fact import Maybe, given
from gpuctl.facts.state import Known, State
from gpuctl.nvidia.comparison import of_hardware, stale, unhealthy, unoffered, wrong_capacity
from gpuctl.nvidia.facts import the_cluster_policy
from gpuctl.nvidia.model import Hardware
from gpuctl.nvidia.node import Node
from gpuctl.nvidia.objects import GpuPod, NodeView
from gpuctl.nvidia.operands import PLUGIN
from gpuctl.runbook.drain.candidates import listed
from gpuctl.runbook.drain.cordon import PATCHES_NODES, Cordon
from gpuctl.runbook.drain.evict import DELETES
from gpuctl.runbook.drain.pods import DrainPod
from gpuctl.runbook.gates import ALWAYS, held_by_nobody_else, no_blocking_pod, no_ghost, window_not_closed
from gpuctl.runbook.guard import asked_again, before, blocks, guard, notes
from gpuctl.runbook.mig.change import layout
from gpuctl.runbook.mig.facts import the_GPU_node
from gpuctl.runbook.mig.guards import no_change_under_way, node_is_ready
from gpuctl.runbook.mig.noticing import (
    gpus_are_sound,
    holders_on_the_node,
    named,
    pods_that_wait_for_it,
    unknown,
    who_holds_its_GPUs,
)
from gpuctl.runbook.mig.operand_pods import RestartOperand, is_ready, restarting, set_of
from gpuctl.runbook.mig.recover_steps import OfferHardware
from gpuctl.runbook.mig.standing import STILL, misoffered
from gpuctl.runbook.runbook import Runbook
from gpuctl.runbook.step import Step
from gpuctl.runbook.target import NODE

ABOUT: Final = """\
NVIDIA's device plugin lists a node's devices at its start only, and never takes back that one was unhealthy.
So after a change behind its back, or an XID error that is over, the node offers what is not there, or less
than there is. This runbook deletes the plugin's pod on the node, by its uid, waits for a new one that is
Ready, and then until what the node offers is what nvidia-smi shows, all of it allocatable. The kubelet keeps
the names of before for five minutes, so that may take a while; its files are never deleted.

Running pods keep the devices they have. The node is cordoned meanwhile: a pod that is placed there in these
seconds would be refused by the kubelet (UnexpectedAdmissionError)."""

RESTART: Final = restarting(PLUGIN)


@given(NODE, RESTART.pod)
def steps_of_a_restart(node: NodeView, pod: GpuPod) -> tuple[Step, ...]:
    name, uid = node.metadata.name, node.metadata.uid
    return (
        Cordon(node=name, node_uid=uid, before=node.spec.unschedulable),
        RESTART.step(node, pod),
        OfferHardware(node=name, node_uid=uid),
    )


@given(NODE, Maybe(RESTART.pod), STILL.hardware)
def what_a_restart_rests_on(node: NodeView, pod: State[GpuPod], hardware: Hardware) -> Mapping[str, str]:
    return {
        "device plugin's pod": pod.value.metadata.uid if isinstance(pod, Known) else "",
        "GPUs": layout(hardware),
        "cordoned before": "yes" if node.spec.unschedulable else "no",
    }


@guard(
    "the node does not offer what its GPUs have",
    given(the_GPU_node, STILL.hardware, Maybe(RESTART.pod)),
    "--although-sound",
)
def needs_a_restart(node: Node, hardware: Hardware, pod: State[GpuPod]) -> Iterator[Finding]:
    runs = isinstance(pod, Known) and is_ready(pod.value)
    left = list(misoffered(node, hardware, whole=True))
    if runs and not left:
        yield blocks(
            node.ref,
            f"nothing to do: {node.ref} offers what its GPUs have, and all of it can be allocated",
            look=f"gpuctl mig show {node.name}",
        )
    elif left and node.recent:
        yield notes(
            node.ref,
            f"{listed(left)} may come right by itself: the last change on {node.ref} is less than 6 min ago",
        )


@guard("the hardware is as labels describe it", given(the_GPU_node, STILL.hardware))
def gpus_are_all_there(node: Node, hardware: Hardware) -> Iterator[Finding]:
    """Fewer GPUs than are labelled: the plugin would offer fewer, and that is no cure."""
    count = node.number("gpu.count")
    counted = node.strategy != "single" and len(hardware.models) == 1
    if counted and count is not None and len(hardware.gpus) < count:
        yield blocks(
            node.ref,
            f"nvidia-smi shows {len(hardware.gpus)} of {count} GPUs of {node.ref}",
            look="nvidia-smi -L (there)",
            remedy="find the GPU first: gpuctl check mig-consistency",
        )


# Who would notice


@given(
    the_GPU_node,
    STILL.hardware,
    RESTART.pod,
    who_holds_its_GPUs,
    Maybe(pods_that_wait_for_it),
)
def what_a_restart_does(
    node: Node,
    hardware: Hardware,
    pod: GpuPod,
    holding: tuple[str, ...],
    waiting: State[tuple[DrainPod, ...]],
) -> tuple[str, ...]:
    return (
        *_what_changes(node, hardware),
        f"{pod.ref} is deleted; {set_of(pod) or 'nothing'} makes another",
        f"{'; '.join(holding)}; running pods keep their devices",
        *_who_loses(node),
        "for some seconds the node offers no GPU, and it is cordoned until all is verified",
        *_who_waits(waiting),
        "a restart has no undo",
    )


def _what_changes(node: Node, hardware: Hardware) -> Iterator[str]:
    offered = of_hardware(node, hardware)
    for gap in (*wrong_capacity(offered, node.capacity), *stale(offered, node.capacity)):
        yield f"{gap.name}: {gap.found} -> {gap.wanted}"
    for gap in unhealthy(node):
        yield f"{gap.name}: {gap.found} -> {gap.wanted} allocatable, if the plugin finds them healthy"


def _who_loses(node: Node) -> Iterator[str]:
    """What a pod holds under a name that goes is not given to it again once its containers are made anew."""
    lost = [(pod, names) for pod, names in unoffered(node)]
    if lost:
        shown = listed([f"{pod.ref} ({', '.join(names)})" for pod, names in lost])
        yield f"hold what the node does not offer any more, and would not start here again: {shown}"


def _who_waits(waiting: State[tuple[DrainPod, ...]]) -> Iterator[str]:
    yield from unknown("who waits for what the node offers", waiting)
    if isinstance(waiting, Known):
        who = named(waiting.value) if waiting.value else "no pod"
        yield f"waiting meanwhile for what the node offers: {who}"


RUNBOOK: Final = Runbook(
    id="device-plugin-restart",
    title="restart a node's device plugin, so that it offers what its GPUs have",
    about=ABOUT,
    target="node",
    back="the node is uncordoned if this run cordoned it; a restart has no undo",
    guards=(
        *ALWAYS,
        held_by_nobody_else,
        no_blocking_pod,
        no_ghost,
        window_not_closed,
        *asked_again(
            before("RestartOperand"),  # after that the steps tell what has come of it
            node_is_ready,
            no_change_under_way,
            gpus_are_sound,
            gpus_are_all_there,
            RESTART.comes_back,
            needs_a_restart,
        ),
    ),
    steps=steps_of_a_restart,
    step_types=(Cordon, RestartOperand, OfferHardware),
    preconditions=what_a_restart_rests_on,
    effects=what_a_restart_does,
    rules=frozenset({PATCHES_NODES, DELETES}),
    spared=(holders_on_the_node,),
    unheeded=(the_cluster_policy,),
)
