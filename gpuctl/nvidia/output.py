"""What a command on a node printed, made readable, and what it says when it can't answer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gpuctl.facts.nodes import Output

LARGEST: Final = 4_000_000  # characters: eight sliced GPUs in XML take about 300,000
SHOWN: Final = 3  # lines quoted as evidence
LONGEST: Final = 160

_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufeff]")


class Trouble(StrEnum):
    """Why nvidia-smi can't answer, by its text: exit codes vary between drivers, texts hardly."""

    DRIVER_DOWN = "the driver does not answer"
    NO_DEVICES = "no GPU is visible"
    GPU_LOST = "a GPU is lost"
    GPU_ERROR = "a GPU can't be opened"
    VERSION_MISMATCH = "driver and library are of different versions"
    CGROUP_LOST = "the container has lost its access to the GPUs"
    PERMISSION = "permission is missing"
    NOT_FOUND = "nvidia-smi was not found"
    IN_USE = "the GPU is in use"
    MODE_PENDING = "a change of MIG mode waits for a reset"
    HUNG = "nvidia-smi did not come to an end"
    UNREADABLE = "the answer can't be read"

    @property
    def of_the_place(self) -> bool:
        """Whether another container, or the host, may well answer: not a fault of the GPUs."""
        return self in _OF_THE_PLACE

    @property
    def of_one_gpu(self) -> bool:
        """Whether it takes nothing from what is told of the others."""
        return self in _OF_ONE_GPU


_OF_THE_PLACE: Final = frozenset(
    {Trouble.CGROUP_LOST, Trouble.PERMISSION, Trouble.NOT_FOUND, Trouble.VERSION_MISMATCH}
)
_OF_ONE_GPU: Final = frozenset({Trouble.GPU_LOST, Trouble.GPU_ERROR, Trouble.MODE_PENDING, Trouble.IN_USE})
_SAID: Final[tuple[tuple[re.Pattern[str], Trouble], ...]] = tuple(
    (re.compile(pattern, re.IGNORECASE), trouble)
    for pattern, trouble in (
        (r"couldn'?t communicate with the NVIDIA driver", Trouble.DRIVER_DOWN),
        (r"driver is not loaded|NVIDIA-SMI has failed", Trouble.DRIVER_DOWN),
        (r"Driver/library version mismatch", Trouble.VERSION_MISMATCH),
        (r"NVML library version: ", Trouble.VERSION_MISMATCH),
        (r"GPU is lost", Trouble.GPU_LOST),
        (r"Unable to determine the device handle", Trouble.GPU_ERROR),
        (r"Failed to initialize NVML: Insufficient Permissions", Trouble.PERMISSION),
        (r"Failed to initialize NVML: Unknown Error", Trouble.CGROUP_LOST),
        (r"Failed to initialize NVML", Trouble.DRIVER_DOWN),
        (r"Insufficient Permissions", Trouble.PERMISSION),
        (r"nvidia-smi: (?:command )?not found|nvidia-smi[\"']?: No such file", Trouble.NOT_FOUND),
        (r"executable file not found|exec format error", Trouble.NOT_FOUND),
        (r"in pending (?:enable|disable) state", Trouble.MODE_PENDING),
        (r"In use by another client|currently (?:in use|being used) by", Trouble.IN_USE),
        (r"No devices (?:were )?found", Trouble.NO_DEVICES),
        (r"Failed to (?:display|get|query) .*: ", Trouble.UNREADABLE),
    )
)
# Lines beside an answer that take nothing from it.
_NOISE: Final = re.compile(
    r"\s*(?:warning\b.*|WARN\b.*|W\d{4} .*|time=\S+ level=\S+ .*|Defaulted container .*"
    r"|All done\.|persistence mode .*|bash: warning: .*|tput: .*|sh: \d+: .*warning.*)",
    re.IGNORECASE,
)
TIMED_OUT: Final = frozenset({124, 137})  # exit codes of `timeout`


@dataclass(frozen=True, slots=True)
class Said:
    """A line in which nvidia-smi says what is wrong."""

    trouble: Trouble
    line: str

    def __str__(self) -> str:
        return f"{self.trouble.value}: {self.line}" if self.line else self.trouble.value


def is_whole(said: Iterable[Said]) -> bool:
    """Whether an answer can be relied on with this said beside it."""
    return all(each.trouble.of_one_gpu for each in said)


def readable(output: Output) -> str:
    """The text without escapes, control characters and Windows line ends, bounded in length.

    Standard error counts where standard output is silent, or the command failed.
    """
    text = output.stdout
    if output.stderr and (output.code or not text.strip()):
        text = f"{text}\n{output.stderr}" if text else output.stderr
    text = text[: LARGEST + 1]
    if text.replace("\n", "").isprintable():
        return text
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROLS.sub("", text) if _CONTROLS.search(text) else text


def too_long(text: str) -> Iterator[Said]:
    """Says so of an answer that is longer than any real one: it was cut."""
    if len(text) > LARGEST:
        yield Said(Trouble.UNREADABLE, f"longer than {LARGEST} characters")


def judged(strays: Iterable[str], output: Output) -> tuple[Said, ...]:
    """What the lines mean that are no part of a regular answer. None of them is passed over in silence."""
    said: dict[Said, None] = {}
    for line in strays:
        found = classified(line)
        if found is not None:
            said[Said(found, shortened(line))] = None
        elif line.strip() and not _NOISE.fullmatch(line):
            said[Said(Trouble.UNREADABLE, shortened(line))] = None
    if output.code in TIMED_OUT:
        said[Said(Trouble.HUNG, f"ended by force, exit {output.code}")] = None
    return tuple(said)[: 4 * SHOWN]


def classified(line: str) -> Trouble | None:
    """What a line of nvidia-smi says is wrong, or None."""
    return next((trouble for pattern, trouble in _SAID if pattern.search(line)), None)


def shortened(line: str) -> str:
    """A line of bounded length, to be quoted."""
    line = line.strip()
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


def worst(said: Sequence[Said]) -> Said | None:
    """What explains the rest: trouble with a name goes before text that can't be read."""
    return min(said, key=lambda each: list(Trouble).index(each.trouble), default=None)
