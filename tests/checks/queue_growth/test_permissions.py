"""What the printed role says of a rule is so: without it exactly the assertions it names can't be judged."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuctl.audit.permissions import Grant, grants
from gpuctl.checks.queue_growth import CHECK
from gpuctl.facts.fact import graph
from gpuctl.facts.metrics import labels
from gpuctl.facts.state import Each
from gpuctl.kueue.queue_facts import ADMISSIONS, PENDING
from tests.builders.queues import GPU, World, ago, condition, healthy, pods, stamp
from tests.checks.judging import FORBIDDEN, Verdicts
from tests.checks.judging import judged_queues as judged
from tests.checks.queue_growth.test_manager import with_manager
from tests.memory import A_MOMENT

READS = [grant for grant in grants([CHECK]) if grant.reads]
OF_DEVICES = (
    "\nresources:\n  deviceClassMappings:\n  - {name: example.com/gpus, deviceClassNames: [a.example]}\n"
)


def all_in_use() -> World:
    """A cluster that makes use of everything there is, and in which nothing is wrong."""
    world = healthy()
    vision = world.one("ClusterQueue", "vision")["spec"]
    vision["cohortName"] = "all"
    vision["admissionChecksStrategy"] = {"admissionChecks": [{"name": "budget"}]}
    world.cohort("all")
    check = world._kueue("AdmissionCheck", "budget", spec={"controllerName": "example.com/budget"})
    check["status"] = {"conditions": [condition("Active", "True", "Active")]}
    placed_by_topology(world)
    held_for_long(world)
    just_admitted(world)
    deleted(world)
    world.job("train-0")
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train-0", "uid": "uid-train-0"}
    world.one("Workload", "train-0")["metadata"]["ownerReferences"] = [owner]
    return with_manager(world, settings=OF_DEVICES)


def placed_by_topology(world: World) -> None:
    world.flavor("racks", topologyName="racks")
    world._kueue("Topology", "racks", spec={"levels": [{"nodeLabel": "example.com/rack"}]})
    world.node("gpu-2", flavor="racks")
    world.queue("near", {"racks": {GPU: "8"}})
    world.local_queue("near", to="near")
    near = {**pods({GPU: "1"}), "topologyRequest": {"required": "example.com/rack"}}
    claims = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    claiming = pods({GPU: "1"}, name="claiming", resourceClaims=claims)
    world.workload("near", queue="near", pod_sets=[near, claiming])
    world.one("Workload", "busy-1")["spec"]["podSets"][0]["template"]["spec"]["resourceClaims"] = claims
    request = {"name": "gpu", "exactly": {"deviceClassName": "a.example"}}
    world.add(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": "one-gpu", "namespace": "team-a"},
            "spec": {"spec": {"devices": {"requests": [request]}}},
        }
    )


def held_for_long(world: World) -> None:
    for each in world.one("Workload", "busy-0")["status"]["conditions"]:
        each["lastTransitionTime"] = stamp(ago(hours=30))
    world.one("Job", "busy-0")["spec"]["activeDeadlineSeconds"] = 200_000


def deleted(world: World) -> None:
    """A queue that goes with its last Workload, and a pod of a group that waits to be replaced."""
    world.queue("leaving", {"racks": {GPU: "0"}})["metadata"]["deletionTimestamp"] = stamp(ago(hours=1))
    world.local_queue("leaving", to="leaving")
    item = world.admitted("group", to="leaving", with_pod=False, flavor="racks", resource="cpu")
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "member", "uid": "uid-pod-member"}
    item["metadata"]["ownerReferences"] = [owner]
    pod = world.pod("member", {"cpu": "1"}, node="gpu-2")["metadata"]
    pod |= {"deletionTimestamp": stamp(ago(minutes=30)), "finalizers": ["kueue.x-k8s.io/managed"]}


def just_admitted(world: World) -> None:
    """Its pod finds no node yet."""
    world.admitted("starting", since=timedelta(seconds=20), with_pod=False)
    pod = world.pod("starting-x", {GPU: "1"}, owner="starting", node="", phase="Pending")
    pod["status"]["conditions"] = [condition("PodScheduled", "False", "Unschedulable", "0/2 nodes")]


def seen_by(world: World, forbidden: str = "") -> Verdicts:
    """Judged with all that is asked for beside the reading: queues watched, and a Prometheus."""
    steady = tuple((A_MOMENT - timedelta(minutes=each), 3.0) for each in range(60, 0, -5))
    names = [each["metadata"]["name"] for each in world.items if each["kind"] == "ClusterQueue"]
    known = Each.of({labels({"cluster_queue": name}): steady for name in names})
    series = {PENDING.query: known, ADMISSIONS.query: known}
    rounds = {A_MOMENT - timedelta(seconds=each): world.items for each in range(60, 0, -10)}
    missing = {forbidden: FORBIDDEN} if forbidden else {}
    return judged(world, missing=missing, rounds=rounds, series=series)


def resource(grant: Grant) -> str:
    return f"{grant.rule.resource}.{grant.rule.group}" if grant.rule.group else grant.rule.resource


def not_judged(before: Verdicts, after: Verdicts) -> set[str]:
    found = {name for name, verdict in after.by_assertion.items() if verdict != before.by_assertion[name]}
    assert {after.by_assertion[name].value for name in found} <= {"unknown", "not-proven", "not-applicable"}
    return {f"{CHECK.id}/{name}" for name in found}


def test_nothing_is_wrong_there() -> None:
    found = seen_by(all_in_use())
    assert found.codes == []
    assert {each.value for each in found.by_assertion.values()} == {"pass"}


@pytest.mark.parametrize("grant", READS, ids=lambda grant: str(grant.rule))
def test_without_a_rule_exactly_what_it_names_is_not_judged(grant: Grant) -> None:
    before, after = seen_by(all_in_use()), seen_by(all_in_use(), resource(grant))
    assert not_judged(before, after) == set(grant.assertions)


@pytest.mark.parametrize("grant", READS, ids=lambda grant: str(grant.rule))
def test_in_a_plain_cluster_it_costs_no_more(grant: Grant) -> None:
    before, after = seen_by(with_manager(healthy())), seen_by(with_manager(healthy()), resource(grant))
    assert not_judged(before, after) <= set(grant.assertions)


def test_nothing_is_declared_about_reads_that_are_not_made() -> None:
    assert set(CHECK.needed_for) <= set(graph(CHECK.needs))
