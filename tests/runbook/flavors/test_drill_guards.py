"""Each guard of a drill and of a hold refuses, and is silent where the same is slightly different."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from gpuctl.facts.alerts import Alert, AlertState
from gpuctl.facts.kinds import Answer
from gpuctl.facts.state import Each, Reason, Unknown
from gpuctl.runbook.flavors import hold as flavor_hold
from gpuctl.runbook.records import Outcome
from tests.memory import A_MOMENT
from tests.runbook.flavors.drill_world import DrillWorld
from tests.runbook.little import Hands, Killed, dies

FORBIDDEN = Unknown(Reason.FORBIDDEN, "no")
Change = Callable[[DrillWorld], object]
FIRING = (("alertname", "QueueStands"),)
REFUSED = Answer(
    A_MOMENT,
    0.1,
    500,
    {
        "kind": "Status",
        "message": (
            'failed calling webhook "mresourceflavor.kb.io": failed to call webhook: Post "https://x": '
            "tls: failed to verify certificate: x509: certificate signed by unknown authority"
        ),
    },
)


@dataclass(frozen=True)
class Case:
    """What makes a guard refuse, and what nearly does."""

    guard: str
    fault: Change
    twin: Change
    options: dict[str, Any] = field(default_factory=dict)
    override: str = ""


def nothing(_: DrillWorld) -> None:
    pass


def one(world: DrillWorld, kind: str, name: str) -> dict[str, Any]:
    return next(each for each in world.of(kind) if each["metadata"]["name"] == name)


def not_ready(world: DrillWorld) -> None:
    for pod in world.of("Pod"):
        pod["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    world.items[:] = [each for each in world.items if each["kind"] != "EndpointSlice"]


def waits(**how: Any) -> Change:
    """Kueue's configuration with waitForPodsReady."""
    lines = "".join(f"\n  {name}: {str(text).lower()}" for name, text in how.items())

    def change(world: DrillWorld) -> None:
        config = one(world, "ConfigMap", "kueue-manager-config")
        config["data"]["controller_manager_config.yaml"] += f"\nwaitForPodsReady:{lines}\n"

    return change


def unregistered(world: DrillWorld) -> None:
    """No webhook is registered any more, as after somebody broke the glass."""
    world.items[:] = [each for each in world.items if "WebhookConfiguration" not in each["kind"]]
    for crd in world.of("CustomResourceDefinition"):
        crd["spec"].pop("conversion", None)


def under_another_name(world: DrillWorld) -> None:
    data = one(world, "ConfigMap", "kueue-manager-config")["data"]
    data["config.yaml"] = data.pop("controller_manager_config.yaml")


def said(answer: Answer | None) -> Change:
    return lambda world: setattr(world, "answer", answer)


def unread(*kinds: str) -> Change:
    return lambda world: setattr(world, "missing", dict.fromkeys(kinds, FORBIDDEN))


def alerts(found: Any) -> Change:
    return lambda world: setattr(world, "firing", found)


def alert(state: AlertState, name: str = "QueueStands") -> Each[Any, Alert]:
    labels = (("alertname", name),)
    return Each.of({labels: Alert(labels, state)})


