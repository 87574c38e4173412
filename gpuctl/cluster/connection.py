"""Requests to one API server: authenticated, repeated where that may help, and over before the deadline."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import wait
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from tempfile import TemporaryDirectory
from threading import Lock
from typing import TYPE_CHECKING, Any

import msgspec

from gpuctl import __version__
from gpuctl.cluster import errors
from gpuctl.cluster.deadline import Deadline, in_background
from gpuctl.cluster.kubeconfig import Access, CannotConnect, Login, complaints, log_in
from gpuctl.facts.state import NotKnown, Reason, Unknown

if TYPE_CHECKING:
    import urllib3
    from websocket import WebSocket

__all__ = ["Access", "CannotConnect", "Connection", "Reply", "connect"]

CONNECT_SECONDS = 10.0  # an address where nobody answers must not use up the run
SILENCE_SECONDS = 30.0  # nor may a server that takes a request and then says nothing
SETTLING_SECONDS = 1.0
LOGIN_SECONDS = 120.0  # a credentials plugin may open a browser
CONNECTIONS = 64  # kept open; the reads of a run share them
HEAD_BYTES = 2048
CHUNK_BYTES = 1 << 20

# By status: how often a request is repeated, and after how many seconds if the server names no time.
_REPEATS = {429: (4, 1.0), 502: (1, 0.2), 503: (1, 0.2), 504: (1, 0.2)}
_BROKEN_REPEATS, _BROKEN_PAUSE = 1, 0.1
_UNAUTHORIZED, _TOO_MANY = 401, 429


@dataclass(frozen=True, slots=True)
class _Request:
    """What is sent. `again`: being answered twice does no harm, so it may be sent twice. `repeats`: whoever
    asks wants it repeated where that may help; else the first answer is the answer."""

    method: str
    path: str
    what: str
    body: bytes | None = None
    again: bool = True
    repeats: bool = True
    content_type: str = "application/json"
    most: int | None = None  # bytes of an answer
    accept: str = "application/json"
    foreign: bool = False  # answered by what the API server passes it on to: its 401 is none of the login's


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer. `retry_after` is in seconds, None if the server names no time."""

    status: int
    body: bytes
    retry_after: float | None = None


def connect(access: Access, seconds: float = LOGIN_SECONDS) -> Connection:
    """Reads the kubeconfig and obtains credentials, within so many seconds; sends nothing to the API server.

    Raises CannotConnect, whose message names the kubeconfig and context that were tried.
    """
    return Connection(access, _session(access, seconds))


@dataclass(frozen=True, slots=True)
class _Session:
    """Connections that share one set of credentials."""

    login: Login
    pool: urllib3.PoolManager

    @property
    def server(self) -> str:
        return str(self.login.configuration.host)


