"""The runbook kueue-restart: what must hold before, how it goes, and that nothing of it can be taken back."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from gpuctl.facts.kinds import Answer, Attempt
from gpuctl.facts.state import Reason, Unknown
from gpuctl.kueue.objects import RESOURCE_FLAVOR
from gpuctl.runbook.kueue.restart import RUNBOOK, Proven
from gpuctl.runbook.records import Outcome
from gpuctl.runbook.rollouts import RESTARTED_AT, RESTARTED_BY
from tests.builders.kueue import HELM, OPENSHIFT, UPSTREAM, Shape, healthy
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
from tests.runbook.memory_writer import Call

pytestmark = pytest.mark.usefixtures("no_thread")

FLAVOR = Attempt(RESOURCE_FLAVOR, "", {})
FINALIZERS = {"finalizers": ["kueue.x-k8s.io/resource-in-use"]}
CREATED = Answer(A_MOMENT, 0.1, 201, {"kind": "ResourceFlavor", "metadata": FINALIZERS})
DENIED = Answer(
    A_MOMENT,
    0.1,
    500,
    {
        "kind": "Status",
        "message": 'failed calling webhook "mresourceflavor.kb.io": failed to call webhook: Post "https://x"'
        ": tls: failed to verify certificate: x509: certificate signed by unknown authority",
    },
)


def deployment(items: list[Object]) -> Object:
    return next(
        each
        for each in items
        if each["kind"] == "Deployment" and each["metadata"]["name"].endswith("controller-manager")
    )


def controller(items: list[Object], call: Call | None) -> None:
    """Every change of the Deployment is a rollout that succeeds at once."""
    found = deployment(items)
    if call is not None and call.verb == "patch" and call.ref.kind.kind == "Deployment":
        found["metadata"]["generation"] = found["metadata"].get("generation", 1) + 1
        settle(found)


def settle(found: Object) -> None:
    replicas = found["spec"].get("replicas", 1)
    names = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
    found["status"] = {
        **dict.fromkeys(names, replicas),
        "observedGeneration": found["metadata"].get("generation", 1),
    }


def secret(shape: Shape) -> Object:
    about = {"name": f"{shape.name}-webhook-server-cert", "namespace": shape.namespace, "uid": "u-secret"}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": about, "data": {}}


def world(shape: Shape = UPSTREAM, **more: Any) -> BookWorld:
    items = [*healthy(shape).items, secret(shape), STATE]
    found = deployment(items)
    found["metadata"].setdefault("uid", "u-manager")
    settle(found)
    about: dict[str, Any] = {"reader": {"answers": {FLAVOR: CREATED}}, "reacts": controller, **more}
    name = f"{shape.namespace}/{found['metadata']['name']}"
    return BookWorld(items=items, book=RUNBOOK, target=name, **about)


def marks(found: BookWorld) -> dict[str, str]:
    template = deployment(found.items)["spec"]["template"]["metadata"]
    return {
        name: text
        for name, text in template.get("annotations", {}).items()
        if name in (RESTARTED_AT, RESTARTED_BY)
    }


@pytest.mark.parametrize("shape", [UPSTREAM, HELM], ids=["upstream", "helm"])
def test_from_begin_to_end(shape: Shape) -> None:
    found = world(shape)
    assert not found.against()
    assert found.start().outcome is Outcome.SUCCEEDED
    assert marks(found) == {RESTARTED_BY: "r1", RESTARTED_AT: "2026-11-30T10:00:00Z"}
    patches = [each for each in found.writer.written if each.startswith("patch Deployment")]
    assert len(patches) == 1


def test_the_plan_tells_what_it_costs_and_prints_the_other_ways() -> None:
    plan = world().planned()
    text = "\n".join(plan.effects)
    assert "a restart has no undo" in text
    assert "while no replica is ready, 10 to 30 s with a single one: " in text
    assert "kubectl -n kueue-system patch secret kueue-webhook-server-cert --type=merge" in text
    assert "rollout restart deployment/kueue-controller-manager" in text
    assert "sed 's/failurePolicy: Fail/failurePolicy: Ignore/'" in text
    assert all(each.undoes == "" for each in plan.steps)
    openshift = "\n".join(world(OPENSHIFT).planned().effects)
    assert "cmctl renew -n openshift-kueue-operator" in openshift


def test_the_proof_holds_by_an_answer_that_is_healthy_alone() -> None:
    for answers, holds in (({FLAVOR: CREATED}, True), ({FLAVOR: DENIED}, False), ({}, False)):
        found = world(reader={"answers": answers})
        facts = found.look_with(found.task().arguments)(Proven().needs)
        assert Proven().holds(facts) is holds
        assert bool(Proven().progress(facts))


# Guards, each with its silent twin


def stopped(found: BookWorld) -> None:
    deployment(found.items)["spec"]["replicas"] = 0


def paused(found: BookWorld) -> None:
    deployment(found.items)["spec"]["paused"] = True


def underway(found: BookWorld) -> None:
    deployment(found.items)["status"]["updatedReplicas"] = 0


def unseen(found: BookWorld) -> None:
    deployment(found.items)["metadata"]["generation"] = 7


def not_ready(found: BookWorld) -> None:
    deployment(found.items)["status"]["availableReplicas"] = 0


def budget(allowed: int, **labels: str) -> Callable[[BookWorld], None]:
    def add(found: BookWorld) -> None:
        template = deployment(found.items)["spec"]["template"]["metadata"]["labels"]
        found.items.append(
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": "kueue", "namespace": "kueue-system"},
                "spec": {"selector": {"matchLabels": labels or template}},
                "status": {"disruptionsAllowed": allowed},
            }
        )

    return add


def no_secret(found: BookWorld) -> None:
    found.items[:] = [each for each in found.items if each["kind"] != "Secret"]


def unknown_secret(found: BookWorld) -> None:
    gap = Unknown(Reason.FORBIDDEN, "secrets is forbidden", "secrets")
    found.reader = {**found.reader, "missing": {"secrets": gap}}


def two_owners(found: BookWorld) -> None:
    for each in found.items:
        if each["kind"] == "MutatingWebhookConfiguration" and "kueue" in each["metadata"]["name"]:
            each["metadata"].setdefault("annotations", {})["cert-manager.io/inject-ca-from"] = "k/c"


def kept(found: BookWorld) -> None:
    """As `helm install` marks it."""
    about = deployment(found.items)["metadata"]
    about.setdefault("annotations", {})["meta.helm.sh/release-name"] = "kueue"


def owned(found: BookWorld) -> None:
    """As an operator owns its operand."""
    owner = {"apiVersion": "kueue.openshift.io/v1", "kind": "Kueue", "name": "cluster", "uid": "u-operator"}
    deployment(found.items)["metadata"]["ownerReferences"] = [{**owner, "controller": True}]


def mentioned(found: BookWorld) -> None:
    """An owner that is no controller keeps nothing as it is."""
    owned(found)
    deployment(found.items)["metadata"]["ownerReferences"][0]["controller"] = False


def by_cert_manager(found: BookWorld) -> None:
    other = world(OPENSHIFT)
    found.items[:], found.target = other.items, other.target


def no_proof(found: BookWorld) -> None:
    gap = Unknown(Reason.FORBIDDEN, "the permission to create resourceflavors is missing")
    found.reader = {**found.reader, "answers": {FLAVOR: gap}}


def no_proof_and_only_printed(found: BookWorld) -> None:
    no_proof(found)
    only_printed(found)


def broken_webhook(found: BookWorld) -> None:
    """What the restart is to cure does not speak against it."""
    found.reader = {**found.reader, "answers": {FLAVOR: DENIED}}


def only_printed(found: BookWorld) -> None:
    found.options = {"patch_only": True}


def another(found: BookWorld) -> None:
    found.target = "kueue-system/other"
    other = {"name": "other", "namespace": "kueue-system", "uid": "u-other"}
    found.items.append({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": other, "spec": {}})


def nothing(_: BookWorld) -> None:
    pass


REFUSED: list[tuple[Callable[[BookWorld], None], str, str]] = [
    (stopped, "no-rollout-underway", ""),
    (paused, "no-rollout-underway", ""),
    (underway, "no-rollout-underway", ""),
    (unseen, "no-rollout-underway", ""),
    (not_ready, "all-replicas-stand", "--although-not-ready"),
    (budget(0), "no-budget-forbids", "--ignore-budget"),
    (no_secret, "secret-exists", ""),
    (unknown_secret, "secret-is-known", "--although-secret-unknown"),
    (two_owners, "one-owner", ""),
    (by_cert_manager, "its-own-certificates", "--although-cert-manager"),
    (another, "runs-a-manager", ""),
    (kept, "not-owned-elsewhere", "--although-owned"),
    (owned, "not-owned-elsewhere", "--although-owned"),
    (only_printed, "to-be-applied", ""),
    (no_proof, "proof-can-be-tried", ""),
]


@pytest.mark.parametrize(("change", "guard", "override"), REFUSED)
def test_a_guard_refuses(change: Callable[[BookWorld], None], guard: str, override: str) -> None:
    found = world()
    change(found)
    blockers = [each for each in found.planned().blockers if each.guard == guard]
    assert [each.override for each in blockers] == [override]
    if override:
        name = override.removeprefix("--").replace("-", "_")
        assert not found.against(**{name: True})
    else:
        assert found.start().outcome is Outcome.REFUSED
    assert not marks(found) if guard != "runs-a-manager" else True


@pytest.mark.parametrize("change", [nothing, budget(1), budget(0, app="other"), mentioned, broken_webhook])
def test_its_twin_is_silent(change: Callable[[BookWorld], None]) -> None:
    found = world()
    change(found)
    assert not found.against()


def test_the_patch_is_printed_and_nothing_is_changed() -> None:
    found = world(options={"patch_only": True})
    kept(found)
    plan = found.planned()
    text = "\n".join(plan.effects)
    assert "the patch: kubectl patch -n kueue-system deployments.apps/kueue-controller-manager" in text
    assert f'"{RESTARTED_AT}": "2026-11-30T10:00:00Z"' in text
    assert RESTARTED_BY not in text
    assert "it belongs into the values of that Helm release" in text
    assert plan.steps == ()
    assert {each.guard for each in plan.blockers} == {"to-be-applied"}
    assert found.start().outcome is Outcome.REFUSED
    assert not marks(found)
    assert not any("the patch: " in line for line in world().planned().effects)


def test_who_only_prints_the_patch_needs_no_proof() -> None:
    found = world()
    no_proof_and_only_printed(found)
    assert {each.guard for each in found.planned().blockers} == {"to-be-applied"}


# Steps


def test_a_restart_that_somebody_takes_back_is_no_success() -> None:
    def takes_back(items: list[Object], call: Call | None) -> None:
        controller(items, call)
        if call is not None and call.ref.kind.kind == "Deployment":
            deployment(items)["spec"]["template"]["metadata"].pop("annotations")

    found = world(reacts=takes_back)
    ending = found.start()
    assert ending.outcome is Outcome.FAILED
    assert "the restart was taken back" in ending.why


def test_a_rollout_that_was_given_up_is_no_success() -> None:
    def fails(items: list[Object], call: Call | None) -> None:
        if call is not None and call.ref.kind.kind == "Deployment":
            reason = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
            deployment(items)["status"]["conditions"] = [{**reason, "message": "it has timed out"}]
            deployment(items)["status"]["updatedReplicas"] = 0

    ending = world(reacts=fails).start()
    assert ending.outcome is Outcome.FAILED
    assert "given up: it has timed out" in ending.why


def test_that_the_rollout_before_was_given_up_is_past() -> None:
    """At the first looks its controller has not seen the new generation yet."""
    reason = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    looks = itertools.count()

    def late(items: list[Object], call: Call | None) -> None:
        found = deployment(items)
        if call is not None and call.ref.kind.kind == "Deployment":
            found["metadata"]["generation"] = found["status"]["observedGeneration"] + 1
            found["status"]["conditions"] = [{**reason, "message": "it has timed out"}]
        elif "conditions" in found["status"] and next(looks) == 12:
            settle(found)

    found = world(reacts=late)
    assert found.start().outcome is Outcome.SUCCEEDED
    assert next(looks) > 12


def restarted(found: BookWorld) -> None:
    assert marks(found)[RESTARTED_BY] == "r1"
    assert sum(each.startswith("patch Deployment") for each in found.writer.written) <= 2


def as_it_may_be(found: BookWorld) -> None:
    """A restart has no undo: only what the run needs for itself is taken away."""
    assert marks(found).get(RESTARTED_BY, "r1") == "r1"


def test_killed_anywhere() -> None:
    assert writes(world) > 3
    killed_anywhere(world, restarted, as_it_may_be)
    killed_on_the_way_back(world, restarted, as_it_may_be)


def test_disturbed_anywhere() -> None:
    disturbed_anywhere(world, restarted, as_it_may_be)


def test_its_steps_take_what_the_runbook_says() -> None:
    permitted(world())
