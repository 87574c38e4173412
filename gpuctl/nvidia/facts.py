"""What is read of GPU nodes, and what is derived from it: the API's view first, then that of nvidia-smi."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from gpuctl.facts.fact import NOW, Argument, Command, Fact, Later, Maybe, Named, Objects, Within, given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.nodes import Target
from gpuctl.facts.state import (
    Each,
    Inapplicable,
    Known,
    NotKnown,
    Reason,
    State,
    Unknown,
    attempt,
)
from gpuctl.nvidia.comparison import hardware_in_doubt, in_doubt
from gpuctl.nvidia.detail import Detail
from gpuctl.nvidia.instances import (
    ComputeInstances,
    GpuInstances,
    parse_compute_instances,
    parse_gpu_instances,
)
from gpuctl.nvidia.involved import InvolvedPod, has_shell
from gpuctl.nvidia.kubelet import Devices, parse_devices
from gpuctl.nvidia.listing import Listing, parse_listing
from gpuctl.nvidia.model import Answers, Hardware, joined, with_processes
from gpuctl.nvidia.node import Around, Node, age
from gpuctl.nvidia.objects import (
    ClusterPolicy,
    ClusterPolicySpec,
    GpuPod,
    MigConfigMap,
    NodeView,
    OperandSet,
    ResourceSlice,
    SliceDevice,
)
from gpuctl.nvidia.offers import Offers, Placements, parse_offers, parse_placements
from gpuctl.nvidia.operands import operand_of, places
from gpuctl.nvidia.output import Trouble
from gpuctl.nvidia.query import GpuRows, Processes, parse_gpus, parse_pci, parse_processes
from gpuctl.nvidia.scope import EVERYWHERE, Scope
from gpuctl.nvidia.table import parse_account

T = TypeVar("T")

AGAIN_AFTER: Final = 10.0  # seconds between two reads of a node that does not agree with itself
DRA_DRIVER: Final = "gpu.nvidia.com"

SCOPE: Argument[Scope] = Argument("nodes that are asked for", EVERYWHERE)

NODES = Objects(NodeView)
PODS = Objects[GpuPod](InvolvedPod)
POLICIES = Objects(ClusterPolicy)
SETS = Objects(OperandSet)
SLICES = Objects(ResourceSlice)


@given(PODS)
def pods_by_node(pods: Each[Ref, GpuPod]) -> Mapping[str, tuple[GpuPod, ...]]:
    found: dict[str, list[GpuPod]] = {}
    for pod in pods:
        if pod.spec.node_name and not pod.over:
            found.setdefault(pod.spec.node_name, []).append(pod)
    return {node: tuple(there) for node, there in found.items()}


@given(Maybe(POLICIES))
def the_cluster_policy(policies: State[Each[Ref, ClusterPolicy]]) -> ClusterPolicySpec | None:
    """The ClusterPolicy that is in force; there is one at most."""
    if isinstance(policies, Unknown):
        raise NotKnown(policies)
    if isinstance(policies, Inapplicable):
        return None
    return next((each.spec for each in policies.value), None)


@given(Maybe(SLICES))
def devices_by_node(slices: State[Each[Ref, ResourceSlice]]) -> Mapping[str, tuple[SliceDevice, ...]]:
    """What NVIDIA's DRA driver publishes."""
    if isinstance(slices, Unknown):
        raise NotKnown(slices)
    found: dict[str, tuple[SliceDevice, ...]] = {}
    for each in slices.value if isinstance(slices, Known) else ():
        if each.spec.driver == DRA_DRIVER and each.spec.node_name:
            found[each.spec.node_name] = (*found.get(each.spec.node_name, ()), *each.spec.devices)
    return found