class Connection:
    """An API server and who asks it. Usable from several threads."""

    def __init__(self, access: Access, session: _Session) -> None:
        self._access = access
        self._session = session
        self._renewed = False
        self._lock = Lock()

    @property
    def name(self) -> str:
        """The context and the server's address, as a person would tell clusters apart."""
        context = self._session.login.context
        return f"{context} ({self.server})" if context else self.server

    @property
    def server(self) -> str:
        """The server's address."""
        return self._session.server

    def get(
        self,
        path: str,
        what: str,
        deadline: Deadline,
        head: Callable[[bytes], None] = lambda _: None,
        *,
        most: int | None = None,
        foreign: bool = False,
        accept: str = "application/json",
    ) -> Reply:
        """The answer to a GET, whatever its status. `head` is shown the beginning of its body before the
        rest is received. Raises `NotKnown` if there is no whole answer, or one of more than `most` bytes;
        `what` names what was asked for. `foreign`: what answers may be another than the API server."""
        return self._answer(
            _Request("GET", path, what, most=most, accept=accept, foreign=foreign), deadline, head
        )

    def post(
        self,
        path: str,
        body: Any,
        what: str,
        deadline: Deadline,
        *,
        stores: bool = True,
        repeats: bool = True,
    ) -> Reply:
        """The answer to a POST of JSON, as with `get`. One that `stores` something is not sent again after it
        may have been carried out; without `repeats` it is sent once."""
        request = _Request(
            "POST", path, what, msgspec.json.encode(body), again=not stores and repeats, repeats=repeats
        )
        return self._answer(request, deadline)

    def patch(self, path: str, operations: Any, what: str, deadline: Deadline) -> Reply:
        """The answer to a JSON patch, as with `get`; sent once, for its tests may refuse it a second time."""
        body = msgspec.json.encode(operations)
        request = _Request(
            "PATCH", path, what, body, again=False, repeats=False, content_type="application/json-patch+json"
        )
        return self._answer(request, deadline)

    def delete(self, path: str, body: Any, what: str, deadline: Deadline) -> Reply:
        """The answer to a DELETE, as with `get`."""
        return self._answer(_Request("DELETE", path, what, msgspec.json.encode(body)), deadline)

    def socket(self, path: str, protocol: str, what: str, deadline: Deadline) -> WebSocket:
        """An open WebSocket, for streams to and from pods. Raises `NotKnown`: why there is none."""
        import websocket

        session = self._session
        headers = self._headers(session, what)
        headers["Accept"] = "*/*"  # a stream is no JSON, and a kubelet may mind
        try:
            return websocket.create_connection(
                f"ws{session.server.removeprefix('http')}{path}",
                timeout=max(0.001, deadline.left),  # the kubelet behind the server may be slow to take it
                header=[f"{name}: {text}" for name, text in headers.iteritems()],
                subprotocols=[protocol],
                sslopt={"context": session.pool.connection_pool_kw.get("ssl_context")},
                suppress_origin=True,
                **_proxy(session.login.configuration),
            )
        except websocket.WebSocketBadStatusException as refused:
            body = refused.resp_body or b""
            raise NotKnown(errors.of_status(refused.status_code, body, what)) from refused
        except websocket.WebSocketTimeoutException as late:
            raise deadline.passed(what) from late
        except (websocket.WebSocketException, OSError) as error:
            raise NotKnown(errors.of_failure(error, what, self.server)) from error

    def _answer(
        self, request: _Request, deadline: Deadline, head: Callable[[bytes], None] = lambda _: None
    ) -> Reply:
        for attempt in count():
            try:
                reply = self._authenticated(request, deadline, head)
            except _failures() as error:
                if not deadline.left:
                    raise deadline.passed(request.what) from error
                broken = request.again and errors.is_broken(error)
                pause = _BROKEN_PAUSE if broken and attempt < _BROKEN_REPEATS else None
                if pause is None:
                    raise NotKnown(errors.of_failure(error, request.what, self.server)) from error
            else:
                pause = _pause(reply, attempt, request)
                if pause is None or pause >= deadline.left:
                    return reply
            time.sleep(min(pause, deadline.left))
        raise AssertionError("unreachable")

    def _authenticated(self, request: _Request, deadline: Deadline, head: Callable[[bytes], None]) -> Reply:
        session = self._session
        reply = self._exchange(session, request, deadline, head)
        refused = reply.status == _UNAUTHORIZED and (errors.is_status(reply.body) or not request.foreign)
        if refused and self._renew(session, request.what, deadline):
            return self._exchange(self._session, request, deadline, head)
        return reply

    def _exchange(
        self, session: _Session, request: _Request, deadline: Deadline, head: Callable[[bytes], None]
    ) -> Reply:
        limit = deadline.sooner(self._access.request_timeout)
        response = session.pool.request(
            request.method,
            session.server + request.path,
            body=request.body,
            headers=self._headers(
                session, request.what, request.content_type if request.body else "", request.accept
            ),
            timeout=_timeout(limit),
            retries=False,
            preload_content=False,
        )
        with closing(response):
            body = b"".join(_chunks(response, request, limit, head))
        return Reply(response.status, body, _seconds(response.headers.get("Retry-After")))

    def _headers(
        self, session: _Session, what: str, content_type: str = "", accept: str = "application/json"
    ) -> urllib3.HTTPHeaderDict:
        import urllib3

        headers = urllib3.HTTPHeaderDict({"Accept": accept, "User-Agent": f"gpuctl/{__version__}"})
        if content_type:
            headers["Content-Type"] = content_type
        with self._lock, complaints() as heard:  # asking for the token refreshes one that is about to expire
            for setting in session.login.configuration.auth_settings().values():
                headers[setting["key"]] = setting["value"]
        if heard:
            raise NotKnown(Unknown(Reason.UNAUTHORIZED, errors.one_line(" ".join(heard)), what))
        if self._access.as_user:
            headers["Impersonate-User"] = self._access.as_user
        for group in self._access.as_groups:
            headers.add("Impersonate-Group", group)
        return headers

    def _renew(self, refused: _Session, what: str, deadline: Deadline) -> bool:
        """Logs in anew, once in a run, because a plugin's token may end before its time; says whether
        another session than the refused one is in use now."""
        with self._lock:
            if self._session is refused and not self._renewed:
                self._renewed = True
                try:
                    self._session = _session(self._access, deadline.left)
                except CannotConnect as error:
                    raise NotKnown(Unknown(Reason.UNAUTHORIZED, str(error), what)) from error
            return self._session is not refused


