"""What verbs that show a part of a cluster take: a snapshot in its place, in which form, within what time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuctl.cli.flags import Flags, with_flags

if TYPE_CHECKING:
    from gpuctl.cli.doors import Door
    from gpuctl.cluster.connection import Access
    from gpuctl.cluster.consent import Consent
    from gpuctl.cluster.probe import Probing

FormOption = Annotated[str, typer.Option("--output", "-o", help="text or json.")]
DeadlineOption = Annotated[str, typer.Option("--deadline", help="Time for the whole run.")]
A_DEADLINE = "120s"
PolicyOption = Annotated[
    str | None, typer.Option("--policy", help="A policy file, or strict or default; else ./gpuctl.yaml.")
]
LogsOption = Annotated[
    str, typer.Option("--logs", help="all or none: whether the starts of engines' logs are read.")
]


@dataclass(frozen=True, slots=True)
class Viewing:
    """What a person said of it. `seconds`: for the whole."""

    snapshot: Path | None
    json: bool
    seconds: float

    def door(
        self,
        access: Access,
        *,
        logs: str = "all",
        consent: Consent | None = None,
        probing: Probing | None = None,
    ) -> Door:
        """Opens what is looked into. Raises Stop."""
        from gpuctl.cli.doors import open_door

        return open_door(
            access, self.snapshot, None, self.seconds, logs=logs, consent=consent, probing=probing
        )


def is_json(output: str) -> bool:
    """Whether JSON is asked for, and not text. Raises Stop for any other word."""
    from gpuctl.cli.border import Stop

    if output not in ("text", "json"):
        raise Stop(f"--output is text or json, not {output!r}")
    return output == "json"


def _viewing(*, from_: Path | None, output: str, deadline: str) -> Viewing:
    from gpuctl.cli.duration import seconds

    return Viewing(from_, is_json(output), seconds(deadline))


_FLAGS: Flags = {
    "from_": (
        Annotated[
            Path | None,
            typer.Option("--from", help="Look into a snapshot (folder or .tar.gz) instead of a cluster."),
        ],
        None,
    ),
    "output": (FormOption, "text"),
    "deadline": (DeadlineOption, A_DEADLINE),
}

with_viewing = with_flags("viewing", _FLAGS, _viewing)
"""Gives a verb these flags and hands it its parameter `viewing`."""
