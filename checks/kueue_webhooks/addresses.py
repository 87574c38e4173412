"""Every webhook calls one Service in the cluster."""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.audit.assertion import every
from gpuctl.audit.finding import Evidence, Finding
from gpuctl.checks.kueue_webhooks import codes
from gpuctl.checks.kueue_webhooks.words import get
from gpuctl.facts.fact import given
from gpuctl.facts.kinds import Ref
from gpuctl.kueue.facts import webhook_registrations
from gpuctl.kueue.registrations import Hook, Registration

REMEDY = "apply the manifests or the Helm release of Kueue again; risk: caBundle is empty for a moment"


@every(webhook_registrations, "every webhook of a configuration calls the same Service", given())
def one_service(registration: Registration) -> Iterator[Finding]:
    lost = [hook for hook in registration.hooks if not _names_a_service(hook.service)]
    if lost:
        yield _no_service(registration, lost)
    services = {hook.service for hook in registration.hooks if _names_a_service(hook.service)}
    if len(services) > 1:
        yield _several(registration)


def _names_a_service(service: Ref | None) -> bool:
    return service is not None and bool(service.name and service.namespace)


def _no_service(registration: Registration, lost: list[Hook]) -> Finding:
    return Finding(
        code=codes.NO_SERVICE,
        object=registration.source,
        message=(
            f"{len(lost)} of {len(registration.hooks)} webhooks of {registration.source} call no Service of "
            "this cluster, so nothing here can be checked of what answers them"
        ),
        evidence=tuple(Evidence(registration.source, each.where, _called(each)) for each in lost[:3]),
        look=get(registration.source),
        remedy=REMEDY,
    )


def _called(hook: Hook) -> str:
    return f"url {hook.client.url}" if hook.client.url else "neither service nor url"


def _several(registration: Registration) -> Finding:
    called = {str(hook.service): hook for hook in registration.hooks}
    return Finding(
        code=codes.SEVERAL_SERVICES,
        object=registration.source,
        message=f"The webhooks of {registration.source} call {len(called)} different Services",
        evidence=tuple(Evidence(registration.source, hook.where, name) for name, hook in called.items()),
        look=get(registration.source),
        remedy=REMEDY,
    )
