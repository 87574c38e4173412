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
FORMATS = (TEXT, "json", "yaml", "junit", "sarif", "markdown", "github", "prometheus")


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
    return Output(name, _writable(Path(file)) if file else None)


def _writable(file: Path) -> Path:
    """The file, unless it is plain before the run that it could not be written after it. Raises Stop."""
    folder = file.absolute().parent
    if file.exists() and not file.is_file():
        raise Stop(f"cannot write {file}: it is no ordinary file")
    if not folder.is_dir():
        raise Stop(f"cannot write {file}: there is no folder {folder}")
    return file


def rendered(report: AuditReport, name: str) -> str:
    """The report in a format, as text."""
    return _renderer(name)(report)


def _renderer(name: str) -> Callable[[AuditReport], str]:
    from gpuctl.report import data, github, junit, markdown, prometheus, sarif

    renderers: dict[str, Callable[[AuditReport], str]] = {
        TEXT: _text,
        "json": data.to_json,
        "yaml": data.to_yaml,
        "junit": junit.to_junit,
        "sarif": sarif.to_sarif,
        "markdown": markdown.to_markdown,
        "github": github.to_github,
        "prometheus": prometheus.to_prometheus,
    }
    return renderers[name]


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
        _write_whole(output.file, text)
    except OSError as error:
        raise Stop(f"cannot write {output.file}: {error.strerror}") from error


def _write_whole(path: Path, text: str) -> None:
    """Writes beside the file and puts the result in its place; whatever happens, no half of it stays."""
    handle, name = tempfile.mkstemp(dir=path.absolute().parent, prefix=".gpuctl-")
    scratch = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        scratch.chmod(0o644)
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)
