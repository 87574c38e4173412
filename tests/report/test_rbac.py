"""The printed roles: as many rules as are declared, each with what needs it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from gpuctl.audit.permissions import Grant, grants
from gpuctl.facts.kinds import Rule
from gpuctl.report.rbac import Account, manifests, runbook_manifests
from gpuctl.runbook.catalogue import BOOKS, runbook
from gpuctl.runbook.permissions import permissions_of
from tests.audit.helpers import check, pods_are_good, pods_have_a_node

ACCOUNT = Account("gpuctl-system", "gpuctl")
OF_ACCOUNT = ".gpuctl-system.gpuctl"
LIST_PODS = Grant(Rule("", "pods", "list", namespaced=True), ("pods-test/pods-are-good",))
LIST_NODES = Grant(Rule("", "nodes", "list"), ("pods-test/pods-have-a-node",))
CREATE = Grant(Rule("kueue.x-k8s.io", "resourceflavors", "create"), ("kueue/proof",))
TRY = Grant(Rule("batch", "jobs", "create", namespaced=True), ("other/proof",))


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
    assert found["ClusterRole", f"gpuctl-check{OF_ACCOUNT}"]["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]},
    ]
    (proof,) = found["ClusterRole", f"gpuctl-proof{OF_ACCOUNT}"]["rules"]
    assert proof == {"apiGroups": ["kueue.x-k8s.io"], "resources": ["resourceflavors"], "verbs": ["create"]}
    for name in (f"gpuctl-check{OF_ACCOUNT}", f"gpuctl-proof{OF_ACCOUNT}"):
        binding = found["ClusterRoleBinding", name]
        assert binding["roleRef"]["name"] == name
        assert binding["subjects"] == [
            {"kind": "ServiceAccount", "namespace": "gpuctl-system", "name": "gpuctl"}
        ]


DRY_RUNS_ONLY = "gpuctl-dry-runs-only.gpuctl-system.gpuctl"


def test_the_proof_is_held_to_dry_runs() -> None:
    policy = objects(LIST_PODS, CREATE)["ValidatingAdmissionPolicy", DRY_RUNS_ONLY]["spec"]
    assert policy["matchConstraints"]["resourceRules"][0]["resources"] == ["resourceflavors"]
    assert "system:serviceaccount:gpuctl-system:gpuctl" in policy["matchConditions"][0]["expression"]
    assert ("ValidatingAdmissionPolicy", DRY_RUNS_ONLY) not in objects(LIST_PODS)


def test_a_tenant_gets_nothing_cluster_wide() -> None:
    found = objects(LIST_PODS, LIST_NODES, CREATE, namespace="team-a")
    assert {kind for kind, _ in found} == {"Namespace", "ServiceAccount", "Role", "RoleBinding"}
    role = found["Role", f"gpuctl-check{OF_ACCOUNT}"]
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
    for name, resource in (("check", "pods"), ("probe", "pods/exec"), ("webhook-secret", "secrets")):
        (rule,) = found["ClusterRole", f"gpuctl-{name}{OF_ACCOUNT}"]["rules"]
        assert rule["resources"] == [resource]
    assert ("ValidatingAdmissionPolicy", DRY_RUNS_ONLY) not in found


def test_who_only_says_more_with_a_permission_is_named_apart() -> None:
    text = manifests([Grant(LIST_PODS.rule, ("one/needs",), ("one/looks",))], ACCOUNT)
    assert "# one/needs\n# say more with it: one/looks\n- apiGroups" in text


def test_a_tenants_own_namespace_is_not_made() -> None:
    text = manifests([LIST_PODS], Account("team-a", "gpuctl"), "team-a")
    assert "kind: Namespace" not in text


def test_the_right_to_a_secret_is_a_role_of_its_own_that_may_be_left_out() -> None:
    text = runbook_manifests("kueue-restart", permissions_of(runbook("kueue-restart")), ACCOUNT, nodes=False)
    roles = {
        each["metadata"]["name"]: each["rules"]
        for each in yaml.safe_load_all(text)
        if each["kind"] in ("Role", "ClusterRole")
    }
    holding = [name for name, rules in roles.items() if any("secrets" in each["resources"] for each in rules)]
    assert holding == [f"gpuctl-kueue-restart-secret{OF_ACCOUNT}"]
    assert "# May be left out" in text
    other = runbook_manifests("queue-limit", permissions_of(runbook("queue-limit")), ACCOUNT, nodes=False)
    assert "secret" not in other


# What is applied one after the other: kubectl replaces what has the same name

ACCOUNTS = (Account("ops", "one"), Account("ops", "two"), Account("team-a", "one"))
OF_BOOKS = [(book, flags) for book in BOOKS for flags in ([], sorted(runbook(book).rules_with))]


def printed() -> Iterator[str]:
    """Everything that can be printed for several accounts, checks, namespaces and runbooks."""
    for account in ACCOUNTS:
        for check_, given in (("", (LIST_PODS, CREATE)), ("one", (LIST_PODS,)), ("two", (LIST_NODES, TRY))):
            yield manifests(given, account, None, check_)
            yield manifests(given, account, "team-a", check_)
            yield manifests(given, account, "team-b", check_)
        for book, flags in OF_BOOKS:
            nodes = any(rule.resource == "nodes" for rule in runbook(book).rules)
            yield runbook_manifests(book, permissions_of(runbook(book), flags), account, nodes=nodes)


def test_nothing_that_is_printed_overwrites_anything_else() -> None:
    """Another account's binding, another check's rules, or the policy that holds an account to dry runs."""
    applied: dict[tuple[str, str, str], Any] = {}
    for text in printed():
        for each in yaml.safe_load_all(text):
            about = each["metadata"]
            key = (each["kind"], about.get("namespace", ""), about["name"])
            assert applied.setdefault(key, each) == each, key


def test_what_is_printed_for_one_account_binds_that_account_alone() -> None:
    for account in ACCOUNTS:
        found = list(yaml.safe_load_all(manifests([LIST_PODS, CREATE], account)))
        for each in found:
            if each["kind"].endswith("RoleBinding"):
                (subject,) = each["subjects"]
                assert (subject["namespace"], subject["name"]) == (account.namespace, account.name)
                assert each["metadata"]["name"] == each["roleRef"]["name"]
                assert each["metadata"]["name"].endswith(f".{account.namespace}.{account.name}")
