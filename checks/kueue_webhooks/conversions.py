"""Every CRD that serves several versions converts them through Kueue."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpuctl.audit.assertion import every
from gpuctl.audit.finding import Evidence, Finding
from gpuctl.checks.kueue_webhooks import codes
from gpuctl.checks.kueue_webhooks.words import get
from gpuctl.facts.fact import given
from gpuctl.facts.objects import CustomResourceDefinition
from gpuctl.kueue.facts import CRDS
from gpuctl.kueue.reach import broken_reads
from gpuctl.kueue.registrations import Converted

CONVERTED: Final = frozenset({"localqueues", "clusterqueues", "workloads", "cohorts", "multikueueclusters"})
PATH: Final = "/convert"
REMEDY: Final = (
    "apply the CRDs of the installed release again; risk: caBundle is empty for a moment, until the manager "
    "has written it. Never delete a CRD for this: with it go all its objects"
)


@every(CRDS, "every CRD with several versions converts them through Kueue", given())
def converted_versions(crd: CustomResourceDefinition) -> Iterator[Finding]:
    converted = Converted(crd.spec.names.plural, crd.spec.versions)
    conversion = crd.spec.conversion
    if conversion.strategy != "Webhook":
        if converted.plural in CONVERTED and converted.others:
            yield _off(crd, converted)
        return
    service = conversion.webhook.client_config.service if conversion.webhook else None
    if service and service.path != PATH:
        yield _astray(crd, converted, service.path)


def _off(crd: CustomResourceDefinition, converted: Converted) -> Finding:
    return Finding(
        code=codes.NO_CONVERSION,
        object=crd.ref,
        message=(
            f"{crd.ref} serves {' and '.join(converted.others)} beside {converted.stored} without "
            "converting them: fields that have another name there are lost on every write"
        ),
        evidence=(Evidence(crd.ref, ".spec.conversion.strategy", crd.spec.conversion.strategy),),
        look=get(crd.ref, "jsonpath='{.spec.conversion}'"),
        remedy=REMEDY,
        cause="conversion is off",
    )


def _astray(crd: CustomResourceDefinition, converted: Converted, path: str) -> Finding:
    return Finding(
        code=codes.WRONG_CONVERSION,
        object=crd.ref,
        message=(
            f"{crd.ref} is converted by calls to {path or '(no path)'}, which Kueue does not serve: "
            f"{broken_reads(converted)}"
        ),
        evidence=(Evidence(crd.ref, ".spec.conversion.webhook.clientConfig.service.path", path or "(none)"),),
        look=get(crd.ref, "jsonpath='{.spec.conversion}'"),
        remedy=REMEDY,
        cause="conversion calls another path",
    )
