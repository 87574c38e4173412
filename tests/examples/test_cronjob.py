"""The CronJob: the account is that of `gpuctl rbac`, the arguments are gpuctl's, the policy is valid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.cli.program import EXAMPLES, HEALTHY, gpuctl

FOLDER = EXAMPLES / "cronjob"


def manifests() -> dict[str, Any]:
    return {each["kind"]: each for each in yaml.safe_load_all((FOLDER / "cronjob.yaml").read_text())}


def pod() -> dict[str, Any]:
    content: dict[str, Any] = manifests()["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    return content


def test_it_runs_as_the_account_that_rbac_prints() -> None:
    printed = yaml.safe_load_all(gpuctl("rbac").stdout)
    accounts = [
        (each["metadata"]["namespace"], each["metadata"]["name"])
        for each in printed
        if each["kind"] == "ServiceAccount"
    ]
    assert accounts == [(manifests()["CronJob"]["metadata"]["namespace"], pod()["serviceAccountName"])]


def test_its_arguments_and_its_policy_are_good(tmp_path: Path) -> None:
    (container,) = pod()["containers"]
    policy = tmp_path / "gpuctl.yaml"
    policy.write_text(manifests()["ConfigMap"]["data"]["gpuctl.yaml"])
    arguments = [str(policy) if each.startswith("/etc/gpuctl/") else each for each in container["args"]]
    assert str(policy) in arguments
    result = gpuctl(*arguments, "kueue-webhooks", "--from", HEALTHY)
    assert result.returncode == 0, result.stderr
    assert "policy:" not in result.stderr, "nothing in it is strange to the checks"


def test_it_cannot_write_nor_become_root() -> None:
    (container,) = pod()["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert pod()["securityContext"]["runAsNonRoot"]
    assert f"USER {pod()['securityContext']['runAsUser']}" in (FOLDER / "Containerfile").read_text()
