"""Which permission is said to be needed for what, and the preflight that asks for them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from rich.console import Console

from gpuctl.audit.access import AccessReport, Allowed, Sought, access_report
from gpuctl.audit.check import Check
from gpuctl.audit.permissions import Grant, Purpose, grants
from gpuctl.facts.fact import Objects, given
from gpuctl.facts.kinds import Ref, Rule
from gpuctl.facts.state import Each, Known, Reason, State, Unknown
from gpuctl.report.access import access_json, draw_access
from tests.audit.helpers import check, pods_are_good, pods_have_a_node
from tests.facts.views import NodeView, PodView

PODS, NODES = Rule("", "pods", "list", namespaced=True), Rule("", "nodes", "list")
CREATE = Rule("kueue.x-k8s.io", "resourceflavors", "create")
THREE = (
    Grant(PODS, ("one/good",)),
    Grant(NODES, ("one/placed", "two/placed"), ("one/good",)),
    Grant(CREATE, ("one/proof",)),
)


@given(Objects(NodeView))
def of_nodes(nodes: Each[Ref, NodeView]) -> Each[Ref, Mapping[str, Any]]:
    return nodes.map(lambda _: {})


def test_an_assertion_that_only_says_more_is_told_from_one_that_depends() -> None:
    plain = check(pods_are_good, pods_have_a_node)
    narrowed = Check(
        plain.id,
        plain.title,
        plain.package,
        plain.codes,
        plain.assertions,
        needed_for={Objects(PodView): (pods_have_a_node,)},
    )
    nodes, pods = grants([narrowed])
    assert pods == Grant(PODS, ("pods-test/pods-have-a-node",), ("pods-test/pods-are-good",))
    assert nodes.more == (), "nothing was said about nodes"


def test_what_only_the_subjects_need_is_in_the_role_too() -> None:
    plain = check(pods_are_good)
    learning = Check(plain.id, plain.title, plain.package, plain.codes, plain.assertions, learned=of_nodes)
    assert Grant(NODES, (), ("pods-test",)) in grants([learning])


def answers(**by_resource: State[bool]) -> AccessReport:
    return access_report(map(Sought, THREE), lambda rule, _: by_resource[rule.resource], cluster="lab")


YES, NO, UNKNOWN = Known(True), Known(False), Unknown(Reason.TIMEOUT, "no answer\x1b[2J")


@pytest.mark.parametrize(
    ("pods", "nodes", "code"),
    [(YES, YES, 0), (NO, YES, 1), (YES, UNKNOWN, 3), (NO, UNKNOWN, 1)],
)
def test_exit_codes(pods: State[bool], nodes: State[bool], code: int) -> None:
    assert answers(pods=pods, nodes=nodes, resourceflavors=YES).exit_code == code


def test_the_table_names_what_is_missing_and_what_needs_it() -> None:
    console = Console(record=True, width=200, file=open("/dev/null", "w"))  # noqa: SIM115
    draw_access(answers(pods=NO, nodes=UNKNOWN, resourceflavors=YES), console)
    lines = console.export_text().splitlines()
    rows = {line.split("  ")[0]: line for line in lines}
    assert "no" in rows["list pods"].split()
    assert "one: good" in rows["list pods"]
    assert "one: placed; two: placed" in rows["list nodes"]
    assert "yes" in rows["create resourceflavors.kueue.x-k8s.io"].split()
    assert "lab: 1 yes, 1 no, 1 unknown" in lines
    assert "unknown, because timeout: no answer\\x1b[2J" in lines


def test_json_has_every_permission_with_its_reason() -> None:
    report = json.loads(access_json(answers(pods=NO, nodes=UNKNOWN, resourceflavors=YES)))
    assert [each["allowed"] for each in report["permissions"]] == ["no", "unknown", "yes"]
    assert report["permissions"][1]["reason"].startswith("timeout: ")
    assert report["permissions"][1]["more"] == ["one/good"]
    assert (report["exitCode"], report["cluster"]) == (1, "lab")


def test_what_a_runbook_takes_is_asked_for_where_it_takes_it() -> None:
    journal = Grant(Rule("", "configmaps", "create", namespaced=True), ("drain/a journal is begun",))
    events = Grant(Rule("", "events", "create", namespaced=True), (), ("drain/an Event is made",))
    wide = Grant(NODES, ("drain/pool-stays", "drain/the plan"))
    asked = []

    def may(rule: Rule, namespace: str) -> State[bool]:
        asked.append((rule.resource, namespace))
        return NO if rule.resource == "events" else YES

    sought = [Sought(wide), Sought(journal, "ops"), Sought(events, "default")]
    report = access_report(sought, may, cluster="lab")
    assert asked == [("nodes", ""), ("configmaps", "ops"), ("events", "default")]
    assert [each.namespace for each in report.permissions] == ["", "ops", "default"]
    assert report.exit_code == 1
    console = Console(record=True, width=200, file=open("/dev/null", "w"))  # noqa: SIM115
    draw_access(report, console)
    rows = {line.split("  ")[0]: line for line in console.export_text().splitlines()}
    assert rows["list nodes"].endswith("drain: pool-stays, the plan")
    assert rows["create configmaps in ops"].endswith("drain: a journal is begun")
    assert rows["create events in default"].endswith("can be left out; with it: drain: an Event is made")


def test_within_a_namespace_nothing_cluster_wide_is_asked_for() -> None:
    asked = []

    def may(rule: Rule, namespace: str) -> State[bool]:
        asked.append((rule, namespace))
        return YES

    sought = [Sought(each, "team-a") for each in THREE]
    report = access_report(sought, may, cluster="lab", namespace="team-a")
    assert asked == [(PODS, "team-a")]
    assert [each.allowed for each in report.permissions] == [
        Allowed.YES,
        Allowed.NOT_APPLICABLE,
        Allowed.NOT_APPLICABLE,
    ]
    assert report.exit_code == 0


@pytest.mark.parametrize(
    ("rule", "purpose"),
    [
        (PODS, Purpose.READING),
        (CREATE, Purpose.DRY_RUN),
        (Rule("", "pods/log", "get"), Purpose.READING),
        (Rule("", "pods/exec", "get"), Purpose.PROBE),
        (Rule("", "pods/portforward", "create"), Purpose.PORT_FORWARD),
        (Rule("", "secrets", "get"), Purpose.SECRET),
    ],
)
def test_what_a_permission_is_for(rule: Rule, purpose: Purpose) -> None:
    assert Grant(rule, ()).purpose is purpose
