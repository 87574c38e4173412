"""Waivers, accepted unknowns, severities and baselines: shown always, weighing until a day."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from gpuctl.audit.assertion import Strength
from gpuctl.audit.catalogue import Catalogue
from gpuctl.audit.decisions import Decisions
from gpuctl.audit.outcome import Gate
from gpuctl.audit.policy import Acceptance, Policy, Waiver
from gpuctl.audit.report import AuditReport, FindingItem, UnknownItem
from gpuctl.audit.run import Request, audit
from gpuctl.facts.state import Inapplicable, Reason, Unknown
from tests.audit.helpers import a_pod_can_be_made, check, pods_are_good, pods_have_a_node, source
from tests.facts.views import node, pod
from tests.memory import MemoryReader

TODAY = datetime.now(UTC).date()
FORBIDDEN = {"nodes": Unknown(Reason.FORBIDDEN, "may not list nodes", "nodes")}
ITEMS = (pod("bad"), pod("a"), node("default"))


def waiver(**changes: Any) -> Waiver:
    return Waiver(**{"code": "TST001", "reason": "known", "owner": "sre", "expires": TODAY, **changes})


def acceptance(**changes: Any) -> Acceptance:
    given = {"assertion": "pods-test/*", "reason": "tenant", "owner": "sre", "expires": TODAY}
    return Acceptance(**{**given, **changes})


def report(policy: Policy, *items: dict[str, object], gate: Gate | None = None, **more: Any) -> AuditReport:
    request = Request(
        Catalogue((check(pods_are_good, pods_have_a_node),)), policy, gate or Gate(), more.pop("baseline", ())
    )
    return audit(request, MemoryReader(items or ITEMS, **more), source)


def findings(what: AuditReport) -> list[FindingItem]:
    return [each for assertion in what.checks[0].assertions for each in assertion.findings]


@pytest.mark.parametrize(
    ("waivers", "code", "notice"),
    [
        ((), 1, []),
        ((waiver(),), 0, []),
        ((waiver(object="Pod default/b*"),), 0, []),
        ((waiver(object="Pod other/*"),), 1, ["unused"]),
        ((waiver(code="TST002"),), 1, ["unused"]),
        ((waiver(expires=TODAY - timedelta(days=1)),), 1, ["expired"]),
        ((waiver(code="XYZ001"),), 1, []),  # of a check that did not run
    ],
    ids=["none", "fits", "pattern fits", "other object", "other code", "expired", "other check"],
)
def test_waivers(waivers: tuple[Waiver, ...], code: int, notice: list[str]) -> None:
    what = report(Policy(waivers=waivers))
    assert what.outcome.exit_code == code
    assert [each.state for each in what.notices] == notice
    (finding,) = findings(what)
    assert (finding.waiver is not None) == (code == 0)


def test_a_waived_finding_is_shown_and_the_check_passes() -> None:
    what = report(Policy(waivers=(waiver(),)))
    assert what.checks[0].verdict == "pass"
    assert what.outcome.counts.severity["error"] == 0


def test_severities_can_be_overridden() -> None:
    assert report(Policy(severity={"TST001": "warning"})).outcome.exit_code == 0
    assert report(Policy(severity={"TST001": "info"})).checks[0].verdict == "pass"
    assert report(Policy(severity={"TST002": "error"}), pod("poor"), node("default")).outcome.exit_code == 1


@pytest.mark.parametrize(
    ("accepted", "code", "notice"),
    [
        (acceptance(), 0, []),
        (acceptance(cause="forbidden"), 0, []),
        (acceptance(cause="timeout"), 3, ["unused"]),
        (acceptance(assertion="pods-test/pods-are-good"), 3, ["unused"]),
        (acceptance(expires=TODAY - timedelta(days=1)), 3, ["expired"]),
    ],
    ids=["any", "this reason", "other reason", "other assertion", "expired"],
)
def test_what_may_stay_unknown(accepted: Acceptance, code: int, notice: list[str]) -> None:
    what = report(Policy(accept_unknown=(accepted,)), pod("a"), missing=FORBIDDEN)
    assert what.outcome.exit_code == code
    assert [each.state for each in what.notices] == notice
    assert what.checks[0].verdict == "unknown", "accepted or not, it is not known"


def test_a_baseline_spares_what_it_knows_only_when_asked() -> None:
    known = [each.fingerprint for each in findings(report(Policy()))]
    only_new = Gate(only_new=True)
    assert report(Policy(), baseline=known).outcome.exit_code == 1
    assert report(Policy(), baseline=known, gate=only_new).outcome.exit_code == 0
    more = (*ITEMS, pod("bad-2"))
    assert report(Policy(), *more, baseline=known, gate=only_new).outcome.exit_code == 1
    assert report(Policy(), baseline=(), gate=only_new).outcome.exit_code == 1


def test_a_check_can_be_required_to_apply() -> None:
    off = {"pods": Inapplicable("not served")}
    other = check(pods_have_a_node)
    request = Request(Catalogue((other,)), Policy(), Gate(require=["pods-test"]))
    assert audit(request, MemoryReader([node("default")], missing=off), source).outcome.exit_code == 3


@pytest.mark.parametrize(("gate", "code"), [(Gate(), 0), (Gate(require_proof=True), 3)])
def test_proofs_can_be_required(gate: Gate, code: int) -> None:
    request = Request(Catalogue((check(pods_are_good, a_pod_can_be_made),)), Policy(), gate)
    assert audit(request, MemoryReader([pod("a")]), source).outcome.exit_code == code


@pytest.mark.parametrize(("percent", "code"), [(0, 0), (50, 0), (51, 3)])
def test_a_share_of_the_reads_can_be_required(percent: float, code: int) -> None:
    accepted = Policy(accept_unknown=(acceptance(),))
    what = report(accepted, pod("a"), missing=FORBIDDEN, gate=Gate(min_coverage=percent))
    assert what.outcome.exit_code == code


def test_a_waived_proof_with_a_gap_that_nobody_asked_for_is_not_proven() -> None:
    found = report(Policy()).checks[0]
    gap = UnknownItem(object="Namespace b", reason=Reason.NOT_ASKED.value)
    proof = msgspec.structs.replace(found.assertions[0], kind=Strength.PROOF.value, unknown=(gap,))
    decided = Decisions(Policy(waivers=(waiver(),)), TODAY).applied(
        msgspec.structs.replace(found, assertions=(proof,))
    )
    assert decided.assertions[0].verdict == "not-proven"
