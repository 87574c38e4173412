"""Every finding, and beside each the same cluster slightly changed, in which it is silent."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from gpuctl.audit.finding import Severity
from gpuctl.audit.judge import Verdict
from tests.builders.queues import GPU, NEW, OLD, World, healthy
from tests.checks.flavor_impact.worlds import (
    Change,
    annotated,
    both,
    canary,
    deleted,
    finalizers,
    journal,
    limit,
    node,
    not_ready,
    nothing,
    queue_of_drill,
    spec,
    taint,
    tolerating,
)
from tests.checks.judging import judged_flavors as judged


@dataclass(frozen=True)
class Case:
    """A fault in a healthy cluster, its code, words of its message, and the change that silences it."""

    code: str
    fault: Change
    words: str
    twin: Change
    severity: Severity = Severity.WARNING


def second_flavor(world: World, **more: object) -> None:
    world.flavor("spare", **more)


def unused_and_deleted(world: World) -> None:
    second_flavor(world)
    deleted("spare")(world)


def in_cohort_only(world: World) -> None:
    second_flavor(world)
    world.node("gpu-2", flavor="spare")
    world.cohort("pool", quota={"spare": {GPU: "4"}})


def in_cohort_and_queue(world: World) -> None:
    in_cohort_only(world)
    world.queue("borrower", {"spare": {GPU: "0"}}, cohort="pool")


def missing_in_cohort(world: World) -> None:
    world.cohort("pool", quota={"nowhere": {GPU: "4"}})


def beside(labels: dict[str, str]) -> Change:
    """A second flavor for the same resource."""

    def change(world: World) -> None:
        second_flavor(world, nodeLabels=labels)
        world.node("gpu-2", flavor="spare")
        world.queue("research", {"spare": {GPU: "8"}})

    return change


def others_finalizer(world: World) -> None:
    unused_and_deleted(world)
    finalizers("example.com/backup", of="spare")(world)


def manifest(world: World) -> None:
    """The queue as it is written, before the API server has seen it."""
    world.one("ClusterQueue", "vision")["metadata"].pop("creationTimestamp")


def by_check(controller: str) -> Change:
    """The queue's Workloads go through an AdmissionCheck of this controller."""

    def change(world: World) -> None:
        check = world._kueue("AdmissionCheck", "c", spec={"controllerName": f"kueue.x-k8s.io/{controller}"})
        check["status"] = {"conditions": []}
        rules = {"admissionChecks": [{"name": "c"}]}
        world.one("ClusterQueue", "vision")["spec"]["admissionChecksStrategy"] = rules

    return change


