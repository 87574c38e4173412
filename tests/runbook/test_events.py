"""Events are made on what a run changes, where the API server takes them and those who look find them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gpuctl.facts.kinds import Ref
from gpuctl.facts.own import STATE_NAMESPACE
from gpuctl.facts.state import Reason, Unknown
from gpuctl.kueue.objects import ClusterQueue, Job
from gpuctl.runbook.catalogue import BOOKS, runbook
from gpuctl.runbook.conduct import abandon
from gpuctl.runbook.events import event
from gpuctl.runbook.permissions import EVENTS, permissions_of
from gpuctl.runbook.records import Outcome, Run, Standing
from gpuctl.runbook.writer import WriteFailed
from tests.memory import A_MOMENT
from tests.runbook.book_world import BookWorld
from tests.runbook.kueue import test_limit as limit
from tests.runbook.kueue import test_restart as restart
from tests.runbook.little import LITTLE, NAMESPACE, Hands, Killed, World, dies
from tests.runbook.memory_writer import Call
from tests.runbook.vllm import test_switch_mode as switch

pytestmark = pytest.mark.usefixtures("no_thread")


def as_the_server(call: Call) -> None:
    """Refuses an Event in another namespace than that of what it is on."""
    if call.ref.kind.kind == "Event":
        namespace = call.what["involvedObject"].get("namespace", "")
        if call.ref.namespace != (namespace or "default"):
            why = f"involvedObject.namespace {namespace!r} does not match event.namespace"
            raise WriteFailed(Unknown(Reason.SERVER_ERROR, why), hopeless=True)


@pytest.mark.parametrize(
    ("make", "namespace", "on"),
    [
        (limit.queue_world, "default", {"kind": "ClusterQueue", "name": limit.QUEUE}),
        (limit.job_world, "team-a", {"kind": "Job", "name": "train", "namespace": "team-a"}),
        (
            restart.world,
            "kueue-system",
            {"kind": "Deployment", "name": "kueue-controller-manager", "namespace": "kueue-system"},
        ),
        (switch.world, "serving", {"kind": "Deployment", "name": "chat", "namespace": "serving"}),
        (
            lambda: switch.world(kind="StatefulSet"),
            "serving",
            {"kind": "StatefulSet", "name": "chat", "namespace": "serving"},
        ),
        (World, "default", {"kind": "Node", "name": "gpu-1"}),
    ],
    ids=["queue", "job", "manager", "deployment", "statefulset", "node"],
)
def test_an_event_is_on_the_object_and_in_its_namespace(
    make: Callable[[], World], namespace: str, on: dict[str, str]
) -> None:
    world = make()
    world.writer.before = as_the_server
    ending = world.start() if isinstance(world, BookWorld) else world.begin()
    assert ending.outcome is Outcome.SUCCEEDED, ending
    events = world.of("Event")
    assert [each["reason"] for each in events] == ["GpuctlBegun", "GpuctlSucceeded"]
    for each in events:
        assert each["metadata"]["namespace"] == namespace
        assert on.items() <= each["involvedObject"].items()
        (about,) = [
            item["metadata"]
            for item in world.of(on["kind"])
            if (item["metadata"]["name"], item["metadata"].get("namespace", ""))
            == (
                on["name"],
                on.get("namespace", ""),
            )
        ]
        assert each["involvedObject"]["uid"] in (about["uid"], about["name"])


@pytest.mark.parametrize("name", BOOKS)
def test_the_role_for_events_holds_where_they_are_made(name: str) -> None:
    book = runbook(name)
    targets = ("a/b", *(f"{prefix}a/b" for prefix in book.prefixed))
    places = {book.ref(target).namespace or "default" for target in targets}
    where = list(permissions_of(book).places("ops"))[-1]
    assert where == ("default" if places == {"default"} else "", (EVENTS,))


def test_what_a_target_names() -> None:
    book = runbook("queue-limit")
    assert book.ref("gpus") == Ref(ClusterQueue.of, "gpus")
    assert book.ref("job/team-a/train") == Ref(Job.of, "train", "team-a")
    assert LITTLE.ref("gpu-1").name == "gpu-1"


def test_of_a_node_it_bears_the_uid_that_kubectl_describe_looks_for() -> None:
    run = Run(
        id="r1", runbook="little", target="gpu-1", target_uid="u", started_at=A_MOMENT, updated_at=A_MOMENT
    )
    _, body = event(LITTLE.ref("gpu-1"), run, "timed-out", "x" * 2000)
    assert body["involvedObject"]["uid"] == "gpu-1"
    assert (body["reason"], body["type"], len(body["message"])) == ("GpuctlTimedOut", "Warning", 1024)


# Giving up


def given_up(refuse: Callable[[Call], None] = lambda _: None, **more: Any) -> World:
    world = World()
    with pytest.raises(Killed):
        world.begin(world.crew(Hands(world, **dies(8, after=True))))
    world.items[:] = [each for each in world.items if each["kind"] != "Event"]
    world.writer.before = refuse
    crew = world.crew(reason="the node is gone", ticket="T-3")
    assert abandon("r1", crew, {STATE_NAMESPACE: NAMESPACE}, **more).outcome is Outcome.SUCCEEDED
    assert world.run().state is Standing.ABANDONED
    assert not world.leases
    return world


def test_giving_up_leaves_an_event_that_says_by_whom_and_why() -> None:
    world = given_up(as_the_server, target_of=lambda run: LITTLE.ref(run.target))
    (found,) = world.of("Event")
    assert found["reason"] == "GpuctlAbandoned"
    assert found["involvedObject"]["name"] == "gpu-1"
    assert found["message"] == (
        "gpuctl little abandoned by ana@bastion-1 as ana, run r1; reason: the node is gone; ticket: T-3"
    )


def test_a_run_is_given_up_also_where_no_event_can_be_made() -> None:
    def refuse(call: Call) -> None:
        if call.ref.kind.kind == "Event":
            raise WriteFailed(Unknown(Reason.FORBIDDEN, "no events"), hopeless=True)

    world = given_up(refuse, target_of=lambda run: LITTLE.ref(run.target))
    assert not world.of("Event")
    assert any("no Event could be written" in each for each in world.told)


def test_of_several_targets_at_once_there_is_nothing_to_make_it_on() -> None:
    world = given_up(target_of=lambda _: None)
    assert not world.of("Event")
    assert [note["what"] for note in world.notes][-1] == "abandoned"
