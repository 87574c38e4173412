"""Runs gpuctl as a person would, with no cluster to go to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

PROGRAM = Path(sys.executable).with_name("gpuctl")
EXAMPLES = Path(__file__).parent.parent.parent / "examples"
HEALTHY, DEGRADED = str(EXAMPLES / "healthy"), str(EXAMPLES / "degraded")


def gpuctl(*arguments: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs the program; what it prints is kept."""
    bare = {name: text for name, text in os.environ.items() if name not in {"KUBECONFIG", "NO_COLOR"}}
    return subprocess.run(
        [str(PROGRAM), *arguments],
        cwd=cwd,
        env={**bare, "KUBECONFIG": "/nonexistent/config", "COLUMNS": "100", **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def report(*arguments: str) -> dict[str, Any]:
    """The JSON report of `gpuctl check`."""
    content: dict[str, Any] = json.loads(gpuctl("check", *arguments, "-o", "json").stdout)
    return content
