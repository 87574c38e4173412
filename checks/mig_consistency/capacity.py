"""Nodes offer what their hardware has; where that is not known, what their labels promise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuctl.audit.assertion import Strength, every
from gpuctl.audit.finding import Evidence, Finding
from gpuctl.checks.mig_consistency import codes
from gpuctl.checks.mig_consistency.words import (
    RELISTS,
    capacity,
    kind_of,
    label,
    modes_must_be_known,
    must_be_judged,
    reads,
    reread,
    run,
    show,
    smi,
    standing,
)
from gpuctl.facts.fact import Maybe, given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Each, Inapplicable, Known, NotKnown, Reason, State, Unknown
from gpuctl.nvidia.comparison import (
    Gap,
    of_hardware,
    stale,
    unhealthy,
    unlike_labels,
    unpromised,
    wrong_capacity,
)
from gpuctl.nvidia.facts import Looked, nodes_whose_hardware_is_known, nodes_with_GPUs
from gpuctl.nvidia.node import Node


@every(nodes_with_GPUs, "every device that a node has can be allocated", given())
@standing
def healthy_devices(node: Node) -> Iterator[Finding]:
    must_be_judged(node)
    gaps = unhealthy(node)
    if not gaps:
        return
    yield Finding(
        code=codes.UNHEALTHY,
        object=node.ref,
        message=(
            f"{'; '.join(f'{gap.found} of {gap.wanted} {gap.name}' for gap in gaps)} can be allocated on "
            f"{node.ref}: the device plugin holds the rest for unhealthy (after an XID error), and never "
            "takes that back"
        ),
        evidence=(*capacity(node, [gap.name for gap in gaps]), reads(node)),
        look=f"kubectl describe node {node.name}; {run(node, '-q -d ECC,PAGE_RETIREMENT')}",
        remedy=f"look for the XID in the kernel's log; if the GPU works again, {reread(node)}",
        runbook=RELISTS,
        cause=f"{kind_of(node)}|{gaps}",
    )


@every(
    nodes_with_GPUs,
    "nodes offer what their labels promise",
    given(Maybe(nodes_whose_hardware_is_known)),
    Strength.PROOF,
)  # fmt: skip
@standing
def kept_promises(node: Node, looked: State[Each[Ref, Looked]]) -> Iterator[Finding]:
    known = isinstance(looked, Known) and isinstance(looked.value.entries.get(node.ref), Known)
    must_be_judged(node)
    if known:
        return
    gaps, unknown = unlike_labels(node), unpromised(node)
    if gaps and node.tells_one_model and all(int(gap.found) > int(gap.wanted) for gap in gaps):
        said = "its labels describe the GPUs of one model, and those of another may be offered beside them"
        raise NotKnown(Unknown(Reason.NOT_ASKED, said, str(node.ref)))
    if gaps:
        yield _unlike(node, gaps, "its labels promise", _labels(node))
    if unknown:
        _must_not_be_recent(node)
        yield _stale(node, unknown, "its labels know none of them", _labels(node))


def _labels(node: Node) -> tuple[Evidence, ...]:
    names = [f"nvidia.com/mig-{profile.label}.count" for profile in node.labelled_profiles]
    return tuple(label(node, name) for name in (names or ["nvidia.com/gpu.count", "nvidia.com/gpu.replicas"]))


@every(nodes_whose_hardware_is_known, "nodes offer what their hardware has", given(), Strength.PROOF)
@standing
def true_capacity(looked: Looked) -> Iterator[Finding]:
    node = looked.node
    must_be_judged(node)
    if node.strategy != "none":
        modes_must_be_known(looked)
    wanted = of_hardware(node, looked.hardware)
    listed = (smi(looked, "-L", looked.hardware.layout),)
    gaps, left = wrong_capacity(wanted, node.capacity), stale(wanted, node.capacity)
    if (gaps or left) and node.guessed and not _falls_short(node, gaps):
        said = "GPU feature discovery has not described it, so how its devices are offered is not known"
        raise NotKnown(Unknown(Reason.NOT_ASKED, said, str(node.ref)))
    if gaps:
        yield _unlike(node, gaps, "its GPUs have", listed)
    if left:
        _must_not_be_recent(node)
        yield _stale(node, left, "its GPUs have none of them", listed)


def _falls_short(node: Node, gaps: Sequence[Gap]) -> bool:
    """Whether no strategy and no sharing explains what is offered: nothing, or less than the devices that the
    configured strategy names."""
    less = any(int(gap.found) < int(gap.wanted) for gap in gaps)
    return not any(node.capacity.values()) or (less and bool(node.configured_strategy))


def _must_not_be_recent(node: Node) -> None:
    if node.recent:
        raise NotKnown(Inapplicable("the kubelet may keep the names of before for 6 minutes"))


def _unlike(node: Node, gaps: Sequence[Gap], told: str, evidence: tuple[Evidence, ...]) -> Finding:
    less = "; ".join(f"{gap.found} of {gap.name} where {told} {gap.wanted}" for gap in gaps)
    return Finding(
        code=codes.CAPACITY_WRONG,
        object=node.ref,
        message=(
            f"{node.ref} offers {less}: pods wait for devices that are there, or are sent to such as are "
            "not. The device plugin lists devices at its start only"
        ),
        evidence=(*capacity(node, [gap.name for gap in gaps]), *evidence, reads(node)),
        look=show(node),
        remedy=reread(node),
        runbook=RELISTS,
        cause=f"{kind_of(node)}|{less}",
    )


def _stale(node: Node, gaps: Sequence[Gap], why: str, evidence: tuple[Evidence, ...]) -> Finding:
    more = ", ".join(f"{gap.found} {gap.name}" for gap in gaps)
    return Finding(
        code=codes.STALE,
        object=node.ref,
        message=(
            f"{node.ref} still offers {more}, and {why}: the kubelet kept what the device plugin registered "
            "before. Pods that get one fail to start"
        ),
        evidence=(*capacity(node, [gap.name for gap in gaps]), *evidence, reads(node)),
        look=show(node),
        remedy=(
            f"{reread(node)}. If the old names stay, restart the kubelet on a drained node (risk: the node "
            "is not Ready for a moment); don't delete the kubelet's files"
        ),
        runbook=RELISTS,
        cause=f"{kind_of(node)}|{more}",
    )
