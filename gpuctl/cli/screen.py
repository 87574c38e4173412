"""The terminal: where results are drawn, and how the person is kept company while it takes."""

from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from gpuctl.cli.border import INCOMPLETE, Stop

if TYPE_CHECKING:
    from gpuctl.facts.fact import Fact
    from gpuctl.facts.gather import Facts

PATIENCE = 1.0  # seconds after which a wait is explained
_PIECE = 1 << 16  # characters written at once


class Results(Console):
    """A console whose reader may leave early: a report that nobody read whole is no verdict."""

    def on_broken_pipe(self) -> None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for the rest of the program
        raise Stop("the output was closed before it was written whole", INCOMPLETE)


def out() -> Console:
    """The console for results. A character that it cannot write becomes an escape, not an error."""
    _stdout(errors="backslashreplace")
    return Results(highlight=False, markup=False, emoji=False)


def data(text: str) -> None:
    """Writes what a program reads: UTF-8, whatever the terminal takes."""
    _stdout(encoding="utf-8")
    console = Results(highlight=False, markup=False, emoji=False)
    for start in range(0, len(text), _PIECE):  # rich takes twenty times the memory of what it is given
        console.out(text[start : start + _PIECE], end="", highlight=False)


def _stdout(encoding: str | None = None, errors: str | None = None) -> None:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding=encoding, errors=errors)


class Progress:
    """Says on stderr what is being waited for, once the wait is longer than a second."""

    def __init__(self, what: str) -> None:
        self._console = Console(stderr=True, highlight=False, markup=False, emoji=False)
        self._what = what
        self._settled = 0
        self._detail = ""
        self._status = self._console.status(_said(what)) if self._console.is_terminal else None
        self._timer = threading.Timer(PATIENCE, self._show)
        self._timer.daemon = True

    def fact(self, _fact: Fact[Any], facts: Facts) -> None:
        """Takes note of what is known by now."""
        self._settled = len(facts.states)
        self._update()

    def told(self, detail: str) -> None:
        """Takes note of how a long read goes on."""
        self._detail = detail
        self._update()

    def _update(self) -> None:
        if self._status:
            detail = f", {self._detail}" if self._detail else ""
            self._status.update(_said(f"{self._what}: {self._settled} facts known{detail}"))

    @contextmanager
    def shown(self) -> Iterator[Progress]:
        """Shows the progress while the block runs."""
        self._timer.start()
        try:
            yield self
        finally:
            self.hide()

    def hide(self) -> None:
        """Takes the line away, so that results can be drawn."""
        self._timer.cancel()
        if self._status:
            self._status.stop()

    def _show(self) -> None:
        if self._status:
            self._status.start()
        else:
            print(f"gpuctl: {_said(self._what)} …", file=sys.stderr, flush=True)


def _said(text: str) -> Text:
    """Text that stays what it is: rich takes a string here for markup, and a path or context may look so."""
    from gpuctl.report.plain import plain

    return Text(plain(text))
