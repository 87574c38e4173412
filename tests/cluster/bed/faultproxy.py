"""An HTTP proxy in front of an API server that can answer in its place: refuse, lie, dawdle, drop.

    with FaultProxy(kubeconfig) as proxy:
        proxy.fault(path="/api/v1/pods", verb="GET", answer=Forbidden(), times=1)
        run("gpuctl", "check", f"--kubeconfig={proxy.kubeconfig}")
        assert [request.path for request in proxy.requests] == [...]

What no fault is meant for is passed on with the kubeconfig's credentials, or those the client sends. Clients
speak plain HTTP with it; it listens on loopback only. Watches, followed logs and exec pass through.
"""

import base64
import http.client
import json
import re
import selectors
import shutil
import socket
import ssl
import struct
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self
from urllib.parse import urlsplit

import yaml

HOP_BY_HOP = {"connection", "keep-alive", "te", "trailer", "upgrade", "host"}
FRAMING = {"transfer-encoding", "content-length"}
PIECE = 1 << 16
Headers = Iterable[tuple[str, str]]
RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER of no time: close sends RST


# --- what is seen and what is asked -----------------------------------------------------------------------


@dataclass(frozen=True)
class Request:
    """A request that the proxy saw."""

    at: datetime
    verb: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes


@dataclass
class Fault:
    """For which requests an answer is meant: the whole path, somewhere in the query, the whole body if one
    is named, some occurrences."""

    answer: "Answer"
    path: re.Pattern[str]
    query: re.Pattern[str]
    body: bytes | None
    verb: str
    after: int
    times: int | None
    hits: int = 0

    def takes(self, request: Request) -> bool:
        """Whether to answer this request; counts it if it is of the kind."""
        if not (
            self.verb in ("*", request.verb)
            and self.path.fullmatch(request.path)
            and self.query.search(request.query)
            and self.body in (None, request.body)
            and self.answer.is_for(request)
        ):
            return False
        self.hits += 1
        return self.after < self.hits <= self.after + (self.times or self.hits)


# --- answers ----------------------------------------------------------------------------------------------


class Answer:
    """What the client gets in place of the API server's answer."""

    def is_for(self, request: Request) -> bool:
        """Whether this answer makes sense for a request."""
        return True

    def give(self, exchange: "Exchange") -> None:
        """Answer."""
        raise NotImplementedError


@dataclass(frozen=True)
class Refusal(Answer):
    """A Status object, as the API server writes it."""

    message: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    code: ClassVar[int]
    reason: ClassVar[str]

    def give(self, exchange: "Exchange") -> None:
        message = self.message or f"{self.reason}, says the proxy"
        status = {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": self.reason, "details": {}, "code": self.code,
        }  # fmt: skip
        exchange.reply(self.code, json.dumps(status).encode(), self.headers)


class Unauthorized(Refusal):
    """The credentials are not taken."""

    code, reason = 401, "Unauthorized"


class Forbidden(Refusal):
    """RBAC says no."""

    code, reason = 403, "Forbidden"


class NotFound(Refusal):
    """No such object, or no such kind."""

    code, reason = 404, "NotFound"


class Conflict(Refusal):
    """The object has changed meanwhile."""

    code, reason = 409, "Conflict"


class InternalError(Refusal):
    """A webhook or etcd failed."""

    code, reason = 500, "InternalError"


class Unavailable(Refusal):
    """Nobody serves an aggregated API."""

    code, reason = 503, "ServiceUnavailable"


class Expired(Refusal):
    """The continue token is too old: only in the middle of a list."""

    code, reason = 410, "Expired"

    def is_for(self, request: Request) -> bool:
        return "continue=" in request.query


class Gone(Refusal):
    """What is asked for is too old, wherever that is said."""

    code, reason = 410, "Gone"


@dataclass(frozen=True)
class TooManyRequests(Answer):
    """Priority and fairness says no: plain text, and when to come again."""

    retry_after: int = 1

    def give(self, exchange: "Exchange") -> None:
        headers = {"Retry-After": str(self.retry_after), "Content-Type": "text/plain; charset=utf-8"}
        exchange.reply(429, b"Too many requests, please try again later.\n", headers)


@dataclass(frozen=True)
class GatewayPage(Answer):
    """A load balancer answers in HTML."""

    code: int = 502

    def give(self, exchange: "Exchange") -> None:
        page = (
            f"<html>\r\n<head><title>{self.code} Bad Gateway</title></head>\r\n<body></body>\r\n</html>\r\n"
        )
        exchange.reply(self.code, page.encode(), {"Content-Type": "text/html"})


