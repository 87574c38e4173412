"""Reports for tests of the outputs."""

from __future__ import annotations

from gpuctl.audit.assertion import Assertion
from gpuctl.audit.catalogue import Catalogue
from gpuctl.audit.policy import Policy
from gpuctl.audit.report import AuditReport, Source
from gpuctl.audit.run import Request, audit
from gpuctl.facts.state import Reason, Unknown
from tests.audit.helpers import a_pod_can_be_made, check, pods_are_good, pods_have_a_node
from tests.facts.views import node, pod
from tests.memory import A_MOMENT, MemoryReader

FORBIDDEN = {"nodes": Unknown(Reason.FORBIDDEN, "may not list nodes", "nodes")}
HOSTILE = "bad\x1b[31m\u202e\n[bold]x[/]"


def report(
    *items: dict[str, object],
    assertions: tuple[Assertion, ...] = (pods_are_good, pods_have_a_node),
    missing: dict[str, Unknown] | None = None,
) -> AuditReport:
    source = Source(
        kind="snapshot", name="memory", server_version="v1.36.3", cluster_uid="u-1", captured_at=A_MOMENT
    )
    request = Request(Catalogue((check(*assertions),)), Policy())
    return audit(request, MemoryReader(items, missing=missing or {}), lambda: source)


CLEAN = report(pod("a"), pod("b"), node("default"))
UNPROVEN = report(pod("a"), assertions=(pods_are_good, a_pod_can_be_made))
BROKEN = report(*(pod(f"bad-{number}") for number in range(7)), pod("poor"), pod("note"), missing=FORBIDDEN)
STRANGE = report(pod(HOSTILE), node("default"))
EMPTY = report()
