"""Where a report goes: `-o FORMAT` to stdout, `-o FORMAT=FILE` to a file, several in one run."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpuctl.cli.border import Stop

if TYPE_CHECKING:
    from gpuctl.audit.report import AuditReport

TEXT = "text"
FORMATS = (TEXT, "json", "yaml")


@dataclass(frozen=True, slots=True)
class Output:
    """One output of a run. Without a file it goes to stdout."""

    format: str
    file: Path | None = None


def parse(options: Sequence[str]) -> tuple[Output, ...]:
    """The outputs that were asked for; text on stdout if none goes there. Raises Stop."""
    outputs = tuple(_parse(option) for option in options)
    to_stdout = [output for output in outputs if output.file is None]
    if len(to_stdout) > 1:
        names = " and ".join(output.format for output in to_stdout)
        raise Stop(
            f"only one format can go to stdout, not {names}; send the others to files: -o json=report.json"
        )
    return outputs if to_stdout else (Output(TEXT), *outputs)


def _parse(option: str) -> Output:
    name, _, file = option.partition("=")
    if name not in FORMATS:
        raise Stop(f"unknown format {name!r}; there are {', '.join(FORMATS)}")
    return Output(name, Path(file) if file else None)


def rendered(report: AuditReport, name: str) -> str:
    """The report in a format, as text."""
    return _renderer(name)(report)


def _renderer(name: str) -> Callable[[AuditReport], str]:
    from gpuctl.report import data

    return {"json": data.to_json, "yaml": data.to_yaml, TEXT: _text}[name]


def _text(report: AuditReport) -> str:
    import io

    from rich.console import Console

    from gpuctl.report.text import canvas, draw

    page = io.StringIO()
    draw(report, canvas(Console(file=page, force_terminal=False, width=100)))
    return page.getvalue()


def write(report: AuditReport, output: Output) -> None:
    """Writes a file whole or not at all. Raises Stop."""
    if output.file is None:
        raise ValueError("this output has no file")
    text = rendered(report, output.format)
    try:
        handle, scratch = tempfile.mkstemp(dir=output.file.absolute().parent, prefix=".gpuctl-")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(scratch).chmod(0o644)
        Path(scratch).replace(output.file)
    except OSError as error:
        raise Stop(f"cannot write {output.file}: {error.strerror}") from error
