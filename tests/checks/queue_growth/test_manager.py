"""Kueue itself: a manager that does not answer is the cause, and its configuration is taken into account."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from gpuctl.audit.judge import Verdict
from tests.builders.kueue import Cluster
from tests.builders.kueue import healthy as healthy_kueue
from tests.builders.queues import GPU, World, pods
from tests.checks.judging import FORBIDDEN
from tests.checks.judging import judged_queues as judged
from tests.checks.queue_growth.test_findings import idle

LONG = timedelta(hours=2)


def with_manager(world: World, *, dead: bool = False, settings: str = "") -> World:
    """The same cluster, with Kueue in it."""
    cluster: Cluster = healthy_kueue()
    if dead:
        cluster.one("Deployment")["spec"]["replicas"] = 0
        cluster.drop("EndpointSlice")
        cluster.drop("Pod")
    if settings:
        data = cluster.one("ConfigMap")["data"]
        (key,) = data
        data[key] += settings
    mine = {(each["kind"], each["metadata"]["name"]) for each in world.items}
    kept = {
        "ClusterQueue",
        "LocalQueue",
        "Workload",
        "Cohort",
        "ResourceFlavor",
        "Topology",
        "AdmissionCheck",
    }
    world.items += [
        each
        for each in cluster.items
        if (each["kind"], each["metadata"]["name"]) not in mine and each["kind"] not in kept
    ]
    return world


def late() -> World:
    world = idle()
    world.workload("late", waits=LONG)
    return world


def test_a_dead_manager_is_the_cause() -> None:
    found = judged(with_manager(late(), dead=True))
    assert found.failing == {"CQG001", "CQG038"}
    finding = found.one("CQG038")
    assert finding.cause == "manager behind kueue-system/kueue-webhook-service"
    assert "kueue-webhooks" in finding.remedy


def test_a_manager_that_answers_is_not() -> None:
    assert judged(with_manager(late())).failing == {"CQG001", "CQG036"}


def test_a_transformation_covers_a_resource() -> None:
    """The queue covers what slices are counted as; nodes are measured by what they offer."""
    transformed = (
        "\nresources:\n  transformations:\n  - input: nvidia.com/mig-1g.10gb\n    strategy: Replace\n"
        "    outputs: {example.com/accelerator-memory: 10Gi}\n"
    )
    world = World()
    world.namespace("team-a")
    world.flavor()
    slices: Any = {"nvidia.com/mig-1g.10gb": "7"}
    world.node(**slices)
    world.queue(quota={"h100": {"example.com/accelerator-memory": "70Gi"}})
    world.local_queue()
    world.workload("slices", pod_sets=[pods({"nvidia.com/mig-1g.10gb": "2"})])
    assert judged(with_manager(world, settings=transformed)).failing == set()
    plain = World(items=[each for each in world.items if each["kind"] != "ConfigMap"])
    assert judged(with_manager(plain)).failing == {"CQG021"}


CLAIMED = (
    "\nresources:\n  deviceClassMappings:\n  - {name: nvidia.com/gpu, deviceClassNames: [gpu.nvidia.com]}\n"
)


def with_gpus(amount: str) -> World:
    world = idle()
    world.one("Node", "gpu-1")["status"]["allocatable"][GPU] = amount
    return world


@pytest.mark.parametrize(("offered", "code"), [("0", "CQG075"), ("4", "CQG070")])
def test_devices_that_are_claimed_are_not_missed_on_nodes(offered: str, code: str) -> None:
    assert judged(with_manager(with_gpus(offered))).failing == {code}
    found = judged(with_manager(with_gpus(offered), settings=CLAIMED))
    assert found.failing == set()
    assert found.of("real-quota").verdict is Verdict.UNKNOWN
    assert "deviceClassMappings" in found.of("real-quota").reason


def test_where_nodes_offer_enough_no_claims_are_asked_about() -> None:
    assert judged(with_manager(idle(), settings=CLAIMED)).of("real-quota").verdict is Verdict.PASS


@pytest.mark.parametrize("share", ["gpu.memory", "nvidia.com/gpu.memory", "nvidia.com/gpumem"])
def test_shares_that_no_node_offers_may_be_counted_elsewhere(share: str) -> None:
    world = idle()
    world.queue("shares", {"h100": {share: "800"}})
    assert judged(world).of("real-quota").verdict is Verdict.UNKNOWN
    world.one("Node", "gpu-1")["status"]["allocatable"][share] = "80"
    assert judged(world).failing == {"CQG070"}
    world.one("Node", "gpu-1")["status"]["allocatable"][share] = "800"
    assert judged(world).of("real-quota").verdict is Verdict.PASS


def test_what_can_not_be_compared_hides_nothing_else() -> None:
    world = with_gpus("0")
    world.queue("slices", {"h100": {"nvidia.com/mig-1g.10gb": "7"}})
    assert judged(with_manager(world, settings=CLAIMED)).failing == {"CQG075"}


def test_an_unread_configuration_is_no_ground_for_blame() -> None:
    world = idle()
    world.workload("disk", pod_sets=[pods({GPU: "1", "ephemeral-storage": "1Gi"})])
    found = judged(with_manager(world), missing={"configmaps": FORBIDDEN})
    assert found.failing == set()
    assert found.of("possible-requests").verdict is Verdict.UNKNOWN


def test_excluded_resources_are_not_counted() -> None:
    world = idle()
    world.workload("rdma", pod_sets=[pods({GPU: "1", "rdma/hca": "1"})])
    excluded = "\nresources:\n  excludeResourcePrefixes: [rdma/]\n"
    assert judged(with_manager(world, settings=excluded)).failing == set()
