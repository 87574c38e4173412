"""The runbook `vllm-switch-mode`: an engine runs eager, or with CUDA graphs, from its next pods on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpuctl.facts.fact import Maybe, given
from gpuctl.facts.objects import Deployment
from gpuctl.facts.state import Known, State
from gpuctl.kueue.pods import QUEUE
from gpuctl.runbook.drain.owners import StatefulSet
from gpuctl.runbook.gates import ALWAYS, window_not_closed
from gpuctl.runbook.owned import PATCH_ONLY, not_owned_elsewhere, only_printed, printed, to_be_applied
from gpuctl.runbook.records import Run
from gpuctl.runbook.runbook import Option, Runbook
from gpuctl.runbook.step import Step
from gpuctl.runbook.target import OPTIONS
from gpuctl.runbook.vllm.engine_workloads import (
    OF_A_SET,
    EnginesDeployment,
    EngineWorkload,
    place_of,
    the_engine,
    the_workload,
    uid_of_the_workload,
)
from gpuctl.runbook.vllm.switch_guards import (
    RECREATE,
    SWITCH_GUARDS,
    ends_first,
    the_switch,
    where_a_new_pod_fits,
)
from gpuctl.runbook.vllm.switch_steps import RULES, SeeMode, SetMode, UseRecreate, edited, raw
from gpuctl.vllm.engines import Found
from gpuctl.vllm.switch import Switch

WITHIN: Final = 1800.0

ABOUT: Final = """\
Switches the engine of a Deployment (NAMESPACE/NAME) or StatefulSet (statefulset/NAMESPACE/NAME) between eager
mode and CUDA graphs: it adds --enforce-eager to the words that vLLM is started with, or takes it out, or sets
the variable of a wrapper that stands for it. Where a script, a --config file or a compilation config decides
the mode, it refuses: that is changed there.

An engine often holds the only GPU of its kind. Then a rollout that starts the new pod first never ends: the
plan looks for a free one, and refuses without, unless --recreate lets the old pods end first. The plan says
what is away, and for how long.

The run ends when every pod is a new one that is Ready, and its own log says that it runs in the mode."""


@given(the_workload, the_engine, the_switch, OPTIONS)
def steps_of_a_switch(
    workload: EngineWorkload, found: Found, change: Switch, options: Mapping[str, Any]
) -> tuple[Step, ...]:
    if only_printed(options):
        return ()
    about: Mapping[str, Any] = {
        "kind": workload.of.kind,
        "namespace": workload.metadata.namespace,
        "name": workload.metadata.name,
        "uid": workload.metadata.uid,
    }
    timeout = float(options.get("start_timeout") or WITHIN)
    recreate = UseRecreate(**about, before=raw(workload.spec.strategy))
    return (
        *((recreate,) if _recreates(workload, options) else ()),
        SetMode(
            **about,
            container=found.ref.container,
            to=str(options["to"]),
            edits=change.edits,
            marked_before=workload.switched_by,
            timeout=timeout,
        ),
        SeeMode(**about, container=found.ref.container, graphs=change.after.graphs, timeout=timeout),
    )


def _recreates(workload: EngineWorkload, options: Mapping[str, Any]) -> bool:
    """Whether the strategy is changed for the time of the run."""
    deployment = isinstance(workload, EnginesDeployment)
    return deployment and options.get("recreate") is True and workload.spec.strategy.type != "Recreate"


@given(the_workload)
def what_a_switch_rests_on(workload: EngineWorkload) -> Mapping[str, str]:
    return {"generation": str(workload.metadata.generation), "replicas": str(workload.spec.replicas)}


@given(the_workload, the_engine, the_switch, OPTIONS, Maybe(where_a_new_pod_fits))
def what_a_switch_does(
    workload: EngineWorkload,
    found: Found,
    change: Switch,
    options: Mapping[str, Any],
    fits: State[tuple[str, ...]],
) -> tuple[str, ...]:
    lines = (
        f"container {found.ref.container}: {change.before} -> {change.after}: "
        + "; ".join(map(str, change.edits)),
        *_away(workload, options, fits),
        "a rollout asks no PodDisruptionBudget; what a pod is generating when it ends is lost",
        _COSTS[change.after.graphs],
    )
    if not only_printed(options):
        return lines
    patch = tuple(edited(place_of(workload, found.ref.container), found.ref.container, change.edits))
    return (*lines, *printed(workload.ref, patch, workload.metadata))


_COSTS: Final = {
    True: "graphs take 0.2 to 2.5 GiB of each GPU and lengthen the start by their capture: leave room below "
    "--gpu-memory-utilization, and time in the startup probe",
    False: "eager costs a factor of 2 to 7 in time per token, measured, and saves the memory of the graphs",
}


_QUEUED: Final = (
    "a new one needs quota beside the old one's, else both wait for each other for ever; "
    f"{RECREATE} ends the old one first"
)


def _away(
    workload: EngineWorkload, options: Mapping[str, Any], fits: State[tuple[str, ...]]
) -> Iterator[str]:
    """What does not serve meanwhile."""
    replicas, first = workload.spec.replicas, ends_first(workload)
    count = "its one pod" if replicas == 1 else f"all {replicas} pods"
    until = "until new ones have loaded the model, mostly minutes"
    if _recreates(workload, options) or workload.spec.strategy.type == "Recreate":
        yield f"OUTAGE: {count} end before new ones start: nothing serves {until}"
    elif first >= replicas:
        yield f"OUTAGE: {count} ends first: nothing serves {until}"
    elif first:
        yield f"{first} of {replicas} pods at a time end first, each away {until}"
    else:
        where = ", ".join(fits.value) if isinstance(fits, Known) and fits.value else "no node"
        yield f"a new pod comes up before an old one ends: room for it on {where}; nothing is away"
        if queue := workload.spec.template.metadata.labels.get(QUEUE):
            yield f"its pods are admitted by LocalQueue {queue}: {_QUEUED}"
    if workload.broken_pods_stay:
        yield f"if a pod fails, also after undo: {workload.broken_pods_stay}"


def reverse(run: Run) -> Mapping[str, Any] | None:
    """The other mode, by the same road."""
    to = run.options.get("to")
    return {**run.options, "to": "graphs" if to == "eager" else "eager"}


RUNBOOK: Final = Runbook(
    id="vllm-switch-mode",
    title="switch an engine of vLLM between eager mode and CUDA graphs",
    about=ABOUT,
    target="namespace/deployment | statefulset/namespace/name",
    back="the old template is set again and its pods are waited for; what was away is away once more",
    guards=(*SWITCH_GUARDS, *ALWAYS, window_not_closed, not_owned_elsewhere(the_workload), to_be_applied),
    steps=steps_of_a_switch,
    step_types=(UseRecreate, SetMode, SeeMode),
    kind=Deployment.of,
    prefixed={OF_A_SET: StatefulSet.of},
    options=(
        Option("--to", "eager or graphs", "", required=True),
        Option("--container", "the container that serves, where there are several", ""),
        Option(RECREATE, "let the old pods end before new ones start: an outage, but no GPU must be free"),
        Option("--start-timeout", "seconds that the new pods may take to serve", WITHIN),
        PATCH_ONLY,
    ),
    preconditions=what_a_switch_rests_on,
    effects=what_a_switch_does,
    target_uid=uid_of_the_workload,
    reverse=reverse,
    rules=RULES,
)
