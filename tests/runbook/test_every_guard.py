"""Of the runbooks that bring nodes, queues, engines and Kueue's manager back: every guard refuses somewhere.

What they share, the gates, is tried with each here; what is their own, in the table REFUSED of their tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from gpuctl.audit.policy import Policy
from gpuctl.facts.alerts import Alert
from gpuctl.facts.metrics import Labels
from gpuctl.facts.state import Each
from gpuctl.runbook.catalogue import runbook
from gpuctl.runbook.plan import TargetPlan
from gpuctl.runbook.records import Outcome
from gpuctl.runbook.runbook import Runbook
from tests.builders.gpus import pod
from tests.runbook.book_world import BookWorld
from tests.runbook.booked import MANAGER, BookScene
from tests.runbook.kueue import test_limit as limit
from tests.runbook.kueue import test_restart as restart
from tests.runbook.little import NAMESPACE
from tests.runbook.mig import test_device_plugin_restart as plugin
from tests.runbook.mig import test_recover as recover
from tests.runbook.mig import test_taint_unmigged as taint
from tests.runbook.mig.breakages import without
from tests.runbook.mig.mig_scenes import NAME
from tests.runbook.test_gates import NIGHT, firing, journal, lease
from tests.runbook.vllm import test_switch_mode as switch

Object = dict[str, Any]


@dataclass(frozen=True)
class Trouble:
    """What is otherwise around a target: more objects, marks of it, a namespace that is gone, another policy,
    options, and alerts that fire."""

    more: Sequence[Object] = ()
    marks: Mapping[str, str] = field(default_factory=dict)
    gone: str = ""
    policy: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    firing: Each[Labels, Alert] | None = None

    def items(self, there: Sequence[Object]) -> list[Object]:
        """The objects with it."""
        left = [
            each for each in there if (each["kind"], each["metadata"]["name"]) != ("Namespace", self.gone)
        ]
        for each in left:
            if each["metadata"]["name"] == NAME and self.marks:
                each["metadata"].setdefault("annotations", {}).update(self.marks)
        return [*left, *self.more]

    def of(self, policy: Policy) -> Policy:
        """The policy with it."""
        return replace(policy, runbooks=replace(policy.runbooks, **self.policy))


def always(target: str) -> Mapping[str, Trouble]:
    """What makes the gates of every runbook refuse, by the guard."""
    failed = [journal(id_, outcome=Outcome.FAILED) for id_ in ("r7", "r8")]
    return {
        "state-namespace-exists": Trouble(gone=NAMESPACE),
        "no-other-run": Trouble([lease("r9", "gpuctl-of-another", target)]),
        "slot-free": Trouble([lease("r9", "gpuctl-slot-0", "another")], policy={"max_nodes": 1}),
        "few-failures": Trouble(failed),
        "no-alert-fires": Trouble(firing=firing("NodeDown")),
        "reason-given": Trouble(options={"outside_window": True}),
        "window-not-closed": Trouble(policy={"windows": (NIGHT,)}),
    }


def on_a_node() -> Mapping[str, Trouble]:
    """And of those about nodes."""
    database = pod("db-0", NAME, labels={"app": "db"})
    return {
        "held-by-nobody-else": Trouble(marks={"maintenance.nvidia.com/requestor": "x"}),
        "no-blocking-pod": Trouble([database], policy={"blocking_pods": ("app=db",)}),
    }


OVERRIDES = {
    "few-failures": "--ignore-failures",
    "no-alert-fires": "--ignore-alerts",
    "no-blocking-pod": "--ignore-blocking-pods",
    "window-not-closed": "--outside-window",
}
NOTED = {"no-ghost", "last-resort"}  # which never refuse


def in_world(make: Callable[[], BookWorld]) -> Callable[[Trouble], TargetPlan]:
    def planned(trouble: Trouble) -> TargetPlan:
        found = make()
        found.items[:] = trouble.items(found.items)
        found.policy = trouble.of(found.policy)
        found.reader = {**found.reader, "firing": trouble.firing}
        return found.planned(**trouble.options)

    return planned


def in_scene(make: Callable[[], BookScene]) -> Callable[[Trouble], TargetPlan]:
    def planned(trouble: Trouble) -> TargetPlan:
        found = make().with_(**trouble.options)
        found.items[:] = trouble.items(found.items)
        found.policy, found.firing = trouble.of(found.policy), trouble.firing
        return found.plan

    return planned


@dataclass(frozen=True)
class Tried:
    """A runbook, its plan in trouble, and what makes its own guards refuse."""

    book: Runbook
    plan: Callable[[Trouble], TargetPlan]
    own: Sequence[tuple[Any, str, str]]
    target: str

    @property
    def gates(self) -> Mapping[str, Trouble]:
        """Of the shared ones those that it has."""
        there = {each.id for each in self.book.guards}
        every = {**always(self.target), **on_a_node()}
        return {id_: trouble for id_, trouble in every.items() if id_ in there}


BOOKS = [
    Tried(runbook("mig-recover"), in_scene(recover.broken), recover.REFUSED, NAME),
    Tried(runbook("device-plugin-restart"), in_scene(plugin.stale), plugin.REFUSED, NAME),
    Tried(runbook("taint-unmigged"), in_scene(taint.unmigged), taint.REFUSED, NAME),
    Tried(runbook("kueue-restart"), in_world(restart.world), restart.REFUSED, restart.world().target),
    Tried(runbook("queue-limit"), in_world(limit.queue_world), limit.REFUSED, limit.QUEUE),
    Tried(runbook("vllm-switch-mode"), in_world(switch.world), switch.REFUSED, switch.world().target),
]
GATES = [(each, id_) for each in BOOKS for id_ in each.gates]


@pytest.mark.parametrize("tried", BOOKS, ids=lambda each: each.book.id)
def test_without_trouble_nothing_speaks_against_it(tried: Tried) -> None:
    assert tried.plan(Trouble()).blockers == ()


@pytest.mark.parametrize(("tried", "gate"), GATES, ids=[f"{each.book.id}-{id_}" for each, id_ in GATES])
def test_a_gate_refuses_alone_and_by_its_override(tried: Tried, gate: str) -> None:
    blockers = tried.plan(tried.gates[gate]).blockers
    assert {(each.guard, each.override) for each in blockers} == {(gate, OVERRIDES.get(gate, ""))}


@pytest.mark.parametrize("tried", BOOKS, ids=lambda each: each.book.id)
def test_no_guard_is_left_out(tried: Tried) -> None:
    assert {*tried.gates, *(guard for _, guard, _ in tried.own)} | NOTED >= {
        each.id for each in tried.book.guards
    }
    assert set(always("")) <= set(tried.gates)


@pytest.mark.parametrize("tried", BOOKS[:3], ids=lambda each: each.book.id)
def test_the_lock_of_an_earlier_node_of_this_name_is_told_of(tried: Tried) -> None:
    ghost = lease("r9", "gpuctl-of-another", NAME, uid="earlier")
    assert any("is of an earlier node of this name" in note for note in tried.plan(Trouble([ghost])).notes)
    assert not any("earlier node" in note for note in tried.plan(Trouble()).notes)


def test_the_last_resort_says_where_a_new_start_would_do() -> None:
    assert any("MIG manager of" in note and "runs" in note for note in recover.last_resort().plan.notes)
    gone = recover.last_resort()
    without(MANAGER)(gone)
    assert not any("MIG manager of" in note for note in gone.plan.notes)
