"""What speaks against a drain: one guard for each kind of risk, each with the flag that takes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from gpuctl.audit.finding import Finding
from gpuctl.facts.fact import given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Each
from gpuctl.nvidia.objects import NodeView
from gpuctl.runbook.drain.budgets import Budget
from gpuctl.runbook.drain.candidates import Candidate, Obstacle, listed, several
from gpuctl.runbook.drain.draining import MOST, Draining, pods_with_verdicts
from gpuctl.runbook.drain.pods import DrainPod
from gpuctl.runbook.drain.victims import Hurt, Served, bounds_of, served
from gpuctl.runbook.guard import Guard, before, blocks, guard, notes, until
from gpuctl.runbook.target import NODE, OPTIONS

_SAYS: Final = {
    Obstacle.SCRATCH: "no pod loses what is in its emptyDir volumes",
    Obstacle.UNMANAGED: "every pod is made anew by somebody",
    Obstacle.PROTECTED: "no pod is in a protected namespace",
    Obstacle.RETURNING: "no pod would come straight back",
    Obstacle.GRACE: "every pod ends within the time of the drain",
}
_REMEDIES: Final = {
    Obstacle.SCRATCH: "let it end by itself, or save what it needs",
    Obstacle.UNMANAGED: "let it end by itself, or delete it yourself",
    Obstacle.PROTECTED: "move it by its own means, or take the namespace out of runbooks.drain.protected",
    Obstacle.RETURNING: "scale its controller down, or take the toleration away",
    Obstacle.GRACE: "give the drain more time (--drain-timeout), or the pod less (--grace-period)",
}

# The step looks at each pod that was not planned, and the API server at budgets. What the policy protects by
# now, and replicas that were lost elsewhere meanwhile, neither would notice.
_TO_BEGIN: Final = before("Drain")
_TO_GO_ON: Final = until("Drain")


def guards_of(drain: Draining) -> tuple[Guard, ...]:
    """All that must hold before these pods may go."""
    return (
        *(_obstacle(drain, each) for each in Obstacle),
        _budgets(drain),
        _single_budgets(drain),
        _few_enough(drain),
        _replicas(drain),
    )


def _named(guard_: Guard, name: str) -> Guard:
    """One of several guards that are made by one function."""
    return replace(guard_, assertion=replace(guard_.assertion, id=name))


def _obstacle(drain: Draining, obstacle: Obstacle) -> Guard:
    when = _TO_GO_ON if obstacle is Obstacle.PROTECTED else _TO_BEGIN

    @guard(_SAYS[obstacle], given(drain.hurt), obstacle.value, again=when)
    def pods(hurt: Each[Ref, Hurt]) -> Iterator[Finding]:
        for each in hurt:
            for kind, why in each.candidate.obstacles:
                if kind is obstacle:
                    yield blocks(each.pod.ref, f"{each.pod.ref}: {why}", remedy=_REMEDIES[obstacle])

    return _named(pods, f"pods-{obstacle.name.lower()}")


def _budgets(drain: Draining) -> Guard:
    @guard(
        "PodDisruptionBudgets allow evictions",
        given(drain.hurt, OPTIONS),
        "--wait-for-budgets",
        again=_TO_BEGIN,
    )
    def budgets_allow(hurt: Each[Ref, Hurt], options: Mapping[str, Any]) -> Iterator[Finding]:
        """Those that allow some, but not all at once, cost time only."""
        for budget, pods in _by_budget(hurt, options):
            forbidden = sorted(str(pod) for pod in pods if budget.forbids(pod))
            allowed = budget.status.disruptions_allowed
            if forbidden:
                yield blocks(
                    budget.ref,
                    f"{budget.ref} allows no eviction now ({budget.numbers}{budget.owner}): "
                    f"{listed(forbidden)}",
                    remedy="scale up what it protects, or wait until its pods are healthy",
                    seen=budget.numbers,
                )
            elif allowed < len(pods):
                yield notes(
                    budget.ref,
                    f"{budget.ref} allows {several(allowed, 'eviction')} at once ({budget.numbers}), and "
                    f"{len(pods)} pods must go: the others wait for those that are made anew",
                )

    return budgets_allow


def _single_budgets(drain: Draining) -> Guard:
    @guard(
        "no pod is under several PodDisruptionBudgets",
        given(drain.hurt, OPTIONS),
        "--disable-eviction",
        again=_TO_BEGIN,
    )
    def one_budget_each(hurt: Each[Ref, Hurt], options: Mapping[str, Any]) -> Iterator[Finding]:
        for each in _evicted(hurt, options):
            if len(each.budgets) > 1 and each.pod.status.phase == "Running":
                names = ", ".join(map(str, each.budgets))
                yield blocks(
                    each.pod.ref,
                    f"{each.pod.ref} is under several PodDisruptionBudgets ({names}): the API server never "
                    "evicts such a pod",
                    remedy="narrow their selectors down, so that one is left",
                )

    return one_budget_each


def _few_enough(drain: Draining) -> Guard:
    @guard(
        "no more pods go than were allowed",
        given(drain.hurt, OPTIONS, NODE),
        "--max-evictions",
        again=_TO_BEGIN,
    )
    def few_enough(hurt: Each[Ref, Hurt], options: Mapping[str, Any], node: NodeView) -> Iterator[Finding]:
        most, count = options.get("max_evictions", MOST), bounds_of(hurt).evictions
        if count > most:
            yield blocks(
                node.ref,
                f"{several(count, 'pod')} of {node.ref} would be evicted, {most} at most may be",
                look=f"kubectl get pods -A --field-selector spec.nodeName={node.metadata.name}",
                remedy=f"allow more, after a look at them: --max-evictions {count}",
            )

    return few_enough


def _replicas(drain: Draining) -> Guard:
    @guard("what serves keeps a Ready replica", given(drain.hurt, OPTIONS), "--last-replica", again=_TO_GO_ON)
    def a_replica_stays(hurt: Each[Ref, Hurt], options: Mapping[str, Any]) -> Iterator[Finding]:
        """A PodDisruptionBudget that needs one keeps one: evictions wait for what is made anew elsewhere."""
        for each in served(hurt):
            if each.ends and (options.get("disable_eviction") is True or not _kept_by_budgets(each)):
                yield blocks(
                    each.leaving[0].pod.ref,
                    f"{each.name} in namespace {each.namespace} loses {len(each.leaving)} of {each.ready} "
                    f"Ready replicas, the last: {listed(sorted(str(one.pod) for one in each.leaving))}",
                    remedy="scale it up first, so that a replica elsewhere is Ready",
                )

    return a_replica_stays


def _kept_by_budgets(served_: Served) -> bool:
    return all(any(budget.status.desired_healthy > 0 for budget in each.budgets) for each in served_.leaving)


def _evicted(hurt: Each[Ref, Hurt], options: Mapping[str, Any]) -> Iterator[Hurt]:
    """Those of which PodDisruptionBudgets decide."""
    if options.get("disable_eviction") is not True:
        yield from (each for each in hurt if each.candidate.evicted)


def _by_budget(
    hurt: Each[Ref, Hurt], options: Mapping[str, Any]
) -> Iterator[tuple[Budget, tuple[DrainPod, ...]]]:
    found: dict[Ref, tuple[Budget, list[DrainPod]]] = {}
    for each in _evicted(hurt, options):
        for budget in each.budgets:
            found.setdefault(budget.ref, (budget, []))[1].append(each.pod)
    yield from ((budget, tuple(pods)) for budget, pods in found.values())


# Where GPUs must be free of everything, also of what a drain leaves alone


@guard("nothing that a drain leaves alone holds a GPU", given(pods_with_verdicts), again=_TO_BEGIN)
def no_resident_holder(pods: Each[Ref, Candidate]) -> Iterator[Finding]:
    """NVIDIA's own DaemonSets leave by themselves before a change; others do not."""
    for each in pods:
        pod = each.pod
        stays = (pod.is_static or pod.of_a_daemon_set) and not pod.over
        if stays and not pod.serves_gpus and each.holds:
            yield blocks(
                pod.ref,
                f"{pod.ref} holds {', '.join(each.holds)} and is left alone, as {each.left}",
                remedy="move its file or its DaemonSet away from the node",
            )
