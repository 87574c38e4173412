"""MIG modes are in effect, and GPUs with MIG on are sliced into whole devices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuctl.audit.assertion import Strength, every
from gpuctl.audit.finding import Finding, Severity
from gpuctl.checks.mig_consistency import codes
from gpuctl.checks.mig_consistency.words import (
    RECONFIGURE,
    RECONFIGURES,
    RECOVERS,
    kind_of,
    modes_must_be_known,
    must_be_judged,
    reads,
    reread,
    retry,
    run,
    smi,
    standing,
)
from gpuctl.facts.fact import Maybe, given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Each, Known, NotKnown, Reason, State, Unknown, attempt
from gpuctl.nvidia.facts import CONFIG_MAPS, Looked, nodes_whose_hardware_is_known
from gpuctl.nvidia.model import Gpu
from gpuctl.nvidia.objects import MigConfigMap
from gpuctl.nvidia.selection import selected


@every(nodes_whose_hardware_is_known, "MIG modes are in effect", given(), Strength.PROOF)
@standing
def modes_in_effect(looked: Looked) -> Iterator[Finding]:
    node = looked.node
    waiting = [gpu for gpu in looked.hardware.gpus if gpu.pending and gpu.mode and gpu.pending != gpu.mode]
    if waiting and node.change is None:
        yield _pending(looked, waiting)
    modes_must_be_known(looked)
    silent = [gpu for gpu in looked.hardware.gpus if not gpu.pending]
    if silent:
        said = "nvidia-smi did not tell whether a change of its MIG mode waits"
        raise NotKnown(Unknown(Reason.NOT_ASKED, said, str(silent[0])))


def _pending(looked: Looked, gpus: Sequence[Gpu]) -> Finding:
    node = looked.node
    what = ", ".join(f"GPU {gpu.index} is {gpu.mode}, pending {gpu.pending}" for gpu in gpus)
    outside = " It is a virtual GPU: its hypervisor decides over MIG." if node.virtual else ""
    return Finding(
        code=codes.MODE_PENDING,
        object=node.ref,
        message=(
            f"A change of MIG mode waits for a reset on {node.ref} ({what}): until then configurations fail, "
            f"mostly because a process holds the GPU.{outside}"
        ),
        evidence=(*(smi(looked, "--query-gpu", f"{gpu}: {gpu.mode}, pending {gpu.pending}") for gpu in gpus),
                  reads(looked)),
        look=run(node, "--query-gpu=index,uuid,mig.mode.current,mig.mode.pending --format=csv"),
        remedy=(
            "change MIG in the hypervisor, or in the VM's template"
            if node.virtual
            else "drain the node, stop what else holds the GPU (monitoring, persistence daemon, "
            "nvidia_drm), then "
            "reset the GPU (`nvidia-smi -r`) or reboot; risk: before Hopper a reset takes all GPUs of "
            "the node"
        ),
        cause=f"{kind_of(node)}|{what}",
    )  # fmt: skip


@every(
    nodes_whose_hardware_is_known,
    "GPUs with MIG on are sliced into whole devices",
    given(Maybe(CONFIG_MAPS)),
    Strength.PROOF,
)
@standing
def whole_devices(looked: Looked, maps: State[Each[Ref, MigConfigMap]]) -> Iterator[Finding]:
    node = looked.node
    must_be_judged(node)
    gpus = looked.hardware.gpus
    without = [gpu for gpu in gpus if _lacking(gpu)]
    empty = [gpu for gpu in gpus if gpu.sliced and not gpu.devices and gpu not in without]
    empty = [gpu for gpu in empty if not _meant_empty(looked, gpu, maps)]
    if empty:
        yield _empty(looked, empty)
    if without:
        yield _no_compute(looked, without)
    parts = [gpu for gpu in gpus if any(not device.profile.whole for device in gpu.devices)]
    if parts:
        yield _not_whole(looked, parts)
    modes_must_be_known(looked)
    silent = [gpu for gpu in gpus if gpu.sliced and gpu.instances is None]
    if silent:
        raise NotKnown(Unknown(Reason.NOT_ASKED, "nvidia-smi did not tell its GPU instances", str(silent[0])))


def _lacking(gpu: Gpu) -> int:
    """How many of its GPU instances have no compute instance, or are remnants."""
    instances = gpu.instances or ()
    remnants = sum(each.remnant for each in instances)
    if gpu.computes is not None:
        used = {each.instance for each in gpu.computes}
        return max(remnants, sum(each.id not in used for each in instances))
    return max(remnants, len(instances) - len(gpu.devices))


def _meant_empty(looked: Looked, gpu: Gpu, maps: State[Each[Ref, MigConfigMap]]) -> bool:
    """Whether the configuration in force wants MIG on and nothing in it, as all-enabled does."""
    if not isinstance(maps, Known):
        return looked.node.config == "all-enabled"
    selection = attempt(lambda: selected(looked.node, maps.value))
    parts = (selection.value.parts if selection.value else None) if isinstance(selection, Known) else None
    if parts is None:
        return looked.node.config == "all-enabled"
    covering = attempt(lambda: [part for part in parts if part.covers(gpu)])
    return isinstance(covering, Known) and bool(covering.value) and covering.value[-1].meant_empty


def _empty(looked: Looked, gpus: Sequence[Gpu]) -> Finding:
    node = looked.node
    indices = ", ".join(str(gpu.index) for gpu in gpus)
    result = {
        "none": "it is offered as a whole GPU, on which no program can start",
        "single": "the device plugin refuses to start, and the node offers no GPU at all",
    }.get(node.strategy, "it is offered in no form")
    return Finding(
        code=codes.EMPTY,
        object=node.ref,
        message=f"MIG is on for GPU {indices} of {node.ref}, which has no MIG device: {result}",
        evidence=(*(smi(looked, "mig -lgi", f"{gpu}: no GPU instance") for gpu in gpus), reads(looked)),
        look=run(node, "mig -lgi"),
        remedy=f"slice it, or switch MIG off: {RECONFIGURE}; or {retry(node)}",
        runbook=RECONFIGURES,
        cause=f"{kind_of(node)}|{indices}",
    )


def _no_compute(looked: Looked, gpus: Sequence[Gpu]) -> Finding:
    node = looked.node
    what = ", ".join(f"{_lacking(gpu)} on GPU {gpu.index}" for gpu in gpus)
    return Finding(
        code=codes.NO_COMPUTE,
        object=node.ref,
        message=(
            f"GPU instances without a compute instance on {node.ref} ({what}): their memory is taken, and "
            "nothing can run in it"
        ),
        evidence=tuple(smi(looked, "mig -lgi, -lci", f"{gpu}: {_instances(gpu)}") for gpu in gpus),
        look=f"{run(node, 'mig -lgi')}; {run(node, 'mig -lci')}",
        remedy=(
            f"if MIG manager made them, {retry(node)}; by hand, `nvidia-smi mig -cci -gi ID` makes one "
            f"(risk: none), then {reread(node)}"
        ),
        runbook=RECOVERS,
        cause=f"{kind_of(node)}|{what}",
    )


def _instances(gpu: Gpu) -> str:
    used = {each.instance for each in gpu.computes or ()}
    return ", ".join(
        f"{each.profile} (GI {each.id}{', remnant' if each.remnant else ''}"
        f"{'' if gpu.computes is None or each.id in used else ', no CI'})"
        for each in gpu.instances or ()
    )


def _not_whole(looked: Looked, gpus: Sequence[Gpu]) -> Finding:
    node = looked.node
    names = ", ".join(
        dict.fromkeys(
            str(device.profile) for gpu in gpus for device in gpu.devices if not device.profile.whole
        )
    )
    return Finding(
        code=codes.NOT_WHOLE,
        object=node.ref,
        message=(
            f"MIG devices on {node.ref} are only parts of their GPU instances ({names}): the device plugin "
            "does not offer such, and their compute slices are lost to the cluster"
        ),
        evidence=tuple(smi(looked, "-L", f"{gpu}: {gpu.layout}") for gpu in gpus),
        look=run(node),
        remedy=(
            "make one compute instance over all of each GPU instance: on a drained GPU destroy and make them "
            f"with `nvidia-smi mig -dci` and `-cci`, or {retry(node)}"
        ),
        runbook=RECOVERS,
        cause=f"{kind_of(node)}|{names}",
        severity=Severity.ERROR if node.strategy == "single" else Severity.WARNING,
    )