by_provisioning = by_check("provisioning-request")
STOOD_STILL = {"stopped": {"outcome": "failed", "why": "the queue stood still"}}
CASES = {
    "deleted while a queue refers to it": Case(
        "RFI001",
        deleted(),
        "deleted 3h ago, and ClusterQueue vision refers to it",
        deleted(seconds=59),
    ),
    "deleted, and nothing refers to it": Case(
        "RFI002",
        unused_and_deleted,
        "Kueue's manager, or its webhook vresourceflavor.kb.io",
        second_flavor,
        Severity.ERROR,
    ),
    "deleted, and only a Cohort refers to it": Case(
        "RFI002",
        both(in_cohort_only, deleted("spare")),
        "no ClusterQueue refers to it, and it stays",
        both(in_cohort_and_queue, deleted("spare", seconds=10)),
        Severity.ERROR,
    ),
    "deleted, and kept by others": Case(
        "RFI002",
        others_finalizer,
        "finalizers of others keep it: example.com/backup",
        second_flavor,
    ),
    "deleted a moment ago": Case(
        "RFI003",
        deleted(seconds=20),
        "deleted 20s ago: ClusterQueue vision refers to it",
        nothing,
        Severity.INFO,
    ),
    "missing": Case(
        "RFI010",
        lambda world: world.drop("ResourceFlavor"),
        "ClusterQueue vision refers to it and admits nothing, not even by other flavors",
        nothing,
        Severity.ERROR,
    ),
    "missing for a Cohort": Case(
        "RFI010",
        missing_in_cohort,
        "Cohort pool promises quota of it that nobody can use",
        in_cohort_and_queue,
    ),
    "protected by nothing": Case(
        "RFI011",
        in_cohort_only,
        "Only Cohort pool promises quota of ResourceFlavor spare",
        in_cohort_and_queue,
    ),
    "without finalizer": Case(
        "RFI012",
        finalizers(),
        "lacks the finalizer kueue.x-k8s.io/resource-in-use",
        both(
            finalizers(),
            lambda world: world.one("ResourceFlavor", "h100")["metadata"].pop("creationTimestamp"),
        ),
    ),
    "labels of no node": Case(
        "RFI020",
        spec("ResourceFlavor", "h100", nodeLabels={"gpu": "h200"}),
        "can't run with nvidia.com/gpu: no node has its labels (gpu=h200)",
        both(spec("ResourceFlavor", "h100", nodeLabels={"gpu": "h200"}), by_provisioning),
    ),
    "a node that is not Ready": Case(
        "RFI020",
        not_ready,
        "of its 1 node 1 is not Ready",
        both(not_ready, lambda world: world.node("gpu-2")),
    ),
    "a node with a taint": Case(
        "RFI020",
        taint("dedicated"),
        "1 is tainted dedicated=x:NoSchedule",
        both(taint("dedicated"), tolerating("dedicated")),
    ),
    "a taint that the flavor does not tolerate": Case(
        "RFI020",
        taint("dedicated", "NoExecute"),
        "1 is tainted dedicated=x:NoExecute",
        both(
            taint("dedicated"),
            spec("ResourceFlavor", "h100", tolerations=[{"key": "dedicated", "operator": "Exists"}]),
        ),
    ),
    "a taint that is not the resource's own": Case(
        "RFI020", taint("nvidia.com/mig-1g.10gb"), "1 is tainted nvidia.com/mig-1g.10gb", taint(GPU)
    ),
    "a node without the resource": Case(
        "RFI020",
        lambda world: world.one("Node", "gpu-1")["status"]["allocatable"].update({GPU: "0"}),
        "1 offers no nvidia.com/gpu",
        nothing,
    ),
    "a cordoned node": Case(
        "RFI020", node(unschedulable=True), "1 is cordoned", node(unschedulable=False), Severity.INFO
    ),
    "shared nodes": Case(
        "RFI021",
        beside({"gpu": "h100"}),
        "ResourceFlavors h100, spare give out nvidia.com/gpu of the same nodes",
        beside({"gpu": "spare"}),
        Severity.INFO,
    ),
    "an annotation on a flavor": Case(
        "RFI030",
        annotated("ResourceFlavor", "h100", "kueue.x-k8s.io/reclaimable"),
        "ResourceFlavor h100 has the annotation kueue.x-k8s.io/reclaimable",
        annotated("ResourceFlavor", "h100", "example.com/owner"),
        Severity.INFO,
    ),
    "an annotation on a queue": Case(
        "RFI030",
        annotated("ClusterQueue", "vision", "kueue.x-k8s.io/requests"),
        "requests are taken from the pod template's containers",
        annotated("ClusterQueue", "vision", "kueue.x-k8s.io/owner"),
        Severity.INFO,
    ),
    "borrowing from nobody": Case(
        "RFI031",
        both(limit("borrowingLimit"), manifest),
        "Kueue refuses ClusterQueue vision as it is written: borrowingLimit of nvidia.com/gpu means nothing",
        both(limit("borrowingLimit"), spec("ClusterQueue", "vision", cohortName="pool")),
        Severity.ERROR,
    ),
    "borrowing from nobody, in a cluster": Case(
        "RFI031",
        limit("lendingLimit"),
        "Kueue will refuse the next edit of ClusterQueue vision as it is written: lendingLimit",
        spec("ClusterQueue", "vision", cohortName="pool"),
    ),
    "resources out of order": Case(
        "RFI031",
        lambda world: world.one("ClusterQueue", "vision")["spec"]["resourceGroups"][0].update(
            coveredResources=["cpu", GPU]
        ),
        "not those of coveredResources, in the same order",
        nothing,
    ),
    "a group without flavors": Case(
        "RFI031",
        lambda world: world.one("ClusterQueue", "vision")["spec"]["resourceGroups"].append(
            {"coveredResources": ["cpu"], "flavors": []}
        ),
        "a resource group has no flavors",
        nothing,
    ),
    "a failed drill": Case(
        "RFI040", journal("failed"), "(run run-7, 3d ago) failed", journal("succeeded"), Severity.ERROR
    ),
    "a drill that timed out": Case(
        "RFI040",
        both(journal("succeeded", run="older", days=9), journal("timed-out")),
        "timed out",
        both(journal("timed-out", run="older", days=9), journal("succeeded")),
        Severity.ERROR,
    ),
    "a failed drill that was cleaned up": Case(
        "RFI040",
        journal("reverted", result=STOOD_STILL),
        "(run run-7, 3d ago) failed",
        journal("reverted", result={}),
        Severity.ERROR,
    ),
    "a failed drill whose resumption was cut off": Case(
        "RFI040",
        both(journal("succeeded", run="older", days=9), journal("", result=STOOD_STILL)),
        "(run run-7, 3d ago) failed",
        journal("succeeded"),
        Severity.ERROR,
    ),
    "a failed drill whose undo was interrupted": Case(
        "RFI040",
        journal("cancelled", result=STOOD_STILL),
        "(run run-7, 3d ago) failed",
        journal("cancelled", result={}),
        Severity.ERROR,
    ),
    "what a drill showed": Case(
        "RFI042",
        journal(result={"secondsToRecover": 0.9, "w2Admitted": True, "differences": ["a", "b"]}),
        "drilled 3d ago (run run-7): secondsToRecover 0.9, differences a and b",
        journal("reverted", result={"secondsToRecover": 0.9}),
        Severity.INFO,
    ),
    "a queue left by a drill": Case(
        "RFI041",
        queue_of_drill(hours=2),
        "ClusterQueue gpuctl-drill-7 was made 2h ago",
        queue_of_drill(minutes=5),
    ),
    "left by a drill": Case(
        "RFI041", canary(hours=2), "was made 2h ago by the drill run-7", canary(minutes=5)
    ),
}