@dataclass(frozen=True)
class Truncated(Answer):
    """The real answer breaks off after so many bytes, though its length was announced."""

    length: int = 100

    def give(self, exchange: "Exchange") -> None:
        code, headers, body = exchange.fetch()
        exchange.begin(code, headers, len(body))
        exchange.send(body[: self.length])
        exchange.hang_up()


@dataclass(frozen=True)
class Slow(Answer):
    """The real answer comes in pieces, spread over some time."""

    seconds: float
    pieces: int = 10

    def give(self, exchange: "Exchange") -> None:
        code, headers, body = exchange.fetch()
        exchange.begin(code, headers, len(body))
        size = len(body) // self.pieces + 1
        for start in range(0, self.pieces * size, size):
            exchange.pause(self.seconds / self.pieces)
            exchange.send(body[start : start + size])


@dataclass(frozen=True)
class Late(Answer):
    """The real answer begins after some time."""

    seconds: float

    def give(self, exchange: "Exchange") -> None:
        exchange.pause(self.seconds)
        exchange.forward()


@dataclass(frozen=True)
class Severed(Answer):
    """An upgraded connection breaks off after so many bytes of the API server's."""

    length: int = 200

    def give(self, exchange: "Exchange") -> None:
        exchange.tunnel(self.length)


class Dropped(Answer):
    """The connection is reset."""

    def give(self, exchange: "Exchange") -> None:
        exchange.reset()


@dataclass(frozen=True)
class Stalled(Answer):
    """Nothing comes for so long, then a reset."""

    seconds: float = 3600

    def give(self, exchange: "Exchange") -> None:
        exchange.pause(self.seconds)
        exchange.reset()


@dataclass(frozen=True)
class Raw(Answer):
    """This body, whatever it is."""

    body: bytes
    code: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)

    def give(self, exchange: "Exchange") -> None:
        exchange.reply(self.code, self.body, self.headers)


@dataclass(frozen=True)
class Transformed(Answer):
    """The real answer after a change to its JSON."""

    change: Callable[[Any], Any]

    def give(self, exchange: "Exchange") -> None:
        code, headers, body = exchange.fetch()
        changed = json.dumps(self.change(json.loads(body))).encode()
        exchange.begin(code, headers, len(changed))
        exchange.send(changed)


# --- upstream ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Upstream:
    """The API server of a kubeconfig, and the credentials to use there."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    tls_anonymous: ssl.SSLContext | None
    authorization: str | None

    @classmethod
    def of(cls, kubeconfig: Path, folder: Path) -> Self:
        """Read a kubeconfig; the folder takes what must be a file."""
        config = yaml.safe_load(kubeconfig.read_text())
        context = _named(config["contexts"], config["current-context"])["context"]
        cluster = _named(config["clusters"], context["cluster"])["cluster"]
        user = _named(config["users"], context["user"])["user"] or {}
        files = _Files(kubeconfig.parent, folder)
        server = urlsplit(cluster["server"])
        secure = server.scheme == "https"
        token = user.get("token") or _text(files.of(user, "tokenFile"))
        return cls(
            host=server.hostname or "",
            port=server.port or (443 if secure else 80),
            tls=_tls(cluster, user, files) if secure else None,
            tls_anonymous=_tls(cluster, {}, files) if secure else None,
            authorization=f"Bearer {token}" if token else None,
        )

    def headers(self, request: Request) -> dict[str, str]:
        """The client's headers, and the credentials if it brings none."""
        headers = dict(_end_to_end(request.headers.items()))
        if self.authorization and not _brings_credentials(request):
            headers["Authorization"] = self.authorization
        return headers

    def _context(self, request: Request) -> ssl.SSLContext | None:
        return self.tls_anonymous if _brings_credentials(request) else self.tls

    def ask(self, request: Request, *, plain: bool = False) -> http.client.HTTPResponse:
        """Pass a request on; `plain`: no compression."""
        headers = self.headers(request)
        if plain:
            headers = {name: value for name, value in headers.items() if name.lower() != "accept-encoding"}
        context = self._context(request)
        connection = (
            http.client.HTTPSConnection(self.host, self.port, context=context)
            if context
            else http.client.HTTPConnection(self.host, self.port)
        )
        headers["Connection"] = "close"
        connection.request(request.verb, _target(request), request.body or None, headers)
        return connection.getresponse()

    def dial(self, request: Request) -> socket.socket:
        """A connection on which the request's head has been sent, for what is no plain HTTP after it."""
        head = f"{request.verb} {_target(request)} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\n"
        switching = ("connection", "upgrade")
        kept = {name: value for name, value in request.headers.items() if name.lower() in switching}
        lines = "".join(f"{name}: {value}\r\n" for name, value in (self.headers(request) | kept).items())
        connection = socket.create_connection((self.host, self.port))
        if context := self._context(request):
            connection = context.wrap_socket(connection, server_hostname=self.host)
        connection.sendall(f"{head}{lines}\r\n".encode())
        return connection


