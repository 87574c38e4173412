"""Prometheus' text format, for the textfile collector of a node exporter or for a push gateway."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from gpuctl.audit.judge import Verdict
from gpuctl.audit.outcome import counts
from gpuctl.audit.report import AuditReport, CheckItem
from gpuctl.report import walk
from gpuctl.report.plain import plain

Labels = tuple[tuple[str, str], ...]
_CHECK_VERDICTS = (Verdict.FAIL, Verdict.UNKNOWN, Verdict.NOT_APPLICABLE, Verdict.PASS)


@dataclass(frozen=True, slots=True)
class Gauge:
    """A metric. No set of labels comes twice: a collector would refuse the whole file."""

    name: str
    help: str
    samples: Mapping[Labels, float]


def to_prometheus(report: AuditReport) -> str:
    """The report as gauges."""
    return "\n".join(line for gauge in _gauges(report) for line in _lines(gauge)) + "\n"


def _gauges(report: AuditReport) -> Iterator[Gauge]:
    yield _one("gpuctl_exit_code", "Exit code of the run.", int(report.outcome.exit_code))
    yield _one("gpuctl_run_failed", "1 if findings make the run fail.", report.outcome.failed)
    yield _one(
        "gpuctl_run_incomplete", "1 if something required could not be judged.", report.outcome.incomplete
    )
    finished = round(report.run.finished_at.timestamp(), 3)
    yield _one("gpuctl_run_timestamp_seconds", "When the run ended, as Unix time.", finished)
    yield Gauge("gpuctl_check_verdict", "1 for the verdict of a check, else 0.", _verdicts(report))
    yield Gauge("gpuctl_assertion", "1 for each assertion, with its verdict.", _assertions(report))
    yield Gauge("gpuctl_findings", "Findings that count; none of them is waived.", _findings(report))
    yield Gauge("gpuctl_unknown", "Things an assertion could not judge, or not prove.", _unknown(report))
    yield _per_check(report, "gpuctl_coverage_expected", "Reads that a check needs.", _expected)
    yield _per_check(report, "gpuctl_coverage_read", "Reads that were done for a check.", _read)


def _one(name: str, help_: str, value: float) -> Gauge:
    return Gauge(name, help_, {(): value})


def _per_check(report: AuditReport, name: str, help_: str, value: Callable[[CheckItem], int]) -> Gauge:
    return Gauge(name, help_, {(("check", check.id),): value(check) for check in report.checks})


def _expected(check: CheckItem) -> int:
    return check.coverage.expected


def _read(check: CheckItem) -> int:
    return check.coverage.read


def _verdicts(report: AuditReport) -> Mapping[Labels, float]:
    return {
        (("check", check.id), ("verdict", verdict)): check.verdict == verdict
        for check in report.checks
        for verdict in _CHECK_VERDICTS
    }


def _assertions(report: AuditReport) -> Mapping[Labels, float]:
    return {
        (
            ("check", check.id),
            ("assertion", assertion.id),
            ("kind", assertion.kind),
            ("verdict", assertion.verdict),
        ): 1
        for check, assertion in walk.assertions(report)
    }


def _findings(report: AuditReport) -> Mapping[Labels, float]:
    return Counter(
        (("check", check.id), ("code", finding.code), ("severity", finding.severity))
        for check, assertion in walk.assertions(report)
        for finding in assertion.findings
        if counts(finding)
    )


def _unknown(report: AuditReport) -> Mapping[Labels, float]:
    return {
        (("check", check.id), ("assertion", assertion.id)): len(assertion.unknown)
        for check, assertion in walk.assertions(report)
    }


def _lines(gauge: Gauge) -> Iterator[str]:
    yield f"# HELP {gauge.name} {gauge.help}"
    yield f"# TYPE {gauge.name} gauge"
    for labels, value in gauge.samples.items():
        yield f"{gauge.name}{_labels(labels)} {_number(value)}"


def _labels(labels: Labels) -> str:
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels)
    return f"{{{pairs}}}" if pairs else ""


def _escaped(value: str) -> str:
    """A label's value. Line feeds need no care: they are written out already."""
    return plain(value).replace("\\", "\\\\").replace('"', '\\"')


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)
