"""Who makes Kueue's certificates and writes its caBundles: Kueue itself, or cert-manager."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

from gpuctl.kueue.registrations import Registration

# Kueue's User-Agent starts with "kueue/"; releases without one of their own are named by their binary.
_INTERNAL_WRITERS = frozenset({"kueue", "manager"})
_CERT_MANAGER_WRITERS = ("cert-manager", "cainjector")


class Owner(StrEnum):
    """One of those who may own the certificates."""

    INTERNAL = "Kueue's internal certificate management"
    CERT_MANAGER = "cert-manager"


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
    return now - registration.written.at < timedelta(seconds=seconds)