def _end_to_end(headers: Headers) -> Iterator[tuple[str, str]]:
    return ((name, value) for name, value in headers if name.lower() not in HOP_BY_HOP | FRAMING)


def _target(request: Request) -> str:
    return f"{request.path}?{request.query}" if request.query else request.path


def _brings_credentials(request: Request) -> bool:
    return any(name.lower() == "authorization" for name in request.headers)


def _named(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(entry for entry in entries if entry["name"] == name)


@dataclass(frozen=True)
class _Files:
    """What a kubeconfig holds as file or as data, as files."""

    base: Path
    folder: Path

    def of(self, section: Mapping[str, Any], key: str) -> Path | None:
        """The file of an entry, if there is one."""
        if data := section.get(f"{key}-data"):
            file = self.folder / key
            file.touch(mode=0o600)
            file.write_bytes(base64.b64decode(data))
            return file
        return self.base / section[key] if key in section else None


def _tls(cluster: Mapping[str, Any], user: Mapping[str, Any], files: _Files) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=files.of(cluster, "certificate-authority"))
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate := files.of(user, "client-certificate"):
        context.load_cert_chain(certificate, files.of(user, "client-key"))
    return context


def _text(file: Path | None) -> str:
    return file.read_text().strip() if file else ""


# --- the proxy --------------------------------------------------------------------------------------------


