"""Its claims to devices can't be counted: a class of devices that the manager was told nothing of, a template
that does not exist, a claim that exists already."""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.facts.state import Known, NotKnown
from gpuctl.kueue.causes.cause import Cause, Trouble
from gpuctl.kueue.messages import Saying, sayings
from gpuctl.kueue.objects import PodClaim
from gpuctl.kueue.scene import Waiter
from gpuctl.kueue.settings import Settings


def cause(waiter: Waiter) -> Cause | None:
    """From objects where the manager counts claims, which its configuration tells; else from Kueue's words,
    for they remain true until the Workload is made anew."""
    settings = waiter.line.scene.settings
    said = Saying.CLAIM in sayings(waiter.message)
    if isinstance(settings, Known) and settings.value.device_classes:
        try:
            found = tuple(dict.fromkeys(_faults(waiter, settings.value)))
        except NotKnown:
            if not said:
                raise
            found = ()
        if found:
            return Cause(Trouble.CLAIM, says="; ".join(found))
    return Cause(Trouble.CLAIM, says=f"Kueue says: {waiter.message}") if said else None


def _faults(waiter: Waiter, settings: Settings) -> Iterator[str]:
    for pods in waiter.workload.spec.pod_sets:
        for claim in pods.template.spec.resource_claims:
            yield from _fault(claim, waiter, settings)


def _fault(claim: PodClaim, waiter: Waiter, settings: Settings) -> Iterator[str]:
    if claim.resource_claim_name:
        yield f"it names ResourceClaim {claim.resource_claim_name}: only those made from a template count"
    name, namespace = claim.resource_claim_template_name, waiter.workload.metadata.namespace
    if not name:
        return
    template = waiter.line.crowd.template(claim, namespace)
    if template is None:
        yield f"ResourceClaimTemplate {name} does not exist"
        return
    for each in template.device_classes:
        if each not in settings.device_classes:
            yield f"DeviceClass {each} is in no deviceClassMappings of the manager's configuration"
