"""The webhook's Secret holds a certificate that the caBundles sign. Read only on the person's word."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from gpuctl.audit.assertion import Strength, every
from gpuctl.audit.finding import Code, Evidence, Finding
from gpuctl.audit.policy import POLICY, Policy
from gpuctl.checks.kueue_webhooks import codes
from gpuctl.checks.kueue_webhooks.proof import rotation, too_early
from gpuctl.checks.kueue_webhooks.words import Managers, bundle_at, cure, get, restart
from gpuctl.facts.fact import NOW, Maybe, given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Each, Inapplicable, NotKnown, Reason, State, Unknown
from gpuctl.kueue import certificates
from gpuctl.kueue.answers import Meaning
from gpuctl.kueue.facts import Configured, kueue_managers, manager_configurations
from gpuctl.kueue.manager import Manager
from gpuctl.kueue.objects import WebhookSecret
from gpuctl.kueue.proofs import SECRETS, mounted_secret, rotating
from gpuctl.kueue.registrations import Hook, Registration
from gpuctl.kueue.served import described, worth

EVIDENCE_SHOWN = 3


@every(
    kueue_managers,
    "the webhook's Secret holds a certificate that every caBundle signs",
    given(SECRETS, Maybe(manager_configurations), NOW, POLICY, Maybe(kueue_managers)),
    Strength.PROOF,
)
def secrets_certificate(
    manager: Manager,
    secrets: Each[Ref, WebhookSecret],
    configured: State[Each[Ref, Configured]],
    now: datetime,
    policy: Policy,
    managers: Managers,
) -> Iterator[Finding]:
    ref = mounted_secret(manager, configured)
    secret = secrets.get(ref) if ref else None
    if secret is None:
        raise NotKnown(Inapplicable(f"no Secret is mounted where the manager behind {manager.ref} looks"))
    yield from _leaf(manager, secret, now, managers)
    yield from _bundles(manager, secret, now, policy, managers)


def _authority(secret: WebhookSecret) -> bytes:
    """With cert-manager's self-signed issuer the leaf is its own CA."""
    return certificates.decoded(secret.data.authority or secret.data.certificate)


def _leaf(manager: Manager, secret: WebhookSecret, now: datetime, managers: Managers) -> Iterator[Finding]:
    text = certificates.decoded(secret.data.certificate).decode(errors="replace")
    if not certificates.parse_pem(text.encode()).certificates:
        why = "it holds no certificate under tls.crt"
        raise NotKnown(Unknown(Reason.MALFORMED, why, str(secret.ref)))
    meaning = worth((text,), _authority(secret), manager.installation.dns_name, now)
    if meaning is not Meaning.HEALTHY:
        yield _finding(
            manager,
            secret,
            f"{secret.ref} holds a certificate that is no good: {_against_itself(meaning)}",
            (Evidence(secret.ref, ".data.tls\\.crt", described((text,))),),
            managers,
            codes.SECRET_UNUSABLE,
        )


def _against_itself(meaning: Meaning) -> str:
    return {
        Meaning.STALE_CA: "its own ca.crt has not signed it",
        Meaning.UNKNOWN_CA: "its own ca.crt has not signed it",
        Meaning.EXPIRED: "it or its CA has expired or is not valid yet",
        Meaning.OTHER_NAME: "it bears another name than the webhook Service's",
    }.get(meaning, str(meaning))


def _bundles(
    manager: Manager, secret: WebhookSecret, now: datetime, policy: Policy, managers: Managers
) -> Iterator[Finding]:
    keys = certificates.parse_pem(_authority(secret)).keys
    others = [
        (registration, hook)
        for registration, hook in _bundled(manager)
        if not keys & certificates.parse(hook.client.ca_bundle).keys
    ]
    if not others or not keys:
        return
    registrations = list({each.source: each for each, _ in others}.values())
    written = manager.installation.registrations
    if rotating(registrations, written, now, policy.checks.kueue_webhooks.rotation_seconds):
        yield rotation(manager.installation)
        raise NotKnown(too_early(manager.installation))
    counted = f"{len(others)} of {len(manager.installation.hooks)} caBundles"
    yield _finding(
        manager,
        secret,
        f"{counted} are not the CA that {secret.ref} holds",
        tuple(bundle_at(each.source, hook, "another CA") for each, hook in others[:EVIDENCE_SHOWN]),
        managers,
        codes.SECRET_DIFFERS,
    )


def _bundled(manager: Manager) -> Iterator[tuple[Registration, Hook]]:
    """The hooks whose caBundle can be compared; the others are another assertion's matter."""
    for registration in manager.installation.registrations:
        for hook in registration.hooks:
            bundle = hook.client.ca_bundle
            if not certificates.is_empty(bundle) and certificates.parse(bundle).certificates:
                yield registration, hook


def _finding(
    manager: Manager,
    secret: WebhookSecret,
    message: str,
    evidence: tuple[Evidence, ...],
    managers: Managers,
    code: Code,
) -> Finding:
    return Finding(
        code=code,
        object=secret.ref,
        message=message,
        evidence=evidence,
        look=get(secret.ref, "jsonpath='{.data.ca\\.crt}'"),
        remedy=f"{restart(manager.ref, managers)}. Don't patch caBundle by hand: it is overwritten",
        runbook=cure(restart(manager.ref, managers)),
        cause=code.title,
    )