class FaultProxy:
    """The proxy; it runs while it is entered."""

    def __init__(self, kubeconfig: Path) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="faultproxy-"))
        self._lock = threading.Lock()
        self._faults: list[Fault] = []
        self._requests: list[Request] = []
        self.closing = threading.Event()
        self.upstream = Upstream.of(kubeconfig, self._folder)
        self._server = _Server(self)
        self.kubeconfig = self._write_kubeconfig()

    @property
    def url(self) -> str:
        """Where the proxy listens."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def requests(self) -> list[Request]:
        """All requests so far, in the order in which they came."""
        with self._lock:
            return list(self._requests)

    def fault(
        self,
        answer: Answer,
        *,
        path: str,
        query: str = "",
        body: bytes | None = None,
        verb: str = "*",
        after: int = 0,
        times: int | None = None,
    ) -> Fault:
        """From now on answer like this: `times` requests of the kind (or all), after `after` other ones.

        `path` is a pattern of the whole path, `query` one found anywhere in it, `body` the whole body. Later
        faults go first.
        """
        fault = Fault(answer, re.compile(path), re.compile(query), body, verb, after, times)
        with self._lock:
            self._faults.insert(0, fault)
        return fault

    def clear(self) -> None:
        """Forget faults and requests."""
        with self._lock:
            self._faults.clear()
            self._requests.clear()

    def answer_to(self, request: Request) -> Answer | None:
        """Note a request and say how to answer it; None: as the API server does."""
        with self._lock:
            self._requests.append(request)
            return next((fault.answer for fault in self._faults if fault.takes(request)), None)

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._server.hang_up()
        shutil.rmtree(self._folder)

    def _write_kubeconfig(self) -> Path:
        file = self._folder / "kubeconfig"
        names = {"cluster": "proxy", "user": "proxy"}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "proxy", "cluster": {"server": self.url}}],
            "users": [{"name": "proxy", "user": {}}],
            "contexts": [{"name": "proxy", "context": names}],
            "current-context": "proxy",
        }
        file.write_text(yaml.safe_dump(content))
        return file


class _Server(ThreadingHTTPServer):
    """One thread per connection; knows the open ones, to end them with the proxy."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, proxy: FaultProxy) -> None:
        self.proxy = proxy
        self.connections: set[socket.socket] = set()
        super().__init__(("127.0.0.1", 0), Exchange)

    def hang_up(self) -> None:
        """End all connections."""
        for connection in list(self.connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients may go away: no word about that."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class Exchange(BaseHTTPRequestHandler):
    """One connection of a client; each request is answered by a fault, or forwarded."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server
    asked: Request

    def setup(self) -> None:
        super().setup()
        self.server.connections.add(self.connection)

    def finish(self) -> None:
        self.server.connections.discard(self.connection)
        with suppress(OSError):
            super().finish()

    def handle_any(self) -> None:
        """Answer a request of any verb."""
        parts = urlsplit(self.path)
        headers = dict(self.headers.items())
        body = b"".join(self._body())
        self.asked = Request(datetime.now(UTC), self.command, parts.path, parts.query, headers, body)
        answer = self.server.proxy.answer_to(self.asked)
        if answer is not None:
            answer.give(self)
        elif "upgrade" in self.headers.get("Connection", "").lower():
            self.tunnel()
        else:
            self.forward()

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = handle_any  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """The proxy's list of requests is the log."""

    # What answers are made of:

    def forward(self) -> None:
        """Give the API server's answer as it comes."""
        with closing(self.server.proxy.upstream.ask(self.asked)) as response:
            length = response.getheader("Content-Length")
            self.begin(response.status, response.getheaders(), None if length is None else int(length))
            while piece := response.read1(PIECE):
                self.send(piece)
            self.end()

    def fetch(self) -> tuple[int, Headers, bytes]:
        """The API server's whole answer, uncompressed: status, headers, body."""
        with closing(self.server.proxy.upstream.ask(self.asked, plain=True)) as response:
            return response.status, response.getheaders(), response.read()

    def reply(self, code: int, body: bytes, headers: Mapping[str, str]) -> None:
        """An answer of the proxy's own; JSON unless the headers say otherwise."""
        self.begin(code, ({"Content-Type": "application/json"} | dict(headers)).items(), len(body))
        self.send(body)

    def begin(self, code: int, headers: Headers, length: int | None) -> None:
        """Status and headers; without a length the body is chunked."""
        self.chunked = length is None and self.command != "HEAD" and code not in (204, 304)
        self.send_response_only(code)
        for name, value in _end_to_end(headers):
            self.send_header(name, value)
        if self.chunked:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(length or 0))
        self.end_headers()

    def send(self, piece: bytes) -> None:
        """A piece of the body."""
        if self.command != "HEAD" and piece:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece) if self.chunked else piece)

    def end(self) -> None:
        """The end of the body."""
        if self.chunked:
            self.wfile.write(b"0\r\n\r\n")

    def pause(self, seconds: float) -> None:
        """Wait, but not longer than the proxy lives."""
        self.server.proxy.closing.wait(seconds)

    def hang_up(self) -> None:
        """End the connection in good order, whatever was announced."""
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """End the connection with a reset."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        self.server.connections.discard(self.connection)
        self.rfile.close()
        self.connection.close()

    # Requests that are more than a head and a body of known length:

    def _body(self) -> Iterator[bytes]:
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            while size := int(self.rfile.readline().split(b";")[0], 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            yield self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def tunnel(self, length: int | None = None) -> None:
        """Carry bytes both ways; with a length, only so many of the API server's."""
        self.close_connection = True
        with self.server.proxy.upstream.dial(self.asked) as upstream:
            _relay(self.connection, upstream, length)


def _relay(client: socket.socket, upstream: socket.socket, length: int | None) -> None:
    """Carry bytes both ways until one side ends."""
    left = {client: None, upstream: length}
    other = {client: upstream, upstream: client}
    with selectors.DefaultSelector() as selector:
        for side in other:
            selector.register(side, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                side = client if key.fileobj is client else upstream
                if not (piece := side.recv(PIECE)):
                    return
                piece += _buffered(side)
                other[side].sendall(piece[: left[side]])
                if (rest := left[side]) is not None:
                    if rest <= len(piece):
                        return
                    left[side] = rest - len(piece)


def _buffered(side: socket.socket) -> bytes:
    """What TLS has read already, which the selector cannot see."""
    if not isinstance(side, ssl.SSLSocket):
        return b""
    pieces = []
    while waiting := side.pending():
        pieces.append(side.recv(waiting))
    return b"".join(pieces)
