"""No pod that was deleted is kept for good by Kueue's finalizer, with nobody left to take it off."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from gpuctl.audit.assertion import holds
from gpuctl.audit.finding import Evidence, Finding
from gpuctl.audit.policy import POLICY, Policy
from gpuctl.checks.queue_growth import codes
from gpuctl.checks.queue_growth.words import patience
from gpuctl.facts.fact import NOW, given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Each, State, value
from gpuctl.kueue.objects import PlacedPod
from gpuctl.kueue.pods import FINALIZER, QUEUE, of_workload
from gpuctl.kueue.queue_facts import known_by_workloads, pods_under_deletion
from gpuctl.kueue.standing import age, span


@holds(
    "no pod is kept by Kueue's finalizer for good",
    given(pods_under_deletion, known_by_workloads, NOW, POLICY),
)
def released_pods(
    pods: Each[Ref, PlacedPod], known: State[frozenset[str]], now: datetime, policy: Policy
) -> Iterator[Finding]:
    """A pod of a group waits to be replaced by right, as long as its Workload is there."""
    patient = patience(policy.checks.queue_growth).without_pods
    for pod in pods:
        since = age(pod.metadata.deletion_timestamp, now)
        if since > patient and not value(known) & {pod.metadata.uid, of_workload(pod)}:
            yield _finding(pod, span(since))


def _finding(pod: PlacedPod, since: str) -> Finding:
    about = pod.metadata
    queue = about.labels.get(QUEUE, "")
    named = f"LocalQueue {queue}" if queue else "its LocalQueue"
    return Finding(
        code=codes.KEPT,
        object=pod.ref,
        message=(
            f"Pod {about.namespace}/{about.name} was deleted {since} ago, and Kueue's finalizer keeps it, "
            "though no Workload knows it"
        ),
        evidence=(
            Evidence(pod.ref, ".metadata.finalizers", ", ".join(about.finalizers)),
            Evidence(pod.ref, ".metadata.deletionTimestamp", str(about.deletion_timestamp)),
        ),
        look=f"kubectl -n {about.namespace} get pod {about.name} -o yaml",
        remedy=(
            f"see whether the manager runs and {named} exists: where both are so again, it lets go of the "
            f"pod; only where Kueue is gone for good take {FINALIZER} off by hand; risk: while it runs, its "
            "count of quota is then wrong"
        ),
        cause=f"Kueue's finalizer keeps pods in {about.namespace}",
    )
