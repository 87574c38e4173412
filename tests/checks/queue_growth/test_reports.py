"""What people have reported in public, made again: the cause is named, and nothing else is blamed.

The numbers are those of issues of kubernetes-sigs/kueue unless another project is named.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.builders.queues import GPU, NEW, OLD, World, ago, condition, healthy, pods, stamp
from tests.checks.judging import Verdicts
from tests.checks.judging import judged_queues as judged
from tests.checks.queue_growth.test_findings import idle
from tests.checks.queue_growth.test_manager import with_manager
from tests.memory import A_MOMENT

LONG = timedelta(hours=2)
FRAME = "couldn't assign flavors to pod set main: "


def pending(world: World, name: str, amount: str, message: str) -> None:
    """The pod of an admitted Workload that finds no node."""
    world.admitted(name, amount, with_pod=False)
    pod = world.pod(f"{name}-x", {GPU: amount}, owner=name, node="", phase="Pending")
    pod["status"]["conditions"] = [condition("PodScheduled", "False", "Unschedulable", message)]


@pytest.mark.parametrize("version", [OLD, NEW])
def test_2665_and_1651_quota_above_the_nodes(version: str) -> None:
    """The Job is admitted and its pod stays Pending: nominalQuota is more than the nodes have."""
    world = World(version)
    world.namespace("team-a")
    world.flavor()
    world.node(gpus=8)
    world.queue(quota={"h100": {GPU: "16"}}, used={"h100": {GPU: "16"}})
    world.local_queue()
    world.admitted("first", 8)
    pending(world, "second", "8", "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.")
    found = judged(world)
    assert found.failing == {"CQG070", "CQG072"}
    assert "8 can be admitted and never run" in found.one("CQG070").message


def test_3210_5243_6214_one_gpu_free_on_each_of_eight_nodes() -> None:
    world = World()
    world.namespace("team-a")
    world.flavor()
    world.queue(quota={"h100": {GPU: "16"}})
    world.local_queue()
    for number in range(8):
        world.node(f"gpu-{number}", 2)
        world.admitted(f"one-{number}", 1, with_pod=False)
        world.pod(f"one-{number}-x", {GPU: "1"}, owner=f"one-{number}", node=f"gpu-{number}")
    pending(world, "wide", "8", "0/8 nodes are available: 8 Insufficient nvidia.com/gpu.")
    found = judged(world)
    assert found.failing == {"CQG073"}
    assert "8 are free on 8 nodes, but no single node has 8 free" in found.one("CQG073").message


def cohort_of_4809(strategy: str) -> World:
    world = World()
    world.namespace("team-a")
    world.flavor("plain", nodeLabels={})
    world.cohort("root")
    quota = {"plain": {"cpu": "200m"}}
    used = {"plain": {"cpu": "100m"}}
    world.queue("guaranteed", quota, cohort="root", used=used, queueingStrategy=strategy)
    world.queue("besteffort", {"plain": {"cpu": "0"}}, cohort="root")
    world.local_queue("g", to="guaranteed")
    world.local_queue("b", to="besteffort")
    world.workload("big", queue="g", pod_sets=[pods({"cpu": "200m"})], waits=LONG, message=FRAME + "x")
    told = "Workload no longer fits after processing another workload"
    world.workload("small", queue="b", pod_sets=[pods({"cpu": "100m"})], waits=LONG, message=told)
    return world


def test_4809_a_strict_queue_keeps_quota_for_its_first() -> None:
    found = judged(cohort_of_4809("StrictFIFO"))
    (small,) = [
        each for each in found.findings if each.object.name == "besteffort" and each.code.id != "CQG001"
    ]
    assert small.code.id == "CQG037"
    assert "no longer fits after processing another workload" in small.message


def test_1344_a_borrowing_limit_is_reached() -> None:
    world = World()
    world.namespace("team-a")
    quota = {f"flav-{number}": {"cpu": {"nominalQuota": "2", "borrowingLimit": "0"}} for number in (1, 2)}
    world.node()
    for name in quota:
        world.flavor(name, nodeLabels={})
    used = {name: {"cpu": "2"} for name in quota}
    world.queue(quota=quota, cohort="all", used=used)
    world.local_queue()
    world.workload(
        "third",
        pod_sets=[pods({"cpu": "1"})],
        waits=LONG,
        message=FRAME + "borrowing limit for cpu in flavor flav-1 exceeded",
    )
    assert judged(world).failing == {"CQG001", "CQG031"}


def test_3909_pod_sets_that_exceed_a_flavor_together() -> None:
    world = idle()
    world.workload(
        "ray",
        pod_sets=[pods({GPU: "8"}, name="head"), pods({GPU: "1"}, count=8, name="workers")],
        message="couldn't assign flavors to pod set workers: insufficient quota for nvidia.com/gpu in flavor "
        "h100, request > maximum capacity (16 > 8)",
    )
    found = judged(world)
    assert found.failing == {"CQG020"}
    assert "asks for 16 nvidia.com/gpu, and at most 8" in found.one("CQG020").message


@pytest.mark.parametrize("flavors", [3, 5])
def test_2391_and_3710_a_later_flavor_has_room_and_nothing_happens(flavors: int) -> None:
    """A fault of old releases: there is no message, and the third flavor would do."""
    world = World()
    world.namespace("team-a")
    quota = {f"f{number}": {GPU: "1"} for number in range(flavors)}
    for number, name in enumerate(quota):
        world.flavor(name)
        world.node(f"node-{number}", 1, flavor=name)
    world.queue(quota=quota, used={"f0": {GPU: "1"}, "f1": {GPU: "1"}})
    world.local_queue()
    world.workload("newton", 1, waits=LONG)
    assert judged(world).failing == {"CQG001", "CQG036"}


def test_5039_no_domains_in_a_topology() -> None:
    world = idle()
    message = FRAME + "no topology domains at level: oci.oraclecloud.com/rdma.local_block_id"
    world.workload("gang", waits=LONG, message=message)
    found = judged(world)
    assert found.failing == {"CQG001", "CQG026"}
    assert "rdma.local_block_id" in found.one("CQG026").message


@pytest.mark.parametrize("version", [OLD, NEW])
def test_4848_and_shepherdjerred_monorepo_1618_ephemeral_storage(version: str) -> None:
    """Every step asks for a resource since a change of template, and the queue does not cover it."""
    world = World(version)
    world.namespace("team-a")
    world.node()
    world.flavor("default", nodeLabels={})
    world.queue(quota={"default": {"cpu": "40", "memory": "200Gi", "pods": "50"}})
    world.local_queue()
    for number in range(4):
        asks = {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "10Gi"}
        world.workload(
            f"step-{number}",
            pod_sets=[pods(asks)],
            message=FRAME + "resource ephemeral-storage unavailable in ClusterQueue",
        )
    found = judged(world)
    assert found.failing == {"CQG021"}
    assert found.one("CQG021").message.startswith("4 Workloads of team-a")


def test_5289_a_cohorts_quota_counts_on_top() -> None:
    world = World()
    world.namespace("team-a")
    world.flavor()
    world.node(gpus=8)
    world.cohort("all", quota={"h100": {GPU: "4"}})
    world.queue("a", {"h100": {GPU: "4"}}, cohort="all")
    world.queue("b", {"h100": {GPU: "0"}}, cohort="all")
    world.local_queue(to="b")
    world.workload("eight", 8, waits=timedelta(minutes=2))
    assert judged(world).failing == set()


def test_7929_a_workload_that_names_no_queue_is_nobodys() -> None:
    world = healthy()
    world.workload("nameless", queue="", waits=LONG)
    assert judged(world).failing == set()


def test_13374_a_job_that_was_never_opted_in() -> None:
    world = healthy()
    world.job("forgotten", queue="default")
    found = judged(world)
    assert found.failing == {"CQG043"}
    assert found.one("CQG043").object.name == "forgotten"


def leaked(requeue_at: str | None, *, pod: bool = False) -> World:
    world = idle()
    item = world.admitted("lost", 900, with_pod=pod, since=LONG)
    item["status"]["conditions"].append(condition("Evicted", "True", "PodsReadyTimeout", at=ago(hours=1)))
    if requeue_at:
        item["status"]["requeueState"] = {"count": 1, "requeueAt": requeue_at}
    return world


def test_3322_3543_6035_an_eviction_that_kept_its_quota() -> None:
    found = judged(leaked(None))
    assert found.failing == {"CQG060"}
    assert "holds 900 nvidia.com/gpu" in found.one("CQG060").message


@pytest.mark.parametrize("version", [OLD, NEW])
def test_14811_evicted_admitted_and_reserved_at_once(version: str) -> None:
    world = leaked(stamp(ago(minutes=50)))
    world.version = version
    assert judged(world).failing == {"CQG060"}


def test_14811_not_while_it_backs_off_or_its_pods_end() -> None:
    assert judged(leaked(stamp(A_MOMENT + timedelta(minutes=5)))).failing == set()
    assert judged(leaked(stamp(ago(minutes=50)), pod=True)).failing == set()


def test_10407_more_workloads_than_replicas() -> None:
    """Fifty Workloads of pods that are gone, of a Deployment with two."""
    world = idle()
    for number in range(52):
        item = world.admitted(f"pod-{number}", 1, with_pod=False)
        owner = {"apiVersion": "v1", "kind": "Pod", "name": f"pod-{number}", "uid": f"uid-pod-p{number}"}
        item["metadata"]["ownerReferences"] = [owner]
    for number in range(2):
        world.pod(f"p{number}", {GPU: "1"})
    found = judged(world)
    assert found.failing == {"CQG061"}
    assert found.one("CQG061").message.startswith("50 Workloads of team-a hold 50 nvidia.com/gpu")


def test_1450_deleted_workloads_behind_a_finalizer() -> None:
    world = idle()
    for number in range(3):
        item = world.admitted(f"dangling-{number}", with_pod=False)
        item["metadata"]["deletionTimestamp"] = stamp(ago(hours=1))
        item["metadata"]["finalizers"] = ["kueue.x-k8s.io/resource-in-use"]
    found = judged(world)
    assert found.failing == {"CQG060"}
    assert "3 Workloads of team-a hold 3 nvidia.com/gpu" in found.one("CQG060").message


def test_headlamp_plugins_1191_flavors_of_another_name() -> None:
    world = World()
    world.flavor("default-flavor", nodeLabels={})
    world.flavor("spot-flavor", nodeLabels={})
    item = world.queue(quota={"default": {"cpu": "4"}, "spot": {"cpu": "4"}})
    message = "Can't admit new workloads: references missing ResourceFlavor(s): default,spot."
    item["status"]["conditions"] = [condition("Active", "False", "FlavorNotFound", message)]
    found = [each for each in judged(world).findings if each.code.id == "CQG011"]
    assert sorted(each.mark for each in found) == ["default", "spot"]
    assert "there are: default-flavor, spot-flavor" in found[0].remedy


def test_13676_a_queue_that_is_deleted_still_says_active() -> None:
    world = healthy()
    world.one("ClusterQueue", "vision")["metadata"]["deletionTimestamp"] = stamp(ago(hours=1))
    assert judged(world).failing == {"CQG016"}


def test_10759_a_queue_that_nobody_uses_and_that_does_not_go() -> None:
    world = idle()
    about = world.one("ClusterQueue", "vision")["metadata"]
    about |= {"deletionTimestamp": stamp(ago(hours=1)), "finalizers": ["kueue.x-k8s.io/resource-in-use"]}
    assert "was deleted 1h ago" in judged(world).one("CQG018").message
    world.admitted("last")
    assert judged(world).codes == []


def test_6022_and_6110_a_queue_without_groups() -> None:
    world = idle()
    world.one("ClusterQueue", "vision")["spec"]["resourceGroups"] = []
    world.workload("any", waits=LONG)
    assert judged(world).failing == {"CQG001", "CQG021"}


def test_13607_a_later_flavor_of_the_cohort_has_room_and_nothing_happens() -> None:
    """A fault of a release: the queue may borrow none of flavor-a, but its cohort has room in flavor-b."""
    world = World()
    world.namespace("team-a")
    for number, name in enumerate(("flavor-a", "flavor-b")):
        world.flavor(name)
        world.node(f"node-{number}", 200, flavor=name)
    quota: dict[str, dict[str, object]] = {
        "flavor-a": {GPU: {"nominalQuota": "4", "borrowingLimit": "0"}},
        "flavor-b": {GPU: "0"},
    }
    world.queue(quota=quota, cohort="root", used={"flavor-a": {GPU: "4"}})
    world.cohort("root", quota={"flavor-b": {GPU: "196"}})
    world.local_queue()
    world.workload("starving", 2, waits=LONG)
    assert judged(world).failing == {"CQG001", "CQG036"}


def deleted_pod(since: int, **about: object) -> World:
    world = idle()
    pod = world.pod("kept", {GPU: "1"})
    pod["metadata"] |= {
        "deletionTimestamp": stamp(ago(minutes=since)),
        "finalizers": ["kueue.x-k8s.io/managed"],
        "labels": {"kueue.x-k8s.io/managed": "true", "kueue.x-k8s.io/queue-name": "typo"},
        **about,
    }
    return world


def test_1352_1339_and_13830_a_pod_that_kueue_does_not_let_go() -> None:
    finding = judged(deleted_pod(30)).one("CQG065")
    assert "Pod team-a/kept was deleted 30m ago" in finding.message
    assert "LocalQueue typo exists" in finding.remedy
    assert judged(deleted_pod(5)).codes == []
    assert judged(deleted_pod(30, finalizers=["example.com/backup"])).codes == []


def test_13830_but_a_pod_of_a_group_waits_to_be_replaced() -> None:
    world = deleted_pod(30)
    item = world.admitted("group", with_pod=False)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "kept", "uid": "uid-pod-kept"}
    item["metadata"]["ownerReferences"] = [owner]
    assert "CQG065" not in judged(world).codes


@pytest.mark.parametrize(
    ("mapped", "device_class", "codes"),
    [
        ("", "gpu.nvidia.com", ["CQG066"]),
        ("gpu.nvidia.com", "gpu.nvidia.com", []),
        ("", "dranet.example.com", []),
    ],
    ids=["not mapped", "mapped", "no accelerator"],
)
def test_10504_devices_that_nothing_counts(mapped: str, device_class: str, codes: list[str]) -> None:
    """The mapping was taken away: usage is 0 while a GPU is in use."""
    world = idle()
    claims = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    item = world.admitted("claims", pod_sets=[pods({"cpu": "1"}, resourceClaims=claims)])
    item["status"]["admission"]["podSetAssignments"][0] |= {"flavors": {}, "resourceUsage": {}}
    request = {"name": "gpu", "exactly": {"deviceClassName": device_class}}
    world.add(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": "one-gpu", "namespace": "team-a"},
            "spec": {"spec": {"devices": {"requests": [request]}}},
        }
    )
    mapping = f"\nresources:\n  deviceClassMappings: [{{name: gpus, deviceClassNames: [{mapped}]}}]\n"
    assert judged(with_manager(world, settings=mapping if mapped else "")).codes == codes


def test_8309_those_behind_the_first_have_no_condition() -> None:
    """StrictFIFO with two flavors: the head waits for the full one, all others would fit the other."""
    world = World()
    world.namespace("team-a")
    for name in ("h100", "a100"):
        world.flavor(name)
        world.node(f"node-{name}", 8, flavor=name)
    world.queue(
        quota={"h100": {GPU: "8"}, "a100": {GPU: "8"}},
        used={"h100": {GPU: "8"}},
        queueingStrategy="StrictFIFO",
    )
    world.local_queue()
    for number in range(8):
        world.admitted(f"busy-{number}", with_pod=False)
        world.pod(f"busy-{number}-x", {GPU: "1"}, owner=f"busy-{number}", node="node-h100")
    selects = pods({GPU: "1"}, nodeSelector={"gpu": "h100"})
    world.workload("head", pod_sets=[selects], waits=timedelta(hours=4), message=FRAME + "…")
    world.workload("behind", pod_sets=[pods({GPU: "1"}, nodeSelector={"gpu": "a100"})], waits=LONG)
    found = judged(world)
    assert found.failing == {"CQG001", "CQG030", "CQG034"}
    assert "Workload team-a/head is first in line" in found.one("CQG034").message


def clean(found: Verdicts) -> bool:
    return found.findings == ()


def test_onhold_and_gated_workloads_wait_by_right() -> None:
    world = healthy()
    for reason in ("OnHold", "AdmissionGated"):
        item = world.workload(reason.lower(), waits=timedelta(days=3))
        item["status"]["conditions"] = [condition("QuotaReserved", "False", reason)]
    assert clean(judged(world))


def test_a_burst_of_an_array_job_is_no_alarm() -> None:
    world = healthy()
    for number in range(1000):
        world.workload(
            f"array-{number}", waits=timedelta(minutes=20), message=FRAME + "insufficient unused quota"
        )
    assert clean(judged(world))


def test_a_line_that_drains_is_no_alarm() -> None:
    world = healthy()
    for number in range(20):
        world.workload(f"slow-{number}", waits=timedelta(minutes=55 - number))
    assert clean(judged(world))