EXPECTS = {"force_missing": True, "expect_alert": "QueueStands", "ignore_alerts": True}
CASES: dict[str, Case] = {
    "the manager does not answer": Case("kueue-works", not_ready, nothing),
    "a webhook that fails": Case("webhooks-answer", said(REFUSED), nothing),
    "a dry run that is not permitted": Case("webhooks-answer", said(None), nothing),
    "blockAdmission": Case(
        "admission-is-not-blocked",
        waits(enable=True, blockAdmission=True),
        waits(enable=True, blockAdmission=False),
        {"force_unknown_config": True},
    ),
    "a configuration that can't be read": Case(
        "configuration-is-known", unread("configmaps"), nothing, override="--force-unknown-config"
    ),
    "a configuration under another name": Case(
        "configuration-is-known", under_another_name, nothing, override="--force-unknown-config"
    ),
    "a configuration of a manager that is not found": Case(
        "configuration-is-known", unregistered, nothing, override="--force-unknown-config"
    ),
    "a manager that is not found": Case("kueue-works", unregistered, nothing),
    "an alert without a loss": Case(
        "alert-can-be-seen",
        alerts(Each.of({})),
        lambda world: setattr(world, "options", {}),
        {"expect_alert": "QueueStands"},
    ),
    "an alert that nobody could see": Case(
        "alert-can-be-seen", alerts(None), alerts(Each.of({})), dict(EXPECTS)
    ),
    "an alert that fires already": Case(
        "alert-can-be-seen",
        alerts(alert(AlertState.FIRING)),
        alerts(alert(AlertState.FIRING, "Other")),
        dict(EXPECTS),
    ),
    "monitoring that does not answer": Case(
        "alert-can-be-seen", alerts(FORBIDDEN), alerts(alert(AlertState.PENDING)), dict(EXPECTS)
    ),
    "canaries that could not be seen": Case(
        "canaries-can-be-seen", unread("clusterqueues.kueue.x-k8s.io"), nothing
    ),
    "leftovers that can't be read": Case(
        "leftovers-are-known", unread("resourceflavors.kueue.x-k8s.io"), nothing
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_guard_refuses(name: str) -> None:
    case = CASES[name]
    world = DrillWorld(options=case.options)
    case.fault(world)
    found = [each for each in world.plan().blockers if each.guard == case.guard]
    assert found
    assert all(each.override == case.override for each in found)
    assert all(each.message for each in found)


@pytest.mark.parametrize("name", CASES)
def test_the_same_slightly_changed_is_silent(name: str) -> None:
    case = CASES[name]
    world = DrillWorld(options=case.options)
    case.twin(world)
    assert [each for each in world.plan().blockers if each.guard == case.guard] == []


def test_an_unknown_configuration_can_be_risked_and_blocked_admission_can_not() -> None:
    world = DrillWorld(options={"force_unknown_config": True})
    unread("configmaps")(world)
    plan = world.plan()
    assert {each.guard for each in plan.overridden} == {"configuration-is-known"}


# Holding a real queue


def a_hold(**options: Any) -> DrillWorld:
    world = DrillWorld(book=flavor_hold.RUNBOOK, options={"seconds": 5.0, **options})
    local = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": {"name": "main", "namespace": "team-a", "uid": "lq"},
        "spec": {"clusterQueue": "team"},
        "status": {"pendingWorkloads": 4},
    }
    world.items.append(local)
    return world


def queue(world: DrillWorld) -> dict[str, Any]:
    return one(world, "ClusterQueue", "team")


def annotated(**marks: str) -> Change:
    def change(world: DrillWorld) -> None:
        queue(world)["metadata"]["annotations"] = marks

    return change


def written(policy: str) -> Change:
    return lambda world: queue(world)["spec"].update(stopPolicy=policy)


HOLDS: dict[str, Case] = {
    "stopped already": Case("queue-is-not-stopped", written("HoldAndDrain"), written("None")),
    "going": Case(
        "queue-is-not-stopped",
        lambda world: queue(world)["metadata"].update(deletionTimestamp="2026-11-30T10:00:00Z"),
        nothing,
    ),
    "of Argo CD": Case(
        "queue-is-nobodys",
        annotated(**{"argocd.argoproj.io/tracking-id": "queues"}),
        annotated(**{"example.com/tracking-id": "queues"}),
        override="--although-owned",
    ),
    "no time": Case("seconds-are-sensible", nothing, nothing, {"seconds": 0.0}),
    "a day": Case("seconds-are-sensible", nothing, nothing, {"seconds": 86400.0}),
    "the manager does not answer": Case("kueue-works", not_ready, nothing),
    "a manager that is not found": Case("kueue-works", unregistered, nothing),
}


@pytest.mark.parametrize("name", HOLDS)
def test_a_guard_of_a_hold_refuses(name: str) -> None:
    case = HOLDS[name]
    world = a_hold(**case.options)
    case.fault(world)
    (found,) = [each for each in world.plan("team").blockers if each.guard == case.guard]
    assert found.override == case.override


@pytest.mark.parametrize("name", HOLDS)
def test_the_same_hold_slightly_changed_is_silent(name: str) -> None:
    world = a_hold()
    HOLDS[name].twin(world)
    assert world.plan("team").blockers == ()


@pytest.mark.parametrize("before", [None, "None"])
def test_a_queue_is_held_and_is_as_it_was(before: str | None) -> None:
    world = a_hold()
    if before:
        written(before)(world)
    ending = world.begin(target="team")
    assert (ending.outcome, ending.why) == (Outcome.SUCCEEDED, "")
    assert queue(world)["spec"].get("stopPolicy") == before
    assert not queue(world)["metadata"].get("annotations")
    assert ending.result["whoWaited"] == ["team-a/main: 4"]
    assert ending.result["heldForSeconds"] >= 5


@pytest.mark.parametrize("before", [None, "None"])
def test_a_hold_that_is_killed_anywhere_is_taken_back(before: str | None) -> None:
    for at in range(20):
        world = a_hold()
        if before:
            written(before)(world)
        try:
            world.begin(world.crew(Hands(world, **dies(at, after=True))), target="team")
        except Killed:
            if world.journals:
                world.go_on(back=not world.run().verified)
        assert queue(world)["spec"].get("stopPolicy") == before, at
        assert not queue(world)["metadata"].get("annotations"), at


def test_whoever_lets_it_go_meanwhile_is_not_overruled() -> None:
    world = a_hold()

    def lets_go(number: int) -> None:
        if queue(world)["spec"].get("stopPolicy") == "Hold":
            queue(world)["spec"]["stopPolicy"] = "HoldAndDrain"

    ending = world.begin(world.crew(Hands(world, after=lets_go)), target="team")
    assert ending.outcome is Outcome.FAILED
    assert "somebody else" in ending.why
    assert world.go_on(back=True).outcome is Outcome.REVERTED
    assert queue(world)["spec"]["stopPolicy"] == "HoldAndDrain"
    assert not queue(world)["metadata"].get("annotations")
