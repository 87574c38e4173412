"""What labels of operands were before they were paused: by the notes of a person, else by journals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from gpuctl.facts.fact import given
from gpuctl.facts.state import Each
from gpuctl.nvidia.node import PAUSED, Node
from gpuctl.nvidia.operands import DEPLOY
from gpuctl.runbook.mig.facts import the_GPU_node
from gpuctl.runbook.records import Run, runs
from gpuctl.runbook.target import OPTIONS

_ON: Final = "true"  # MIG manager pauses only what is on, and knows no other word for it


def noted(notes: Iterable[str]) -> Mapping[str, str]:
    """`gpu.deploy.device-plugin=true`, as a person writes it, with or without NVIDIA's prefix."""
    found: dict[str, str] = {}
    for note in notes:
        name, _, text = note.partition("=")
        operand = name.removeprefix("nvidia.com/").removeprefix("gpu.deploy.")
        if text and not text.startswith(PAUSED):
            found[DEPLOY + operand] = text
    return found


def journaled(journals: Iterable[Run], node: Node) -> Mapping[str, str]:
    """By the journals of this very node, the newest first: what a step recorded word by word, and which
    operands ran before a change."""
    found: dict[str, str] = {}
    for run in sorted(journals, key=lambda each: each.started_at, reverse=True):
        if run.target != node.name or run.target_uid != node.view.metadata.uid:
            continue
        for record in run.steps:
            for name, text in _of_step(record.step).items():
                found.setdefault(name, text)
    return found


def _of_step(step: Mapping[str, Any]) -> Mapping[str, str]:
    ran = {DEPLOY + name: _ON for name in step.get("operands") or () if isinstance(name, str)}
    told = [step.get("deployed"), step.get("was")]
    words = {name: text for each in told if isinstance(each, dict) for name, text in each.items()}
    return {**ran, **{name: text for name, text in words.items() if not str(text).startswith(PAUSED)}}


@given(the_GPU_node, runs, OPTIONS)
def what_paused_labels_were(
    node: Node, journals: Each[str, Run], options: Mapping[str, Any]
) -> Mapping[str, str]:
    """Of each that is paused, as far as anybody knows."""
    told = {**journaled((run for _, run in journals.known()), node), **noted(options.get("was") or ())}
    return {name: told[name] for name in node.paused if name in told}
