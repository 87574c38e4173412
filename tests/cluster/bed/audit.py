"""The API server's audit log as a list: which requests were made, when, by whom, and how they ended."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
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
        latest = {entry["auditID"]: _event(entry) for entry in self._entries()}
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

    def _entries(self) -> Iterator[dict[str, Any]]:
        with self.file.open() as lines:
            for line in lines:
                if line.endswith("\n"):  # else it is being written
                    yield json.loads(line)


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
