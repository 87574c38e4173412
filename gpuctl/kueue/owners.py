"""Who makes Kueue's certificates and writes its caBundles: Kueue itself, or cert-manager."""

from __future__ import annotations

from datetime import datetime, timedelta

from gpuctl.kueue.registrations import Registration
from gpuctl.kueue.releases import Release

# Kueue's User-Agent starts with "kueue/"; releases without one of their own are named by their binary.
_INTERNAL_WRITERS = frozenset({"kueue", "manager"})
_CERT_MANAGER_WRITERS = ("cert-manager", "cainjector")


def writer_is_owner(registration: Registration) -> bool | None:
    """Whether the certificates' owner wrote the caBundle last; None if managedFields does not tell."""
    if registration.written is None:
        return None
    manager = registration.written.by
    if registration.injected_from:
        return manager.startswith(_CERT_MANAGER_WRITERS)
    return manager in _INTERNAL_WRITERS


def is_rotating(registration: Registration, now: datetime, seconds: int) -> bool:
    """Whether the owner wrote the caBundle just now, so that others may still follow."""
    if not writer_is_owner(registration) or registration.written is None or registration.written.at is None:
        return False
    # The clock of whoever runs this may be late: what was written far in the future is no rotation either.
    return abs(now - registration.written.at) < timedelta(seconds=seconds)


_DERIVED_SINCE: Release = (0, 14)
_FIXED_BEFORE: Release = (0, 12)
_SUFFIXES = ("mutating-webhook-configuration", "validating-webhook-configuration")


def injected_names(service_name: str, release: Release | None) -> frozenset[str]:
    """The configurations that the internal rotator writes to. Releases in between differ by patch."""
    derived = frozenset(f"{service_name.removesuffix('-webhook-service')}-{each}" for each in _SUFFIXES)
    fixed = frozenset(f"kueue-{each}" for each in _SUFFIXES)
    if release is not None and release >= _DERIVED_SINCE:
        return derived
    if release is not None and release < _FIXED_BEFORE:
        return fixed
    return derived | fixed