@given(Maybe(SETS))
def operand_sets(sets: State[Each[Ref, OperandSet]]) -> Mapping[str, tuple[OperandSet, ...]]:
    """The DaemonSets that serve GPUs, by the operand they are of."""
    if not isinstance(sets, Known):
        raise NotKnown(sets)
    found: dict[str, tuple[OperandSet, ...]] = {}
    for each in sets.value:
        operand = operand_of(each.spec.template.metadata.labels)
        if operand is not None:
            found[operand.name] = (*found.get(operand.name, ()), each)
    return found


@given(
    Maybe(pods_by_node), Maybe(the_cluster_policy), Maybe(operand_sets), Maybe(devices_by_node), NOW
)  # fmt: skip
def surroundings_of_nodes(
    pods: State[Mapping[str, tuple[GpuPod, ...]]],
    policy: State[ClusterPolicySpec | None],
    sets: State[Mapping[str, tuple[OperandSet, ...]]],
    devices: State[Mapping[str, tuple[SliceDevice, ...]]],
    now: Any,
) -> Around:
    return Around(pods, policy, sets, devices, now)


@given(NODES, surroundings_of_nodes, SCOPE)
def GPU_nodes_at_first(nodes: Each[Ref, NodeView], around: Around, scope: Scope) -> Each[Ref, Node]:  # noqa: N802
    """The nodes that have NVIDIA GPUs, as they were read first."""
    meant = {ref: Node(view, around) for ref, view in nodes.known() if scope.takes(view)}
    found: dict[Ref, State[Node]] = {ref: Known(node) for ref, node in meant.items() if node.has_gpus}
    unread = {ref: state for ref, state in nodes.entries.items() if isinstance(state, Unknown)}
    gaps = {**unread, **dict(scope.missed(nodes))}
    if not found and not gaps and not nodes.holes:
        raise scope.without_gpus(nodes)
    return Each({**found, **gaps}, nodes.holes)


# Looking into them


@given(GPU_nodes_at_first)
def GPU_nodes(nodes: Each[Ref, Node]) -> Collection[Target]:  # noqa: N802
    """Where to run nvidia-smi, for each node."""
    return tuple(target_of(node) for _, node in nodes.known())


def target_of(node: Node) -> Target:
    """Where to run nvidia-smi on a node."""
    known = attempt(lambda: node.operands)
    found = places(known.value) if isinstance(known, Known) else ()
    os_image = node.view.status.node_info.os_image
    return Target(
        node=node.name,
        places=found,
        why_not=_why_not(node),
        runtime_class="nvidia" if os_image.startswith("Talos") else "",
        images=tuple(dict.fromkeys(_shells(node))),
        openshift="OpenShift" in os_image or "CoreOS" in os_image,
    )


def _why_not(node: Node) -> str:
    if not node.ready:
        return f"not tried: the node is not Ready, {age(node.not_ready_since, node.around.now)}"
    if node.passed_through:
        return "not tried: its GPUs are handed to virtual machines"
    return ""


def _shells(node: Node) -> Iterator[str]:
    """Images with a shell that are on the node already."""
    known = attempt(lambda: node.pods)
    for pod in known.value if isinstance(known, Known) else ():
        yield from (container.image for container in pod.spec.containers if has_shell(container))


@dataclass(frozen=True, eq=False)
class Look:
    """The commands that are run on some nodes, and the account of the hardware they make."""

    hardware: Fact[Each[str, Hardware]]
    offers: Command[Offers]
    placements: Command[Placements]
    kubelet: Command[Devices]


def look(on: Fact[Collection[Target]]) -> Look:
    """Declares a look into nodes."""
    made = given(
        Command("nvidia-smi-L", on, parse_listing),
        Maybe(Command("nvidia-smi-query-gpu", on, parse_gpus)),
        Maybe(Command("nvidia-smi-mig-lgi", on, parse_gpu_instances)),
        Maybe(Command("nvidia-smi-mig-lci", on, parse_compute_instances)),
        Maybe(Command("nvidia-smi-q-x", on, parse_account)),
        Maybe(Command("pci", on, parse_pci)),
    )(hardware_of_nodes)
    processes = Command("nvidia-smi-compute-apps", on, parse_processes)
    return Look(
        given(made, Maybe(processes))(hardware_with_processes),
        Command("nvidia-smi-mig-lgip", on, parse_offers),
        Command("nvidia-smi-mig-lgipp", on, parse_placements),
        Command("kubelet-devices", on, parse_devices),
    )


