"""What a drain is decided by: the pods of the target, who they belong to, and the rules, as facts.

A runbook says which pods must go (`draining`) and takes its guards, bounds, effects and step from the answer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar, cast

from gpuctl.audit.policy import POLICY, Policy
from gpuctl.facts.fact import Fact, Maybe, Named, OnNode, Within, given
from gpuctl.facts.kinds import Kind, Ref, View
from gpuctl.facts.objects import Deployment
from gpuctl.facts.state import Each, Inapplicable, Known, State, merged
from gpuctl.kueue.objects import Job, Workload
from gpuctl.nvidia.holding import ResourceClaim
from gpuctl.runbook.drain.budgets import Budget
from gpuctl.runbook.drain.candidates import Candidate, DrainRules, Mode, Obstacle, Scope, candidate, concerned
from gpuctl.runbook.drain.owners import Controller, DaemonSet, Owners, ReplicaSet, StatefulSet, controllers
from gpuctl.runbook.drain.pods import DrainPod
from gpuctl.runbook.drain.victims import Hurt, Surroundings, bounds_of, effects_of, kind_of_owner, left_alone
from gpuctl.runbook.records import Bounds
from gpuctl.runbook.runbook import Option
from gpuctl.runbook.target import OPTIONS, TARGET

V = TypeVar("V", bound=View)

TIMEOUT: Final = 900
MOST: Final = 64
WITHOUT_BUDGETS: Final = "--disable-eviction"
OPTIONS_OF_A_DRAIN: Final = (
    Option("--delete-emptydir-data", "evict pods that have emptyDir volumes: what is in them is lost"),
    Option("--force", "evict pods that no controller makes anew: they are gone for good"),
    Option("--evict-protected", "evict from namespaces that the policy protects, too"),
    Option("--ignore-returning", "evict pods whose controller may bring them straight back"),
    Option("--last-replica", "evict the last Ready replicas of what serves"),
    Option("--wait-for-budgets", "begin although a PodDisruptionBudget allows nothing now, and wait for it"),
    Option(WITHOUT_BUDGETS, "delete pods in the place of evicting them: PodDisruptionBudgets do not count"),
    Option("--grace-period", "seconds that each pod gets to end; 0: as long as it asks for", 0),
    Option("--drain-timeout", "seconds the drain may take", TIMEOUT),
    Option("--max-evictions", "how many pods may be evicted", MOST),
)


def as_each(state: State[Each[Ref, V]]) -> Each[Ref, V]:
    """A read that may be missing: what is not served is not there, what could not be read is a hole."""
    if isinstance(state, Known):
        return state.value
    return Each() if isinstance(state, Inapplicable) else Each(holes=(state,))


# The rules


@given(POLICY, OPTIONS)
def rules_of_the_drain(policy: Policy, options: Mapping[str, Any]) -> DrainRules:
    """Policy and flags. Flags take risks, they never change what the policy says of a namespace."""
    drain = policy.runbooks.drain
    accepted = (each for each in Obstacle if options.get(each.removeprefix("--").replace("-", "_")) is True)
    return DrainRules(
        modes=tuple((glob, Mode(mode)) for glob, mode in drain.modes.items()),
        evict_after_minutes=drain.evict_after_minutes,
        protected=drain.protected,
        grace=options.get("grace_period") or None,
        timeout=options.get("drain_timeout", TIMEOUT),
        accepted=tuple(accepted),
    )


# The pods of the node, which a run looks at again and again


PODS: Final = OnNode(DrainPod, TARGET)


@given(PODS)
def claims_of_the_pods(pods: Each[Ref, DrainPod]) -> Collection[Ref]:
    return tuple(dict.fromkeys(ref for _, pod in pods.known() if not pod.over for ref in pod.claims))


CLAIMS: Final = Named(ResourceClaim, claims_of_the_pods)


@given(PODS)
def namespaces_of_the_pods(pods: Each[Ref, DrainPod]) -> Collection[str]:
    """Of those that may have to go."""
    found = (pod for _, pod in pods.known() if not (pod.over or pod.of_a_daemon_set or pod.is_static))
    return tuple(sorted({pod.metadata.namespace for pod in found}))


BUDGETS: Final = Within(Budget, namespaces_of_the_pods)


def candidates(
    pods: Each[Ref, DrainPod], claims: State[Each[Ref, ResourceClaim]], rules: DrainRules
) -> Each[Ref, Candidate]:
    """The verdict on each pod."""
    read = as_each(claims)
    return pods.map(lambda pod: candidate(pod, read, rules))


@given(PODS, Maybe(CLAIMS), rules_of_the_drain)
def pods_with_verdicts(
    pods: Each[Ref, DrainPod], claims: State[Each[Ref, ResourceClaim]], rules: DrainRules
) -> Each[Ref, Candidate]:
    return candidates(pods, claims, rules)


# Who they belong to, which is read once


def _controllers(kind: Kind, name: str) -> Fact[Collection[Ref]]:
    def of_the_pods(pods: Each[Ref, DrainPod]) -> Collection[Ref]:
        return tuple(ref for ref in controllers(pod for _, pod in pods.known()) if ref.kind == kind)

    of_the_pods.__name__ = f"{name}_of_the_pods"
    return given(PODS)(of_the_pods)


REPLICA_SETS: Final = Named(ReplicaSet, _controllers(ReplicaSet.of, "ReplicaSets"))
STATEFUL_SETS: Final = Named(StatefulSet, _controllers(StatefulSet.of, "StatefulSets"))
DAEMON_SETS: Final = Named(DaemonSet, _controllers(DaemonSet.of, "DaemonSets"))
JOBS: Final = Named(Job, _controllers(Job.of, "Jobs"))


@given(Maybe(REPLICA_SETS))
def deployments_of_the_pods(sets: State[Each[Ref, ReplicaSet]]) -> Collection[Ref]:
    found = controllers(each for _, each in as_each(sets).known())
    return tuple(ref for ref in found if ref.kind == Deployment.of)


DEPLOYMENTS: Final = Named(Deployment, deployments_of_the_pods)
WORKLOADS: Final = Within(Workload, namespaces_of_the_pods)


@given(Maybe(REPLICA_SETS), Maybe(STATEFUL_SETS), Maybe(DAEMON_SETS), Maybe(JOBS), Maybe(DEPLOYMENTS))
def owners_of_the_pods(*states: State[Each[Ref, Any]]) -> Owners:
    found = (as_each(state) for state in states)
    return Owners(cast("Each[Ref, Controller]", merged(found)))


@given(owners_of_the_pods, Maybe(BUDGETS), Maybe(WORKLOADS))
def surroundings_of_the_pods(
    owners: Owners, budgets: State[Each[Ref, Budget]], workloads: State[Each[Ref, Workload]]
) -> Surroundings:
    return Surroundings(owners, as_each(budgets), as_each(workloads))


def _orphaned(each: Candidate, owners: Owners) -> Candidate:
    """A pod whose controller is gone is as one without: nothing makes it anew, and no DaemonSet wants it."""
    pod = each.pod
    spared = each.left and not (pod.of_a_daemon_set and not pod.over)
    if spared or pod.ending or each.mode is Mode.WAIT or not owners.orphaned(pod):
        return each
    gone = (Obstacle.UNMANAGED, f"its {kind_of_owner(pod)} does not exist any more: it is gone for good")
    return replace(each, left="", obstacles=(*each.obstacles, gone))


# A drain of some of them


@dataclass(frozen=True, eq=False)
class Draining:
    """A drain of the target: those that must go, and what follows from that."""

    scope: Fact[Scope]
    hurt: Fact[Each[Ref, Hurt]]
    bounds: Fact[Bounds]
    effects: Fact[tuple[str, ...]]


def draining(scope: Fact[Scope]) -> Draining:
    """Declares a drain of the pods that a fact tells."""

    @given(pods_with_verdicts, surroundings_of_the_pods, scope)
    def pods_that_must_go(
        verdicts: Each[Ref, Candidate], around: Surroundings, wanted: Scope
    ) -> Each[Ref, Hurt]:
        told = verdicts.map(lambda each: _orphaned(each, around.owners))
        return concerned(told, wanted).map(lambda each: Hurt(each, around))

    @given(pods_that_must_go)
    def how_far_the_drain_goes(hurt: Each[Ref, Hurt]) -> Bounds:
        return bounds_of(hurt)

    @given(pods_that_must_go, pods_with_verdicts)
    def what_the_drain_does(hurt: Each[Ref, Hurt], verdicts: Each[Ref, Candidate]) -> tuple[str, ...]:
        return (*effects_of(hurt), *left_alone(verdicts))

    return Draining(scope, pods_that_must_go, how_far_the_drain_goes, what_the_drain_does)
