"""The printed roles of runbooks, and the policy beside them."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from gpuctl.report.rbac import Account, node_policy, runbook_manifests
from gpuctl.runbook.catalogue import BOOKS, runbook
from gpuctl.runbook.drain.draining import WITHOUT_BUDGETS
from gpuctl.runbook.drain.runbook import RUNBOOK as DRAIN
from gpuctl.runbook.permissions import permissions_of

ACCOUNT = Account("ops", "changer")


def text(name: str = "drain", account: Account = ACCOUNT, *, nodes: bool = True) -> str:
    return runbook_manifests(name, permissions_of(runbook(name)), account, nodes=nodes)


def objects(printed: str) -> dict[tuple[str, str], Any]:
    return {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(printed)}


def test_each_place_has_a_role_of_its_own() -> None:
    found = objects(text())
    roles = {
        name: each["metadata"].get("namespace") for (kind, name), each in found.items() if "Role" in kind
    }
    assert roles == {
        "gpuctl-drain.ops.changer": None,
        "gpuctl-drain-state.ops.changer": "ops",
        "gpuctl-drain-events.ops.changer": "default",
        "gpuctl-drain-exec.ops.changer": None,
    }
    for (kind, name), each in found.items():
        if kind.endswith("Binding") and "Role" in kind:
            assert each["roleRef"]["name"] == name
            assert each["subjects"] == [{"kind": "ServiceAccount", "namespace": "ops", "name": "changer"}]


def test_locks_and_journals_are_within_their_namespace() -> None:
    everywhere = objects(text())["ClusterRole", "gpuctl-drain.ops.changer"]["rules"]
    assert not [rule for rule in everywhere if {"leases", "configmaps", "events"} & {*rule["resources"]}]


def test_what_a_flag_takes_is_a_role_of_its_own() -> None:
    """Else printing it for one account, or without it, would change what the other has."""
    needs = permissions_of(DRAIN, [WITHOUT_BUDGETS])
    with_it = objects(runbook_manifests(DRAIN.id, needs, ACCOUNT, nodes=True))
    (more,) = {name for kind, name in with_it if kind == "ClusterRole"} - {
        name for kind, name in objects(text()) if kind == "ClusterRole"
    }
    assert more == "gpuctl-drain-disable-eviction.ops.changer"
    (rule,) = with_it["ClusterRole", more]["rules"]
    assert (rule["resources"], rule["verbs"]) == (["pods"], ["delete"])
    assert (
        with_it["ClusterRole", "gpuctl-drain.ops.changer"]
        == objects(text())["ClusterRole", "gpuctl-drain.ops.changer"]
    )


def test_commands_in_pods_are_a_role_of_their_own_where_they_can_be_left_out() -> None:
    found = objects(text())
    rules = found["ClusterRole", "gpuctl-drain-exec.ops.changer"]["rules"]
    assert [(each["resources"], each["verbs"]) for each in rules] == [
        (["pods/exec"], ["create"]),
        (["pods/exec"], ["get"]),
    ]
    assert "pods/exec" not in str(found["ClusterRole", "gpuctl-drain.ops.changer"])
    needed = objects(text("mig-reconfigure"))
    assert "pods/exec" in str(needed["ClusterRole", "gpuctl-mig-reconfigure.ops.changer"])
    assert ("ClusterRole", "gpuctl-mig-reconfigure-exec.ops.changer") not in needed


def test_the_policy_binds_the_account_and_comes_before_the_role() -> None:
    printed = text()
    policy = objects(printed)["ValidatingAdmissionPolicy", node_policy(ACCOUNT)]
    condition = policy["spec"]["matchConditions"][0]["expression"]
    assert condition == 'request.userInfo.username == "system:serviceaccount:ops:changer"'
    assert printed.index("ValidatingAdmissionPolicy") < printed.index("kind: ClusterRole\n")
    binding = objects(printed)["ValidatingAdmissionPolicyBinding", node_policy(ACCOUNT)]
    assert binding["spec"] == {"policyName": node_policy(ACCOUNT), "validationActions": ["Deny"]}


def test_two_accounts_have_two_policies_and_two_runbooks_of_one_account_the_same() -> None:
    """Else the second to be applied would set the first free."""
    other = Account("ops", "another")
    assert node_policy(ACCOUNT) != node_policy(other)
    assert node_policy(Account("a-b", "c")) != node_policy(Account("a", "b-c"))
    key = ("ValidatingAdmissionPolicy", node_policy(ACCOUNT))
    assert objects(text("drain"))[key] == objects(text("mig-recover"))[key]


def test_a_version_is_named_so_that_types_are_checked() -> None:
    spec = objects(text())["ValidatingAdmissionPolicy", node_policy(ACCOUNT)]["spec"]
    assert spec["failurePolicy"] == "Fail"
    assert spec["matchConstraints"]["resourceRules"][0]["apiVersions"] == ["v1"]


def test_a_runbook_that_leaves_nodes_alone_has_no_policy() -> None:
    assert "ValidatingAdmissionPolicy" not in text("kueue-restart", nodes=False)


@pytest.mark.parametrize("name", BOOKS)
def test_every_rule_says_what_it_is_for(name: str) -> None:
    printed = text(name)
    for rule in printed.split("- apiGroups")[:-1]:
        if "rules:" in rule or rule.startswith(': ["'):
            last = rule.rstrip().splitlines()[-1]
            assert last.startswith(("# ", "  resourceRules", "    resourceRules")), last


def test_what_can_be_left_out_says_what_for() -> None:
    printed = text("mig-reconfigure")
    cohorts = '- apiGroups: ["kueue.x-k8s.io"]\n  resources: ["cohorts"]'
    assert f"# can be left out; with it: the plan says more\n{cohorts}" in printed
    assert "# can be left out; with it: old journals are removed\n" in printed
