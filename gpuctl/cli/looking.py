"""How nodes are looked into, in one place for every verb that does: which, by which way, for how long."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuctl.cli.flags import with_flags

if TYPE_CHECKING:
    from gpuctl.cluster.probe import Probing
    from gpuctl.facts.fact import Argument

_PANEL = "Nodes"
_MODES = ("auto", "exec", "debug", "none")


def _option(*names: str, help_: str) -> Any:
    return typer.Option(*names, help=help_, rich_help_panel=_PANEL)


_FLAGS: dict[str, tuple[Any, Any]] = {
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
    "node": (
        Annotated[list[str] | None, _option("--node", help_="Only this node; repeatable.")],
        None,
    ),
    "selector": (
        Annotated[str, _option("--selector", "-l", help_="Only nodes with these labels.")],
        "",
    ),
    "probe_timeout": (
        Annotated[str, _option("--probe-timeout", help_="Time for one node.")],
        "20s",
    ),
    "probe_namespace": (
        Annotated[str, _option("--probe-namespace", help_="Where debug pods are made.")],
        "gpuctl-system",
    ),
    "probe_image": (
        Annotated[str, _option("--probe-image", help_="Image of debug pods; any with a shell and chroot.")],
        "busybox:1.37",
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
        from gpuctl.facts.selectors import parse, selects
        from gpuctl.nvidia.facts import SCOPE

        wanted = parse(self.selector)
        return {
            SCOPE: lambda name, labels: (not self.nodes or name in self.nodes) and selects(wanted, labels),
        }


def _looking(
    *,
    probe: str,
    node: list[str] | None,
    selector: str,
    probe_timeout: str,
    probe_namespace: str,
    probe_image: str,
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
        ask=_ask if sys.stdin.isatty() and sys.stderr.isatty() else None,
    )
    return Looking(probing, tuple(node or ()), selector)


def _ask(question: str) -> bool:
    """Asked from a reading thread, on stderr, on a line of its own: progress may be drawn below it."""
    print(f"gpuctl: {question} Type y and Enter to agree.", file=sys.stderr, flush=True)
    try:
        answer = os.read(sys.stdin.fileno(), 1024).decode(errors="replace")
    except OSError:
        return False
    return answer.strip().lower() in ("y", "yes")


with_looking = with_flags("looking", _FLAGS, _looking)
"""Gives a verb the flags of looking into nodes and hands them to it as its parameter `looking`."""
