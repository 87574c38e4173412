"""A plan: what a run would do, what it rests on, and how far it may go. It is a file that can be reviewed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from gpuctl.facts.fact import Argument
from gpuctl.runbook.guard import Blocker
from gpuctl.runbook.records import Bounds, Person

API_VERSION: Final = "gpuctl.dev/v1"


class BadPlan(Exception):
    """A plan file that must not be applied: unreadable, edited, foreign, or too old."""


class _Part(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    pass


# How far a run may go: the bounds of the plan that is applied. None while planning: as far as it must.
ALLOWED: Argument[Bounds | None] = Argument("the bounds of the plan", None)


class PlannedStep(_Part, frozen=True, kw_only=True):
    """One step in words, with how long it may take, and as the data that a journal would hold."""

    says: str
    undoes: str
    seconds: float
    held: bool
    step: Mapping[str, Any]


class TargetPlan(_Part, frozen=True, kw_only=True):
    """What would be done to one target."""

    target: str
    target_uid: str = ""
    preconditions: Mapping[str, str] = {}
    bounds: Bounds = Bounds()
    effects: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    blockers: tuple[Blocker, ...] = ()
    overridden: tuple[Blocker, ...] = ()
    steps: tuple[PlannedStep, ...] = ()


class Cluster(_Part, frozen=True, kw_only=True):
    """Which cluster a plan is for. Only the uid is compared."""

    uid: str
    name: str = ""
    server_version: str = ""


class Plan(_Part, frozen=True, kw_only=True):
    """The whole plan. `digest` is over everything else in it."""

    api_version: str = API_VERSION
    kind: str = "Plan"
    runbook: str
    options: Mapping[str, Any]
    cluster: Cluster
    created_at: datetime
    valid_until: datetime
    planner: Person
    targets: tuple[TargetPlan, ...]
    selector: str = ""
    max_unavailable: int = 1
    reason: str = ""
    ticket: str = ""
    digest: str = ""

    @property
    def blockers(self) -> tuple[Blocker, ...]:
        """What speaks against applying it, of all targets."""
        return tuple(each for target in self.targets for each in target.blockers)

    @property
    def name(self) -> str:
        """What a person types to confirm: the target's name, or the selector of several."""
        return self.selector or self.targets[0].target


def sealed(plan: Plan) -> Plan:
    """The plan with its digest."""
    return msgspec.structs.replace(plan, digest=digest_of(plan))


def digest_of(plan: Plan) -> str:
    """`sha256:…` over the plan's content as it is read from a file, whatever its layout there."""
    content = msgspec.json.encode(msgspec.structs.replace(plan, digest=""))
    content = msgspec.json.encode(msgspec.json.decode(content, type=Plan), order="deterministic")
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def to_text(plan: Plan) -> str:
    """The plan as a file: JSON with line breaks, so that it can be reviewed and compared. ASCII only."""
    return json.dumps(msgspec.to_builtins(plan), indent=2) + "\n"


def from_text(text: str, origin: str) -> Plan:
    """Reads a plan file. Raises BadPlan for one that is not whole, not gpuctl's, or edited."""
    try:
        plan = msgspec.json.decode(text, type=Plan)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise BadPlan(f"{origin} is no plan file: {error}") from error
    if plan.kind != "Plan" or plan.api_version != API_VERSION:
        raise BadPlan(f"{origin} is {plan.kind} of {plan.api_version}, not Plan of {API_VERSION}")
    if plan.digest != digest_of(plan):
        raise BadPlan(f"{origin} was edited after it was made: its digest does not fit; plan again")
    if not plan.targets:
        raise BadPlan(f"{origin} names no target")
    return plan


def refuse_unless_for(plan: Plan, cluster_uid: str, now: datetime) -> None:
    """Raises BadPlan for a plan of another cluster, and for one whose time is over."""
    if not cluster_uid:
        raise BadPlan("it can't be told which cluster this is, so whether the plan is for it")
    if plan.cluster.uid != cluster_uid:
        raise BadPlan(
            f"the plan is for cluster {plan.cluster.name} ({plan.cluster.uid}), this one is {cluster_uid}"
        )
    if now > plan.valid_until:
        raise BadPlan(f"the plan was valid until {plan.valid_until:%Y-%m-%d %H:%M:%SZ}; plan again")


def stale(old: TargetPlan, new: TargetPlan) -> Iterator[str]:
    """What has changed since the plan was made, beyond what it allows."""
    if old.target_uid != new.target_uid:
        yield f"{old.target} is another object of the same name: uid {new.target_uid}, not {old.target_uid}"
    for name in dict.fromkeys((*old.preconditions, *new.preconditions)):
        before, now = old.preconditions.get(name, "unknown"), new.preconditions.get(name, "unknown")
        if before != now:
            yield f"{name} was {before or 'empty'}, now is {now or 'empty'}"
    yield from new.bounds.beyond(old.bounds)
