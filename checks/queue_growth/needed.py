"""Which assertions depend on which reads where nothing is wrong: somewhere among what queues can hold. All of
them are looked at by more, to say who waits, for what, and what would help."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from gpuctl.audit.assertion import Assertion
from gpuctl.checks.queue_growth.activity import active_queues
from gpuctl.checks.queue_growth.admission import active_workloads, closing_admission_checks, few_returns
from gpuctl.checks.queue_growth.doors import existing_queues
from gpuctl.checks.queue_growth.drift import honest_reservations
from gpuctl.checks.queue_growth.finalizers import released_pods
from gpuctl.checks.queue_growth.growth import bearable_waits
from gpuctl.checks.queue_growth.held import bounded_holders, used_quota
from gpuctl.checks.queue_growth.jobs import queued_jobs
from gpuctl.checks.queue_growth.machine import placed_pods, real_quota, separate_flavors
from gpuctl.checks.queue_growth.over_time import steady_backlogs, steady_past
from gpuctl.checks.queue_growth.requests import possible_requests
from gpuctl.checks.queue_growth.waits import moving_lines
from gpuctl.facts.fact import Fact
from gpuctl.kueue import facts, queue_facts

_CAUSES: Final = (possible_requests, moving_lines)
_WHOLE_LINES: Final = (
    *_CAUSES,
    active_workloads,
    bearable_waits,
    bounded_holders,
    closing_admission_checks,
    existing_queues,
    few_returns,
    honest_reservations,
    used_quota,
)
_QUEUES: Final = (
    *_WHOLE_LINES,
    active_queues,
    placed_pods,
    real_quota,
    separate_flavors,
    steady_backlogs,
    steady_past,
)
# What the manager counts, and as what, stands in its configuration; to find that takes all of its objects.
_SETTINGS: Final = (*_CAUSES, honest_reservations, placed_pods, real_quota)
NEEDED_FOR: Final[Mapping[Fact[Any], Collection[Assertion]]] = {
    queue_facts.QUEUES: _QUEUES,
    queue_facts.LOCAL_QUEUES: (*_WHOLE_LINES, active_queues),
    queue_facts.WORKLOADS: (*_WHOLE_LINES, active_queues, queued_jobs, real_quota, released_pods),
    queue_facts.COHORTS: (*_CAUSES, active_queues, real_quota, separate_flavors),
    queue_facts.FLAVORS: (*_CAUSES, active_queues, placed_pods, real_quota, separate_flavors),
    queue_facts.TOPOLOGIES: (*_CAUSES, active_queues),
    queue_facts.ADMISSION_CHECKS: (active_queues,),
    queue_facts.CLAIM_TEMPLATES: (*_CAUSES, honest_reservations),
    queue_facts.JOBS: (
        bounded_holders,
        honest_reservations,
        placed_pods,
        queued_jobs,
        real_quota,
        used_quota,
    ),
    queue_facts.ALL_PODS: (honest_reservations, placed_pods, real_quota, released_pods, used_quota),
    queue_facts.NODES: (placed_pods, real_quota, separate_flavors),
    facts.NAMESPACES: _CAUSES,
    **dict.fromkeys(facts.READ_FOR_SETTINGS, _SETTINGS),
    facts.API_SERVICES: (),
    facts.PODS: (),
    facts.SLICES: (),
}
