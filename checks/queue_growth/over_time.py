"""No backlog grows while it is watched, and none has grown over hours. Both are asked for by the person."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuctl.audit.assertion import Strength, every
from gpuctl.audit.finding import Evidence, Finding
from gpuctl.checks.queue_growth import codes
from gpuctl.checks.queue_growth.words import queue_view
from gpuctl.facts.fact import given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Each, NotKnown, Reason, Unknown
from gpuctl.kueue.growth import LEAST_OVER_HOURS, Count, Growth, growth, long_growth
from gpuctl.kueue.queue_facts import LINES, Past, queues_over_a_while, queues_over_hours
from gpuctl.kueue.scene import Line
from gpuctl.kueue.standing import span

_REMEDY = "see the causes that this check names for the queue; risk: none to look"


@every(
    LINES,
    "no backlog grows while it is watched",
    given(queues_over_a_while),
    Strength.PROOF,
)
def steady_backlogs(line: Line, watched: Each[Ref, Sequence[Count]]) -> Iterator[Finding]:
    counts = watched.get(line.queue.ref) or ()
    found = growth(counts)
    if found and _concerns(line):
        yield Finding(
            code=codes.BACKLOG_GROWS,
            object=line.queue.ref,
            message=(
                f"The backlog of ClusterQueue {line.name} grew from {found.first:.0f} to {found.last:.0f} "
                f"Workloads within {span(found.over)}, and did not fall once"
            ),
            evidence=tuple(
                Evidence(line.queue.ref, ".status.pendingWorkloads", f"{count:.0f} at {at:%H:%M:%SZ}")
                for at, count in counts
            ),
            look="kubectl get clusterqueues.kueue.x-k8s.io -w",
            remedy=_REMEDY,
        )


def _concerns(line: Line) -> bool:
    """Whether it matters: a queue that is stopped on purpose grows by right."""
    return line.queue.spec.stop_policy in ("", "None")


@every(
    LINES,
    "no backlog has grown over the past hours, as Prometheus tells",
    given(queues_over_hours),
    Strength.PROOF,
)
def steady_past(line: Line, past: Each[Ref, Past]) -> Iterator[Finding]:
    known = past.get(line.queue.ref)
    if known is None:
        reason = (
            Reason.NOT_ASKED if past.entries else Reason.NOT_SERVED
        )  # a new queue, or not Kueue's Prometheus
        said = "Prometheus has no series kueue_pending_workloads of it"
        raise NotKnown(Unknown(reason, said, str(line.queue.ref)))
    if len(known.waited) < LEAST_OVER_HOURS:
        said = f"Prometheus knows it at {len(known.waited)} of the {LEAST_OVER_HOURS} moments that it takes"
        raise NotKnown(Unknown(Reason.NOT_ASKED, said, str(line.queue.ref)))
    found = long_growth(known.waited, known.admitted)
    if found and _concerns(line):
        yield _grew(line, known, found)


def _grew(line: Line, past: Past, found: Growth) -> Finding:
    query = f'kueue_pending_workloads{{cluster_queue="{line.name}"}}'
    return Finding(
        code=codes.BACKLOG_GREW,
        object=line.queue.ref,
        message=(
            f"The backlog of ClusterQueue {line.name} has grown from {found.first:.0f} to {found.last:.0f} "
            f"Workloads within {span(found.over)}; {past.admitted:.0f} were admitted in that time"
        ),
        evidence=(Evidence(line.queue.ref, query, f"{found.first:.0f}, then {found.last:.0f}"),),
        look=queue_view(line.name),
        remedy=_REMEDY,
    )
