"""The runbook `mig-recover`: the way out of a MIG manager that failed or stands still."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpuctl.audit.finding import Finding
from gpuctl.facts.fact import Maybe, given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Each, Known, State, value
from gpuctl.nvidia.model import Hardware
from gpuctl.nvidia.node import CONFIG, Node
from gpuctl.nvidia.objects import GpuPod, NodeView
from gpuctl.nvidia.operands import DEPLOY, GFD, MANAGER, PLUGIN
from gpuctl.nvidia.selection import Selection
from gpuctl.runbook.drain.candidates import Candidate, concerned, listed
from gpuctl.runbook.drain.cordon import PATCHES_NODES, Cordon
from gpuctl.runbook.drain.draining import pods_with_verdicts
from gpuctl.runbook.drain.evict import DELETES
from gpuctl.runbook.gates import ALWAYS, held_by_nobody_else, no_blocking_pod, no_ghost, window_not_closed
from gpuctl.runbook.guard import asked_again, before, blocks, guard, notes
from gpuctl.runbook.mig.change import MigChange, Wish, layout, uncovered
from gpuctl.runbook.mig.facts import the_GPU_node, written
from gpuctl.runbook.mig.guards import (
    manager_decides,
    no_machine_config,
    node_is_ready,
)
from gpuctl.runbook.mig.noticing import gpus_are_sound, named, who_holds_its_GPUs
from gpuctl.runbook.mig.operand_pods import RestartOperand, restarting, set_of
from gpuctl.runbook.mig.recorded import what_paused_labels_were
from gpuctl.runbook.mig.recover_steps import (
    FollowRestart,
    OfferHardware,
    OperandsRun,
    ResumeOperands,
    VerifyRecovered,
    relabelled,
)
from gpuctl.runbook.mig.standing import (
    STILL,
    MigStanding,
    how_MIG_stands,
    the_change_that_is_left,
    what_the_label_asks,
    what_the_label_selects,
)
from gpuctl.runbook.mig.steps import TIMEOUT
from gpuctl.runbook.mig.words import paused, shown_state
from gpuctl.runbook.owned import PATCH_ONLY, not_owned_elsewhere, only_printed, printed, to_be_applied
from gpuctl.runbook.runbook import Option, Runbook
from gpuctl.runbook.step import Step
from gpuctl.runbook.target import NODE, OPTIONS

ABOUT: Final = """\
MIG manager waits for ever after it failed, and up to v0.15.0 it may stand still in the middle, with operands
paused, so that the node offers no GPU. Its documented way out is a new start: it then runs its whole check on
the configuration that the node is labelled with, and sets operands' labels and its state right. This runbook
cordons the node, deletes MIG manager's pod there, follows the new one to its end, and waits until nvidia-smi,
labels, capacity and allocatable agree. Where GPUs have to change, no pod may hold one.

