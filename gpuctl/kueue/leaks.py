"""Quota held for nothing, by Workloads that were evicted, are orphaned or have no pods; or held for long."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from gpuctl.facts.kinds import OwnerReference, Ref
from gpuctl.facts.state import Each, State, value
from gpuctl.kueue.objects import Job, Workload
from gpuctl.kueue.pods import Owned
from gpuctl.kueue.quantities import Amount, is_accelerator
from gpuctl.kueue.requests import held, total_cells
from gpuctl.kueue.scene import Line
from gpuctl.kueue.standing import Standing, admitted_at, age, backs_off, condition, reserved_at, standing


class Leak(StrEnum):
    """Why quota that is held does nothing."""

    EVICTED = "it was evicted and its quota was not given back"
    ORPHANED = "what it was made for does not exist any more"
    NO_PODS = "it has no pods"
    DELETED = "it is being deleted, and a finalizer keeps it"


@dataclass(frozen=True, slots=True)
class Leaked:
    """A Workload that holds quota for nothing, since when, and who should have released it."""

    leak: Leak
    workload: Workload
    since: datetime | None
    owner: OwnerReference | None = None


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a state must last before it is more than a passing one."""

    settled: timedelta
    without_pods: timedelta
    held: timedelta


def leaked(line: Line, owned: Owned, patience: Patience) -> Iterator[Leaked]:
    """The holders that do nothing with their quota. Raises NotKnown where that can't be told."""
    for workload in line.holding:
        found = leak_of(workload, owned, line.scene.now, patience)
        if found:
            yield found


def leak_of(workload: Workload, owned: Owned, now: datetime, patience: Patience) -> Leaked | None:
    """What is wrong with a holder; None if it does something with its quota. Raises NotKnown."""
    owner = next(iter(workload.metadata.owner_references), None)
    deleted = workload.metadata.deletion_timestamp
    if deleted and age(deleted, now) > patience.without_pods and not owned.of(workload):
        return Leaked(Leak.DELETED, workload, deleted, owner)
    if standing(workload) is Standing.EVICTED:
        return _evicted(workload, owned, now, patience)
    since = reserved_at(workload)
    if owner and age(since, now) > patience.settled and _is_gone(owner, workload, owned):
        return Leaked(Leak.ORPHANED, workload, since, owner)
    if standing(workload) is Standing.ADMITTED and age(admitted_at(workload), now) > patience.without_pods:
        return _without_pods(workload, owner, owned)
    return None


def _evicted(workload: Workload, owned: Owned, now: datetime, patience: Patience) -> Leaked | None:
    """While its pods end, an evicted Workload keeps its quota by right."""
    found = condition(workload, "Evicted")
    since = found.last_transition_time if found else None
    if age(since, now) <= patience.settled or backs_off(workload, now) or owned.of(workload):
        return None
    return Leaked(Leak.EVICTED, workload, since, next(iter(workload.metadata.owner_references), None))


def _is_gone(owner: OwnerReference, workload: Workload, owned: Owned) -> bool:
    """Whether an owner does not exist; of kinds that are not read, that is not claimed."""
    if owner.kind == "Job" and owner.api_version.startswith("batch/"):
        return value(owned.jobs).get(Ref(Job.of, owner.name, workload.metadata.namespace)) is None
    if owner.kind == "Pod" and owner.api_version == "v1":
        return not owned.ever(workload)
    return False


def _without_pods(workload: Workload, owner: OwnerReference | None, owned: Owned) -> Leaked | None:
    """A Job's pods, or those of a Workload that nobody owns. Others' pods can't be told for sure."""
    known = owner is None or (owner.kind == "Job" and owner.api_version.startswith("batch/"))
    if not known or owned.ever(workload):
        return None
    if owner is not None:
        job = value(owned.jobs).get(Ref(Job.of, owner.name, workload.metadata.namespace))
        if job is None or not job.runs_here:
            return None
    return Leaked(Leak.NO_PODS, workload, admitted_at(workload), owner)


@dataclass(frozen=True, slots=True)
class HeldLong:
    """A Job that has held accelerators for long, and has no deadline."""

    workload: Workload
    job: Ref
    since: datetime


def held_long(line: Line, jobs: State[Each[Ref, Job]], patience: Patience) -> Iterator[HeldLong]:
    """Of no interest while nobody waits. Raises NotKnown if Jobs could not be read."""
    for workload in line.holding if line.waiting else ():
        since = admitted_at(workload)
        if since is None or age(since, line.scene.now) <= patience.held or not accelerators(workload):
            continue
        job = _unending(workload, jobs)
        if job:
            yield HeldLong(workload, job.ref, since)


def _unending(workload: Workload, jobs: State[Each[Ref, Job]]) -> Job | None:
    if workload.spec.maximum_execution_time_seconds is not None:
        return None
    for owner in workload.metadata.owner_references:
        if owner.kind == "Job" and owner.api_version.startswith("batch/"):
            job = value(jobs).get(Ref(Job.of, owner.name, workload.metadata.namespace))
            if job and job.spec.active_deadline_seconds is None:
                return job
    return None


def accelerators(*workloads: Workload) -> Amount:
    """How many accelerators Workloads hold."""
    cells = total_cells(map(held, workloads))
    return sum(each for (_, resource), each in cells.items() if is_accelerator(resource))
