"""The runbook `drain`: a node is cordoned, and its pods are evicted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gpuctl.facts.fact import given
from gpuctl.nvidia.node import Node
from gpuctl.nvidia.objects import NodeView
from gpuctl.runbook.drain.candidates import Scope
from gpuctl.runbook.drain.cordon import (
    PATCHES_NODES,
    SENTINEL_LABEL,
    Cordon,
    KeepSentinelOff,
    LeaveSentinelOff,
    StayCordoned,
    sentinel_steps,
)
from gpuctl.runbook.drain.draining import OPTIONS_OF_A_DRAIN, WITHOUT_BUDGETS, WORKLOADS, draining
from gpuctl.runbook.drain.evict import DELETES, EVICTS, Drain, drain_step
from gpuctl.runbook.drain.guards import guards_of
from gpuctl.runbook.drain.still_held import (
    SeeWhatIsLeft,
    processes_are_told,
    the_node_by_itself,
    unexplained_processes,
)
from gpuctl.runbook.gates import NODE_GATES, window_not_closed
from gpuctl.runbook.runbook import Option, Runbook
from gpuctl.runbook.step import Step
from gpuctl.runbook.target import NODE, OPTIONS

ABOUT: Final = """\
Cordons a node and evicts its pods, as kubectl drain does, and knows more of them: which hold GPUs, whose they
are, which Kueue Workloads and gangs lose them, which PodDisruptionBudget stands in the way. Everything is
judged before the first write. Pods of DaemonSets, static pods and pods that are over are left alone.

Where the node has GPUs, nvidia-smi is asked there, if that is permitted: the plan names processes on them
that no pod explains, and once the pods are gone the result tells what still holds a GPU. The drain ends no
such process, and does not fail for one.

The node stays cordoned: `kubectl uncordon` it when it is ready for work again. Where NVSentinel is at work it
is told to leave the node alone, and stays so told: the plan shows the command that lets it manage the node
again."""


@given(OPTIONS)
def which_pods_go(options: Mapping[str, Any]) -> Scope:
    return Scope.GPU if options.get("gpu_only") is True else Scope.ALL


DRAINING: Final = draining(which_pods_go)


@given(NODE, the_node_by_itself, drain_step(DRAINING))
def steps_of_a_drain(node: NodeView, gpus: Node, drain: Drain) -> tuple[Step, ...]:
    name, uid = node.metadata.name, node.metadata.uid
    sentinel = sentinel_steps(node)
    seen = (SeeWhatIsLeft(node=name, node_uid=uid),) if gpus.has_gpus else ()
    return (
        *sentinel,
        Cordon(node=name, node_uid=uid, before=node.spec.unschedulable),
        drain,
        *seen,
        StayCordoned(node=name, node_uid=uid),
        *(LeaveSentinelOff(node=name, node_uid=uid) for _ in sentinel),
    )


@given(NODE, DRAINING.effects)
def what_a_drain_does(node: NodeView, effects: tuple[str, ...]) -> tuple[str, ...]:
    return (*effects, *(_until_let_on(each) for each in sentinel_steps(node)))


def _until_let_on(step: KeepSentinelOff) -> str:
    value = f"={step.before} --overwrite" if step.before else "-"
    return (
        f"NVSentinel leaves node {step.node} alone until somebody lets it on again, after the maintenance: "
        f"kubectl label node {step.node} {SENTINEL_LABEL}{value}"
    )


@given(NODE)
def what_a_drain_rests_on(node: NodeView) -> Mapping[str, str]:
    return {"cordoned before": "yes" if node.spec.unschedulable else "no"}


RUNBOOK: Final = Runbook(
    id="drain",
    title="evict the pods of a node, one PodDisruptionBudget after the other",
    about=ABOUT,
    target="node",
    back="the node is uncordoned if this run cordoned it, and NVSentinel let on if this run kept it off; "
    "evictions can't be taken back",
    guards=(*NODE_GATES, window_not_closed, *guards_of(DRAINING), processes_are_told),
    steps=steps_of_a_drain,
    step_types=(KeepSentinelOff, Cordon, Drain, SeeWhatIsLeft, StayCordoned, LeaveSentinelOff),
    options=(Option("--gpu-only", "evict only pods that hold a GPU, by whatever name"), *OPTIONS_OF_A_DRAIN),
    preconditions=what_a_drain_rests_on,
    bounds=DRAINING.bounds,
    effects=what_a_drain_does,
    rules=frozenset({PATCHES_NODES, EVICTS}),
    rules_with={WITHOUT_BUDGETS: frozenset({DELETES})},
    spared=(WORKLOADS, unexplained_processes),
)
