"""The MIG strategy fits what plugin and feature discovery are told, and what the GPUs are like."""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.audit.assertion import every
from gpuctl.audit.finding import Evidence, Finding
from gpuctl.checks.mig_consistency import codes
from gpuctl.checks.mig_consistency.words import (
    kind_of,
    label,
    must_be_settled,
    reads,
    retry,
    run,
    show,
    standing,
)
from gpuctl.facts.fact import Maybe, given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Each, Known, State
from gpuctl.nvidia.expected import is_mixed, uneven
from gpuctl.nvidia.facts import Looked, nodes_whose_hardware_is_known, nodes_with_GPUs
from gpuctl.nvidia.node import Node


@every(nodes_with_GPUs, "the MIG strategy fits the GPUs", given(Maybe(nodes_whose_hardware_is_known)))
@standing
def fitting_strategy(node: Node, looked: State[Each[Ref, Looked]]) -> Iterator[Finding]:
    must_be_settled(node)
    found = looked.value.entries.get(node.ref) if isinstance(looked, Known) else None
    hardware = found.value if isinstance(found, Known) else None
    why = uneven(hardware.hardware) if hardware else ""
    if node.invalid:
        yield _invalid(node, why, hardware)
    if node.strategy == "single" and hardware and is_mixed(hardware.hardware):
        yield _does_not_fit(node, why, hardware)
    configured = node.configured_strategy
    if node.described and configured and configured != node.labelled_strategy and not node.owner:
        yield _two_strategies(node, configured)


def _invalid(node: Node, why: str, looked: Looked | None) -> Finding:
    observed = f": {why}" if why else "; why, nvidia-smi tells"
    return Finding(
        code=codes.INVALID,
        object=node.ref,
        message=(
            f"Strategy single can't describe the GPUs of {node.ref}{observed}: it is labelled "
            "…-MIG-INVALID and "
            "offers no GPU, whatever MIG manager's state says"
        ),
        evidence=(
            label(node, "nvidia.com/gpu.product"),
            label(node, "nvidia.com/mig.config.state"),
            *_layout(looked),
            reads(node),
        ),
        look=run(node),
        remedy=(
            "select a configuration that slices every GPU of the node alike, with a profile that this "
            "model has, "
            f"or use strategy mixed; then {retry(node)}"
        ),
        cause=f"{kind_of(node)}|{why}",
    )


def _layout(looked: Looked | None) -> Iterator[Evidence]:
    if looked is not None:
        yield Evidence(looked.node.ref, "nvidia-smi -L", looked.hardware.layout)


def _does_not_fit(node: Node, why: str, looked: Looked | None) -> Finding:
    return Finding(
        code=codes.STRATEGY,
        object=node.ref,
        message=f"{node.ref} has strategy single, and {why}: the device plugin refuses to start on it",
        evidence=(label(node, "nvidia.com/mig.strategy"), *_layout(looked), reads(node)),
        look=run(node),
        remedy=(
            "use strategy mixed (`kubectl patch clusterpolicy …` with spec.mig.strategy; risk: resource "
            "names "
            "change for every pod), or select a configuration with one profile for all GPUs"
        ),
        cause=f"{kind_of(node)}|{why}",
    )


def _two_strategies(node: Node, configured: str) -> Finding:
    labelled = node.labelled_strategy
    return Finding(
        code=codes.STRATEGY,
        object=node.ref,
        message=(
            f"{node.ref} is labelled for MIG strategy {labelled}, while {configured} is configured: "
            "labels and "
            "resources are made by different rules"
        ),
        evidence=(label(node, "nvidia.com/mig.strategy"), Evidence(node.ref, "MIG_STRATEGY", configured)),
        look=show(node),
        remedy=(
            "restart device plugin and GPU feature discovery, so that both take the configured strategy; "
            "risk: "
            "names of resources change"
        ),
        mark=configured,
        cause=f"{labelled}|{configured}",
    )
