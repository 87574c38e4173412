"""What must hold before a node's MIG configuration is changed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from gpuctl.audit.finding import Finding
from gpuctl.facts.fact import Fact, Maybe, given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Each, Known, NotKnown, Reason, State, Unknown
from gpuctl.nvidia.fit import obstacle
from gpuctl.nvidia.model import Gpu, Hardware
from gpuctl.nvidia.node import CONFIG, PREFIX, Node
from gpuctl.nvidia.objects import GpuPod, NodeView
from gpuctl.nvidia.offers import Offers, Placements
from gpuctl.nvidia.operands import MANAGER
from gpuctl.nvidia.output import Trouble, is_whole
from gpuctl.nvidia.parted import Part, impossible
from gpuctl.nvidia.profile import Profile, parse
from gpuctl.nvidia.selection import Selection
from gpuctl.runbook.drain.candidates import Scope, listed
from gpuctl.runbook.gates import NODES
from gpuctl.runbook.guard import Guard, blocks, guard, notes
from gpuctl.runbook.mig.change import MigChange, Wish, offered, uncovered
from gpuctl.runbook.mig.facts import (
    FAILED,
    SILICON,
    UNDER_WAY,
    parts_of_the_wanted,
    the_change,
    the_GPU_node,
    the_GPU_node_with_its_DRA_devices,
    the_wanted_configuration,
    what_the_old_name_asks,
    what_the_wanted_name_selects,
    which_pods_must_go,
)
from gpuctl.runbook.mig.words import log_of, retry, shown_state
from gpuctl.runbook.pool import serves
from gpuctl.runbook.records import Run, runs
from gpuctl.runbook.target import NODE, OPTIONS, SELF, Self

_FOLLOWS: Final = "Follow"  # the step that knows what the GPUs are to be like
_WEDGES: Final = (0, 15, 0)  # up to this release a time-out leaves operands paused for ever
_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")
_LABEL: Final = re.compile(r"[A-Za-z0-9](?:[\w.-]{0,61}[A-Za-z0-9])?")
_MACHINE_STATE: Final = "machineconfiguration.openshift.io/state"
_MACHINE_CONFIG: Final = "machineconfiguration.openshift.io/currentConfig"
_MACHINE_WANTED: Final = "machineconfiguration.openshift.io/desiredConfig"

# What to do where MIG manager is not the one who decides.
_OTHER_WAYS: Final[Mapping[str, str]] = {
    "GKE": "GKE slices GPUs as a node pool is made: make one with another gpu-partition-size, move there",
    "Bottlerocket": "set settings.kubelet-device-plugins.nvidia.mig.profile and reboot the node: it slices "
    "its GPUs at boot",
    "HAMi": "change the MIG templates in HAMi's device configuration: it makes instances as pods ask",
    "nos": "let nos partition it, by the label nos.nebuly.com/gpu-partitioning of the node",
    "instaslice": "let instaslice make the instances, as pods ask for them",
    "Run:ai": "change the layout in Run:ai: its label run.ai/mig.config is what counts",
    "the DRA driver": "ask for the profile in a ResourceClaim of DeviceClass mig.nvidia.com: the driver "
    "makes the instances, or publishes those there are",
}
_AKS: Final = (
    "AKS slices GPUs as a node pool is made: make one with another gpuInstanceProfile, or managed "
    "GPU profile, and move there"
)
_NO_MANAGER: Final = (
    "enable migManager in the ClusterPolicy and label the node nvidia.com/gpu.deploy.mig-manager=true; "
    "without GPU operator, drain the node and run nvidia-mig-parted apply on it"
)


# The node


@guard("the node is Ready", given(NODE))
def node_is_ready(node: NodeView) -> Iterator[Finding]:
    if not any(each.type == "Ready" and each.status == "True" for each in node.status.conditions):
        yield blocks(node.ref, f"{node.ref} is not Ready", remedy="bring it back first")


@guard("the node has GPUs that can be sliced", given(the_GPU_node))
def node_has_sliceable_gpus(node: Node) -> Iterator[Finding]:
    if node.label("gpu.present") != "true":
        yield blocks(
            node.ref,
            f"{node.ref} has no label {PREFIX}gpu.present=true: GPU operator sees no GPU on it",
            remedy="name a node with GPUs",
        )
    elif node.label("mig.capable") == "false":
        yield blocks(
            node.ref,
            f"the GPUs of {node.ref} know no MIG ({PREFIX}mig.capable=false)",
            remedy="name a node whose GPUs do",
        )


def soundness(hardware: Fact[Hardware]) -> Guard:
    """The guard against a GPU that is lost or in error: it is for repair, not for a change or a restart."""

    @guard("nvidia-smi finds nothing wrong with the GPUs", given(hardware, NODE))
    def gpus_are_sound(found: Hardware, node: NodeView) -> Iterator[Finding]:
        for command, said in found.said:
            if said.trouble in (Trouble.GPU_LOST, Trouble.GPU_ERROR):
                yield blocks(
                    node.ref,
                    f"nvidia-smi {command} on {node.ref}: {said}",
                    look="nvidia-smi -q (there)",
                    remedy="repair or reset the GPU first",
                )

    return gpus_are_sound


gpus_are_sound: Final = soundness(SILICON.hardware)


# Who decides


@guard("MIG manager decides the geometry", given(the_GPU_node_with_its_DRA_devices))
def manager_decides(node: Node) -> Iterator[Finding]:
    owner = node.owner
    if owner is not None:
        yield blocks(
            node.ref,
            f"{owner.name} decides the geometry of GPUs on {node.ref} ({owner.how})",
            remedy=_OTHER_WAYS.get(owner.name, f"change it by {owner.name}"),
        )
    elif node.passed_through or node.virtual:
        what = "are handed to virtual machines" if node.passed_through else "are virtual"
        yield blocks(
            node.ref,
            f"the GPUs of {node.ref} {what}: MIG is decided elsewhere",
            remedy="change it in the virtual machine that has them, or on the host that lends them",
        )
    elif not any(node.capacity.values()) and isinstance(node.around.devices, Unknown):
        raise NotKnown(node.around.devices)  # NVIDIA's DRA driver may publish them


@guard("MIG manager runs on the node", given(the_GPU_node_with_its_DRA_devices))
def manager_runs(node: Node) -> Iterator[Finding]:
    """Without one the label is set and nothing happens."""
    pods = node.operands.get(MANAGER, ())
    running = [pod for pod in pods if pod.running]
    if running:
        yield from _noted_version(running[0])
        return
    if node.owner is not None and not pods:
        return  # said already, with what to do there
    what = f"{pods[0].ref} is {pods[0].status.phase or 'not running'}" if pods else "there is no pod of it"
    remedy = _AKS if _of_aks(node) else _NO_MANAGER
    yield blocks(
        node.ref,
        f"MIG manager does not run on {node.ref}: {what}",
        look=f"kubectl get pods -A -l app=nvidia-mig-manager --field-selector spec.nodeName={node.name}",
        remedy=f"see why: kubectl describe {pods[0].ref.kubectl}" if pods else remedy,
    )


def _of_aks(node: Node) -> bool:
    return "kubernetes.azure.com/cluster" in node.labels


def _noted_version(pod: GpuPod) -> Iterator[Finding]:
    """Up to v0.15.0 it may stand still for ever."""
    image = next((each.image for each in pod.spec.containers), "")
    tag = image.partition("@")[0].rpartition("/")[2].partition(":")[2]
    found = _VERSION.match(tag)
    if found is None:
        yield notes(pod.ref, f"which release of MIG manager runs can't be told from image {image or '?'}")
    elif tuple(map(int, found.groups())) <= _WEDGES:
        yield notes(
            pod.ref,
            f"MIG manager {tag} may stand still in state pending, with operands paused, if these take longer "
            f"than 5 min to end; its way out is: {retry(pod)}",
        )


# What it is going through


@guard("no change is under way on the node", given(the_GPU_node))
def no_change_under_way(node: Node) -> Iterator[Finding]:
    pods = node.operands.get(MANAGER, ())
    if node.state in UNDER_WAY:
        yield blocks(
            node.ref,
            f"MIG manager is at work on {node.ref}: {shown_state(node)}",
            look=log_of(pods),
            remedy="wait for it; if it stays so for more than 30 min, it is wedged: "
            f"gpuctl plan mig-recover {node.name}, or by hand {retry(*pods)}",
        )
    elif node.paused:
        names = ", ".join(f"{name}={text}" for name, text in node.paused.items())
        yield blocks(
            node.ref,
            f"operands of {node.ref} are paused and nothing is under way: {names}",
            look=log_of(pods),
            remedy="an earlier change or upgrade was interrupted; MIG manager mends its own: "
            f"gpuctl plan mig-recover {node.name}, or by hand {retry(*pods)}",
        )
    elif node.state == FAILED:
        yield notes(node.ref, f"the last change on {node.ref} failed: {CONFIG}={node.config}")


@guard("no MachineConfig is being rolled out to the node", given(NODE))
def no_machine_config(node: NodeView) -> Iterator[Finding]:
    """OpenShift drains and reboots nodes by itself, too."""
    about = node.metadata.annotations
    state, now, wanted = (about.get(key, "") for key in (_MACHINE_STATE, _MACHINE_CONFIG, _MACHINE_WANTED))
    if state not in ("", "Done") or now != wanted:
        yield blocks(
            node.ref,
            f"a MachineConfig is being rolled out to {node.ref}: {state}, {now or '?'} -> {wanted or '?'}",
            remedy="wait until the MachineConfigPool is updated",
        )


# What is asked


@guard("the configuration is one that the node knows", given(what_the_wanted_name_selects, OPTIONS, NODE))
def config_is_known(found: Selection | None, options: Mapping[str, Any], node: NodeView) -> Iterator[Finding]:
    config = options.get("config", "")
    if found is None:
        yield blocks(
            node.ref,
            f"no ConfigMap with MIG manager's configurations was found for {node.ref}",
            look=f"kubectl get configmaps -A --field-selector metadata.name={node.metadata.name}-mig-config",
            remedy="see whether MIG manager has made it, or name one in spec.migManager.config of the "
            "ClusterPolicy",
        )
    elif found.parts is None:
        yield blocks(
            found.source,
            f"there is no configuration {config!r} in {found.source}",
            remedy=f"name one of: {listed(sorted(found.names), 40)}",
        )
    elif not _LABEL.fullmatch(config):
        yield blocks(
            found.source,
            f"{config!r} can't be the value of a label, by which it is asked for",
            remedy="give it a name of letters, digits, dots and dashes, 63 at most",
        )


@guard("the scope is one of auto, gpu, all", given(OPTIONS, NODE))
def scope_is_known(options: Mapping[str, Any], node: NodeView) -> Iterator[Finding]:
    scope = options.get("scope") or "auto"
    if scope not in ("auto", *Scope):
        yield blocks(node.ref, f"--scope is auto, gpu or all, not {scope!r}", look="gpuctl apply --help")


@guard("the scope is as wide as the change takes", given(Maybe(the_change), OPTIONS, NODE))
def scope_is_wide_enough(
    change: State[MigChange], options: Mapping[str, Any], node: NodeView
) -> Iterator[Finding]:
    """`--scope gpu` is the person's word: what it spares is told, and not refused."""
    if isinstance(change, Known) and options.get("scope") == Scope.GPU and change.value.scope is Scope.ALL:
        why = "; ".join(list(change.value.consequences)[1:])
        yield notes(node.ref, f"only GPU pods are drained, as --scope gpu says, although: {why}")


