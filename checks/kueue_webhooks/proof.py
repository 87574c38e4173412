"""Every caBundle verifies the certificate its Service serves: shown by a creation that is not stored.

What one answer says is judged here for all kinds that are tried.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpuctl.audit.assertion import Strength, every
from gpuctl.audit.finding import Code, Evidence, Finding
from gpuctl.audit.policy import POLICY, Policy
from gpuctl.checks.kueue_webhooks import codes
from gpuctl.checks.kueue_webhooks.manager import cause
from gpuctl.checks.kueue_webhooks.words import (
    Managers,
    Namespaces,
    consequence,
    consequences,
    cure,
    restart,
    writer,
)
from gpuctl.facts.fact import Maybe, given
from gpuctl.facts.kinds import Answer, Attempt, Kind, Ref
from gpuctl.facts.objects import CustomResourceDefinition
from gpuctl.facts.state import Each, Known, NotKnown, Reason, Unknown
from gpuctl.kueue.answers import CERTIFICATE, Meaning, Reading, read
from gpuctl.kueue.facts import NAMESPACES, kueue_installations, kueue_managers
from gpuctl.kueue.manager import diagnoses
from gpuctl.kueue.objects import GROUP, RESOURCE_FLAVOR
from gpuctl.kueue.proofs import DRY_RUN, a_resource_flavor_to_try, rotating
from gpuctl.kueue.registrations import Installation

FLAVORS: Final = Ref(CustomResourceDefinition.of, f"resourceflavors.{GROUP}")
LASTING: Final = 20.0  # seconds after which a connection that breaks is no restart any more

CODES: dict[Meaning, Code] = {
    Meaning.STALE_CA: codes.NOT_VERIFIED,
    Meaning.UNKNOWN_CA: codes.NOT_VERIFIED,
    Meaning.EXPIRED: codes.SERVED_EXPIRED,
    Meaning.OTHER_NAME: codes.SERVED_OTHER_NAME,
    Meaning.NO_ENDPOINTS: codes.NO_ANSWER,
    Meaning.REFUSED: codes.NO_ANSWER,
    Meaning.NO_NETWORK: codes.NO_ANSWER,
    Meaning.NO_SERVICE: codes.NO_ANSWER,
    Meaning.TRANSIENT: codes.NO_ANSWER,
    Meaning.NOT_SERVED: codes.PATH_NOT_SERVED,
    Meaning.DID_NOT_RUN: codes.DID_NOT_RUN,
}

# Answers from which nothing was learned: why, and whether it was tried at all.
NOTHING_LEARNED: dict[Meaning, Reason] = {
    Meaning.FORBIDDEN: Reason.FORBIDDEN,
    Meaning.NO_DRY_RUN: Reason.NOT_ASKED,
    Meaning.OTHERS_WEBHOOK: Reason.NOT_ASKED,
    Meaning.REFUSED_BEFORE: Reason.NOT_ASKED,
    Meaning.TRANSIENT: Reason.SERVER_ERROR,
    Meaning.UNCLEAR: Reason.SERVER_ERROR,
}


@dataclass(frozen=True, slots=True)
class Around:
    """What an answer is judged against. What is not known of the installations only leaves out names."""

    installations: Each[Ref, Installation]
    namespaces: Namespaces
    managers: Managers
    policy: Policy

    @property
    def own(self) -> frozenset[str]:
        """The names of Kueue's webhooks."""
        return frozenset(hook.name for _, each in self.installations.known() for hook in each.webhooks)

    def called(self, webhook: str) -> Installation | None:
        """The installation that registers a webhook; without a name, the first."""
        known = (each for _, each in self.installations.known())
        return next((each for each in known if _registers(each, webhook)), None)


@given(kueue_installations, Maybe(NAMESPACES), Maybe(kueue_managers), POLICY)
def around_the_answers(
    installations: Each[Ref, Installation], namespaces: Namespaces, managers: Managers, policy: Policy
) -> Around:
    return Around(installations, namespaces, managers, policy)


@every(
    DRY_RUN,
    "every caBundle verifies the certificate its Service serves",
    given(around_the_answers, a_resource_flavor_to_try),
    Strength.PROOF,
)
def verified_certificate(answer: Answer, around: Around, tried: Collection[Attempt]) -> Iterator[Finding]:
    yield from judged(answer, tried, around)


def judged(answer: Answer, tried: Collection[Attempt], around: Around) -> Iterator[Finding]:
    """What the answer to the one creation that was tried refutes; then NotKnown where it says nothing."""
    (attempt,) = tried
    reading = read(answer, around.own)
    if reading.meaning in NOTHING_LEARNED and not _lasts(reading, answer):
        raise NotKnown(_nothing_learned(reading, attempt.kind))
    called = around.called(reading.webhook)
    if called and reading.meaning in CERTIFICATE and _rotates(called, reading, answer, around.policy):
        yield rotation(called)
        raise NotKnown(too_early(called))
    if reading.meaning in CODES:
        yield _finding(reading, answer, attempt, called, around)


