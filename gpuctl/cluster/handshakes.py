"""Looks at the certificates that pods show, through port-forward: with consent, announced, after a review.

Nothing is verified here and nothing is sent but the handshake: what a certificate is worth is judged later.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from gpuctl.cluster import errors
from gpuctl.cluster.connection import Connection
from gpuctl.cluster.deadline import Deadline, in_background
from gpuctl.cluster.reviews import Place, Reviews
from gpuctl.cluster.sink import Sink
from gpuctl.facts.fact import PORT_FORWARD
from gpuctl.facts.state import Each, Known, NotKnown, Reason, State, Unknown, attempt
from gpuctl.facts.tls import Handshake, ServedPort

if TYPE_CHECKING:
    from websocket import WebSocket

SECONDS: Final = 10.0  # as long as the API server gives a webhook
TRIES: Final = 3
PAUSE: Final = 2.0
AT_ONCE: Final = 3
PROTOCOL: Final = "v4.channel.k8s.io"
_DATA, _ERROR = b"\x00", b"\x01"
_GREETING: Final = 2  # bytes: the number of the port, first on each channel


class _Broken(Exception):
    """The pod's side has ended the stream; the message is its own."""


@dataclass(frozen=True, slots=True)
class Handshaker:
    """Shakes hands through a connection, all of it over by the deadline."""

    connection: Connection
    deadline: Deadline
    sink: Sink
    reviews: Reviews
    consent: bool
    announce: Callable[[str], None]

    def handshakes(self, ports: Collection[ServedPort]) -> Each[ServedPort, Handshake]:
        """What each port showed."""
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="gpuctl-handshake") as pool:
            return Each(dict(zip(ports, pool.map(self._state, ports), strict=True)))

    def _state(self, port: ServedPort) -> State[Handshake]:
        found = attempt(lambda: self._permitted(port))
        if isinstance(found, Known):
            self.sink.handshake(port, found.value)
            return found
        gap = Unknown(found.reason, found.message, str(port)) if isinstance(found, Unknown) else None
        if gap:
            self.sink.missing_handshake(port, gap)
        return gap or found

    def _permitted(self, port: ServedPort) -> Handshake:
        if not self.consent:
            why = "its certificate is looked at through port-forward only with --probe"
            raise NotKnown(Unknown(Reason.NOT_ASKED, why))
        lack = self.reviews.lack(*sorted(PORT_FORWARD), place=Place(port.pod.namespace))
        if lack:
            raise NotKnown(lack)
        self.announce(f"looking at the certificate of {port} through port-forward to {port.pod}")
        return self._tried(port)

    def _tried(self, port: ServedPort) -> Handshake:
        """A handshake; one that fails is tried again, for the pod may be restarting."""
        for number in range(1, TRIES + 1):
            found = self._once(port)
            if not found.error or number == TRIES or self.deadline.left < PAUSE + SECONDS:
                break
            time.sleep(PAUSE)
        return found

    def _once(self, port: ServedPort) -> Handshake:
        limit = self.deadline.sooner(SECONDS)
        at = datetime.now(UTC)
        try:
            chain = limit.result(str(port), in_background(lambda: self._chain(port, limit)))
        except (_Broken, ssl.SSLError, TimeoutError) as error:
            return Handshake(at, port.server_name, error=errors.one_line(_plain(error)))
        except NotKnown as gap:
            if isinstance(gap.state, Unknown) and gap.state.reason is Reason.TIMEOUT and self.deadline.left:
                return Handshake(at, port.server_name, error=f"no answer within {SECONDS:g} s")
            raise
        return Handshake(at, port.server_name, chain)

    def _chain(self, port: ServedPort, limit: Deadline) -> tuple[str, ...]:
        with closing(self.connection.socket(_path(port), PROTOCOL, str(port), limit)) as socket:
            socket.settimeout(max(0.001, limit.left))
            return _shaken(_Stream(socket), port.server_name)


def _path(port: ServedPort) -> str:
    namespace, pod = quote(port.pod.namespace, safe=""), quote(port.pod.name, safe="")
    return f"/api/v1/namespaces/{namespace}/pods/{pod}/portforward?ports={port.pod_port}"


def _plain(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return f"no TLS: {error.reason or error}"
    return str(error) or "no answer in time"


class _Stream:
    """The bytes of one forwarded port."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._skip = {_DATA: _GREETING, _ERROR: _GREETING}

    def send(self, data: bytes) -> None:
        self._socket.send_binary(_DATA + data)

    def receive(self) -> bytes:
        """What comes next. Raises _Broken at the end."""
        import websocket

        while True:
            try:
                frame = self._socket.recv()
            except websocket.WebSocketTimeoutException as late:
                raise TimeoutError("no answer in time") from late
            except (websocket.WebSocketException, OSError) as error:
                raise _Broken(f"the connection was closed: {error}") from error
            data = self._without_greeting(frame if isinstance(frame, bytes) else frame.encode())
            if data is not None:
                return data

    def _without_greeting(self, frame: bytes) -> bytes | None:
        if not frame:
            raise _Broken("the connection was closed")
        channel, data = frame[:1], frame[1:]
        skip = self._skip.get(channel, 0)
        self._skip[channel] = skip - min(skip, len(data))
        data = data[skip:]
        if channel == _ERROR and data:
            raise _Broken(data.decode(errors="replace"))
        return data if channel == _DATA and data else None


def _shaken(stream: _Stream, name: str) -> tuple[str, ...]:
    """The chain that a server shows to one who asks for this name, its own certificate first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # it is the certificate that is wanted, a bad one above all
    context.verify_mode = ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname=name)
    while True:
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            stream.send(outgoing.read())
            incoming.write(stream.receive())
        else:
            return tuple(ssl.DER_cert_to_PEM_cert(each) for each in _certificates(tls))


def _certificates(tls: Any) -> tuple[bytes, ...]:
    """Public from Python 3.13 on; before, the object inside has it."""
    if hasattr(tls, "get_unverified_chain"):
        return tuple(tls.get_unverified_chain())
    der = 2  # _ssl.ENCODING_DER
    return tuple(each.public_bytes(der) for each in tls._sslobj.get_unverified_chain())
