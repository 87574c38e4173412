"""What pods themselves tell: their answers over HTTP, and what a command prints in their containers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from gpuctl.facts.kinds import Ref

T = TypeVar("T")
Q = TypeVar("Q", bound="Page | Run")


@dataclass(frozen=True, slots=True)
class Page:
    """What a process of a pod shows over HTTP. It is asked for through the API server's proxy."""

    pod: Ref
    port: int
    path: str
    https: bool = False

    def __str__(self) -> str:
        """`/version on port 8000 of Pod serving/llm-0`: the way messages name it."""
        return f"{self.path.partition('?')[0]} on port {self.port} of {self.pod}"


@dataclass(frozen=True, slots=True)
class Run:
    """A command that is run in a container. It must change nothing."""

    pod: Ref
    container: str
    command: tuple[str, ...]

    def __str__(self) -> str:
        """`cat /proc/1/cmdline in container vllm of Pod serving/llm-0`."""
        return f"{' '.join(self.command)} in container {self.container} of {self.pod}"


@dataclass(frozen=True)
class PodReading(Generic[Q, T]):
    """What to make of a text. `parse` raises ValueError for one that it can't read. `keep` reduces one that
    it can read to what a record may hold, of which `parse` makes the same."""

    parse: Callable[[Q, str], T]
    keep: Callable[[Q, str], str]
