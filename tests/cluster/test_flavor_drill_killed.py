"""Drills that are killed, at each of their steps: taken back or resumed, nothing of them remains.

Several drill at once, each with a journal and locks in a namespace of its own: so the file takes minutes, and
the drills must not disturb each other either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from . import gpuctl
from .bed import Bed
from .drilling import Person, left, nobody_else_disturbed, several
from .test_queue_growth import Queues

MISSING = "--force-missing"
STEPS = {(): 9, (MISSING,): 12}
AT_ONCE = 4


def at_once(bed: Bed, folder: Path, steps: Sequence[int], drill: Callable[[Person, int], None]) -> None:
    """One drill for each step, a few at a time. Raises all that went wrong, with the step at which it did."""
    failures = []
    with several(bed, folder, len(steps)) as people, ThreadPoolExecutor(AT_ONCE) as pool:
        drills = {
            step: pool.submit(drill, driller, step) for driller, step in zip(people, steps, strict=True)
        }
        for step, each in drills.items():
            failure = each.exception()
            if isinstance(failure, Exception):
                failure.add_note(f"killed at step {step}")
                failures.append(failure)
    if failures:
        raise ExceptionGroup("drills that were killed", failures)


def test_a_killed_drill_is_undone_from_where_it_was(bed: Bed, driller: Person, busy_queue: Queues) -> None:
    with nobody_else_disturbed(bed):
        driller.plan("flavor-drill", MISSING)
        run = driller.killed_at(7)  # the queue stands still
        assert left(bed, run) != set()
        assert run in gpuctl.run("runs", kubeconfig=bed.kubeconfig).stdout
        blocked = driller.plan("flavor-drill")
        assert {each["guard"] for each in blocked["blockers"]} == {"no-other-run"}
        answer = driller.undo(run)
        assert answer.returncode == 0, answer.stderr
        assert driller.newest["state"] == "undone"


@pytest.mark.faults
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("flags", STEPS, ids=["default", "missing"])
def test_nothing_remains_of_a_drill_that_is_killed_at_any_step(
    bed: Bed, busy_queue: Queues, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    def killed_and_undone(driller: Person, step: int) -> None:
        assert len(driller.plan("flavor-drill", *flags)["steps"]) == STEPS[flags]
        run = driller.killed_at(step)
        answer = driller.undo(run)
        assert answer.returncode == 0, answer.stderr
        assert driller.newest["state"] == "undone"
        assert left(bed, run) == set()

    with nobody_else_disturbed(bed):
        at_once(bed, tmp_path, range(STEPS[flags]), killed_and_undone)


@pytest.mark.faults
@pytest.mark.timeout(1200)
def test_a_killed_drill_is_resumed_to_its_end(bed: Bed, busy_queue: Queues, tmp_path: Path) -> None:
    def killed_and_resumed(driller: Person, step: int) -> None:
        driller.plan("flavor-drill", MISSING)
        run = driller.killed_at(step)
        answer = driller.resume(run)
        assert answer.returncode == 0, answer.stderr
        assert driller.newest["outcome"] == "succeeded"
        assert left(bed, run) == set()

    with nobody_else_disturbed(bed):
        at_once(bed, tmp_path, (1, 4, 6, 9, 11), killed_and_resumed)


@pytest.mark.faults
def test_what_was_given_up_is_swept_by_the_next_drill(bed: Bed, driller: Person, busy_queue: Queues) -> None:
    with nobody_else_disturbed(bed):
        driller.plan("flavor-drill")
        run = driller.killed_at(4)
        unlocked = driller.run("unlock", run)
        assert unlocked.returncode == 0, unlocked.stderr
        assert left(bed, run) != set()
        plan = driller.plan("flavor-drill")
        assert any(run in each for each in plan["effects"])
        answer = driller.apply()
        assert answer.returncode == 0, answer.stderr
