"""The runbook `taint-unmigged`: pods that want slices are kept off a node whose MIG is not as labelled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpuctl.audit.finding import Finding
from gpuctl.audit.policy import POLICY, Policy
from gpuctl.facts.fact import Maybe, given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Each, Known, State
from gpuctl.nvidia.node import CONFIG, PREFIX, Node
from gpuctl.nvidia.objects import NodeView, quantity
from gpuctl.runbook.drain.candidates import Candidate, listed, several
from gpuctl.runbook.drain.cordon import PATCHES_NODES
from gpuctl.runbook.drain.pods import DrainPod
from gpuctl.runbook.gates import (
    ALWAYS,
    NODES,
    held_by_nobody_else,
    no_ghost,
    pool_shortfall,
    window_not_closed,
)
from gpuctl.runbook.guard import blocks, guard, notes
from gpuctl.runbook.mig.facts import the_GPU_node
from gpuctl.runbook.mig.guards import manager_decides
from gpuctl.runbook.mig.noticing import holders_on_the_node, named, pods_that_wait_for_it, unknown
from gpuctl.runbook.mig.operand_pods import SETS, ServingSet, set_of
from gpuctl.runbook.mig.standing import MigStanding, how_MIG_stands
from gpuctl.runbook.mig.taint_steps import (
    KEY,
    TAINTED_BY,
    PutTaint,
    TakeTaint,
    found,
    mark_of,
    putting,
    taking,
    the_taint,
)
from gpuctl.runbook.mig.taints import TAINTED, TaintedNode, bars_daemons
from gpuctl.runbook.owned import PATCH_ONLY, not_owned_elsewhere, only_printed, printed, to_be_applied
from gpuctl.runbook.records import LEASES, Lease, Run
from gpuctl.runbook.runbook import Option, Runbook
from gpuctl.runbook.step import Step
from gpuctl.runbook.target import NODE, OPTIONS, SELF, Self

ABOUT: Final = f"""\
A node whose MIG is not as its label nvidia.com/mig.config asks still attracts pods: by labels, by what it
offers, or by what the scheduler remembers of it. This runbook taints such a node
{KEY}=CONFIG:NoSchedule: new pods stay off it unless they tolerate that; those that run there
stay. A node that is as labelled is left alone, and so is one that is being changed, or that another holds.

