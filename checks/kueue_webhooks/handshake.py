"""The certificate that the manager shows is what the caBundles sign: seen through port-forward, where no dry
run could tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpuctl.audit.assertion import Strength, every
from gpuctl.audit.finding import Evidence, Finding
from gpuctl.audit.policy import POLICY, Policy
from gpuctl.checks.kueue_webhooks import codes
from gpuctl.checks.kueue_webhooks.proof import CODES, remedy, rotation, too_early
from gpuctl.checks.kueue_webhooks.words import Managers, Namespaces, bundle_at, consequences, cure
from gpuctl.facts.fact import Maybe, given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Each, Inapplicable, NotKnown, Reason, Unknown
from gpuctl.facts.tls import Handshake
from gpuctl.kueue import certificates
from gpuctl.kueue.answers import Meaning
from gpuctl.kueue.facts import NAMESPACES, kueue_installations, kueue_managers
from gpuctl.kueue.proofs import HANDSHAKES, rotating
from gpuctl.kueue.registrations import Hook, Installation, Registration
from gpuctl.kueue.served import described, worth

# What a stream says that did not come to a handshake.
FAILURES: tuple[tuple[str, Meaning], ...] = (
    ("refused", Meaning.REFUSED),
    ("no answer", Meaning.NO_NETWORK),
    ("timed out", Meaning.NO_NETWORK),
)
EVIDENCE_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Doubt:
    """A caBundle that does not verify what is shown."""

    registration: Registration
    hook: Hook
    meaning: Meaning


@every(
    HANDSHAKES,
    "the certificate that the manager shows is signed by every caBundle",
    given(kueue_installations, Maybe(NAMESPACES), Maybe(kueue_managers), POLICY),
    Strength.PROOF,
)
def shown_certificate(
    handshake: Handshake,
    installations: Each[Ref, Installation],
    namespaces: Namespaces,
    managers: Managers,
    policy: Policy,
) -> Iterator[Finding]:
    known = (each for _, each in installations.known())
    called = next((each for each in known if each.dns_name == handshake.server_name), None)
    if called is None:
        raise NotKnown(Inapplicable(f"nothing calls {handshake.server_name}"))
    if handshake.error:
        yield _no_handshake(called, handshake.error, namespaces, managers)
        return
    doubts = tuple(_doubts(called, handshake))
    seconds = policy.checks.kueue_webhooks.rotation_seconds
    doubted = [each.registration for each in doubts]
    if doubts and rotating(doubted, called.registrations, handshake.at, seconds):
        yield rotation(called)
        raise NotKnown(too_early(called))
    for meaning in dict.fromkeys(each.meaning for each in doubts):
        of_one = [each for each in doubts if each.meaning is meaning]
        yield _finding(called, of_one, handshake, namespaces, managers)


def _doubts(called: Installation, handshake: Handshake) -> Iterator[Doubt]:
    """Bundles that are empty or damaged are another assertion's matter."""
    for registration in called.registrations:
        for hook in registration.hooks:
            bundle = hook.client.ca_bundle
            if certificates.is_empty(bundle) or certificates.parse(bundle).damage:
                continue
            roots = certificates.decoded(bundle)
            meaning = worth(handshake.chain, roots, handshake.server_name, handshake.at)
            if meaning is not Meaning.HEALTHY:
                yield Doubt(registration, hook, meaning)


def _finding(
    called: Installation,
    doubts: Sequence[Doubt],
    handshake: Handshake,
    namespaces: Namespaces,
    managers: Managers,
) -> Finding:
    meaning, shown = doubts[0].meaning, described(handshake.chain)
    places = tuple(
        bundle_at(each.registration.source, each.hook, str(each.meaning)) for each in doubts[:EVIDENCE_SHOWN]
    )
    return Finding(
        code=CODES[meaning],
        object=called.service,
        message=(
            f"A TLS handshake with the manager shows that {meaning}, for {len(doubts)} of "
            f"{len(called.hooks)} webhooks and conversions: {consequences(called, namespaces)}"
        ),
        evidence=(Evidence(called.service, "", f"shown: {shown}"), *places),
        look=(
            f"kubectl -n {called.service.namespace} port-forward service/{called.service.name} 9443:443 & "
            f"openssl s_client -connect localhost:9443 -servername {called.dns_name} </dev/null"
        ),
        remedy=remedy(meaning, called.service, managers),
        runbook=cure(remedy(meaning, called.service, managers)),
        mark=meaning.name,
        cause=f"handshake: {meaning}",
    )


def _no_handshake(called: Installation, error: str, namespaces: Namespaces, managers: Managers) -> Finding:
    """The pod itself does not answer. Raises NotKnown for a failure that may be the way's to it."""
    meaning = next((meaning for words, meaning in FAILURES if words in error), None)
    if meaning is None:
        raise NotKnown(Unknown(Reason.SERVER_ERROR, error, str(called.service)))
    says = "refuses connections" if meaning is Meaning.REFUSED else "does not answer"
    return Finding(
        code=codes.NO_ANSWER,
        object=called.service,
        message=(
            f"The manager {says}, asked through port-forward to its pod: {consequences(called, namespaces)}"
        ),
        evidence=(Evidence(called.service, "", error),),
        look=f"kubectl -n {called.service.namespace} port-forward service/{called.service.name} 9443:443",
        remedy=remedy(meaning, called.service, managers),
        runbook=cure(remedy(meaning, called.service, managers)),
        cause=f"handshake: {meaning}",
    )
