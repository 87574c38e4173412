"""Tables: rich on a terminal, tabulate in pipes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.cells import cell_len
from rich.console import Console

from gpuctl.report.plain import plain

GAP: Final = 2  # characters between columns
LAST: Final = 24  # characters in which the last column can be wrapped


def print_table(console: Console, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table. Cells are made safe to show; the last column takes what room is left. Where there is
    none no cell is cut: a name that can't be read whole is of no use."""
    cells = [[plain(cell) for cell in row] for row in rows]
    if console.is_terminal and _has_room(console, headers, cells):
        _print_rich(console, headers, cells)
    else:
        _print_tabulate(console, headers, cells)


def _has_room(console: Console, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether all columns but the last fit, with some words of the last beside them."""
    widths = [max(map(cell_len, column)) + GAP for column in zip(headers, *rows, strict=True)]
    return sum(widths[:-1]) + min(widths[-1], LAST) <= console.width


def _print_rich(console: Console, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, header in enumerate(headers):
        table.add_column(header, no_wrap=number < len(headers) - 1)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)


def _print_tabulate(console: Console, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from tabulate import tabulate

    text = tabulate(rows, headers, tablefmt="plain", disable_numparse=True)
    console.print(text, markup=False, highlight=False, soft_wrap=True)
