"""How queues are watched for a while."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from gpuctl.cli.border import Stop
from gpuctl.cli.duration import seconds

if TYPE_CHECKING:
    from gpuctl.cluster.consent import Consent

_PANEL = "Queues over time"
_LEAST = 6.0  # seconds that can be told apart in a record, for each step between two rounds
WindowOption = Annotated[
    str | None,
    typer.Option(
        "--window", metavar="60s", help="Watch queues for so long; off by default.", rich_help_panel=_PANEL
    ),
]


def watching(given: Consent, window: str | None) -> Consent:
    """The consent with what the option adds. Raises Stop for what can't be meant."""
    length = seconds(window) if window is not None else None
    if length is not None and length < _LEAST:
        raise Stop(f"--window is {_LEAST:g}s at least: less shows nothing")
    return replace(given, window=length)


def longer(deadline: float, given: Consent) -> float:
    """The time for the whole run: watching comes on top of it."""
    return deadline + (given.window or 0.0)
