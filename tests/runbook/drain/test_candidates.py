"""The verdict on each pod: all that speaks against its eviction, and nothing where little is different."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuctl.facts.state import Each
from gpuctl.runbook.drain.candidates import Candidate, DrainRules, Mode, Obstacle, Scope, candidate
from gpuctl.runbook.drain.pods import DrainPod
from tests.memory import A_MOMENT
from tests.runbook.drain import scenes

RULES = DrainRules(
    protected=("kube-system", "infra-*"), modes=(("batch-*", Mode.WAIT), ("slow", Mode.EVICT_AFTER))
)
TOLERANT = {"operator": "Exists"}


def judged(made: dict[str, Any], rules: DrainRules = RULES) -> Candidate:
    return candidate(msgspec.json.decode(msgspec.json.encode(made), type=DrainPod), Each(), rules)


def obstacles(made: dict[str, Any], rules: DrainRules = RULES) -> set[Obstacle]:
    return {kind for kind, _ in judged(made, rules).obstacles}


SCRATCH = {"volumes": [{"name": "tmp", "emptyDir": {}}]}
CACHE = {"volumes": [{"name": "tmp", "hostPath": {"path": "/cache"}}]}


@pytest.mark.parametrize(
    ("obstacle", "blocked", "silent"),
    [
        (Obstacle.SCRATCH, {"spec": SCRATCH}, {"spec": CACHE}),
        (Obstacle.UNMANAGED, {"owner": None}, {"owner": ("Job", "train")}),
        (Obstacle.PROTECTED, {"namespace": "kube-system"}, {"namespace": "kube-systems"}),
        (Obstacle.PROTECTED, {"namespace": "infra-dns"}, {"namespace": "infra"}),
        (
            Obstacle.RETURNING,
            {"spec": {"tolerations": [TOLERANT]}},
            {"spec": {"tolerations": [{**TOLERANT, "key": "nvidia.com/gpu"}]}},
        ),
        (
            Obstacle.RETURNING,
            {"spec": {"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]}},
            {"spec": {"tolerations": [{**TOLERANT, "effect": "NoExecute"}]}},
        ),
        (
            Obstacle.GRACE,
            {"spec": {"terminationGracePeriodSeconds": 901}},
            {"spec": {"terminationGracePeriodSeconds": 900}},
        ),
    ],
)
def test_each_obstacle_alone_and_the_slightly_different_pod_that_has_none(
    obstacle: Obstacle, blocked: dict[str, Any], silent: dict[str, Any]
) -> None:
    assert obstacles(scenes.pod(**blocked)) == {obstacle}
    assert obstacles(scenes.pod(**silent)) == set()


def test_one_obstacle_hides_no_other() -> None:
    made = scenes.pod(
        namespace="kube-system", owner=None, spec={**SCRATCH, "terminationGracePeriodSeconds": 86400}
    )
    assert obstacles(made) == {Obstacle.SCRATCH, Obstacle.UNMANAGED, Obstacle.PROTECTED, Obstacle.GRACE}


def test_a_grace_that_was_asked_for_takes_the_place_of_the_pods_own() -> None:
    made = scenes.pod(spec={"terminationGracePeriodSeconds": 86400})
    assert obstacles(made, msgspec.structs.replace(RULES, grace=30)) == set()


@pytest.mark.parametrize(
    ("left", "silent", "why"),
    [
        ({"owner": ("DaemonSet", "dcgm")}, {"owner": ("ReplicaSet", "dcgm")}, "it belongs to a DaemonSet"),
        (
            {"annotations": {"kubernetes.io/config.mirror": "x"}},
            {"annotations": {"kubernetes.io/config.source": "api"}},
            "the kubelet runs it from a file",
        ),
        ({"status": {"phase": "Succeeded"}}, {"status": {"phase": "Pending"}}, "it is over"),
        (
            {"labels": {"app.kubernetes.io/managed-by": "gpuctl"}},
            {"labels": {"app.kubernetes.io/managed-by": "helm"}},
            "gpuctl made it to look into the node",
        ),
    ],
)  # fmt: skip
def test_what_is_left_alone_has_no_obstacle(left: dict[str, Any], silent: dict[str, Any], why: str) -> None:
    verdict = judged(scenes.pod(**{"spec": SCRATCH, **left}))
    assert verdict.left == why
    assert not verdict.obstacles
    assert not verdict.concerned(Scope.ALL)
    assert judged(scenes.pod(**silent)).concerned(Scope.ALL)


def test_pods_without_gpus_stay_where_gpus_are_meant() -> None:
    without, with_ = judged(scenes.pod(asks={})), judged(scenes.pod())
    assert (without.concerned(Scope.GPU), without.concerned(Scope.ALL)) == (False, True)
    assert (with_.concerned(Scope.GPU), with_.concerned(Scope.ALL)) == (True, True)


def test_modes_go_by_namespace() -> None:
    assert judged(scenes.pod(namespace="batch-a")).mode is Mode.WAIT
    assert judged(scenes.pod(namespace="slow")).mode is Mode.EVICT_AFTER
    assert judged(scenes.pod(namespace="batch")).mode is Mode.EVICT
    assert not judged(scenes.pod(namespace="batch-a", owner=None)).obstacles  # nobody evicts it
    assert judged(scenes.pod(namespace="slow", owner=None)).obstacles


def test_a_pod_on_its_way_out_is_not_asked_again() -> None:
    made = scenes.pod(owner=None, deletionTimestamp=scenes.stamp(30))
    assert judged(made).concerned(Scope.ALL)
    assert not judged(made).obstacles
    assert not judged(made).evicted


@pytest.mark.parametrize(("minutes", "due"), [(59, False), (60, True), (61, True)])
def test_time_to_end_is_over_after_the_minutes_of_the_policy(minutes: int, due: bool) -> None:
    assert RULES.due(A_MOMENT, A_MOMENT + timedelta(minutes=minutes)) is due


@pytest.mark.parametrize(
    ("labels", "selector", "serves"),
    [
        ({"app": "nvidia-device-plugin-daemonset"}, {}, True),
        ({}, {"nvidia.com/gpu.deploy.dcgm": "true"}, True),
        ({"app": "inference"}, {"nvidia.com/gpu.present": "true"}, False),
    ],
)
def test_nvidias_own_daemon_sets_are_known(
    labels: dict[str, str], selector: dict[str, str], serves: bool
) -> None:
    made = scenes.pod(owner=("DaemonSet", "x"), labels=labels, spec={"nodeSelector": selector})
    assert judged(made).pod.serves_gpus is serves
    assert not judged(scenes.pod(labels=labels, spec={"nodeSelector": selector})).pod.serves_gpus


PODS = st.builds(
    scenes.pod,
    namespace=st.sampled_from(["team-a", "kube-system", "infra-x", "batch-1", "slow"]),
    owner=st.sampled_from([None, ("ReplicaSet", "a"), ("DaemonSet", "b"), ("Job", "c"), ("Odd", "d")]),
    asks=st.dictionaries(st.sampled_from([scenes.GPU, "nvidia.com/mig-1g.10gb"]), st.integers(0, 8)),
    spec=st.fixed_dictionaries(
        {},
        optional={
            "tolerations": st.lists(
                st.sampled_from([TOLERANT, {"key": "a"}, {**TOLERANT, "effect": "NoExecute"}])
            ),
            "volumes": st.lists(st.sampled_from([*SCRATCH["volumes"], *CACHE["volumes"]])),
            "terminationGracePeriodSeconds": st.integers(0, 10**6),
        },
    ),
    status=st.fixed_dictionaries(
        {}, optional={"phase": st.sampled_from(["Running", "Pending", "Failed", ""])}
    ),
)


@settings(max_examples=200, deadline=None)
@given(PODS, st.floats(1, 10**5))
def test_every_pod_has_one_fate_and_accepting_risks_changes_none(
    made: dict[str, Any], timeout: float
) -> None:
    rules = msgspec.structs.replace(RULES, timeout=timeout)
    accepted = msgspec.structs.replace(rules, accepted=tuple(Obstacle))
    verdict, other = judged(made, rules), judged(made, accepted)
    assert (verdict.left, verdict.mode, verdict.obstacles) == (other.left, other.mode, other.obstacles)
    assert not (verdict.left and (verdict.obstacles or verdict.concerned(Scope.ALL)))
    if verdict.concerned(Scope.GPU):
        assert verdict.concerned(Scope.ALL)
    if verdict.mode is Mode.WAIT:
        assert not verdict.obstacles
