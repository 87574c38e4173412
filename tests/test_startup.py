"""Help, version, explain and lists start fast: they import nothing heavy, and take what a typer app takes."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

HEAVY = ("kubernetes", "cryptography", "urllib3", "yaml", "tabulate", "jsonschema", "junitparser")
NOT_FOR_HELP = ("rich", "msgspec", "gpuctl.runbook.runbook")  # what draws and decodes, and any runbook
TWO_COMMANDS = """
import typer
app = typer.Typer()
@app.command()
def one(): "One."
@app.command()
def two(): "Two."
app()
"""
BOOKS = {("plan", "drain"), ("plan", "mig-reconfigure")}  # their help is made of what they take


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    code = (
        "import sys, gpuctl.cli.border as border\n"
        "def leave(code):\n"
        "    sys.stdout.flush()\n"
        f"    loaded = [name for name in {(*HEAVY, *NOT_FOR_HELP)!r} if name in sys.modules]\n"
        "    print('LOADED', *loaded)\n"
        "    raise SystemExit(code)\n"
        "border._exit = leave\n"
        "from gpuctl.cli.main import main\n"
        "main()\n"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("--version",),
        ("check", "--help"),
        ("list",),
        ("list", "runbooks"),
        ("explain", "KWH001"),
        ("explain", "drain"),
        ("plan", "--help"),
        ("plan", "drain", "--help"),
        ("plan", "mig-reconfigure", "--help"),
        ("apply", "--help"),
        ("runs", "--help"),
        ("resume", "--help"),
        ("undo", "--help"),
        ("unlock", "--help"),
        ("rbac", "--for", "drain"),
        ("snapshot", "--help"),
        ("queues", "--help"),
        ("mig", "show", "--help"),
    ],
)
def test_nothing_heavy_is_imported(arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    loaded = result.stdout.split("LOADED")[1].split()
    allowed = {"tabulate"} if arguments[0] == "list" else set()
    if arguments[-1] != "--help" or arguments[:-1] in BOOKS:
        allowed |= {*NOT_FOR_HELP}
    assert set(loaded) <= allowed, result.stdout


@pytest.mark.parametrize("arguments", ["--help", "--version"])
def test_the_time_is_that_of_a_small_typer_app(tmp_path: Path, arguments: str) -> None:
    small = tmp_path / "small.py"
    small.write_text(TWO_COMMANDS)
    program = str(Path(sys.executable).with_name("gpuctl"))
    commands = ([program, arguments], [sys.executable, str(small), "--help"])
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(7):
        for command, taken in zip(commands, times, strict=True):
            started = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            taken.append(time.perf_counter() - started)
    ratio = statistics.median(ours / theirs for ours, theirs in zip(*times, strict=True))
    assert ratio <= 1.5, f"{ratio:.2f} times the start of a small typer app"
