"""All formats tell the same of a run, and all of them tell what could not be judged."""

from __future__ import annotations

import pytest

from gpuctl.audit.report import AuditReport
from gpuctl.cli.output import FORMATS, TEXT, rendered
from tests.report.golden import short
from tests.report.readers import READERS, expected
from tests.report.reports import BROKEN, REPORTS, UNPROVEN


def test_every_format_has_a_reader_here() -> None:
    assert {TEXT, *READERS} == set(FORMATS)


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS)
def test_verdicts_and_exit_code_are_the_same_in_all(name: str, report: AuditReport) -> None:
    assert READERS[name](rendered(report, name)) == expected(report)


@pytest.mark.parametrize("name", [*FORMATS, "short"])
def test_what_is_unknown_is_named_with_its_reason(name: str) -> None:
    text = short(BROKEN) if name == "short" else rendered(BROKEN, name)
    if name == "prometheus":
        assert 'gpuctl_unknown{check="pods-test",assertion="pods-have-a-node"} 1' in text
    else:
        assert "forbidden" in text
        assert "may not list nodes" in text


@pytest.mark.parametrize("name", [*FORMATS, "short"])
def test_what_is_not_proven_is_told(name: str) -> None:
    text = short(UNPROVEN) if name == "short" else rendered(UNPROVEN, name)
    assert "not proven" in text or "not-proven" in text
