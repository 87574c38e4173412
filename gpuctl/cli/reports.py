"""Reads reports that an earlier run wrote."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gpuctl.cli.border import Stop

if TYPE_CHECKING:
    from gpuctl.audit.report import AuditReport


def load_report(path: Path) -> AuditReport:
    """A report written with -o json or -o yaml. Raises Stop."""
    import msgspec
    import yaml

    from gpuctl.audit.report import AuditReport

    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix in {".yaml", ".yml"}:
            return _checked(msgspec.convert(yaml.safe_load(text), AuditReport))
        return _checked(msgspec.json.decode(text, type=AuditReport))
    except OSError as error:
        raise Stop(f"cannot read the report {path}: {error.strerror}") from error
    except (ValueError, yaml.YAMLError) as error:  # msgspec's and Unicode's errors are ValueErrors
        raise Stop(f"{path} is no report of gpuctl check: {' '.join(str(error).split())}") from error


def _checked(report: AuditReport) -> AuditReport:
    """The report, if its words are those of the contract: it may come from anybody. Raises ValueError."""
    from gpuctl.audit.finding import Severity
    from gpuctl.audit.judge import Verdict
    from gpuctl.audit.report import API_VERSION, AuditReport

    if (report.api_version, report.kind) != (API_VERSION, AuditReport.__name__):
        raise ValueError(f"it is a {report.kind} of {report.api_version}")
    for check in report.checks:
        for assertion in check.assertions:
            Verdict(assertion.verdict)
            for finding in assertion.findings:
                Severity(finding.severity)
    return report


def fingerprints(path: Path | None) -> frozenset[str]:
    """The fingerprints of a baseline; none without a file. Raises Stop."""
    if path is None:
        return frozenset()
    return frozenset(
        finding.fingerprint
        for check in load_report(path).checks
        for assertion in check.assertions
        for finding in assertion.findings
    )
