"""Every finding, and beside each the same cluster slightly changed, in which it is silent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

import pytest

from gpuctl.audit.finding import Severity
from gpuctl.audit.judge import Verdict
from tests.builders.queues import (
    GPU,
    NEW,
    OLD,
    World,
    ago,
    condition,
    healthy,
    pods,
    stamp,
)
from tests.checks.judging import judged_queues as judged
from tests.memory import A_MOMENT

LONG = timedelta(hours=2)
Change = Callable[[World], object]


@dataclass(frozen=True)
class Case:
    """A fault, its code and words of its message, and the change that silences it."""

    code: str
    fault: Change
    words: str
    twin: Change
    base: Callable[[str], World] = healthy


def idle(version: str = NEW) -> World:
    """Eight GPUs, one queue, nobody there."""
    world = World(version)
    world.namespace("team-a")
    world.flavor()
    world.node()
    world.queue()
    world.local_queue()
    return world


def set_spec(kind: str, name: str, key: str, value: object) -> Change:
    return lambda world: world.one(kind, name)["spec"].__setitem__(key, value)


def drop(kind: str, name: str = "") -> Change:
    return lambda world: world.drop(kind, name)


def both(*changes: Change) -> Change:
    return lambda world: [change(world) for change in changes]


def set_quota(queue: str, key: str, value: str | None) -> Change:
    def change(world: World) -> None:
        entry = world.one("ClusterQueue", queue)["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]
        if value is None:
            entry.pop(key, None)
        else:
            entry[key] = value

    return change


def wait(name: str = "late", gpus: int = 1, waits: timedelta = LONG, **more: object) -> Change:
    return lambda world: world.workload(name, gpus, waits=waits, **more)  # type: ignore[arg-type]


def inactive(reason: str, message: str = "") -> Change:
    def change(world: World) -> None:
        world.one("ClusterQueue", "vision")["status"]["conditions"] = [
            condition("Active", "False", reason, message)
        ]

    return change


def cohort_of_two(
    used: str = "8", lending: str | None = None, reclaim: str = "Never"
) -> Callable[[str], World]:
    """vision has 8 and uses none; research has 0 and borrows."""

    def make(version: str = NEW) -> World:
        world = World(version)
        world.namespace("team-a")
        world.flavor()
        world.node()
        own = {"nominalQuota": "8"} if lending is None else {"nominalQuota": "8", "lendingLimit": lending}
        world.queue("vision", {"h100": {GPU: own}}, cohort="all", preemption={"reclaimWithinCohort": reclaim})
        world.queue("research", {"h100": {GPU: "0"}}, cohort="all", used={"h100": {GPU: used}})
        world.local_queue()
        world.local_queue("research", to="research")
        for number in range(int(used)):
            world.admitted(f"r-{number}", to="research")
        return world

    return make


def evicted(world: World) -> None:
    item = world.admitted("zombie", 2, with_pod=False, since=LONG)
    item["status"]["conditions"] += [condition("Evicted", "True", "PodsReadyTimeout", at=ago(hours=1))]
    item["status"]["conditions"][1]["status"] = "True"
    item["status"]["requeueState"] = {"count": 1, "requeueAt": stamp(ago(minutes=50))}


def unplaced(amount: str, message: str = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.") -> Change:
    """An admitted Workload whose pod finds no node."""

    def change(world: World) -> None:
        world.admitted("unplaced", amount, with_pod=False)
        pod = world.pod("unplaced-x", {GPU: amount}, owner="unplaced", node="", phase="Pending")
        pod["status"]["conditions"] = [condition("PodScheduled", "False", "Unschedulable", message)]

    return change


def two_half_full_nodes(version: str = NEW) -> World:
    world = World(version)
    world.namespace("team-a")
    world.flavor()
    world.node("gpu-1", 4)
    world.node("gpu-2", 4)
    world.queue()
    world.local_queue()
    world.admitted("one", 2)
    world.admitted("two", 2, with_pod=False)
    world.pod("two-x", {GPU: "2"}, owner="two", node="gpu-2")
    return world


def labelled_by_wish(world: World) -> None:
    world.one("ResourceFlavor", "h100")["spec"]["nodeLabels"] = {"nvidia.com/mig.config": "all-1g.10gb"}
    world.one("Node", "gpu-1")["metadata"]["labels"]["nvidia.com/mig.config"] = "all-1g.10gb"


def labelled_by_product(world: World) -> None:
    world.one("ResourceFlavor", "h100")["spec"]["nodeLabels"] = {"nvidia.com/gpu.product": "H100"}
    world.one("Node", "gpu-1")["metadata"]["labels"]["nvidia.com/gpu.product"] = "H100"


def strict(world: World) -> None:
    """The first in line wants 4 of the 2 that are left; the others 1."""
    set_spec("ClusterQueue", "vision", "queueingStrategy", "StrictFIFO")(world)
    world.one("ClusterQueue", "vision")["status"]["flavorsReservation"] = [
        {"name": "h100", "resources": [{"name": GPU, "total": "6"}]}
    ]
    world.workload("big", 4, waits=timedelta(hours=3))
    world.workload("small", 1, waits=LONG)


def deactivated(by_kueue: bool = True) -> Change:
    def change(world: World) -> None:
        item = world.workload("spent", active=False)
        if by_kueue:
            reason = "DeactivatedDueToRequeuingLimitExceeded"
            item["status"]["conditions"] = [condition("Evicted", "True", reason)]

    return change


def checked(state: str) -> Change:
    def change(world: World) -> None:
        item = world.admitted("checked", since=LONG, with_pod=False)
        item["status"]["conditions"].pop()
        item["status"]["admissionChecks"] = [{"name": "prov", "state": state, "message": "no capacity"}]
        if state == "Ready":
            item["status"]["conditions"].append(condition("Admitted", "True", "Admitted"))
            world.pod("checked-x", {GPU: "1"}, owner="checked")

    return change


def returned(times: int) -> Change:
    def change(world: World) -> None:
        item = world.workload("again")
        item["status"]["conditions"] = [condition("Evicted", "True", "PodsReadyTimeout", at=ago(minutes=3))]
        item["status"]["requeueState"] = {
            "count": times,
            "requeueAt": stamp(A_MOMENT + timedelta(minutes=2)),
        }

    return change


def annotated(key: str) -> Change:
    def change(world: World) -> None:
        world.one("Job", "busy-1")["metadata"]["annotations"][f"kueue.x-k8s.io/{key}"] = "main"

    return change


def cycle(world: World) -> None:
    spec = world.one("ClusterQueue", "vision")["spec"]
    spec["cohortName" if world.version == NEW else "cohort"] = "a"
    world.cohort("a", "b")
    world.cohort("b", "a")


def in_cohort_without_cycle(world: World) -> None:
    world.one("Cohort", "b")["spec"]["parentName"] = ""


def check_of_queue(active: str | None) -> Change:
    def change(world: World) -> None:
        world.one("ClusterQueue", "vision")["spec"]["admissionChecksStrategy"] = {
            "admissionChecks": [{"name": "prov"}]
        }
        if active:
            item = world._kueue("AdmissionCheck", "prov", spec={"controllerName": "x"})
            item["status"] = {"conditions": [condition("Active", active, "x")]}

    return change


def lower_priority_holds(version: str = NEW) -> World:
    world = healthy(version)
    world.workload("urgent", 1, waits=LONG, priority=1000)
    return world


def of_kueue_says(message: str) -> Change:
    return lambda world: world.workload("told", 1, waits=LONG, message=message)


CASES = {
    "the oldest waits too long": Case(
        "CQG001", wait(), "the oldest for 2h; the last admission", wait(waits=timedelta(minutes=59))
    ),
    "a missing flavor": Case(
        "CQG011",
        drop("ResourceFlavor"),
        "refers to ResourceFlavor h100, which does not exist",
        lambda _: None,
    ),
    "a missing check": Case(
        "CQG012", check_of_queue(None), "AdmissionCheck prov", check_of_queue("True"), idle
    ),
    "an inactive check": Case("CQG013", check_of_queue("False"), "not active", check_of_queue("True"), idle),
    "a missing topology": Case(
        "CQG014",
        set_spec("ResourceFlavor", "h100", "topologyName", "racks"),
        "Topology racks",
        both(
            set_spec("ResourceFlavor", "h100", "topologyName", "racks"),
            lambda world: world._kueue("Topology", "racks", spec={"levels": []}),
        ),
    ),
    "a cycle of cohorts": Case("CQG015", cycle, "a → b → a", both(cycle, in_cohort_without_cycle)),
    "a queue that is deleted": Case(
        "CQG016",
        lambda world: world.one("ClusterQueue", "vision")["metadata"].update(
            deletionTimestamp=stamp(ago(hours=1))
        ),
        "is being deleted",
        lambda _: None,
    ),
    "another reason": Case(
        "CQG010",
        inactive("MultipleMultiKueueAdmissionChecks", "Cannot use multiple"),
        "Cannot use multiple",
        lambda _: None,
    ),
    "a request that never fits": Case(
        "CQG020",
        wait(gpus=16),
        "asks for 16 nvidia.com/gpu, and at most 8",
        wait(gpus=8, waits=timedelta(minutes=5)),
        idle,
    ),
    "pod sets that exceed a flavor together": Case(
        "CQG020",
        lambda world: world.workload(
            "two", pod_sets=[pods({GPU: "8"}, name="head"), pods({GPU: "8"}, name="tail")]
        ),
        "asks for 16 nvidia.com/gpu",
        lambda world: world.workload(
            "two", pod_sets=[pods({GPU: "4"}, name="head"), pods({GPU: "4"}, name="tail")]
        ),
        idle,
    ),
    "a borrowing limit": Case(
        "CQG020",
        both(set_quota("research", "borrowingLimit", "4"), wait("r", 6, queue="research")),
        "at most 4",
        both(
            set_quota("research", "borrowingLimit", "4"),
            wait("r", 4, queue="research", waits=timedelta(minutes=5)),
        ),
        cohort_of_two(used="0"),
    ),
    "an uncovered resource": Case(
        "CQG021",
        lambda world: world.workload("disk", pod_sets=[pods({GPU: "1", "ephemeral-storage": "1Gi"})]),
        "1Gi ephemeral-storage, which the queue does not cover",
        lambda world: world.workload("disk", pod_sets=[pods({GPU: "1"})]),
    ),
    "a taint": Case(
        "CQG022",
        both(
            set_spec("ResourceFlavor", "h100", "nodeTaints", [{"key": "gpu", "effect": "NoSchedule"}]), wait()
        ),
        "a taint is not tolerated gpu:NoSchedule",
        both(
            set_spec("ResourceFlavor", "h100", "nodeTaints", [{"key": "gpu", "effect": "NoSchedule"}]),
            set_spec("ResourceFlavor", "h100", "tolerations", [{"key": "gpu", "operator": "Exists"}]),
        ),
        idle,
    ),
    "a selector": Case(
        "CQG022",
        lambda world: world.workload("a100", pod_sets=[pods({GPU: "1"}, nodeSelector={"gpu": "a100"})]),
        "node selector or affinity differ",
        lambda world: world.workload("other", pod_sets=[pods({GPU: "1"}, nodeSelector={"zone": "x"})]),
    ),
    "a LimitRange": Case(
        "CQG023",
        of_kueue_says("resources didn't satisfy LimitRange constraints: …"),
        "LimitRange",
        lambda _: None,
        idle,
    ),
    "a claim": Case(
        "CQG024",
        of_kueue_says("KueueDRAIntegration feature does not support use of resource claims"),
        "resource claims",
        lambda _: None,
        idle,
    ),
    "a peer that lends nothing": Case(
        "CQG025",
        wait("r", 4, queue="research"),
        "ClusterQueue vision of its cohort is inactive or lends nothing",
        both(
            set_quota("vision", "lendingLimit", None),
            wait("r", 4, queue="research", waits=timedelta(minutes=5)),
        ),
        cohort_of_two(used="0", lending="0"),
    ),
    "a peer that is inactive": Case(
        "CQG025",
        both(
            inactive("Stopped"),
            set_spec("ClusterQueue", "vision", "stopPolicy", "Hold"),
            wait("r", 4, queue="research"),
        ),
        "ClusterQueue vision of its cohort is inactive",
        wait("r", 4, queue="research", waits=timedelta(minutes=5)),
        cohort_of_two(used="0"),
    ),
    "no topology has room": Case(
        "CQG026",
        of_kueue_says('topology "racks" allows to fit only 1 out of 2 pod(s)'),
        "allows to fit only 1",
        lambda world: world.workload("told", waits=timedelta(minutes=5), message='topology "racks" allows'),
        idle,
    ),
    "saturated": Case(
        "CQG030", wait(), "0 are free in flavor h100; all else is in use", wait(waits=timedelta(minutes=59))
    ),
    "an exhausted cohort": Case(
        "CQG031",
        wait("r", 4, queue="research"),
        "nothing is left in Cohort all",
        wait("r", 4, queue="research", waits=timedelta(minutes=5)),
        cohort_of_two(reclaim="Any"),
    ),
    "borrowed away": Case(
        "CQG032",
        wait("own", 4),
        "ClusterQueue research has borrowed it",
        wait("own", 4, waits=timedelta(minutes=5)),
        cohort_of_two(),
    ),
    "lower priorities": Case(
        "CQG033",
        lambda _: None,
        "Workloads of lower priority hold the rest",
        set_spec("Workload", "urgent", "priority", 0),
        lower_priority_holds,
    ),
    "behind the first in line": Case(
        "CQG034",
        strict,
        "Workload team-a/big is first in line",
        both(strict, set_spec("ClusterQueue", "vision", "queueingStrategy", "BestEffortFIFO")),
        idle,
    ),
    "pods are waited for": Case(
        "CQG035",
        both(
            lambda world: world.admitted("starting"),
            of_kueue_says("waiting for all admitted workloads to be in PodsReady condition"),
        ),
        "blockAdmission), and those of Workload team-a/starting are not",
        lambda _: None,
        idle,
    ),
    "not looked at": Case("CQG036", wait(), "Kueue has not said anything", lambda _: None, idle),
    "an unknown text": Case(
        "CQG037",
        of_kueue_says("the moon is in the wrong phase"),
        "unclassified, Kueue says: the moon is in the wrong phase",
        lambda _: None,
        idle,
    ),
    "no LocalQueue": Case(
        "CQG040",
        wait(queue="typo"),
        "LocalQueue typo, which does not exist",
        wait(waits=timedelta(minutes=5)),
        idle,
    ),
    "no ClusterQueue": Case(
        "CQG041",
        both(lambda world: world.local_queue("astray", to="typo"), wait(queue="astray")),
        "leads to ClusterQueue typo",
        lambda world: world.local_queue("astray"),
        idle,
    ),
    "a namespace that is not selected": Case(
        "CQG042",
        both(set_spec("ClusterQueue", "vision", "namespaceSelector", {"matchLabels": {"team": "b"}}), wait()),
        "does not select team-a",
        both(
            set_spec("ClusterQueue", "vision", "namespaceSelector", {"matchLabels": {"team": "b"}}),
            lambda world: world.one("Namespace", "team-a")["metadata"].update(labels={"team": "b"}),
        ),
        idle,
    ),
    "no selector at all": Case(
        "CQG042",
        both(set_spec("ClusterQueue", "vision", "namespaceSelector", None), wait()),
        "team-a",
        lambda _: None,
        idle,
    ),
    "a Job without Workload": Case(
        "CQG043",
        lambda world: world.job("lost"),
        "suspended for LocalQueue main for 1h, and has no Workload",
        lambda world: world.job("lost", made=timedelta(seconds=5)),
    ),
    "a queue in an annotation": Case(
        "CQG044",
        lambda world: world.job("lost", queue="", suspend=False)["metadata"]["annotations"].update(
            {"kueue.x-k8s.io/queue-name": "main"}
        ),
        "in an annotation",
        lambda world: world.job("lost", queue="", suspend=False),
    ),
    "an annotation that nobody reads": Case(
        "CQG045", annotated("requests"), "kueue.x-k8s.io/requests", annotated("priority-boost")
    ),
    "another annotation that nobody reads": Case(
        "CQG045", annotated("reclaimable"), "kueue.x-k8s.io/reclaimable", lambda _: None
    ),
    "an open check": Case(
        "CQG050",
        checked("Pending"),
        "waits for AdmissionCheck prov, the oldest (team-a/checked) for 2h",
        checked("Ready"),
        idle,
    ),
    "many returns": Case("CQG051", returned(5), "team-a/again for the 5. time", returned(4), idle),
    "deactivated": Case("CQG052", deactivated(), "team-a/spent", deactivated(by_kueue=False)),
    "a leak": Case(
        "CQG060",
        evicted,
        "holds 2 nvidia.com/gpu of ClusterQueue vision for nothing",
        both(evicted, lambda world: world.pod("zombie-x", {GPU: "2"}, owner="zombie")),
        idle,
    ),
    "a Workload that can't be deleted": Case(
        "CQG060",
        both(
            lambda world: world.admitted("stuck", with_pod=False),
            lambda world: world.one("Workload", "stuck")["metadata"].update(
                deletionTimestamp=stamp(ago(minutes=20)), finalizers=["kueue.x-k8s.io/resource-in-use"]
            ),
        ),
        "a finalizer keeps it",
        lambda world: world.admitted("stuck"),
        idle,
    ),
    "an orphan": Case(
        "CQG061",
        both(lambda world: world.admitted("orphan", with_pod=False), drop("Job", "orphan")),
        "does not exist any more",
        lambda world: world.admitted("orphan"),
        idle,
    ),
    "no pods": Case(
        "CQG062",
        lambda world: world.admitted("empty", with_pod=False),
        "it has no pods",
        lambda world: world.admitted("empty", with_pod=False, since=timedelta(minutes=5)),
        idle,
    ),
    "held for long": Case(
        "CQG063",
        both(
            lambda world: world.admitted("long", 8, since=timedelta(hours=30)),
            wait(waits=timedelta(minutes=5)),
        ),
        "without deadline holds 8 nvidia.com/gpu",
        lambda world: world.admitted("long", 8, since=timedelta(hours=30)),
        idle,
    ),
    "held for long within a deadline": Case(
        "CQG063",
        both(
            lambda world: world.admitted("long", 8, since=timedelta(hours=30)),
            wait(waits=timedelta(minutes=5)),
        ),
        "without deadline holds 8 nvidia.com/gpu",
        both(
            lambda world: world.admitted("long", 8, since=timedelta(hours=30)),
            lambda world: world.one("Job", "long")["spec"].update(activeDeadlineSeconds=200000),
            wait(waits=timedelta(minutes=5)),
        ),
        idle,
    ),
    "more quota than there is": Case(
        "CQG070",
        set_quota("vision", "nominalQuota", "12"),
        "4 can be admitted and never run",
        set_quota("vision", "nominalQuota", "8"),
    ),
    "quota of a cohort on top": Case(
        "CQG070",
        lambda world: world.cohort("all", quota={"h100": {GPU: "4"}}),
        "12 nvidia.com/gpu are promised",
        lambda world: world.cohort("all"),
        cohort_of_two(used="0"),
    ),
    "no nodes": Case(
        "CQG071", drop("Node"), "(gpu=h100), of which ClusterQueue vision gives quota:", lambda _: None, idle
    ),
    "no nodes for two queues": Case(
        "CQG071",
        both(drop("Node"), lambda world: world.queue("speech")),
        "of which ClusterQueue vision, ClusterQueue speech give quota:",
        lambda world: [
            world.queue("speech"),
            world.one("Node", "gpu-1")["status"]["allocatable"].update({GPU: "16"}),
        ],
        idle,
    ),
    "no room for pods": Case(
        "CQG072",
        unplaced("16"),
        "asks for 16 nvidia.com/gpu, and 8 are free",
        lambda world: world.admitted("unplaced", 8),
        idle,
    ),
    "fragmented": Case(
        "CQG073",
        unplaced("4"),
        "no single node has 4 free",
        lambda world: world.admitted("unplaced", 2, with_pod=True),
        two_half_full_nodes,
    ),
    "a wish for a label": Case("CQG074", labelled_by_wish, "what is wished for", labelled_by_product),
    "not offered": Case(
        "CQG075",
        lambda world: world.queue("slices", {"h100": {"nvidia.com/mig-1g.10gb": "7"}}),
        "none of its 1 node offers any",
        both(
            lambda world: world.queue("slices", {"h100": {"nvidia.com/mig-1g.10gb": "7"}}),
            lambda world: world.one("Node", "gpu-1")["status"]["allocatable"].update(
                {"nvidia.com/mig-1g.10gb": "7"}
            ),
        ),
    ),
    "promised twice": Case(
        "CQG077",
        lambda world: [
            world.flavor("all", nodeLabels={}),
            world.queue("speech", {"all": {GPU: "4"}}),
        ],
        "ResourceFlavors all, h100 match the same nodes, and together promise 12 nvidia.com/gpu of the 8",
        lambda world: [
            world.flavor("all", nodeLabels={}),
            set_quota("vision", "nominalQuota", "4")(world),
            world.queue("speech", {"all": {GPU: "4"}}),
        ],
    ),
    "taken outside": Case(
        "CQG076",
        lambda world: world.pod("llm", {GPU: "1"}, namespace="serving"),
        "Pods outside of Kueue take 1 nvidia.com/gpu",
        lambda world: world.pod("llm", {GPU: "1"}, namespace="serving", phase="Succeeded"),
    ),
}


@pytest.mark.parametrize("version", [OLD, NEW])
@pytest.mark.parametrize("name", CASES)
def test_found(name: str, version: str) -> None:
    case = CASES[name]
    world = case.base(version)
    case.fault(world)
    found = judged(world).one(case.code)
    assert case.words in found.message
    assert found.evidence
    assert found.look
    assert "risk:" in found.remedy


@pytest.mark.parametrize("name", CASES)
def test_the_twin_is_silent(name: str) -> None:
    case = CASES[name]
    world = case.base(NEW)
    case.twin(world)
    assert case.code not in judged(world).failing


@pytest.mark.parametrize("name", CASES)
def test_both_versions_give_the_same_fingerprints(name: str) -> None:
    found = []
    for version in (OLD, NEW):
        world = CASES[name].base(version)
        CASES[name].fault(world)
        found.append({(each.fingerprint, each.message) for each in judged(world).findings})
    assert found[0] == found[1]


def test_a_stop_on_purpose_is_worth_knowing_and_no_fault() -> None:
    world = healthy()
    world.one("ClusterQueue", "vision")["spec"]["stopPolicy"] = "Hold"
    inactive("Stopped")(world)
    world.workload("late", waits=timedelta(days=2))
    found = judged(world)
    assert found.failing == set()
    assert found.one("CQG017").weight is Severity.INFO


@pytest.mark.parametrize("policy", ["Hold", "HoldAndDrain"])
def test_a_local_queue_that_is_stopped_on_purpose_alarms_nobody(policy: str) -> None:
    world = idle()
    world.one("LocalQueue", "main")["spec"]["stopPolicy"] = policy
    world.workload("late", waits=timedelta(hours=9), message="LocalQueue main is stopped")
    found = judged(world)
    assert found.failing == set()
    assert "1 Workload waits in it" in found.one("CQG017").message


def test_who_waits_behind_a_stopped_local_queue_is_no_first_in_line() -> None:
    world = idle()
    world.one("ClusterQueue", "vision")["spec"]["queueingStrategy"] = "StrictFIFO"
    world.local_queue("closed")
    world.one("LocalQueue", "closed")["spec"]["stopPolicy"] = "Hold"
    world.workload("first", queue="closed", waits=timedelta(hours=9))
    world.workload("late", waits=LONG)
    found = judged(world)
    assert "CQG034" not in found.codes
    assert "team-a/late (2h)" in found.one("CQG036").message


def requeued(name: str, minutes: int | None = None, put_back: str = "") -> Change:
    """Evicted once, to be tried again at a time, and put back into the line or not."""

    def change(world: World) -> None:
        status = world.one("Workload", name)["status"]
        if minutes is not None:
            at = stamp(A_MOMENT + timedelta(minutes=minutes))
            status["requeueState"] = {"count": 1, "requeueAt": at}
        if put_back:
            status["conditions"].append(condition("Requeued", put_back, "Inadmissible", "its claim is gone"))

    return change


IN_LINE = {  # what became of the first, and whether it still holds up those behind it
    "it waits out a backoff": (requeued("big", minutes=2), False),
    "its backoff is over": (requeued("big", minutes=-2), True),
    "it was not put back": (requeued("big", put_back="False"), False),
    "it was put back": (requeued("big", put_back="True"), True),
    "its backoff is over, and it was not put back": (requeued("big", -2, "False"), False),
}


@pytest.mark.parametrize("name", IN_LINE)
def test_only_who_is_in_the_line_holds_it_up(name: str) -> None:
    became, holds_up = IN_LINE[name]
    world = idle()
    both(strict, became)(world)
    found = judged(world)
    assert ("CQG034" in found.codes) is holds_up
    assert ("CQG036" in found.codes) is not holds_up


@pytest.mark.parametrize(("minutes", "first"), [(2, "second"), (-2, "big")])
def test_behind_one_that_backs_off_the_next_is_first(minutes: int, first: str) -> None:
    world = idle()
    both(strict, requeued("big", minutes=minutes))(world)
    world.workload("second", 4, waits=timedelta(hours=2, minutes=30))
    assert f"Workload team-a/{first} is first in line" in judged(world).one("CQG034").message


@pytest.mark.parametrize(("put_back", "code"), [("False", "CQG037"), ("True", "CQG034")])
def test_who_was_not_put_back_is_not_behind_anybody(put_back: str, code: str) -> None:
    world = idle()
    both(strict, requeued("small", put_back=put_back))(world)
    found = judged(world)
    assert {"CQG034", "CQG037"} & found.failing == {code}
    assert ("its claim is gone" in found.one(code).message) is (put_back == "False")


def test_cordoned_nodes_are_worth_knowing() -> None:
    world = healthy()
    world.one("Node", "gpu-1")["spec"]["unschedulable"] = True
    found = judged(world)
    assert found.failing == set()
    assert found.one("CQG078").weight is Severity.INFO


def test_what_the_verdict_on_a_wait_rests_on_is_said_and_since_when() -> None:
    world = idle()
    wait()(world)
    found = judged(world).one("CQG001")
    since = next(each.observed for each in found.evidence if each.observed.startswith("judged by"))
    made = world.one("Workload", "late")["metadata"]["creationTimestamp"]
    assert f"exact since {made};" in since
    assert "proves no rise" in since


def test_a_clock_in_the_future_is_said() -> None:
    world = healthy()
    world.workload("tomorrow", waits=timedelta(hours=-3))
    found = judged(world)
    assert found.failing == set()
    assert "bears a time after" in found.one("CQG004").message


def test_nothing_else_is_found_beside_a_fault() -> None:
    """A fault has its own code, and at most that of the wait."""
    for name, case in CASES.items():
        world = case.base(NEW)
        case.fault(world)
        beside = judged(world).failing - {case.code, "CQG001"}
        allowed = {
            "CQG010": set(),
            "CQG034": {"CQG030"},
            "CQG033": set(),
            "CQG072": {"CQG070"},
            "CQG001": {"CQG030"},
        }.get(case.code, set())
        assert beside <= allowed, (name, beside)


def test_multikueue_runs_jobs_elsewhere() -> None:
    world = idle()
    world.admitted("remote", with_pod=False)
    world.one("Job", "remote")["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue"
    assert judged(world).findings == ()


def checked_by(controller: str, queue: str = "vision", flavors: Sequence[str] = ()) -> Change:
    """The queue's Workloads go through an AdmissionCheck of this controller, in these flavors or in all."""

    def change(world: World) -> None:
        rule = {"name": controller, "onFlavors": list(flavors)}
        world.one("ClusterQueue", queue)["spec"]["admissionChecksStrategy"] = {"admissionChecks": [rule]}
        check = world._kueue(
            "AdmissionCheck", controller, spec={"controllerName": f"kueue.x-k8s.io/{controller}"}
        )
        check["status"] = {"conditions": [condition("Active", "True", "Active")]}

    return change


