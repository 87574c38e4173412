"""The report on a terminal, in linkerd's manner: facts that should hold, and details under failures only."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from gpuctl.audit.finding import Severity
from gpuctl.audit.judge import Verdict
from gpuctl.audit.outcome import counts
from gpuctl.audit.report import AssertionItem, AuditReport, CheckItem, FindingItem, UnknownItem
from gpuctl.report import walk, words
from gpuctl.report.group import Group, grouped
from gpuctl.report.plain import plain
from gpuctl.report.summary import summary

_STYLES = {
    "error": "red",
    "warning": "yellow",
    "info": "cyan",
    "unknown": "magenta",
    "pass": "green",
    "none": "dim",
}
_GLYPHS = {"error": "×", "warning": "‼", "info": "i", "unknown": "?", "pass": "√", "none": "-"}
_ASCII = {**_GLYPHS, "error": "x", "warning": "!!", "pass": "ok"}


@dataclass(frozen=True, slots=True)
class Canvas:
    """Where to draw, with which signs, and whether to draw everything."""

    console: Console
    glyphs: dict[str, str]
    verbose: bool = False

    def line(self, text: Text | str, indent: int = 0) -> None:
        """Draws a paragraph, wrapped under its own indentation on a terminal, whole in a pipe."""
        text = Text(text) if isinstance(text, str) else text
        if self.console.is_terminal:
            for part in text.wrap(self.console, max(self.console.width - indent, 20)):
                part.rstrip()
                self._print(part, indent)
        else:
            self._print(text, indent)

    def _print(self, text: Text, indent: int) -> None:
        self.console.print(Text(" " * indent).append_text(text), highlight=False, soft_wrap=True)

    def sign(self, name: str) -> Text:
        """The sign of a severity or a verdict."""
        return Text().append(self.glyphs[name] + " ", style=_STYLES[name])


def canvas(console: Console, *, verbose: bool = False) -> Canvas:
    """A canvas whose signs the console's encoding can write."""
    try:
        "".join(_GLYPHS.values()).encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return Canvas(console, _ASCII, verbose)
    return Canvas(console, _GLYPHS, verbose)


def draw(report: AuditReport, on: Canvas) -> None:
    """Draws the whole report: the checks, then what to do, then one line that says it all."""
    for check in report.checks:
        draw_check(check, on)
    draw_conclusion(report, on)


def draw_conclusion(report: AuditReport, on: Canvas) -> None:
    """Draws what stands below the checks."""
    _draw_remedies(report, on)
    for notice in report.notices:
        on.line(on.sign("warning").append(words.notice(notice)))
    on.line(Text(words.source(report), style="dim"))
    on.line(Text(summary(report), style="bold"))
    for hint in _proofs(report):
        on.line(hint, indent=2)
    for command in _runbooks(report):
        on.line(f"runbook: {command}", indent=2)


def draw_check(check: CheckItem, on: Canvas) -> None:
    """Draws one section."""
    heading = f"{plain(check.id)}: {plain(check.title)}"
    on.line(Text(heading, style="bold"))
    on.line("-" * min(len(heading), on.console.width))
    for assertion in check.assertions:
        _draw_assertion(assertion, on)
    on.line(Text(_coverage(check), style="dim"))
    on.line("")


def _draw_assertion(assertion: AssertionItem, on: Canvas) -> None:
    line = on.sign(_sign(assertion)).append(plain(assertion.statement))
    line.append(_note(assertion), style="dim")
    on.line(line)
    for group in grouped(assertion.findings):
        _draw_group(group, on)
    for unknown in _shown_unknown(assertion, on):
        on.line(on.sign("unknown").append(words.unknown(unknown)), indent=4)


def _sign(assertion: AssertionItem) -> str:
    if assertion.verdict == Verdict.FAIL:
        return (
            "error"
            if any(each.severity == Severity.ERROR and counts(each) for each in assertion.findings)
            else "warning"
        )
    signs = {Verdict.PASS: "pass", Verdict.NOT_APPLICABLE: "none"}
    return signs.get(Verdict(assertion.verdict), "unknown")


