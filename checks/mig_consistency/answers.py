"""nvidia-smi answers on every node, and shows every GPU that is on the bus."""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.audit.assertion import Strength, every
from gpuctl.audit.finding import Evidence, Finding, Severity
from gpuctl.checks.mig_consistency import codes
from gpuctl.checks.mig_consistency.words import reads, run, smi, standing
from gpuctl.facts.fact import given
from gpuctl.facts.state import NotKnown, Reason, Unknown
from gpuctl.nvidia.facts import Looked, nodes_looked_into
from gpuctl.nvidia.model import LISTING
from gpuctl.nvidia.output import Said, Trouble

_OF_A_GPU = (Trouble.GPU_LOST, Trouble.GPU_ERROR)
_REMEDIES = {
    Trouble.DRIVER_DOWN: "see the driver's pod and the kernel's log; a driver upgrade may be under way",
    Trouble.NO_DEVICES: (
        "look for the GPUs on the bus (`lspci -d 10de:`); they may be bound to vfio-pci, or lost"
    ),
    Trouble.GPU_LOST: (
        "drain and reboot the node; if it comes back (XID 79), have the GPU replaced. Never change MIG"
    ),
    Trouble.GPU_ERROR: "drain and reboot the node; look for XIDs in the kernel's log",
    Trouble.VERSION_MISMATCH: (
        "reboot the node after the driver was updated, or ask where the running driver lives"
    ),
    Trouble.CGROUP_LOST: (
        "nothing is wrong with the GPU: restart this pod. `systemctl daemon-reload` takes devices away from "
        "containers that were started by the legacy runtime hook; use CDI"
    ),
    Trouble.PERMISSION: "ask from a privileged container, such as that of the driver or a debug pod",
    Trouble.NOT_FOUND: "ask from another container, or allow a debug pod: --probe debug",
    Trouble.HUNG: "a GPU hangs: drain and reboot the node",
}


@every(nodes_looked_into, "nvidia-smi answers as it should", given(), Strength.PROOF)
@standing
def answering_nvidia_smi(looked: Looked) -> Iterator[Finding]:
    kinds: dict[Trouble, list[tuple[str, Said]]] = {}
    for command, said in looked.hardware.said:
        if said.trouble not in _OF_A_GPU and said.trouble is not Trouble.MODE_PENDING:
            kinds.setdefault(said.trouble, []).append((command, said))
    if Trouble.NO_DEVICES in kinds and _lost(looked):
        kinds.pop(Trouble.NO_DEVICES)
    for trouble, found in kinds.items():
        yield _trouble(looked, trouble, found)


def _lost(looked: Looked) -> list[tuple[str, Said]]:
    return [(command, said) for command, said in looked.hardware.said if said.trouble in _OF_A_GPU]


def _trouble(looked: Looked, trouble: Trouble, found: list[tuple[str, Said]]) -> Finding:
    node = looked.node
    grave = any(command == LISTING for command, _ in found) and not trouble.of_the_place
    asked = ", ".join(dict.fromkeys(f"nvidia-smi {command}".rstrip() for command, _ in found))
    more = " This container is at fault rather than the GPUs." if trouble.of_the_place else ""
    return Finding(
        code=codes.NO_ANSWER,
        object=node.ref,
        message=f"{asked} on {node.ref}: {trouble.value}.{more}",
        evidence=(*(smi(looked, command, said.line) for command, said in found[:3]), reads(looked)),
        look=run(node),
        remedy=_REMEDIES.get(
            trouble, "run the command by hand on the node; an odd text may be worth a report"
        ),
        mark=trouble.name,
        cause=f"{trouble.name}|{asked}",
        severity=Severity.ERROR if grave else Severity.WARNING,
    )


@every(nodes_looked_into, "every GPU of a node is visible to its driver", given(), Strength.PROOF)
@standing
def visible_gpus(looked: Looked) -> Iterator[Finding]:
    hardware, node = looked.hardware, looked.node
    lost = _lost(looked)
    seen = len(hardware.gpus)
    on_bus = _on_bus(looked)
    if hardware.obstacle is not None and not lost:
        raise NotKnown(Unknown(Reason.SERVER_ERROR, str(hardware.obstacle), node.name))
    if not lost and on_bus is None and not _labelled_more(looked):
        if hardware.pci is None and not _labels_count(looked):
            said = "neither the PCI bus nor labels tell how many GPUs there are"
            raise NotKnown(Unknown(Reason.NOT_ASKED, said, str(node.ref)))
        return
    absent = sorted(set(hardware.pci or ()) - {gpu.bus_id for gpu in hardware.gpus}) if on_bus else []
    named = f" ({', '.join(absent)})" if absent and seen else ""
    counted = on_bus or node.number("gpu.count")
    of = f"{seen} of {counted} GPUs{named}" if counted and counted > seen else "not all GPUs"
    yield Finding(
        code=codes.GPU_MISSING,
        object=node.ref,
        message=(
            f"nvidia-smi shows {of} on {node.ref}"
            + (f": {lost[0][1].trouble.value}" if lost else "")
            + ": a GPU has fallen off the bus, or is bound to another driver"
        ),
        evidence=(
            *(smi(looked, command, said.line) for command, said in lost[:3]),
            *((Evidence(node.ref, "lspci -Dn -d 10de:", ", ".join(hardware.pci or ())),) if on_bus else ()),
            smi(looked, "-L", ", ".join(str(gpu) for gpu in hardware.gpus) or "no GPU"),
            reads(looked),
        ),
        look=f"{run(node)}; on the node: lspci -d 10de:; dmesg | grep -i xid",
        remedy=_REMEDIES[Trouble.GPU_LOST],
        cause=of,
    )


def _on_bus(looked: Looked) -> int | None:
    """How many GPUs are on the bus, if more than the driver shows."""
    pci = looked.hardware.pci
    return len(pci) if pci and len(pci) > len(looked.hardware.gpus) else None


def _labelled_more(looked: Looked) -> bool:
    """Whether labels count more GPUs of the only model than there are."""
    count = looked.node.number("gpu.count")
    return _labels_count(looked) and count is not None and count > len(looked.hardware.gpus)


def _labels_count(looked: Looked) -> bool:
    """Whether labels count the GPUs: not slices, and not those of one model among several."""
    node, hardware = looked.node, looked.hardware
    if node.number("gpu.count") is None or "-MIG-" in node.label("gpu.product") or node.owner or node.change:
        return False
    return len(hardware.models) == 1 and node.product in hardware.models
