"""A policy that holds nobody up: tests change many nodes at once, and let many runs fail."""

from __future__ import annotations

from typing import Any, Final

import yaml

from gpuctl.audit.policy import Policy, parse

LEASE_SECONDS: Final = 5
_RUNBOOKS: Final = {
    "windows": [{"from": "00:00", "to": "24:00"}],
    "maxNodes": 20,
    "maxPoolShare": 1.0,
    "breaker": {"failures": 1000},
    "leaseSeconds": LEASE_SECONDS,
}


def _content(more: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "gpuctl.dev/v1", "kind": "Policy", "runbooks": {**_RUNBOOKS, **more}}


def lenient_file(**more: Any) -> str:
    """As it stands in a file, with more of what runbooks must keep to."""
    return yaml.safe_dump(_content(more))


def lenient(**more: Any) -> Policy:
    """The same, as it is read from one."""
    return parse(_content(more), "a test")
