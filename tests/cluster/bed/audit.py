"""The API server's audit log as a list: which requests were made, when, by whom, and how they ended."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True)
class AuditEvent:
    """A request that the API server has answered, or is answering if it is a watch."""

    at: datetime
    user: str
    impersonated: str
    user_agent: str
    verb: str
    group: str
    version: str
    resource: str
    subresource: str
    namespace: str
    name: str
    uri: str
    code: int
    dry_run: bool


@dataclass(frozen=True)
class AuditLog:
    """The log's file. The API server writes it before it answers, so what was answered is in it."""

    file: Path

    def requests(
        self, *, since: datetime | None = None, user: str | None = None, user_agent_prefix: str = ""
    ) -> list[AuditEvent]:
        """The requests in the order they came, each once."""
        marks = [_text("userAgent", user_agent_prefix), *([_text("username", user)] if user else [])]
        latest = {entry["auditID"]: _event(entry) for entry in self._entries(since, marks)}
        return sorted(
            (
                event
                for event in latest.values()
                if (since is None or event.at >= since)
                and (user is None or event.user == user)
                and event.user_agent.startswith(user_agent_prefix)
            ),
            key=lambda event: event.at,
        )

    def _entries(self, since: datetime | None, marks: list[bytes]) -> Iterator[dict[str, Any]]:
        """Those that may be wanted: most lines of a long log need not be parsed to be passed over."""
        earliest = f"{since.astimezone(UTC):{_TIME}}".encode() if since else b""
        with self.file.open("rb") as lines:
            for line in lines:
                if not line.endswith(b"\n"):  # it is being written
                    return
                if _received(line) >= earliest and all(mark in line for mark in marks):
                    yield json.loads(line)


@dataclass
class WritesSeen:
    """The requests of one program that change something: read on, each time, from where the log ended."""

    file: Path
    agent: str
    _events: dict[str, AuditEvent] = field(default_factory=dict)
    _read: int = 0
    _lock: Lock = field(default_factory=Lock)

    def all(self) -> list[AuditEvent]:
        """All of them so far, in the order they came."""
        with self._lock:
            self._read_on()
            return sorted(self._events.values(), key=lambda event: event.at)

    def _read_on(self) -> None:
        agent = _text("userAgent", self.agent)
        with self.file.open("rb") as lines:
            lines.seek(self._read)
            for line in lines:
                if not line.endswith(b"\n"):
                    return
                self._read += len(line)
                if agent in line and any(verb in line for verb in _CHANGES):
                    entry = json.loads(line)
                    self._events[entry["auditID"]] = _event(entry)


_TIME = "%Y-%m-%dT%H:%M:%S.%fZ"  # always so many digits: as text they sort like times
_RECEIVED = b'"requestReceivedTimestamp":"'


def _received(line: bytes) -> bytes:
    """When the request of a line came."""
    return line.partition(_RECEIVED)[2].partition(b'"')[0]


def _text(name: str, beginning: str) -> bytes:
    """How a line has a field with this text, or one that begins with it."""
    return f'"{name}":"{beginning}'.encode()


_CHANGES = tuple(f'"verb":"{each}"'.encode() for each in ("create", "patch", "update", "delete"))


def _event(entry: dict[str, Any]) -> AuditEvent:
    on = entry.get("objectRef", {})
    return AuditEvent(
        at=datetime.fromisoformat(entry["requestReceivedTimestamp"]),
        user=entry["user"].get("username", ""),
        impersonated=entry.get("impersonatedUser", {}).get("username", ""),
        user_agent=entry.get("userAgent", ""),
        verb=entry["verb"],
        group=on.get("apiGroup", ""),
        version=on.get("apiVersion", ""),
        resource=on.get("resource", ""),
        subresource=on.get("subresource", ""),
        namespace=on.get("namespace", ""),
        name=on.get("name", ""),
        uri=entry["requestURI"],
        code=entry.get("responseStatus", {}).get("code", 0),
        dry_run="dryRun" in parse_qs(urlsplit(entry["requestURI"]).query),
    )
