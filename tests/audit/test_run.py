"""A whole run: its report, its coverage, and the exit codes as a table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from gpuctl.audit.assertion import Assertion, every
from gpuctl.audit.catalogue import Broken, Catalogue
from gpuctl.audit.finding import Code, Evidence, Finding
from gpuctl.audit.outcome import Gate
from gpuctl.audit.policy import Acceptance, Policy
from gpuctl.audit.report import AuditReport, CheckItem
from gpuctl.audit.run import Observer, Request, audit
from gpuctl.facts.fact import Objects, given
from gpuctl.facts.state import Inapplicable, Reason, Unknown
from gpuctl.report.data import to_json
from tests.audit.helpers import a_pod_can_be_made, check, pods_are_good, pods_have_a_node, source
from tests.facts.views import PodView, node, pod
from tests.memory import MemoryReader

FORBIDDEN = {"nodes": Unknown(Reason.FORBIDDEN, "may not list nodes", "nodes")}
SCHEMA = json.loads(Path("docs/schema/report.v1.json").read_text(encoding="utf-8"))


def report(
    *items: dict[str, object],
    assertions: tuple[Assertion, ...] = (pods_are_good, pods_have_a_node),
    fail_on: str = "error",
    broken: tuple[Broken, ...] = (),
    **reader: Any,
) -> AuditReport:
    checks = Catalogue((check(*assertions),) if assertions else (), broken)
    return audit(Request(checks, Policy(), Gate(fail_on)), MemoryReader(items, **reader), source)


TOLD = Code("TST004", "a pod talks")
GOOD, BAD, POOR, HOME = pod("a"), pod("bad"), pod("poor"), node("default")


@pytest.mark.parametrize(
    ("what", "code", "failed", "incomplete"),
    [
        (report(GOOD, HOME), 0, False, False),
        (report(BAD, HOME), 1, True, False),
        (report(BAD, HOME, fail_on="never"), 0, False, False),
        (report(POOR, HOME), 0, False, False),
        (report(POOR, HOME, fail_on="warning"), 1, True, False),
        (report(pod("note"), HOME, fail_on="warning"), 0, False, False),
        (report(GOOD, missing=FORBIDDEN), 3, False, True),
        (report(GOOD, missing=FORBIDDEN, fail_on="never"), 3, False, True),
        (report(BAD, missing=FORBIDDEN), 1, True, True),
        (report(HOME, missing={"pods": Inapplicable("not served")}), 3, False, True),
        (report(HOME), 3, False, True),
        (report(GOOD, HOME, broken=(Broken("other", "ImportError"),)), 3, False, True),
        (report(GOOD, assertions=(pods_are_good, a_pod_can_be_made)), 0, False, False),
    ],
    ids=[
        "clean",
        "error",
        "error, never fail",
        "warning",
        "warning, fail on it",
        "information",
        "incomplete",
        "incomplete, never fail",
        "error and incomplete",
        "nothing applies",
        "nothing there",
        "broken plugin",
        "not proven",
    ],
)
def test_exit_codes(what: AuditReport, code: int, failed: bool, incomplete: bool) -> None:
    outcome = what.outcome
    assert (outcome.exit_code, outcome.failed, outcome.incomplete) == (code, failed, incomplete)


@pytest.mark.parametrize(
    "what", [report(GOOD, HOME), report(BAD, missing=FORBIDDEN), report(broken=(Broken("x", "e"),))]
)
def test_every_report_fits_the_schema(what: AuditReport) -> None:
    jsonschema.validate(json.loads(to_json(what)), SCHEMA)
    assert msgspec.json.decode(msgspec.json.encode(what), type=AuditReport) == what


def test_the_schema_rejects_what_is_no_report() -> None:
    content = json.loads(to_json(report(GOOD, HOME)))
    content["outcome"]["exitCode"] = "none"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(content, SCHEMA)


def test_coverage_counts_reads_and_names_what_is_missing() -> None:
    (item,) = report(GOOD, missing=FORBIDDEN).checks
    assert (item.coverage.expected, item.coverage.read) == (2, 1)
    assert [(gap.resource, gap.reason) for gap in item.coverage.missing] == [("nodes", "forbidden")]
    (whole,) = report(GOOD, HOME).checks
    assert (whole.coverage.expected, whole.coverage.read, whole.coverage.missing) == (2, 2, ())


def test_findings_come_in_one_order_with_the_same_fingerprints() -> None:
    one, other = report(pod("bad-2"), pod("bad-1"), HOME), report(HOME, pod("bad-1"), pod("bad-2"))
    assert _fingerprints(one) == _fingerprints(other)
    assert len(set(_fingerprints(one))) == 2
    assert [each.object.name for each in one.checks[0].assertions[0].findings] == ["bad-1", "bad-2"]


def _fingerprints(what: AuditReport) -> list[str]:
    return [each.fingerprint for item in what.checks for line in item.assertions for each in line.findings]


def test_evidence_says_when_it_was_read() -> None:
    reader = MemoryReader([BAD, HOME])
    request = Request(Catalogue((check(pods_are_good),)), Policy())
    evidence = audit(request, reader, source).checks[0].assertions[0].findings[0].evidence
    assert [(item.source, item.observed, item.at) for item in evidence] == [
        ("Pod default/bad {.spec}", "seen", reader.now)
    ]


def test_the_observer_gets_each_check_once() -> None:
    seen: list[CheckItem] = []
    checks = Catalogue((check(pods_are_good),), (Broken("other", "ImportError"),))
    result = audit(Request(checks, Policy()), MemoryReader([GOOD]), source, Observer(check=seen.append))
    assert tuple(seen) == result.checks


def test_a_run_that_looked_at_nothing_is_incomplete() -> None:
    """No assertions, proofs alone, gaps alone: no all-clear, whatever the policy accepts."""
    gaps = {"pods": Unknown(Reason.UNREACHABLE, "no answer", "pods")}
    forever = date(9999, 1, 1)
    accepting = Policy(
        accept_unknown=(Acceptance(assertion="*", reason="known", owner="sre", expires=forever),)
    )
    runs = [
        audit(Request(Catalogue((check(),)), Policy()), MemoryReader([]), source),
        audit(Request(Catalogue((check(a_pod_can_be_made),)), Policy()), MemoryReader([]), source),
        audit(Request(Catalogue((check(pods_are_good),)), accepting), MemoryReader([], gaps), source),
    ]
    assert [run.outcome.exit_code for run in runs] == [3, 3, 3]


def test_a_required_check_that_is_not_run_is_missed() -> None:
    request = Request(Catalogue((check(pods_are_good),)), Policy(), Gate(require=("another",)))
    outcome = audit(request, MemoryReader([pod("a")]), source).outcome
    assert (outcome.exit_code, outcome.incomplete) == (3, True)


def test_secrets_in_what_was_read_never_reach_a_report() -> None:
    """A termination message or an error can hold what its author never meant to show."""
    secret = "hf_abcdefghijklmnopqrstuvwxyz123456"
    url = "https://bob:hunter2@example.org/x"
    gap = Unknown(Reason.SERVER_ERROR, f"cannot reach {url} with {secret}", "nodes")

    @every(Objects(PodView), "every pod is quiet", given())
    def quiet(pod: PodView) -> Iterator[Finding]:
        seen = Evidence(pod.ref, "{.status}", f"token {secret}")
        yield Finding(TOLD, pod.ref, f"said {secret}", (seen,), "look", "mend it")

    text = to_json(report(pod("a"), assertions=(quiet, pods_have_a_node), missing={"nodes": gap}))
    assert "said <masked>" in text
    assert secret not in text
    assert "hunter2" not in text
