"""The Kubernetes Event on what a run changes: what was done, by whom and why, for all who look at that."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from gpuctl.facts.kinds import Kind, Ref
from gpuctl.nvidia.objects import NodeView
from gpuctl.runbook.records import Outcome, Run, labels_of

EVENTS: Final = Kind("", ("v1",), "Event", "events", namespaced=True)
OF_THE_CLUSTER: Final = "default"  # where Events are made on what is in no namespace
LONGEST: Final = 1024  # of a message


def event(on: Ref, run: Run, what: str, message: str) -> tuple[Ref, Mapping[str, Any]]:
    """An Event on this object. The API server takes it in the object's own namespace alone."""
    is_node = on.kind == NodeView.of
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    body = {
        "metadata": {"labels": labels_of(run.id, run.runbook)},
        "involvedObject": {
            "apiVersion": on.kind.api_version(),
            "kind": on.kind.kind,
            "name": on.name,
            **({"namespace": on.namespace} if on.namespace else {}),
            "uid": on.name if is_node else run.target_uid,  # as the kubelet has it of its node
        },
        "reason": f"Gpuctl{what.title().replace('-', '')}",
        "message": message[:LONGEST],
        "type": "Warning" if what in (Outcome.FAILED, Outcome.TIMED_OUT) else "Normal",
        "source": {"component": "gpuctl", **({"host": on.name} if is_node else {})},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
        "reportingComponent": "gpuctl",
        "reportingInstance": run.session,
    }
    return Ref(EVENTS, f"gpuctl-{run.id}-{secrets.token_hex(3)}", on.namespace or OF_THE_CLUSTER), body
