"""Servers beside the cluster are asked safely: a token goes to the one it is meant for, or nowhere."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuctl.cluster.web import Server, can_keep_a_token, is_address
from gpuctl.facts.state import Known, Reason, Unknown
from tests.cluster.authorities import Authority, authority
from tests.cluster_door import fake_api as does
from tests.cluster_door.fake_api import Exchange, FakeApi, fake_api

PATH = "/api/v1/query"
TOKEN = "eyJhbGciOi.JSUzI1NiIs-Imtp_ZCI6IjEi=="


@pytest.fixture(scope="module")
def private() -> Authority:
    return authority("example", "monitoring-ca")


@pytest.fixture
def secure(private: Authority, tmp_path: Path) -> Iterator[FakeApi]:
    """A server by https whose certificate a private authority signed."""
    (tmp_path / "leaf.pem").write_bytes(private.leaf("localhost"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "leaf.pem")
    with fake_api(context) as api:
        yield api.on(PATH, does.body({"status": "success"}))


@pytest.fixture
def ca(private: Authority, tmp_path: Path) -> Path:
    file = tmp_path / "ca.pem"
    file.write_bytes(private.pem)
    return file


@pytest.fixture
def token(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    return file


def refusal(server: Server, timeout: float = 5) -> Unknown:
    state = server.get(PATH, {}, timeout, "metrics")
    assert isinstance(state, Unknown)
    assert TOKEN not in str(state)
    return state


def test_the_token_is_sent_and_read_anew_each_time(secure: FakeApi, ca: Path, token: Path) -> None:
    server = Server(secure.url, token, ca)
    assert server.get(PATH, {"query": "up"}, 5, "metrics") == Known(b'{"status":"success"}')
    token.write_text("another")
    server.get(PATH, {}, 5, "metrics")
    assert [each["Authorization"] for _, each in secure.requests] == [f"Bearer {TOKEN}", "Bearer another"]
    assert secure.requests[0][0] == f"{PATH}?query=up"


def test_without_a_token_none_is_sent(secure: FakeApi, ca: Path) -> None:
    assert isinstance(Server(secure.url, None, ca).get(PATH, {}, 5, "metrics"), Known)
    assert "Authorization" not in secure.requests[0][1]


def test_a_server_that_is_not_trusted_gets_no_token(secure: FakeApi, token: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    other.write_bytes(authority("example", "another-ca").pem)
    for file in (None, other):
        gap = refusal(Server(secure.url, token, file))
        assert gap.reason is Reason.UNREACHABLE
        assert "certificate" in gap.message.lower()
    assert secure.requests == []


def test_a_redirection_is_not_followed(secure: FakeApi, ca: Path, token: Path, api: FakeApi) -> None:
    api.on(PATH, does.body({"status": "success"}))
    secure.on(PATH, does.text(302, "", headers={"Location": api.url + PATH}))
    gap = refusal(Server(secure.url, token, ca))
    assert gap.reason is Reason.SERVER_ERROR
    assert "302" in gap.message
    assert api.requests == []


def test_no_token_over_plain_http(token: Path) -> None:
    gap = refusal(Server("http://192.0.2.1:9090", token))
    assert (gap.reason, gap.message) == (Reason.UNAUTHORIZED, "a token is sent over https alone")


@pytest.mark.parametrize("url", ["http://127.0.0.1:9090", "http://localhost:9090", "http://[::1]:9090"])
def test_but_to_this_machine_itself(url: str) -> None:
    assert can_keep_a_token(url)
    assert not can_keep_a_token("http://prometheus.monitoring:9090")


def test_not_even_a_proxy_sees_what_is_sent_to_this_machine(
    api: FakeApi, token: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.on(PATH, does.body({}))
    with fake_api() as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        assert isinstance(Server(api.url, token).get(PATH, {}, 5, "metrics"), Known)
        assert proxy.requests == []


@pytest.mark.parametrize(
    "content",
    [b"", b"\n", b"two words", b"a\nb", b"abc\r\nX-Evil: 1", "schlüssel".encode(), b"\xff\xfe", b"\0"],
)
def test_what_is_no_token_is_not_sent(api: FakeApi, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    gap = refusal(Server(api.url, file))
    assert gap.reason is Reason.UNAUTHORIZED
    assert gap.message == f"the file {file} holds no bearer token"
    assert api.requests == []


def test_files_that_are_not_there(api: FakeApi, tmp_path: Path) -> None:
    gap = refusal(Server(api.url, tmp_path / "gone"))
    assert gap.reason is Reason.UNAUTHORIZED
    assert "No such file" in gap.message
    gap = refusal(Server(api.url, None, tmp_path / "gone"))
    assert gap.reason is Reason.UNREACHABLE
    empty = tmp_path / "empty"
    empty.touch()
    assert "holds no certificates" in refusal(Server(api.url, None, empty)).message


def no_http(exchange: Exchange) -> None:
    exchange.wfile.write(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
    exchange.close_connection = True


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        (does.text(401, "no"), Reason.UNAUTHORIZED),
        (does.text(403, "no"), Reason.FORBIDDEN),
        (does.text(503, "no"), Reason.SERVER_ERROR),
        (no_http, Reason.MALFORMED),
        (does.cut_off, Reason.MALFORMED),
        (does.stall, Reason.TIMEOUT),
        (does.drip, Reason.TIMEOUT),
    ],
    ids=["401", "403", "503", "no HTTP", "cut off", "stalls", "drips"],
)
def test_whatever_it_does_is_a_state_in_time(api: FakeApi, behaviour: Any, reason: Reason) -> None:
    api.on(PATH, behaviour)
    assert refusal(Server(api.url), 0.5).reason is reason


def test_one_that_is_not_there() -> None:
    assert refusal(Server("http://127.0.0.1:9")).reason is Reason.UNREACHABLE


def test_what_is_too_large_is_not_read(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuctl.cluster.web._LIMIT", 1024 * 1024)
    api.on(PATH, does.text(200, "x" * (1024 * 1024 + 1)))
    gap = refusal(Server(api.url))
    assert (gap.reason, gap.message) == (Reason.MALFORMED, "the answer is larger than 1 MiB")


def test_a_password_in_the_address_is_never_shown() -> None:
    assert Server("https://me:hunter2@prom.example:9090/x").host == "https://prom.example:9090/x"


@pytest.mark.parametrize(
    ("url", "good"),
    [
        ("http://prom:9090", True),
        ("https://prom.example/thanos", True),
        ("https://me:hunter2@prom.example", False),
        ("http://prom:99999", False),
        ("http://prom:port", False),
        ("prom:9090", False),
        ("file:///etc/passwd", False),
        ("", False),
        ("http://", False),
        ("http://[::1", False),
    ],
)
def test_only_http_is_asked(url: str, good: bool) -> None:
    assert is_address(url) is good
