"""Labels describe the hardware, and GPU feature discovery wrote them."""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.audit.assertion import Strength, every
from gpuctl.audit.finding import Finding
from gpuctl.checks.mig_consistency import codes
from gpuctl.checks.mig_consistency.words import (
    kind_of,
    label,
    modes_must_be_known,
    must_be_judged,
    reads,
    restart,
    run,
    show,
    smi,
    standing,
)
from gpuctl.facts.fact import given
from gpuctl.nvidia.comparison import Gap, wrong_labels
from gpuctl.nvidia.expected import MIG
from gpuctl.nvidia.facts import Looked, nodes_whose_hardware_is_known, nodes_with_GPUs
from gpuctl.nvidia.node import Node
from gpuctl.nvidia.operands import GFD


@every(nodes_with_GPUs, "labels were written by GPU feature discovery", given())
def discovered_labels(node: Node) -> Iterator[Finding]:
    written = sorted(
        str(profile) for profile in node.labelled_profiles if not _discovered(node, profile.label)
    )
    if not written or node.owner:
        return
    wrong = node.strategy != "mixed"
    names = [f"{MIG}{profile.replace('+', '.')}.count" for profile in written]
    why = (
        f"strategy is {node.strategy}, which has no such labels" if wrong else "those beside them are missing"
    )
    yield Finding(
        code=codes.HAND_MADE,
        object=node.ref,
        message=(
            f"{', '.join(names)} on {node.ref} was not written by GPU feature discovery ({why}): labels "
            "describe MIG devices, they don't make them"
        ),
        evidence=(*(label(node, name) for name in names), label(node, "nvidia.com/mig.strategy")),
        look=show(node),
        remedy=(
            f"remove them: `kubectl label node NODE {' '.join(f'{name}-' for name in names)}`; to slice "
            "GPUs, set nvidia.com/mig.config; risk: pods that select by these labels find no node"
        ),
        cause=f"{node.strategy}|{','.join(names)}",
    )


def _discovered(node: Node, profile: str) -> bool:
    beside = (f"mig-{profile}.product", f"mig-{profile}.memory")
    return node.strategy == "mixed" and any(node.label(name) for name in beside)


@every(nodes_whose_hardware_is_known, "labels describe the hardware", given(), Strength.PROOF)
@standing
def true_labels(looked: Looked) -> Iterator[Finding]:
    node = looked.node
    must_be_judged(node)
    if node.strategy == "single":
        modes_must_be_known(looked)
    gaps = [gap for gap in wrong_labels(node, looked.hardware) if not _is_of_missing(gap, looked)]
    if not gaps:
        return
    says = f", although its state is {node.state}" if node.state == "success" else ""
    yield Finding(
        code=codes.LABELS_WRONG,
        object=node.ref,
        message=(
            f"Labels of {node.ref} do not describe its GPUs{says}: {'; '.join(str(gap) for gap in gaps)}. "
            "The scheduler sends pods by what is not there"
        ),
        evidence=(
            *(label(node, gap.name) for gap in gaps),
            smi(looked, "-L", looked.hardware.layout),
            reads(looked),
        ),
        look=run(node),
        remedy=f"let GPU feature discovery look again: `{restart(node, GFD)}`; risk: none",
        cause=f"{kind_of(node)}|{looked.hardware.layout}",
    )


def _is_of_missing(gap: Gap, looked: Looked) -> bool:
    """A label that counts more GPUs than the driver shows tells of a missing GPU, not of a wrong label."""
    counts_gpus = gap.name == "nvidia.com/gpu.count" and not (
        looked.node.strategy == "single" and any(gpu.sliced for gpu in looked.hardware.gpus)
    )
    return counts_gpus and int(gap.found) > int(gap.wanted)
