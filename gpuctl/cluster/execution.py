"""Runs a command in a container through the API server, as `kubectl exec` does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

import msgspec

from gpuctl.cluster.connection import Connection
from gpuctl.cluster.deadline import Deadline
from gpuctl.facts.nodes import Place
from gpuctl.facts.state import NotKnown, Reason, Unknown

if TYPE_CHECKING:
    from websocket import WebSocket

PROTOCOL: Final = "v4.channel.k8s.io"
LARGEST: Final = 16 << 20  # bytes of one stream; no command says so much that means well
_STDOUT, _STDERR, _ERROR = 1, 2, 3


class _Cause(msgspec.Struct, frozen=True):
    reason: str = ""
    message: str = ""


class _Details(msgspec.Struct, frozen=True):
    causes: tuple[_Cause, ...] = ()


class _Status(msgspec.Struct, frozen=True):
    status: str = ""
    message: str = ""
    details: _Details | None = None


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command printed. `failure`: why there is no exit code; then the texts may be cut off."""

    stdout: str
    stderr: str
    code: int = 0
    failure: Unknown | None = None


def execute(connection: Connection, place: Place, command: Sequence[str], deadline: Deadline) -> Ran:
    """Runs a command. Raises `NotKnown` if it can't even be started."""
    query = [("container", place.container), ("stdout", "true"), ("stderr", "true")]
    query += [("command", word) for word in command]
    namespace, pod = quote(place.namespace, safe=""), quote(place.pod, safe="")
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/exec?{urlencode(query)}"
    what = f"exec in {place}"
    socket = connection.socket(path, PROTOCOL, what, deadline)
    try:
        return _received(socket, what, deadline)
    finally:
        socket.close(timeout=0)


def _received(socket: WebSocket, what: str, deadline: Deadline) -> Ran:
    import websocket

    streams: dict[int, bytearray] = {_STDOUT: bytearray(), _STDERR: bytearray(), _ERROR: bytearray()}
    failure: Unknown | None = None
    while failure is None and not streams[_ERROR]:
        try:
            socket.settimeout(max(deadline.left, 0.001))
            opcode, data = socket.recv_data()
        except websocket.WebSocketTimeoutException:
            failure = _state(deadline.passed(what))
        except (websocket.WebSocketException, OSError) as error:
            failure = Unknown(Reason.UNREACHABLE, f"the connection broke: {error}", what)
        else:
            if opcode == websocket.ABNF.OPCODE_CLOSE:
                failure = Unknown(Reason.UNREACHABLE, "the connection was closed before the end", what)
            elif data and data[0] in streams:
                streams[data[0]] += data[1:]
            if len(streams[_STDOUT]) > LARGEST or len(streams[_STDERR]) > LARGEST:
                failure = Unknown(Reason.MALFORMED, f"printed more than {LARGEST >> 20} MiB", what)
    stdout, stderr = (streams[each].decode(errors="replace") for each in (_STDOUT, _STDERR))
    if failure is not None:
        return Ran(stdout, stderr, failure=failure)
    return _ended(stdout, stderr, bytes(streams[_ERROR]), what)


def _ended(stdout: str, stderr: str, status: bytes, what: str) -> Ran:
    """The exit code stands among the causes of a Status; without one, the command did not run."""
    try:
        told = msgspec.json.decode(status, type=_Status)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return Ran(stdout, stderr, failure=Unknown(Reason.MALFORMED, str(error), what))
    if told.status == "Success":
        return Ran(stdout, stderr)
    for cause in told.details.causes if told.details else ():
        if cause.reason == "ExitCode" and cause.message.isdecimal():
            return Ran(stdout, stderr, int(cause.message))
    return Ran(stdout, stderr, failure=Unknown(Reason.SERVER_ERROR, told.message, what))


def _state(gap: NotKnown) -> Unknown:
    state: Any = gap.state
    return state if isinstance(state, Unknown) else Unknown(Reason.TIMEOUT, str(state))
