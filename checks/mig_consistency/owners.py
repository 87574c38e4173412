"""Who decides the geometry, and what an earlier run of gpuctl left."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from gpuctl.audit.assertion import every
from gpuctl.audit.finding import Evidence, Finding
from gpuctl.checks.mig_consistency import codes
from gpuctl.checks.mig_consistency.words import show
from gpuctl.facts.fact import NOW, given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Each
from gpuctl.nvidia.facts import PODS, nodes_with_GPUs
from gpuctl.nvidia.involved import HELPER
from gpuctl.nvidia.node import Node
from gpuctl.nvidia.objects import GpuPod

LIFE = timedelta(minutes=10)


@every(nodes_with_GPUs, "it is known who decides the geometry of GPUs", given())
def known_owner(node: Node) -> Iterator[Finding]:
    owner = node.owner
    if owner is None:
        return
    rule = "by its rules" if owner.judged else "not at all, as far as it decides"
    yield Finding(
        code=codes.OTHER_OWNER,
        object=node.ref,
        message=(
            f"{owner.name} decides the geometry of GPUs on {node.ref}, not MIG manager: labels, capacity and "
            f"layout are judged {rule}"
        ),
        evidence=(Evidence(node.ref, "", owner.how),),
        look=show(node),
        remedy=f"change MIG by {owner.name} alone",
        cause=owner.name,
    )


@given(PODS, NOW)
def debug_pods_of_earlier_runs(pods: Each[Ref, GpuPod], now: datetime) -> Each[Ref, GpuPod]:
    """Pods that gpuctl makes to look into nodes, and that it did not come to delete."""
    return pods.where(lambda pod: HELPER in pod.metadata.labels and _is_old(pod, now))


def _is_old(pod: GpuPod, now: datetime) -> bool:
    made = pod.metadata.creation_timestamp
    return made is None or now - made > LIFE


@every(debug_pods_of_earlier_runs, "no debug pod of an earlier run is left", given())
def nothing_left_behind(pod: GpuPod) -> Iterator[Finding]:
    run = pod.metadata.labels.get("gpuctl.dev/run", "unknown")
    yield Finding(
        code=codes.LEFT_BEHIND,
        object=pod.ref,
        message=(
            f"{pod.ref} is left of run {run}, which died: the next run that may make such pods deletes it"
        ),
        evidence=(Evidence(pod.ref, ".metadata.creationTimestamp", str(pod.metadata.creation_timestamp)),),
        look=f"kubectl -n {pod.metadata.namespace} get pods -l app.kubernetes.io/managed-by=gpuctl",
        remedy=f"kubectl -n {pod.metadata.namespace} delete pod {pod.metadata.name}",
        cause=run,
    )