def _session(access: Access, seconds: float) -> _Session:
    """The client writes certificates to files, of which none stays behind: neither of a login that is
    interrupted, nor of one that comes too late."""
    deadline = Deadline.after(seconds)
    with TemporaryDirectory(prefix="gpuctl-", ignore_cleanup_errors=True) as scratch:
        login = in_background(lambda: _log_in(access, scratch))
        try:
            return deadline.result("the login", login)
        except NotKnown as late:
            raise CannotConnect(access, access.context, f"no credentials within {seconds:g} s") from late
        finally:
            # A credentials plugin that the same Ctrl-C ended lets the client go on: it would make files anew.
            wait([login], timeout=SETTLING_SECONDS)


def _log_in(access: Access, scratch: str) -> _Session:
    try:
        login = log_in(access, scratch)
        return _usable(access, login)
    finally:
        _forget_files()
        shutil.rmtree(scratch, ignore_errors=True)


def _usable(access: Access, login: Login) -> _Session:
    try:
        return _Session(login, _pool(login.configuration))
    except (OSError, ValueError, ImportError) as error:
        raise CannotConnect(access, login.context, f"unusable certificates or proxy: {error}") from error


def _forget_files() -> None:
    """The client remembers files by their content for the next login, when they are gone."""
    from kubernetes.config import kube_config

    kube_config._temp_files.clear()


def _pool(configuration: Any) -> urllib3.PoolManager:
    from kubernetes.client import ApiClient

    configuration.connection_pool_maxsize = CONNECTIONS
    pool: urllib3.PoolManager = ApiClient(configuration).rest_client.pool_manager
    options = pool.connection_pool_kw
    files = {name: options.pop(name, None) for name in ("ca_certs", "ca_cert_data", "cert_file", "key_file")}
    if configuration.host.startswith("https:"):
        options["ssl_context"] = _tls(configuration.verify_ssl, **files)
    return pool


def _tls(verify: bool, ca_certs: str, ca_cert_data: str, cert_file: str, key_file: str) -> Any:
    import ssl

    import urllib3
    from urllib3.util.ssl_ import ALPN_PROTOCOLS, create_urllib3_context

    context = create_urllib3_context(cert_reqs=ssl.CERT_REQUIRED if verify else ssl.CERT_NONE)
    context.set_alpn_protocols(ALPN_PROTOCOLS)
    # urllib3 sets them anew at each connection. OpenSSL then frees those that another thread, which connects
    # at the same moment, is just copying: the server is sent garbage, and refuses it.
    context.set_alpn_protocols = _leave_as_they_are  # type: ignore[method-assign]
    if ca_certs or ca_cert_data:
        context.load_verify_locations(ca_certs, cadata=ca_cert_data)
    else:
        context.load_default_certs()
    if cert_file:
        context.load_cert_chain(cert_file, key_file)
    if not verify:  # the kubeconfig says so: no need to repeat it at each connection
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    return context


def _leave_as_they_are(alpn_protocols: Iterable[str]) -> None:
    pass


def _failures() -> tuple[type[Exception], ...]:
    from urllib3.exceptions import HTTPError

    return (HTTPError, OSError)


def _proxy(configuration: Any) -> dict[str, Any]:
    """The kubeconfig's proxy, in the words of the WebSocket library."""
    from urllib3.util import parse_url

    if not configuration.proxy:
        return {}
    address = parse_url(configuration.proxy)
    user, _, password = (address.auth or "").partition(":")
    return {
        "http_proxy_host": address.host,
        "http_proxy_port": address.port,
        "proxy_type": address.scheme,
        "http_proxy_auth": (user, password) if user else None,
    }


def _timeout(deadline: Deadline) -> urllib3.Timeout:
    import urllib3

    left = max(deadline.left, 0.001)  # urllib3 takes no zero
    return urllib3.Timeout(connect=min(left, CONNECT_SECONDS), read=min(left, SILENCE_SECONDS))


def _chunks(
    response: urllib3.BaseHTTPResponse, request: _Request, deadline: Deadline, head: Callable[[bytes], None]
) -> Iterator[bytes]:
    first = response.read(HEAD_BYTES)
    head(first)
    yield first
    received = len(first)
    while chunk := response.read(CHUNK_BYTES):
        yield chunk
        received += len(chunk)
        if request.most is not None and received > request.most:
            message = f"the answer is longer than {request.most} bytes"
            raise NotKnown(Unknown(Reason.MALFORMED, message, request.what))
        if not deadline.left:
            raise deadline.passed(request.what)


def _pause(reply: Reply, attempt: int, request: _Request) -> float | None:
    """Seconds to wait before the request is repeated; None if it is not to be."""
    repeats, pause = _REPEATS.get(reply.status, (0, 0.0)) if request.repeats else (0, 0.0)
    if attempt >= repeats or not (request.again or reply.status == _TOO_MANY):
        return None
    return pause if reply.retry_after is None else reply.retry_after


def _seconds(retry_after: str | None) -> float | None:
    return float(retry_after) if retry_after and retry_after.isdecimal() else None
