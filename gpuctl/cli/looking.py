"""How nodes are looked into, in one place for every verb that does: which, by which way, for how long."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuctl.cli.flags import Flags, with_flags
from gpuctl.facts.home import HOME

if TYPE_CHECKING:
    from gpuctl.cluster.probe import Probing
    from gpuctl.facts.fact import Argument

_PANEL = "Nodes"
_MODES = ("auto", "exec", "debug", "none")


def _option(*names: str, help_: str) -> Any:
    return typer.Option(*names, help=help_, rich_help_panel=_PANEL)


_HOW: Flags = {
    "probe": (
        Annotated[
            str,
            _option(
                "--probe",
                help_="auto, exec, debug or none: how nvidia-smi is run on nodes. auto: in pods that have "
                "it, and in debug pods if you say so.",
            ),
        ],
        "auto",
    ),
    "probe_timeout": (
        Annotated[str, _option("--probe-timeout", help_="Time for one node.")],
        "20s",
    ),
    "probe_namespace": (
        Annotated[str, _option("--probe-namespace", help_="Where debug pods are made.")],
        HOME,
    ),
    "probe_image": (
        Annotated[str, _option("--probe-image", help_="Image of debug pods; any with a shell and chroot.")],
        "busybox:1.37",
    ),
}
_WHERE: Flags = {
    "node": (
        Annotated[list[str] | None, _option("--node", help_="Only this node; repeatable.")],
        None,
    ),
    "selector": (
        Annotated[str, _option("--selector", "-l", help_="Only nodes with these labels.")],
        "",
    ),
}


@dataclass(frozen=True)
class Looking:
    """What a person said of looking into nodes."""

    probing: Probing
    nodes: tuple[str, ...]
    selector: str

    def unless(self, *, read_only: bool) -> Probing:
        """What is agreed to; nothing where only reading is."""
        return replace(self.probing, mode="none") if read_only else self.probing

    def at(self, node: str) -> Looking:
        """The same for one node."""
        return replace(self, nodes=(node,))

    @property
    def arguments(self) -> Mapping[Argument[Any], Any]:
        """Which nodes are meant, as the facts want to know it."""
        from gpuctl.nvidia.facts import SCOPE
        from gpuctl.nvidia.scope import Scope

        return {SCOPE: Scope(self.nodes, self.selector)}


def _looking(
    *,
    probe: str,
    probe_timeout: str,
    probe_namespace: str,
    probe_image: str,
    node: list[str] | None = None,
    selector: str = "",
) -> Looking:
    from gpuctl.cli.border import Stop, warn
    from gpuctl.cli.duration import seconds
    from gpuctl.cluster.probe import Probing
    from gpuctl.facts.selectors import parse

    if probe not in _MODES:
        raise Stop(f"--probe is {', '.join(_MODES[:-1])} or {_MODES[-1]}, not {probe!r}")
    try:
        parse(selector)
    except ValueError as error:
        raise Stop(f"--selector: {error}") from error
    probing = Probing(
        mode=probe,
        seconds=seconds(probe_timeout),
        namespace=probe_namespace,
        image=probe_image,
        tell=warn,
        ask=_once(_ask) if sys.stdin.isatty() and sys.stderr.isatty() else None,
    )
    return Looking(probing, tuple(node or ()), selector)


def _once(ask: Callable[[str, float], bool]) -> Callable[[str, float], bool]:
    """Puts no question twice: a runbook looks many times into the same nodes."""
    answers: dict[str, bool] = {}

    def asked(question: str, patience: float) -> bool:
        if question not in answers:
            answers[question] = ask(question, patience)
        return answers[question]

    return asked


def _ask(question: str, patience: float) -> bool:
    """Asked from a reading thread, on stderr, on a line of its own: progress may be drawn below it. Who does
    not answer in time does not agree."""
    from gpuctl.cli.border import warn

    warn(f"{question} Type y and Enter to agree, within {patience:.0f} s.")
    try:
        ready, _, _ = select.select([sys.stdin], [], [], patience)
        answer = os.read(sys.stdin.fileno(), 1024).decode(errors="replace") if ready else ""
    except (OSError, ValueError):
        return False
    agreed = answer.strip().lower() in ("y", "yes")
    if not agreed:
        warn("no debug pod is made")
    return agreed


with_looking = with_flags("looking", {**_HOW, **_WHERE}, _looking)
"""Gives a verb the flags of looking into nodes and hands them to it as its parameter `looking`."""

with_probing = with_flags("looking", _HOW, _looking)
"""The same for a verb that names its node otherwise."""
