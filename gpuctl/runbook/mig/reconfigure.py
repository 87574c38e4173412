"""The runbook `mig-reconfigure`: a node is drained, given another MIG geometry, and verified."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gpuctl.facts.fact import given
from gpuctl.kueue.facts import API_SERVICES, NAMESPACES, SLICES
from gpuctl.kueue.flavors import ON_FLAVORS
from gpuctl.kueue.queue_facts import ADMISSION_CHECKS, CLAIM_TEMPLATES, LINES, TOPOLOGIES
from gpuctl.nvidia.model import Hardware
from gpuctl.nvidia.node import Node
from gpuctl.nvidia.objects import NodeView
from gpuctl.nvidia.operands import DEPLOY, GFD, PLUGIN
from gpuctl.runbook.drain.candidates import Scope
from gpuctl.runbook.drain.cordon import PATCHES_NODES, Cordon, KeepSentinelOff, sentinel_steps
from gpuctl.runbook.drain.draining import OPTIONS_OF_A_DRAIN, WITHOUT_BUDGETS, WORKLOADS, draining
from gpuctl.runbook.drain.evict import DELETES, EVICTS, Drain, drain_step
from gpuctl.runbook.drain.guards import guards_of, no_resident_holder
from gpuctl.runbook.drain.idle import Idle, processes_are_explained
from gpuctl.runbook.gates import NODE_GATES, window_open
from gpuctl.runbook.guard import always, asked_again, before
from gpuctl.runbook.mig.change import MigChange, Wish, layout
from gpuctl.runbook.mig.effects import what_the_change_does, whom_it_takes
from gpuctl.runbook.mig.facts import (
    SILICON,
    the_change,
    the_GPU_node,
    what_the_old_name_asks,
    which_pods_must_go,
)
from gpuctl.runbook.mig.guards import MIG_GUARDS, no_machine_config
from gpuctl.runbook.mig.steps import TIMEOUT, Follow, SetConfig, Settled, Verify, VerifyAgain
from gpuctl.runbook.records import Run
from gpuctl.runbook.runbook import Option, Runbook
from gpuctl.runbook.step import Step
from gpuctl.runbook.target import NODE, OPTIONS

ABOUT: Final = """\
Gives the GPUs of a node another MIG geometry, by NVIDIA's mig-manager. That one neither cordons nor drains
nor verifies; this runbook does: it cordons the node, evicts the pods that must go (those that hold GPUs; all
of them where the kubelet is stopped, the node may reboot or every GPU is reset), sees by pods and by
nvidia-smi that the GPUs are idle, sets the label nvidia.com/mig.config, follows MIG manager to its end, and
waits until nvidia-smi, labels, capacity and allocatable agree, twice. Then it uncordons what it cordoned.

