"""ClusterQueues whose backlog grows, why, who waits, and what smallest change would help."""

from __future__ import annotations

from gpuctl.audit.check import Check
from gpuctl.checks.queue_growth import codes
from gpuctl.checks.queue_growth.activity import active_queues
from gpuctl.checks.queue_growth.admission import active_workloads, closing_admission_checks, few_returns
from gpuctl.checks.queue_growth.doors import existing_queues
from gpuctl.checks.queue_growth.drift import honest_reservations
from gpuctl.checks.queue_growth.finalizers import released_pods
from gpuctl.checks.queue_growth.growth import bearable_waits
from gpuctl.checks.queue_growth.held import bounded_holders, used_quota
from gpuctl.checks.queue_growth.jobs import queued_jobs
from gpuctl.checks.queue_growth.machine import placed_pods, real_quota, separate_flavors
from gpuctl.checks.queue_growth.needed import NEEDED_FOR
from gpuctl.checks.queue_growth.over_time import steady_backlogs, steady_past
from gpuctl.checks.queue_growth.requests import possible_requests
from gpuctl.checks.queue_growth.waits import moving_lines
from gpuctl.kueue.picture import learned_of_queues

CHECK = Check(
    id="queue-growth",
    title="Backlogs of ClusterQueues, and what keeps Workloads waiting",
    package=__name__,
    codes=codes.ALL,
    assertions=(
        bearable_waits,
        active_queues,
        possible_requests,
        moving_lines,
        existing_queues,
        queued_jobs,
        closing_admission_checks,
        few_returns,
        active_workloads,
        used_quota,
        bounded_holders,
        honest_reservations,
        released_pods,
        real_quota,
        placed_pods,
        separate_flavors,
        steady_backlogs,
        steady_past,
    ),
    learned=learned_of_queues,
    needed_for=NEEDED_FOR,
)
