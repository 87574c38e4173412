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
            return msgspec.convert(yaml.safe_load(text), AuditReport)
        return msgspec.json.decode(text, type=AuditReport)
    except OSError as error:
        raise Stop(f"cannot read the report {path}: {error.strerror}") from error
    except (ValueError, yaml.YAMLError) as error:  # msgspec's and Unicode's errors are ValueErrors
        raise Stop(f"{path} is no report of gpuctl check: {' '.join(str(error).split())}") from error


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
