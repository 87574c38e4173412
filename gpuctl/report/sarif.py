"""SARIF 2.1.0, as OASIS wrote it down.

A place in a cluster is no file, so the locations are logical alone. What could not be judged, and what is
not proven, are notifications of the tool: a result would say that something is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from gpuctl.audit.finding import Severity
from gpuctl.audit.judge import Verdict
from gpuctl.audit.report import AssertionItem, AuditReport, CheckItem, FindingItem, ObjectRef
from gpuctl.report import walk, words
from gpuctl.report.plain import plain
from gpuctl.report.summary import summary

Json = dict[str, Any]

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
_NOTIFICATIONS = {
    "unknown": "Something could not be judged: it may be wrong.",
    "not-proven": "Nothing speaks against it, but the proof was not permitted or not asked for.",
    "policy": "A decision in the policy needs attention.",
}


def to_sarif(report: AuditReport) -> str:
    """The report as a SARIF log with one run. ASCII only, like the JSON report."""
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [_run(report)]}
    return json.dumps(log, indent=2) + "\n"


def _run(report: AuditReport) -> Json:
    return {
        "tool": {"driver": _driver(report)},
        "automationDetails": {"id": f"gpuctl/{plain(report.run.source.name)}/{plain(report.run.id)}"},
        "invocations": [_invocation(report)],
        "results": [
            _result(check, assertion, finding)
            for check, assertion in walk.assertions(report)
            for finding in assertion.findings
        ],
        "properties": {
            "outcome": msgspec.to_builtins(report.outcome),
            "source": words.source(report),
            "clusterUID": plain(report.run.source.cluster_uid),
        },
    }


def _driver(report: AuditReport) -> Json:
    return {
        "name": "gpuctl",
        "version": plain(report.run.version),
        "rules": list(_rules(report).values()),
        "notifications": [
            {"id": id_, "shortDescription": {"text": text}} for id_, text in _NOTIFICATIONS.items()
        ],
    }


def _rules(report: AuditReport) -> dict[str, Json]:
    """A rule for each code that occurs. What a code means is told by `gpuctl explain`."""
    rules: dict[str, Json] = {}
    for check, assertion in walk.assertions(report):
        for finding in assertion.findings:
            rules.setdefault(finding.code, _rule(check, finding))
    return rules


def _rule(check: CheckItem, finding: FindingItem) -> Json:
    code = plain(finding.code)
    return {
        "id": code,
        "shortDescription": _message(check.title),
        "help": {"text": f"gpuctl explain {code}"},
        "properties": {"check": plain(check.id)},
    }


def _result(check: CheckItem, assertion: AssertionItem, finding: FindingItem) -> Json:
    return {
        "ruleId": plain(finding.code),
        "level": _LEVELS[Severity(finding.severity)],
        "message": _message(finding.message),
        "locations": [{"logicalLocations": [_place(finding.object)]}],
        "partialFingerprints": {"gpuctl/v1": finding.fingerprint},
        "properties": {
            "check": plain(check.id),
            "assertion": plain(assertion.statement),
            "evidence": [words.evidence(item) for item in finding.evidence],
            "look": plain(finding.look),
            "remedy": plain(finding.remedy),
            "known": finding.known,
        },
        "suppressions": list(_suppressions(finding)),
    }


def _suppressions(finding: FindingItem) -> Iterator[Json]:
    """An empty list says that the finding counts."""
    if finding.waiver:
        waiver = words.waiver(finding.waiver)
        yield {"kind": "external", "status": "accepted", "justification": waiver}


def _place(ref: ObjectRef) -> Json:
    parts = [ref.kind, ref.namespace, ref.name] if ref.namespace else [ref.kind, ref.name]
    return {
        "name": plain(ref.name),
        "fullyQualifiedName": plain("/".join(parts)),
        "kind": "resource",
        "properties": {"apiVersion": plain(ref.api_version)},
    }


def _invocation(report: AuditReport) -> Json:
    run = msgspec.to_builtins(report.run)
    return {
        "executionSuccessful": not report.outcome.incomplete,
        "exitCode": int(report.outcome.exit_code),
        "exitCodeDescription": summary(report),
        "startTimeUtc": run["startedAt"],
        "endTimeUtc": run["finishedAt"],
        "toolExecutionNotifications": list(_notifications(report)),
    }


def _notifications(report: AuditReport) -> Iterator[Json]:
    for _check, assertion in walk.assertions(report):
        if assertion.verdict == Verdict.NOT_PROVEN:
            text = f"not proven: {assertion.statement} ({assertion.reason})"
            yield _notification("not-proven", "note", text)
        else:
            yield from _unknown(assertion)
    for notice in report.notices:
        yield _notification("policy", "warning", words.notice(notice))


def _unknown(assertion: AssertionItem) -> Iterator[Json]:
    for item in assertion.unknown:
        text = f"could not be judged: {assertion.statement}: {words.unknown(item)}"
        place = {"logicalLocations": [{"fullyQualifiedName": plain(item.object)}]}
        level = "note" if item.accepted else "error"
        yield _notification("unknown", level, text) | {"locations": [place]}


def _notification(id_: str, level: str, text: str) -> Json:
    return {"descriptor": {"id": id_}, "level": level, "message": _message(text)}


def _message(text: str) -> Json:
    """A plain text message. Braces would be placeholders, and `[text](target)` a link."""
    shown = plain(text).replace("{", "{{").replace("}", "}}").replace("](", "] (")
    return {"text": shown or "-"}
