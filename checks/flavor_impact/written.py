"""What people have written for Kueue is what it reads: no annotation for nobody, no queue that it refuses."""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.audit.assertion import every
from gpuctl.audit.finding import Evidence, Finding, Severity
from gpuctl.checks.flavor_impact import codes
from gpuctl.checks.flavor_impact.words import get
from gpuctl.facts.fact import given
from gpuctl.facts.kinds import View
from gpuctl.kueue.flavors import ON_FLAVORS, Flavor
from gpuctl.kueue.jobs import NEVER_READ
from gpuctl.kueue.objects import GROUP, ClusterQueue
from gpuctl.kueue.queue_facts import QUEUES
from gpuctl.kueue.refusals import Refusal, refusals


@every(ON_FLAVORS, "no ResourceFlavor relies on an annotation", given())
def read_flavors(flavor: Flavor) -> Iterator[Finding]:
    for name in sorted(flavor.written.metadata.annotations):
        if name.startswith(f"{GROUP}/"):
            why = NEVER_READ.get(name, "Kueue reads the spec of a ResourceFlavor alone")
            yield _never_read(flavor.written, name, why)


@every(QUEUES, "every ClusterQueue is written as Kueue takes it", given())
def accepted_queues(queue: ClusterQueue) -> Iterator[Finding]:
    for name in NEVER_READ:
        if name in queue.metadata.annotations:
            yield _never_read(queue, name, NEVER_READ[name])
    for each in refusals(queue):
        yield _refused(queue, each)


def _never_read(of: View, name: str, why: str) -> Finding:
    return Finding(
        code=codes.NEVER_READ,
        object=of.ref,
        message=f"{of.ref} has the annotation {name}, which no release of Kueue reads: {why}",
        evidence=(Evidence(of.ref, f".metadata.annotations['{name}']", "present"),),
        look=get(of.ref),
        remedy="remove it; risk: none",
        mark=name,
    )


def _refused(queue: ClusterQueue, refusal: Refusal) -> Finding:
    stored = queue.metadata.creation_timestamp is not None  # by a release that was less strict
    refuses = "will refuse the next edit of" if stored else "refuses"
    risk = "risk: none" if stored else "risk: none, nothing of it is in force"
    return Finding(
        code=codes.REFUSED,
        object=queue.ref,
        message=f"Kueue {refuses} {queue.ref} as it is written: {refusal.says}",
        evidence=(Evidence(queue.ref, refusal.where, refusal.observed),),
        look="kubectl apply --dry-run=server -f FILE",
        remedy=f"{refusal.remedy}; {risk}",
        mark=refusal.where,
        cause=f"{queue.ref} {refusal.kind}",
        severity=Severity.WARNING if stored else None,
    )
