"""The proxy with faults, in front of a server that stands in for an API server."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from tests.cluster.bed.faultproxy import (
    Answer,
    Conflict,
    Dropped,
    Expired,
    FaultProxy,
    Forbidden,
    GatewayPage,
    InternalError,
    Late,
    NotFound,
    Raw,
    Slow,
    Stalled,
    TooManyRequests,
    Transformed,
    Truncated,
    Unauthorized,
    Unavailable,
)

PODS = "/api/v1/pods"
LIST = {"kind": "PodList", "items": [{"metadata": {"name": f"pod-{index}"}} for index in range(20)]}


class Upstream(BaseHTTPRequestHandler):
    """Says what it was asked; lists pods; watches in pieces; echoes after an upgrade."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if "Upgrade" in self.headers:
            self._echo()
        elif "watch=true" in self.path:
            self._watch()
        elif path == PODS:
            self._reply(LIST)
        else:
            self._reply({"path": self.path, "authorization": self.headers.get("Authorization")})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._reply({"path": self.path, "body": body.decode()})

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Quiet."""

    def _reply(self, content: object) -> None:
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Warning", "first")
        self.send_header("Warning", "second")
        self.end_headers()
        self.wfile.write(body)

    def _watch(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in (b"one\n", b"two\n"):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(event), event))
            self.wfile.flush()
            time.sleep(0.2)
        self.wfile.write(b"0\r\n\r\n")

    def _echo(self) -> None:
        self.close_connection = True
        self.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
        while piece := self.connection.recv(1024):
            self.wfile.write(piece)


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A kubeconfig of the upstream, with a token."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    file = tmp_path_factory.mktemp("upstream") / "kubeconfig"
    content = {
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
        "users": [{"name": "u", "user": {"token": "of-the-kubeconfig"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    file.write_text(yaml.safe_dump(content))
    yield file
    server.shutdown()
    server.server_close()


@pytest.fixture
def proxy(kubeconfig: Path) -> Iterator[FaultProxy]:
    with FaultProxy(kubeconfig) as proxy:
        yield proxy


def connect(proxy: FaultProxy) -> http.client.HTTPConnection:
    """A client's connection."""
    config = yaml.safe_load(proxy.kubeconfig.read_text())
    server = urlsplit(config["clusters"][0]["cluster"]["server"])
    return http.client.HTTPConnection(str(server.hostname), server.port, timeout=10)


def ask(proxy: FaultProxy, path: str, verb: str = "GET", **headers: str) -> http.client.HTTPResponse:
    """One request; the body is not read yet."""
    connection = connect(proxy)
    connection.request(verb, path, headers=headers)
    return connection.getresponse()


def read(proxy: FaultProxy, path: str, **headers: str) -> Any:
    """The JSON of an answer."""
    return json.loads(ask(proxy, path, **headers).read())


def test_what_no_fault_is_meant_for_passes(proxy: FaultProxy) -> None:
    response = ask(proxy, f"{PODS}?limit=500")
    assert (response.status, json.loads(response.read())) == (200, LIST)
    assert response.headers.get_all("Warning") == ["first", "second"]


def test_credentials_are_those_of_the_kubeconfig(proxy: FaultProxy) -> None:
    assert read(proxy, "/version")["authorization"] == "Bearer of-the-kubeconfig"


def test_credentials_of_the_client_go_first(proxy: FaultProxy) -> None:
    assert read(proxy, "/version", Authorization="Bearer mine")["authorization"] == "Bearer mine"


def test_requests_are_recorded(proxy: FaultProxy) -> None:
    connection = connect(proxy)
    for verb, body in (("GET", None), ("POST", b"{}")):  # one connection for both
        connection.request(verb, "/api/v1/nodes?limit=1", body)
        connection.getresponse().read()
    assert [(each.verb, each.path, each.query, each.body) for each in proxy.requests] == [
        ("GET", "/api/v1/nodes", "limit=1", b""),
        ("POST", "/api/v1/nodes", "limit=1", b"{}"),
    ]
    assert proxy.requests[0].at <= proxy.requests[1].at


def test_bodies_of_unknown_length_arrive(proxy: FaultProxy) -> None:
    connection = connect(proxy)
    connection.request(
        "POST", "/x", iter([b"ab", b"c"]), {"Transfer-Encoding": "chunked"}, encode_chunked=True
    )
    assert json.loads(connection.getresponse().read())["body"] == "abc"


def test_watches_come_in_pieces(proxy: FaultProxy) -> None:
    began = time.monotonic()
    response = ask(proxy, f"{PODS}?watch=true")
    assert response.readline() == b"one\n"
    assert time.monotonic() - began < 0.19
    assert response.read() == b"two\n"