@pytest.mark.parametrize("version", [OLD, NEW])
@pytest.mark.parametrize("name", CASES)
def test_a_fault_is_found_alone(name: str, version: str) -> None:
    case = CASES[name]
    world = healthy(version)
    case.fault(world)
    found = judged(world)
    finding = found.one(case.code)
    assert case.words in finding.message
    assert finding.weight is case.severity
    assert finding.evidence
    assert finding.look
    assert "risk: " in finding.remedy
    assert found.codes == [case.code], [each.message for each in found.findings]


@pytest.mark.parametrize("name", CASES)
def test_the_same_slightly_changed_is_silent(name: str) -> None:
    case = CASES[name]
    world = healthy()
    case.twin(world)
    found = judged(world)
    assert case.code not in found.codes, [each.message for each in found.findings]
    assert found.failing == set(), [each.message for each in found.findings]


@pytest.mark.parametrize("version", [OLD, NEW])
def test_a_healthy_cluster_passes_and_its_drill_is_not_proven(version: str) -> None:
    found = judged(healthy(version))
    assert found.findings == ()
    assert found.verdict is Verdict.PASS
    others = {each for name, each in found.by_assertion.items() if name != "drilled-loss"}
    assert others == {Verdict.PASS}
    assert found.of("drilled-loss").verdict is Verdict.NOT_PROVEN


@pytest.mark.parametrize("controller", ["provisioning-request", "multikueue"])
def test_nodes_that_come_or_are_elsewhere_are_not_missed(controller: str) -> None:
    world = healthy()
    world.drop("Node")
    by_check(controller)(world)
    found = judged(world)
    assert found.codes == []
    assert found.of("flavors-with-nodes").verdict is Verdict.NOT_APPLICABLE


def test_a_drill_under_way_alarms_nobody() -> None:
    world = healthy()
    both(canary(minutes=5), queue_of_drill(minutes=5))(world)
    assert judged(world).codes == []
    world.drop("ResourceFlavor", "gpuctl-drill-7")
    assert judged(world).codes == []


def test_every_code_has_a_case() -> None:
    from gpuctl.checks.flavor_impact import codes

    assert {case.code for case in CASES.values()} == {code.id for code in codes.ALL}


def test_who_is_concerned_is_told() -> None:
    world = healthy()
    deleted()(world)
    assert (
        judged(world)
        .one("RFI001")
        .message.endswith("LocalQueues concerned: team-a/main (8 run with 8 nvidia.com/gpu, 3 wait)")
    )


def test_a_failed_drill_says_why_and_how_to_clean_up() -> None:
    world = healthy()
    journal("failed")(world)
    found = judged(world).one("RFI040")
    assert found.evidence[1].observed == "not within 60 s: the flavor stays"
    assert "clean up (`gpuctl undo run-7`)" in found.remedy
    assert found.runbook == "flavor-drill"


def test_what_one_missing_flavor_causes_shares_its_cause_with_the_other_check() -> None:
    from tests.checks.judging import judged_queues

    world = healthy()
    world.drop("ResourceFlavor")
    causes = {judged(world).one("RFI010").cause, judged_queues(world).one("CQG011").cause}
    assert causes == {"ResourceFlavor h100 does not exist"}
    world = healthy()
    world.drop("Node")
    causes = {judged(world).one("RFI020").cause, judged_queues(world).one("CQG071").cause}
    assert causes == {"no node behind ResourceFlavor h100"}
