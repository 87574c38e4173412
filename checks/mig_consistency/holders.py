"""Pods hold devices that exist, and those that exist are published by who publishes them."""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.audit.assertion import Strength, every
from gpuctl.audit.finding import Evidence, Finding
from gpuctl.checks.mig_consistency import codes
from gpuctl.checks.mig_consistency.words import (
    must_be_judged,
    reads,
    run,
    show,
    smi,
    standing,
)
from gpuctl.facts.fact import given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Inapplicable, NotKnown, value
from gpuctl.nvidia.comparison import unoffered
from gpuctl.nvidia.facts import Looked, nodes_whose_hardware_is_known, nodes_with_GPUs
from gpuctl.nvidia.kubelet import Held
from gpuctl.nvidia.node import Node
from gpuctl.nvidia.objects import GpuPod


@every(nodes_with_GPUs, "nodes still offer what their pods hold", given())
@standing
def still_offered(node: Node) -> Iterator[Finding]:
    must_be_judged(node)
    if not node.ready:
        raise NotKnown(Inapplicable("the node is not Ready"))
    for pod, gone in unoffered(node):
        yield _not_offered(node, pod, gone)


def _not_offered(node: Node, pod: GpuPod, gone: list[str]) -> Finding:
    names = ", ".join(gone)
    return Finding(
        code=codes.VANISHED,
        object=pod.ref,
        message=(
            f"{pod.ref} runs on {node.ref} with {names}, which the node does not offer any more: the device "
            "is gone, or is about to be given to another"
        ),
        evidence=(
            Evidence(pod.ref, ".spec.containers[*].resources", names),
            *(
                Evidence(node.ref, f".status.capacity['{name}']", str(node.capacity.get(name, 0)))
                for name in gone
            ),
            reads(node),
        ),
        look=show(node),
        remedy="delete the pod, so that it is started with a device that exists; risk: its work is lost",
        mark=names,
        cause=f"{node.name}|{names}",
    )


@every(
    nodes_whose_hardware_is_known, "pods hold devices that exist", given(), Strength.PROOF
)  # fmt: skip
@standing
def existing_devices(looked: Looked) -> Iterator[Finding]:
    node = looked.node
    must_be_judged(node)
    devices = value(looked.kubelet)
    there = {device.uuid for device in looked.hardware.devices} | {gpu.uuid for gpu in looked.hardware.gpus}
    alive = {pod.metadata.uid: pod for pod in node.pods}
    for held in devices.held:
        if held.pod in alive and held.device.startswith(("GPU-", "MIG-")) and held.device not in there:
            yield _vanished(looked, held, alive[held.pod].ref)


def _vanished(looked: Looked, held: Held, pod: Ref) -> Finding:
    node = looked.node
    return Finding(
        code=codes.VANISHED,
        object=pod,
        message=(
            f"Container {held.container} of {pod} on {node.ref} holds {held.device}, which does not exist "
            "any more: the GPU was sliced anew under it"
        ),
        evidence=(
            Evidence(node.ref, "kubelet_internal_checkpoint", f"{held.resource}: {held.device}"),
            smi(looked, "-L", looked.hardware.layout),
            reads(looked),
        ),
        look=run(node),
        remedy="delete the pod, so that it is started with a device that exists; risk: its work is lost",
        mark=held.device,
        cause=f"{node.name}",
    )


@every(nodes_whose_hardware_is_known, "ResourceSlices list the hardware", given(), Strength.PROOF)
@standing
def published_devices(looked: Looked) -> Iterator[Finding]:
    node = looked.node
    if not node.dra_devices:
        raise NotKnown(Inapplicable("the DRA driver publishes nothing of this node"))
    published = [(each, each.text("uuid")) for each in node.dra_devices]
    told = {uuid: each.name for each, uuid in published if uuid}
    there = {device.uuid for device in looked.hardware.devices} | {gpu.uuid for gpu in looked.hardware.gpus}
    gone = sorted(told.keys() - there)
    if gone and node.change is None:
        yield Finding(
            code=codes.DRA_DIFFERS,
            object=node.ref,
            message=(
                f"ResourceSlices of {node.ref} list {len(gone)} devices that do not exist "
                f"({', '.join(told[uuid] for uuid in gone[:4])}): claims for them can't be prepared"
            ),
            evidence=(
                Evidence(node.ref, "ResourceSlice .spec.devices", ", ".join(gone[:4])),
                smi(looked, "-L", looked.hardware.layout),
                reads(looked),
            ),
            look=f"kubectl get resourceslices --field-selector spec.nodeName={node.name} -o yaml",
            remedy=(
                "restart the DRA driver's kubelet plugin on this node; risk: new claims wait for some seconds"
            ),
            cause=",".join(gone),
        )
