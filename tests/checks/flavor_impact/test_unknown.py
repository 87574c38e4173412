"""What could not be read is never green, and costs no more than what rests on it."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from gpuctl.audit.judge import Verdict
from gpuctl.audit.policy import FlavorImpactPolicy
from gpuctl.facts.state import Inapplicable, Known
from tests.builders.queues import GPU, World, healthy
from tests.checks.flavor_impact.worlds import Change, deleted, journal, not_ready, taint
from tests.checks.judging import FORBIDDEN
from tests.checks.judging import judged_flavors as judged
from tests.checks.queue_growth.test_manager import CLAIMED, with_manager

ALL = {
    "lasting-flavors",
    "existing-flavors",
    "protected-flavors",
    "flavors-with-nodes",
    "separate-nodes",
    "read-flavors",
    "accepted-queues",
    "removed-canaries",
}
READS = {  # what is withheld: the assertions of a healthy cluster that can't be judged then
    "resourceflavors.kueue.x-k8s.io": ALL - {"accepted-queues"},
    "clusterqueues.kueue.x-k8s.io": ALL,
    "cohorts.kueue.x-k8s.io": {"existing-flavors", "flavors-with-nodes", "separate-nodes"},
    "nodes": {"flavors-with-nodes", "separate-nodes"},
    "workloads.kueue.x-k8s.io": set[str](),
}


@pytest.mark.parametrize("resource", READS)
def test_a_read_that_is_withheld_is_never_green(resource: str) -> None:
    found = judged(healthy(), missing={resource: FORBIDDEN})
    unknown = {name for name, each in found.by_assertion.items() if each is Verdict.UNKNOWN}
    assert unknown == READS[resource]
    assert found.findings == ()


def test_workloads_matter_where_a_taint_asks_for_them() -> None:
    world = healthy()
    taint("dedicated")(world)
    found = judged(world, missing={"workloads.kueue.x-k8s.io": FORBIDDEN})
    assert found.of("flavors-with-nodes").verdict is Verdict.UNKNOWN
    assert found.findings == ()


def test_a_finding_says_what_could_not_be_told() -> None:
    world = healthy()
    deleted()(world)
    found = judged(world, missing={"workloads.kueue.x-k8s.io": FORBIDDEN}).one("RFI001")
    assert found.message.endswith("; who runs and waits on it could not be read")


def test_an_unread_queue_may_refer_to_a_deleted_flavor() -> None:
    world = healthy()
    world.flavor("spare")
    deleted("spare")(world)
    world.queue("damaged")["spec"]["resourceGroups"] = 7
    found = judged(world)
    assert found.of("lasting-flavors").verdict is Verdict.UNKNOWN
    assert "RFI002" not in found.codes


def test_an_unread_queue_may_refer_to_a_flavor_without_nodes() -> None:
    world = healthy()
    world.drop("ResourceFlavor", "h100")
    world.flavor("spare", nodeLabels={"gpu": "h200"})
    assert judged(world).of("flavors-with-nodes").verdict is Verdict.NOT_APPLICABLE
    world.queue("damaged")["spec"]["resourceGroups"] = 7
    assert judged(world).of("flavors-with-nodes").verdict is Verdict.UNKNOWN


def test_without_kueue_nothing_applies() -> None:
    gone = Inapplicable("not served")
    kinds = ("clusterqueues", "localqueues", "workloads", "cohorts", "resourceflavors", "topologies")
    missing = {f"{kind}.kueue.x-k8s.io": gone for kind in (*kinds, "admissionchecks")}
    found = judged(World(), missing=missing)
    assert {each.verdict for each in found.judgements} == {Verdict.NOT_APPLICABLE}


def test_old_releases_have_no_cohorts() -> None:
    found = judged(healthy(), missing={"cohorts.kueue.x-k8s.io": Inapplicable("not served")})
    assert found.failing == set()
    assert found.of("existing-flavors").verdict is Verdict.PASS


def with_journals(*journals: Change, **settings: Any) -> tuple[Verdict, str]:
    world = healthy()
    for each in journals:
        each(world)
    found = judged(world, FlavorImpactPolicy(drill_days=30), **settings).of("drilled-loss")
    return found.verdict, found.reason


def test_the_drill_is_proven_by_its_journal() -> None:
    assert with_journals(journal("succeeded", days=29)) == (Verdict.PASS, "")
    assert with_journals(journal("reverted", verified=True))[0] is Verdict.PASS
    ended_otherwise = (
        journal("succeeded", days=9, run="a"),
        journal("refused", run="b"),
        journal("", run="c"),
    )
    assert with_journals(*ended_otherwise)[0] is Verdict.PASS


@pytest.mark.parametrize(
    ("journals", "says"),
    [
        ([], "no drill is on record; gpuctl apply flavor-drill"),
        (
            [journal("succeeded", days=31)],
            "last drilled 31d ago (run run-7), not within 30 days; gpuctl apply",
        ),
        ([journal("refused")], "the last drill (run run-7, 3d ago) was refused; gpuctl apply"),
        ([journal("reverted")], "was reverted; gpuctl apply"),
        ([journal("cancelled")], "was cancelled (`gpuctl undo run-7` cleans up); gpuctl apply"),
        ([journal("", days=1)], "(run run-7, 1d ago) is not over (`gpuctl undo run-7` cleans up)"),
    ],
)
def test_what_is_not_proven_says_why_and_how(journals: list[Change], says: str) -> None:
    verdict, reason = with_journals(*journals)
    assert verdict is Verdict.NOT_PROVEN
    assert says in reason


def test_the_permission_that_would_prove_it_is_named() -> None:
    verdict, reason = with_journals(journal(), missing={"configmaps": FORBIDDEN})
    assert verdict is Verdict.NOT_PROVEN
    assert "forbidden" in reason


@pytest.mark.parametrize("text", ["", "{", "[]", '{"id": 7}', '{"id": "x", "finishedAt": "yesterday"}'])
def test_a_journal_that_cannot_be_read_is_unknown(text: str) -> None:
    verdict, reason = with_journals(journal(text=text))
    assert verdict is Verdict.UNKNOWN
    assert "ConfigMap gpuctl-system/run-7" in reason


def test_an_old_damaged_journal_does_not_hide_a_new_one() -> None:
    damaged = journal(text="{", run="old", days=20)
    assert with_journals(damaged, journal("succeeded", days=1))[0] is Verdict.PASS


def test_other_records_of_gpuctl_are_passed_over() -> None:
    world = healthy()
    item = journal("failed")(world)
    item["metadata"]["labels"]["gpuctl.dev/runbook"] = "kueue-restart"  # type: ignore[index]
    assert judged(world).of("drilled-loss").verdict is Verdict.NOT_PROVEN


def learned(world: World, **reader: Any) -> dict[str, dict[str, object]]:
    found = judged(world, **reader).learned
    assert isinstance(found, Known)
    return {ref.name: dict(facts) for ref, facts in found.value.known()}


def test_what_is_learned_of_a_flavor() -> None:
    world = healthy()
    world.drop("LocalQueue")
    world.local_queue()
    world.local_queue("idle", "team-b")
    world.queue("borrower", {"other": {"cpu": "1"}}, cohort="pool")
    world.one("ClusterQueue", "vision")["spec"]["cohortName"] = "pool"
    not_ready(world)
    found = learned(world)
    assert set(found) == {"h100", "other"}
    assert found["other"]["exists"] is False
    assert found["other"]["deletion"] == "it does not exist"
    told = found["h100"]
    assert told["clusterQueues"] == told["withoutSecondFlavor"] == ["vision"]
    assert (told["admitted"], told["waiting"], told["gpusInUse"]) == (8, 3, "8")
    assert (told["nodes"], told["usableNodes"]) == (1, 0)
    assert told["lessToBorrowFor"] == ["borrower"]
    assert [each["namespace"] for each in told["loss"]] == ["team-a", "team-b"]  # type: ignore[attr-defined]
    assert "that can't be undone" in str(told["deletion"])


def test_what_could_not_be_read_is_null() -> None:
    told = learned(healthy(), missing={"workloads.kueue.x-k8s.io": FORBIDDEN, "nodes": FORBIDDEN})["h100"]
    assert told["clusterQueues"] == ["vision"]
    assert {told[name] for name in ("admitted", "waiting", "gpusInUse", "nodes", "loss")} == {None}


def test_a_workload_whose_queue_dropped_the_flavor_still_runs_on_it() -> None:
    world = healthy()
    world.flavor("old")
    world.admitted("late", 2, flavor="old", with_pod=False)
    told = learned(world)["old"]
    assert (told["clusterQueues"], told["admitted"], told["gpusInUse"]) == ([], 1, "2")
    assert "no longer refers" in str(told["loss"])
    assert told["deletion"] == "it would go at once"


def test_nodes_may_come_on_demand_where_admission_checks_could_not_be_read() -> None:
    world = healthy()
    not_ready(world)
    world.one("ClusterQueue", "vision")["spec"]["admissionChecksStrategy"] = {
        "admissionChecks": [{"name": "prov"}]
    }
    blind = {"admissionchecks.kueue.x-k8s.io": FORBIDDEN}
    assert judged(world, missing=blind).of("flavors-with-nodes").verdict is Verdict.UNKNOWN
    assert "RFI020" in judged(world).codes


def test_devices_that_are_claimed_are_not_missed_on_nodes() -> None:
    world = healthy()
    world.one("Node", "gpu-1")["status"]["allocatable"][GPU] = "0"
    assert "RFI020" in judged(with_manager(copy.deepcopy(world))).failing
    assert judged(with_manager(world, settings=CLAIMED)).of("flavors-with-nodes").verdict is Verdict.UNKNOWN


def test_an_unread_cohort_may_promise_what_no_queue_does() -> None:
    world = healthy()
    world.flavor("spare")
    blind = judged(world, missing={"cohorts.kueue.x-k8s.io": FORBIDDEN})
    assert blind.of("protected-flavors").verdict is Verdict.UNKNOWN
