"""Making plans from the command line: which targets, what is known of them, and the whole put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from gpuctl.cli.border import INCOMPLETE, Stop

if TYPE_CHECKING:
    from gpuctl.cli.acting import Site
    from gpuctl.runbook.plan import Plan, TargetPlan
    from gpuctl.runbook.planning import Task
    from gpuctl.runbook.runbook import Runbook

_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be planned: one target or those that a selector names, with the runbook's options.
    `valid_for`: seconds in which it may be applied, by policy if None."""

    book: Runbook
    target: str = ""
    selector: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    max_unavailable: int = 1
    valid_for: float | None = None


def make_plan(site: Site, wanted: Wanted) -> Plan:
    """Reads the cluster and plans; writes nothing. Raises Stop for targets that can't be meant."""
    from gpuctl.cli.acting import who_here
    from gpuctl.runbook.plan import Cluster, Plan, sealed
    from gpuctl.runbook.planning import valid_until
    from gpuctl.runbook.records import Person

    book, given = wanted.book, {**wanted.options, "reason": site.acting.reason}
    names = targets(site, wanted)
    now = datetime.now(UTC)
    plan = Plan(
        runbook=book.id,
        options=given,
        cluster=Cluster(
            uid=site.source.cluster_uid, name=site.source.name, server_version=site.source.server_version
        ),
        created_at=now,
        valid_until=valid_until(site.acting.policy, now, wanted.valid_for),
        planner=Person(user=site.user, host=who_here(), at=now, did="planned"),
        targets=_planned(site, [site.task(book, name, given) for name in names]),
        selector=wanted.selector,
        max_unavailable=wanted.max_unavailable,
        reason=site.acting.reason,
        ticket=site.acting.ticket,
    )
    return sealed(plan)


def targets(site: Site, wanted: Wanted) -> tuple[str, ...]:
    """The names of what is to be changed. Raises Stop."""
    book, target, selector = wanted.book, wanted.target, wanted.selector
    only = book.default_target
    if only:
        if selector or target not in ("", only):
            raise Stop(f"{book.id} has one target, {only}: it need not be named")
        return (only,)
    if bool(target) == bool(selector):
        raise Stop("name one target, or several nodes by --selector")
    return (target,) if target else _selected(site, selector)


def _selected(site: Site, selector: str) -> tuple[str, ...]:
    from gpuctl.facts.fact import Objects
    from gpuctl.facts.selectors import parse, selects
    from gpuctl.facts.state import NotKnown
    from gpuctl.nvidia.objects import NodeView

    try:
        wanted = parse(selector)
    except ValueError as error:
        raise Stop(f"--selector: {error}") from error
    nodes = Objects(NodeView)
    try:
        found = [node for node in site.looks()({})([nodes])[nodes] if selects(wanted, node.metadata.labels)]
    except NotKnown as gap:
        raise Stop(f"nodes can't be read: {gap}", INCOMPLETE) from gap
    if not found:
        raise Stop(f"no node has the labels {selector}")
    return tuple(sorted(node.metadata.name for node in found))


def _planned(site: Site, tasks: Sequence[Task]) -> tuple[TargetPlan, ...]:
    from gpuctl.cli import screen
    from gpuctl.runbook.planning import plan_of

    look_with = site.looks()

    def planned(task: Task) -> TargetPlan:
        return plan_of(task, look_with(task.arguments)(task.runbook.needs))

    with screen.Progress(f"reading {site.source.name}").shown(), ThreadPoolExecutor(_AT_ONCE) as pool:
        return tuple(pool.map(planned, tasks))
