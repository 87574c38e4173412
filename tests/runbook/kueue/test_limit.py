"""The runbook queue-limit: limits of queues and deadlines of Jobs, what they do to whom, and the way back."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest

from gpuctl.runbook.kueue.limit import RUNBOOK, reverse
from gpuctl.runbook.kueue.limit_steps import LIMITED_BY
from gpuctl.runbook.kueue.limits import BORROWING, LENDING
from gpuctl.runbook.records import Outcome, Reached
from tests.builders import kueue
from tests.builders.queues import GPU, World, ago, pods, stamp
from tests.memory import A_MOMENT
from tests.runbook.book_world import (
    STATE,
    BookWorld,
    Object,
    disturbed_anywhere,
    killed_anywhere,
    killed_on_the_way_back,
    permitted,
    writes,
)
from tests.runbook.little import Hands, Killed, dies
from tests.runbook.memory_writer import Call

pytestmark = pytest.mark.usefixtures("no_thread")

QUEUE, PATCH = "vision", "patch ClusterQueue vision"
BORROW = {"flavor": "h100", "resource": GPU, "borrowing_limit": "2"}
LEND = {"flavor": "h100", "resource": GPU, "lending_limit": "3"}
DEADLINE = {"deadline": "7200"}


def cluster(limit: Mapping[str, Any] | None = None, cohort: str = "all", **spec: Any) -> list[Object]:
    """A queue with 8 GPUs of its own, of which 11 are in use, in a cohort with one that borrows."""
    world = World()
    world.flavor()
    world.namespace("team-a")
    entry = {"nominalQuota": "8", **({"borrowingLimit": "4"} if limit is None else limit)}
    world.queue(QUEUE, {"h100": {GPU: entry}}, cohort=cohort, used={"h100": {GPU: "11"}}, **spec)
    world.queue("audio", {"h100": {GPU: "4"}}, cohort=cohort, used={"h100": {GPU: "6"}})
    reserved = world.one("ClusterQueue", "audio")["status"]["flavorsReservation"][0]["resources"][0]
    reserved["borrowed"] = "2"
    world.local_queue()
    for number in (0, 1):
        world.workload(f"train-{number}", pod_sets=[pods({GPU: 9 + 4 * number})])
    for each in world.items:
        each["metadata"].setdefault("uid", f"u-{each['metadata']['name']}")
    crds = kueue.healthy().all("CustomResourceDefinition")
    return [*world.items, *crds, STATE]


def queue_world(options: Mapping[str, Any] | None = None, **about: Any) -> BookWorld:
    return BookWorld(
        items=cluster(**about), book=RUNBOOK, target=QUEUE, options=BORROW if options is None else options
    )


def a_job(started: timedelta | None = timedelta(hours=1), **about: Any) -> Object:
    status: Object = {"active": 2}
    if started is not None:
        status["startTime"] = stamp(A_MOMENT - started)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "team-a", "uid": "u-job", **about.pop("metadata", {})},
        "spec": {"suspend": False, **about.pop("spec", {})},
        "status": {**status, **about.pop("status", {})},
    }


def job_world(options: Mapping[str, Any] | None = None, **about: Any) -> BookWorld:
    return BookWorld(
        items=[a_job(**about), STATE],
        book=RUNBOOK,
        target="job/team-a/train",
        options=DEADLINE if options is None else options,
    )


def quota(found: BookWorld) -> Object:
    (queue,) = [each for each in found.of("ClusterQueue") if each["metadata"]["name"] == QUEUE]
    entry: Object = queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]
    return entry


def job(found: BookWorld) -> Object:
    (only,) = found.of("Job")
    return only


# What it does


@pytest.mark.parametrize(
    ("options", "field", "before", "after"),
    [
        (BORROW, BORROWING, "4", "2"),
        ({**BORROW, "borrowing_limit": "none"}, BORROWING, "4", None),
        (LEND, LENDING, None, "3"),
    ],
)
def test_a_limit_is_set_and_taken_back(
    options: Mapping[str, Any], field: str, before: str | None, after: str | None
) -> None:
    found = queue_world(options)
    assert not found.against()
    assert found.start().outcome is Outcome.SUCCEEDED
    assert quota(found).get(field) == after
    assert found.writer.written.count(PATCH) == 1
    back = reverse(found.run())
    assert back is not None
    found.options = back
    found.items[:] = [each for each in found.items if each["kind"] != "Lease"]
    plan = found.planned()
    assert plan.steps[0].step["after"] == before
    assert not plan.blockers


def test_a_deadline_is_set_and_taken_back() -> None:
    found = job_world()
    assert not found.against()
    assert found.start().outcome is Outcome.SUCCEEDED
    assert job(found)["spec"]["activeDeadlineSeconds"] == 7200
    assert (reverse(found.run()) or {})["deadline"] == "none"


# Who notices


def effects(found: BookWorld, **options: Any) -> str:
    return "\n".join(found.planned(**options).effects)


def test_who_waits_under_a_lower_borrowing_limit_and_that_nobody_is_evicted() -> None:
    text = effects(queue_world())
    assert "borrowingLimit of nvidia.com/gpu in flavor h100: 4 -> 2" in text
    assert "at most 10 in all: nominalQuota 8, and 2 borrowed" in text
    assert "11 are in use: nothing is evicted, and nothing more is admitted on h100 until 1 are given" in text
    assert "2 Workloads wait" in text
    assert "on h100 these would wait for ever, for they ask for more: team-a/train-1" in text
    higher = effects(queue_world({**BORROW, "borrowing_limit": "6"}))
    assert "11 are in use: nothing is evicted\n" in higher
    assert "for ever" not in higher
    assert "as much as its cohort all has left" in effects(queue_world({**BORROW, "borrowing_limit": "none"}))


def test_who_borrows_under_a_lower_lending_limit_and_what_can_be_taken_back() -> None:
    text = effects(queue_world(LEND))
    assert "may use 3 of its 8 while it does not" in text
    assert "now borrow: audio 2" in text
    assert "nobody is evicted; the borrowers get nothing new" in text
    taken = effects(queue_world(LEND, preemption={"reclaimWithinCohort": "Any"}))
    assert "taken back by preemption as soon as Workloads of vision need it" in taken


def test_a_deadline_counts_from_the_start_and_that_is_computed() -> None:
    text = effects(job_world())
    assert (
        "it started 3600 s ago (2026-11-30 09:00:00 UTC): it ends in 3600 s, at 2026-11-30 11:00:00" in text
    )
    assert "active pods that would be killed: 2" in text
    assert "it ends AT ONCE" in effects(job_world({"deadline": "600"}))
    waiting = effects(job_world(started=None))
    assert "it does not run now: once it starts, it ends 7200 s later" in waiting
    assert "as long as it takes" in effects(
        job_world({"deadline": "none"}, spec={"activeDeadlineSeconds": 9})
    )


# Guards, each with its silent twin


def kept_queue() -> BookWorld:
    found = queue_world()
    (queue,) = [each for each in found.of("ClusterQueue") if each["metadata"]["name"] == QUEUE]
    queue["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "Helm"}
    return found


REFUSED: list[tuple[Callable[[], BookWorld], str, str]] = [
    (lambda: queue_world({**BORROW, "borrowing_limit": "4"}), "something-changes", ""),
    (lambda: queue_world({**BORROW, "flavor": "a100"}), "something-changes", ""),
    (lambda: queue_world({**BORROW, "borrowing_limit": "much"}), "something-changes", ""),
    (lambda: queue_world({**BORROW, **LEND}), "something-changes", ""),
    (lambda: queue_world({"borrowing_limit": "2"}), "something-changes", ""),
    (lambda: queue_world(DEADLINE), "something-changes", ""),
    (lambda: queue_world(cohort=""), "kueue-takes-it", ""),
    (lambda: queue_world({**BORROW, "borrowing_limit": "-1"}), "kueue-takes-it", ""),
    (lambda: queue_world({**LEND, "lending_limit": "9"}), "kueue-takes-it", ""),
    (lambda: job_world({"deadline": "soon"}), "something-changes", ""),
    (lambda: job_world({"deadline": "0"}), "something-changes", ""),
    (lambda: job_world({}), "something-changes", ""),
    (lambda: job_world(spec={"activeDeadlineSeconds": 7200}), "something-changes", ""),
    (lambda: job_world(metadata={"deletionTimestamp": stamp(ago(minutes=1))}), "is-not-going", ""),
    (
        lambda: job_world(status={"conditions": [{"type": "Failed", "status": "True"}]}),
        "job-is-not-over",
        "",
    ),
    (lambda: job_world({"deadline": "600"}), "job-has-time", "--although-it-ends-now"),
    (
        lambda: job_world(metadata={"labels": {"kustomize.toolkit.fluxcd.io/name": "x"}}),
        "not-owned-elsewhere",
        "--although-owned",
    ),
    (kept_queue, "not-owned-elsewhere", "--although-owned"),
    (lambda: queue_world({**BORROW, "patch_only": True}), "to-be-applied", ""),
]


@pytest.mark.parametrize(("found", "guard", "override"), REFUSED)
def test_a_guard_refuses(found: Callable[[], BookWorld], guard: str, override: str) -> None:
    world = found()
    blockers = [each for each in world.planned().blockers if each.guard == guard]
    assert [each.override for each in blockers] == [override]
    if override:
        assert not world.against(**{override.removeprefix("--").replace("-", "_"): True})
    else:
        assert world.start().outcome is Outcome.REFUSED


@pytest.mark.parametrize(
    "found",
    [
        lambda: queue_world({**LEND, "lending_limit": "8"}),
        lambda: queue_world({**BORROW, "borrowing_limit": "0"}),
        lambda: queue_world({**BORROW, "borrowing_limit": "none"}, cohort=""),
        lambda: job_world({"deadline": "3601"}),
        lambda: job_world({"deadline": "600"}, spec={"suspend": True}),
        lambda: job_world(status={"conditions": [{"type": "Suspended", "status": "False"}]}),
    ],
)
def test_its_twin_is_silent(found: Callable[[], BookWorld]) -> None:
    assert not found().against()


def test_a_target_that_does_not_exist() -> None:
    world = queue_world()
    world.target = "nobody"
    assert any("there is no such ClusterQueue" in each for each in world.against())
    world.target = "job/team-a/nobody"
    world.options = DEADLINE
    assert any("there is no such Job" in each for each in world.against())


# Only printed


@pytest.mark.parametrize(
    ("found", "patch"),
    [
        (
            lambda: queue_world({**BORROW, "patch_only": True}),
            '"path": "/spec/resourceGroups/0/flavors/0/resources/0/borrowingLimit", "value": "2"}]',
        ),
        (
            lambda: job_world({**DEADLINE, "patch_only": True}),
            '{"op": "add", "path": "/spec/activeDeadlineSeconds", "value": 7200}]',
        ),
    ],
)
def test_the_patch_is_printed_and_nothing_is_changed(found: Callable[[], BookWorld], patch: str) -> None:
    world = found()
    plan = world.planned()
    assert any(patch in line for line in plan.effects)
    assert plan.steps == ()
    assert {each.guard for each in plan.blockers} == {"to-be-applied"}
    assert world.start().outcome is Outcome.REFUSED
    assert not [each for each in world.writer.written if each.startswith("patch ClusterQueue")]


# Steps and the way back


def somebody(limit: str, moved: bool = False) -> Callable[[list[Object], Call | None], None]:
    def reacts(items: list[Object], call: Call | None) -> None:
        if call is not None and call.verb == "create" and call.ref.kind.kind == "ConfigMap":
            (found,) = [
                each for each in items if each["kind"] == "ClusterQueue" and each["metadata"]["name"] == QUEUE
            ]
            flavors = found["spec"]["resourceGroups"][0]["flavors"]
            flavors[0]["resources"][0][BORROWING] = limit
            if moved:
                flavors.insert(0, {"name": "a100", "resources": [{"name": GPU, "nominalQuota": "8"}]})

    return reacts


def test_what_somebody_else_sets_in_between_is_not_overwritten() -> None:
    found = queue_world()
    found.reacts = somebody("7")
    ending = found.start()
    assert ending.outcome is Outcome.FAILED
    assert "is 7 now: somebody else changed it" in ending.why
    assert quota(found)[BORROWING] == "7"


def test_a_quota_that_moved_is_found_again() -> None:
    found = queue_world()
    found.reacts = somebody("4", moved=True)
    assert found.start().outcome is Outcome.SUCCEEDED
    flavors = found.of("ClusterQueue")[0]["spec"]["resourceGroups"][0]["flavors"]
    assert [each["resources"][0].get(BORROWING) for each in flavors] == [None, "2"]


def marks(item: Object) -> dict[str, str]:
    return dict(item["metadata"].get("annotations") or {})


def queue(found: BookWorld) -> Object:
    (only,) = [each for each in found.of("ClusterQueue") if each["metadata"]["name"] == QUEUE]
    return only


def limited(found: BookWorld) -> None:
    assert quota(found)[BORROWING] == "2"
    assert marks(queue(found)) == {LIMITED_BY: "r1"}


def as_before(found: BookWorld) -> None:
    assert quota(found)[BORROWING] == "4"
    assert not marks(queue(found))


def hurried(found: BookWorld) -> None:
    assert job(found)["spec"]["activeDeadlineSeconds"] == 7200
    assert marks(job(found)) == {LIMITED_BY: "r1"}


def unhurried(found: BookWorld) -> None:
    assert "activeDeadlineSeconds" not in job(found)["spec"]
    assert not marks(job(found))


def begun_and_killed(make: Callable[[], BookWorld]) -> BookWorld:
    """Its process was killed between the word that the change begins and the change."""
    for at in range(writes(make)):
        found = make()
        with pytest.raises(Killed):
            found.start(Hands(found, **dies(at, after=False)))
        if found.journals and found.reached() == [Reached.BEGUN]:
            return found
    raise AssertionError("no change is begun")


def somebody_limits(found: BookWorld) -> None:
    quota(found)[BORROWING] = "2"


def somebody_hurries(found: BookWorld) -> None:
    job(found)["spec"]["activeDeadlineSeconds"] = 7200


@pytest.mark.parametrize(("make", "does"), [(queue_world, somebody_limits), (job_world, somebody_hurries)])
def test_what_somebody_else_set_to_the_same_is_not_taken_for_the_runs_own(
    make: Callable[[], BookWorld], does: Callable[[BookWorld], None]
) -> None:
    found = begun_and_killed(make)
    does(found)
    before = copy.deepcopy(found.of("ClusterQueue") + found.of("Job"))
    ending = found.continued()
    assert ending.outcome is Outcome.FAILED
    assert "somebody else changed it" in ending.why
    assert found.continued(back=True).outcome is Outcome.REVERTED
    assert found.of("ClusterQueue") + found.of("Job") == before


def test_the_mark_of_an_earlier_run_comes_back_with_its_limit() -> None:
    def make() -> BookWorld:
        found = queue_world()
        queue(found)["metadata"]["annotations"] = {LIMITED_BY: "r0", "team": "vision"}
        return found

    found = make()
    with pytest.raises(Killed):
        found.start(Hands(found, **dies(writes(make) - 4, after=False)))
    assert marks(queue(found)) == {LIMITED_BY: "r1", "team": "vision"}
    assert found.continued(back=True).outcome is Outcome.REVERTED
    assert marks(queue(found)) == {LIMITED_BY: "r0", "team": "vision"}


@pytest.mark.parametrize(
    ("make", "old"), [(queue_world, lambda found: quota(found).update(borrowingLimit="4"))]
)
def test_where_somebody_has_set_the_old_value_again_the_mark_is_all_that_goes(
    make: Callable[[], BookWorld], old: Callable[[BookWorld], None]
) -> None:
    found = make()
    with pytest.raises(Killed):
        found.start(Hands(found, **dies(writes(make) - 4, after=False)))
    old(found)
    assert found.continued(back=True).outcome is Outcome.REVERTED
    as_before(found)


@pytest.mark.parametrize(
    ("make", "done", "undone"), [(queue_world, limited, as_before), (job_world, hurried, unhurried)]
)
def test_killed_anywhere(
    make: Callable[[], BookWorld],
    done: Callable[[BookWorld], None],
    undone: Callable[[BookWorld], None],
) -> None:
    assert writes(make) > 3
    killed_anywhere(make, done, undone)
    killed_on_the_way_back(make, done, undone)


@pytest.mark.parametrize(
    ("make", "done", "undone"), [(queue_world, limited, as_before), (job_world, hurried, unhurried)]
)
def test_disturbed_anywhere(
    make: Callable[[], BookWorld],
    done: Callable[[BookWorld], None],
    undone: Callable[[BookWorld], None],
) -> None:
    disturbed_anywhere(make, done, undone)


def test_its_steps_take_what_the_runbook_says() -> None:
    permitted(queue_world())
    permitted(job_world())
