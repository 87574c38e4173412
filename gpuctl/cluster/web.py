"""Asks a server beside the cluster that the person has named. Whatever it answers, the outcome is a state, in
time; and the token that shows who asks goes to that server alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode, urlsplit

from gpuctl.cluster.deadline import Deadline, in_background
from gpuctl.facts.state import Known, NotKnown, Reason, State, Unknown

if TYPE_CHECKING:
    from http.client import HTTPResponse
    from ssl import SSLContext
    from urllib.request import OpenerDirector

_LIMIT: Final = 32 * 1024 * 1024  # bytes of an answer
_REASONS: Final = {401: Reason.UNAUTHORIZED, 403: Reason.FORBIDDEN}
_ELSEWHERE: Final = range(300, 400)
_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")  # RFC 6750; nothing else can be part of a header


@dataclass(frozen=True, slots=True)
class Server:
    """Where a server is, and how it is asked. The token is read when it is sent, and kept nowhere."""

    url: str
    token_file: Path | None = None
    ca_file: Path | None = None

    @property
    def host(self) -> str:
        """Where it is, without a password that the URL may hold."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"

    def get(self, path: str, query: Mapping[str, str], timeout: float, what: str) -> State[bytes]:
        """The body of the answer to a GET below its address, within `timeout` seconds; `what` names it."""
        what = f"{what} of {self.host}"
        asked = in_background(lambda: self._get(path, query, timeout))
        try:
            return Known(Deadline.after(timeout).result(what, asked))
        except _Refused as refused:
            return Unknown(refused.reason, refused.message, what)
        except NotKnown as late:
            return late.state if isinstance(late.state, Unknown) else Unknown(Reason.TIMEOUT, "", what)

    def _get(self, path: str, query: Mapping[str, str], timeout: float) -> bytes:
        from http.client import HTTPException
        from urllib.error import HTTPError
        from urllib.request import Request

        address = f"{self.url.rstrip('/')}{path}" + (f"?{urlencode(query)}" if query else "")
        headers = {"Accept": "application/json", **self._authorization()}
        request = Request(address, headers=headers)  # noqa: S310 - http and https alone
        try:
            with self._opener().open(request, timeout=timeout) as answer:
                return _whole(answer)
        except HTTPError as error:
            raise _answered(error.code, str(error.reason)) from None
        except TimeoutError:
            raise _Refused(Reason.TIMEOUT, f"no answer within {timeout:g} s") from None
        except OSError as error:
            raise _unreachable(getattr(error, "reason", error), timeout) from None
        except (HTTPException, ValueError) as error:  # an answer that is no HTTP, or breaks off
            raise _Refused(Reason.MALFORMED, f"no answer in HTTP ({type(error).__name__})") from None

    def _authorization(self) -> dict[str, str]:
        if self.token_file is None:
            return {}
        if not can_keep_a_token(self.url):
            raise _Refused(Reason.UNAUTHORIZED, "a token is sent over https alone")
        return {"Authorization": f"Bearer {_token(self.token_file)}"}

    def _opener(self) -> OpenerDirector:
        """One that follows no redirection, which would carry the token on."""
        from urllib.request import HTTPRedirectHandler, HTTPSHandler, ProxyHandler, build_opener

        class Stay(HTTPRedirectHandler):
            def redirect_request(self, *_: object) -> None:
                """None is there to be followed."""

        proxies = [ProxyHandler({})] if _is_loopback(self.url) else []
        return build_opener(Stay, HTTPSHandler(context=self._trust()), *proxies)

    def _trust(self) -> SSLContext:
        import ssl

        try:
            return ssl.create_default_context(cafile=self.ca_file)
        except ssl.SSLError:
            raise _Refused(Reason.UNREACHABLE, f"{self.ca_file} holds no certificates") from None
        except OSError as error:
            raise _Refused(Reason.UNREACHABLE, f"{self.ca_file}: {error.strerror}") from None


@dataclass
class _Refused(Exception):
    reason: Reason
    message: str


def is_address(url: str) -> bool:
    """Whether it can be the address of a server, without a user and a password: they are never sent."""
    try:
        parts = urlsplit(url)
        named = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        return named and "@" not in parts.netloc
    except ValueError:
        return False


def can_keep_a_token(url: str) -> bool:
    """Whether nobody between here and there can read what is sent."""
    return urlsplit(url).scheme == "https" or _is_loopback(url)


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _token(file: Path) -> str:
    try:
        token = file.read_text(encoding="ascii").strip()
    except OSError as error:
        raise _Refused(Reason.UNAUTHORIZED, f"the token's file {file}: {error.strerror}") from None
    except ValueError:
        token = ""
    if not _TOKEN.fullmatch(token):
        raise _Refused(Reason.UNAUTHORIZED, f"the file {file} holds no bearer token")
    return token


def _whole(answer: HTTPResponse) -> bytes:
    body = answer.read(_LIMIT + 1)
    if len(body) > _LIMIT:
        raise _Refused(Reason.MALFORMED, f"the answer is larger than {_LIMIT // 1024 // 1024} MiB")
    if answer.length:  # so much was promised beyond what came
        raise _Refused(Reason.MALFORMED, "the answer breaks off")
    return body


def _answered(code: int, reason: str) -> _Refused:
    if code in _ELSEWHERE:
        return _Refused(Reason.SERVER_ERROR, f"HTTP {code}: it sends elsewhere, which is not followed")
    return _Refused(_REASONS.get(code, Reason.SERVER_ERROR), f"HTTP {code}: {reason}")


def _unreachable(reason: object, timeout: float) -> _Refused:
    if isinstance(reason, TimeoutError):
        return _Refused(Reason.TIMEOUT, f"no connection within {timeout:g} s")
    return _Refused(Reason.UNREACHABLE, str(reason))