@guard("the configuration covers every GPU", given(SILICON.hardware, Maybe(parts_of_the_wanted), NODE))
def config_covers_all(
    hardware: Hardware, parts: State[tuple[Part, ...]], node: NodeView
) -> Iterator[Finding]:
    """MIG manager compares all GPUs: with one that is not covered it ends as failed, for ever."""
    if not isinstance(parts, Known):
        return  # said by config_is_known
    missing = [str(each.gpu) for each in uncovered(parts.value, hardware)]
    if missing:
        yield blocks(
            node.ref,
            f"the configuration says nothing of {listed(missing)}: MIG manager would end as failed",
            look="nvidia-smi -L (there)",
            remedy="name one whose devices and device-filter cover every GPU of the node",
        )


@guard(
    "every GPU offers the profiles",
    given(SILICON.hardware, Maybe(SILICON.offers), Maybe(parts_of_the_wanted), NODE),
)
def profiles_are_offered(
    hardware: Hardware,
    offers: State[Each[str, Offers]],
    parts: State[tuple[Part, ...]],
    node: NodeView,
) -> Iterator[Finding]:
    answer = _answer(offers, node)
    for gpu, part in _covered(hardware, parts):
        if part.wanted and not gpu.memory_total and _profiles(answer, gpu) is None:
            why = "neither which profiles it offers nor its memory could be read"
            raise NotKnown(Unknown(Reason.NOT_ASKED, why, str(gpu)))
        names = impossible(part, gpu, _profiles(answer, gpu))
        if names:
            had = sorted(map(str, _profiles(answer, gpu) or ()))
            yield blocks(
                node.ref,
                f"{gpu} has no profile {', '.join(names)}" + (f", but {listed(had, 20)}" if had else ""),
                look="nvidia-smi mig -lgip (there)",
                remedy="name a configuration for this model of GPU",
            )


