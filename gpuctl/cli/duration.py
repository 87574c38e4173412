"""Durations as kubectl writes them: 90s, 2m, 1h30m; a bare number is seconds."""

from __future__ import annotations

import re

from gpuctl.cli.border import Stop

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")


def seconds(text: str) -> float:
    """The duration in seconds. Raises Stop for anything else."""
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    if not re.fullmatch(rf"(?:{_PART.pattern})+", text):
        raise Stop(f"{text!r} is no duration; write it like 90s, 2m or 1h30m")
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