With --reconcile the taint is taken away again where MIG is as labelled by then, and only where gpuctl put it
there. Run it from time to time over all nodes: gpuctl apply taint-unmigged -l nvidia.com/mig.capable=true
--reconcile. With --remove it is taken away whatever the node is like."""


@given(how_MIG_stands, OPTIONS)
def whether_it_taints(stands: MigStanding, options: Mapping[str, Any]) -> bool:
    takes_away = options.get("reconcile") is True or options.get("remove") is True
    return bool(stands.wrong) and not takes_away


# What is to be done: nothing, the taint, or its end


@given(NODE, how_MIG_stands, TAINTED, OPTIONS)
def what_is_to_be_done(
    node: NodeView, stands: MigStanding, tainted: TaintedNode, options: Mapping[str, Any]
) -> tuple[Step, ...]:
    name, uid = node.metadata.name, node.metadata.uid
    there, mark = found(tainted), mark_of(tainted)
    value = there.value if there else ""
    if options.get("remove") is True or options.get("reconcile") is True:
        goes = bool(mark) and (options.get("remove") is True or stands.word == "right")
        return (TakeTaint(node=name, node_uid=uid, mark=mark, value=value),) if goes else ()
    if there is not None or stands.word != "wrong":
        return ()
    return (PutTaint(node=name, node_uid=uid, value=stands.config),)


@given(what_is_to_be_done, OPTIONS)
def steps_of_a_taint(steps: tuple[Step, ...], options: Mapping[str, Any]) -> tuple[Step, ...]:
    return () if only_printed(options) else steps


@given(how_MIG_stands, TAINTED)
def what_a_taint_rests_on(stands: MigStanding, tainted: TaintedNode) -> Mapping[str, str]:
    return {
        "MIG as labelled": stands.word,
        "configuration": stands.config,
        "taint": str(found(tainted) or "none"),
        "tainted by": mark_of(tainted),
    }


# Guards


@guard("it is known whether MIG is as labelled", given(how_MIG_stands, TAINTED, OPTIONS, NODE))
def standing_is_known(
    stands: MigStanding, tainted: TaintedNode, options: Mapping[str, Any], node: NodeView
) -> Iterator[Finding]:
    if options.get("remove") is True:
        yield from _what_removal_does(tainted, node)
        return
    if stands.word == "unknown":
        yield blocks(
            node.ref,
            f"it can't be told whether MIG on {node.ref} is as labelled: {stands.gap}",
            look=f"gpuctl mig show {node.metadata.name}",
            remedy="let gpuctl look into the node: --probe exec, or --probe debug",
        )
    elif stands.word == "under way":
        yield notes(node.ref, f"{node.ref} is left as it is: it is being changed, {stands.under_way}")
    elif stands.word == "not asked for":
        yield notes(node.ref, f"nothing to do: {node.ref} has no label {CONFIG}{_left(tainted)}")
    elif options.get("reconcile") is True:
        yield from _what_reconciling_does(stands, tainted, node)
    else:
        yield from _what_tainting_does(stands, tainted, node)


def _left(tainted: TaintedNode) -> str:
    return "; its taint stays, and --remove takes it away" if found(tainted) else ""


def _what_removal_does(tainted: TaintedNode, node: NodeView) -> Iterator[Finding]:
    if found(tainted) is None and not mark_of(tainted):
        yield notes(node.ref, f"nothing to do: {node.ref} bears no taint {KEY}")
    elif not mark_of(tainted):
        yield blocks(node.ref, _anothers(node), remedy="whoever put it there takes it away")


def _what_reconciling_does(stands: MigStanding, tainted: TaintedNode, node: NodeView) -> Iterator[Finding]:
    there = found(tainted)
    if there is None and not mark_of(tainted):
        yield notes(node.ref, f"nothing to do: {node.ref} bears no taint {KEY}")
    elif not mark_of(tainted):
        yield notes(node.ref, f"{_anothers(node)}: it stays")
    elif stands.wrong:
        yield notes(node.ref, f"the taint of {node.ref} stays: {listed(stands.wrong)}")


def _what_tainting_does(stands: MigStanding, tainted: TaintedNode, node: NodeView) -> Iterator[Finding]:
    there = found(tainted)
    if there is not None:
        whose = f"run {mark_of(tainted)}" if mark_of(tainted) else "another"
        yield notes(node.ref, f"nothing to do: {node.ref} bears the taint {there} of {whose}")
    elif not stands.wrong:
        yield notes(node.ref, f"nothing to do: MIG on {node.ref} is as labelled ({stands.config})")


def _anothers(node: NodeView) -> str:
    return f"the taint {KEY} of {node.ref} bears no mark {TAINTED_BY} of gpuctl's, so it is another's"


@guard(
    "the pods that serve GPUs tolerate the taint",
    given(the_GPU_node, SETS, how_MIG_stands, whether_it_taints),
    "--although-operands-stay-away",
)
def operands_tolerate_it(
    node: Node, sets: Each[Ref, ServingSet], stands: MigStanding, taints: bool
) -> Iterator[Finding]:
    """Those that do not run on, and would not come back: MIG manager restarts them with each change, so that
    the taint itself would keep the node from getting right."""
    if not taints:
        return
    for ref in dict.fromkeys(ref for pods in node.operands.values() for pod in pods if (ref := set_of(pod))):
        of = sets.get(ref)
        if of is not None and any(True for _ in bars_daemons((the_taint(stands.config),), of.tolerations)):
            yield blocks(
                of.ref,
                f"{of.ref} does not tolerate {KEY}: its pod would not come back to {node.name} after a "
                "restart or a change of MIG",
                remedy=f"add {{key: {KEY}, operator: Exists, effect: NoSchedule}} to "
                "spec.daemonsets.tolerations of the ClusterPolicy",
            )


@guard(
    "enough of the node's pool stays untainted",
    given(NODES, NODE, LEASES, POLICY, SELF, whether_it_taints),
)
def pool_stays_untainted(
    nodes: Each[Ref, NodeView],
    node: NodeView,
    leases: Each[Ref, Lease],
    policy: Policy,
    self: Self,
    taints: bool,
) -> Iterator[Finding]:
    """Those that bear the taint already count as out of service. A node that offers nothing now is out of it
    anyhow, whatever its pool: with its operands paused it may even have lost the label that tells that."""
    if not taints or TAINTED_BY in node.metadata.annotations or not _offers(node):
        return
    tainted = {each.metadata.name for each in nodes if TAINTED_BY in each.metadata.annotations}
    yield from pool_shortfall(nodes, node, leases, policy, self, tainted)


def _offers(node: NodeView) -> bool:
    return any(
        quantity(amount) for name, amount in node.status.allocatable.items() if name.startswith(PREFIX)
    )


# Who would notice


@given(
    how_MIG_stands,
    TAINTED,
    Maybe(holders_on_the_node),
    Maybe(pods_that_wait_for_it),
    what_is_to_be_done,
    OPTIONS,
)
def what_a_taint_does(
    stands: MigStanding,
    tainted: TaintedNode,
    holding: State[tuple[Candidate, ...]],
    waiting: State[tuple[DrainPod, ...]],
    steps: tuple[Step, ...],
    options: Mapping[str, Any],
) -> tuple[str, ...]:
    if not steps:
        return ("nothing is changed",)
    goes = any(isinstance(step, TakeTaint) for step in steps)
    lines = _what_removing_does(tainted, waiting) if goes else _what_putting_does(stands, holding, waiting)
    if not only_printed(options):
        return lines
    patch = taking(tainted) if goes else putting(tainted, stands.config)
    return (*lines, *printed(tainted.ref, patch, tainted.metadata))


def _what_removing_does(tainted: TaintedNode, waiting: State[tuple[DrainPod, ...]]) -> tuple[str, ...]:
    there = found(tainted)
    lines = _who_waits(there.value, waiting) if there else ()
    return (f"the taint {there or KEY} goes: new pods may be placed on the node again", *lines)


def _what_putting_does(
    stands: MigStanding, holding: State[tuple[Candidate, ...]], waiting: State[tuple[DrainPod, ...]]
) -> tuple[str, ...]:
    return (
        f"MIG is not as {CONFIG}={stands.config} asks: {listed(stands.wrong)}",
        f"the taint {the_taint(stands.config)} keeps new pods off the node until it is taken away",
        "gpuctl apply taint-unmigged --reconcile does so once MIG is as labelled",
        *_who_stays(stands.config, holding),
        *_who_waits(stands.config, waiting),
    )


def _who_stays(value: str, holding: State[tuple[Candidate, ...]]) -> Iterator[str]:
    yield from unknown("who holds GPUs of the node", holding)
    if not isinstance(holding, Known):
        return
    barred = [each.pod for each in holding.value if not _tolerates(each.pod, value)]
    if not holding.value:
        yield "no pod holds a GPU of the node"
    if len(holding.value) > len(barred):
        yield f"{several(len(holding.value) - len(barred), 'pod')} that hold its GPUs tolerate the taint"
    if barred:
        yield f"{named(barred)} hold its GPUs and stay; the like of them would not be placed here again"


def _who_waits(value: str, waiting: State[tuple[DrainPod, ...]]) -> Iterator[str]:
    yield from unknown("who waits for what the node offers", waiting)
    if not isinstance(waiting, Known):
        return
    barred = [pod for pod in waiting.value if not _tolerates(pod, value)]
    others = [pod for pod in waiting.value if _tolerates(pod, value)]
    if not waiting.value:
        yield "no pod waits for what the node offers"
    if barred:
        yield f"{named(barred)} wait for what it offers, and are kept off by the taint"
    if others:
        yield f"{named(others)} wait for what it offers, and tolerate the taint"


def _tolerates(pod: DrainPod, value: str) -> bool:
    return any(each.tolerates(the_taint(value)) for each in pod.spec.tolerations)


def reverse(run: Run) -> Mapping[str, Any] | None:
    """Of a taint its end; a taint that was taken away comes back where MIG is still not as labelled."""
    steps = [record.step.get("step") for record in run.steps]
    if not steps:
        return None
    return {**run.options, "reconcile": False, "remove": PutTaint.__name__ in steps}


RUNBOOK: Final = Runbook(
    id="taint-unmigged",
    title="keep pods off a node whose MIG is not as labelled",
    about=ABOUT,
    target="node",
    back="the taint is taken away, or put back, if this run did the opposite; where pods have gone since is "
    "not undone",
    guards=(
        *ALWAYS,
        held_by_nobody_else,
        no_ghost,
        window_not_closed,
        manager_decides,
        standing_is_known,
        operands_tolerate_it,
        pool_stays_untainted,
        not_owned_elsewhere(TAINTED),
        to_be_applied,
    ),
    steps=steps_of_a_taint,
    step_types=(PutTaint, TakeTaint),
    options=(
        Option("--reconcile", "take the taint away where MIG is as labelled again, and it is gpuctl's"),
        Option("--remove", "take gpuctl's taint away, whatever the node is like"),
        PATCH_ONLY,
    ),
    preconditions=what_a_taint_rests_on,
    effects=what_a_taint_does,
    reverse=reverse,
    rules=frozenset({PATCHES_NODES}),
    spared=(holders_on_the_node, pods_that_wait_for_it),
)
