"""The short form, to paste into a chat: where, what failed, what is unknown, the sum. A line for each."""

from __future__ import annotations

from rich.text import Text

from gpuctl.audit.finding import Severity
from gpuctl.audit.judge import Verdict
from gpuctl.audit.outcome import counts
from gpuctl.audit.report import AssertionItem, AuditReport
from gpuctl.report import walk, words
from gpuctl.report.group import Group, grouped
from gpuctl.report.plain import plain
from gpuctl.report.summary import summary
from gpuctl.report.text import Canvas


def draw_short(report: AuditReport, on: Canvas) -> None:
    """Draws where it was and what a person must know. No line is broken: a chat breaks it as it likes."""
    _print(Text(words.source(report)), on)
    for _check, assertion in walk.assertions(report):
        _draw_assertion(assertion, on)
    for notice in report.notices:
        if notice.state == "expired":  # of the others a chat need not know
            _print(on.sign("warning").append(words.notice(notice)), on)
    _print(Text(summary(report), style="bold"), on)


def _draw_assertion(assertion: AssertionItem, on: Canvas) -> None:
    for group in grouped(assertion.findings):
        if counts(group.first) and group.first.severity != Severity.INFO:
            _print(on.sign(group.first.severity).append(_finding(group)), on)
    if assertion.unknown and assertion.verdict != Verdict.NOT_PROVEN:
        _print(on.sign("unknown").append(_unknown(assertion)), on)


def _finding(group: Group) -> str:
    alike = f" ({len(group.findings)} alike)" if len(group.findings) > 1 else ""
    return f"{plain(group.first.code)} {plain(group.first.message)}{alike}"


def _unknown(assertion: AssertionItem) -> str:
    rest = len(assertion.unknown) - 1
    more = f" (and {rest} more)" if rest else ""
    return f"{plain(assertion.statement)}: could not be judged: {words.unknown(assertion.unknown[0])}{more}"


def _print(line: Text, on: Canvas) -> None:
    on.console.print(line, highlight=False, soft_wrap=True)
