"""Walks over a report, for outputs that do not follow its nesting."""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.audit.report import AssertionItem, AuditReport, CheckItem, FindingItem


def assertions(report: AuditReport) -> Iterator[tuple[CheckItem, AssertionItem]]:
    """Every assertion with its check, in the report's order."""
    for check in report.checks:
        for assertion in check.assertions:
            yield check, assertion


def findings(report: AuditReport) -> Iterator[FindingItem]:
    """Every finding, in the report's order."""
    for _check, assertion in assertions(report):
        yield from assertion.findings
