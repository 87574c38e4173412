"""What must hold before an engine is switched: its change is plain, and its rollout comes to an end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpuctl.audit.finding import Finding
from gpuctl.facts.fact import Maybe, Objects, given
from gpuctl.facts.kinds import Log, Ref
from gpuctl.facts.objects import LabelSelector
from gpuctl.facts.selectors import selects
from gpuctl.facts.state import Each, Known, NotKnown, Reason, State, Unknown, value
from gpuctl.kueue.objects import Affinity
from gpuctl.runbook.guard import blocks, guard
from gpuctl.runbook.permitted import not_permitted
from gpuctl.runbook.target import OPTIONS
from gpuctl.runbook.vllm.engine_workloads import (
    LOG_OF_NOW,
    EnginesDeployment,
    EnginesSet,
    EngineWorkload,
    the_engine,
    the_workload,
)
from gpuctl.vllm.engines import CandidatePod, Found
from gpuctl.vllm.objects import EngineDeployment, EngineDeploymentSpec, EngineNode, EnginePod
from gpuctl.vllm.room import asked, free, stops_first, usable
from gpuctl.vllm.switch import Switch, switch

RECREATE: Final = "--recreate"
MODES: Final = ("eager", "graphs")
NODES: Final = Objects(EngineNode)
PODS: Final = Objects[EnginePod](CandidatePod)


@given(the_engine, OPTIONS)
def the_switch(found: Found, options: Mapping[str, Any]) -> Switch:
    """What to change. Raises NotKnown where that can't be told."""
    to = options.get("to")
    if to not in MODES:
        raise NotKnown(Unknown(Reason.NOT_ASKED, f"--to is eager or graphs, not {to!r}", "the options"))
    return switch(found, graphs=to == "graphs")


@guard("it is plain how the engine is switched", given(the_workload, Maybe(the_switch)))
def is_plain(workload: EngineWorkload, found: State[Switch]) -> Iterator[Finding]:
    if not isinstance(found, Known):
        why = found.message if isinstance(found, Unknown) else str(found)
        yield blocks(
            workload.ref,
            f"{workload.ref} is not switched here: {why}",
            remedy="change it where that is decided, and roll it out by hand",
        )


@guard("its pods are replaced when they are changed", given(the_workload))
def rolls_out(workload: EngineWorkload) -> Iterator[Finding]:
    """And are the only change that is underway."""
    ref, spec = workload.ref, workload.spec
    if not spec.replicas:
        yield blocks(ref, f"{ref} has 0 replicas: no pod would show the new mode")
    if spec.paused:
        yield blocks(
            ref, f"{ref} is paused", remedy=f"kubectl -n {ref.namespace} rollout resume deployment/{ref.name}"
        )
    if isinstance(workload, EnginesSet):
        update = spec.update_strategy
        if update.type != "RollingUpdate":
            yield blocks(
                ref, f"{ref} has the update strategy {update.type}: its pods stay until they are deleted"
            )
        elif update.rolling_update.partition:
            yield blocks(
                ref, f"{ref} has a partition: the pods below {update.rolling_update.partition} stay old"
            )
    if spec.replicas and workload.underway:
        yield blocks(
            ref,
            f"a rollout of {ref} is underway: {workload.underway}",
            look=f"kubectl -n {ref.namespace} rollout status {ref.kind.kind.lower()}/{ref.name} --timeout=1s",
            remedy="wait for its end, or take it back",
        )


def ends_first(workload: EngineWorkload) -> int:
    """How many old pods end before a new one serves; 0 where a new one must come up beside them."""
    if isinstance(workload, EnginesSet):
        return 1
    spec = EngineDeploymentSpec(workload.spec.replicas, strategy=workload.spec.strategy)
    return stops_first(EngineDeployment(workload.metadata, spec))


@given(the_workload, Maybe(NODES), Maybe(PODS))
def where_a_new_pod_fits(
    workload: EngineWorkload, nodes: State[Each[Ref, EngineNode]], pods: State[Each[Ref, EnginePod]]
) -> tuple[str, ...]:
    """The nodes that take one more pod, and have all GPUs free which it asks for. Raises NotKnown."""
    template = workload.spec.template.spec
    wanted = asked(template)
    if not wanted:
        raise NotKnown(Unknown(Reason.NOT_ASKED, "its pods ask for no GPU by name", str(workload.ref)))
    there = list(value(pods))
    return tuple(
        node.metadata.name
        for node in usable(template, value(nodes))
        if _is_wanted(node, template.affinity)
        and all(free(node, there, resource) >= count for resource, count in wanted.items())
    )


def _is_wanted(node: EngineNode, affinity: Affinity | None) -> bool:
    """By what the pod's affinity requires; an operator that is not known here wants no node."""
    required = affinity.node_affinity.required if affinity and affinity.node_affinity else None
    terms = required.node_selector_terms if required else ()
    wanted = (LabelSelector(match_expressions=each.match_expressions) for each in terms)
    return not terms or any(selects(each, node.metadata.labels) for each in wanted)


@guard(
    "a new pod finds a GPU, or an old one ends first",
    given(the_workload, OPTIONS, Maybe(where_a_new_pod_fits)),
    RECREATE,
)
def rollout_ends(
    workload: EngineWorkload, options: Mapping[str, Any], fits: State[tuple[str, ...]]
) -> Iterator[Finding]:
    """Else the new pod waits for the GPU of the old one, which waits for the new pod, for ever."""
    if options.get("recreate") is True or ends_first(workload):
        return
    if not value(fits):
        wanted = ", ".join(f"{count} {name}" for name, count in asked(workload.spec.template.spec).items())
        yield blocks(
            workload.ref,
            f"the rollout of {workload.ref} starts a new pod before it ends an old one, and no node has "
            f"{wanted} free: both would wait for each other for ever",
            remedy=f"free a GPU; or {RECREATE}: the old pods end first, and the engine is away until the new "
            "ones serve",
        )


@guard("only a Deployment is recreated", given(the_workload, OPTIONS))
def recreate_is_of_deployments(workload: EngineWorkload, options: Mapping[str, Any]) -> Iterator[Finding]:
    if options.get("recreate") is True and not isinstance(workload, EnginesDeployment):
        yield blocks(
            workload.ref, f"{RECREATE} is for Deployments: a StatefulSet ends each pod before its next"
        )


@guard("logs of its pods can be read", given(the_workload, Maybe(LOG_OF_NOW), OPTIONS))
def logs_can_be_read(
    workload: EngineWorkload, logs: State[Each[Log, Any]], options: Mapping[str, Any]
) -> Iterator[Finding]:
    """The new pods' own logs are what is believed. Where no pod serves yet, they can't be tried."""
    says = "what mode the new pods run could not be seen"
    yield from not_permitted(logs, workload.ref, "vllm-switch-mode", options, says=says)


SWITCH_GUARDS: Final = (is_plain, rolls_out, rollout_ends, recreate_is_of_deployments, logs_can_be_read)