@guard(
    "the instances fit on every GPU together",
    given(
        SILICON.hardware,
        Maybe(SILICON.offers),
        Maybe(SILICON.placements),
        Maybe(parts_of_the_wanted),
        NODE,
    ),
)
def instances_fit(
    hardware: Hardware,
    offers: State[Each[str, Offers]],
    placements: State[Each[str, Placements]],
    parts: State[tuple[Part, ...]],
    node: NodeView,
) -> Iterator[Finding]:
    told, places = _answer(offers, node), _answer(placements, node)
    for gpu, part in _covered(hardware, parts):
        if impossible(part, gpu, _profiles(told, gpu)):
            continue  # said by profiles_are_offered
        wanted = [(profile, n) for name, n in part.wanted if (profile := parse(name)) is not None]
        why = obstacle(wanted, gpu, told, places)
        if why:
            yield blocks(
                node.ref,
                f"{part} does not fit on one GPU: {why}",
                look="nvidia-smi mig -lgipp (there)",
                remedy="name a configuration whose instances fit",
            )


def _answer(answers: State[Each[str, Any]], node: NodeView) -> Any:
    """What nvidia-smi told of the node; None where it told nothing, or not all of it: then the model's
    grid counts."""
    if not isinstance(answers, Known):
        return None
    state = answers.value.entries.get(node.metadata.name)
    return state.value if isinstance(state, Known) and is_whole(state.value.said) else None