def hardware_of_nodes(
    listings: Each[str, Listing],
    rows: State[Each[str, GpuRows]],
    instances: State[Each[str, GpuInstances]],
    computes: State[Each[str, ComputeInstances]],
    details: State[Each[str, Detail]],
    pci: State[Each[str, tuple[str, ...]]],
) -> Each[str, Hardware]:
    """The answers of each node joined. What but -L is not known is left out, and what hangs on it."""

    def hardware(node: str, listing: Listing) -> Hardware:
        return joined(
            Answers(
                listing=listing,
                rows=_told(rows, node),
                instances=_told(instances, node),
                computes=_told(computes, node),
                detail=_told(details, node),
                pci=_told(pci, node),
            )
        )

    return Each(
        {
            node: Known(hardware(node, state.value)) if isinstance(state, Known) else state
            for node, state in listings.entries.items()
        },
        listings.holes,
    )


def hardware_with_processes(
    hardware: Each[str, Hardware], processes: State[Each[str, Processes]]
) -> Each[str, Hardware]:
    """The same with the processes on it. What tells none of a node changes nothing of it."""

    def joined_with(node: str, state: State[Hardware]) -> State[Hardware]:
        found = _told(processes, node)
        return Known(with_processes(state.value, found)) if found and isinstance(state, Known) else state

    return Each({node: joined_with(node, state) for node, state in hardware.entries.items()}, hardware.holes)


def _told(answers: State[Each[str, T]], node: str) -> T | None:
    if not isinstance(answers, Known):
        return None
    state = answers.value.entries.get(node)
    return state.value if isinstance(state, Known) else None


FIRST = look(GPU_nodes)


# What stands twice counts: nodes that do not agree are read again, by what the API shows and by nvidia-smi


def _refs(targets: Collection[Target]) -> Collection[Ref]:
    return tuple(Ref(NodeView.of, target.node) for target in targets)


@given(GPU_nodes_at_first)
def nodes_in_doubt(nodes: Each[Ref, Node]) -> Collection[Target]:
    """Those on which what the API shows does not agree."""
    return tuple(target_of(node) for _, node in nodes.known() if in_doubt(node))


@given(Later(nodes_in_doubt, AGAIN_AFTER))
def nodes_to_read_again(targets: Collection[Target]) -> Collection[Ref]:
    return _refs(targets)


@given(GPU_nodes_at_first, Maybe(Named(NodeView, nodes_to_read_again)))
def nodes_with_GPUs(nodes: Each[Ref, Node], again: State[Each[Ref, NodeView]]) -> Each[Ref, Node]:  # noqa: N802
    """The GPU nodes, those in doubt as they were read last."""
    if not isinstance(again, Known):
        return nodes
    later = dict(again.value.known())
    return Each(
        {
            ref: Known(_again(state.value, later.get(ref))) if isinstance(state, Known) else state
            for ref, state in nodes.entries.items()
        },
        nodes.holes,
    )


def _again(node: Node, view: NodeView | None) -> Node:
    return node if view is None else Node(view, node.around, earlier=node)


@given(GPU_nodes_at_first, FIRST.hardware, nodes_in_doubt)
def nodes_whose_hardware_is_in_doubt(
    nodes: Each[Ref, Node], hardware: Each[str, Hardware], doubtful: Collection[Target]
) -> Collection[Target]:
    """Those on which what nvidia-smi shows does not agree with the rest."""
    names = {target.node for target in doubtful}
    return tuple(
        target_of(node)
        for _, node in nodes.known()
        if (found := _told(Known(hardware), node.name)) is not None
        and (node.name in names or hardware_in_doubt(node, found))
    )


