"""The beginnings of containers' logs, read from a live cluster: many at once, each within its own time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, TypeVar
from urllib.parse import quote, urlencode

from gpuctl.cluster import errors
from gpuctl.cluster.connection import Connection, Reply
from gpuctl.cluster.deadline import Deadline, in_background
from gpuctl.cluster.sink import Sink
from gpuctl.facts.kinds import Log, LogReading
from gpuctl.facts.state import Each, Known, NotKnown, Reason, State, Unknown, attempt

T = TypeVar("T")

STEPS: Final = (1 << 17, 1 << 20)  # bytes from the beginning: what matters is said when a process starts
LAST_LINES: Final = 100  # of a longer log, for what changes: how busy it is
SECONDS: Final = 15.0  # for one log: a kubelet that hangs costs no more
AT_ONCE: Final = 12

# What the API server says of a container that never wrote one, or never ran before.
_NEVER_WRITTEN: Final = (
    "is waiting to start",
    "previous terminated container",
    "is not available",
    "PodInitializing",
)
_KUBELET_FAILED: Final = (b"unable to retrieve container logs", b"failed to try resolving symlinks")
_OK, _BAD_REQUEST, _NOT_FOUND = 200, 400, 404


@dataclass(frozen=True, slots=True)
class LogReader:
    """Reads logs through a connection, all of it over by the deadline."""

    connection: Connection
    deadline: Deadline
    sink: Sink
    told: Callable[[str], None] = lambda _: None

    def read(self, logs: Collection[Log], reading: LogReading[T]) -> Each[Log, T]:
        """Every log there is, parsed as it arrives: no more than a few texts are held at once."""
        entries = {log: state for log, state in self._states(logs, reading) if state is not None}
        self.sink.logs_complete()
        return Each(entries)

    def _states(self, logs: Collection[Log], reading: LogReading[T]) -> Iterator[tuple[Log, State[T] | None]]:
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="gpuctl-log") as pool:
            states = pool.map(lambda log: self._one(log, reading), logs)
            for number, (log, state) in enumerate(zip(logs, states, strict=True), start=1):
                self.told(f"{number} of {len(logs)} logs")
                yield log, state

    def _one(self, log: Log, reading: LogReading[T]) -> State[T] | None:
        """None if the container never wrote this log. A mistake in `reading` costs this log alone."""
        try:
            return self._in_steps(log, reading)
        except NotKnown as gap:
            if isinstance(gap.state, Unknown):
                self.sink.missing_log(log, gap.state)
            return gap.state
        except Exception as error:  # noqa: BLE001 - the border around one entry: a bug here must not cost the others
            return Unknown(Reason.INTERNAL, f"{type(error).__name__}: {error}", str(log))

    def _in_steps(self, log: Log, reading: LogReading[T]) -> State[T] | None:
        """More of the beginning if the first bytes do not tell, and the end of a log that goes on."""
        for limit in STEPS:
            text = self._text(log, limitBytes=limit)
            if text is None:
                return None
            cut = len(text) >= limit * 9 // 10  # characters, where the limit counts bytes
            if not cut or limit == STEPS[-1] or reading.enough(reading.parse(text)):
                return self._whole(log, reading, text, limit if cut else None)
        raise AssertionError("unreachable")

    def _whole(self, log: Log, reading: LogReading[T], beginning: str, cut_at: int | None) -> State[T]:
        end = attempt(lambda: self._end(log)) if cut_at is not None else Known("")
        lost = end if isinstance(end, Unknown) else None
        text = f"{beginning}\n{end.value}" if isinstance(end, Known) and end.value else beginning
        self.sink.log(log, lambda: reading.keep(text), cut_at=cut_at, lost=lost)
        found = reading.parse(text)
        return Known(found if lost is None else reading.without_end(found, lost))

    def _end(self, log: Log) -> str:
        """The last lines of a long log. Where they can't be had the beginning counts all the same."""
        return self._text(log, tailLines=LAST_LINES, limitBytes=STEPS[0]) or ""

    def _text(self, log: Log, **limits: int) -> str | None:
        reply = self._reply(log, limits)
        if reply.status == _NOT_FOUND and errors.is_absent(reply.body):
            return None
        if reply.status == _BAD_REQUEST and any(words.encode() in reply.body for words in _NEVER_WRITTEN):
            return None
        if reply.status != _OK:
            raise NotKnown(errors.of_status(reply.status, reply.body, str(log)))
        if errors.is_html(reply.body):  # each line of a log begins with its time
            raise NotKnown(errors.of_body(reply.body, ValueError(), str(log)))
        if reply.body.startswith(_KUBELET_FAILED):
            message = errors.one_line(reply.body[: errors.LONGEST].decode(errors="replace"))
            raise NotKnown(Unknown(Reason.SERVER_ERROR, message, str(log)))
        return reply.body.decode(errors="replace")

    def _reply(self, log: Log, limits: Mapping[str, int]) -> Reply:
        limit = self.deadline.sooner(SECONDS)
        what = str(log)
        request = in_background(lambda: self.connection.get(_path(log, limits), what, limit))
        return limit.result(what, request)


def _path(log: Log, limits: Mapping[str, int]) -> str:
    query = {"container": log.container, "timestamps": "true", **limits}
    if log.previous:
        query["previous"] = "true"
    namespace, pod = quote(log.pod.namespace, safe=""), quote(log.pod.name, safe="")
    return f"/api/v1/namespaces/{namespace}/pods/{pod}/log?{urlencode(query)}"
