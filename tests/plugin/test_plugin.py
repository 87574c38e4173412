"""The example of a third party's check, installed as a person would, without a network; and broken ones."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.program import DEGRADED, EXAMPLES, HEALTHY, gpuctl

PLUGIN = EXAMPLES / "plugin"
CHECK = "disruption-budgets"
BUDGET = """
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: llm, namespace: serving}
spec: {maxUnavailable: 0}
status: {disruptionsAllowed: 0, currentHealthy: 2, desiredHealthy: 2, expectedPods: 2}
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder to import from, with the plugin in it."""
    work = tmp_path_factory.mktemp("plugin")
    shutil.copytree(PLUGIN, work / "source")
    target = work / "installed"
    how = ("--no-index", "--no-build-isolation", "--no-deps", "--target", str(target))
    pip = (sys.executable, "-m", "pip", "install", "--quiet", *how, str(work / "source"))
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


def broken(folder: Path, code: str) -> Path:
    """An installed plugin whose module does this when it is imported."""
    about = folder / "gpuctl_broken-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: gpuctl-broken\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[gpuctl.checks]\nbroken = gpuctl_broken:CHECK\n")
    (folder / "gpuctl_broken.py").write_text(code)
    return folder


def test_it_is_listed_explained_and_given_permissions(installed: Path) -> None:
    on_path = str(installed)
    assert f"{CHECK}  " in gpuctl("list", PYTHONPATH=on_path).stdout
    assert gpuctl("explain", "PDB001", PYTHONPATH=on_path).stdout.startswith("## PDB001:")
    role = gpuctl("rbac", "--for", CHECK, PYTHONPATH=on_path).stdout
    assert f'# {CHECK}/budgets-permit-evictions\n- apiGroups: ["policy"]' in role
    assert CHECK not in gpuctl("list").stdout, "and nothing of it is left without it"


def test_it_finds_what_it_is_for(installed: Path, tmp_path: Path) -> None:
    file = tmp_path / "budgets.yaml"
    file.write_text(BUDGET)
    result = gpuctl("check", CHECK, "--from", str(file), "-o", "json", PYTHONPATH=str(installed))
    report = json.loads(result.stdout)
    (check,) = report["checks"]
    (finding,) = check["assertions"][0]["findings"]
    assert (result.returncode, finding["code"]) == (0, "PDB001"), "a warning, and --fail-on is error"
    assert finding["object"]["name"] == "llm"
    strict = gpuctl("check", CHECK, "--from", str(file), "--fail-on", "warning", PYTHONPATH=str(installed))
    assert strict.returncode == 1


def test_its_own_tests_pass(installed: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    pytest_ = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(PLUGIN / "tests"))
    done = subprocess.run(
        pytest_, cwd=installed, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("raise RuntimeError('half installed')", "RuntimeError: half installed"),
        ("import no_such_library", "ModuleNotFoundError"),
        ("CHECK = 7", "is not a gpuctl check"),
        ("import sys; sys.exit(0)", "SystemExit"),
    ],
)
def test_a_broken_plugin_makes_the_run_incomplete_and_is_named(tmp_path: Path, code: str, says: str) -> None:
    on_path = str(broken(tmp_path / "broken", code))
    result = gpuctl("check", "kueue-webhooks", "broken", "--from", HEALTHY, "-o", "json", PYTHONPATH=on_path)
    assert result.returncode == 3, result.stderr
    report = json.loads(result.stdout)
    verdicts = {each["id"]: each["verdict"] for each in report["checks"]}
    assert verdicts == {"kueue-webhooks": "pass", "broken": "unknown"}
    assert report["outcome"]["incomplete"]
    short = gpuctl("check", "kueue-webhooks", "broken", "--from", HEALTHY, "-q", PYTHONPATH=on_path)
    assert "broken" in short.stdout
    assert says in short.stdout
    listed = gpuctl("list", PYTHONPATH=on_path)
    assert (listed.returncode, says in listed.stderr) == (3, True)


def test_findings_of_others_stay_beside_a_broken_plugin(tmp_path: Path) -> None:
    on_path = str(broken(tmp_path / "broken", "raise OSError('no disk')"))
    result = gpuctl("check", "--from", DEGRADED, "-o", "json", PYTHONPATH=on_path)
    outcome = json.loads(result.stdout)["outcome"]
    assert (result.returncode, outcome["failed"], outcome["incomplete"]) == (1, True, True)
