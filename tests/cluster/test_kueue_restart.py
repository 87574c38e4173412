"""The runbook kueue-restart on a real Kueue: a stale CA is found, named, and cured."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from . import gpuctl
from .bed import Bed
from .bed.kueue import CONFIGURATIONS, Kueue
from .test_kueue_webhooks import one_older

STATE = "gpuctl-system"
TARGET = "kueue-system/kueue-controller-manager"
COMMAND = f"gpuctl plan kueue-restart {TARGET}"


@pytest.fixture(autouse=True)
def state(bed: Bed) -> None:
    if f"namespace/{STATE}" not in bed.kubectl("get", "namespaces", "-o", "name").split():
        bed.kubectl("create", "namespace", STATE)


def planned(bed: Bed, file: Path, *flags: str) -> dict[str, Any]:
    arguments = ("plan", "kueue-restart", TARGET, *flags, "-o", "json", "--out", str(file))
    answer = gpuctl.run(*arguments, kubeconfig=bed.kubeconfig)
    assert answer.stdout, answer.stderr
    found: dict[str, Any] = json.loads(answer.stdout)["targets"][0]
    against = {each["guard"] for each in found["blockers"]}
    assert answer.returncode == (1 if against - {"to-be-applied"} else 0)
    return found


def may_write_again(kueue: Kueue, role: dict[str, Any]) -> None:
    """Gives the rotator back what `freeze_rotator` took. It has tried in vain, and waits longer each time."""
    patch = json.dumps({"rules": role["rules"]})
    kueue.kubectl("patch", "clusterrole", kueue.cluster_role, "--type=merge", "-p", patch)


def test_a_stale_ca_is_found_named_and_cured(bed: Bed, kueue: Kueue, tmp_path: Path) -> None:
    role = json.loads(kueue.kubectl("get", "clusterrole", kueue.cluster_role, "-o", "json"))
    one_older(kueue)
    broken = gpuctl.run("check", "kueue-webhooks", kubeconfig=bed.kubeconfig)
    assert broken.returncode == 1
    assert broken.stdout.splitlines()[-1] == f"  runbook: {COMMAND}"
    plan = planned(bed, tmp_path / "plan.json")
    assert plan["blockers"] == []
    assert any("a restart has no undo" in line for line in plan["effects"])
    before = kueue.pods()
    may_write_again(kueue, role)
    arguments = ("apply", str(tmp_path / "plan.json"), "--yes")
    applied = gpuctl.run(*arguments, kubeconfig=bed.kubeconfig)
    assert applied.returncode == 0, applied.stdout + applied.stderr
    assert {*kueue.pods()} - {*before}
    # A Deployment's status, which the run believes, counts no pod that is ending.
    bed.wait(lambda: not {*before} & {*kueue.pods()}, 60, "the end of the old pods")
    assert len({each.value for each in kueue.bundles() if each.resource in CONFIGURATIONS}) == 1
    kueue.wait_healthy()  # the API server looks at Kueue's API service in its own time
    cured = gpuctl.check("kueue-webhooks", kubeconfig=bed.kubeconfig)
    assert cured.found() == set()


def test_it_is_refused_without_the_secret_and_by_a_budget(bed: Bed, kueue: Kueue, tmp_path: Path) -> None:
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "kueue", "namespace": kueue.namespace},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"control-plane": "controller-manager"}}},
    }
    kueue.kubectl("create", "-f", "-", input=json.dumps(budget))
    try:
        bed.wait(lambda: _observed(kueue), 30, "the budget")
        (blocker,) = planned(bed, tmp_path / "plan.json")["blockers"]
        assert blocker["override"] == "--ignore-budget"
        assert not planned(bed, tmp_path / "plan.json", "--ignore-budget")["blockers"]
    finally:
        kueue.kubectl("-n", kueue.namespace, "delete", "pdb", "kueue")
    kueue.kubectl("-n", kueue.namespace, "delete", "secret", kueue.secret)
    found = planned(bed, tmp_path / "plan.json")["blockers"]
    assert {each["guard"] for each in found} == {"secret-exists"}


def test_what_helm_keeps_is_refused_and_its_patch_is_one_that_the_server_takes(
    bed: Bed, kueue: Kueue, tmp_path: Path
) -> None:
    place = ("-n", kueue.namespace, "deployment", kueue.deployment)
    kueue.kubectl("annotate", *place, "meta.helm.sh/release-name=kueue")
    try:
        (blocker,) = planned(bed, tmp_path / "plan.json")["blockers"]
        assert (blocker["guard"], blocker["override"]) == ("not-owned-elsewhere", "--although-owned")
        assert not planned(bed, tmp_path / "plan.json", "--although-owned")["blockers"]
        printed = planned(bed, tmp_path / "plan.json", "--patch-only")
        assert printed["steps"] == []
        assert any("the values of that Helm release" in line for line in printed["effects"])
        (patch,) = [line for line in printed["effects"] if line.startswith("the patch: kubectl ")]
        command = shlex.split(patch.removeprefix("the patch: kubectl "))
        assert "patched" in kueue.kubectl(*command, "--dry-run=server")
    finally:
        kueue.kubectl("annotate", *place, "meta.helm.sh/release-name-")


def test_of_the_secret_only_metadata_is_read(bed: Bed, kueue: Kueue, user: Any, tmp_path: Path) -> None:
    """Without the right to it, it is not known whether it exists; and that blocks."""
    everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["list"]}
    but_secrets = ["namespaces", "configmaps", "nodes", "pods", "deployments", "leases"]
    limited = user(
        "no-secrets",
        [
            everything,
            {"apiGroups": ["", "apps", "coordination.k8s.io"], "resources": but_secrets, "verbs": ["get"]},
            {
                "apiGroups": ["apiextensions.k8s.io"],
                "resources": ["customresourcedefinitions"],
                "verbs": ["get"],
            },
            {"apiGroups": ["kueue.x-k8s.io"], "resources": ["resourceflavors"], "verbs": ["create"]},
        ],
    )
    arguments = ("plan", "kueue-restart", TARGET, "-o", "json")
    answer = gpuctl.run(*arguments, kubeconfig=limited)
    found = json.loads(answer.stdout)["targets"][0]["blockers"]
    assert {(each["guard"], each["override"]) for each in found} == {
        ("secret-is-known", "--although-secret-unknown")
    }


def _observed(kueue: Kueue) -> bool:
    found = json.loads(kueue.kubectl("-n", kueue.namespace, "get", "pdb", "kueue", "-o", "json"))
    return bool(found.get("status", {}).get("observedGeneration") == found["metadata"]["generation"])