def _profiles(offers: Offers | None, gpu: Gpu) -> frozenset[Profile] | None:
    found = frozenset(each.profile for each in offers.found if each.gpu == gpu.index) if offers else None
    return found or None


def _covered(hardware: Hardware, parts: State[tuple[Part, ...]]) -> Iterable[tuple[Gpu, Part]]:
    if not isinstance(parts, Known):
        return  # said by config_is_known
    for gpu in hardware.gpus:
        for part in [each for each in parts.value if each.covers(gpu)][-1:]:
            yield gpu, part


@guard("the device plugin can offer the geometry", given(the_GPU_node, SILICON.hardware, Maybe(the_change)))
def strategy_describes_it(node: Node, hardware: Hardware, change: State[MigChange]) -> Iterator[Finding]:
    if not isinstance(change, Known):
        return  # said by config_is_known
    enabled = any(wish.enabled for wish in change.value.after)
    invalid = offered(node, hardware, change.value.after).invalid
    if node.strategy == "none" and enabled:
        invalid = "a GPU with MIG on would be offered as a whole one"
    if invalid:
        yield blocks(
            node.ref,
            f"strategy {node.strategy} of the device plugin can't describe it: {invalid}",
            look="kubectl get clusterpolicies -o jsonpath={..spec.mig.strategy}",
            remedy="set mig.strategy: mixed in the ClusterPolicy, or name a configuration of one profile",
        )


@guard("there is something to do", given(the_GPU_node, Maybe(the_change)))
def something_to_do(node: Node, change: State[MigChange]) -> Iterator[Finding]:
    if not isinstance(change, Known):
        return  # said by config_is_known
    asked, same = node.config == change.value.config, change.value.kind == "label"
    pods = node.operands.get(MANAGER, ())
    if asked and same:
        yield blocks(
            node.ref,
            f"nothing to do: {node.ref} has configuration {node.config} already",
            look=f"gpuctl mig show {node.name}",
        )
    elif asked:
        yield blocks(
            node.ref,
            f"{CONFIG} of {node.ref} is {node.config} already and its GPUs are not so ({shown_state(node)}): "
            "MIG manager acts on changes of the label alone",
            look=log_of(pods),
            remedy=f"drain the node (gpuctl apply drain {node.name}), then gpuctl plan mig-recover "
            f"{node.name}, or by hand {retry(*pods)}",
        )
    elif same:
        yield notes(node.ref, f"the GPUs of {node.ref} are so already: only the label {CONFIG} is changed")


