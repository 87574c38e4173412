from __future__ import annotations

import http.client
import json
import socket
import ssl

import pytest
from urllib3 import exceptions as lib
from urllib3.connection import HTTPConnection

from gpuctl.cluster import errors
from gpuctl.facts.state import Reason

HTML = b"<!DOCTYPE html>\n<html><head><title>Sign\nin</title></head></html>"


def kubernetes(code: int, reason: str, message: str) -> bytes:
    return json.dumps({"kind": "Status", "code": code, "reason": reason, "message": message}).encode()


@pytest.mark.parametrize(
    ("status", "body", "reason", "said"),
    [
        (401, kubernetes(401, "Unauthorized", "Unauthorized"), Reason.UNAUTHORIZED, "Unauthorized"),
        (403, kubernetes(403, "Forbidden", 'User "x" cannot list'), Reason.FORBIDDEN, 'User "x" cannot list'),
        (403, HTML, Reason.FORBIDDEN, "an HTML page instead of a Kubernetes answer: “Sign in”"),
        (404, b"404 page not found\n", Reason.NOT_SERVED, "HTTP 404: 404 page not found"),
        (404, HTML, Reason.MALFORMED, "HTML page"),
        (404, b"", Reason.MALFORMED, "HTTP 404: Not Found"),
        (302, b"", Reason.MALFORMED, "HTTP 302: Found"),
        (400, kubernetes(400, "BadRequest", "bad continue token"), Reason.SERVER_ERROR, "bad continue token"),
        (400, HTML, Reason.MALFORMED, "HTML page"),
        (409, kubernetes(409, "Conflict", "the object has changed"), Reason.SERVER_ERROR, "has changed"),
        (410, kubernetes(410, "Expired", "too old"), Reason.SERVER_ERROR, "too old"),
        (429, b"", Reason.SERVER_ERROR, "HTTP 429: Too Many Requests"),
        (500, kubernetes(500, "InternalError", ""), Reason.SERVER_ERROR, "InternalError"),
        (502, HTML, Reason.SERVER_ERROR, "HTTP 502, an HTML page"),
        (503, b"upstream connect error", Reason.SERVER_ERROR, "HTTP 503: upstream connect error"),
        (504, kubernetes(504, "Timeout", "request timed out"), Reason.TIMEOUT, "request timed out"),
    ],
)
def test_a_status_has_one_reason(status: int, body: bytes, reason: Reason, said: str) -> None:
    gap = errors.of_status(status, body, "pods")

    assert (gap.reason, gap.what) == (reason, "pods")
    assert said in gap.message


CONNECTION = HTTPConnection("10.0.0.1", 6443)


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def untrusted() -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] (_ssl.c:1006)")
    error.verify_message = "self-signed certificate"
    return error


@pytest.mark.parametrize(
    ("error", "reason", "said"),
    [
        (
            caused(lib.NewConnectionError(CONNECTION, "no"), OSError(111, "Connection refused")),
            Reason.UNREACHABLE,
            "cannot connect to https://api: Connection refused",
        ),
        (
            caused(
                lib.NameResolutionError("api", CONNECTION, socket.gaierror(-2, "unknown")),
                socket.gaierror(-2, "Name or service not known"),
            ),
            Reason.UNREACHABLE,
            "cannot connect to https://api: Name or service not known",
        ),
        (lib.ConnectTimeoutError(CONNECTION, "slow"), Reason.UNREACHABLE, "no answer in time"),
        (lib.ReadTimeoutError(None, "/", "slow"), Reason.TIMEOUT, "https://api stopped answering"),  # type: ignore[arg-type]
        (lib.SSLError(untrusted()), Reason.UNREACHABLE, "no TLS connection to https://api: self-signed"),
        (
            lib.ProxyError("Unable to connect to proxy", OSError(111, "Connection refused")),
            Reason.UNREACHABLE,
            "the proxy on the way to https://api fails: Connection refused",
        ),
        (
            lib.ProtocolError("aborted", ConnectionResetError(104, "Connection reset by peer")),
            Reason.UNREACHABLE,
            "the connection to https://api broke: Connection reset by peer",
        ),
        (
            lib.ProtocolError("aborted", http.client.RemoteDisconnected("closed without response")),
            Reason.UNREACHABLE,
            "broke: closed without response",
        ),
        (lib.ProtocolError("broken", http.client.IncompleteRead(b"")), Reason.MALFORMED, "breaks off"),
        (lib.DecodeError("not gzip"), Reason.MALFORMED, "breaks off"),
        (lib.ProtocolError("aborted", http.client.BadStatusLine("SSH-2.0")), Reason.MALFORMED, "speak HTTP"),
        (lib.LocationParseError("https://["), Reason.UNREACHABLE, "failed"),
    ],
)
def test_a_failed_exchange_has_one_reason(error: Exception, reason: Reason, said: str) -> None:
    gap = errors.of_failure(error, "pods", "https://api")

    assert (gap.reason, gap.what) == (reason, "pods")
    assert said in gap.message
    assert "object at 0x" not in gap.message


def test_a_body_of_html_is_named_as_such() -> None:
    gap = errors.of_body(HTML, ValueError("JSON is malformed: invalid character (byte 0)"), "pods")

    assert (gap.reason, gap.message) == (Reason.MALFORMED, "an HTML page instead of JSON: “Sign in”")


def test_a_message_is_one_printable_line_of_bounded_length() -> None:
    line = errors.one_line("a\x1b[31m\n\nred\u202e " + "x" * 1000)

    assert line.startswith("a [31m red x")
    assert len(line) == errors.LONGEST
    assert line.isprintable()


@pytest.mark.parametrize(
    ("body", "absent"),
    [
        (kubernetes(404, "NotFound", 'pods "a" not found'), True),
        (kubernetes(404, "NotFound", "the server could not find the requested resource"), False),
        (b"404 page not found\n", False),
        (HTML, False),
    ],
)
def test_only_the_api_server_says_that_an_object_is_absent(body: bytes, absent: bool) -> None:
    assert errors.is_absent(body) is absent
