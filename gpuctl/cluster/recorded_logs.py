"""The logs that a record holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from gpuctl.cluster.archive import Damaged, File
from gpuctl.cluster.capture import EVERYTHING, Capture, Scope
from gpuctl.facts.kinds import Log
from gpuctl.facts.state import Known, Reason, State, Unknown

T = TypeVar("T")

FOLDER: Final = "logs"
RESOURCE: Final = "pods/log"
NOT_HELD: Final = "the snapshot does not hold it"


def path(log: Log) -> str:
    """Where a record keeps a log."""
    suffix = ".previous.log" if log.previous else ".log"
    return f"{FOLDER}/{log.pod.namespace}/{log.pod.name}/{log.container}{suffix}"


def recorded(
    file: File | None, capture: Capture | None, log: Log, parse: Callable[[str], T]
) -> State[T] | None:
    """A log of the record, parsed; None if the record says that it was never written."""
    if file is not None:
        return _parsed(file, log, parse)
    gap = _missing(capture, log)
    if gap is not None:
        return gap
    return None if _complete(capture) or log.previous else Unknown(Reason.NOT_ASKED, NOT_HELD, str(log))


def _parsed(file: File, log: Log, parse: Callable[[str], T]) -> State[T]:
    try:
        text = file.text().decode(errors="replace")
    except Damaged as error:
        return Unknown(Reason.MALFORMED, f"{file.path}: {error}", str(log))
    return Known(parse(text))


def _missing(capture: Capture | None, log: Log) -> Unknown | None:
    for gap in capture.missing if capture else ():
        named = (gap.namespace, gap.name, gap.container)
        asked = (log.pod.namespace, log.pod.name, log.container)
        if gap.resource == RESOURCE and all(
            its in ("", mine) for its, mine in zip(named, asked, strict=True)
        ):
            return Unknown(gap.reason, gap.message, str(log))
    return None


def _complete(capture: Capture | None) -> bool:
    return capture is not None and any(
        scope in (Scope(RESOURCE), Scope(EVERYTHING)) for scope in capture.scopes()
    )
