"""What the findings of this check have in common: second looks, how to look by hand, what to do."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar, TypeVarTuple

from gpuctl.audit.finding import Evidence, Finding
from gpuctl.facts.state import Inapplicable, Known, NotKnown, Reason, Unknown, attempt
from gpuctl.nvidia.facts import Looked
from gpuctl.nvidia.node import Node
from gpuctl.nvidia.operands import BY_NAME, MANAGER, PLUGIN, places

# Runbooks, and how a remedy names them.
RECOVERS: Final = "mig-recover"
RELISTS: Final = "device-plugin-restart"
RECONFIGURES: Final = "mig-reconfigure"
RECOVER: Final = f"`gpuctl plan {RECOVERS} NODE`"
RELIST: Final = f"`gpuctl plan {RELISTS} NODE`"
RECONFIGURE: Final = f"`gpuctl plan {RECONFIGURES} NODE --config NAME`"
KEEP_OFF: Final = "until then `gpuctl plan taint-unmigged NODE` keeps new pods off"

S = TypeVar("S", Node, Looked)
Ts = TypeVarTuple("Ts")


def standing(judge: Callable[[S, *Ts], Iterator[Finding]]) -> Callable[[S, *Ts], Iterator[Finding]]:
    """Of a subject that was read twice, only what both reads show counts; of one, what no change explains."""

    def twice(subject: S, *given: *Ts) -> Iterator[Finding]:
        if subject.earlier is None:
            for finding in judge(subject, *given):
                if _node(subject).recent:
                    raise NotKnown(Inapplicable("one read, and the last change is less than 6 minutes old"))
                yield finding
            return
        before = frozenset(_until_a_gap(judge(subject.earlier, *given)))
        yield from (each for each in judge(subject, *given) if each.fingerprint in before)

    twice.__name__ = judge.__name__
    return twice


def _node(subject: Node | Looked) -> Node:
    return subject.node if isinstance(subject, Looked) else subject


def _until_a_gap(findings: Iterator[Finding]) -> Iterator[str]:
    try:
        for finding in findings:
            yield finding.fingerprint
    except NotKnown:
        return


def must_be_judged(node: Node) -> None:
    """Raises `NotKnown` where labels, capacity and hardware need not agree: while a change is on its way, or
    where another than MIG manager goes by rules of its own."""
    if node.change is not None:
        raise NotKnown(Inapplicable("a change is on its way"))
    if node.owner and not node.owner.judged:
        raise NotKnown(Inapplicable(f"{node.owner.name} decides the geometry"))
    if node.passed_through:
        raise NotKnown(Inapplicable("its GPUs are handed to virtual machines"))


def modes_must_be_known(looked: Looked) -> None:
    """Raises `NotKnown` where nothing tells the MIG mode of a GPU: `nvidia-smi -L` lists it alike with MIG
    off, on and empty, or on without compute instances."""
    silent = next((gpu for gpu in looked.hardware.gpus if not gpu.mode), None)
    if silent:
        raise NotKnown(Unknown(Reason.NOT_ASKED, "nvidia-smi did not tell the MIG mode", str(silent)))


def reads(subject: Node | Looked) -> Evidence:
    """How often it was read."""
    node = _node(subject)
    often = "two reads 10 s apart show the same" if subject.earlier else "one read"
    return Evidence(node.ref, "", often)


def label(node: Node, name: str) -> Evidence:
    """What a label says."""
    return Evidence(node.ref, f".metadata.labels['{name}']", node.labels.get(name, "") or "absent")


def capacity(node: Node, names: Iterable[str]) -> Iterator[Evidence]:
    """What the node offers."""
    for name in names:
        there, free = node.capacity.get(name, 0), node.allocatable.get(name, 0)
        yield Evidence(node.ref, f".status.capacity['{name}']", f"{there}, allocatable {free}")


def smi(looked: Looked, command: str, observed: str) -> Evidence:
    """What nvidia-smi said on the node."""
    return Evidence(looked.node.ref, f"nvidia-smi {command}".rstrip(), observed)


def show(node: Node) -> str:
    """The command that shows labels and amounts of a node."""
    return f"kubectl get node {shlex.quote(node.name)} -o yaml --show-managed-fields"


def run(node: Node, command: str = "-L") -> str:
    """The command that runs nvidia-smi on the node."""
    known = attempt(lambda: node.operands)
    found = places(known.value) if isinstance(known, Known) else ()
    if not found:
        image = "--image=busybox --profile=sysadmin"
        name = shlex.quote(node.name)
        return f"kubectl debug node/{name} -it {image} -- chroot /host nvidia-smi {command}"
    place = found[0]
    return (
        f"kubectl -n {place.namespace} exec {place.pod} -c {place.container} -- nvidia-smi {command}".rstrip()
    )


def pod_of(node: Node, operand: str) -> str:
    """How kubectl finds an operand's pods on a node: the namespace, and the label."""
    known = attempt(lambda: node.operands.get(operand, ()))
    there = known.value[0] if isinstance(known, Known) and known.value else None
    labels = there.metadata.labels if there else {}
    marks = BY_NAME[operand].marks
    key, mark = next((mark for mark in marks if labels.get(mark[0]) == mark[1]), marks[0])
    namespace = there.metadata.namespace if there else "NAMESPACE"
    return f"-n {namespace} -l {key}={mark}"


def restart(node: Node, operand: str) -> str:
    """The remedy that starts an operand's pod anew, the same for all nodes."""
    return f"kubectl delete pod {pod_of(node, operand)} --field-selector spec.nodeName=NODE"


def retry(node: Node) -> str:
    """The remedy that makes MIG manager run its full check again, by a runbook or by hand."""
    return (
        f"let MIG manager check again: {RECOVER}, or unguarded `{restart(node, MANAGER)}`; risk: where the "
        "layout has to change, a GPU in use makes it fail again, so cordon and drain the node first. Writing "
        "the same label again does nothing"
    )


def reread(node: Node) -> str:
    """The remedy that makes the device plugin list the hardware again, by a runbook or by hand."""
    return (
        f"let the device plugin list the hardware again: {RELIST}, or unguarded `{restart(node, PLUGIN)}`, "
        "then wait 6 minutes; risk: running pods keep their devices, new ones wait for some seconds"
    )


def logs(node: Node, operand: str) -> str:
    """The command that shows an operand's log."""
    known = attempt(lambda: node.operands.get(operand, ()))
    if isinstance(known, Known) and known.value:
        metadata = known.value[0].metadata
        return f"kubectl logs -n {metadata.namespace} {metadata.name} --all-containers --tail=100"
    return f"kubectl get pods {pod_of(node, operand)} -o wide"


def kind_of(node: Node) -> str:
    """Nodes of one kind have the same model, strategy and configuration."""
    return f"{node.product}|{node.strategy}|{node.config}"
