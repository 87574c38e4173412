"""Reads an engine's log once, line by line, and keeps of each line what is used."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Final

from gpuctl.facts.state import Unknown
from gpuctl.vllm import fields
from gpuctl.vllm.attempts import Collected
from gpuctl.vllm.failures import failure
from gpuctl.vllm.lines import Line, lines
from gpuctl.vllm.log import EngineLog
from gpuctl.vllm.sentences import SENTENCES, failed

LONG: Final = 900_000  # characters; a longer log was surely not read to its end
_REQUEST: Final = re.compile(r' - "(?:GET|POST|HEAD) /[^"\s]* HTTP/1')


def parse(text: str) -> EngineLog:
    """Reads a log, whichever way round it is."""
    reader = Collected(steady=_REQUEST.search(text) is not None)
    for line in _in_order(text):
        _take(reader, line)
    return replace(reader.result(), cut=len(text) > LONG)


def kept(text: str) -> str:
    """The recognised lines alone, with times and without keys: what a record may hold."""
    return "".join(f"{_rendered(line)}\n" for line in lines(text) if _recognised(line.message))


def _in_order(text: str) -> Iterator[Line]:
    """Some collectors hand out the newest line first."""
    found = [line for line in lines(text) if _recognised(line.message)]
    times = [line.order for line in found if line.order and line.record]
    if len(times) > 1:
        falls = sum(later < earlier for earlier, later in pairwise(times))
        rises = sum(later > earlier for earlier, later in pairwise(times))
        if falls > rises:
            found.reverse()
    return iter(found)


def _recognised(message: str) -> bool:
    return any(pattern.match(message) for pattern, _ in SENTENCES) or failure(message) is not None


def _rendered(line: Line) -> str:
    at = f"{line.at:%Y-%m-%dT%H:%M:%SZ} " if line.at else ""
    process = f"({line.process}{f' pid={line.pid}' if line.pid else ''}) " if line.process else ""
    head = f"{line.level} {line.order} [{line.module}:0] " if line.record else ""
    return f"{at}{process}{head}{fields.reduced(line.message)}"


def _take(collected: Collected, line: Line) -> None:
    if line.at:
        collected.first = collected.first or line.at
        collected.last = line.at
    for pattern, act in SENTENCES:
        found = pattern.match(line.message)
        if found:
            act(collected, line, found)
            return
    failed(collected, line)


def without_end(found: EngineLog, lost: Unknown) -> EngineLog:
    """The same log, with a note of why its last lines could not be read."""
    return replace(found, without_end=lost)


def tells(found: EngineLog) -> bool:
    """Whether reading on would tell no more of the start."""
    return found.begins_later or (found.start is not None and found.start.ready)
