"""Every caBundle is a CA certificate that is valid now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuctl.audit.assertion import every
from gpuctl.audit.finding import Code, Evidence, Finding, Severity
from gpuctl.audit.policy import POLICY, Policy
from gpuctl.checks.kueue_webhooks import codes
from gpuctl.checks.kueue_webhooks.words import (
    Managers,
    Namespaces,
    bundle_at,
    consequence,
    counted,
    cure,
    renew,
    sentence,
    show_bundles,
    writer,
)
from gpuctl.facts.fact import NOW, Maybe, given
from gpuctl.facts.state import NotKnown
from gpuctl.kueue import certificates
from gpuctl.kueue.certificates import Bundle, Certificate
from gpuctl.kueue.facts import NAMESPACES, kueue_managers, webhook_registrations
from gpuctl.kueue.registrations import Hook, Registration

EVIDENCE_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with one caBundle. `says` ends `2 of 21 webhooks of X …`."""

    code: Code
    says: str
    observed: str
    severity: Severity | None = None


@every(
    webhook_registrations,
    "every caBundle is a CA certificate that is valid now",
    given(POLICY, NOW, Maybe(NAMESPACES), Maybe(kueue_managers)),
)
def usable_ca_bundles(
    registration: Registration, policy: Policy, now: datetime, namespaces: Namespaces, managers: Managers
) -> Iterator[Finding]:
    soon = now + timedelta(days=policy.checks.kueue_webhooks.ca_expiry_warning_days)
    faults: dict[Code, list[tuple[Hook, Fault]]] = {}
    gap: NotKnown | None = None
    for hook in registration.hooks:
        try:
            for fault in _faults(registration, hook, now, soon):
                faults.setdefault(fault.code, []).append((hook, fault))
        except NotKnown as unreadable:
            gap = unreadable
    for found in faults.values():
        yield _finding(registration, found, namespaces, managers)
    if gap:
        raise gap


def _faults(registration: Registration, hook: Hook, now: datetime, soon: datetime) -> Iterator[Fault]:
    if certificates.is_empty(hook.client.ca_bundle):
        yield Fault(codes.BUNDLE_EMPTY, "have no caBundle, so nothing verifies Kueue's certificate", "empty")
        return
    bundle = certificates.parse(hook.client.ca_bundle)
    if bundle.damage:
        yield _damaged(bundle)
    if bundle.certificates:
        yield from _unusable(bundle, hook, now, soon)
    if len(bundle.keys) > 1:
        yield _several(registration, bundle)


def _damaged(bundle: Bundle) -> Fault:
    severity = Severity.WARNING if bundle.certificates else None
    return Fault(
        codes.BUNDLE_UNREADABLE,
        f"have a caBundle that can't be read: {bundle.damage}",
        bundle.damage,
        severity,
    )


def _unusable(bundle: Bundle, hook: Hook, now: datetime, soon: datetime) -> Iterator[Fault]:
    """A bundle works as long as one of its certificates does; the last to end is the one that counts."""
    trusted = [each for each in bundle.certificates if each.signs or _is_the_served_one(each, hook)]
    if not trusted:
        newest = bundle.newest
        yield Fault(codes.NOT_A_CA, f"trust {newest.subject}, which is no CA", _described(newest))
        return
    last = max(trusted, key=lambda each: each.not_after)
    first = min(trusted, key=lambda each: each.not_before)
    if last.not_after <= now:
        yield Fault(
            codes.CA_EXPIRED, f"trust a CA that expired on {last.not_after:%Y-%m-%d}", _described(last)
        )
    elif first.not_before > now:
        starts = f"{first.not_before:%Y-%m-%d %H:%M}"
        yield Fault(
            codes.CA_NOT_YET_VALID, f"trust a CA that is not valid before {starts}", _described(first)
        )
    elif last.not_after <= soon:
        ends = f"{last.not_after:%Y-%m-%d}"
        yield Fault(codes.CA_EXPIRES_SOON, f"trust a CA that expires on {ends}", _described(last))


def _is_the_served_one(certificate: Certificate, hook: Hook) -> bool:
    """A self-signed issuer's leaf is its own CA: it verifies itself, and nothing else."""
    service = hook.service
    return service is not None and f"{service.name}.{service.namespace}.svc" in certificate.names


def _several(registration: Registration, bundle: Bundle) -> Fault:
    severity = Severity.INFO if registration.injected_from else None
    observed = "; ".join(_described(each) for each in bundle.certificates)
    says = f"trust {len(bundle.keys)} different certificates, where the owner writes one"
    return Fault(codes.SEVERAL_CAS, says, observed, severity)


def _described(certificate: Certificate) -> str:
    return (
        f"{certificate.subject} SHA-256 {certificate.short}…, valid {certificate.not_before:%Y-%m-%d %H:%M} "
        f"to {certificate.not_after:%Y-%m-%d %H:%M}"
    )


def _finding(
    registration: Registration,
    found: list[tuple[Hook, Fault]],
    namespaces: Namespaces,
    managers: Managers,
) -> Finding:
    fault = found[0][1]
    hooks = [hook for hook, _ in found]
    says = sentence(f"{counted(len(hooks), registration)} {_number(fault.says, registration)}")
    severity = fault.severity or fault.code.severity
    effect = f": {consequence(registration, hooks, namespaces)}" if severity is Severity.ERROR else ""
    return Finding(
        code=fault.code,
        object=registration.source,
        message=says + effect,
        evidence=_evidence(registration, found),
        look=show_bundles(registration.source),
        remedy=renew(registration, managers),
        runbook=cure(renew(registration, managers)),
        cause=_cause(hooks),
        severity=fault.severity,
    )


def _number(says: str, registration: Registration) -> str:
    """The verb in the singular, for a CRD's one conversion."""
    if not registration.converted:
        return says
    return (
        says.replace("have ", "has ", 1) if says.startswith("have ") else says.replace("trust ", "trusts ", 1)
    )


def _evidence(registration: Registration, found: list[tuple[Hook, Fault]]) -> tuple[Evidence, ...]:
    shown = (bundle_at(registration.source, hook, fault.observed) for hook, fault in found[:EVIDENCE_SHOWN])
    return (*shown, writer(registration))


def _cause(hooks: list[Hook]) -> str:
    service = next((hook.service for hook in hooks if hook.service), None)
    return f"caBundles of {service.namespace}/{service.name}" if service else "caBundles"