PROVISIONED, ELSEWHERE, BUDGET = "provisioning-request", "multikueue", "budget"


def nodes_offer(amount: str) -> Change:
    return lambda world: world.one("Node", "gpu-1")["status"]["allocatable"].update({GPU: amount})


def manager_of_multikueue(world: World) -> None:
    """Quota of other clusters' GPUs, in a flavor that stands for every node, of which none has GPUs."""
    set_spec("ResourceFlavor", "h100", "nodeLabels", {})(world)
    world.one("Node", "gpu-1")["status"]["allocatable"].pop(GPU)


def beside(quota: str = "4", cohort: str = "") -> Change:
    """A queue without AdmissionChecks admits in the same flavor."""
    return lambda world: world.queue("speech", {"h100": {GPU: quota}}, cohort=cohort)


def promised_twice(world: World) -> None:
    world.flavor("all", nodeLabels={})
    world.queue("speech", {"all": {GPU: "4"}})


ON_DEMAND = {  # how quota and nodes differ, who brings nodes, who does not, and what is found then
    "no nodes": (drop("Node"), PROVISIONED, BUDGET, "CQG071"),
    "half of the pool is up": (nodes_offer("4"), PROVISIONED, BUDGET, "CQG070"),
    "the GPUs are another cluster's": (manager_of_multikueue, ELSEWHERE, BUDGET, "CQG075"),
    "nodes are cordoned": (
        lambda world: world.one("Node", "gpu-1")["spec"].update(unschedulable=True),
        PROVISIONED,
        BUDGET,
        "CQG078",
    ),
    "nodes are taken": (
        lambda world: world.pod("llm", {GPU: "1"}, namespace="serving"),
        PROVISIONED,
        BUDGET,
        "CQG076",
    ),
    "flavors overlap": (promised_twice, PROVISIONED, BUDGET, "CQG077"),
}


