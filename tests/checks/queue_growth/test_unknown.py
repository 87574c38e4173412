"""What could not be read is never green, and costs no more than what rests on it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from gpuctl.audit.judge import Verdict
from gpuctl.audit.policy import QueueGrowthPolicy, QueueTolerance
from gpuctl.facts.metrics import labels
from gpuctl.facts.state import Each, Inapplicable, Reason, Unknown
from gpuctl.kueue.queue_facts import ADMISSIONS, PENDING
from tests.builders.queues import GPU, World, ago, healthy
from tests.checks.judging import FORBIDDEN
from tests.checks.judging import judged_queues as judged
from tests.checks.queue_growth.test_findings import CASES, ON_DEMAND, both, checked_by, cohort_of_two, idle
from tests.memory import A_MOMENT

READS = {  # what is withheld: the assertions of a healthy cluster that can't be judged then
    "clusterqueues.kueue.x-k8s.io": {"bearable-waits", "active-queues", "possible-requests", "used-quota"},
    "localqueues.kueue.x-k8s.io": {"bearable-waits", "possible-requests", "existing-queues"},
    "workloads.kueue.x-k8s.io": {"bearable-waits", "possible-requests", "moving-lines", "used-quota"},
    "resourceflavors.kueue.x-k8s.io": {"active-queues", "possible-requests", "real-quota"},
    "nodes": {"real-quota", "separate-flavors"},
    "pods": {"used-quota", "real-quota", "placed-pods"},
    "jobs.batch": {"queued-jobs", "used-quota", "placed-pods"},
}


@pytest.mark.parametrize("resource", READS)
def test_a_read_that_is_withheld_is_never_green(resource: str) -> None:
    found = judged(healthy(), missing={resource: FORBIDDEN})
    unknown = {each.assertion.id for each in found.judgements if each.verdict is Verdict.UNKNOWN}
    assert unknown >= READS[resource]
    assert found.verdict is Verdict.UNKNOWN
    assert found.failing == set()


def test_cohorts_matter_only_to_queues_in_one() -> None:
    alone = judged(healthy(), missing={"cohorts.kueue.x-k8s.io": FORBIDDEN})
    assert alone.of("possible-requests").verdict is Verdict.PASS
    world = cohort_of_two()("v1beta2")
    world.workload("r", 4, queue="research")
    together = judged(world, missing={"cohorts.kueue.x-k8s.io": FORBIDDEN})
    assert together.of("possible-requests").verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("resource", ["cohorts", "topologies", "admissionchecks"])
def test_old_releases_lack_kinds_and_that_is_no_gap(resource: str) -> None:
    gap = Inapplicable("not served")
    found = judged(healthy(), missing={f"{resource}.kueue.x-k8s.io": gap})
    assert found.findings == ()
    assert found.verdict is Verdict.PASS


@pytest.mark.parametrize("name", ON_DEMAND)
def test_nodes_may_come_on_demand_where_admission_checks_could_not_be_read(name: str) -> None:
    differs, brings, _, code = ON_DEMAND[name]
    world, without_checks = idle(), idle()
    both(differs, checked_by(brings))(world)
    differs(without_checks)
    blind = {"admissionchecks.kueue.x-k8s.io": FORBIDDEN}
    unread = judged(world, missing=blind)
    assert unread.verdict is Verdict.UNKNOWN
    assert unread.findings == ()
    assert judged(without_checks, missing=blind).codes == [code]


def test_without_kueue_nothing_applies() -> None:
    kinds = ("clusterqueues", "localqueues", "workloads", "cohorts", "resourceflavors", "topologies")
    missing = {f"{kind}.kueue.x-k8s.io": Inapplicable("not served") for kind in (*kinds, "admissionchecks")}
    assert judged(World(), missing=missing).verdict is Verdict.NOT_APPLICABLE
    others = World()
    others.job("backup", queue="", suspend=False)
    others.pod("backup-x", {"cpu": "1"}, owner="backup")
    assert judged(others, missing=missing).verdict is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize("name", CASES)
def test_a_fault_is_never_green_whatever_is_withheld(name: str) -> None:
    """A fault may become unknown, and not a pass."""
    case = CASES[name]
    for resource in ("workloads.kueue.x-k8s.io", "resourceflavors.kueue.x-k8s.io", "pods", "nodes"):
        world = case.base("v1beta2")
        case.fault(world)
        found = judged(world, missing={resource: FORBIDDEN})
        assert found.verdict in {Verdict.UNKNOWN, Verdict.FAIL}, resource


def test_one_broken_workload_costs_only_certainty() -> None:
    world = healthy()
    world.workload("late", waits=timedelta(hours=3))
    world.one("Workload", "train-1")["spec"]["podSets"][0]["count"] = "many"
    found = judged(world)
    assert "CQG001" in found.failing
    assert found.of("moving-lines").gaps


@pytest.mark.parametrize("quota", ["", "x", "1 GPU", {"a": 1}, None])
def test_a_quota_that_is_none_is_unknown(quota: object) -> None:
    world = idle()
    world.workload("w")
    groups = world.one("ClusterQueue", "vision")["spec"]["resourceGroups"]
    groups[0]["flavors"][0]["resources"][0]["nominalQuota"] = quota
    assert judged(world).verdict in {Verdict.UNKNOWN, Verdict.FAIL}


@pytest.mark.parametrize("quota", [8, "8", "8e0", "0.008k", "8000m"])
def test_every_form_of_a_quota_means_the_same(quota: object) -> None:
    world = idle()
    groups = world.one("ClusterQueue", "vision")["spec"]["resourceGroups"]
    groups[0]["flavors"][0]["resources"][0]["nominalQuota"] = quota
    world.workload("fits", 8)
    world.workload("late", 9)
    found = judged(world)
    assert "at most 8 can be given" in found.one("CQG020").message


def watched(*counts: int) -> dict[datetime, list[dict[str, Any]]]:
    rounds: dict[datetime, list[dict[str, Any]]] = {}
    for number, count in enumerate(counts):
        world = World()
        world.queue()["status"]["pendingWorkloads"] = count
        rounds[A_MOMENT + timedelta(seconds=10 * number)] = world.items
    return rounds


def test_watching_is_a_proof_that_may_be_left_out() -> None:
    found = judged(healthy())
    assert found.of("steady-backlogs").verdict is Verdict.NOT_PROVEN
    assert found.verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("counts", "verdict"),
    [
        ((3, 4, 5, 6, 7, 8, 9), Verdict.FAIL),
        ((3, 3, 3, 3, 3, 3, 3), Verdict.PASS),
        ((3, 90, 90, 90, 90, 90, 90), Verdict.PASS),
        ((9, 8, 7, 6, 5, 4, 3), Verdict.PASS),
    ],
)
def test_a_backlog_is_watched(counts: tuple[int, ...], verdict: Verdict) -> None:
    found = judged(healthy(), rounds=watched(*counts))
    assert found.of("steady-backlogs").verdict is verdict
    assert ("CQG002" in found.failing) is (verdict is Verdict.FAIL)


def test_a_stopped_queue_may_grow() -> None:
    world = healthy()
    world.one("ClusterQueue", "vision")["spec"]["stopPolicy"] = "Hold"
    assert judged(world, rounds=watched(3, 4, 5, 6, 7, 8, 9)).failing == set()


def series(values: list[float], admitted: list[float]) -> dict[str, Each[object, object]]:
    def points(numbers: list[float]) -> tuple[tuple[object, float], ...]:
        return tuple((ago(minutes=5 * (len(numbers) - at)), each) for at, each in enumerate(numbers))

    key = labels({"cluster_queue": "vision"})
    return {PENDING.query: Each.of({key: points(values)}), ADMISSIONS.query: Each.of({key: points(admitted)})}


def test_a_history_is_asked_for() -> None:
    rising = [float(each) for each in range(60)]
    found = judged(healthy(), series=series(rising, [5.0] * 60))
    assert "has grown from 0 to 59 Workloads" in found.one("CQG003").message
    calm = judged(healthy(), series=series([3.0] * 60, rising))
    assert calm.failing == set()
    assert calm.of("steady-past").verdict is Verdict.PASS


def test_a_prometheus_that_does_not_know_kueue_clears_nobody() -> None:
    nothing: dict[str, Each[object, object]] = {PENDING.query: Each(), ADMISSIONS.query: Each()}
    assert judged(healthy(), series=nothing).of("steady-past").verdict is Verdict.UNKNOWN


def test_a_prometheus_that_has_just_begun_proves_nothing_yet() -> None:
    assert (
        judged(healthy(), series=series([3.0] * 8, [1.0] * 8)).of("steady-past").verdict is Verdict.NOT_PROVEN
    )
    assert judged(healthy(), series=series([3.0] * 9, [1.0] * 9)).of("steady-past").verdict is Verdict.PASS


def test_a_prometheus_that_does_not_answer_is_unknown() -> None:
    found = judged(healthy(), series=Unknown(Reason.UNREACHABLE, "refused"))
    assert found.of("steady-past").verdict is Verdict.UNKNOWN


def test_a_queue_may_have_limits_of_its_own() -> None:
    world = healthy()
    world.workload("late", waits=timedelta(hours=3))
    own = QueueTolerance(oldest_wait_warning_minutes=240)
    assert judged(world, QueueGrowthPolicy(queues={"vis*": own})).failing == set()
    assert "CQG001" in judged(world, QueueGrowthPolicy(queues={"other": own})).failing


def test_unread_settings_leave_what_kueue_has_counted() -> None:
    """A transformation may be what covers a resource; only Kueue's own count or its settings tell."""
    world = healthy()
    item = world.workload("mig", pod_sets=None)
    item["status"]["resourceRequests"] = [{"name": "main", "resources": {GPU: "99"}}]
    assert "CQG020" in judged(world).failing
