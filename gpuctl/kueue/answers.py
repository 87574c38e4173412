"""What the API server's answer to a creation says of Kueue's webhooks."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gpuctl.facts.kinds import Answer
from gpuctl.kueue.objects import GROUP
from gpuctl.kueue.registrations import is_own_name

FINALIZER = f"{GROUP}/resource-in-use"
_CALLED = re.compile(r'failed calling webhook "([^"]+)"')
_DENIED = re.compile(r'admission webhook "([^"]+)" denied the request')
_CREATED, _BAD_REQUEST, _FORBIDDEN = range(200, 300), 400, 403


class Meaning(StrEnum):
    """What is wrong, or why nothing was learned."""

    HEALTHY = "the webhooks answered"
    DID_NOT_RUN = "the mutating webhook did not run"
    STALE_CA = "the caBundle is an older CA of the same name"
    UNKNOWN_CA = "the caBundle is not the CA that signed the served certificate"
    EXPIRED = "the served certificate has expired or is not valid yet"
    OTHER_NAME = "the served certificate bears another name"
    NO_ENDPOINTS = "the Service has no endpoint"
    REFUSED = "the connection was refused"
    NO_NETWORK = "the API server does not reach the manager"
    TRANSIENT = "the connection broke; the manager may be restarting"
    NO_SERVICE = "the Service does not exist"
    NOT_SERVED = "the manager does not serve this webhook's path"
    FORBIDDEN = "the permission to try is missing"
    NO_DRY_RUN = "another's webhook does not support dry runs"
    OTHERS_WEBHOOK = "another's webhook failed or refused first"
    REFUSED_BEFORE = "the server refused before it asked the webhooks"
    UNCLEAR = "the answer says nothing of the webhooks"


@dataclass(frozen=True, slots=True)
class Reading:
    """An answer, understood. `webhook` is the one it names, `says` the server's own words."""

    meaning: Meaning
    says: str
    webhook: str = ""
    converts: bool = False


# The first row whose words occur in the message is its meaning: the more special before the more general.
_ROWS: tuple[tuple[str, Meaning], ...] = (
    ("while trying to verify candidate authority certificate", Meaning.STALE_CA),
    ("certificate signed by unknown authority", Meaning.UNKNOWN_CA),
    ("certificate has expired or is not yet valid", Meaning.EXPIRED),
    ("x509: certificate is valid for", Meaning.OTHER_NAME),
    ("x509: certificate is not valid for any names", Meaning.OTHER_NAME),
    ("x509: certificate relies on legacy Common Name field", Meaning.OTHER_NAME),
    ("unable to load root certificates", Meaning.UNKNOWN_CA),
    ("no endpoints available for service", Meaning.NO_ENDPOINTS),
    ("502 Bad Gateway", Meaning.TRANSIENT),
    ("connection refused", Meaning.REFUSED),
    ("connection reset by peer", Meaning.TRANSIENT),
    ("http2: ", Meaning.TRANSIENT),
    ("TLS handshake timeout", Meaning.NO_NETWORK),
    ("context deadline exceeded", Meaning.NO_NETWORK),
    ("Client.Timeout", Meaning.NO_NETWORK),
    ("request canceled", Meaning.NO_NETWORK),
    ("i/o timeout", Meaning.NO_NETWORK),
    ("no route to host", Meaning.NO_NETWORK),
    ("the server could not find the requested resource", Meaning.NOT_SERVED),
    (": EOF", Meaning.TRANSIENT),
)
_NO_SERVICE = re.compile(r'service "[^"]*" not found')


# Nothing is wrong, or nothing was learned.
LEARNED_NOTHING = frozenset(
    {
        Meaning.FORBIDDEN,
        Meaning.NO_DRY_RUN,
        Meaning.OTHERS_WEBHOOK,
        Meaning.REFUSED_BEFORE,
        Meaning.TRANSIENT,
        Meaning.UNCLEAR,
    }
)
# What a rotation looks like from outside, until the pods serve the new certificate.
CERTIFICATE = frozenset({Meaning.STALE_CA, Meaning.UNKNOWN_CA, Meaning.EXPIRED, Meaning.OTHER_NAME})


def read(answer: Answer, own: Collection[str] = ()) -> Reading:
    """Understands an answer to a creation that is not stored. `own` are the names of Kueue's webhooks."""
    if answer.status in _CREATED:
        return _created(answer.body)
    message = str(answer.body.get("message", ""))
    if answer.status == _FORBIDDEN and "cannot create resource" in message:
        return Reading(Meaning.FORBIDDEN, message)
    denied = _DENIED.search(message)
    if denied:
        meaning = Meaning.HEALTHY if _is_own(denied.group(1), own) else Meaning.OTHERS_WEBHOOK
        return Reading(meaning, message, denied.group(1))
    if answer.status == _BAD_REQUEST and "dry run" in message.lower():
        return Reading(Meaning.NO_DRY_RUN, message, _named(message))
    reading = read_failure(message, own)
    if answer.status == _FORBIDDEN and reading.meaning is Meaning.UNCLEAR:
        return Reading(Meaning.REFUSED_BEFORE, message)
    return reading


def read_failure(message: str, own: Collection[str] = ()) -> Reading:
    """Understands why a call of a webhook or a conversion failed."""
    webhook = _named(message)
    converts = f"conversion webhook for {GROUP}/" in message
    if not webhook and not converts:
        return Reading(Meaning.UNCLEAR, message)
    if webhook and not _is_own(webhook, own):
        return Reading(Meaning.OTHERS_WEBHOOK, message, webhook)
    return Reading(_meaning(message), message, webhook, converts)


def _is_own(webhook: str, own: Collection[str]) -> bool:
    return webhook in own or is_own_name(webhook)


def _named(message: str) -> str:
    match = _CALLED.search(message) or re.search(r'webhook "?([\w.-]+)"? does not support dry run', message)
    return match.group(1) if match else ""


def _meaning(message: str) -> Meaning:
    if _NO_SERVICE.search(message):
        return Meaning.NO_SERVICE
    return next((meaning for words, meaning in _ROWS if words in message), Meaning.UNCLEAR)


def _created(body: Mapping[str, Any]) -> Reading:
    """Kueue's mutating webhook leaves its finalizer on a ResourceFlavor; on other kinds it leaves no mark."""
    if body.get("kind") not in ("ResourceFlavor", None):
        return Reading(Meaning.HEALTHY, f"the server would create the {body.get('kind')}")
    metadata = body.get("metadata")
    finalizers = metadata.get("finalizers") if isinstance(metadata, Mapping) else None
    if isinstance(finalizers, list) and FINALIZER in finalizers:
        return Reading(Meaning.HEALTHY, f"finalizers: {', '.join(map(str, finalizers))}")
    return Reading(Meaning.DID_NOT_RUN, f"the object came back without the finalizer {FINALIZER}")
