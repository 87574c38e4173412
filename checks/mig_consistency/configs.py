"""The asked-for configuration exists, and the GPUs are sliced as it says."""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.audit.assertion import Strength, every
from gpuctl.audit.finding import Evidence, Finding
from gpuctl.checks.mig_consistency import codes
from gpuctl.checks.mig_consistency.words import (
    KEEP_OFF,
    RECONFIGURE,
    RECONFIGURES,
    RECOVERS,
    kind_of,
    label,
    must_be_judged,
    reads,
    retry,
    run,
    smi,
    standing,
)
from gpuctl.facts.fact import Maybe, given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Each, Inapplicable, Known, NotKnown, State, Unknown
from gpuctl.nvidia.facts import CONFIG_MAPS, Looked, nodes_whose_hardware_is_known, nodes_with_GPUs
from gpuctl.nvidia.node import CONFIG, STATE, Node
from gpuctl.nvidia.objects import MigConfigMap
from gpuctl.nvidia.parted import Difference, differences, impossible
from gpuctl.nvidia.selection import ConfigMaps, Selection, selected

Maps = State[Each[Ref, MigConfigMap]]


@every(nodes_with_GPUs, "the asked-for MIG configuration exists", given(Maybe(CONFIG_MAPS)))
def existing_configuration(node: Node, maps: Maps) -> Iterator[Finding]:
    selection = _selection(node, maps)
    if selection.parts is None:
        yield _no_such(node, selection)


def _selection(node: Node, maps: Maps) -> Selection:
    """What the node selects. Raises `NotKnown` where it selects nothing, or there is nothing to select."""
    if not node.config:
        raise NotKnown(Inapplicable("the node asks for no configuration"))
    if node.owner:
        raise NotKnown(Inapplicable(f"{node.owner.name} decides the geometry"))
    selection = selected(node, _read(maps))
    if selection is None:
        raise NotKnown(Inapplicable("there is no ConfigMap of MIG manager's"))
    return selection


def _read(maps: Maps) -> ConfigMaps:
    if isinstance(maps, Unknown):
        raise NotKnown(maps)
    return maps.value if isinstance(maps, Known) else Each()


def _no_such(node: Node, selection: Selection) -> Finding:
    names = ", ".join(sorted(selection.names))
    source = selection.source
    return Finding(
        code=codes.NO_SUCH_CONFIG,
        object=node.ref,
        message=(
            f"{node.ref} asks for MIG configuration {node.config}, which {source} does not have: MIG manager "
            "can only fail"
        ),
        evidence=(
            label(node, CONFIG),
            label(node, STATE),
            Evidence(source, ".data['config.yaml']", f"has {names}"),
        ),
        look=(
            f"kubectl -n {source.namespace} get configmap {source.name} -o jsonpath='{{.data.config\\.yaml}}'"
        ),
        remedy=(
            f"ask for a name that it has ({RECONFIGURE} drains the node first), or add the name to a "
            "ConfigMap of your own that the ClusterPolicy names in spec.migManager.config.name (edits of the "
            "operator's own are undone by it); risk: with the right name MIG manager begins to slice"
        ),
        runbook=RECONFIGURES,
        mark=node.config,
        cause=f"{source}|{node.config}",
    )


@every(
    nodes_whose_hardware_is_known, "GPUs are sliced as configured", given(Maybe(CONFIG_MAPS)), Strength.PROOF
)
@standing
def sliced_as_configured(looked: Looked, maps: Maps) -> Iterator[Finding]:
    node = looked.node
    must_be_judged(node)
    selection = _selection(node, maps)
    if node.virtual or selection.parts is None:
        raise NotKnown(Inapplicable("there is no configuration that holds for it"))
    odd = tuple(differences(selection.parts, looked.hardware))
    cannot = dict.fromkeys(name for each in odd for name in _impossible(looked, each))
    if cannot:
        yield _cannot(looked, selection, tuple(cannot))
    elif odd:
        yield _not_as_configured(looked, selection, odd)


def _impossible(looked: Looked, odd: Difference) -> tuple[str, ...]:
    if odd.wanted is None:
        return ()
    offers = looked.offers.found if looked.offers and not looked.offers.said else ()
    offered = frozenset(each.profile for each in offers if each.gpu == odd.gpu.index)
    return impossible(odd.wanted, odd.gpu, offered or None)


def _cannot(looked: Looked, selection: Selection, names: tuple[str, ...]) -> Finding:
    node = looked.node
    gpu = looked.hardware.gpus[0]
    offers = looked.offers.found if looked.offers else ()
    offered = ", ".join(dict.fromkeys(str(each.profile) for each in offers)) or f"{gpu.memory_total} MiB"
    return Finding(
        code=codes.IMPOSSIBLE,
        object=node.ref,
        message=(
            f"Configuration {node.config} of {node.ref} asks for {', '.join(names)}, which its {gpu.name} "
            "can't have: names of profiles differ between cards, and with the driver. Its state is "
            f"{node.state or 'absent'}"
        ),
        evidence=(
            label(node, CONFIG),
            label(node, STATE),
            smi(looked, "mig -lgip", offered),
            Evidence(selection.source, ".data['config.yaml']", f"{node.config}: {', '.join(names)}"),
        ),
        look=run(node, "mig -lgip"),
        remedy=(
            "write a configuration with the names that `nvidia-smi mig -lgip` prints on this node, or "
            f"let MIG manager (v26.3 and later) make one from the hardware, and ask for it: {RECONFIGURE}; "
            f"if the name stays the same, {retry(node)}"
        ),
        runbook=RECONFIGURES,
        cause=f"{gpu.product}|{node.config}",
    )


def _not_as_configured(looked: Looked, selection: Selection, odd: tuple[Difference, ...]) -> Finding:
    node = looked.node
    says = f"its state says {node.state}" if node.state else "it has no state"
    uncovered = [each for each in odd if each.wanted is None]
    why = (
        "the configuration does not cover every GPU, so MIG manager can never find it applied"
        if len(uncovered) == len(odd)
        else "somebody changed them by hand, or they were lost at a reboot"
    )
    parts = "; ".join(_without_names(each) for each in odd[:4])
    return Finding(
        code=codes.NOT_AS_CONFIGURED,
        object=node.ref,
        message=(
            f"{len(odd)} of {len(looked.hardware.gpus)} GPUs of {node.ref} are not as configuration "
            f"{node.config} wants them ({parts}), while {says}: {why}"
        ),
        evidence=(
            label(node, CONFIG),
            label(node, STATE),
            *(smi(looked, "mig -lgi", str(each)) for each in odd[:4]),
            Evidence(selection.source, ".data['config.yaml']", node.config),
            reads(looked),
        ),
        look=run(node, "mig -lgi"),
        remedy=(
            "cover all GPUs in the configuration; risk: MIG manager then changes them"
            if len(uncovered) == len(odd)
            else f"{retry(node)}; {KEEP_OFF}"
        ),
        runbook=None if len(uncovered) == len(odd) else RECOVERS,
        cause=f"{kind_of(node)}|{parts}",
    )


def _without_names(odd: Difference) -> str:
    return f"GPU {odd.gpu.index}: {str(odd).partition('): ')[2]}"
