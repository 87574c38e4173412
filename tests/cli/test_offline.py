"""The verbs that need no cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from gpuctl.audit.catalogue import catalogue
from gpuctl.cli.needs import Needs
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


def test_what_checks_have_no_runbook_takes_and_the_other_way_round() -> None:
    """For both verbs about permissions, before anybody is asked."""
    wrong = {
        ("--for", "drain", "--namespace", "team-a"): "--namespace is for checks",
        ("--for", "drain", "--vllm-http"): "--vllm-http is for checks",
        ("--for", "drain", "--read-webhook-secret"): "--read-webhook-secret is for checks",
        ("--for", "queue-limit", "--disable-eviction"): "queue-limit has no flag --disable-eviction",
        ("--disable-eviction",): "a flag of runbooks",
        (
            "--for",
            "drane",
        ): "drane",
    }
    for verb in ("rbac", "can-i"):
        for arguments, said in wrong.items():
            result = gpuctl(verb, *arguments)
            assert result.returncode == 2, arguments
            assert said in result.stderr
    assert "--state-namespace is for runbooks" in gpuctl("can-i", "--state-namespace", "ops").stderr


def test_what_is_sought_of_a_runbook_is_named_as_the_assertions_of_checks_are() -> None:
    found = Needs("drain", secret=False, vllm_http=False, vllm_exec=False, disable_eviction=True).found(None)
    sought = {(str(each.grant.rule), each.namespace): each.grant for each in found.sought("ops")}
    assert "drain/budgets-allow" in sought["list poddisruptionbudgets.policy", ""].assertions
    assert sought["delete pods", ""].assertions == ("drain/its steps with --disable-eviction",)
    assert sought["create leases.coordination.k8s.io", "ops"].assertions
    assert sought["create events", "default"].more == ("drain/an Event on what is changed is made",)


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
