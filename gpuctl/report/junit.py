"""JUnit XML: one suite per run, one case per assertion.

What could not be judged is an error, and what is not proven or does not apply is skipped, so that no reader
of the file takes it for passed. A run that is incomplete for another reason has one case more, an error.
Non-ASCII characters are references: the file reads the same in any encoding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from gpuctl.audit.decisions import name
from gpuctl.audit.finding import Severity
from gpuctl.audit.judge import Verdict
from gpuctl.audit.outcome import Exit, counts
from gpuctl.audit.report import AssertionItem, AuditReport, CheckItem, FindingItem
from gpuctl.report import walk, words
from gpuctl.report.plain import plain
from gpuctl.report.summary import summary

if TYPE_CHECKING:
    from junitparser import TestCase, TestSuite
    from junitparser.junitparser import FinalResult


def to_junit(report: AuditReport) -> str:
    """The report as JUnit XML."""
    from junitparser import JUnitXml

    file = JUnitXml("gpuctl")
    file.add_testsuite(_suite(report))
    file.update_statistics()
    return _indented(file.tostring())


def _indented(xml: bytes) -> str:
    """The same for people: indented, and read back once, so that what is not well-formed never gets out."""
    from xml.etree import ElementTree as ET

    tree = ET.fromstring(xml)  # noqa: S314 - we have just written it
    ET.indent(tree)
    text: bytes = ET.tostring(tree, encoding="us-ascii", xml_declaration=False)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text.decode("ascii")}\n'


def _suite(report: AuditReport) -> TestSuite:
    from junitparser import SystemOut, TestSuite

    suite = TestSuite("gpuctl check")
    suite.timestamp = f"{report.run.started_at:%Y-%m-%dT%H:%M:%S}"
    for key, value in _properties(report):
        suite.add_property(key, value)
    suite.add_testcases([_case(check, assertion) for check, assertion in walk.assertions(report)])
    if report.outcome.exit_code == Exit.INCOMPLETE and not suite.errors:
        suite.add_testcase(_lack(report))
    suite.append(SystemOut("\n".join(_conclusion(report))))
    return suite


def _conclusion(report: AuditReport) -> Iterator[str]:
    yield from (words.notice(notice) for notice in report.notices)
    yield summary(report)


def _properties(report: AuditReport) -> Iterator[tuple[str, str]]:
    outcome, origin = report.outcome, report.run.source
    yield "outcome.exitCode", str(int(outcome.exit_code))
    yield "outcome.failed", str(outcome.failed).lower()
    yield "outcome.incomplete", str(outcome.incomplete).lower()
    for verdict, count in outcome.counts.verdict.items():
        yield f"outcome.verdict.{verdict}", str(count)
    for severity, count in outcome.counts.severity.items():
        yield f"outcome.severity.{severity}", str(count)
    yield "source", words.source(report)
    yield "source.clusterUID", plain(origin.cluster_uid)
    yield "run.id", plain(report.run.id)
    yield "run.version", plain(report.run.version)


def _lack(report: AuditReport) -> TestCase:
    """An error for what no assertion stands for: a gate that reads the file alone must see it, too."""
    from junitparser import Error, TestCase

    judged = any(each.verdict in (Verdict.PASS, Verdict.FAIL) for _, each in walk.assertions(report))
    case = TestCase("all that is required was judged" if judged else "something was judged", "gpuctl")
    case.append(Error(summary(report), Verdict.UNKNOWN.value))
    return case


def _case(check: CheckItem, assertion: AssertionItem) -> TestCase:
    from junitparser import SystemOut, TestCase

    case = TestCase(plain(assertion.statement), plain(check.id))
    result = _result(assertion)
    if result is not None:
        case.append(result)
    if assertion.findings and assertion.verdict != Verdict.FAIL:
        case.append(SystemOut(_findings(assertion.findings)))
    return case


def _result(assertion: AssertionItem) -> FinalResult | None:
    from junitparser import Error, Skipped

    match assertion.verdict:
        case Verdict.PASS:
            return None
        case Verdict.FAIL:
            return _failure(assertion)
        case Verdict.UNKNOWN:
            return _open(assertion, Skipped if _accepted(assertion) else Error, "could not be judged")
        case Verdict.NOT_PROVEN:
            return _open(assertion, Skipped, "not proven")
        case _:
            return _open(assertion, Skipped, "not applicable")


def _accepted(assertion: AssertionItem) -> bool:
    """Whether the policy accepts that this stays unknown."""
    return bool(assertion.unknown) and all(item.accepted for item in assertion.unknown)


def _open(assertion: AssertionItem, kind: type[FinalResult], why: str) -> FinalResult:
    result = kind(f"{why}: {plain(assertion.reason)}", plain(assertion.verdict))
    return _with_text(result, _unknown(assertion))


def _failure(assertion: AssertionItem) -> FinalResult:
    """All findings, and below them what could not be judged. A case has but one result."""
    from junitparser import Failure

    weighing = [each for each in assertion.findings if counts(each) and each.severity != Severity.INFO]
    codes = ", ".join(sorted({plain(finding.code) for finding in weighing}))
    text = _findings(assertion.findings)
    if assertion.unknown:
        text += f"\n\ncould not be judged:\n{_unknown(assertion)}"
    return _with_text(Failure(_headline(weighing), codes), text)


def _headline(findings: Sequence[FindingItem]) -> str:
    rest = len(findings) - 1
    return plain(findings[0].message) + (f" (and {rest} more)" if rest else "")


def _with_text(result: FinalResult, text: str) -> FinalResult:
    if text:
        result.text = text
    return result


def _unknown(assertion: AssertionItem) -> str:
    return "\n".join(words.unknown(item) for item in assertion.unknown)


def _findings(findings: Iterable[FindingItem]) -> str:
    return "\n\n".join("\n".join(_finding(finding)) for finding in findings)


def _finding(finding: FindingItem) -> Iterator[str]:
    yield f"{plain(finding.severity)} {plain(finding.code)} {plain(finding.message)}"
    yield f"  object  {plain(name(finding))}"
    if finding.waiver:
        yield f"  {words.waiver(finding.waiver)}"
    for item in finding.evidence:
        yield f"  {words.evidence(item)}"
    yield f"  look  {plain(finding.look)}"
    yield f"  remedy  {plain(finding.remedy)}"
