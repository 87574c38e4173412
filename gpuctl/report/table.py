"""Tables: rich on a terminal, tabulate in pipes."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from gpuctl.report.plain import plain


def print_table(console: Console, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table. Cells are made safe to show; the last column takes what room is left."""
    cells = [[plain(cell) for cell in row] for row in rows]
    if console.is_terminal:
        _print_rich(console, headers, cells)
    else:
        _print_tabulate(console, headers, cells)


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