def _note(assertion: AssertionItem) -> str:
    """What stands behind the statement: how much was looked at, or why there is no verdict."""
    match assertion.verdict:
        case Verdict.NOT_APPLICABLE:
            return f"  not applicable: {plain(assertion.reason)}"
        case Verdict.NOT_PROVEN:
            return f"  not proven: {plain(assertion.reason)}"
        case Verdict.UNKNOWN:
            return "  could not be judged"
        case _:
            return f"  {assertion.looked} looked at" if assertion.looked > 1 else ""


def _shown_unknown(assertion: AssertionItem, on: Canvas) -> tuple[UnknownItem, ...]:
    if assertion.verdict == Verdict.NOT_PROVEN:
        return ()
    return assertion.unknown if on.verbose else assertion.unknown[: words.SHOWN]


def _draw_group(group: Group, on: Canvas) -> None:
    first = group.first
    sign = on.sign("none" if first.waiver else first.severity)
    line = sign.append(plain(first.code), style="bold").append(f" {plain(first.message)}")
    on.line(line, indent=4)
    if len(group.findings) > 1:
        on.line(f"{len(group.findings)} alike: {_objects(group, on)}", indent=8)
    if first.waiver:
        on.line(words.waiver(first.waiver), indent=8)
    for detail in _details(first):
        on.line(Text(detail, style="dim"), indent=8)


def _objects(group: Group, on: Canvas) -> str:
    limit = len(group.objects) if on.verbose else words.SHOWN
    return words.some(group.objects, limit, " (-v shows all)")


def _details(finding: FindingItem) -> Iterator[str]:
    for item in finding.evidence:
        yield words.evidence(item)
    yield f"look  {plain(finding.look)}"


def _draw_remedies(report: AuditReport, on: Canvas) -> None:
    remedies = _remedies(report)
    if not remedies:
        return
    on.line(Text("What to do", style="bold"))
    on.line("-" * len("What to do"))
    for remedy, codes in remedies.items():
        on.line(Text().append(plain(", ".join(codes)), style="bold").append(f" {plain(remedy)}"))
    on.line(Text("Each code is explained by: gpuctl explain CODE", style="dim"))
    on.line("")


def _remedies(report: AuditReport) -> dict[str, list[str]]:
    """Each remedy once, with the codes it cures."""
    remedies: dict[str, list[str]] = {}
    for finding in walk.findings(report):
        if finding.remedy and finding.severity != Severity.INFO and counts(finding):
            codes = remedies.setdefault(finding.remedy, [])
            codes.extend({finding.code}.difference(codes))
    return remedies


def _coverage(check: CheckItem) -> str:
    coverage = check.coverage
    text = f"  {coverage.read} of {coverage.expected} reads done"
    missing = [f"{plain(item.resource)} {item.reason}" for item in coverage.missing[: words.SHOWN]]
    return f"{text}; missing: {', '.join(missing)}" if missing else text


def _proofs(report: AuditReport) -> Iterator[str]:
    """What would prove the things that are not proven."""
    for check in report.checks:
        for assertion in check.assertions:
            if assertion.verdict == Verdict.NOT_PROVEN:
                yield f"not proven: {plain(assertion.statement)} ({plain(assertion.reason)})"


def _runbooks(report: AuditReport) -> Iterator[str]:
    """The runbooks that cure what was found, as the commands that the remedies name."""
    commands = dict.fromkeys(
        plain(command)
        for finding in walk.findings(report)
        if finding.runbook and counts(finding)
        for command in _plans(finding)
    )
    yield from list(commands)[: words.SHOWN]
    if len(commands) > words.SHOWN:
        yield f"and {len(commands) - words.SHOWN} more, each in the remedy of a finding"


def _plans(finding: FindingItem) -> list[str]:
    """Without a command in its remedy, what the runbook takes is asked of its help. Remedies are alike for
    many nodes, and say NODE."""
    named = re.findall(rf"`(gpuctl plan {re.escape(finding.runbook or '')}\b[^`]*)`", finding.remedy)
    if not named:
        return [f"gpuctl plan {finding.runbook} --help"]
    if finding.object.kind != "Node":
        return named
    return [re.sub(r"\bNODE\b", finding.object.name, each) for each in named]
