"""The last line: what came of the run, in words a manager understands."""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.audit.finding import Severity
from gpuctl.audit.judge import Verdict
from gpuctl.audit.outcome import counts
from gpuctl.audit.report import AuditReport
from gpuctl.report import walk


def summary(report: AuditReport) -> str:
    """One sentence. It never says clean while something is not known, not proven, waived, or required and
    missing."""
    return "; ".join(_parts(report)) + "."


def _parts(report: AuditReport) -> Iterator[str]:
    severities = report.outcome.counts.severity
    verdicts = report.outcome.counts.verdict
    unknown, unproven = verdicts[Verdict.UNKNOWN], verdicts[Verdict.NOT_PROVEN]
    waived = sum(not counts(finding) for finding in walk.findings(report))
    judged = any(check.verdict != Verdict.NOT_APPLICABLE for check in report.checks)
    if not judged:
        yield "Nothing to judge: no check applies to this cluster (is this the right context?)"
    elif severities[Severity.ERROR] or severities[Severity.WARNING]:
        yield _found(severities[Severity.ERROR], severities[Severity.WARNING])
    elif unknown or unproven or waived or report.outcome.incomplete:
        yield "Nothing wrong found"
    else:
        yield "Clean: every assertion was judged and holds"
    if unknown:
        yield f"{_count(unknown, 'thing')} could not be judged, so this is no all-clear"
    if unproven:
        yield f"{_count(unproven, 'thing')} not proven"
    if waived:
        yield f"{_count(waived, 'finding')} waived"
    if judged and report.outcome.incomplete and not unknown:
        yield "the run is incomplete: a check, a proof or a share of the reads that it requires is missing"


def _found(errors: int, warnings: int) -> str:
    parts = [_count(errors, "error")] if errors else []
    parts += [_count(warnings, "warning")] if warnings else []
    return "Found " + " and ".join(parts)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
