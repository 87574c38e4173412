"""Causes that Kueue's words would name are found from objects too: where it has said nothing, or what it said
is over. Beside each the same cluster slightly changed, in which the cause is silent."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from gpuctl.audit.judge import Verdict
from gpuctl.kueue.settings import parse
from tests.builders.queues import GPU, World, condition, pods
from tests.checks.judging import FORBIDDEN
from tests.checks.judging import judged_queues as judged
from tests.checks.queue_growth.test_findings import idle
from tests.checks.queue_growth.test_manager import with_manager

LONG = timedelta(hours=2)
RACK, HOST = "example.com/rack", "kubernetes.io/hostname"
BLOCKING = "\nwaitForPodsReady:\n  timeout: 5m\n  blockAdmission: true\n"
OF_DEVICES = (
    "\nresources:\n  deviceClassMappings:\n  - {name: example.com/gpus, deviceClassNames: [a.example]}\n"
)
SAID = "waiting for all admitted workloads to be in PodsReady condition"

# Pods that others wait for


def one_runs(*, ready: bool, message: str = "") -> World:
    world = idle()
    item = world.admitted("first")
    if ready:
        item["status"]["conditions"].append(condition("PodsReady", "True", "Started"))
    world.workload("late", waits=LONG, message=message)
    return world


def test_pods_that_are_not_ready_block_everyone() -> None:
    """Only the Workload that is next is told; this one was told nothing."""
    finding = judged(with_manager(one_runs(ready=False), settings=BLOCKING)).one("CQG035")
    assert "those of Workload team-a/first are not" in finding.message
    assert "why the pods of Workload team-a/first are not ready" in finding.remedy


@pytest.mark.parametrize(
    ("ready", "settings", "code"),
    [
        (True, BLOCKING, "CQG036"),
        (False, "\nwaitForPodsReady: {timeout: 5m}\n", "CQG036"),
        (False, "", "CQG036"),
    ],
)
def test_but_not_where_all_are_ready_or_nothing_is_blocked(ready: bool, settings: str, code: str) -> None:
    assert judged(with_manager(one_runs(ready=ready), settings=settings)).failing == {"CQG001", code}


def test_what_was_said_is_over_once_all_pods_are_ready() -> None:
    found = judged(with_manager(one_runs(ready=True, message=SAID), settings=BLOCKING))
    assert found.failing == {"CQG001", "CQG037"}


def test_kueues_words_count_where_its_configuration_is_not_read() -> None:
    world = with_manager(one_runs(ready=False, message=SAID))
    counted = [{"name": "main", "resources": {GPU: "1"}}]
    world.one("Workload", "late")["status"]["resourceRequests"] = counted
    assert "CQG035" in judged(world, missing={"configmaps": FORBIDDEN}).failing


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("{apiVersion: config.kueue.x-k8s.io/v1beta1, waitForPodsReady: {enable: true}}", True),
        ("{apiVersion: config.kueue.x-k8s.io/v1beta1, waitForPodsReady: {blockAdmission: true}}", False),
        ("{apiVersion: x/v1beta1, waitForPodsReady: {enable: true, blockAdmission: false}}", False),
        ("{apiVersion: config.kueue.x-k8s.io/v1beta2, waitForPodsReady: {timeout: 5m}}", False),
        ("{apiVersion: config.kueue.x-k8s.io/v1beta2, waitForPodsReady: {blockAdmission: true}}", True),
        ("{apiVersion: config.kueue.x-k8s.io/v1beta2}", False),
    ],
)
def test_each_version_of_the_configuration_has_its_own_default(text: str, blocks: bool) -> None:
    assert parse(text).blocks_admission is blocks


# Claims to devices


def claiming(world: World | None = None, device_class: str = "b.example", **claim: str) -> World:
    world = world or idle()
    claims = [{"name": "gpu", **(claim or {"resourceClaimTemplateName": "one-gpu"})}]
    world.workload("claims", waits=LONG, pod_sets=[pods({GPU: "1"}, resourceClaims=claims)])
    template(world, device_class)
    return world


def template(world: World, device_class: str, version: str = "v1") -> None:
    request: dict[str, Any] = {"name": "gpu"}
    named = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": 1}
    request |= {"exactly": named} if version == "v1" else named
    world.add(
        {
            "apiVersion": f"resource.k8s.io/{version}",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": "one-gpu", "namespace": "team-a"},
            "spec": {"spec": {"devices": {"requests": [request]}}},
        }
    )


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_class_of_devices_that_is_not_mapped(version: str) -> None:
    for device_class, codes in (("b.example", {"CQG001", "CQG024"}), ("a.example", {"CQG001", "CQG036"})):
        world = claiming()
        world.drop("ResourceClaimTemplate")
        template(world, device_class, version)
        found = judged(with_manager(world, settings=OF_DEVICES))
        assert found.failing == codes
    message = judged(with_manager(claiming(), settings=OF_DEVICES)).one("CQG024").message
    assert "DeviceClass b.example is in no deviceClassMappings" in message


def test_a_template_that_does_not_exist() -> None:
    world = claiming(device_class="a.example")
    world.drop("ResourceClaimTemplate")
    finding = judged(with_manager(world, settings=OF_DEVICES)).one("CQG024")
    assert "ResourceClaimTemplate one-gpu does not exist" in finding.message


def test_a_claim_that_exists_already() -> None:
    world = claiming(device_class="a.example", resourceClaimName="mine")
    assert (
        "it names ResourceClaim mine"
        in judged(with_manager(world, settings=OF_DEVICES)).one("CQG024").message
    )


def test_where_claims_are_not_counted_they_keep_nobody_out() -> None:
    assert judged(with_manager(claiming())).failing == {"CQG001", "CQG036"}


def test_templates_that_are_not_read_leave_it_open() -> None:
    missing = {"resourceclaimtemplates.resource.k8s.io": FORBIDDEN}
    found = judged(with_manager(claiming(), settings=OF_DEVICES), missing=missing)
    assert found.failing == {"CQG001"}
    assert found.of("possible-requests").verdict is Verdict.UNKNOWN


# Topologies


def near(level: str = RACK, *, topology: str = "racks", **request: Any) -> World:
    """A Workload whose pods want to be near each other, in a queue whose flavor has a topology, or none."""
    world = idle()
    if topology:
        world.one("ResourceFlavor", "h100")["spec"]["topologyName"] = topology
        world._kueue("Topology", topology, spec={"levels": [{"nodeLabel": RACK}, {"nodeLabel": HOST}]})
    asked = {**pods({GPU: "1"}, count=2), "topologyRequest": request or {"required": level}}
    world.workload("near", waits=LONG, pod_sets=[asked])
    return world


@pytest.mark.parametrize("key", ["required", "preferred", "podSetSliceRequiredTopology"])
def test_a_level_that_no_topology_has(key: str) -> None:
    finding = judged(near(**{key: "example.com/block"})).one("CQG022")
    assert "flavor h100: its Topology has no level example.com/block" in finding.message
    assert judged(near(**{key: RACK})).failing == {"CQG001", "CQG036"}


def test_a_flavor_without_topology() -> None:
    finding = judged(near(topology="")).one("CQG022")
    assert "flavor h100: it has no Topology, which the request asks for" in finding.message


def test_no_level_need_be_named() -> None:
    assert "CQG022" not in judged(near(unconstrained=True)).failing
    assert "CQG022" in judged(near(topology="", unconstrained=True)).failing


def two_flavors(*, plain: str) -> World:
    """h100 has a topology, and room; `plain` GPUs are in a flavor without."""
    world = idle()
    world.drop("ClusterQueue")
    world.flavor("plain")
    world.node("gpu-2", flavor="plain")
    world.queue(quota={"h100": {GPU: "8"}, "plain": {GPU: plain}})
    world.one("ResourceFlavor", "h100")["spec"]["topologyName"] = "racks"
    world._kueue("Topology", "racks", spec={"levels": [{"nodeLabel": RACK}]})
    world.workload("plain", 4, waits=LONG)
    return world


def test_who_asks_for_no_topology_gets_no_flavor_that_has_one() -> None:
    finding = judged(two_flavors(plain="2")).one("CQG020")
    assert "at most 2 can be given in flavor plain" in finding.message
    assert judged(two_flavors(plain="8")).failing == {"CQG001", "CQG036"}


def test_unless_the_queue_has_no_other() -> None:
    world = near()
    del world.one("Workload", "near")["spec"]["podSets"][0]["topologyRequest"]
    assert judged(world).failing == {"CQG001", "CQG036"}


def test_a_topology_that_is_not_read_leaves_it_open() -> None:
    found = judged(near("example.com/block"), missing={"topologies.kueue.x-k8s.io": FORBIDDEN})
    assert "CQG022" not in found.failing
    assert found.of("possible-requests").verdict is Verdict.UNKNOWN


def racks(*, pods_: int, used: int = 0, **request: Any) -> World:
    """Two racks of two nodes with 8 GPUs each, and Kueue's word that they have no room."""
    world = World()
    world.namespace("team-a")
    world.flavor(topologyName="racks")
    world._kueue("Topology", "racks", spec={"levels": [{"nodeLabel": RACK}, {"nodeLabel": HOST}]})
    for number in range(4):
        name = f"gpu-{number}"
        labels = world.node(name)["metadata"]["labels"]
        labels |= {RACK: f"rack-{number // 2}", HOST: name}
        if number < used:
            world.pod(f"other-{number}", {GPU: "1"}, node=name)
    world.queue(quota={"h100": {GPU: "32"}})
    world.local_queue()
    asked = {**pods({GPU: "8"}, count=pods_), "topologyRequest": request or {"required": RACK}}
    message = f'topology "racks" allows to fit only 2 out of {pods_} pod(s)'
    world.workload("near", waits=LONG, pod_sets=[asked], message=message)
    return world


