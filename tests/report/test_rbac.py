"""The printed roles: as many rules as are declared, each with what needs it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from gpuctl.audit.permissions import Grant, grants
from gpuctl.facts.kinds import Rule
from gpuctl.report.rbac import Account, manifests
from tests.audit.helpers import check, pods_are_good, pods_have_a_node

ACCOUNT = Account("gpuctl-system", "gpuctl")
LIST_PODS = Grant(Rule("", "pods", "list", namespaced=True), ("pods-test/pods-are-good",))
LIST_NODES = Grant(Rule("", "nodes", "list"), ("pods-test/pods-have-a-node",))
CREATE = Grant(Rule("kueue.x-k8s.io", "resourceflavors", "create"), ("kueue/proof",))


def objects(*given: Grant, namespace: str | None = None) -> dict[tuple[str, str], Any]:
    loaded = yaml.safe_load_all(manifests(given, ACCOUNT, namespace))
    return {(each["kind"], each["metadata"]["name"]): each for each in loaded}


def test_permissions_name_the_assertions_that_need_them() -> None:
    found = grants([check(pods_are_good, pods_have_a_node)])
    assert found == (
        LIST_NODES,
        Grant(LIST_PODS.rule, ("pods-test/pods-are-good", "pods-test/pods-have-a-node")),
    )


def test_reading_and_proving_are_two_roles() -> None:
    found = objects(LIST_PODS, LIST_NODES, CREATE)
    assert found["ClusterRole", "gpuctl-check"]["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]},
    ]
    (proof,) = found["ClusterRole", "gpuctl-proof"]["rules"]
    assert proof == {"apiGroups": ["kueue.x-k8s.io"], "resources": ["resourceflavors"], "verbs": ["create"]}
    for name in ("gpuctl-check", "gpuctl-proof"):
        binding = found["ClusterRoleBinding", name]
        assert binding["roleRef"]["name"] == name
        assert binding["subjects"] == [
            {"kind": "ServiceAccount", "namespace": "gpuctl-system", "name": "gpuctl"}
        ]


def test_the_proof_is_held_to_dry_runs() -> None:
    policy = objects(LIST_PODS, CREATE)["ValidatingAdmissionPolicy", "gpuctl-dry-runs-only"]["spec"]
    assert policy["matchConstraints"]["resourceRules"][0]["resources"] == ["resourceflavors"]
    assert "system:serviceaccount:gpuctl-system:gpuctl" in policy["matchConditions"][0]["expression"]
    assert ("ValidatingAdmissionPolicy", "gpuctl-dry-runs-only") not in objects(LIST_PODS)


def test_a_tenant_gets_nothing_cluster_wide() -> None:
    found = objects(LIST_PODS, LIST_NODES, CREATE, namespace="team-a")
    assert {kind for kind, _ in found} == {"Namespace", "ServiceAccount", "Role", "RoleBinding"}
    role = found["Role", "gpuctl-check"]
    assert role["metadata"]["namespace"] == "team-a"
    assert [rule["resources"] for rule in role["rules"]] == [["pods"]]
    assert "cluster-wide: list nodes" in manifests([LIST_NODES], ACCOUNT, "team-a")


@pytest.mark.parametrize("grant", [LIST_PODS, LIST_NODES])
def test_every_rule_says_what_needs_it(grant: Grant) -> None:
    text = manifests([grant], ACCOUNT)
    assert text.index(f"# {grant.assertions[0]}") < text.index(f'"{grant.rule.resource}"')


def test_what_can_run_commands_or_read_secrets_is_apart_from_reading() -> None:
    exec_ = Grant(Rule("", "pods/exec", "get", namespaced=True), ("one/probe",))
    secret = Grant(Rule("", "secrets", "get", namespaced=True), ("one/secret",))
    found = objects(LIST_PODS, exec_, secret)
    assert [rule["resources"] for rule in found["ClusterRole", "gpuctl-check"]["rules"]] == [["pods"]]
    assert [rule["resources"] for rule in found["ClusterRole", "gpuctl-probe"]["rules"]] == [["pods/exec"]]
    assert [rule["resources"] for rule in found["ClusterRole", "gpuctl-webhook-secret"]["rules"]] == [
        ["secrets"]
    ]
    assert ("ValidatingAdmissionPolicy", "gpuctl-dry-runs-only") not in found


def test_who_only_says_more_with_a_permission_is_named_apart() -> None:
    text = manifests([Grant(LIST_PODS.rule, ("one/needs",), ("one/looks",))], ACCOUNT)
    assert "# one/needs\n# say more with it: one/looks\n- apiGroups" in text


def test_a_tenants_own_namespace_is_not_made() -> None:
    text = manifests([LIST_PODS], Account("team-a", "gpuctl"), "team-a")
    assert "kind: Namespace" not in text