@pytest.mark.parametrize("name", ON_DEMAND)
def test_nodes_that_are_made_on_demand_are_not_missed(name: str) -> None:
    differs, brings, does_not, code = ON_DEMAND[name]
    world, twin = idle(), idle()
    both(differs, checked_by(brings))(world)
    both(differs, checked_by(does_not))(twin)
    assert judged(world).findings == ()
    assert judged(twin).codes == [code]


STATIC = {  # who else admits in a flavor with half of its nodes; whether what is missing is missed
    "nobody": (lambda _: None, False),
    "a queue without checks": (beside(), True),
    "a queue without quota": (beside(quota="0"), False),
    "a queue that may borrow": (beside(quota="0", cohort="all"), True),
    "another queue on demand": (both(beside(), checked_by(ELSEWHERE, "speech")), False),
}


@pytest.mark.parametrize("name", STATIC)
def test_every_queue_of_a_flavor_must_have_nodes_brought(name: str) -> None:
    others, missed = STATIC[name]
    world = idle()
    both(nodes_offer("4"), checked_by(PROVISIONED), others)(world)
    assert ("CQG070" in judged(world).failing) is missed


@pytest.mark.parametrize(("flavors", "missed"), [(["spot"], True), (["spot", "h100"], False)])
def test_a_check_of_other_flavors_brings_no_nodes(flavors: list[str], missed: bool) -> None:
    world = idle()
    both(nodes_offer("4"), checked_by(PROVISIONED, flavors=flavors))(world)
    assert ("CQG070" in judged(world).failing) is missed


