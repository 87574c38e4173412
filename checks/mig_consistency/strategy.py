"""The MIG strategy fits what plugin and feature discovery are told, and what the GPUs are like."""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.audit.assertion import Strength, every
from gpuctl.audit.finding import Evidence, Finding
from gpuctl.checks.mig_consistency import codes
from gpuctl.checks.mig_consistency.words import (
    RECONFIGURE,
    RECONFIGURES,
    kind_of,
    label,
    modes_must_be_known,
    must_be_judged,
    reads,
    retry,
    run,
    show,
    smi,
    standing,
)
from gpuctl.facts.fact import given
from gpuctl.nvidia.expected import is_mixed, uneven
from gpuctl.nvidia.facts import Looked, nodes_whose_hardware_is_known, nodes_with_GPUs
from gpuctl.nvidia.node import Node


@every(nodes_with_GPUs, "the MIG strategy can describe the GPUs", given())
@standing
def fitting_strategy(node: Node) -> Iterator[Finding]:
    must_be_judged(node)
    if node.invalid:
        yield _invalid(node)
    configured = node.configured_strategy
    if node.described and configured and configured != node.labelled_strategy and not node.owner:
        yield _two_strategies(node, configured)


@every(nodes_whose_hardware_is_known, "GPUs are alike where strategy is single", given(), Strength.PROOF)
@standing
def alike_gpus(looked: Looked) -> Iterator[Finding]:
    must_be_judged(looked.node)
    if looked.node.strategy == "single":
        modes_must_be_known(looked)
    if looked.node.strategy == "single" and is_mixed(looked.hardware):
        yield _does_not_fit(looked, uneven(looked.hardware))


def _invalid(node: Node) -> Finding:
    return Finding(
        code=codes.INVALID,
        object=node.ref,
        message=(
            f"Strategy single can't describe the GPUs of {node.ref}: it is labelled …-MIG-INVALID and offers "
            "no GPU, whatever MIG manager's state says. GPUs differ in MIG mode or profile, or one is empty"
        ),
        evidence=(
            label(node, "nvidia.com/gpu.product"),
            label(node, "nvidia.com/mig.config.state"),
            reads(node),
        ),
        look=run(node),
        remedy=(
            "select a configuration that slices every GPU of the node alike, with a profile that this model "
            f"has ({RECONFIGURE}), or use strategy mixed; if the configuration is right, {retry(node)}"
        ),
        runbook=RECONFIGURES,
        cause=kind_of(node),
    )


def _does_not_fit(looked: Looked, why: str) -> Finding:
    node = looked.node
    return Finding(
        code=codes.STRATEGY,
        object=node.ref,
        message=f"{node.ref} has strategy single, and {why}: the device plugin refuses to start on it",
        evidence=(
            label(node, "nvidia.com/mig.strategy"),
            smi(looked, "-L", looked.hardware.layout),
            reads(looked),
        ),
        look=run(node),
        remedy=(
            "use strategy mixed (`kubectl patch clusterpolicy …` with spec.mig.strategy; risk: resource "
            "names change for every pod), or select a configuration with one profile for all GPUs"
        ),
        cause=f"{kind_of(node)}|{why}",
    )


def _two_strategies(node: Node, configured: str) -> Finding:
    labelled = node.labelled_strategy
    return Finding(
        code=codes.STRATEGY,
        object=node.ref,
        message=(
            f"{node.ref} is labelled for MIG strategy {labelled}, while {configured} is configured: labels "
            "and resources are made by different rules"
        ),
        evidence=(label(node, "nvidia.com/mig.strategy"), Evidence(node.ref, "MIG_STRATEGY", configured)),
        look=show(node),
        remedy=(
            "restart device plugin and GPU feature discovery, so that both take the configured strategy; "
            "risk: names of resources change"
        ),
        mark=configured,
        cause=f"{labelled}|{configured}",
    )