SECOND_LOOK = Later(nodes_whose_hardware_is_in_doubt, AGAIN_AFTER)
SECOND = look(SECOND_LOOK)


@given(SECOND_LOOK)
def nodes_to_look_into_again(targets: Collection[Target]) -> Collection[Ref]:
    return _refs(targets)


@dataclass(frozen=True, eq=False)
class Looked:
    """A node and what is in it. `earlier` is the first of two looks; `kubelet` may be unknown."""

    node: Node
    hardware: Hardware
    offers: Offers | None
    kubelet: State[Devices]
    earlier: Looked | None = None


@given(
    GPU_nodes_at_first,
    FIRST.hardware,
    Maybe(FIRST.offers),
    Maybe(FIRST.kubelet),
    Maybe(SECOND.hardware),
    Maybe(Named(NodeView, nodes_to_look_into_again)),
)
def nodes_looked_into(
    nodes: Each[Ref, Node],
    hardware: Each[str, Hardware],
    offers: State[Each[str, Offers]],
    kubelet: State[Each[str, Devices]],
    second: State[Each[str, Hardware]],
    again: State[Each[Ref, NodeView]],
) -> Each[Ref, Looked]:
    """What nvidia-smi answered on each node, whatever it was; the second look where there was one."""
    later = dict(again.value.known()) if isinstance(again, Known) else {}

    def looked(ref: Ref, node: Node) -> State[Looked]:
        found = hardware.entries.get(node.name, Unknown(Reason.NOT_ASKED, "not looked into", node.name))
        if not isinstance(found, Known):
            return found
        first = Looked(node, found.value, _told(offers, node.name), _entry(kubelet, node.name))
        anew = _told(second, node.name)
        if anew is None:
            return Known(first)
        return Known(replace(first, node=_again(node, later.get(ref)), hardware=anew, earlier=first))

    return Each(
        {
            ref: looked(ref, state.value) if isinstance(state, Known) else state
            for ref, state in nodes.entries.items()
        },
        nodes.holes,
    )


def _entry(answers: State[Each[str, T]], node: str) -> State[T]:
    if not isinstance(answers, Known):
        return answers
    return answers.value.entries.get(node, Unknown(Reason.NOT_ASKED, "not looked into", node))


@given(nodes_looked_into)
def nodes_whose_hardware_is_known(looked: Each[Ref, Looked]) -> Each[Ref, Looked]:
    """Those of which nvidia-smi told the whole list of GPUs."""
    return Each({ref: _sound(state) for ref, state in looked.entries.items()}, looked.holes)


def _sound(state: State[Looked]) -> State[Looked]:
    if not isinstance(state, Known):
        return state
    obstacle = state.value.hardware.obstacle
    if obstacle is None:
        return state
    return Unknown(_REASONS.get(obstacle.trouble, Reason.SERVER_ERROR), str(obstacle), state.value.node.name)


_REASONS: Final = {Trouble.UNREADABLE: Reason.MALFORMED, Trouble.HUNG: Reason.TIMEOUT}


# Configurations of MIG manager


@given(surroundings_of_nodes)
def namespaces_of_operands(around: Around) -> Collection[str]:
    """Where pods that serve GPUs live: their ConfigMaps lie beside them."""
    if not isinstance(around.pods, Known):
        raise NotKnown(around.pods)
    pods = (pod for there in around.pods.value.values() for pod in there)
    found = {pod.metadata.namespace for pod in pods if operand_of(pod.metadata.labels)}
    sets = around.sets.value.values() if isinstance(around.sets, Known) else ()
    return tuple(sorted(found | {each.metadata.namespace for alike in sets for each in alike}))


CONFIG_MAPS = Within(MigConfigMap, namespaces_of_operands)
