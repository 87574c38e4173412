"""What is reserved against what pods ask for; and all the passing states in which they differ by right."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from gpuctl.audit.finding import Severity
from gpuctl.audit.judge import Verdict
from tests.builders.queues import GPU, World, ago, pods, stamp
from tests.checks.judging import FORBIDDEN
from tests.checks.judging import judged_queues as judged
from tests.checks.queue_growth.test_findings import idle
from tests.checks.queue_growth.test_manager import with_manager
from tests.memory import A_MOMENT

Change = Callable[[World], object]


def running(made: int = 8, expected: int = 8, gpus: str = "1", age: timedelta = timedelta(hours=1)) -> World:
    """A Job of pods that each ask for one GPU, admitted an hour ago; beside it one in order."""
    world = idle()
    queue = world.one("ClusterQueue", "vision")
    queue["status"]["flavorsReservation"] = [{"name": "h100", "resources": [{"name": GPU, "total": "8"}]}]
    item = world.admitted(
        "train", str(expected), with_pod=False, since=age, pod_sets=[pods({GPU: "1"}, count=expected)]
    )
    item["status"]["admission"]["podSetAssignments"][0]["count"] = expected
    for number in range(made):
        pod(world, f"train-{number}", gpus)
    return world


def pod(world: World, name: str, gpus: str = "1", age: timedelta = timedelta(minutes=59), **more: Any) -> Any:
    made = world.pod(name, {GPU: gpus}, owner="train", **more)
    made["metadata"]["creationTimestamp"] = stamp(A_MOMENT - age)
    return made


def test_pods_that_never_came() -> None:
    finding = judged(running(made=5)).one("CQG064")
    assert finding.weight is Severity.WARNING
    assert finding.message == (
        "8 nvidia.com/gpu are reserved in flavor h100 of ClusterQueue vision, and the pods of its Workloads"
        " ask for 5: 1 Workload of team-a differs, such as team-a/train, which holds 8 while its 5 pods "
        "ask for 5 (8 expected)"
    )
    assert "may refuse its pods" in finding.remedy


def test_pods_that_ask_for_more_than_was_counted() -> None:
    finding = judged(running(made=4, expected=4, gpus="2")).one("CQG064")
    assert "holds 4 while its 4 pods ask for 8" in finding.message
    assert "a webhook, a resize in place" in finding.remedy


def test_pods_that_ask_for_what_was_counted() -> None:
    assert judged(running()).findings == ()


def finished(world: World) -> None:
    for number in range(5, 8):
        pod(world, f"train-{number}", phase="Succeeded")


def reclaimed(world: World) -> None:
    world.one("Workload", "train")["status"]["reclaimablePods"] = [{"name": "main", "count": 3}]


def replaced(world: World) -> None:
    pod(world, "train-7", phase="Failed", age=timedelta(minutes=2))


def young(world: World) -> None:
    world.one("Pod", "train-0")["metadata"]["creationTimestamp"] = stamp(ago(minutes=2))


def ending(world: World) -> None:
    world.one("Pod", "train-0")["metadata"]["deletionTimestamp"] = stamp(ago(minutes=30))


def admitted_just_now(world: World) -> None:
    for each in world.one("Workload", "train")["status"]["conditions"]:
        each["lastTransitionTime"] = stamp(ago(minutes=2))


def suspended(world: World) -> None:
    world.one("Job", "train")["spec"]["suspend"] = True


def elsewhere(world: World) -> None:
    world.one("Job", "train")["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue"


def of_a_ray_cluster(world: World) -> None:
    owner = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "train", "uid": "uid-train"}
    world.one("Workload", "train")["metadata"]["ownerReferences"] = [owner]


def claimed_devices(world: World) -> None:
    """Counted from claims: no container asks for them."""
    world.one("Workload", "train")["spec"]["podSets"] = [pods({"cpu": "1"}, count=8)]


def without_counts(world: World) -> None:
    del world.one("Workload", "train")["status"]["admission"]["podSetAssignments"][0]["count"]


@pytest.mark.parametrize(
    "change",
    [
        finished,
        reclaimed,
        replaced,
        young,
        ending,
        admitted_just_now,
        suspended,
        elsewhere,
        of_a_ray_cluster,
        claimed_devices,
        without_counts,
    ],
    ids=lambda change: change.__name__,
)
def test_what_differs_by_right_is_no_drift(change: Change) -> None:
    world = running(made=5)
    change(world)
    assert "CQG064" not in judged(world).codes


def test_what_has_no_pods_at_all_is_known_by_that() -> None:
    assert judged(running(made=0)).failing == {"CQG062"}


def test_a_second_pod_set_hides_whose_pods_are_over() -> None:
    world = running(made=5)
    item = world.one("Workload", "train")
    item["status"]["admission"]["podSetAssignments"].append(
        {"name": "driver", "flavors": {}, "resourceUsage": {}, "count": 1}
    )
    assert "CQG064" in judged(world).codes
    pod(world, "driver", "0", phase="Succeeded")
    assert "CQG064" not in judged(world).codes


def test_cpu_and_memory_that_sidecars_add_are_no_drift() -> None:
    world = running()
    for each in world.items:
        if each["kind"] == "Pod":
            each["spec"]["containers"].append({"name": "proxy", "resources": {"requests": {"cpu": "100m"}}})
    assert judged(world).findings == ()


@pytest.mark.parametrize("resource", ["pods", "jobs.batch", "configmaps"])
def test_what_is_not_read_leaves_it_open(resource: str) -> None:
    found = judged(with_manager(running(made=5)), missing={resource: FORBIDDEN})
    assert "CQG064" not in found.failing
    assert found.of("honest-reservations").verdict is Verdict.UNKNOWN