@guard(
    "the change is still what its run was planned for",
    given(Maybe(the_change), which_pods_must_go, runs, SELF, NODE),
)
def still_as_planned(
    change: State[MigChange], scope: Scope, journals: Each[str, Run], self: Self, node: NodeView
) -> Iterator[Finding]:
    """Of a run that is resumed: while it stood still somebody may have switched the MIG mode, so that more
    pods must go than it drains, or changed what the configuration means."""
    run = journals.get(self.run) if self.run else None
    for record in run.steps if run else ():
        if record.step.get("scope") == Scope.GPU and scope is Scope.ALL:
            yield _not_as_planned(node, self, _all_must_go(change, node))
        if record.name == _FOLLOWS and isinstance(change, Known):
            planned = msgspec.convert(record.step["wanted"], tuple[Wish, ...])
            if planned != change.value.after:
                yield _not_as_planned(node, self, _means_another(change.value, planned))


def _not_as_planned(node: NodeView, self: Self, why: str) -> Finding:
    name = node.metadata.name
    return blocks(
        node.ref, why, remedy=f"gpuctl undo {self.run}, then plan anew: gpuctl plan mig-reconfigure {name}"
    )


def _all_must_go(change: State[MigChange], node: NodeView) -> str:
    why = "; ".join(change.value.consequences) if isinstance(change, Known) else str(change)
    return f"by now all pods of {node.ref} must go, and the run drains those that hold GPUs only: {why}"


def _means_another(change: MigChange, planned: Sequence[Wish]) -> str:
    now, then = (", ".join(f"GPU {each.gpu} {each}" for each in found) for found in (change.after, planned))
    return f"{change.config} asks for something else by now: {now}; the run was planned for {then}"


@guard("there is a way back", given(the_GPU_node, what_the_old_name_asks, the_wanted_configuration))
def way_back(node: Node, old: tuple[Any, ...], config: str) -> Iterator[Finding]:
    """Without one undo gives the label back, and not the GPUs."""
    if not node.config:
        yield notes(
            node.ref,
            f"{node.ref} has no label {CONFIG} now: undoing {config} takes the label away and leaves the "
            "GPUs as they are by then",
        )
    elif not old:
        yield notes(
            node.ref,
            f"what {CONFIG}={node.config} asks is not known on {node.ref}: undoing {config} gives the label "
            "back, and not the GPUs",
        )


# Who else is left


@guard("another Ready node offers each resource", given(NODES, NODE), "--last-node")
def not_the_last(nodes: Each[Ref, NodeView], node: NodeView) -> Iterator[Finding]:
    """What nobody else offers can't be placed until the node is back."""
    mine = {name for name, amount in node.status.allocatable.items() if _is_gpu(name) and str(amount) != "0"}
    for other in nodes:
        if other.metadata.name != node.metadata.name and serves(other):
            mine -= {name for name, amount in other.status.allocatable.items() if str(amount) != "0"}
    if mine:
        yield blocks(
            node.ref,
            f"{node.ref} is the last Ready node that offers {listed(sorted(mine))}",
            look="kubectl get nodes -o custom-columns=NAME:.metadata.name,GPUS:.status.allocatable",
            remedy="bring another one back first",
        )


def _is_gpu(name: str) -> bool:
    return name.startswith(PREFIX) and ("gpu" in name or "mig-" in name)


MIG_GUARDS: Final = (
    node_is_ready,
    node_has_sliceable_gpus,
    gpus_are_sound,
    manager_decides,
    manager_runs,
    no_change_under_way,
    no_machine_config,
    config_is_known,
    scope_is_known,
    scope_is_wide_enough,
    config_covers_all,
    profiles_are_offered,
    instances_fit,
    strategy_describes_it,
    something_to_do,
    still_as_planned,
    way_back,
    not_the_last,
)
