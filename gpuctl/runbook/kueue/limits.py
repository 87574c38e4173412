"""What a limit is set on, and to what: a quota of a ClusterQueue, or the time that a Job may take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final

import msgspec

from gpuctl.facts.fact import Maybe, given
from gpuctl.facts.kinds import Kind, Moment, Ref, View
from gpuctl.facts.objects import Condition
from gpuctl.facts.state import NotKnown, Reason, State, Unknown, value
from gpuctl.kueue.objects import ClusterQueue, ClusterQueueSpec, ClusterQueueStatus, FlavorQuota, Job
from gpuctl.kueue.quantities import Amount, Written, amount
from gpuctl.runbook.objects import NumberedMeta, cluster_wide, in_namespace, targeted
from gpuctl.runbook.target import OPTIONS, TARGET

OF_A_JOB: Final = "job/"
NONE: Final = "none"  # what a person writes for no limit
BORROWING: Final = "borrowingLimit"
LENDING: Final = "lendingLimit"
FLAGS: Final = {BORROWING: "borrowing_limit", LENDING: "lending_limit"}


class LimitedQueue(View, frozen=True):
    of: ClassVar[Kind] = ClusterQueue.of
    metadata: NumberedMeta
    spec: ClusterQueueSpec = ClusterQueueSpec()
    status: ClusterQueueStatus = ClusterQueueStatus()

    @property
    def cohort(self) -> str:
        """The cohort it is in; empty if in none."""
        return self.spec.cohort_name or self.spec.old_cohort


class _Part(msgspec.Struct, frozen=True, rename="camel", gc=False):
    pass


class LimitedJobSpec(_Part, frozen=True):
    suspend: bool = False
    active_deadline_seconds: int | None = None


class LimitedJobStatus(_Part, frozen=True):
    active: int = 0
    start_time: Moment | None = None
    conditions: tuple[Condition, ...] = ()


class LimitedJob(View, frozen=True):
    of: ClassVar[Kind] = Job.of
    metadata: NumberedMeta
    spec: LimitedJobSpec = LimitedJobSpec()
    status: LimitedJobStatus = LimitedJobStatus()

    @property
    def over(self) -> str:
        """How it ended; empty while it did not."""
        ends = (each for each in self.status.conditions if each.status == "True")
        return next((each.type for each in ends if each.type in ("Complete", "Failed")), "")


QUEUE: Final = targeted(LimitedQueue, cluster_wide(ClusterQueue.of))
JOB: Final = targeted(LimitedJob, in_namespace(Job.of, OF_A_JOB))


def is_a_job(target: str) -> bool:
    """Whether the target is a Job, and no ClusterQueue."""
    return target.startswith(OF_A_JOB)


@given(TARGET, Maybe(QUEUE.now), Maybe(JOB.now))
def what_is_limited(
    target: str, queue: State[LimitedQueue], job: State[LimitedJob]
) -> LimitedQueue | LimitedJob:
    return value(job) if is_a_job(target) else value(queue)


@given(QUEUE.uid, JOB.uid)
def uid_of_what_is_limited(queue: str, job: str) -> str:
    return queue or job


@dataclass(frozen=True, slots=True)
class Place:
    """Where a quota stands in a ClusterQueue, and what stands there. The names are tested with every write:
    an index alone may be another's after an edit."""

    group: int
    flavor: int
    resource: int
    quota: FlavorQuota

    @property
    def path(self) -> tuple[str, ...]:
        """The parts of a JSON pointer to the quota."""
        return (*self.of_flavor, "resources", str(self.resource))

    @property
    def of_flavor(self) -> tuple[str, ...]:
        """The parts of a JSON pointer to the flavor."""
        return ("spec", "resourceGroups", str(self.group), "flavors", str(self.flavor))

    def limit(self, field: str) -> Written | None:
        """The limit that is set; None if there is none."""
        return self.quota.borrowing_limit if field == BORROWING else self.quota.lending_limit


def place_of(queue: LimitedQueue, flavor: str, resource: str) -> Place | None:
    """Where the quota of a resource in a flavor stands; None if there is none."""
    for number, group in enumerate(queue.spec.resource_groups):
        for second, found in enumerate(group.flavors):
            for third, quota in enumerate(found.resources):
                if (found.name, quota.name) == (flavor, resource):
                    return Place(number, second, third, quota)
    return None


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit of a quota as it is to be. `after`: as a person wrote it; None for no limit."""

    field: str
    flavor: str
    resource: str
    after: str | None

    @property
    def worth(self) -> Amount | None:
        """What it is worth. Raises NotKnown for what is no quantity."""
        return None if self.after is None else amount(self.after)


@given(OPTIONS)
def limit_that_is_wanted(options: Mapping[str, Any]) -> Limit:
    """Raises NotKnown unless exactly one limit is asked for, of one resource in one flavor."""
    wanted = {field: options[flag] for field, flag in FLAGS.items() if options.get(flag)}
    flavor, resource = str(options.get("flavor") or ""), str(options.get("resource") or "")
    if len(wanted) != 1 or not (flavor and resource) or options.get("deadline"):
        raise _wrong(
            "of a ClusterQueue name --flavor, --resource, and one of --borrowing-limit and --lending-limit"
        )
    ((field, text),) = wanted.items()
    limit = Limit(field, flavor, resource, None if text == NONE else str(text))
    _ = limit.worth
    return limit


@given(OPTIONS)
def deadline_that_is_wanted(options: Mapping[str, Any]) -> int | None:
    """In seconds; None for no deadline. Raises NotKnown for anything else."""
    text = str(options.get("deadline") or "")
    if any(options.get(flag) for flag in ("flavor", "resource", *FLAGS.values())) or not text:
        raise _wrong("of a Job name --deadline alone: seconds, or none")
    if text == NONE:
        return None
    if not text.isdecimal() or not 0 < int(text) < 2**31:
        raise _wrong(f"--deadline is a number of seconds above 0, or none, not {text!r}")
    return int(text)


def _wrong(why: str) -> NotKnown:
    return NotKnown(Unknown(Reason.NOT_ASKED, why, "the options"))


@given(QUEUE.now, limit_that_is_wanted)
def place_of_the_limit(queue: LimitedQueue, limit: Limit) -> Place:
    """Raises NotKnown where the queue has no such quota."""
    found = place_of(queue, limit.flavor, limit.resource)
    if found is None:
        there = [
            f"{quota.name} in {flavor.name}"
            for group in queue.spec.resource_groups
            for flavor in group.flavors
            for quota in flavor.resources
        ]
        raise NotKnown(
            Unknown(
                Reason.NOT_ASKED,
                f"it has no quota of {limit.resource} in flavor {limit.flavor}, but of "
                f"{', '.join(there) or 'nothing'}",
                str(queue.ref),
            )
        )
    return found


def same(one: Written | None, other: Written | None) -> bool:
    """Whether two limits are worth the same, however they are written."""
    if one is None or other is None:
        return one is other
    return amount(one) == amount(other)


def told(limit: Written | None) -> str:
    """A limit in a sentence."""
    return "none" if limit is None else str(limit)


def ends_in(job: LimitedJob, deadline: int, now: datetime) -> timedelta | None:
    """How long a Job may go on under a deadline, which counts from its start; None while that is not."""
    if job.status.start_time is None or job.spec.suspend:
        return None
    return timedelta(seconds=deadline) - (now - job.status.start_time)


def in_version(ref: Ref, version: str) -> Ref:
    """One of Kueue's objects, in the version that is written."""
    return Ref(replace(ref.kind, versions=(version,)), ref.name, ref.namespace)
