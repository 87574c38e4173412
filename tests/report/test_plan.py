"""A plan on a terminal: everything a person needs to decide, and nothing that a cluster could make of it."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any

from rich.console import Console

from gpuctl.report.plan import draw_plan
from gpuctl.report.text import canvas
from gpuctl.runbook.guard import Blocker
from gpuctl.runbook.owned import to_be_applied
from gpuctl.runbook.plan import Cluster, Plan, PlannedStep, TargetPlan, sealed
from gpuctl.runbook.records import Bounds, Person

NOW = datetime(2026, 11, 30, 10, tzinfo=UTC)
EVIL = "a\x1b[31mb\nc\u202ed"
SHOWN = "a\\x1b[31mb\\nc\\u202ed"


def drawn(*targets: TargetPlan, back: str = "the old config", **more: Any) -> str:
    about: dict[str, Any] = {
        "runbook": "little",
        "options": {},
        "cluster": Cluster(uid="c1", name="lab"),
        "created_at": NOW,
        "valid_until": NOW,
        "planner": Person(user="ana", host="ana@bastion", at=NOW),
        **more,
    }
    text = io.StringIO()
    draw_plan(sealed(Plan(targets=targets, **about)), back, canvas(Console(file=text, width=400)))
    return text.getvalue()


def a_target(name: str = "gpu-1", **more: Any) -> TargetPlan:
    return TargetPlan(target=name, **more)


def a_step(says: str, seconds: float, *, held: bool = False) -> PlannedStep:
    return PlannedStep(says=says, undoes="", seconds=seconds, held=held, step={})


def blocker(**more: Any) -> Blocker:
    return Blocker(**{"guard": "moon", "message": "the moon is a sickle", **more})


def test_what_would_be_done_to_whom_and_for_how_long() -> None:
    text = drawn(
        a_target(
            effects=("gpu 0: 7x 1g.10gb -> 2x 3g.40gb",),
            notes=("the moon is up",),
            steps=(a_step("cordon", 120.0, held=True), a_step("drain", 3600.0), a_step("wait", 90.0)),
            bounds=Bounds(evictions=2, namespaces=("a", "b"), owner_kinds=("Job",), budgets=("a/db",)),
        )
    )
    for line in (
        "little gpu-1",
        "cluster lab, planned by ana",
        "gpu 0: 7x 1g.10gb -> 2x 3g.40gb",
        "1. cordon, until the end (at most 2 min)",
        "2. drain (at most 60 min)",
        "3. wait (at most 90 s)",
        "at most 2 evictions, in a, b, of pods of Job, under a/db",
        "undo: the old config",
        "can be applied until 2026-11-30 10:00:00Z; nothing was changed",
    ):
        assert line in text
    assert "the moon is up" in text


def test_a_plan_that_evicts_nobody_says_nothing_of_evictions() -> None:
    assert "evictions" not in drawn(a_target())
    assert "of pods of no owner" in drawn(a_target(bounds=Bounds(evictions=1, namespaces=("a",))))


def test_every_blocker_with_its_override_or_that_there_is_none() -> None:
    text = drawn(
        a_target(
            blockers=(
                blocker(override="--force", look="kubectl get moon", remedy="wait"),
                blocker(guard="night", message="somebody sleeps"),
            )
        )
    )
    assert "the moon is a sickle" in text
    assert "guard moon, override: --force" in text
    assert "see: kubectl get moon" in text
    assert "do: wait" in text
    assert "guard night, no override" in text
    assert "blocked: 2 things speak against it; nothing was changed" in text
    assert "at your own risk" not in text


def test_where_all_can_be_overridden_the_flags_are_named() -> None:
    text = drawn(a_target(blockers=(blocker(override="--force"), blocker(override="--dark"))))
    assert "with --dark --force it could be applied, at your own risk" in text
    assert "blocked: 1 thing speaks against it" in drawn(a_target(blockers=(blocker(),)))


def test_of_flags_that_say_nothing_by_themselves_what_they_demand_is_named_too() -> None:
    blockers = tuple(blocker(override=each) for each in ("--outside-window", "--max-evictions"))
    text = drawn(a_target(blockers=blockers))
    assert "with --max-evictions COUNT --outside-window --reason WHY it could be applied" in text


def test_what_was_overridden_stays_in_sight() -> None:
    text = drawn(a_target(overridden=(blocker(override="--force"),)))
    assert "overridden by --force: the moon is a sickle" in text
    assert "can be applied" in text


def test_several_targets_each_under_its_name() -> None:
    text = drawn(
        a_target("gpu-1"), a_target("gpu-2", blockers=(blocker(),)), selector="pool=a", max_unavailable=2
    )
    assert "little pool=a: 2 targets, 2 at once" in text
    assert text.index("gpu-1") < text.index("gpu-2") < text.index("the moon is a sickle")


def test_nothing_of_a_cluster_reaches_the_terminal_as_it_is() -> None:
    text = drawn(
        a_target(
            EVIL,
            effects=(EVIL,),
            notes=(EVIL,),
            steps=(a_step(EVIL, 1.0),),
            bounds=Bounds(evictions=1, namespaces=(EVIL,), owner_kinds=(EVIL,), budgets=(EVIL,)),
            blockers=(blocker(message=EVIL, look=EVIL, remedy=EVIL, override=EVIL, guard=EVIL),),
            overridden=(blocker(message=EVIL, override=EVIL),),
        ),
        a_target(EVIL),
        back=EVIL,
        selector=EVIL,
        cluster=Cluster(uid="c1", name=EVIL),
        planner=Person(user=EVIL, host="h", at=NOW),
    )
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert text.count(SHOWN) >= 14


def test_a_patch_that_is_only_printed_is_not_called_blocked() -> None:
    only = blocker(guard=to_be_applied.id)
    text = drawn(a_target(effects=("the patch: kubectl patch x",), blockers=(only,)))
    assert "the patch: kubectl patch x" in text
    assert "only printed; nothing was changed" in text
    assert "blocked" not in text
    other = drawn(a_target(blockers=(only, blocker())))
    assert "blocked: 2 things speak against it" in other
