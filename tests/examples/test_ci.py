"""The gates of examples/ci: the shell script is run, the others are held against what gpuctl can do."""

from __future__ import annotations

import os
import re
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from junitparser import JUnitXml

from tests.cli.program import DEGRADED, EXAMPLES, HEALTHY, PROGRAM, gpuctl

CI = EXAMPLES / "ci"
CHECK = "kueue-webhooks"
EXPIRES = re.compile(r"expires: \S+")


def gate(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the script in a folder, as a CI job would in its checkout."""
    path = f"{PROGRAM.parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["sh", str(CI / "gate.sh"), *arguments],
        cwd=folder,
        env={**os.environ, "PATH": path, "KUBECONFIG": "/nonexistent"},
        capture_output=True,
        text=True,
        check=False,
    )


def waive(folder: Path, days: int) -> None:
    """The example's policy, its waivers ending so many days from now."""
    day = (datetime.now(UTC) + timedelta(days=days)).date()
    text, changed = EXPIRES.subn(f"expires: {day}", (CI / "gpuctl.yaml").read_text())
    assert changed == 2
    (folder / "gpuctl.yaml").write_text(text)


def test_the_gate_fails_passes_with_a_waiver_and_fails_again_when_that_has_expired(tmp_path: Path) -> None:
    degraded = (CHECK, "--from", DEGRADED)
    failed = gate(tmp_path, *degraded)
    assert failed.returncode == 1, failed.stderr
    assert "KWH001" in failed.stdout
    assert "gate: there are findings" in failed.stderr

    waive(tmp_path, days=1)
    passed = gate(tmp_path, *degraded)
    assert passed.returncode == 0, passed.stdout
    assert "waived" in passed.stdout, "it is still shown"

    waive(tmp_path, days=-1)
    again = gate(tmp_path, *degraded)
    assert again.returncode == 1
    assert "expired" in again.stdout


def test_the_gate_passes_on_a_healthy_cluster_and_leaves_its_reports(tmp_path: Path) -> None:
    assert gate(tmp_path, CHECK, "--from", HEALTHY).returncode == 0
    reports = tmp_path / "gpuctl-reports"
    assert {each.name for each in reports.iterdir()} == {"gpuctl.xml", "gpuctl.md", "gpuctl.json"}
    assert JUnitXml.fromfile(str(reports / "gpuctl.xml")).failures == 0


def test_the_gate_fails_on_what_it_could_not_judge(tmp_path: Path, unproven: Path) -> None:
    result = gate(tmp_path, CHECK, "--from", str(unproven), "--require-proof")
    assert result.returncode == 3
    assert "could not be judged" in result.stderr
    assert gate(tmp_path, "--no-such-option").returncode == 2


def test_the_waivers_policy_is_valid() -> None:
    assert gpuctl("config", "validate", str(CI / "gpuctl.yaml")).returncode == 0


@pytest.mark.parametrize("name", ["github.yaml", "gitlab.yaml", "tekton.yaml"])
def test_every_gate_is_yaml(name: str) -> None:
    assert all(isinstance(each, dict) for each in yaml.safe_load_all((CI / name).read_text()))


@pytest.mark.parametrize("file", sorted(CI.iterdir()), ids=lambda file: file.name)
def test_every_option_of_gpuctl_in_a_gate_exists(file: Path) -> None:
    known = gpuctl("check", "--help").stdout
    text = file.read_text().replace("\\\n", " ")
    for command in re.findall(r"gpuctl check ([^|>\n]*)", text):
        for option in re.findall(r"(?:^|\s)(--?[a-z][a-z-]*)", command):
            assert re.search(rf"(^|\s){re.escape(option)}[,\s]", known), f"{file.name}: {option}"


def test_the_steps_of_github_end_with_the_exit_code_of_the_check(tmp_path: Path) -> None:
    """The shell of the step, run as the runner runs it: `bash -e`."""
    job = yaml.safe_load((CI / "github.yaml").read_text())["jobs"]["gpu-cluster"]
    (script,) = [step["run"] for step in job["steps"] if "gpuctl check" in step.get("run", "")]
    summary = tmp_path / "summary.md"
    for snapshot, code in ((DEGRADED, 1), (HEALTHY, 0)):
        done = subprocess.run(
            ["bash", "-e", "-c", script.replace("gpuctl check", f"gpuctl check {CHECK} --from {snapshot}")],
            cwd=tmp_path,
            env={
                **os.environ,
                "PATH": f"{PROGRAM.parent}{os.pathsep}{os.environ['PATH']}",
                "KUBECONFIG": str(tmp_path / "kubeconfig"),
                "KUBECONFIG_CONTENT": "",
                "GITHUB_STEP_SUMMARY": str(summary),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stderr
        assert "gpuctl" in summary.read_text()
