"""What a run leaves in the state namespace: its journal (a ConfigMap) and its locks (Leases)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar, Final

import msgspec

from gpuctl.facts.fact import Within, given
from gpuctl.facts.kinds import Kind, Ref, View
from gpuctl.facts.own import GPUCTL, MANAGED_BY, RUN, RUNBOOK, STATE_NAMESPACE
from gpuctl.facts.state import Each, Known, Reason, State, Unknown, value

STATE: Final = "gpuctl.dev/state"
REVISION: Final = "gpuctl.dev/revision"
TARGET_NAME: Final = "gpuctl.dev/target"
TARGET_UID: Final = "gpuctl.dev/target-uid"
HOLDER: Final = "gpuctl.dev/holder"
KEY: Final = "run.json"
STOPPED: Final = "stopped"  # in the result: how a run failed, also once it is taken back
JOURNAL: Final = "gpuctl-run-"  # begins the names of journals


class Outcome(StrEnum):
    """How a run ended, or why it stands still."""

    NONE = ""
    SUCCEEDED = "succeeded"
    REFUSED = "refused"
    TIMED_OUT = "timed-out"
    CANCELLED = "cancelled"
    FAILED = "failed"
    REVERTED = "reverted"


class Standing(StrEnum):
    """Whether anything is left to do. An unfinished run blocks others on its target."""

    UNFINISHED = "unfinished"
    FINISHED = "finished"
    UNDONE = "undone"
    ABANDONED = "abandoned"


class Direction(StrEnum):
    """Which way a run goes: a killed undo must not go forward when it is resumed."""

    FORWARD = "forward"
    BACK = "back"


class Reached(StrEnum):
    """How far one step has come. `begun` is written before the first write of a step."""

    WAITING = "waiting"
    BEGUN = "begun"
    DONE = "done"
    UNDONE = "undone"


class _Part(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    pass


class Bounds(_Part, frozen=True, kw_only=True):
    """How far a run may go with what belongs to others: at most so many evictions, in these namespaces, of
    pods with these kinds of owners, under these PodDisruptionBudgets."""

    evictions: int = 0
    namespaces: tuple[str, ...] = ()
    owner_kinds: tuple[str, ...] = ()
    budgets: tuple[str, ...] = ()

    def beyond(self, wider: Bounds) -> Iterator[str]:
        """In what way these bounds are not within `wider`."""
        if self.evictions > wider.evictions:
            yield f"{self.evictions} pods would be evicted, the plan allows {wider.evictions}"
        for word, ours, theirs in (
            ("namespace", self.namespaces, wider.namespaces),
            ("owner kind", self.owner_kinds, wider.owner_kinds),
            ("PodDisruptionBudget", self.budgets, wider.budgets),
        ):
            for each in sorted(set(ours) - set(theirs)):
                yield f"{word} {each} is concerned, which the plan does not name"


class StepRecord(_Part, frozen=True, kw_only=True):
    """One step, as data, and how far it has come."""

    says: str
    step: Mapping[str, Any]
    reached: Reached = Reached.WAITING
    begun_at: datetime | None = None
    ended_at: datetime | None = None

    @property
    def name(self) -> str:
        """The name of its type."""
        return str(self.step.get("step", ""))


class Person(_Part, frozen=True, kw_only=True):
    """Who did something, and from where; why, as far as that was said then. `overrides`: the risks that were
    taken as a run was gone on with, beside those that it was begun with."""

    user: str
    host: str
    at: datetime
    did: str = ""
    reason: str = ""
    ticket: str = ""
    overrides: tuple[str, ...] = ()


class Member(_Part, frozen=True, kw_only=True):
    """One target of a rolling change, with what its plan rests on and allows. `run` is that of its own, empty
    until it is begun."""

    target: str
    target_uid: str = ""
    preconditions: Mapping[str, str] = {}
    bounds: Bounds = Bounds()
    run: str = ""
    outcome: Outcome = Outcome.NONE


class Run(_Part, frozen=True, kw_only=True):
    """The journal of one run: where it is, which way it goes, and what stood before (in its steps).

    One with members is a rolling change: each member has a run of its own. `verified`: every step was true at
    once, so that nothing is left but to undo the held ones. `evicted`: pods that its plan does not name, and
    that it has asked to go, by uid: they count against its bounds, whoever goes on with it.
    """

    api_version: str = "gpuctl.dev/v1"
    kind: str = "Run"
    id: str
    runbook: str
    target: str
    target_uid: str = ""
    options: Mapping[str, Any] = {}
    cluster_uid: str = ""
    plan: str = ""
    state: Standing = Standing.UNFINISHED
    direction: Direction = Direction.FORWARD
    verified: bool = False
    outcome: Outcome = Outcome.NONE
    why: str = ""
    result: Mapping[str, Any] = {}
    bounds: Bounds = Bounds()
    evicted: tuple[str, ...] = ()
    steps: tuple[StepRecord, ...] = ()
    members: tuple[Member, ...] = ()
    max_unavailable: int = 1
    people: tuple[Person, ...] = ()
    reason: str = ""
    ticket: str = ""
    started_at: datetime
    updated_at: datetime
    finished_at: datetime | None = None
    revision: int = 0
    session: str = ""

    def goes_on_by(self, who: Person, options: Mapping[str, Any]) -> tuple[Person, ...]:
        """Its people with who goes on with it now, by options that override more than it was begun with."""
        new = {name: each for name, each in options.items() if each != self.options.get(name)}
        flags = {f"--{name.replace('_', '-')}": each for name, each in new.items() if name != "reason"}
        overrides = tuple(flag if each is True else f"{flag} {each}" for flag, each in flags.items())
        return (*self.people, msgspec.structs.replace(who, overrides=overrides))

    @property
    def untouched(self) -> bool:
        """Whether no step was begun: then it has changed nothing yet."""
        return all(each.reached is Reached.WAITING for each in self.steps)

    @property
    def failed(self) -> bool:
        """Whether it failed or took too long, also if it was taken back since."""
        return self.outcome in (Outcome.FAILED, Outcome.TIMED_OUT) or STOPPED in self.result

    @property
    def at(self) -> str:
        """The step it is at, in words; empty once nothing is left."""
        if self.state is not Standing.UNFINISHED:
            return ""
        if self.direction is Direction.BACK:
            left = [each for each in self.steps if each.reached in (Reached.BEGUN, Reached.DONE)]
            return f"undo: {left[-1].says}" if left else "undo: release"
        if self.verified:
            return "release"
        return next((each.says for each in self.steps if each.reached is not Reached.DONE), "release")


class RunMap(View, frozen=True):
    """The ConfigMap of a journal."""

    of: ClassVar[Kind] = Kind("", ("v1",), "ConfigMap", "configmaps", namespaced=True)
    keys: ClassVar[tuple[str, ...]] = (KEY,)
    data: dict[str, str] = {}

    @property
    def relevant(self) -> bool:
        """Whether it is a journal."""
        return KEY in self.data and RUN in self.metadata.labels


class LeaseSpec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Who holds a lock. Times are texts: the holder's clock may be wrong, only that they change counts."""

    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: str = ""
    renew_time: str = ""


