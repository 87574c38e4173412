"""Where there are CRDs of Kueue's there are its webhooks, all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from gpuctl.audit.assertion import every, holds
from gpuctl.audit.finding import Evidence, Finding
from gpuctl.checks.kueue_webhooks import codes
from gpuctl.facts.fact import given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.objects import CustomResourceDefinition
from gpuctl.facts.state import Each, Inapplicable, NotKnown
from gpuctl.kueue.facts import CRDS, kueue_managers, webhook_registrations
from gpuctl.kueue.manager import Manager
from gpuctl.kueue.objects import GROUP
from gpuctl.kueue.registrations import Installation, Registration

REMEDY: Final = (
    "apply the manifests or the Helm release of Kueue again; risk: caBundle is empty for a moment, until the "
    "manager has written it"
)
MUST_HAVE: Final = ("mresourceflavor.kb.io", "vresourceflavor.kb.io")


@holds("Kueue's CRDs have a manager", given(webhook_registrations, CRDS))
def crds_with_a_manager(
    found: Each[Ref, Registration], crds: Each[Ref, CustomResourceDefinition]
) -> Iterator[Finding]:
    if any(found):
        return
    names = [str(crd.ref) for crd in crds]
    if not names:
        raise NotKnown(Inapplicable(f"there is no CRD of {GROUP}"))
    first = Ref(CustomResourceDefinition.of, min(each.metadata.name for each in crds))
    yield Finding(
        code=codes.NO_MANAGER,
        object=first,
        message=(
            f"{len(names)} CRDs of {GROUP} are here, and neither a webhook configuration nor a conversion "
            "of Kueue's: nothing checks or admits what is created in them"
        ),
        evidence=(Evidence(first, "", f"{len(names)} CRDs of the group {GROUP}"),),
        look="kubectl get crd,mutatingwebhookconfigurations,validatingwebhookconfigurations | grep kueue",
        remedy=REMEDY,
    )


@every(kueue_managers, "every Kueue registers its admission webhooks", given(webhook_registrations))
def admission_webhooks(manager: Manager, found: Each[Ref, Registration]) -> Iterator[Finding]:
    if manager.service is None and not manager.deployments:
        raise NotKnown(Inapplicable(f"{manager.ref} and all behind it are gone"))
    lacking = _lacking(manager.installation)
    if not lacking:
        return
    for gap in found.gaps():
        raise NotKnown(gap)
    if not manager.installation.webhooks and any(_admits(each) for each in found):
        raise NotKnown(Inapplicable(f"the webhooks call another Service than {manager.ref}"))
    yield _missing(manager.installation, lacking)


def _lacking(installation: Installation) -> Sequence[str]:
    names = {hook.name for hook in installation.webhooks}
    return [name for name in MUST_HAVE if name not in names]


def _admits(registration: Registration) -> bool:
    return registration.converted is None


def _missing(installation: Installation, lacking: Sequence[str]) -> Finding:
    return Finding(
        code=codes.NO_WEBHOOKS,
        object=installation.service,
        message=(
            f"No webhook configuration sends {' and '.join(lacking)} to {installation.service}: "
            "jobs start unsuspended and bypass quota, and Kueue's objects are stored unchecked"
        ),
        evidence=tuple(
            Evidence(each.source, "", f"{len(each.hooks)} calls go to {installation.service}")
            for each in installation.registrations
        ),
        look="kubectl get mutatingwebhookconfigurations,validatingwebhookconfigurations",
        remedy=REMEDY,
    )
