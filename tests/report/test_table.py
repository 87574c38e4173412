"""A table on a terminal is drawn by its width, and never loses what it says."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from gpuctl.report.table import print_table

HEADERS = ("NAME", "NAMESPACE", "CAUSE")
ROW = ("a-rather-long-name-of-a-workload", "team-with-a-long-name", "quota is in use, all of it, by others")


def printed(width: int, *, terminal: bool = True) -> str:
    page = io.StringIO()
    print_table(Console(file=page, force_terminal=terminal, width=width, color_system=None), HEADERS, [ROW])
    return page.getvalue()


@pytest.mark.parametrize("width", [20, 40, 60, 79, 100, 200])
def test_no_cell_is_cut_however_narrow_the_terminal(width: int) -> None:
    page = printed(width)
    assert "…" not in page
    for cell in (*ROW[:2], *ROW[2].split(), *HEADERS):
        assert cell in page


def test_the_last_column_wraps_where_there_is_room_for_it() -> None:
    assert len(printed(85).splitlines()) > 2
    assert printed(79) == printed(79, terminal=False)
