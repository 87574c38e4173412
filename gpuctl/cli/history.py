"""What runs leave on this machine: a copy of each journal, and lines of the audit log."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpuctl.runbook.records import Run


def folder() -> Path:
    """Where it lies: the user's folder for state."""
    from platformdirs import user_state_path

    return user_state_path("gpuctl")


def keep(run: Run, warn: Callable[[str], None]) -> None:
    """Keeps the journal as it is now. A full disk does not stop a run: the journal in the cluster counts."""
    import msgspec

    path = folder() / "runs" / f"{run.id}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        fresh.write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=2))
        fresh.replace(path)  # a run that is killed leaves the old copy or the new one
    except OSError as error:
        warn(f"no copy of the journal on this machine: {error}")


def note(line: Mapping[str, Any], warn: Callable[[str], None]) -> None:
    """Adds a line to the audit log."""
    path = folder() / "audit.jsonl"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as log:
            log.write(json.dumps(line) + "\n")
    except OSError as error:
        warn(f"no line in the audit log on this machine: {error}")
