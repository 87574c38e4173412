"""Every caBundle verifies the certificate its Service serves: shown by a creation that is not stored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpuctl.audit.assertion import Strength, every
from gpuctl.audit.finding import Code, Evidence, Finding
from gpuctl.checks.kueue_webhooks import codes
from gpuctl.checks.kueue_webhooks.words import Managers, Namespaces, consequences, restart
from gpuctl.facts.fact import Maybe, given
from gpuctl.facts.kinds import Answer, Ref
from gpuctl.facts.objects import CustomResourceDefinition
from gpuctl.facts.state import Each, NotKnown, Reason, Unknown
from gpuctl.kueue.answers import Meaning, Reading, read
from gpuctl.kueue.facts import DRY_RUN, NAMESPACES, kueue_installations, kueue_managers
from gpuctl.kueue.objects import GROUP
from gpuctl.kueue.registrations import Installation

FLAVORS: Final = Ref(CustomResourceDefinition.of, f"resourceflavors.{GROUP}")
PERMISSION: Final = f"create resourceflavors.{GROUP}"

CODES: dict[Meaning, Code] = {
    Meaning.STALE_CA: codes.NOT_VERIFIED,
    Meaning.UNKNOWN_CA: codes.NOT_VERIFIED,
    Meaning.EXPIRED: codes.SERVED_EXPIRED,
    Meaning.OTHER_NAME: codes.SERVED_OTHER_NAME,
    Meaning.NO_ENDPOINTS: codes.NO_ANSWER,
    Meaning.REFUSED: codes.NO_ANSWER,
    Meaning.NO_NETWORK: codes.NO_ANSWER,
    Meaning.NO_SERVICE: codes.NO_ANSWER,
    Meaning.NOT_SERVED: codes.PATH_NOT_SERVED,
    Meaning.DID_NOT_RUN: codes.DID_NOT_RUN,
}

# Answers from which nothing was learned: why, and whether it was tried at all.
NOTHING_LEARNED: dict[Meaning, Reason] = {
    Meaning.FORBIDDEN: Reason.FORBIDDEN,
    Meaning.NO_DRY_RUN: Reason.NOT_ASKED,
    Meaning.OTHERS_WEBHOOK: Reason.NOT_ASKED,
    Meaning.TRANSIENT: Reason.SERVER_ERROR,
    Meaning.UNCLEAR: Reason.SERVER_ERROR,
}


@every(
    DRY_RUN,
    "every caBundle verifies the certificate its Service serves",
    given(kueue_installations, Maybe(NAMESPACES), Maybe(kueue_managers)),
    Strength.PROOF,
)
def verified_certificate(
    answer: Answer,
    installations: Each[Ref, Installation],
    namespaces: Namespaces,
    managers: Managers,
) -> Iterator[Finding]:
    reading = read(answer)
    if reading.meaning in NOTHING_LEARNED:
        raise NotKnown(_nothing_learned(reading))
    if reading.meaning in CODES:
        yield _finding(reading, tuple(installations), namespaces, managers)


def _nothing_learned(reading: Reading) -> Unknown:
    named = f" {reading.webhook}" if reading.webhook else ""
    permission = f" {PERMISSION}" if reading.meaning is Meaning.FORBIDDEN else ""
    message = f"{reading.meaning}{permission}{named}: {reading.says}"
    return Unknown(NOTHING_LEARNED[reading.meaning], message, f"dry run of {FLAVORS.name}")


def _finding(
    reading: Reading, installations: tuple[Installation, ...], namespaces: Namespaces, managers: Managers
) -> Finding:
    called = next((each for each in installations if _registers(each, reading.webhook)), None)
    subject = called.service if called else FLAVORS
    effect = f": {consequences(called, namespaces)}" if called else ""
    return Finding(
        code=CODES[reading.meaning],
        object=subject,
        message=f"Creating a ResourceFlavor shows that {reading.meaning}{effect}",
        evidence=(Evidence(subject, "", reading.says),),
        look="kubectl create --dry-run=server -f a-resourceflavor.yaml",
        remedy=_remedy(reading, subject, managers),
        cause=f"dry run: {reading.meaning}",
    )


def _registers(installation: Installation, webhook: str) -> bool:
    return any(hook.name == webhook for hook in installation.webhooks) or not webhook


def _remedy(reading: Reading, subject: Ref, managers: Managers) -> str:
    if reading.meaning is Meaning.NO_NETWORK:
        return (
            "open the way from the control plane to the manager's port 9443 (firewall of a private control "
            "plane, NetworkPolicy); risk: none"
        )
    if reading.meaning in {Meaning.DID_NOT_RUN, Meaning.NOT_SERVED}:
        return (
            "apply webhooks, CRDs and Deployment of one release of Kueue again; "
            "risk: caBundle is empty for a moment"
        )
    if reading.meaning in {Meaning.NO_ENDPOINTS, Meaning.NO_SERVICE, Meaning.REFUSED}:
        return "check again in 30 to 90 s; if it stays, heal what the other findings say; risk: none"
    return f"{restart(subject, managers)}. Don't patch caBundle by hand: it is overwritten"