The last resort, where a new start does not help, is --restore-labels: the labels of the paused operands are
set back to what journals or your notes (--was LABEL=VALUE) say they were, so that the node offers its GPUs
again, as they are. Files of the kubelet are never deleted."""


@given(OPTIONS)
def whether_labels_are_restored(options: Mapping[str, Any]) -> bool:
    return options.get("restore_labels") is True


RESTART: Final = restarting(MANAGER, unless=whether_labels_are_restored)


# Steps


@given(NODE, the_GPU_node, RESTART.pod, what_the_label_asks, OPTIONS)
def steps_of_a_new_start(
    view: NodeView, node: Node, pod: GpuPod, asked: tuple[Wish, ...], options: Mapping[str, Any]
) -> tuple[Step, ...]:
    name, uid = view.metadata.name, view.metadata.uid
    timeout = float(options.get("change_timeout") or TIMEOUT)
    operands = tuple(each for each in (PLUGIN, GFD) if _is_wanted(node, each))
    return (
        Cordon(node=name, node_uid=uid, before=view.spec.unschedulable),
        RESTART.step(view, pod),
        FollowRestart(
            node=name,
            node_uid=uid,
            config=node.config,
            wanted=asked,
            told=written(view, "state"),
            timeout=timeout,
        ),
        OperandsRun(node=name, node_uid=uid, operands=operands),
        VerifyRecovered(
            node=name,
            node_uid=uid,
            config=node.config,
            wanted=asked,
            described=GFD in operands,
            timeout=timeout,
        ),
    )


def _is_wanted(node: Node, operand: str) -> bool:
    """Whether it runs, or is to run again."""
    label = node.labels.get(DEPLOY + operand, "")
    return bool(node.operands.get(operand)) or label not in ("", "false")


@given(NODE, the_GPU_node, what_paused_labels_were)
def steps_of_restored_labels(view: NodeView, node: Node, were: Mapping[str, str]) -> tuple[Step, ...]:
    name, uid = view.metadata.name, view.metadata.uid
    back = tuple(each for each in (PLUGIN, GFD) if were.get(DEPLOY + each, "false") != "false")
    return (
        Cordon(node=name, node_uid=uid, before=view.spec.unschedulable),
        ResumeOperands(node=name, node_uid=uid, paused=dict(node.paused), was=dict(were)),
        OperandsRun(node=name, node_uid=uid, operands=back),
        OfferHardware(node=name, node_uid=uid, described=GFD in back),
    )


@given(whether_labels_are_restored, OPTIONS, Maybe(steps_of_a_new_start), Maybe(steps_of_restored_labels))
def steps_of_a_recovery(
    restores: bool,
    options: Mapping[str, Any],
    start: State[tuple[Step, ...]],
    labels: State[tuple[Step, ...]],
) -> tuple[Step, ...]:
    steps = value(labels if restores else start)
    return () if only_printed(options) else steps


# Guards


@guard("MIG manager failed, or stands still", given(how_MIG_stands, the_GPU_node))
def needs_recovery(stands: MigStanding, node: Node) -> Iterator[Finding]:
    if stands.under_way:
        yield blocks(
            node.ref,
            f"{node.ref} is being changed: {stands.under_way}",
            remedy="wait: beyond checks.migConsistency.stuckMinutes it counts as standing still",
        )
    elif not stands.config:
        yield blocks(node.ref, f"{node.ref} has no label {CONFIG}: MIG manager is asked for nothing there")
    elif stands.word == "right":
        yield blocks(
            node.ref,
            f"nothing to recover: MIG on {node.ref} is as labelled, {shown_state(node)}",
            look=f"gpuctl mig show {node.name}",
        )
    elif stands.word == "wrong" and not stands.told and stands.sliced == Known(()):
        yield blocks(
            node.ref,
            f"GPUs of {node.ref} are as configured; only what the node offers of them is wrong: "
            f"{listed(stands.wrong)}",
            remedy=f"gpuctl plan device-plugin-restart {node.name}; for labels restart GPU feature discovery",
        )
    elif stands.word == "unknown":
        yield blocks(
            node.ref,
            f"it can't be told whether MIG on {node.ref} is as labelled: {stands.gap}",
            remedy="let gpuctl look into the node: --probe exec, or --probe debug",
        )


@guard(
    "the labelled configuration can be made",
    given(Maybe(what_the_label_selects), Maybe(STILL.hardware), the_GPU_node, whether_labels_are_restored),
)
def configuration_can_be_made(
    found: State[Selection | None], hardware: State[Hardware], node: Node, restores: bool
) -> Iterator[Finding]:
    """Else the new start ends as the last one did."""
    if restores or not node.config:
        return
    selection = value(found)
    remedy = f"name another: gpuctl plan mig-reconfigure {node.name} --config NAME"
    if selection is None:
        yield blocks(node.ref, f"nothing says what {CONFIG}={node.config} of {node.ref} means", remedy=remedy)
    elif selection.parts is None:
        yield blocks(
            selection.source,
            f"there is no configuration {node.config!r} in {selection.source}",
            remedy=remedy,
        )
    elif isinstance(hardware, Known):
        missing = [str(each.gpu) for each in uncovered(selection.parts, hardware.value)]
        if missing:
            yield blocks(
                node.ref, f"{node.config} says nothing of {listed(missing)}: MIG manager fails", remedy=remedy
            )


@guard(
    "no pod is in the way of the change that is left",
    given(Maybe(the_change_that_is_left), pods_with_verdicts, the_GPU_node, whether_labels_are_restored),
    "--although-in-use",
)
def nobody_in_the_way(
    change: State[MigChange], pods: Each[Ref, Candidate], node: Node, restores: bool
) -> Iterator[Finding]:
    """A new start goes on with the change, and a GPU in use makes that fail, or is reset under its pod."""
    if restores or not isinstance(change, Known) or change.value.kind == "label":
        return
    held = [each.pod for each in concerned(pods, change.value.scope)]
    if held:
        only = " --gpu-only" if change.value.scope == "gpu" else ""
        yield blocks(
            node.ref,
            f"MIG manager would go on to change GPUs of {node.ref}, and {named(held)} are in the way",
            look=f"kubectl get pods -A --field-selector spec.nodeName={node.name}",
            remedy=f"gpuctl plan drain {node.name}{only}",
        )


@guard(
    "it is known what paused labels were",
    given(the_GPU_node, what_paused_labels_were, whether_labels_are_restored),
)
def old_labels_are_known(node: Node, were: Mapping[str, str], restores: bool) -> Iterator[Finding]:
    if not restores:
        return
    if not node.paused:
        yield blocks(node.ref, f"no operand of {node.ref} is paused: there is nothing to restore")
    unknown = [name for name in node.paused if name not in were]
    if unknown:
        flags = " ".join(f"--was {name}=VALUE" for name in unknown)
        yield blocks(
            node.ref,
            f"no journal of {node.ref} tells what {listed(unknown)} was",
            remedy=f"say so by your own notes: {flags} (MIG manager pauses only what is true)",
        )


@guard("a new start is no use", given(the_GPU_node, whether_labels_are_restored))
def last_resort(node: Node, restores: bool) -> Iterator[Finding]:
    if restores and any(pod.running for pod in node.operands.get(MANAGER, ())):
        yield notes(
            node.ref,
            f"MIG manager of {node.ref} runs: a new start (without --restore-labels) sets the labels right, "
            "and its state, too",
        )


# What it does


@given(RESTART.pod, Maybe(the_change_that_is_left), the_GPU_node, who_holds_its_GPUs, how_MIG_stands)
def what_a_new_start_does(
    pod: GpuPod, change: State[MigChange], node: Node, holding: tuple[str, ...], stands: MigStanding
) -> tuple[str, ...]:
    lines: tuple[str, ...] = (f"what the GPUs would become can't be told: {change}",)
    if isinstance(change, Known):
        lines = (*change.value.lines, *change.value.consequences)
    return (
        f"found wrong: {listed(stands.wrong)}",
        f"{pod.ref} is deleted; {set_of(pod) or 'nothing'} makes another, which works on {node.config} anew",
        *lines,
        *holding,
        "the node is cordoned until all is verified; operands of it pause meanwhile if GPUs change",
        "a restart has no undo",
    )


@given(the_GPU_node, what_paused_labels_were, who_holds_its_GPUs, how_MIG_stands)
def what_restored_labels_do(
    node: Node, were: Mapping[str, str], holding: tuple[str, ...], stands: MigStanding
) -> tuple[str, ...]:
    return (
        f"found wrong: {listed(stands.wrong)}",
        *(f"{name}: {node.paused[name]} -> {text}" for name, text in were.items()),
        "the operands' DaemonSets make their pods again, and the node offers its GPUs as they are",
        f"the GPUs stay as they are, whatever {CONFIG}={node.config} asks",
        f"MIG manager's state stays, too: {node.state or 'none'}",
        *holding,
    )


@given(the_GPU_node, what_paused_labels_were, whether_labels_are_restored)
def what_is_patched_for_good(node: Node, were: Mapping[str, str], restores: bool) -> tuple[str, ...]:
    if not restores:
        return ("there is no patch to print: a new start changes nothing that stays",)
    return printed(node.ref, tuple(relabelled(node.view, node.paused, were)), node.view.metadata)


@given(
    whether_labels_are_restored,
    OPTIONS,
    Maybe(what_a_new_start_does),
    Maybe(what_restored_labels_do),
    Maybe(what_is_patched_for_good),
)
def what_a_recovery_does(
    restores: bool,
    options: Mapping[str, Any],
    start: State[tuple[str, ...]],
    labels: State[tuple[str, ...]],
    patch: State[tuple[str, ...]],
) -> tuple[str, ...]:
    lines = value(labels if restores else start)
    return (*lines, *value(patch)) if only_printed(options) else lines


@given(the_GPU_node, how_MIG_stands, Maybe(RESTART.pod), Maybe(STILL.hardware))
def what_a_recovery_rests_on(
    node: Node, stands: MigStanding, pod: State[GpuPod], hardware: State[Hardware]
) -> Mapping[str, str]:
    return {
        "configuration": node.config,
        "state": node.state,
        "MIG as labelled": stands.word,
        "paused operands": paused(node),
        "MIG manager's pod": pod.value.metadata.uid if isinstance(pod, Known) else "",
        "GPUs": layout(hardware.value) if isinstance(hardware, Known) else "unknown",
        "cordoned before": "yes" if node.view.spec.unschedulable else "no",
    }


RUNBOOK: Final = Runbook(
    id="mig-recover",
    title="bring back a node whose MIG manager failed or stands still",
    about=ABOUT,
    target="node",
    back="the node is uncordoned if this run cordoned it, and labels that it restored are paused again; a "
    "restart has no undo",
    guards=(
        *ALWAYS,
        held_by_nobody_else,
        no_blocking_pod,
        no_ghost,
        window_not_closed,
        *asked_again(
            before("RestartOperand", "ResumeOperands"),  # after that the steps tell what has come of it
            node_is_ready,
            manager_decides,
            no_machine_config,
            needs_recovery,
            gpus_are_sound,
            RESTART.comes_back,
            configuration_can_be_made,
            nobody_in_the_way,
            old_labels_are_known,
            last_resort,
            not_owned_elsewhere(NODE, whether_labels_are_restored),
        ),
        to_be_applied,
    ),
    steps=steps_of_a_recovery,
    step_types=(
        Cordon,
        RestartOperand,
        FollowRestart,
        OperandsRun,
        VerifyRecovered,
        ResumeOperands,
        OfferHardware,
    ),
    options=(
        Option("--restore-labels", "the last resort: set labels of paused operands back, restart nothing"),
        Option("--was", "LABEL=VALUE that a paused label had before, by your own notes", ()),
        Option("--change-timeout", "seconds that MIG manager may stand still", TIMEOUT),
        PATCH_ONLY,
    ),
    preconditions=what_a_recovery_rests_on,
    effects=what_a_recovery_does,
    rules=frozenset({PATCHES_NODES, DELETES}),
)