@pytest.mark.parametrize(
    ("world", "words"),
    [
        (racks(pods_=4), "2 of 4 pods have room in one example.com/rack of flavor h100, and 2 if nothing"),
        (racks(pods_=2, used=3), "1 of 2 pods have room in one example.com/rack of flavor h100, and 2 if"),
        (racks(pods_=2, used=4), "0 of 2 pods have room in one example.com/rack of flavor h100, and 2 if"),
        (racks(pods_=4, used=2, unconstrained=True), "2 of 4 pods have room in flavor h100, and 4 if"),
        (
            racks(pods_=4, used=1, podSetSliceRequiredTopology=RACK, podSetSliceSize=2),
            "2 of 4 pods have room in flavor h100, and 4 if",
        ),
        (racks(pods_=2, required=HOST), "1 of 2 pods have room in one kubernetes.io/hostname of"),
    ],
    ids=["too many", "a node is in use", "all are", "anywhere", "in slices", "on one node"],
)
def test_nodes_tell_how_much_room_a_topology_has(world: World, words: str) -> None:
    assert words in judged(world).one("CQG026").message


def test_nodes_that_are_not_counted_tell_nothing() -> None:
    message = judged(racks(pods_=4), missing={"nodes": FORBIDDEN}).one("CQG026").message
    assert "by nodes" not in message
    assert "allows to fit only 2" in message