def quota_of(resource: str, amount: str) -> World:
    """Quota of another resource, in the same flavor."""
    world = idle()
    world.queue("others", {"h100": {resource: amount}})
    return world


OTHER_DEVICES = (
    "habana.ai/gaudi",
    "huawei.com/Ascend910",
    "gpu.intel.com/i915",
    "aws.amazon.com/neuroncore",
    "google.com/tpu",
    "nvidia.com/gpu-a100",
)


@pytest.mark.parametrize("resource", OTHER_DEVICES)
def test_other_vendors_devices_and_renamed_ones_are_measured_too(resource: str) -> None:
    world = quota_of(resource, "800")
    assert judged(world).failing == {"CQG075"}
    world.one("Node", "gpu-1")["status"]["allocatable"][resource] = "8"
    assert judged(world).failing == {"CQG070"}
    world.one("Node", "gpu-1")["status"]["allocatable"][resource] = "800"
    assert judged(world).findings == ()


def test_what_only_kueue_counts_is_not() -> None:
    found = judged(quota_of("example.com/licence", "800"))
    assert found.findings == ()
    assert found.verdict is Verdict.PASS


def test_pods_that_may_be_a_rayclusters_are_not_taken_for_others() -> None:
    world = healthy()
    item = world.one("Workload", "busy-0")
    owner = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "ray", "uid": "uid-ray"}
    item["metadata"]["ownerReferences"] = [owner]
    pod = world.one("Pod", "busy-0-x")
    pod["metadata"]["ownerReferences"] = [
        {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "r", "uid": "x"}
    ]
    assert judged(world).findings == ()
