"""Looking into a node: where a command can be run, and what it printed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from gpuctl.facts.state import Known, Reason, State, Unknown

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Output:
    """What a command printed, and its exit code."""

    stdout: str
    stderr: str = ""
    code: int = 0


@dataclass(frozen=True, slots=True)
class Place:
    """A container on a node that may have the commands. `what` tells a person which kind of pod it is of."""

    namespace: str
    pod: str
    container: str
    what: str = ""

    def __str__(self) -> str:
        return f"{self.what or 'pod'} {self.namespace}/{self.pod}"


@dataclass(frozen=True, slots=True)
class Target:
    """A node to look into, by these places, the best first. `why_not`: why it is not even tried.

    `runtime_class` is what a pod of gpuctl's own needs on this node to see GPUs, empty where the host serves;
    `images` are images that such a pod can use without fetching any.
    """

    node: str
    places: tuple[Place, ...] = ()
    why_not: str = ""
    runtime_class: str = ""
    images: tuple[str, ...] = ()
    openshift: bool = False


def parsed(parse: Callable[[Output], T], output: Output, what: str) -> State[T]:
    """What a command printed, in the shape that `parse` gives it, or that it can't be read."""
    try:
        return Known(parse(output))
    except ValueError as error:
        return Unknown(Reason.MALFORMED, str(error), what)
