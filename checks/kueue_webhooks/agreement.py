"""All caBundles of an installation hold the same CA."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from gpuctl.audit.assertion import every
from gpuctl.audit.finding import Evidence, Finding
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
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import NotKnown
from gpuctl.kueue import certificates
from gpuctl.kueue.certificates import Bundle
from gpuctl.kueue.facts import NAMESPACES, kueue_installations, kueue_managers
from gpuctl.kueue.owners import is_rotating, writer_is_owner
from gpuctl.kueue.registrations import Hook, Installation, Registration


@dataclass(frozen=True, slots=True)
class Place:
    """One hook whose caBundle can be read."""

    registration: Registration
    hook: Hook
    bundle: Bundle


Side = list[Place]


@every(
    kueue_installations,
    "all caBundles of one Kueue hold the same CA",
    given(POLICY, NOW, Maybe(NAMESPACES), Maybe(kueue_managers)),
)
def agreeing_ca_bundles(
    installation: Installation, policy: Policy, now: datetime, namespaces: Namespaces, managers: Managers
) -> Iterator[Finding]:
    places, gap = _places(installation)
    sides = _sides(places)
    if len(sides) > 1:
        seconds = policy.checks.kueue_webhooks.rotation_seconds
        if _rotating(sides, now, seconds):
            yield _rotation(installation, sides)
        else:
            yield from _disagreements(installation, sides, namespaces, managers)
    if gap:
        raise gap


def _places(installation: Installation) -> tuple[list[Place], NotKnown | None]:
    """The bundles that can be compared. Those that are empty or damaged are another assertion's matter."""
    places: list[Place] = []
    gap: NotKnown | None = None
    for registration in installation.registrations:
        for hook in registration.hooks:
            try:
                bundle = certificates.parse(hook.client.ca_bundle)
            except NotKnown as unreadable:
                gap = unreadable
                continue
            if bundle.certificates:
                places.append(Place(registration, hook, bundle))
    return places, gap


def _sides(places: Sequence[Place]) -> list[Side]:
    """The places by the keys they trust, the largest side first; of equal ones the newest CA's.

    Places that share a key are one side: while a CA is changed by plan, some trust both the old and the new.
    """
    sides: list[tuple[frozenset[str], Side]] = []
    for place in places:
        akin = [side for side in sides if side[0] & place.bundle.keys]
        apart = [side for side in sides if not side[0] & place.bundle.keys]
        keys = place.bundle.keys.union(*(keys for keys, _ in akin))
        sides = [*apart, (keys, [*(each for _, side in akin for each in side), place])]
    return sorted((side for _, side in sides), key=_weight, reverse=True)


def _weight(side: Side) -> tuple[int, datetime, str]:
    newest = side[0].bundle.newest
    return len(side), newest.not_before, newest.key


def _rotating(sides: list[Side], now: datetime, seconds: int) -> bool:
    """Whether the owner wrote all of one side just now, and nobody else wrote any of the others."""
    written = [[place.registration for place in side] for side in sides]
    by_owner = all(writer_is_owner(each) for side in written for each in side)
    return by_owner and any(all(is_rotating(each, now, seconds) for each in side) for side in written)


def _rotation(installation: Installation, sides: list[Side]) -> Finding:
    return Finding(
        code=codes.ROTATING,
        object=installation.service,
        message=f"The certificates of {installation.service} are being rotated: {len(sides)} CAs are in use",
        evidence=tuple(writer(each) for each in _registrations(sides)),
        look=show_bundles(sides[-1][0].registration.source),
        remedy="wait 90 s and check again; risk: none",
    )


def _registrations(sides: list[Side]) -> list[Registration]:
    return list({place.registration.source: place.registration for side in sides for place in side}.values())


def _disagreements(
    installation: Installation, sides: list[Side], namespaces: Namespaces, managers: Managers
) -> Iterator[Finding]:
    """One finding for each configuration that holds a minority's CA."""
    majority = sides[0]
    for side in sides[1:]:
        for places in _by_source(side).values():
            yield _disagreement(installation, places, majority, namespaces, managers)


def _by_source(side: Side) -> dict[Ref, Side]:
    found: dict[Ref, Side] = {}
    for place in side:
        found.setdefault(place.registration.source, []).append(place)
    return found


def _disagreement(
    installation: Installation, places: Side, majority: Side, namespaces: Namespaces, managers: Managers
) -> Finding:
    registration = places[0].registration
    hooks = [place.hook for place in places]
    one = registration.converted is not None
    message = (
        f"{counted(len(hooks), registration)} {'trusts' if one else 'trust'} another CA ({_made(places[0])}) "
        f"than the other {len(majority)} places of this Kueue ({_made(majority[0])}); only one signed "
        f"the served certificate, so either here or there {_effect(registration, hooks, namespaces)}"
    )
    return Finding(
        code=codes.BUNDLES_DISAGREE,
        object=registration.source,
        message=sentence(message),
        evidence=(_at(places[0]), writer(registration), _at(majority[0]), writer(majority[0].registration)),
        look=show_bundles(registration.source),
        remedy=renew(registration, managers),
        runbook=cure(renew(registration, managers)),
        mark=places[0].bundle.newest.fingerprint,
        cause=f"caBundles of {installation.service.namespace}/{installation.service.name}",
    )


def _effect(registration: Registration, hooks: list[Hook], namespaces: Namespaces) -> str:
    return "calls fail (here: " + consequence(registration, hooks, namespaces) + ")"


def _made(place: Place) -> str:
    newest = place.bundle.newest
    return f"SHA-256 {newest.short}…, made {newest.not_before:%Y-%m-%d %H:%M}"


def _at(place: Place) -> Evidence:
    observed = f"{place.bundle.newest.subject} {_made(place)}"
    return bundle_at(place.registration.source, place.hook, observed)
