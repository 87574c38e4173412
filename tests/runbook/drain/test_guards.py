"""What blocks a drain, each with the flag that takes the risk; and the slightly different cluster in which
nothing does."""

from __future__ import annotations

from typing import Any

import pytest

from gpuctl.audit.policy import DrainPolicy
from gpuctl.facts.fact import given
from gpuctl.facts.state import Reason, Unknown
from gpuctl.runbook.drain.candidates import Scope
from gpuctl.runbook.drain.draining import draining
from gpuctl.runbook.drain.guards import guards_of, no_resident_holder
from gpuctl.runbook.drain.runbook import DRAINING
from gpuctl.runbook.drain.victims import Victim
from gpuctl.runbook.records import Bounds
from tests.runbook.drain import scenes
from tests.runbook.drain.scenes import Scene, scene

GUARDS = guards_of(DRAINING)
SCRATCH = {"volumes": [{"name": "tmp", "emptyDir": {}}]}


def blocked(found: Scene) -> list[tuple[str, str]]:
    """The guards that speak against it, and the flags."""
    return [(each.guard, each.override) for each in found.blockers(GUARDS)]


def said(found: Scene) -> str:
    return "\n".join(each.message for each in found.blockers(GUARDS))


def test_an_ordinary_pod_is_drained_without_further_ado() -> None:
    assert blocked(scene(scenes.pod(), scenes.budget())) == []


@pytest.mark.parametrize(
    ("guard", "flag", "pod"),
    [
        ("pods-scratch", "--delete-emptydir-data", {"spec": SCRATCH}),
        ("pods-unmanaged", "--force", {"owner": None}),
        ("pods-protected", "--evict-protected", {"namespace": "kube-system", "owner": ("Odd", "x")}),
        ("pods-returning", "--ignore-returning", {"spec": {"tolerations": [{"operator": "Exists"}]}}),
        ("pods-grace", "--grace-period", {"spec": {"terminationGracePeriodSeconds": 86400}}),
    ],
)
def test_each_risk_of_a_pod_has_a_flag_of_its_own(guard: str, flag: str, pod: dict[str, Any]) -> None:
    assert blocked(scene(scenes.pod(**pod))) == [(guard, flag)]
    over = {**pod, "status": {"phase": "Succeeded"}}
    assert blocked(scene(scenes.pod(**over))) == []


def test_all_blockers_are_shown_at_once() -> None:
    found = scene(
        scenes.pod("one", spec=SCRATCH),
        scenes.pod("two", owner=None),
        scenes.budget(allowed=0, healthy=1),
        options={"max_evictions": 1},
    )
    assert [guard for guard, _ in blocked(found)] == [
        "pods-scratch",
        "pods-unmanaged",
        "budgets-allow",
        "few-enough",
    ]


# PodDisruptionBudgets


def test_a_budget_that_allows_nothing_is_named_with_its_numbers_and_its_owner() -> None:
    closed = scenes.budget(
        allowed=0, healthy=1, needed=1, expected=1, labels={"app.kubernetes.io/managed-by": "Helm"}
    )
    found = scene(scenes.pod(), closed)
    assert blocked(found) == [("budgets-allow", "--wait-for-budgets")]
    assert "PodDisruptionBudget team-a/llm allows no eviction now (allows 0, 1 of 1 healthy, " in said(found)
    assert "1 needed; made by Helm): team-a/llm-0" in said(found)