class Lease(View, frozen=True):
    """A lock: its holder is `<run>/<session>`, and `<run>/` while no process works on the run."""

    of: ClassVar[Kind] = Kind("coordination.k8s.io", ("v1",), "Lease", "leases", namespaced=True)
    spec: LeaseSpec = LeaseSpec()

    @property
    def relevant(self) -> bool:
        """Whether it is one of gpuctl's."""
        return RUN in self.metadata.labels

    @property
    def run(self) -> str:
        """The run it belongs to."""
        return self.spec.holder_identity.partition("/")[0]

    @property
    def session(self) -> str:
        """The process that holds it; empty if none does."""
        return self.spec.holder_identity.partition("/")[2]


@given(STATE_NAMESPACE)
def the_state_namespace(name: str) -> Collection[str]:
    return (name,)


RUN_MAPS: Final = Within(RunMap, the_state_namespace)
LEASES: Final = Within(Lease, the_state_namespace)


@given(RUN_MAPS)
def runs(maps: Each[Ref, RunMap]) -> Each[str, Run]:
    """The journals in the state namespace, by the ids of their runs."""
    entries: dict[str, State[Run]] = {
        each.metadata.labels[RUN]: decoded(each) for _, each in maps.known() if each.relevant
    }
    return Each(entries, tuple(maps.gaps()))


def decoded(found: RunMap) -> State[Run]:
    """The run in a journal's ConfigMap."""
    try:
        run = msgspec.json.decode(found.data.get(KEY, ""), type=Run)
    except (msgspec.DecodeError, UnicodeError) as error:
        way_out = f"if nobody needs it any more: kubectl delete {found.ref.kubectl}"
        return Unknown(Reason.MALFORMED, f"{error}; {way_out}", str(found.ref))
    named = found.metadata.labels.get(RUN, "")
    if run.id != named or found.metadata.name != f"{JOURNAL}{named}":
        return Unknown(Reason.MALFORMED, f"it is the journal of run {run.id}", str(found.ref))
    return Known(run)


def run_of(found: RunMap) -> Run:
    """The run in a journal's ConfigMap. Raises NotKnown."""
    return value(decoded(found))


def labels_of(run: str, runbook: str) -> dict[str, str]:
    """What everything that a run makes is labelled with."""
    return {MANAGED_BY: GPUCTL, RUN: run, RUNBOOK: runbook}
