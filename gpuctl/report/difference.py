"""The difference of two reports on a terminal."""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec
from rich.text import Text

from gpuctl.audit.compare import Difference
from gpuctl.audit.report import FindingItem
from gpuctl.report.group import grouped
from gpuctl.report.plain import plain
from gpuctl.report.text import Canvas


def draw_difference(difference: Difference, on: Canvas) -> None:
    """Draws what appeared, what is gone, and which verdicts changed."""
    _draw_findings("Appeared", difference.appeared, on)
    _draw_findings("Gone", difference.gone, on)
    for turn in difference.turns:
        change = f"{turn.before or 'not judged'} -> {turn.after or 'not judged'}"
        on.line(Text(f"{plain(turn.statement)}: {plain(change)}"))
    on.line(Text(_sentence(difference), style="bold"))


def _draw_findings(title: str, findings: Sequence[FindingItem], on: Canvas) -> None:
    if not findings:
        return
    on.line(Text(title, style="bold"))
    for group in grouped(findings):
        sign = on.sign(group.first.severity if title == "Appeared" else "pass")
        alike = f" ({len(group.findings)} alike)" if len(group.findings) > 1 else ""
        says = f" {plain(group.first.message)}{alike}"
        on.line(sign.append(plain(group.first.code), style="bold").append(says), indent=4)


def _sentence(difference: Difference) -> str:
    text = (
        f"{len(difference.appeared)} appeared, {len(difference.gone)} gone, {difference.standing} as before"
    )
    return f"{text}; the later report is incomplete." if difference.incomplete else f"{text}."


def difference_json(difference: Difference) -> str:
    """The difference as JSON, ASCII only."""
    return json.dumps(msgspec.to_builtins(difference), indent=2) + "\n"
