"""An API server that answers what a test tells it to, over plain HTTP on the loopback interface."""

from __future__ import annotations

import json
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

JSON = "application/json"


class Exchange(BaseHTTPRequestHandler):
    """One request, and the means to answer it well or badly."""

    protocol_version = "HTTP/1.1"
    server: _Server

    @property
    def query(self) -> dict[str, str]:
        return {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}

    def do_GET(self) -> None:
        self.server.api.answer(self)

    def do_POST(self) -> None:
        sent = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.api.sent.append((self.path, json.loads(sent)))
        self.server.api.answer(self)

    do_PATCH = do_DELETE = do_POST  # noqa: N815 - names that the server looks for

    def send(self, status: int, body: bytes, kind: str = JSON, headers: Mapping[str, str] = {}) -> None:
        self.begin(status, len(body), kind, headers)
        self.wfile.write(body)

    def begin(self, status: int, length: int, kind: str = JSON, headers: Mapping[str, str] = {}) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(length))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name it has in its parent
        pass


Behaviour = Callable[[Exchange], None]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    api: FakeApi

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


@dataclass
class FakeApi:
    """Behaviours by path: the first request meets the first one, and so on; the last one stays."""

    url: str = ""
    behaviours: dict[str, list[Behaviour]] = field(default_factory=dict)
    requests: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)  # path with query, headers
    sent: list[tuple[str, Any]] = field(default_factory=list)  # path with query, body of a POST
    _lock: Lock = field(default_factory=Lock)

    def on(self, path: str, *behaviours: Behaviour) -> FakeApi:
        self.behaviours[path] = list(behaviours)
        return self

    def answer(self, exchange: Exchange) -> None:
        path = urlsplit(exchange.path).path
        with self._lock:
            self.requests.append((exchange.path, dict(exchange.headers)))
            waiting = self.behaviours.get(path, [no_such_path])
            behaviour = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        behaviour(exchange)

    def asked(self, path: str) -> int:
        """How often the path was asked for."""
        return sum(urlsplit(each).path == path for each, _ in self.requests)


@contextmanager
def fake_api(tls: ssl.SSLContext | None = None) -> Iterator[FakeApi]:
    server = _Server(("127.0.0.1", 0), Exchange)
    port = server.server_address[1]
    url = f"https://localhost:{port}" if tls else f"http://127.0.0.1:{port}"
    server.api = FakeApi(url).on("/apis", groups())
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield server.api
    finally:
        server.shutdown()
        server.server_close()


# Good answers


def body(content: Any) -> Behaviour:
    return lambda exchange: exchange.send(200, json.dumps(content, separators=(",", ":")).encode())


def a_list(kind: str, items: Sequence[Any], metadata_last: bool = False) -> Behaviour:
    """A list in pages as long as the client wants them. The token is the number of the next object."""

    def answer(exchange: Exchange) -> None:
        start = int(exchange.query.get("continue", "0"))
        end = start + int(exchange.query["limit"])
        metadata = {"resourceVersion": "7", **({"continue": str(end)} if end < len(items) else {})}
        content: dict[str, Any] = {"kind": f"{kind}List", "apiVersion": "v1"}
        parts = [("metadata", metadata), ("items", items[start:end])]
        content.update(reversed(parts) if metadata_last else parts)
        body(content)(exchange)

    return answer


def from_second_page(then: Behaviour, first: Behaviour) -> Behaviour:
    """The first page as it should be, and trouble after it."""
    return lambda exchange: (then if "continue" in exchange.query else first)(exchange)


def group(name: str, *versions: str) -> Behaviour:
    named = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return body({"kind": "APIGroup", "name": name, "versions": named, "preferredVersion": named[0]})


def groups(*names: str) -> Behaviour:
    """All API groups, as discovery lists them."""
    return body({"kind": "APIGroupList", "groups": [{"name": name} for name in names]})


def resources(*plurals: str) -> Behaviour:
    return body({"kind": "APIResourceList", "resources": [{"name": plural} for plural in plurals]})


# Bad answers


def status(code: int, reason: str, message: str, headers: Mapping[str, str] = {}) -> Behaviour:
    content = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    text = json.dumps({**content, "message": message, "reason": reason, "code": code}).encode()
    return lambda exchange: exchange.send(code, text, headers=headers)


def text(code: int, content: str, kind: str = "text/plain", headers: Mapping[str, str] = {}) -> Behaviour:
    return lambda exchange: exchange.send(code, content.encode(), kind, headers)


def no_such_path(exchange: Exchange) -> None:
    text(404, "404 page not found\n")(exchange)


def cut_off(exchange: Exchange) -> None:
    """Half of the promised body, then an orderly end of the connection."""
    exchange.begin(200, 1000)
    exchange.wfile.write(b'{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[{"meta')
    exchange.close_connection = True


def stall(exchange: Exchange) -> None:
    time.sleep(20)


def drip(exchange: Exchange) -> None:
    """A byte now and then, for longer than any test waits."""
    exchange.begin(200, 1000)
    for _ in range(200):
        exchange.wfile.write(b" ")
        exchange.wfile.flush()
        time.sleep(0.1)


def reset(exchange: Exchange) -> None:
    linger = struct.pack("ii", 1, 0)  # closing now sends RST
    exchange.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    exchange.connection.shutdown(socket.SHUT_RD)
    exchange.close_connection = True
    exchange.connection.close()
