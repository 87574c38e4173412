"""Guards that many runbooks share: the time, the alarms, other people and programs, and how much may be out
of service. Each fails closed: what can't be told blocks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any, Final

from gpuctl.audit.finding import Finding
from gpuctl.audit.policy import POLICY, Policy
from gpuctl.facts.alerts import Alert, AlertState
from gpuctl.facts.fact import NOW, Alerts, Maybe, Named, Objects, OnNode, given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.metrics import Labels
from gpuctl.facts.objects import Namespace
from gpuctl.facts.own import STATE_NAMESPACE
from gpuctl.facts.selectors import parse, selects
from gpuctl.facts.state import Each, Inapplicable, State, value
from gpuctl.nvidia.node import UPGRADE
from gpuctl.nvidia.objects import GpuPod, NodeView
from gpuctl.runbook.drain.cordon import CORDONED_BY, SENTINEL_KEPT_OFF_BY
from gpuctl.runbook.guard import always, blocks, guard, notes, until
from gpuctl.runbook.lock import SLOT
from gpuctl.runbook.pool import gpus_of, out_of_service, pool_of
from gpuctl.runbook.records import (
    LEASES,
    TARGET_NAME,
    TARGET_UID,
    Lease,
    Run,
    Standing,
    runs,
)
from gpuctl.runbook.target import NODE, OPTIONS, SELF, TARGET, Self
from gpuctl.runbook.windows import open_until, opens_next

SHOWN: Final = 10  # names in one line
NODES: Final = Objects(NodeView)
PODS: Final = OnNode(GpuPod, TARGET)

_IDLE_UPGRADES: Final = frozenset({"", "upgrade-done"})
_SENTINEL: Final = "dgxc.nvidia.com/nvsentinel-state"
_SENTINEL_CORDON: Final = "k8saas.nvidia.com/cordon-"
_MAINTENANCE: Final = (
    "maintenance.nvidia.com/",
    "nodemaintenance.medik8s.io/",
    "kured.dev/",
    "weave.works/kured",
)
_REMEDIATION: Final = "remediation.medik8s.io/"
_PAST: Final = "-most-recent-reboot-needed"  # of kured: stays on the node after each reboot


@given(STATE_NAMESPACE)
def where_state_is_kept(name: str) -> Collection[Ref]:
    return (Ref(Namespace.of, name),)


# Time


@guard("a maintenance window is open", given(POLICY, NOW), "--outside-window", again=always)
def window_open(policy: Policy, now: datetime) -> Iterator[Finding]:
    """For changes that nobody should make by day: no window at all blocks too."""
    if not policy.runbooks.windows:
        yield blocks(
            _THE_POLICY,
            "no maintenance window is configured",
            look="gpuctl config show",
            remedy="name one under runbooks.windows in gpuctl.yaml",
        )
        return
    yield from _closed(policy, now)


@guard("no maintenance window is closed", given(POLICY, NOW), "--outside-window", again=always)
def window_not_closed(policy: Policy, now: datetime) -> Iterator[Finding]:
    """For smaller changes: only where windows are configured."""
    if policy.runbooks.windows:
        yield from _closed(policy, now)


def _closed(policy: Policy, now: datetime) -> Iterator[Finding]:
    windows = policy.runbooks.windows
    if open_until(windows, now) is not None:
        return
    following = opens_next(windows, now)
    then = f"the next one opens at {following:%a %Y-%m-%d %H:%M} UTC" if following else "none follows"
    yield blocks(
        _THE_POLICY, f"no maintenance window is open; {then}", look="gpuctl config show", remedy="wait for it"
    )


_THE_POLICY: Final = Ref(Namespace.of, "gpuctl.yaml")


# Alarms


@guard("no alert fires", given(Maybe(Alerts()), POLICY, OPTIONS), "--ignore-alerts", again=always)
def no_alert_fires(
    alerts: State[Each[Labels, Alert]], policy: Policy, options: Mapping[str, Any]
) -> Iterator[Finding]:
    """Where an Alertmanager or a Prometheus was named. One that does not answer blocks, and so does one that
    knows nothing of an alert which always fires: it hears from nobody. The alert that a drill is to provoke
    blocks nobody who goes on with it."""
    expected = policy.runbooks.expected_alerts
    if isinstance(alerts, Inapplicable):
        if expected:
            yield _alarmed(f"it can't be told whether {', '.join(expected)} fires: no monitoring was named")
        return
    firing = sorted({alert.name for alert in value(alerts) if alert.state is AlertState.FIRING})
    silent = [name for name in expected if name not in firing]
    if silent:
        yield _alarmed(f"monitoring hears nothing: {', '.join(silent)} should always fire")
    ignored = (*policy.runbooks.ignored_alerts, *expected)
    names = [
        name
        for name in firing
        if name != options.get("expect_alert") and not any(fnmatchcase(name, each) for each in ignored)
    ]
    if names:
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        yield _alarmed(f"alerts fire: {', '.join(names[:SHOWN])}{more}")


def _alarmed(message: str) -> Finding:
    look = "ask the Alertmanager or Prometheus that --alertmanager or --prometheus names"
    return blocks(_THE_POLICY, message, look=look, remedy="resolve that first")


# Pods that nobody may disturb


@given(PODS)
def pods_on_the_node(pods: Each[Ref, GpuPod]) -> Each[Ref, GpuPod]:
    return pods.where(lambda pod: not pod.over)


@guard(
    "no blocking pod is on the node", given(pods_on_the_node, POLICY), "--ignore-blocking-pods", again=always
)
def no_blocking_pod(pods: Each[Ref, GpuPod], policy: Policy) -> Iterator[Finding]:
    selectors = policy.runbooks.blocking_pods
    for pod in pods if selectors else ():
        for selector in selectors:
            if selects(parse(selector), pod.metadata.labels):
                yield blocks(pod.ref, f"{pod.ref} is selected by {selector} of runbooks.blockingPods")


# Others at work


@guard("nobody else holds the node", given(NODE, runs, SELF, STATE_NAMESPACE), again=always)
def held_by_nobody_else(
    node: NodeView, journals: Each[str, Run], self: Self, namespace: str
) -> Iterator[Finding]:
    """Programs that take nodes out of service for reasons of their own, by the marks they leave; and a gpuctl
    that keeps its locks in another namespace, where nobody here sees them."""
    for mark in _foreign_marks(node):
        yield blocks(
            node.ref, f"{node.ref} is held by another: {mark}", remedy="let that come to its end first"
        )
    for name, run in _held_marks(node):
        if run != self.run and journals.get(run) is None:
            yield blocks(
                node.ref,
                f"{node.ref} is held by another gpuctl: {name}={run}, of which namespace {namespace} knows "
                "nothing",
                look="gpuctl runs --state-namespace (that of the others)",
                remedy="let that run come to its end; if it is given up: "
                f"kubectl annotate node {node.metadata.name} {name}-",
            )


def _held_marks(node: NodeView) -> Iterator[tuple[str, str]]:
    """Marks of runs that are under way, or were given up. On a node that is not cordoned any more that of a
    cordon is a left-over."""
    for name in (CORDONED_BY, SENTINEL_KEPT_OFF_BY):
        run = node.metadata.annotations.get(name, "")
        if run and (name != CORDONED_BY or node.spec.unschedulable):
            yield name, run


def _foreign_marks(node: NodeView) -> Iterator[str]:
    labels, annotations = node.metadata.labels, node.metadata.annotations
    if labels.get(_SENTINEL, "") not in ("", "healthy", "none"):
        yield f"NVSentinel, {_SENTINEL}={labels[_SENTINEL]}"
    for name, text in sorted({**labels, **annotations}.items()):
        if name.startswith(_SENTINEL_CORDON):
            yield f"NVSentinel, {name}={text}"
        if name.startswith((*_MAINTENANCE, _REMEDIATION)) and not name.endswith(_PAST):
            yield f"{name}={text}"
    if labels.get(UPGRADE, "") not in _IDLE_UPGRADES:
        yield f"a driver upgrade, {UPGRADE}={labels[UPGRADE]}"


@guard("no other run is at work on the target", given(LEASES, runs, TARGET, SELF))
def no_other_run(
    leases: Each[Ref, Lease], journals: Each[str, Run], name: str, self: Self
) -> Iterator[Finding]:
    """A lock or an unfinished journal of another run blocks, whatever its age. A run that is resumed has its
    own lock, or no other can have it meanwhile."""
    seen = {self.run}
    for lease in leases:
        if lease.relevant and lease.metadata.annotations.get(TARGET_NAME) == name and lease.run not in seen:
            if lease.metadata.name.startswith(SLOT):
                continue
            seen.add(lease.run)
            yield blocks(lease.ref, _locked(lease, name), remedy=_ways_out(lease.run))
    for run in journals:
        if run.target == name and run.state is Standing.UNFINISHED and run.id not in seen:
            seen.add(run.id)
            yield blocks(
                lease_ref(run.id),
                f"run {run.id} ({run.runbook}) on {name} is not finished: at {run.at}",
                look="gpuctl runs",
                remedy=_ways_out(run.id),
            )


def lease_ref(run: str) -> Ref:
    """A run as an object of the state namespace."""
    return Ref(Lease.of, run)


def _locked(lease: Lease, name: str) -> str:
    who = lease.metadata.annotations.get("gpuctl.dev/holder", "somebody")
    return f"{name} is locked by run {lease.run} of {who} since {lease.spec.acquire_time or '?'}"


def _ways_out(run: str) -> str:
    return f"gpuctl resume {run}, gpuctl undo {run}, or, if nobody needs it any more, gpuctl unlock {run}"


@guard("the lock is not of an earlier node of this name", given(LEASES, NODE))
def no_ghost(leases: Each[Ref, Lease], node: NodeView) -> Iterator[Finding]:
    for lease in leases:
        annotations = lease.metadata.annotations
        uid = annotations.get(TARGET_UID, "")
        if annotations.get(TARGET_NAME) == node.metadata.name and uid and uid != node.metadata.uid:
            yield notes(
                lease.ref,
                f"the lock of run {lease.run} is of an earlier node of this name, which is gone; "
                f"gpuctl unlock {lease.run} removes it",
            )


# How much at once


@guard("a slot of the cluster is free", given(LEASES, POLICY, SELF))
def slot_free(leases: Each[Ref, Lease], policy: Policy, self: Self) -> Iterator[Finding]:
    """At most `runbooks.maxNodes` runs at once."""
    slots = (lease for lease in leases if lease.relevant and lease.metadata.name.startswith(SLOT))
    others = {lease.run for lease in slots} - {self.run}
    if len(others) >= policy.runbooks.max_nodes:
        yield blocks(
            lease_ref(", ".join(sorted(others))),
            f"{len(others)} runs are at work or unfinished, runbooks.maxNodes is {policy.runbooks.max_nodes}",
            look="gpuctl runs",
            remedy="finish, undo or unlock them",
        )


@guard(
    "enough of the node's pool stays in service",
    given(NODES, NODE, LEASES, POLICY, SELF),
    again=until("Drain"),
)
def pool_stays(
    nodes: Each[Ref, NodeView], node: NodeView, leases: Each[Ref, Lease], policy: Policy, self: Self
) -> Iterator[Finding]:
    """A pool of no GPUs refuses: then the share can't be told. A node without GPUs is in no pool. Once it is
    drained it gives its pool nothing any more: going on is what brings it back."""
    yield from pool_shortfall(nodes, node, leases, policy, self)


def pool_shortfall(
    nodes: Each[Ref, NodeView],
    node: NodeView,
    leases: Each[Ref, Lease],
    policy: Policy,
    self: Self,
    gone: Collection[str] = (),
) -> Iterator[Finding]:
    """That too little of its pool would be left without the node, and without those that are gone."""
    label = policy.runbooks.pool_label
    pool = pool_of(node, label)
    if not pool and not gpus_of(node):
        return
    if not pool:
        yield blocks(node.ref, f"{node.ref} has no label {label}, so its pool can't be told")
        return
    locked = {
        lease.metadata.annotations.get(TARGET_NAME, "")
        for lease in leases
        if lease.relevant and lease.run != self.run
    }
    members = [each for each in nodes if pool_of(each, label) == pool]
    share = out_of_service(members, {node.metadata.name, *locked, *gone})
    if not share.total:
        yield blocks(node.ref, f"no node of pool {pool} offers GPUs, so the share can't be told")
    elif share.out / share.total > policy.runbooks.max_pool_share:
        yield blocks(
            node.ref,
            f"with {node.metadata.name}, {share} of pool {pool} would be out of service, "
            f"more than runbooks.maxPoolShare {policy.runbooks.max_pool_share:g}",
            look=f"kubectl get nodes -l {label} ",
            remedy="bring nodes of the pool back first, or raise runbooks.maxPoolShare in gpuctl.yaml",
        )


@guard("few runs failed lately", given(runs, POLICY, NOW, SELF), "--ignore-failures")
def few_failures(journals: Each[str, Run], policy: Policy, now: datetime, self: Self) -> Iterator[Finding]:
    """The breaker: what went wrong again and again should be looked at by a person first. Whoever resumes a
    run that failed has looked at it: it does not count against itself."""
    breaker = policy.runbooks.breaker
    since = now - timedelta(hours=breaker.hours)
    failed = [
        run.id
        for run in journals
        if run.updated_at >= since
        and run.failed
        and run.id != self.run
        and not run.members  # of a rolling change, the run that failed counts
    ]
    if len(failed) >= breaker.failures:
        yield blocks(
            lease_ref(failed[-1]),
            f"{len(failed)} runs failed within {breaker.hours:g} h: {', '.join(sorted(failed)[:SHOWN])}",
            look="gpuctl runs",
            remedy="find out why first",
        )


# What the run itself needs


@guard("the state namespace exists", given(Named(Namespace, where_state_is_kept), STATE_NAMESPACE))
def state_namespace_exists(found: Each[Ref, Namespace], name: str) -> Iterator[Finding]:
    ref = Ref(Namespace.of, name)
    if found.get(ref) is None:
        yield blocks(
            ref,
            f"namespace {name} does not exist: locks and journals live there",
            remedy=f"kubectl create namespace {name}, or name another by --state-namespace",
        )


@guard("a reason is given", given(OPTIONS), again=always)
def reason_given(options: Mapping[str, Any]) -> Iterator[Finding]:
    """Whoever acts outside of a window says why."""
    if options.get("outside_window") and not options.get("reason"):
        yield blocks(_THE_POLICY, "--outside-window demands --reason", look="gpuctl apply --help")


ALWAYS: Final = (state_namespace_exists, no_other_run, slot_free, few_failures, no_alert_fires, reason_given)
"""Guards of every runbook."""

NODE_GATES: Final = (*ALWAYS, held_by_nobody_else, no_blocking_pod, pool_stays, no_ghost)
"""Guards of runbooks that take a node out of service."""
