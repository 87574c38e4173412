"""Kueue's visibility API is available. Its missing caBundle is normal; its death stops the deletion of
namespaces."""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.audit.assertion import every
from gpuctl.audit.finding import Evidence, Finding
from gpuctl.checks.kueue_webhooks import codes
from gpuctl.checks.kueue_webhooks.manager import cause
from gpuctl.checks.kueue_webhooks.words import Managers, get
from gpuctl.facts.fact import Maybe, given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.objects import APIService, Condition, Service
from gpuctl.facts.state import Each, Known, NotKnown, Reason, State, Unknown, attempt
from gpuctl.kueue import certificates
from gpuctl.kueue.facts import SERVICES, API_services_of_Kueue, kueue_managers
from gpuctl.kueue.manager import diagnoses


@every(
    API_services_of_Kueue,
    "Kueue's visibility API is available",
    given(Maybe(SERVICES), Maybe(kueue_managers)),
)
def available_visibility(
    service: APIService, services: State[Each[Ref, Service]], managers: Managers
) -> Iterator[Finding]:
    available = next((each for each in service.status.conditions if each.type == "Available"), None)
    flaw = _flaw(service)
    if flaw:
        yield _unverified(service, flaw, available)
    elif available is None:
        raise NotKnown(Unknown(Reason.MALFORMED, "it has no condition Available", str(service.ref)))
    elif available.status != "True":
        yield _dead(service, available, services, managers)


def _flaw(service: APIService) -> str:
    """Why its certificate cannot be verified, where it is to be; empty if nothing is wrong."""
    if service.spec.insecure_skip_tls_verify:
        return ""
    if certificates.is_empty(service.spec.ca_bundle):
        return "caBundle is empty and insecureSkipTLSVerify is false"
    return certificates.parse(service.spec.ca_bundle).damage


def _unverified(service: APIService, flaw: str, available: Condition | None) -> Finding:
    return Finding(
        code=codes.VISIBILITY_UNVERIFIED,
        object=service.ref,
        message=(
            f"The certificate of {service.ref} can't be verified ({flaw}): its API is not available, "
            "and namespaces are not deleted cluster-wide"
        ),
        evidence=(Evidence(service.ref, ".spec.caBundle", flaw), *_condition(service, available)),
        look=get(service.ref),
        remedy=(
            "see why cert-manager does not inject its Certificate (annotation "
            "cert-manager.io/inject-ca-from), then renew it with `cmctl renew`; where Kueue makes its own "
            "certificates, apply the manifests again; risk: none"
        ),
        cause="visibility API can't be verified",
    )


def _condition(service: APIService, available: Condition | None) -> Iterator[Evidence]:
    if available is not None:
        observed = f"Available is {available.status}: {available.reason} {available.message}".strip()
        yield Evidence(service.ref, ".status.conditions", observed)


def _dead(
    service: APIService, available: Condition, services: State[Each[Ref, Service]], managers: Managers
) -> Finding:
    gone = _is_gone(service, services)
    root = _manager_in_trouble(service, managers)
    why = (
        " because its Service is gone" if gone else " because Kueue's manager does not answer" if root else ""
    )
    return Finding(
        code=codes.VISIBILITY_DEAD,
        object=service.ref,
        message=(
            f"{service.ref} is not available{why} ({available.reason or 'no reason given'}): "
            "namespaces are not deleted cluster-wide, and kubectl complains of its group"
        ),
        evidence=tuple(_condition(service, available)),
        look=get(service.ref),
        remedy=_remedy(service, gone=gone, down=root is not None),
        cause=cause(root) if root else "visibility API is not available",
    )


def _is_gone(service: APIService, services: State[Each[Ref, Service]]) -> bool:
    called = service.spec.service
    if called is None or not isinstance(services, Known):
        return False
    listed = services.value
    found = attempt(lambda: listed.get(Ref(Service.of, called.name, called.namespace)))
    return isinstance(found, Known) and found.value is None


def _manager_in_trouble(service: APIService, managers: Managers) -> Ref | None:
    """The webhook Service of the same namespace whose manager does not answer."""
    called = service.spec.service
    if called is None or not isinstance(managers, Known):
        return None
    for ref, manager in managers.value.known():
        if ref.namespace == called.namespace:
            found = attempt(lambda manager=manager: next(diagnoses(manager), None))  # type: ignore[misc]
            if isinstance(found, Known) and found.value is not None:
                return ref
    return None


def _remedy(service: APIService, *, gone: bool, down: bool) -> str:
    if gone:
        return (
            f"if Kueue is meant to be gone, `kubectl delete apiservice {service.metadata.name}`; "
            "if not, apply its manifests again; risk: none"
        )
    if down:
        return "bring the manager back, as its own finding says; risk: none"
    return (
        "see what the condition's message says of the way to the Service (endpoints, NetworkPolicy, 8082), "
        "then restart the manager; risk: 10 to 30 s in which what the webhooks match is refused"
    )
