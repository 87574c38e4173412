"""The certificates that a Service's port shows: what a TLS handshake with it tells."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from gpuctl.facts.kinds import Ref


@dataclass(frozen=True, slots=True)
class ServedPort:
    """A port of a Service, called by a name, and the pod behind it whose port is asked. Equal for the same
    port of the same Service."""

    service: Ref
    port: int
    server_name: str = field(compare=False)
    pod: Ref = field(compare=False)
    pod_port: int = field(compare=False)

    def __str__(self) -> str:
        """`port 443 of Service kueue-system/kueue-webhook-service`: the way messages name it."""
        return f"port {self.port} of {self.service}"


class Handshake(msgspec.Struct, frozen=True):
    """What came of it. `chain`: the certificates in PEM, the server's own first; nothing of it is verified.
    `error`: why there is none."""

    at: datetime
    server_name: str
    chain: tuple[str, ...] = ()
    error: str = ""