@pytest.mark.parametrize(
    ("pod", "budget"),
    [
        ({}, {"allowed": 1}),
        ({}, {"allowed": 0, "selector": {"app": "other"}}),
        ({"status": {"phase": "Pending", "conditions": []}}, {"allowed": 0}),
        ({"deletionTimestamp": scenes.stamp(10)}, {"allowed": 0}),
        (
            {"status": {"conditions": []}},
            {"allowed": 0, "spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}},
        ),
        ({"status": {"conditions": []}}, {"allowed": 0, "healthy": 2, "needed": 2}),
    ],
)
def test_budgets_that_the_server_would_not_ask_do_not_block(
    pod: dict[str, Any], budget: dict[str, Any]
) -> None:
    assert blocked(scene(scenes.pod(**pod), scenes.budget(**budget))) == []


def test_a_pod_that_is_not_ready_is_held_where_the_others_are_too_few() -> None:
    found = scene(scenes.pod(status={"conditions": []}), scenes.budget(allowed=0, healthy=1, needed=2))
    assert blocked(found) == [("budgets-allow", "--wait-for-budgets")]


def test_a_budget_without_a_selector_is_about_nothing() -> None:
    nothing = scenes.budget(allowed=0)
    del nothing["spec"]["selector"]
    assert blocked(scene(scenes.pod(), nothing)) == []


def test_fewer_evictions_at_once_than_pods_is_told_and_does_not_block() -> None:
    found = scene(scenes.pod("one"), scenes.pod("two"), scenes.budget(allowed=1, healthy=2))
    facts = found.look([need for each in GUARDS for need in each.needs])
    (note,) = (note for each in GUARDS for note in each.notes(facts))
    assert "allows 1 eviction at once" in note
    assert "2 pods must go" in note


def test_two_budgets_over_one_pod_never_let_it_go() -> None:
    found = scene(scenes.pod(), scenes.budget("a"), scenes.budget("b"))
    assert blocked(found) == [("one-budget-each", "--disable-eviction")]
    assert blocked(found.with_(options={"disable_eviction": True})) == []


def test_budgets_do_not_count_where_pods_are_deleted() -> None:
    found = scene(scenes.pod(), scenes.budget(allowed=0))
    assert blocked(found.with_(options={"disable_eviction": True})) == []


def test_budgets_that_can_t_be_read_block() -> None:
    gap = Unknown(Reason.FORBIDDEN, "no", "poddisruptionbudgets")
    found = scene(scenes.pod(), missing={"poddisruptionbudgets.policy": gap})
    assert {guard for guard, _ in blocked(found)} == {"budgets-allow", "one-budget-each"}
    assert "cannot be told whether PodDisruptionBudgets allow evictions" in said(found)


# How many, and the last of them


@pytest.mark.parametrize(("most", "blocks"), [(1, True), (2, False)])
def test_no_more_pods_go_than_were_allowed(most: int, blocks: bool) -> None:
    found = scene(scenes.pod("one"), scenes.pod("two"), options={"max_evictions": most})
    assert (("few-enough", "--max-evictions") in blocked(found)) is blocks


@pytest.mark.parametrize(("ready", "blocks"), [(2, True), (3, False)])
def test_what_serves_keeps_a_ready_replica(ready: int, blocks: bool) -> None:
    found = scene(
        scenes.node(),
        scenes.pod("one"),
        scenes.pod("two"),
        scenes.controller("ReplicaSet", "llm-5d8", owner=("Deployment", "llm"), ready=2),
        scenes.controller("Deployment", "llm", ready=ready),
    )
    assert blocked(found) == ([("a-replica-stays", "--last-replica")] if blocks else [])
    if blocks:
        assert "Deployment llm in namespace team-a loses 2 of 2 Ready replicas" in said(found)


@pytest.mark.parametrize(
    ("needed", "options", "blocks"),
    [(1, {}, False), (0, {}, True), (1, {"disable_eviction": True}, True)],
)
def test_a_budget_that_needs_a_replica_keeps_one(needed: int, options: dict[str, Any], blocks: bool) -> None:
    found = scene(
        scenes.node(),
        scenes.pod(),
        scenes.controller("ReplicaSet", "llm-5d8", ready=1),
        scenes.budget(allowed=1, healthy=1, needed=needed),
        options=options,
    )
    assert (("a-replica-stays", "--last-replica") in blocked(found)) is blocks


def test_a_replica_that_is_not_ready_is_no_loss() -> None:
    found = scene(
        scenes.node(),
        scenes.pod(owner=("StatefulSet", "db"), status={"conditions": []}),
        scenes.controller("StatefulSet", "db", ready=0),
    )
    assert blocked(found) == []


def test_batch_work_keeps_no_replica() -> None:
    found = scene(scenes.node(), scenes.pod(owner=("Job", "train")), scenes.controller("Job", "train"))
    assert blocked(found) == []


def test_replicas_that_can_t_be_counted_block() -> None:
    gap = Unknown(Reason.FORBIDDEN, "no", "replicasets")
    found = scene(scenes.pod(), missing={"replicasets.apps": gap})
    assert ("a-replica-stays", "--last-replica") in blocked(found)


# Owners that are gone


@pytest.mark.parametrize("kind", ["DaemonSet", "ReplicaSet", "StatefulSet", "Job"])
def test_a_pod_whose_controller_is_gone_is_as_one_without(kind: str) -> None:
    orphan = scene(scenes.node(), scenes.pod(owner=(kind, "gone")))
    assert ("pods-unmanaged", "--force") in blocked(orphan)
    assert f"its {kind} does not exist any more" in said(orphan)
    there = scene(scenes.node(), scenes.pod(owner=(kind, "here")), scenes.controller(kind, "here"))
    assert blocked(there) == []


def test_another_controller_of_the_same_name_is_not_its_own() -> None:
    other = scenes.controller("ReplicaSet", "here")
    other["metadata"]["uid"] = "another"
    found = scene(scenes.node(), scenes.pod(owner=("ReplicaSet", "here")), other)
    assert ("pods-unmanaged", "--force") in blocked(found)


# What can't be told


def test_pods_that_can_t_be_read_block() -> None:
    found = scene(missing={"pods": Unknown(Reason.FORBIDDEN, "no", "pods")})
    assert len(blocked(found)) == len(GUARDS)


@given()
def only_gpus() -> Scope:
    return Scope.GPU


def test_a_pod_of_which_can_t_be_told_whether_it_holds_a_gpu_blocks_where_that_matters() -> None:
    claiming = {"resourceClaims": [{"name": "g", "resourceClaimName": "c"}]}
    gap = Unknown(Reason.FORBIDDEN, "no", "resourceclaims")
    found = scene(scenes.pod(asks={}, spec=claiming), missing={"resourceclaims.resource.k8s.io": gap})
    assert blocked(found) == []
    narrow = found.blockers(guards_of(draining(only_gpus)))
    assert narrow
    assert all("cannot be told" in each.message for each in narrow)


# What is left alone must not hold a GPU


@pytest.mark.parametrize(
    ("pod", "blocks"),
    [
        ({"owner": ("DaemonSet", "inference")}, True),
        ({"owner": ("DaemonSet", "inference"), "asks": {}}, False),
        ({"owner": ("DaemonSet", "dcgm"), "labels": {"app": "nvidia-dcgm"}}, False),
        ({"owner": ("Node", "gpu-1"), "annotations": {"kubernetes.io/config.mirror": "x"}}, True),
        ({"owner": ("ReplicaSet", "llm-5d8")}, False),
        ({"owner": ("DaemonSet", "inference"), "status": {"phase": "Failed"}}, False),
    ],
)
def test_a_gpu_that_no_drain_frees_blocks_a_change_of_it(pod: dict[str, Any], blocks: bool) -> None:
    found = scene(scenes.pod(**pod)).blockers([no_resident_holder])
    assert bool(found) is blocks
    assert all(not each.override for each in found)


# Who is hurt


def victims(found: Scene) -> tuple[Victim, ...]:
    return tuple(each.victim for each in found.look([DRAINING.hurt])[DRAINING.hurt])


def lines(found: Scene) -> str:
    return "\n".join(found.look([DRAINING.effects])[DRAINING.effects])


def test_a_victim_is_known_with_its_owners_budgets_and_team() -> None:
    found = scene(scenes.pod(labels={"team": "ml"}), scenes.budget())
    assert victims(found) == (
        Victim(
            namespace="team-a",
            name="llm-0",
            uid="uid-of-llm-0",
            holds=("1x nvidia.com/gpu",),
            team="ml",
            owners=("ReplicaSet llm-5d8", "Deployment llm"),
            owner_kind="ReplicaSet",
            controller="uid-of-llm-5d8",
            work="serving",
            grace=30,
            budgets=("team-a/llm",),
        ),
    )
    assert (
        "team-a/llm-0: 1x nvidia.com/gpu; serving, Deployment llm; team ml; under PodDisruptionBudget"
        in lines(found)
    )


def of_kueue(*pods: dict[str, Any]) -> Scene:
    return scene(
        scenes.node(),
        scenes.controller("Job", "train", owner=("JobSet", "sweep")),
        scenes.workload("jobset-sweep", ("JobSet", "sweep")),
        *pods,
        served=True,
    )


def test_a_workload_of_kueue_is_found_through_job_and_jobset() -> None:
    labels = {"jobset.sigs.k8s.io/jobset-name": "sweep"}
    found = of_kueue(scenes.pod("a", owner=("Job", "train"), labels=labels))
    (victim,) = victims(found)
    assert (victim.workload, victim.queue, victim.priority) == ("jobset-sweep", "gpus", 100)
    assert (victim.work, victim.gang) == ("batch", "JobSet sweep")
    assert "Workload team-a/jobset-sweep of ClusterQueue gpus (priority 100) loses 1 pod" in lines(found)
    assert "JobSet sweep in namespace team-a loses 1 pod: all its work stops" in lines(found)


def test_a_pod_of_another_job_is_of_no_workload() -> None:
    (victim,) = victims(of_kueue(scenes.pod("a", owner=("Job", "other"))))
    assert victim.workload == ""
    assert victim.gang == ""


def test_a_pod_group_names_its_workload_itself() -> None:
    labels = {"kueue.x-k8s.io/pod-group-name": "jobset-sweep"}
    (victim,) = victims(of_kueue(scenes.pod("a", owner=None, labels=labels)))
    assert (victim.workload, victim.gang, victim.work) == (
        "jobset-sweep",
        "Kueue pod group jobset-sweep",
        "batch",
    )


def test_what_stays_is_told_with_the_reason() -> None:
    found = scene(scenes.pod("dcgm-x", owner=("DaemonSet", "dcgm")), scenes.controller("DaemonSet", "dcgm"))
    assert lines(found) == "no pod has to go\nleft alone, as it belongs to a DaemonSet: team-a/dcgm-x"


def test_bounds_are_those_of_what_is_evicted() -> None:
    found = scene(
        scenes.pod("one"),
        scenes.pod("two", "batch", owner=None),
        scenes.pod("three", "team-b", deletionTimestamp=scenes.stamp(9)),
        scenes.budget(),
        policy=DrainPolicy(modes={"batch": "wait"}),
    )
    assert found.look([DRAINING.bounds])[DRAINING.bounds] == Bounds(
        evictions=1, namespaces=("team-a",), owner_kinds=("ReplicaSet",), budgets=("team-a/llm",)
    )
    assert "evicts 1 pod: 1 of team-a; waits for 1 pod; 1 pod on the way out already" in lines(found)
