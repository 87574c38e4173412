"""Runs gpuctl as a person would, and reads what it answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRAM = Path(sys.executable).with_name("gpuctl")


@dataclass(frozen=True)
class Answer:
    """The exit code, the JSON report, and what was said on stderr."""

    code: int
    report: dict[str, Any]
    said: str

    def findings(self) -> list[dict[str, Any]]:
        """All findings, in the report's order."""
        return [
            finding
            for check in self.report["checks"]
            for assertion in check["assertions"]
            for finding in assertion["findings"]
        ]

    def found(self) -> set[tuple[str, str]]:
        """The code and the object's name of each finding that fails."""
        return {
            (each["code"], each["object"]["name"]) for each in self.findings() if each["severity"] != "info"
        }

    def fingerprints(self) -> set[str]:
        return {each["fingerprint"] for each in self.findings()}

    def verdicts(self) -> dict[str, str]:
        """The verdict of each assertion."""
        return {
            assertion["id"]: assertion["verdict"]
            for check in self.report["checks"]
            for assertion in check["assertions"]
        }

    @property
    def verdict(self) -> str:
        """The verdict of the one check that was run."""
        (check,) = self.report["checks"]
        return str(check["verdict"])


def run(*arguments: str, kubeconfig: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Runs the program; without a kubeconfig it has no cluster to go to."""
    environment = {name: text for name, text in os.environ.items() if name != "KUBECONFIG"}
    return subprocess.run(
        [str(PROGRAM), *arguments],
        env={**environment, "KUBECONFIG": str(kubeconfig or "/nonexistent"), "COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )


def check(*arguments: str, kubeconfig: Path | None = None) -> Answer:
    """Runs `gpuctl check` for its JSON report."""
    result = run("check", *arguments, "-o", "json", kubeconfig=kubeconfig)
    assert result.stdout, result.stderr
    answer = Answer(result.returncode, json.loads(result.stdout), result.stderr)
    assert answer.code == answer.report["outcome"]["exitCode"]
    return answer
