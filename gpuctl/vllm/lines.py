"""From what a container printed to what was said: lines without colours, progress frames and prefixes.

Whatever decorates a line (the API server's or docker's time, compose's name, a process's prefix, a JSON
object around it) is taken off, so that a message is recognised by how it begins. A prompt that quotes a
message is therefore never taken for one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

_WRITTEN: Final = re.compile(r"[^\n]+")
LONGEST: Final = 64 * 1024  # characters of a line that are looked at: a config line has about 5,000
_SEARCHED: Final = 300  # characters in which the head of a record must begin

_ANSI: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])")
_FRAMES: Final = re.compile(r"\r+|(?<=\])(?=(?:Capturing|Loading|Profiling|Compiling) )")
# What the API server and CRI (`2026-11-30T10:00:00.1Z stdout F `), docker and Ray put before a line.
_TIME: Final = re.compile(
    r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,]\d+)?(Z|[+-]\d\d:?\d\d)?(?:\s+std(?:out|err)\s+[FP])?[\s|]+"
)
_COMPOSE: Final = re.compile(r"\[?[\w./-]{1,80}\]?\s+\|\s")
_MARKUP: Final = re.compile(r"</?b>")
_PROCESS: Final = re.compile(
    r"(?:\[Stage-\d+\]\s*)?\(((?:EngineCore|Worker|VllmWorker|VllmWorkerProcess|RayWorkerWrapper|RayWorkerProc"
    r"|APIServer|ApiServer|DPCoordinator|Engine|ServeReplica)[\w:]*)((?:,?\s+\w+=[^\s,)]+)*)\)\s*"
)
_RECORD: Final = re.compile(
    r"\b(DEBUG|INFO|WARNING|ERROR|CRITICAL) (\d\d-\d\d \d\d:\d\d:\d\d)(?:\.\d+)? \[?([\w./-]+):\d+\] ?"
)
_PLAIN: Final = re.compile(r"(DEBUG|INFO|WARNING|ERROR|CRITICAL)(?::\s+| \[[^\]]*\]\s+)")
_REPEATED: Final = re.compile(r"\s*\[repeated \d+x across cluster\].*$")
_RANK: Final = re.compile(r"rank=(\d+)")
_MESSAGE_KEYS: Final = ("message", "msg", "log", "text", "event")
_TIME_KEYS: Final = ("timestamp", "time", "ts", "asctime", "@timestamp")


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that was said. `process` is the innermost prefix without process numbers, such as
    `Worker_TP1`; `module` the file of vLLM that said it; `order` a time without a year, for sorting."""

    message: str
    process: str = ""
    pid: str = ""
    module: str = ""
    level: str = ""
    order: str = ""
    at: datetime | None = None
    record: bool = False  # whether it has the head of a log record


# What a serving engine prints most of: requests, whose prompts are nobody's business.
_NOISE: Final = (" HTTP/1.", "Received request ", "Added request ", "Finished request ", "Aborted request ")
_FRAME: Final = re.compile(r"\d+%\|")


def lines(text: str) -> Iterator[Line]:
    """What was said, in the order of the text. Requests are left out."""
    for found in _WRITTEN.finditer(text):  # not split: a long log is not held twice
        raw = found[0]
        if raw.isspace() or any(noise in raw for noise in _NOISE):
            continue
        decoration = _Decoration()
        opened = _unwrapped(_ANSI.sub("", raw[:LONGEST]), decoration)
        for frame in _told(opened.replace("\n", "\r")):  # a JSON message may hold several lines
            yield _line(frame, decoration)


def _told(text: str) -> Iterator[str]:
    """The frames of a line; of a progress bar's frames the first and the last."""
    frames = [frame for frame in _FRAMES.split(text) if frame and not frame.isspace()]
    for number, frame in enumerate(frames):
        if number in (0, len(frames) - 1) or not _FRAME.search(frame):
            yield frame


@dataclass(slots=True)
class _Decoration:
    """What was taken off a line; the frames of one line share it."""

    at: datetime | None = None
    process: str = ""
    pid: str = ""
    order: str = ""


def _line(text: str, found: _Decoration) -> Line:
    text = _unwrapped(text, found)
    head = _RECORD.search(text, 0, _SEARCHED)
    if head is None:
        plain = _PLAIN.match(text)
        level = plain[1] if plain else ""
        message = text[plain.end() :] if plain else text
        return Line(_tidy(message), found.process, found.pid, "", level, found.order, found.at)
    _processes(text[: head.start()], found)
    found.order = found.order or head[2]
    rest = _without_processes(text[head.end() :], found)
    return Line(_tidy(rest), found.process, found.pid, head[3], head[1], head[2], found.at, record=True)


def _tidy(message: str) -> str:
    return _REPEATED.sub("", _MARKUP.sub("", message)).strip()


def _unwrapped(text: str, found: _Decoration) -> str:
    """Takes off whatever stands before the message, in any order and depth."""
    for _ in range(8):
        before = text
        text = text.lstrip()
        if text.startswith("{"):
            text = _of_json(text, found)
        time = _TIME.match(text)
        if time:
            found.at = found.at or _time(time[1], time[2])
            found.order = found.order or time[1].replace("T", " ")
            text = text[time.end() :]
        compose = None if _RECORD.match(text) else _COMPOSE.match(text)
        if compose:
            text = text[compose.end() :]
        text = _without_processes(_MARKUP.sub("", text, count=2), found)
        if text == before:
            break
    return text


def _without_processes(text: str, found: _Decoration) -> str:
    while prefix := _PROCESS.match(text):
        _processes(prefix[0], found)
        text = text[prefix.end() :]
    return text


def _processes(text: str, found: _Decoration) -> None:
    for prefix in _PROCESS.finditer(text):
        rank = _RANK.search(prefix[2])
        pid = re.search(r"pid=(\d+)", prefix[2])
        found.process = f"{prefix[1]}_{rank[1]}" if rank else prefix[1]
        found.pid = pid[1] if pid else ""


def _of_json(text: str, found: _Decoration) -> str:
    """The message of a JSON line; the text itself if it is none. vLLM's own dictionaries are not JSON."""
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if not isinstance(tree, dict):
        return text
    message = next((tree[key] for key in _MESSAGE_KEYS if isinstance(tree.get(key), str)), None)
    if message is None:
        return text
    said = next((tree[key] for key in _TIME_KEYS if isinstance(tree.get(key), str)), "")
    time = _TIME.match(f"{said} ")
    if time:
        found.at = found.at or _time(time[1], time[2])
        found.order = found.order or time[1].replace("T", " ")
    return str(message).rstrip("\n")


def _time(text: str, zone: str | None) -> datetime | None:
    try:
        time = datetime.fromisoformat(text.replace(" ", "T") + (zone or "").replace("Z", "+00:00"))
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)
