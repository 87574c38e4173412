"""Annotations of a GitHub workflow: one command per line.

GitHub shows ten annotations of a level per step, so findings that one sentence tells are one annotation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuctl.audit.finding import Severity
from gpuctl.audit.judge import Verdict
from gpuctl.audit.report import AssertionItem, AuditReport, CheckItem
from gpuctl.report import words
from gpuctl.report.group import Group, grouped
from gpuctl.report.plain import plain
from gpuctl.report.summary import summary

_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


def to_github(report: AuditReport) -> str:
    """The report as workflow commands; the last one tells the outcome."""
    return "".join(f"{line}\n" for line in _commands(report))


def _commands(report: AuditReport) -> Iterator[str]:
    for check in report.checks:
        for assertion in check.assertions:
            yield from (_finding(check, group) for group in grouped(assertion.findings))
            yield from _open(check, assertion)
    for notice in report.notices:
        yield _command("warning", "gpuctl policy", [words.notice(notice)])
    yield _command(_level(report), "gpuctl check", list(_conclusion(report)))


def _conclusion(report: AuditReport) -> Iterator[str]:
    yield summary(report)
    yield words.source(report)
    yield words.tally(report)


def _level(report: AuditReport) -> str:
    return "error" if report.outcome.exit_code else "notice"


def _finding(check: CheckItem, group: Group) -> str:
    first = group.first
    level = "notice" if first.waiver else _LEVELS[Severity(first.severity)]
    return _command(level, f"{first.code} {check.id}", list(_details(group)))


def _details(group: Group) -> Iterator[str]:
    first = group.first
    yield plain(first.message)
    if len(group.findings) > 1:
        yield f"{len(group.findings)} alike: {words.some(group.objects)}"
    if first.waiver:
        yield words.waiver(first.waiver)
    yield f"look: {plain(first.look)}"
    yield f"remedy: {plain(first.remedy)}"


def _open(check: CheckItem, assertion: AssertionItem) -> Iterator[str]:
    """What is left open: not proven, or not known. A failed assertion may leave gaps too."""
    if assertion.verdict == Verdict.NOT_PROVEN:
        text = f"{plain(assertion.statement)} ({plain(assertion.reason)})"
        yield _command("notice", f"not proven {check.id}", [text])
    elif assertion.unknown:
        yield _command(_weight(assertion), f"could not be judged {check.id}", list(_gaps(assertion)))


def _weight(assertion: AssertionItem) -> str:
    return "notice" if all(item.accepted for item in assertion.unknown) else "error"


def _gaps(assertion: AssertionItem) -> Iterator[str]:
    yield plain(assertion.statement)
    yield from (words.unknown(item) for item in assertion.unknown[: words.SHOWN])
    rest = len(assertion.unknown) - words.SHOWN
    if rest > 0:
        yield f"and {rest} more"


def _command(level: str, title: str, lines: Sequence[str]) -> str:
    message = _data("\n".join(lines))
    return f"::{level} title={_property(plain(title))}::{message}"


def _data(text: str) -> str:
    """The escapes that GitHub documents for a command's message."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """The escapes for a command's property."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")
