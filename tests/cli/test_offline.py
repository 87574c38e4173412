"""The verbs that need no cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from gpuctl.audit.catalogue import catalogue
from tests.cli.program import gpuctl

TOPICS = [name for check in catalogue().checks for name in (check.id, *(code.id for code in check.codes[:3]))]


def test_list_names_every_check() -> None:
    result = gpuctl("list")
    assert result.returncode == 0
    assert all(check.id in result.stdout for check in catalogue().checks)


@pytest.mark.parametrize("topic", [*TOPICS, "kwh001"])
def test_explain_shows_the_text_of_the_readme(topic: str) -> None:
    result = gpuctl("explain", topic)
    assert result.returncode == 0
    assert topic.lower() in result.stdout.lower()


def test_explaining_a_code_shows_that_code_alone() -> None:
    shown = gpuctl("explain", "KWH001").stdout
    assert shown.startswith("## KWH001:")
    assert "KWH002" not in shown


def test_rbac_prints_manifests() -> None:
    result = gpuctl("rbac", "--for", "kueue-webhooks")
    assert result.returncode == 0
    assert {each["kind"] for each in yaml.safe_load_all(result.stdout)} >= {"ClusterRole", "ServiceAccount"}
    assert gpuctl("rbac", "--for", "kueue-webhook").returncode == 2
    assert gpuctl("rbac", "--account", "nobody").returncode == 2


def test_config_is_written_validated_and_shown(tmp_path: Path) -> None:
    assert gpuctl("config", "init", cwd=tmp_path).returncode == 0
    assert gpuctl("config", "init", cwd=tmp_path).returncode == 2, "it never overwrites"
    assert gpuctl("config", "validate", cwd=tmp_path).returncode == 0
    assert yaml.safe_load(gpuctl("config", "show", cwd=tmp_path).stdout)["failOn"] == "error"
    (tmp_path / "gpuctl.yaml").write_text("failOnn: error\n")
    wrong = gpuctl("config", "validate", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "did you mean 'failOn'?" in wrong.stderr


def test_both_commands_and_completion_are_there() -> None:
    assert gpuctl("--version").stdout.startswith("gpuctl ")
    assert gpuctl().returncode == 2, "without a verb it shows its help, as a usage error"
    offered = gpuctl(
        COMP_WORDS="gpuctl check kueue", COMP_CWORD="2", _GPUCTL_COMPLETE="complete_bash"
    ).stdout.split()
    assert "kueue-webhooks" in offered
    codes = gpuctl(COMP_WORDS="gpuctl explain KWH00", COMP_CWORD="2", _GPUCTL_COMPLETE="complete_bash")
    assert "KWH001" in codes.stdout.split()
    assert json.loads(gpuctl("check", "--from", "examples/healthy", "-o", "json").stdout)
