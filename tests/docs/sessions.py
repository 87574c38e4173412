"""The terminal sessions in README and docs, run anew: `make sessions` writes them, a test compares them.

A session is a fenced block of the language `console`. Each line that begins with `$ ` is a command; what
follows is all that it printed. Commands are run in the repository's root, 100 columns wide.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
_SESSION = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def sessions(page: Path) -> list[str]:
    """The sessions of a page."""
    return _SESSION.findall(page.read_text(encoding="utf-8"))


def commands(session: str) -> list[str]:
    """The commands of a session."""
    return [line[2:] for line in session.splitlines() if line.startswith("$ ")]


def replayed(session: str) -> str:
    """The session as it runs now."""
    return "".join(_replayed(command) for command in commands(session))


def _replayed(command: str) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    variables = {**os.environ, "PATH": path, "COLUMNS": "100", "KUBECONFIG": "/nonexistent"}
    result = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, env=variables, capture_output=True, text=True, check=False
    )
    return f"$ {command}\n{result.stdout}"


def rewritten(page: Path) -> str:
    """The page with its sessions as they run now."""
    text = page.read_text(encoding="utf-8")
    return _SESSION.sub(lambda block: f"```console\n{replayed(block.group(1))}```", text)


def gpuctl_commands(page: Path) -> Iterator[str]:
    """Every gpuctl command that a page shows, in sessions and other blocks."""
    for block in re.findall(
        r"^```\w*\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    ):
        for line in block.splitlines():
            command = line.removeprefix("$ ").strip()
            if command.startswith(("gpuctl ", "kubectl gpuctl ")):
                yield command


if __name__ == "__main__":
    for each in PAGES:
        each.write_text(rewritten(each), encoding="utf-8")
