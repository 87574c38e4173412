"""What each format promises beyond its syntax."""

from __future__ import annotations

import pytest

from gpuctl.cli.output import rendered
from tests.facts.views import pod
from tests.report.golden import short
from tests.report.readers import commands, samples, sarif_run, suite, tables
from tests.report.reports import BROKEN, CLEAN, DECIDED, EMPTY, FORBIDDEN, UNPROVEN, report


def test_junit_keeps_unknown_and_unproven_apart_from_passed() -> None:
    failed, unknown = suite(rendered(BROKEN, "junit"))
    assert (failed.is_failure, failed.classname) == (True, "pods-test")
    assert failed.result[0].text.count("look  kubectl") == 9
    assert (unknown.is_error, unknown.result[0].type) == (True, "unknown")
    proven, unproven = suite(rendered(UNPROVEN, "junit"))
    assert proven.is_passed
    assert unproven.result[0].message == "not proven: not-asked: no dry run was made"
    *checked, lack = suite(rendered(EMPTY, "junit"))
    assert {case.result[0].type for case in checked} == {"not-applicable"}
    assert (lack.is_error, lack.classname) == (True, "gpuctl")


def test_junit_counts_what_the_policy_accepts_as_skipped() -> None:
    waived, accepted = suite(rendered(DECIDED, "junit"))
    assert waived.is_passed
    assert "waived until 2027-11-30 by team-a" in waived.system_out
    assert (accepted.is_skipped, accepted.result[0].type) == (True, "unknown")


def test_sarif_has_results_even_when_there_are_none() -> None:
    run = sarif_run(rendered(CLEAN, "sarif"))
    assert run["results"] == []
    assert run["tool"]["driver"]["rules"] == []


def test_sarif_names_places_rules_and_fingerprints() -> None:
    run = sarif_run(rendered(BROKEN, "sarif"))
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["TST001", "TST002", "TST003"]
    assert {result["level"] for result in run["results"]} == {"error", "warning", "note"}
    places = [result["locations"][0]["logicalLocations"][0] for result in run["results"]]
    assert places[0]["fullyQualifiedName"] == "Pod/default/bad-0"
    prints = [result["partialFingerprints"]["gpuctl/v1"] for result in run["results"]]
    findings = [finding for item in BROKEN.checks[0].assertions for finding in item.findings]
    assert prints == [finding.fingerprint for finding in findings]


def test_sarif_tells_what_could_not_be_judged() -> None:
    (invocation,) = sarif_run(rendered(BROKEN, "sarif"))["invocations"]
    assert invocation["executionSuccessful"] is False
    (notification,) = invocation["toolExecutionNotifications"]
    assert (notification["level"], notification["descriptor"]["id"]) == ("error", "unknown")
    (unproven,) = sarif_run(rendered(UNPROVEN, "sarif"))["invocations"]
    assert unproven["executionSuccessful"] is True
    assert unproven["toolExecutionNotifications"][0]["descriptor"]["id"] == "not-proven"


def test_sarif_and_prometheus_know_what_is_waived() -> None:
    (result,) = sarif_run(rendered(DECIDED, "sarif"))["results"]
    assert result["suppressions"][0]["status"] == "accepted"
    assert samples(rendered(DECIDED, "prometheus"))["gpuctl_findings"] == []


def test_markdown_stays_below_what_a_job_page_takes() -> None:
    names = [f"{word}-{number}" for number in range(300) for word in ("bad", "poor")]
    many = report(*(pod(f"{name}-crash") for name in names), missing=FORBIDDEN)
    text = rendered(many, "markdown")
    assert max(len(table) for table in tables(text)) == 101
    assert "and 501 more" in text


def test_github_makes_one_annotation_of_what_one_sentence_tells() -> None:
    levels = [(level, title) for level, title, _text in commands(rendered(BROKEN, "github"))]
    assert levels == [
        ("error", "TST001 pods-test"),
        ("warning", "TST002 pods-test"),
        ("notice", "TST003 pods-test"),
        ("error", "could not be judged pods-test"),
        ("error", "gpuctl check"),
    ]


@pytest.mark.parametrize(("of", "lines"), [(CLEAN, 2), (BROKEN, 5), (UNPROVEN, 2), (EMPTY, 2)])
def test_the_short_form_has_the_cluster_failures_unknowns_and_the_last_line(of: object, lines: int) -> None:
    text = short(of)  # type: ignore[arg-type]
    assert len(text.splitlines()) == lines
    assert text.startswith("snapshot memory")
    assert text.splitlines()[-1].endswith(".")
