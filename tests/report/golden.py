"""Writes tests/report/golden/, every output of every report in full: `python -m tests.report.golden`."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console

from gpuctl.audit.report import AuditReport
from gpuctl.cli.output import rendered
from gpuctl.report.short import draw_short
from gpuctl.report.text import canvas
from tests.report.reports import REPORTS

FOLDER = Path(__file__).parent / "golden"
ENDINGS = {"junit": "xml", "sarif": "sarif", "markdown": "md", "github": "github", "prometheus": "prom"}


def short(report: AuditReport) -> str:
    """The short form as it goes into a pipe."""
    page = io.StringIO()
    draw_short(report, canvas(Console(file=page, force_terminal=False)))
    return page.getvalue()


def _writer(name: str) -> Callable[[AuditReport], str]:
    return lambda report: rendered(report, name)


WRITERS: dict[str, Callable[[AuditReport], str]] = {
    **{ending: _writer(name) for name, ending in ENDINGS.items()},
    "chat": short,
}


def files() -> Iterator[tuple[str, str, str]]:
    """Each file's name, with the report and the ending it is made from."""
    for report in REPORTS:
        for ending in WRITERS:
            yield f"{report}.{ending}", report, ending


if __name__ == "__main__":
    for name, report, ending in files():
        (FOLDER / name).write_text(WRITERS[ending](REPORTS[report]), encoding="utf-8", newline="")