def test_upgraded_connections_pass(proxy: FaultProxy) -> None:
    with socket.create_connection(("127.0.0.1", int(proxy.url.rpartition(":")[2])), timeout=10) as client:
        client.sendall(b"GET /exec HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
        assert client.recv(1024).startswith(b"HTTP/1.1 101")
        client.sendall(b"hello")
        assert client.recv(1024) == b"hello"


@pytest.mark.parametrize(
    ("answer", "code", "reason"),
    [
        (Unauthorized(), 401, "Unauthorized"),
        (Forbidden("pods is forbidden"), 403, "Forbidden"),
        (NotFound(), 404, "NotFound"),
        (Conflict(), 409, "Conflict"),
        (InternalError(), 500, "InternalError"),
        (Unavailable(), 503, "ServiceUnavailable"),
    ],
)
def test_refusals(proxy: FaultProxy, answer: Answer, code: int, reason: str) -> None:
    proxy.fault(answer, path=PODS)
    response = ask(proxy, PODS)
    status = json.loads(response.read())
    assert (response.status, status["code"], status["kind"], status["reason"]) == (
        code,
        code,
        "Status",
        reason,
    )


def test_expired_comes_in_the_middle_of_a_list(proxy: FaultProxy) -> None:
    proxy.fault(Expired(), path=PODS, times=1)
    assert ask(proxy, f"{PODS}?limit=5").status == 200
    assert ask(proxy, f"{PODS}?limit=5&continue=abc").status == 410
    assert ask(proxy, f"{PODS}?limit=5&continue=abc").status == 200


def test_too_many_requests(proxy: FaultProxy) -> None:
    proxy.fault(TooManyRequests(retry_after=7), path=PODS)
    response = ask(proxy, PODS)
    assert (response.status, response.headers["Retry-After"]) == (429, "7")


def test_the_page_of_a_gateway(proxy: FaultProxy) -> None:
    proxy.fault(GatewayPage(), path=".*")
    response = ask(proxy, "/healthz")
    assert (response.status, response.headers["Content-Type"]) == (502, "text/html")
    assert response.read().startswith(b"<html>")


def test_raw_bodies(proxy: FaultProxy) -> None:
    proxy.fault(Raw(b"{", headers={"Content-Type": "application/json"}), path=PODS)
    assert ask(proxy, PODS).read() == b"{"


def test_truncated(proxy: FaultProxy) -> None:
    proxy.fault(Truncated(length=40), path=PODS)
    with pytest.raises(http.client.IncompleteRead) as caught:
        ask(proxy, PODS).read()
    assert len(caught.value.partial) == 40


def test_slow(proxy: FaultProxy) -> None:
    proxy.fault(Slow(seconds=0.4, pieces=4), path=PODS)
    began = time.monotonic()
    assert read(proxy, PODS) == LIST
    assert 0.4 <= time.monotonic() - began < 3


def test_late(proxy: FaultProxy) -> None:
    proxy.fault(Late(seconds=0.3), path=PODS)
    began = time.monotonic()
    response = ask(proxy, PODS)
    assert time.monotonic() - began >= 0.3
    assert json.loads(response.read()) == LIST


def test_dropped(proxy: FaultProxy) -> None:
    proxy.fault(Dropped(), path=PODS)
    with pytest.raises(ConnectionResetError):
        ask(proxy, PODS)


def test_stalled(proxy: FaultProxy) -> None:
    proxy.fault(Stalled(), path=PODS)
    connection = connect(proxy)
    connection.timeout = 0.3
    connection.request("GET", PODS)
    with pytest.raises(TimeoutError):
        connection.getresponse()


def test_a_stall_ends_with_the_proxy(kubeconfig: Path) -> None:
    with FaultProxy(kubeconfig) as proxy:
        proxy.fault(Stalled(), path=PODS)
        connection = connect(proxy)
        connection.request("GET", PODS)
        time.sleep(0.1)
    with pytest.raises((ConnectionResetError, http.client.RemoteDisconnected)):
        connection.getresponse()
    assert not proxy.kubeconfig.exists()


def spoil_third(pods: Any) -> Any:
    """One malformed object among good ones."""
    pods["items"][2] = {"metadata": "?"}
    return pods


def test_transformed(proxy: FaultProxy) -> None:
    proxy.fault(Transformed(spoil_third), path=PODS)
    items = read(proxy, PODS)["items"]
    assert items[1:4] == [LIST["items"][1], {"metadata": "?"}, LIST["items"][3]]


def test_only_some_occurrences(proxy: FaultProxy) -> None:
    fault = proxy.fault(Forbidden(), path=PODS, after=1, times=2)
    assert [ask(proxy, PODS).status for _ in range(5)] == [200, 403, 403, 200, 200]
    assert fault.hits == 5


@pytest.mark.parametrize(
    ("verb", "path", "code"),
    [
        ("GET", PODS, 403),
        ("POST", PODS, 200),
        ("GET", f"{PODS}/one", 200),
        ("GET", f"/prefix{PODS}", 200),
    ],
)
def test_only_what_is_meant(proxy: FaultProxy, verb: str, path: str, code: int) -> None:
    proxy.fault(Forbidden(), path=PODS, verb="GET")
    headers = {"Content-Length": "0"} if verb == "POST" else {}
    assert ask(proxy, path, verb, **headers).status == code


def test_only_some_queries(proxy: FaultProxy) -> None:
    proxy.fault(Forbidden(), path=PODS, query="watch=true")
    assert [ask(proxy, f"{PODS}?{query}").status for query in ("limit=1", "a=b&watch=true")] == [200, 403]


def test_later_faults_go_first_until_they_are_spent(proxy: FaultProxy) -> None:
    proxy.fault(Forbidden(), path=PODS)
    proxy.fault(NotFound(), path=PODS, times=1)
    assert [ask(proxy, PODS).status for _ in range(2)] == [404, 403]
    proxy.clear()
    assert ask(proxy, PODS).status == 200
    assert len(proxy.requests) == 1
