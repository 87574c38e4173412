"""The loss of a flavor was drilled, not long ago, and went as it should. The drill's journals tell."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from gpuctl.audit.assertion import Strength, every, holds
from gpuctl.audit.finding import Evidence, Finding
from gpuctl.audit.policy import POLICY, Policy
from gpuctl.checks.flavor_impact import codes
from gpuctl.checks.flavor_impact.leftovers import is_left_behind, left_behind
from gpuctl.checks.flavor_impact.words import get
from gpuctl.facts.fact import NOW, Maybe, given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Each, Inapplicable, NotKnown, Reason, State, Unknown
from gpuctl.kueue.drills import ASKED, DRILL, JOURNALS, Drill, DrillJournal, newest_first
from gpuctl.kueue.flavors import ON_FLAVORS, Flavor
from gpuctl.kueue.objects import ResourceFlavor
from gpuctl.kueue.queue_facts import FLAVORS
from gpuctl.kueue.standing import age, span

COMMAND: Final = f"gpuctl apply {DRILL}"
PLAN: Final = f"gpuctl plan {DRILL}"


@holds(
    "the loss of a flavor was drilled",
    given(JOURNALS, POLICY, NOW, Maybe(FLAVORS), ASKED),
    Strength.PROOF,
)
def drilled_loss(
    journals: Each[Ref, DrillJournal],
    policy: Policy,
    now: datetime,
    flavors: State[Each[Ref, ResourceFlavor]],
    asked: str,
) -> Iterator[Finding]:
    if isinstance(flavors, Inapplicable):
        raise NotKnown(flavors)
    if asked:
        yield from _failed_last(journals, now)
        raise NotKnown(Unknown(Reason.SERVER_ERROR, f"the drill that was asked for {asked}", DRILL))
    last: Drill | None = None
    for drill in newest_first(journals):
        last = last or drill
        if drill.failed:
            yield _failed(drill, now)
            return
        if drill.succeeded:
            _must_be_recent(drill, policy, now)
            yield from _showed(drill, now)
            return
    raise _unproven(_nothing_came_of(last, now) if last else "no drill is on record")


def _failed_last(journals: Each[Ref, DrillJournal], now: datetime) -> Iterator[Finding]:
    """What the last drill that came to an end shows, if that is a failure."""
    for drill in newest_first(journals):
        if drill.failed:
            yield _failed(drill, now)
        if drill.failed or drill.succeeded:
            return


def _must_be_recent(drill: Drill, policy: Policy, now: datetime) -> None:
    days = policy.checks.flavor_impact.drill_days
    if age(drill.at, now) > timedelta(days=days):
        raise _unproven(
            f"last drilled {span(age(drill.at, now))} ago (run {drill.run}), not within {days:g} days"
        )


def _showed(drill: Drill, now: datetime) -> Iterator[Finding]:
    """The times that it measured, and what went otherwise than documented."""
    if not drill.showed:
        return
    told = ", ".join(f"{name} {_shown(each)}" for name, each in drill.showed.items())
    times = [name for name in drill.showed if "seconds" in name.lower() and "Conditions" not in name]
    short = [
        f"{name} {_shown(drill.showed[name])}" for name in (*times, "differences") if name in drill.showed
    ]
    yield Finding(
        code=codes.DRILLED,
        object=drill.journal,
        message=f"The loss of a flavor was drilled {span(age(drill.at, now))} ago (run {drill.run})"
        + (f": {', '.join(short)}" if short else ""),
        evidence=(Evidence(drill.journal, ".data['run.json'].result", told),),
        look=get(drill.journal),
        remedy="none is needed; risk: none",
    )


def _shown(told: object) -> str:
    if isinstance(told, list):
        return " and ".join(map(_shown, told)) or "none"
    return {True: "yes", False: "no"}[told] if isinstance(told, bool) else str(told)


def _nothing_came_of(drill: Drill, now: datetime) -> str:
    outcome = f"was {drill.outcome}" if drill.outcome else "is not over"
    undo = f" (`gpuctl undo {drill.run}` cleans up)" if drill.unfinished else ""
    return f"the last drill (run {drill.run}, {span(age(drill.at, now))} ago) {outcome}{undo}"


def _unproven(why: str) -> NotKnown:
    return NotKnown(Unknown(Reason.NOT_ASKED, f"{why}; {COMMAND}", "flavor-drill"))


def _failed(drill: Drill, now: datetime) -> Finding:
    where = ".data['run.json']" + ".result.stopped" * drill.taken_up_since
    ended = f"{span(age(drill.at, now))} ago" if drill.at else "at an unknown time"
    return Finding(
        code=codes.DRILL_FAILED,
        object=drill.journal,
        message=(
            f"The last drill of a flavor's loss (run {drill.run}, {ended}) {_how(drill)}: what a real loss "
            "would do here is not known"
        ),
        evidence=(
            Evidence(drill.journal, f"{where}.outcome", drill.outcome),
            Evidence(drill.journal, f"{where}.why", drill.why or "not told"),
        ),
        look=get(drill.journal),
        remedy=(
            f"{_clean_up(drill)}drill again: `{PLAN}` shows what it would do, `{COMMAND}` does it; risk: "
            "none, it touches objects of its own alone"
        ),
        runbook=DRILL,
    )


def _how(drill: Drill) -> str:
    return "timed out" if drill.outcome == "timed-out" else "failed"


def _clean_up(drill: Drill) -> str:
    undo = f"clean up (`gpuctl undo {drill.run}`) and " if drill.unfinished else ""
    return f"see why it {_how(drill)}, then {undo}"


@every(ON_FLAVORS, "no drill has left its flavor behind", given())
def removed_canaries(flavor: Flavor) -> Iterator[Finding]:
    if is_left_behind(flavor.written, flavor.scene.now):
        yield left_behind(flavor.written, flavor.scene.now)
