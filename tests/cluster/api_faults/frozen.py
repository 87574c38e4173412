"""A cluster that stands still: each answer of the real API server is kept and given again.

Hundreds of runs are held against one another, and a cluster changes by itself. What was never asked for
before goes to the real one.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import io
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cluster.bed.faultproxy import PIECE, FaultProxy, Request, Upstream

_MARK = re.compile(rb"gpuctl-[0-9a-f]{16}")  # one of each run's own, around what nodes say
_ACCEPT = re.compile(rb"(?i)(?<=sec-websocket-accept: )\S+")
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
Key = tuple[str, str, str, bytes]


@dataclass
class Kept:
    """What was answered, by request: whole answers, and what came on streams."""

    answers: dict[Key, bytes] = field(default_factory=dict)
    streams: dict[Key, bytes] = field(default_factory=dict)


@contextmanager
def frozen_proxy(kubeconfig: Path, kept: Kept) -> Iterator[FaultProxy]:
    """A fault proxy in front of the cluster as it was when each thing was first asked for."""
    with FaultProxy(kubeconfig) as proxy:
        proxy.upstream = Frozen(**vars(proxy.upstream), kept=kept)
        yield proxy


@dataclass(frozen=True)
class Frozen(Upstream):
    """The real API server, asked once for each thing."""

    kept: Kept

    def ask(self, request: Request, *, plain: bool = False) -> http.client.HTTPResponse:
        key = _key(request)
        if key not in self.kept.answers:
            with super().ask(request, plain=True) as response:
                self.kept.answers[key] = _raw(response)
        return _response(self.kept.answers[key], request.verb)

    def dial(self, request: Request) -> socket.socket:
        if not request.path.endswith("/exec"):
            return super().dial(request)
        ours, theirs = socket.socketpair()
        stream = self.kept.streams.get(_key(request))
        work = self._record if stream is None else _replay
        threading.Thread(target=work, args=(theirs, request, stream), daemon=True).start()
        return ours

    def _record(self, client: socket.socket, request: Request, _: None) -> None:
        heard = bytearray()
        with client, super().dial(request) as server:
            answering = threading.Thread(target=_copy, args=(client, server), daemon=True)
            answering.start()
            with suppress(OSError):
                while piece := server.recv(PIECE):
                    heard += piece
                    client.sendall(piece)
        self.kept.streams[_key(request)] = bytes(heard)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(PIECE):
            target.sendall(piece)


def _replay(client: socket.socket, request: Request, stream: bytes) -> None:
    """The stream as another run would have heard it: with its mark, and the answer to its key."""
    mark = _MARK.search(request.query.encode())
    accept = base64.b64encode(hashlib.sha1(_header(request, "Sec-WebSocket-Key") + _GUID).digest())
    head, end, rest = stream.partition(b"\r\n\r\n")
    text = _ACCEPT.sub(accept, head) + end + (_MARK.sub(mark[0], rest) if mark else rest)
    with client, suppress(OSError):
        client.sendall(text)
        while client.recv(PIECE):
            pass


def _header(request: Request, name: str) -> bytes:
    return next((value for key, value in request.headers.items() if key.lower() == name.lower()), "").encode()


def _key(request: Request) -> Key:
    query = _MARK.sub(b"", request.query.encode()).decode()
    return request.verb, request.path, query, request.body


def _raw(response: http.client.HTTPResponse) -> bytes:
    body = response.read()
    left_out = {"transfer-encoding", "content-length", "connection"}
    headers = [(name, value) for name, value in response.getheaders() if name.lower() not in left_out]
    headers.append(("Content-Length", str(len(body))))
    head = "".join(f"{name}: {value}\r\n" for name, value in headers)
    return f"HTTP/1.1 {response.status} {response.reason}\r\n{head}\r\n".encode() + body


class _Socket:
    """As much of a socket as an answer is read from."""

    def __init__(self, text: bytes) -> None:
        self._text = text

    def makefile(self, *_: Any) -> io.BytesIO:
        return io.BytesIO(self._text)


def _response(text: bytes, verb: str) -> http.client.HTTPResponse:
    response = http.client.HTTPResponse(_Socket(text), method=verb)  # type: ignore[arg-type]
    response.begin()
    return response
