"""The runbook vllm-switch-mode: a rollout that ends, verified by the new pods' own logs, and the way back."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from gpuctl.facts.state import Reason, Unknown
from gpuctl.runbook.records import Outcome
from gpuctl.runbook.vllm.engine_workloads import SWITCHED_BY
from gpuctl.runbook.vllm.switch_mode import RUNBOOK, reverse
from gpuctl.runbook.vllm.switch_steps import RECREATED_BY
from tests.builders import vllm as make
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

MODEL = "acme/chat-7b"
TO_EAGER, TO_GRAPHS = {"to": "eager"}, {"to": "graphs"}
RECREATE = {**TO_EAGER, "recreate": True}


class Cluster:
    """Plays the Deployment controller, scheduler and engines. `logs`: what an engine prints, by its words."""

    def __init__(self, free: int = 1) -> None:
        self.free = free
        self.logs: dict[tuple[str, str], str] = {}
        self.shown: Callable[[bool], str] = lambda eager: make.eager_log() if eager else make.graphs_log()
        self.was: Object = {}
        self.stops: list[str] = []

    def __call__(self, items: list[Object], call: Call | None) -> None:
        workload = _workload(items)
        template = workload["spec"]["template"]
        if not self.was:
            self.was = copy.deepcopy(template)
        changed = call is not None and call.verb == "patch" and call.ref.kind.kind == workload["kind"]
        if changed:
            workload["metadata"]["generation"] = workload["metadata"].get("generation", 1) + 1
            workload["status"]["observedGeneration"] = workload["metadata"]["generation"]
        if template != self.was:
            self._roll(items, workload)

    def _roll(self, items: list[Object], workload: Object) -> None:
        replicas = workload["spec"]["replicas"]
        status = {"observedGeneration": workload["metadata"]["generation"], "replicas": replicas}
        strategy = workload["spec"].get("strategy", {}).get("type", "")
        if strategy == "RollingUpdate" and not self.free:  # the deadlock
            status |= {"replicas": replicas + 1, "updatedReplicas": 1, "readyReplicas": replicas}
            workload["status"] = status
            return
        self.stops.append(strategy)
        self.was = copy.deepcopy(workload["spec"]["template"])
        items[:] = [each for each in items if each["kind"] != "Pod"]
        items.extend(self.pods(workload))
        workload["status"] = {**status, "updatedReplicas": replicas, "readyReplicas": replicas}

    def pods(self, workload: Object) -> list[Object]:
        template = workload["spec"]["template"]
        made = []
        for number in range(workload["spec"]["replicas"]):
            name = f"chat-{workload['metadata'].get('generation', 1)}-{number}"
            pod = make.pod(
                name,
                *copy.deepcopy(template["spec"]["containers"]),
                annotations=template["metadata"].get("annotations", {}),
            )
            pod["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
            made.append(pod)
            words = template["spec"]["containers"][0]["args"]
            self.logs[name, "vllm"] = self.shown("--enforce-eager" in words)
        return made


def _workload(items: list[Object]) -> Object:
    return next(each for each in items if each["kind"] in ("Deployment", "StatefulSet"))


def world(
    options: Mapping[str, Any] | None = None,
    *args: str,
    free: int = 1,
    kind: str = "Deployment",
    about: Mapping[str, Any] | None = None,
    **spec: Any,
) -> BookWorld:
    played = Cluster(free)
    workload = make.deployment("chat", make.container(args or (MODEL,)), **spec)
    workload["kind"] = kind
    if kind != "Deployment":
        del workload["spec"]["strategy"]
    workload["metadata"] |= {"uid": "u-chat", "generation": 1, **(about or {})}
    replicas = workload["spec"]["replicas"]
    names = ("replicas", "updatedReplicas", "readyReplicas")
    workload["status"] = {"observedGeneration": 1, **dict.fromkeys(names, replicas)}
    items = [workload, make.node(nvidia__com__gpu=0), STATE]
    items[1]["status"]["allocatable"] = {"nvidia.com/gpu": str(replicas + free)}
    items += played.pods(workload)
    target = "serving/chat" if kind == "Deployment" else "statefulset/serving/chat"
    return BookWorld(
        items=items,
        book=RUNBOOK,
        target=target,
        options=TO_EAGER if options is None else options,
        reader={"written": played.logs},
        reacts=played,
    )


def words(found: BookWorld) -> list[str]:
    (container,) = _workload(found.items)["spec"]["template"]["spec"]["containers"]
    return list(container["args"])


def marks(found: BookWorld) -> set[str]:
    workload = _workload(found.items)
    places = (workload["metadata"], workload["spec"]["template"]["metadata"])
    return {
        name for each in places for name in each.get("annotations", {}) if name in (SWITCHED_BY, RECREATED_BY)
    }


# How it goes


def test_beside_the_old_pod_where_a_gpu_is_free() -> None:
    found = world()
    plan = found.planned()
    assert not plan.blockers
    text = "\n".join(plan.effects)
    assert (
        "container vllm: graphs (FULL_AND_PIECEWISE) -> eager: --enforce-eager is added to its args" in text
    )
    assert "room for it on gpu-1; nothing is away" in text
    assert "a factor of 2 to 7" in text
    assert found.start().outcome is Outcome.SUCCEEDED
    assert words(found) == [MODEL, "--enforce-eager"]
    result = found.run().result
    assert result["mode"] == "eager"
    assert "enforce_eager=True" in result["log"][0] or result["log"]
    assert reverse(found.run()) == {**found.run().options, "to": "graphs"}


def test_back_to_graphs() -> None:
    found = world(TO_GRAPHS, MODEL, "--enforce-eager")
    assert "graphs take 0.2 to 2.5 GiB" in "\n".join(found.planned().effects)
    assert found.start().outcome is Outcome.SUCCEEDED
    assert words(found) == [MODEL]


def test_recreated_where_none_is_free_and_the_strategy_is_as_before_at_the_end() -> None:
    found = world(RECREATE, free=0)
    plan = found.planned()
    assert not plan.blockers
    assert any(line.startswith("OUTAGE: its one pod end before new ones start") for line in plan.effects)
    assert found.start().outcome is Outcome.SUCCEEDED
    workload = _workload(found.items)
    assert workload["spec"]["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"},
    }
    assert found.reacts.stops == ["Recreate"]  # type: ignore[attr-defined]
    assert marks(found) == {SWITCHED_BY}


def test_a_new_pod_that_a_queue_admits_needs_quota_too() -> None:
    found = world()
    assert not any("LocalQueue" in line for line in found.planned().effects)
    template = _workload(found.items)["spec"]["template"]["metadata"]
    template["labels"] = {**template.get("labels", {}), "kueue.x-k8s.io/queue-name": "serving"}
    assert any("LocalQueue serving: a new one needs quota" in line for line in found.planned().effects)
    found.options = RECREATE
    assert not any("LocalQueue" in line for line in found.planned().effects)


@pytest.mark.parametrize(
    ("policy", "told"),
    [({}, True), ({"podManagementPolicy": "Parallel"}, False)],
    ids=["ordered", "parallel"],
)
def test_that_a_stateful_set_replaces_no_broken_pod_is_told(policy: Mapping[str, Any], told: bool) -> None:
    def no_replacement(items: list[Object], call: Call | None) -> None:
        if call is not None and call.ref.kind.kind == "StatefulSet":
            _workload(items)["status"]["updatedReplicas"] = 0

    found = world({**TO_EAGER, "start_timeout": 1.0}, kind="StatefulSet", **policy)
    found.reacts = no_replacement
    effects, ending = "\n".join(found.planned().effects), found.start()
    assert ending.outcome is Outcome.TIMED_OUT
    for text in (effects, ending.why):
        assert ("kubectl -n serving delete pod NAME lets it go on" in text) is told


def test_a_stateful_set_ends_its_pod_first() -> None:
    found = world(kind="StatefulSet", free=0)
    assert any(line.startswith("OUTAGE") for line in found.planned().effects)
    assert found.start().outcome is Outcome.SUCCEEDED
    assert words(found) == [MODEL, "--enforce-eager"]


# What the new pods say


def test_a_new_pod_that_runs_otherwise_is_a_failure_and_undo_brings_the_old_template() -> None:
    found = world()
    found.reacts.shown = lambda _eager: make.graphs_log()  # type: ignore[attr-defined]
    ending = found.start()
    assert ending.outcome is Outcome.FAILED
    assert "runs graphs (FULL_AND_PIECEWISE) all the same" in ending.why
    assert found.continued(back=True).outcome is Outcome.REVERTED
    as_before(found)


def test_a_new_pod_that_crashes_is_a_failure() -> None:
    found = world()
    played = found.reacts

    def crashes(items: list[Object], call: Call | None) -> None:
        played(items, call)
        for pod in items:
            if pod["kind"] == "Pod" and SWITCHED_BY in pod["metadata"].get("annotations", {}):
                pod["status"]["conditions"] = []
                pod["status"]["containerStatuses"][0] |= {"ready": False, "restartCount": 3}

    found.reacts = crashes
    ending = found.start()
    assert ending.outcome is Outcome.FAILED
    assert "fails again and again to start" in ending.why


def test_what_somebody_changes_in_between_is_left_alone() -> None:
    found = world()
    played = found.reacts

    def changes(items: list[Object], call: Call | None) -> None:
        if call is not None and call.verb == "create" and call.ref.kind.kind == "ConfigMap":
            _workload(items)["spec"]["template"]["spec"]["containers"][0]["args"] = [MODEL, "--seed=1"]
        played(items, call)

    found.reacts = changes
    ending = found.start()
    assert ending.outcome is Outcome.FAILED
    assert "somebody else changed how" in ending.why
    assert words(found) == [MODEL, "--seed=1"]


# Guards, each with its silent twin


def unread(found: BookWorld, reason: Reason = Reason.FORBIDDEN) -> BookWorld:
    """Its pods' logs can't be read."""
    gap = Unknown(reason, "no logs")
    found.reader = {"written": dict.fromkeys(found.reader["written"], gap)}
    return found


TAINT = {"key": "team", "value": "b", "effect": "NoSchedule"}


def affine(product: str) -> Object:
    """What a pod requires of its node."""
    wanted = {"key": "nvidia.com/gpu.product", "operator": "In", "values": [product]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def placed(node: Object, **pod: Any) -> BookWorld:
    """Its node is so, and so are its pods."""
    found = world()
    about = found.items[1]
    about |= {"spec": node.get("spec", {}), "status": {**about["status"], **node.get("status", {})}}
    _workload(found.items)["spec"]["template"]["spec"] |= pod
    return found


REFUSED: list[tuple[Callable[[], BookWorld], str, str]] = [
    (lambda: world(TO_GRAPHS), "is-plain", ""),
    (lambda: world({"to": "fast"}), "is-plain", ""),
    (lambda: world(TO_EAGER, MODEL, "--config=/x.yaml"), "is-plain", ""),
    (lambda: world({**TO_EAGER, "container": "other"}), "is-plain", ""),
    (lambda: world(free=0), "rollout-ends", "--recreate"),
    (
        lambda: placed({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}),
        "rollout-ends",
        "--recreate",
    ),
    (lambda: placed({"spec": {"taints": [TAINT]}}), "rollout-ends", "--recreate"),
    (lambda: placed({}, affinity=affine("NVIDIA-H100")), "rollout-ends", "--recreate"),
    (lambda: world(replicas=0), "rolls-out", ""),
    (lambda: world(paused=True), "rolls-out", ""),
    (lambda: world(about={"generation": 2}), "rolls-out", ""),
    (lambda: world(kind="StatefulSet", updateStrategy={"type": "OnDelete"}), "rolls-out", ""),
    (
        lambda: world(
            kind="StatefulSet",
            updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"partition": 1}},
        ),
        "rolls-out",
        "",
    ),
    (lambda: world(RECREATE, kind="StatefulSet"), "recreate-is-of-deployments", ""),
    (
        lambda: world(about={"annotations": {"argocd.argoproj.io/tracking-id": "x"}}),
        "not-owned-elsewhere",
        "--although-owned",
    ),
    (lambda: world({**TO_EAGER, "patch_only": True}), "to-be-applied", ""),
    (lambda: unread(world()), "logs-can-be-read", ""),
]


@pytest.mark.parametrize(("found", "guard", "override"), REFUSED)
def test_a_guard_refuses(found: Callable[[], BookWorld], guard: str, override: str) -> None:
    refused = found()
    blockers = [each for each in refused.planned().blockers if each.guard == guard]
    assert {each.override for each in blockers} == {override}
    if override:
        assert not refused.against(**{override.removeprefix("--").replace("-", "_"): True})
    else:
        assert refused.start().outcome is Outcome.REFUSED
        assert not marks(refused)


@pytest.mark.parametrize(
    "found",
    [
        lambda: world({**TO_EAGER, "container": "vllm"}),
        lambda: world(RECREATE, free=0),
        lambda: placed({"spec": {"taints": [TAINT]}}, tolerations=[{"operator": "Exists"}]),
        lambda: placed({}, affinity=affine("NVIDIA-L4")),
        lambda: world(
            free=0,
            strategy={"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}},
        ),
        lambda: world(free=0, strategy={"type": "Recreate"}),
        lambda: world(kind="StatefulSet", free=0),
        lambda: unread(world(), Reason.TIMEOUT),
    ],
)
def test_its_twin_is_silent(found: Callable[[], BookWorld]) -> None:
    assert not found().against()


def test_the_patch_is_printed_and_nothing_is_changed() -> None:
    owned = {"annotations": {"meta.helm.sh/release-name": "chat"}}
    found = world({**TO_EAGER, "patch_only": True}, about=owned)
    plan = found.planned()
    text = "\n".join(plan.effects)
    assert '"/spec/template/spec/containers/0/args", "value": ["acme/chat-7b", "--enforce-eager"]}]' in text
    assert "it belongs into the values of that Helm release" in text
    assert {each.guard for each in plan.blockers} == {"to-be-applied"}
    assert plan.steps == ()


# Killed


def switched(found: BookWorld) -> None:
    assert words(found) == [MODEL, "--enforce-eager"]
    assert RECREATED_BY not in marks(found)
    assert _workload(found.items)["spec"]["strategy"]["type"] == "RollingUpdate"


def as_before(found: BookWorld) -> None:
    assert words(found) == [MODEL]
    assert not marks(found)
    assert _workload(found.items)["spec"]["strategy"]["type"] == "RollingUpdate"
    pods = [each for each in found.items if each["kind"] == "Pod"]
    assert [each["spec"]["containers"][0]["args"] for each in pods] == [[MODEL]]


@pytest.mark.parametrize("make_it", [world, lambda: world(RECREATE, free=0)], ids=["beside", "recreated"])
def test_killed_anywhere(make_it: Callable[[], BookWorld]) -> None:
    assert writes(make_it) > 3
    killed_anywhere(make_it, switched, as_before)
    killed_on_the_way_back(make_it, switched, as_before)


@pytest.mark.parametrize("make_it", [world, lambda: world(RECREATE, free=0)], ids=["beside", "recreated"])
def test_disturbed_anywhere(make_it: Callable[[], BookWorld]) -> None:
    disturbed_anywhere(make_it, switched, as_before)


def test_its_steps_take_what_the_runbook_says() -> None:
    permitted(world(RECREATE, free=0))
