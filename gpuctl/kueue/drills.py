"""The last drill of a flavor's loss, from the journals that gpuctl's runbooks keep in the cluster."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Final

import msgspec

from gpuctl.facts.fact import Argument, Within, given
from gpuctl.facts.kinds import Kind, Moment, Ref, View
from gpuctl.facts.own import GPUCTL, MANAGED_BY, RUNBOOK, STATE_NAMESPACE
from gpuctl.facts.state import Each, NotKnown, Reason, Unknown

DRILL: Final = "flavor-drill"

LONGEST: Final = timedelta(hours=1)  # of a drill; what it made is taken away at its end

SUCCEEDED: Final = "succeeded"
REVERTED: Final = "reverted"
_UNFINISHED: Final = "unfinished"
FAILED: Final = frozenset({"failed", "timed-out"})
_BEGINNING = datetime.min.replace(tzinfo=UTC)


def is_under_way(found: View, now: datetime) -> bool:
    """Whether a drill made it for itself, a short while ago: it concerns nobody. What is older was left."""
    made = found.metadata.creation_timestamp
    mine = found.metadata.labels.get(RUNBOOK) == DRILL
    return mine and made is not None and now - made < LONGEST


class JournalData(msgspec.Struct, frozen=True):
    run: str | None = msgspec.field(default=None, name="run.json")


class DrillJournal(View, frozen=True):
    """The ConfigMap in which a run of the drill keeps how far it came."""

    of: ClassVar[Kind] = Kind("", ("v1",), "ConfigMap", "configmaps", namespaced=True)
    keys: ClassVar[tuple[str, ...]] = ("run.json",)
    data: JournalData = JournalData()

    @property
    def relevant(self) -> bool:
        labels = self.metadata.labels
        return labels.get(MANAGED_BY) == GPUCTL and labels.get(RUNBOOK) == DRILL


class _Stopped(msgspec.Struct, frozen=True):
    """How a run failed before it was taken up again."""

    outcome: str = ""
    why: str = ""


class _Record(msgspec.Struct, frozen=True, rename="camel"):
    """What is used of run.json; all else in it is the engine's."""

    id: str
    state: str = ""
    outcome: str | None = None
    why: str = ""
    verified: bool = False
    result: dict[str, Any] = {}
    started_at: Moment | None = None
    updated_at: Moment | None = None
    finished_at: Moment | None = None


@dataclass(frozen=True, slots=True)
class Drill:
    """A run of the drill. `at`: when it ended, or else when it last went on. `why` it stopped, if it did.

    `verified`: every step had come true, so that nothing was left but to clean up.
    """

    journal: Ref
    run: str
    outcome: str  # empty while it has none
    why: str
    verified: bool
    unfinished: bool
    at: datetime | None
    showed: Mapping[str, Any] = field(default_factory=dict)  # what its steps learned
    taken_up_since: bool = False  # it failed, and then somebody went on with it, cleaned up or gave it up

    @property
    def succeeded(self) -> bool:
        """Whether every step did what it should; also if another `undo` was needed to clean up."""
        return self.outcome == SUCCEEDED or (self.outcome == REVERTED and self.verified)

    @property
    def failed(self) -> bool:
        """Whether a step did not. A drill that was refused or cancelled tells nothing."""
        return self.outcome in FAILED


@given(STATE_NAMESPACE)
def namespace_of_the_journals(name: str) -> Collection[str]:
    return (name,)


# What came of a drill that was asked for together with the judgement; empty if none was, or if it succeeded.
ASKED: Argument[str] = Argument("the drill that was asked for", "")

JOURNALS = Within(DrillJournal, namespace_of_the_journals)


def newest_first(journals: Each[Ref, DrillJournal]) -> Iterator[Drill]:
    """The drills on record. Raises NotKnown if there may be more, and at a journal that can't be read."""
    found = sorted(journals, key=lambda each: each.metadata.creation_timestamp or _BEGINNING, reverse=True)
    return (_drill(each) for each in found)


def _drill(journal: DrillJournal) -> Drill:
    try:
        record = msgspec.json.decode(journal.data.run or "", type=_Record)
        stopped = _stopped(record)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NotKnown(Unknown(Reason.MALFORMED, f"run.json: {error}", str(journal.ref))) from error
    return Drill(
        journal=journal.ref,
        run=record.id,
        outcome=stopped.outcome if stopped else record.outcome or "",
        why=stopped.why if stopped else record.why,
        verified=record.verified,
        unfinished=record.state == _UNFINISHED,
        at=record.finished_at or record.updated_at or record.started_at,
        showed={name: each for name, each in record.result.items() if name != "stopped"},
        taken_up_since=stopped is not None,
    )


def _stopped(record: _Record) -> _Stopped | None:
    """How a run failed that was taken up since, whatever came of that but success. Raises
    msgspec.ValidationError."""
    if record.outcome in {SUCCEEDED, *FAILED} or record.verified or "stopped" not in record.result:
        return None
    return msgspec.convert(record.result["stopped"], _Stopped)
