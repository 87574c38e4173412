"""Where a Workload stands: waiting, holding quota, or neither; and since when."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

from gpuctl.facts.objects import Condition
from gpuctl.kueue.objects import Workload

# A Workload that was held on purpose waits anew from when it was let go.
_LET_GO = frozenset({"Reactivated", "ClusterQueueRestarted", "LocalQueueRestarted"})


class Standing(StrEnum):
    """What a Workload is doing."""

    FINISHED = "finished"
    ADMITTED = "admitted"
    RESERVED = "has quota, admission checks are open"
    EVICTED = "evicted, and still has quota"
    DEACTIVATED = "deactivated"
    ON_HOLD = "on hold"
    GATED = "gated by its owner"
    WAITING = "waiting"

    @property
    def holds_quota(self) -> bool:
        """Whether quota is taken by it."""
        return self in {Standing.ADMITTED, Standing.RESERVED, Standing.EVICTED}


def condition(workload: Workload, kind: str) -> Condition | None:
    """One of its conditions; None if nobody has written it."""
    for each in workload.status.conditions:  # a loop: it is asked for a million times in a large cluster
        if each.type == kind:
            return each
    return None


def is_true(workload: Workload, kind: str) -> bool:
    """Whether a condition is there, and true."""
    found = condition(workload, kind)
    return found is not None and found.status == "True"


def standing(workload: Workload) -> Standing:
    """From its conditions; the message of a condition plays no part."""
    if is_true(workload, "Finished"):
        return Standing.FINISHED
    if is_true(workload, "QuotaReserved"):
        return _with_quota(workload)
    if not workload.spec.active:
        return Standing.DEACTIVATED
    reason = _reason(workload)
    return {"OnHold": Standing.ON_HOLD, "AdmissionGated": Standing.GATED}.get(reason, Standing.WAITING)


def _with_quota(workload: Workload) -> Standing:
    if is_true(workload, "Evicted"):
        return Standing.EVICTED
    return Standing.ADMITTED if is_true(workload, "Admitted") else Standing.RESERVED


def _reason(workload: Workload) -> str:
    found = condition(workload, "QuotaReserved")
    return found.reason if found else ""


def verdict(workload: Workload) -> str:
    """What Kueue said when it last looked at it. It may be stale: only a change of status moves its time."""
    found = condition(workload, "QuotaReserved")
    return found.message if found and found.status == "False" else ""


def kept_back(workload: Workload) -> str:
    """Why Kueue has not put it back into the line, in its words; empty if it has."""
    found = condition(workload, "Requeued")
    if found is None or found.status != "False":
        return ""
    return found.message or found.reason or "Requeued is False"


def backs_off(workload: Workload, now: datetime) -> bool:
    """Whether it is not tried again before a time that is set."""
    state = workload.status.requeue_state
    return state is not None and state.requeue_at is not None and state.requeue_at > now


def created(workload: Workload) -> datetime | None:
    """When it was made; None if that is not written."""
    return workload.metadata.creation_timestamp


def waiting_since(workload: Workload) -> datetime | None:
    """Since when it has waited without a break; None if that is not written."""
    since = created(workload)
    for each in workload.status.conditions:
        if each.status == "True" and each.last_transition_time and _begins_a_wait(each):
            since = max(since or each.last_transition_time, each.last_transition_time)
    return since


def _begins_a_wait(each: Condition) -> bool:
    return each.type == "Evicted" or (each.type == "Requeued" and each.reason in _LET_GO)


def reserved_at(workload: Workload) -> datetime | None:
    """When it got its quota; None if it has none."""
    return _time_of(workload, "QuotaReserved")


def admitted_at(workload: Workload) -> datetime | None:
    """When it was let run; None if it was not."""
    return _time_of(workload, "Admitted")


def finished_at(workload: Workload) -> datetime | None:
    """When it ended; None if it has not."""
    return _time_of(workload, "Finished")


def _time_of(workload: Workload, kind: str) -> datetime | None:
    found = condition(workload, kind)
    return found.last_transition_time if found and found.status == "True" else None


def age(since: datetime | None, now: datetime) -> timedelta:
    """How long ago that was. What lies in the future, or is not written, is no time ago."""
    return max(timedelta(0), now - since) if since else timedelta(0)


def span(time: timedelta) -> str:
    """A time as kubectl writes it: `3d4h`, `2h10m`, `45s`."""
    seconds = int(time.total_seconds())
    days, hours, minutes = seconds // 86400, seconds // 3600 % 24, seconds // 60 % 60
    if days:
        return f"{days}d{hours}h" if hours else f"{days}d"
    if hours:
        return f"{hours}h{minutes}m" if minutes else f"{hours}h"
    return f"{minutes}m" if minutes else f"{seconds}s"
