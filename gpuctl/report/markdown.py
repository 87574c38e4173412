"""A summary of the run in Markdown, for the page of a CI job."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence

from gpuctl.audit.judge import Verdict
from gpuctl.audit.report import AuditReport, CheckItem
from gpuctl.report import walk, words
from gpuctl.report.group import Group, grouped
from gpuctl.report.plain import plain
from gpuctl.report.summary import summary

ROWS = 100  # of a table: GitHub takes no summary above a mebibyte
_SPECIAL = re.compile(r"[\\`*_\[\]|~#@!$^]|:(?=//)|(?<=www)\.", re.IGNORECASE)
_COUNTED = (Verdict.FAIL, Verdict.UNKNOWN, Verdict.NOT_PROVEN, Verdict.NOT_APPLICABLE, Verdict.PASS)
_PROBLEM = ("Severity", "Code", "Object", "What is wrong", "What to do")


def to_markdown(report: AuditReport) -> str:
    """The report as a page in GitHub's Markdown."""
    return "\n\n".join(_blocks(report)) + "\n"


def _blocks(report: AuditReport) -> Iterator[str]:
    yield "## gpuctl check"
    yield f"**{escaped(summary(report))}**"
    yield f"Read from {escaped(words.source(report))}; {escaped(words.tally(report))}"
    yield _table(("Check", "Verdict", *_COUNTED, "Reads done"), [_check(check) for check in report.checks])
    yield from _section("Findings", _PROBLEM, _findings(report))
    yield from _section("Could not be judged", ("Check", "Assertion", "What and why"), _unknown(report))
    yield from _section("Not proven", ("Check", "Assertion", "Why"), _unproven(report))
    yield from _section("Policy", ("Decision", "State"), _notices(report))


def _section(title: str, headers: Sequence[str], rows: Iterator[Sequence[str]]) -> Iterator[str]:
    """A titled table, if it has rows."""
    cells = list(rows)
    if cells:
        yield f"### {title}"
        yield _table(headers, cells[:ROWS])
    if len(cells) > ROWS:
        yield f"and {len(cells) - ROWS} more"


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headers, ["---"] * len(headers), *([escaped(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _check(check: CheckItem) -> list[str]:
    verdicts = [assertion.verdict for assertion in check.assertions]
    counts = [str(verdicts.count(verdict)) for verdict in _COUNTED]
    reads = f"{check.coverage.read} of {check.coverage.expected}"
    return [check.id, check.verdict, *counts, reads]


def _findings(report: AuditReport) -> Iterator[list[str]]:
    for _check_item, assertion in walk.assertions(report):
        yield from (_finding(group) for group in grouped(assertion.findings))


def _finding(group: Group) -> list[str]:
    first = group.first
    severity = f"{first.severity} ({words.waiver(first.waiver)})" if first.waiver else first.severity
    return [severity, first.code, words.some(group.objects), first.message, first.remedy]


def _unknown(report: AuditReport) -> Iterator[list[str]]:
    for check, assertion in walk.assertions(report):
        if assertion.verdict != Verdict.NOT_PROVEN:
            yield from ([check.id, assertion.statement, words.unknown(item)] for item in assertion.unknown)


def _unproven(report: AuditReport) -> Iterator[list[str]]:
    for check, assertion in walk.assertions(report):
        if assertion.verdict == Verdict.NOT_PROVEN:
            yield [check.id, assertion.statement, assertion.reason]


def _notices(report: AuditReport) -> Iterator[list[str]]:
    yield from ([notice.subject, notice.message] for notice in report.notices)


def escaped(text: str) -> str:
    """Text that no reader of Markdown or HTML takes for markup, a link, a mention or the end of a cell."""
    return html.escape(_SPECIAL.sub(r"\\\g<0>", plain(text)), quote=False)