def _lasts(reading: Reading, answer: Answer) -> bool:
    return reading.meaning is Meaning.TRANSIENT and answer.lasted >= LASTING


def _rotates(called: Installation, reading: Reading, answer: Answer, policy: Policy) -> bool:
    seconds = policy.checks.kueue_webhooks.rotation_seconds
    refused = [
        each for each in called.registrations if any(hook.name == reading.webhook for hook in each.hooks)
    ]
    return rotating(refused or called.registrations, called.registrations, answer.at, seconds)


def rotation(installation: Installation) -> Finding:
    """Pods may serve the certificate of before for as long as their kubelets take to bring the new one."""
    return Finding(
        code=codes.ROTATING,
        object=installation.service,
        message=(
            f"The certificates of {installation.service} are being rotated: its caBundles were written just "
            "now, and the manager still serves the certificate of before"
        ),
        evidence=tuple(writer(each) for each in installation.registrations[:2]),
        look=f"kubectl -n {installation.service.namespace} get events",
        remedy="wait 90 s and check again; risk: none",
        cause="certificates are being rotated",
    )


def too_early(installation: Installation) -> Unknown:
    """Why a certificate that does not fit proves nothing yet."""
    why = "certificates are being rotated: too early to tell, check again in 90 s"
    return Unknown(Reason.NOT_ASKED, why, str(installation.service))


def _nothing_learned(reading: Reading, kind: Kind) -> Unknown:
    named = f" {reading.webhook}" if reading.webhook else ""
    permission = f" create {kind.resource}" if reading.meaning is Meaning.FORBIDDEN else ""
    message = f"{reading.meaning}{permission}{named}: {reading.says}"
    return Unknown(NOTHING_LEARNED[reading.meaning], message, f"dry run of {kind.resource}")


def _finding(
    reading: Reading, answer: Answer, attempt: Attempt, called: Installation | None, around: Around
) -> Finding:
    kind = attempt.kind
    subject = called.service if called else Ref(CustomResourceDefinition.of, kind.resource)
    effect = f": {_effect(called, reading, around.namespaces)}" if called else ""
    lasted = f" for {answer.lasted:.0f} s" if reading.meaning is Meaning.TRANSIENT else ""
    return Finding(
        code=CODES[reading.meaning],
        object=subject,
        message=f"Creating a {kind.kind} shows that {reading.meaning}{lasted}{effect}",
        evidence=(Evidence(subject, "", reading.says),),
        look=creation(attempt.body),
        remedy=remedy(reading.meaning, subject, around.managers),
        runbook=cure(remedy(reading.meaning, subject, around.managers)),
        mark="" if kind == RESOURCE_FLAVOR else kind.plural,
        cause=_cause(reading, called, around.managers),
    )


def creation(body: Mapping[str, Any]) -> str:
    """The command by which a person tries the same creation. Nothing of it is stored."""
    sent = json.dumps(body, separators=(",", ":"))
    return f"printf '%s' {shlex.quote(sent)} | kubectl create --dry-run=server -f -"


def _effect(called: Installation, reading: Reading, namespaces: Namespaces) -> str:
    """What fails with this webhook: where its caBundle is at fault, its own configuration; else all."""
    for registration in called.registrations:
        if reading.meaning in CERTIFICATE and any(
            hook.name == reading.webhook for hook in registration.hooks
        ):
            return consequence(registration, registration.hooks, namespaces)
    return consequences(called, namespaces)


def _cause(reading: Reading, called: Installation | None, managers: Managers) -> str:
    """The manager's own trouble, where that is what keeps it from answering."""
    if called and CODES[reading.meaning] is codes.NO_ANSWER and in_trouble(called, managers):
        return cause(called.service)
    return f"dry run: {reading.meaning}"


def in_trouble(installation: Installation, managers: Managers) -> bool:
    """Whether it is known that no pod of the manager can answer."""
    if not isinstance(managers, Known):
        return False
    try:
        return any(not each.answered for each in diagnoses(managers.value[installation.service]))
    except NotKnown:
        return False


def _registers(installation: Installation, webhook: str) -> bool:
    return any(hook.name == webhook for hook in installation.webhooks) or not webhook


def remedy(meaning: Meaning, service: Ref, managers: Managers) -> str:
    """What to do about it, with its risk."""
    if meaning is Meaning.NO_NETWORK:
        return (
            "see whether the manager hangs (its log), then open the way from the control plane to its port "
            "9443 (firewall of a private control plane, NetworkPolicy); risk: none"
        )
    if meaning in {Meaning.DID_NOT_RUN, Meaning.NOT_SERVED}:
        return (
            "apply webhooks, CRDs and Deployment of one release of Kueue again; "
            "risk: caBundle is empty for a moment"
        )
    if meaning in {Meaning.NO_ENDPOINTS, Meaning.NO_SERVICE, Meaning.REFUSED, Meaning.TRANSIENT}:
        return "check again in 30 to 90 s; if it stays, heal what the other findings say; risk: none"
    return f"{restart(service, managers)}. Don't patch caBundle by hand: it is overwritten"
