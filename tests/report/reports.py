"""Reports for tests of the outputs."""

from __future__ import annotations

from datetime import date

import msgspec

from gpuctl.audit.assertion import Assertion
from gpuctl.audit.catalogue import Catalogue
from gpuctl.audit.policy import Acceptance, Policy, Waiver
from gpuctl.audit.report import AuditReport, Source
from gpuctl.audit.run import Request, audit
from gpuctl.facts.state import Reason, Unknown
from tests.audit.helpers import a_pod_can_be_made, check, pods_are_good, pods_have_a_node
from tests.facts.views import node, pod
from tests.memory import A_MOMENT, MemoryReader

FORBIDDEN = {"nodes": Unknown(Reason.FORBIDDEN, "may not list nodes", "nodes")}
HOSTILE = "bad\x1b[31m\u202e\n[bold]x[/]"
SYNTAX = (
    'bad \n::error title=x,y:z::100%0A ]]> <b>&amp; -- | `code` "{0}" [l](u://v) '
    "##[group] $a$ @all www.x.y \\"
)
A_YEAR_ON = date(2027, 11, 30)
WAIVED = Waiver(code="TST001", object="Pod *bad-*", reason="known", owner="team-a", expires=A_YEAR_ON)
UNUSED = Waiver(code="TST002", reason="was so", owner="team-b", expires=A_YEAR_ON)
ACCEPTED = Acceptance(assertion="*", cause="forbidden", reason="no right", owner="team-a", expires=A_YEAR_ON)


def report(
    *items: dict[str, object],
    assertions: tuple[Assertion, ...] = (pods_are_good, pods_have_a_node),
    missing: dict[str, Unknown] | None = None,
    policy: Policy | None = None,
) -> AuditReport:
    """A report that is the same in every run."""
    source = Source(
        kind="snapshot", name="memory", server_version="v1.36.3", cluster_uid="u-1", captured_at=A_MOMENT
    )
    request = Request(Catalogue((check(*assertions),)), policy or Policy())
    made = audit(request, MemoryReader(items, missing=missing or {}), lambda: source)
    run = msgspec.structs.replace(
        made.run, id="r-1", version="0.0.0", started_at=A_MOMENT, finished_at=A_MOMENT
    )
    return msgspec.structs.replace(made, run=run)


CLEAN = report(pod("a"), pod("b"), node("default"))
UNPROVEN = report(pod("a"), assertions=(pods_are_good, a_pod_can_be_made))
BROKEN = report(*(pod(f"bad-{number}") for number in range(7)), pod("poor"), pod("note"), missing=FORBIDDEN)
STRANGE = report(pod(HOSTILE), pod(SYNTAX), node("default"))
DECIDED = report(
    pod("bad-0"), missing=FORBIDDEN, policy=Policy(waivers=(WAIVED, UNUSED), accept_unknown=(ACCEPTED,))
)
EMPTY = report()
REPORTS = {
    "clean": CLEAN,
    "broken": BROKEN,
    "unproven": UNPROVEN,
    "strange": STRANGE,
    "decided": DECIDED,
    "empty": EMPTY,
}
