"""What went wrong between gpuctl and the API server, as a reason and one plain sentence."""

from __future__ import annotations

import http.client
import re
import ssl

import msgspec

from gpuctl.facts.state import Reason, Unknown

LONGEST = 300  # characters of a message: a line on the screen, not a page
_BY_STATUS = {401: Reason.UNAUTHORIZED, 403: Reason.FORBIDDEN, 408: Reason.TIMEOUT, 504: Reason.TIMEOUT}
_TITLE = re.compile(rb"<title[^>]*>(.*?)</title", re.IGNORECASE | re.DOTALL)
_PLAIN_404 = b"404 page not found"  # what the API server says of a path that no API answers
_SERVER_SIDE = 500


class _Cause(msgspec.Struct, frozen=True):
    reason: str = ""


class _Details(msgspec.Struct, frozen=True):
    causes: tuple[_Cause, ...] | None = ()


class _Status(msgspec.Struct, frozen=True):
    kind: str
    message: str = ""
    reason: str = ""
    details: _Details | None = None


def one_line(text: str, longest: int = LONGEST) -> str:
    """The text as one printable line of bounded length: it may come from anybody."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def of_status(status: int, body: bytes, what: str) -> Unknown:
    """What an answer other than the wanted one means. `what` names the object or resource asked for."""
    return Unknown(_reason(status, body), one_line(_said(status, body)), what)


def of_body(body: bytes, error: Exception, what: str) -> Unknown:
    """An answer of success whose body is not what was asked for."""
    said = "an HTML page instead of JSON" + _title(body) if is_html(body) else str(error)
    return Unknown(Reason.MALFORMED, one_line(said), what)


def of_failure(error: Exception, what: str, server: str) -> Unknown:
    """An exchange that brought no whole answer. `server` is the address it was held with."""
    reason, said = _failure(error, server)
    return Unknown(reason, one_line(said), what)


def is_kubernetes_404(body: bytes) -> bool:
    """Whether the API server itself said so; a gateway's 404 tells nothing about the cluster."""
    return body.strip() == _PLAIN_404 or _status(body) is not None


def is_status(body: bytes) -> bool:
    """Whether it is the API server's own word, rather than that of what it passed a request on to."""
    return _status(body) is not None


def is_absent(body: bytes) -> bool:
    """Whether a 404 says that the object does not exist, rather than that its API does not."""
    status = _status(body)
    return status is not None and status.reason == "NotFound" and status.message.endswith("not found")


def is_taken(body: bytes) -> bool:
    """Whether a refusal says that there is an object of this name already."""
    status = _status(body)
    return status is not None and status.reason == "AlreadyExists"


def is_ending(body: bytes) -> bool:
    """Whether a refusal says that the namespace is being deleted, and all that is in it."""
    status = _status(body)
    details = status.details if status is not None else None
    return any(each.reason == "NamespaceTerminating" for each in (details.causes if details else None) or ())


def is_broken(error: Exception) -> bool:
    """Whether a connection broke after it stood, as an idle one does that the server has closed."""
    from urllib3.exceptions import ProtocolError

    return isinstance(error, ProtocolError)


def _status(body: bytes) -> _Status | None:
    try:
        status = msgspec.json.decode(body, type=_Status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return status if status.kind == "Status" else None


def _reason(status: int, body: bytes) -> Reason:
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status >= _SERVER_SIDE or (_status(body) is not None and status != http.HTTPStatus.NOT_FOUND):
        return Reason.SERVER_ERROR
    if status == http.HTTPStatus.NOT_FOUND and is_kubernetes_404(body):
        return Reason.NOT_SERVED
    return Reason.SERVER_ERROR if status == http.HTTPStatus.TOO_MANY_REQUESTS else Reason.MALFORMED


def _said(status: int, body: bytes) -> str:
    known = _status(body)
    if known is not None and (known.message or known.reason):
        return known.message or known.reason
    if is_html(body):
        return f"HTTP {status}, an HTML page instead of a Kubernetes answer{_title(body)}"
    text = body[: 4 * LONGEST].decode(errors="replace").strip()
    return f"HTTP {status}: {text or http.client.responses.get(status, 'no further word')}"


def is_html(body: bytes) -> bool:
    """Whether somebody on the way to the API server has answered in its place."""
    return body.lstrip()[:14].lower().startswith((b"<!doctype html", b"<html", b"<head", b"<?xml"))


def _title(body: bytes) -> str:
    found = _TITLE.search(body[:65536])
    return f": “{found[1].decode(errors='replace').strip()}”" if found else ""


def _failure(error: Exception, server: str) -> tuple[Reason, str]:
    from urllib3 import exceptions as lib

    cause = _cause(error)
    if isinstance(error, lib.ProxyError):
        return Reason.UNREACHABLE, f"the proxy on the way to {server} fails: {_plain(cause)}"
    if isinstance(error, lib.NewConnectionError):  # a ConnectTimeoutError by birth, so asked for before it
        return Reason.UNREACHABLE, f"cannot connect to {server}: {_plain(cause)}"
    if isinstance(error, lib.ConnectTimeoutError):
        return Reason.UNREACHABLE, f"cannot connect to {server}: no answer in time"
    if isinstance(error, lib.ReadTimeoutError):
        return Reason.TIMEOUT, f"{server} stopped answering"
    if isinstance(error, lib.SSLError):
        return Reason.UNREACHABLE, f"no TLS connection to {server}: {_plain(cause)}"
    if isinstance(cause, ConnectionError):
        return Reason.UNREACHABLE, f"the connection to {server} broke: {_plain(cause)}"
    if isinstance(cause, http.client.IncompleteRead) or isinstance(error, lib.DecodeError):
        return Reason.MALFORMED, "the answer breaks off before its end"
    if isinstance(cause, http.client.HTTPException):
        return Reason.MALFORMED, f"{server} does not speak HTTP: {_plain(cause)}"
    return Reason.UNREACHABLE, f"the exchange with {server} failed: {_plain(cause)}"


def _cause(error: BaseException) -> BaseException:
    """The innermost error: what urllib3 wraps around it are its own objects' names."""
    inner = error.__cause__ or next((arg for arg in error.args if isinstance(arg, BaseException)), None)
    return error if inner is None else _cause(inner)


def _plain(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message or str(error)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