When anything fails the node stays cordoned. `resume` goes on, `undo` sets the old configuration by the same
guarded road."""

DRAINING: Final = draining(which_pods_must_go)
# Of Kueue, what tells why Workloads wait: the effects name those that do.
UNHEEDED: Final = (API_SERVICES, NAMESPACES, SLICES, ADMISSION_CHECKS, CLAIM_TEMPLATES, TOPOLOGIES)
_STEPS: Final = (KeepSentinelOff, Cordon, Drain, Idle, SetConfig, Follow, Settled, Verify, VerifyAgain)


@given(OPTIONS)
def how_long_it_may_take(options: Mapping[str, Any]) -> float:
    return float(options.get("change_timeout") or TIMEOUT)


@given(drain_step(DRAINING), NODE, the_GPU_node, the_change, what_the_old_name_asks, how_long_it_may_take)
def steps_of_a_reconfiguration(
    drain: Drain, view: NodeView, node: Node, change: MigChange, old: tuple[Wish, ...], timeout: float
) -> tuple[Step, ...]:
    name, uid, config = view.metadata.name, view.metadata.uid, change.config
    described = bool(node.operands.get(GFD))
    operands = tuple(each for each in (PLUGIN, GFD) if node.operands.get(each))
    verify = Verify(
        node=name,
        node_uid=uid,
        config=config,
        wanted=change.after,
        described=described,
        timeout=timeout,
    )
    return (
        *sentinel_steps(view),
        Cordon(node=name, node_uid=uid, before=view.spec.unschedulable),
        drain,
        Idle(node=name, node_uid=uid),
        SetConfig(
            node=name,
            node_uid=uid,
            old=node.config,
            new=config,
            restores=old,
            deployed={
                key: text
                for key, text in node.labels.items()
                if key.startswith(DEPLOY) and text not in ("", "false")
            },
            described=described,
            timeout=timeout,
        ),
        Follow(
            node=name,
            node_uid=uid,
            config=config,
            wanted=change.after,
            boot=view.status.node_info.boot_id,
            timeout=timeout,
        ),
        Settled(
            node=name,
            node_uid=uid,
            config=config,
            operands=operands,
            anew=bool(change.changed),
            timeout=timeout,
        ),
        verify,
        VerifyAgain(**msgspec.structs.asdict(verify)),
    )


@given(the_GPU_node, SILICON.hardware, the_change, which_pods_must_go)
def what_a_reconfiguration_rests_on(
    node: Node, hardware: Hardware, change: MigChange, scope: Scope
) -> Mapping[str, str]:
    return {
        "configuration": node.config,
        "state": node.state,
        "GPUs": layout(hardware),
        "driver": change.means.driver,
        "change": change.kind,
        "pods that must go": scope.value,
        "boot id": node.view.status.node_info.boot_id,
        "cordoned before": "yes" if node.view.spec.unschedulable else "no",
        "GPUs afterwards": "; ".join(f"{each.gpu}: {each}" for each in change.after),
    }


@given(what_the_change_does, whom_it_takes, DRAINING.effects)
def effects_of_a_reconfiguration(
    change: tuple[str, ...], whom: str, drain: tuple[str, ...]
) -> tuple[str, ...]:
    *does, way_back = change
    return (*does, whom, *drain, way_back)


def reverse(run: Run) -> Mapping[str, Any] | None:
    """The same with the configuration of before; None where that is not known."""
    for record in run.steps:
        if record.step.get("step") == SetConfig.__name__:
            old, restores = record.step.get("old"), record.step.get("restores")
            return {**run.options, "config": old} if old and restores else None
    return None


RUNBOOK: Final = Runbook(
    id="mig-reconfigure",
    title="drain a node, change its MIG geometry, verify it",
    about=ABOUT,
    target="node",
    back="the old configuration is set again and verified, and the node uncordoned if this run cordoned it; "
    "evictions can't be taken back",
    guards=(
        # Once MIG manager was asked, the steps after that tell what it made of it; a node that is rebooted
        # by others in the middle of it is another matter.
        *asked_again(before("SetConfig"), *(each for each in MIG_GUARDS if each is not no_machine_config)),
        *asked_again(always, no_machine_config),
        *NODE_GATES,
        window_open,
        *guards_of(DRAINING),
        no_resident_holder,
        processes_are_explained,
    ),
    steps=steps_of_a_reconfiguration,
    step_types=_STEPS,
    options=(
        Option("--config", "the name of the MIG configuration, as in nvidia.com/mig.config", "", True),
        Option(
            "--scope",
            "which pods must go: auto (as the change takes it), gpu (those that hold GPUs), all",
            "auto",
        ),
        Option(
            "--change-timeout",
            "seconds that MIG manager may stand still, and that its result may take to be seen",
            TIMEOUT,
        ),
        Option("--last-node", "also where no other Ready node offers the same resources"),
        *OPTIONS_OF_A_DRAIN,
    ),
    preconditions=what_a_reconfiguration_rests_on,
    bounds=DRAINING.bounds,
    effects=effects_of_a_reconfiguration,
    reverse=reverse,
    rules=frozenset({PATCHES_NODES, EVICTS}),
    rules_with={WITHOUT_BUDGETS: frozenset({DELETES})},
    spared=(WORKLOADS, ON_FLAVORS, LINES),
    unheeded=UNHEEDED,
)
