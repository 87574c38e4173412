"""What belongs to which release of Kueue."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

Release = tuple[int, int]

V1BETA2: Release = (0, 15)
_TAG = re.compile(r"v?(\d{1,3})\.(\d{1,3})(?:\.\d{1,3})?(?:[-+._].*)?")
# Kinds with a webhook in some releases only: a manager outside of them answers its path with 404.
_SINCE: dict[str, Release] = {
    "cohort": (0, 9),
    "trainjob": (0, 14),
    "rayservice": (0, 17),
    "sparkapplication": (0, 17),
}
_UNTIL: dict[str, Release] = {"mxjob": (0, 10), "localqueue": (0, 6), "admissioncheck": (0, 6)}
_WEBHOOK_KIND = re.compile(r"[mv]([a-z0-9]+)\.kb\.io")


@dataclass(frozen=True, slots=True)
class Foreign:
    """Something registered that a manager of this release does not serve."""

    name: str
    why: str


def release_of(image: str) -> Release | None:
    """The release an image's tag tells; None for digests, branches and anything else."""
    name = image.partition("@")[0].rpartition("/")[2]
    tag = name.partition(":")[2]
    match = _TAG.fullmatch(tag)
    return (int(match.group(1)), int(match.group(2))) if match else None


def written(release: Release) -> str:
    """A release as people write it."""
    return f"v{release[0]}.{release[1]}"


def api_version(release: Release) -> str | None:
    """The version of Kueue's API that a release's own webhooks are registered for, as far as is known."""
    if release >= (1, 0):
        return None
    return "v1beta2" if release >= V1BETA2 else "v1beta1"


def foreign_webhooks(release: Release, names: Iterable[str]) -> tuple[Foreign, ...]:
    """The webhooks among these that the release does not have."""
    found = (_foreign(release, name) for name in names)
    return tuple(each for each in found if each)


def _foreign(release: Release, name: str) -> Foreign | None:
    match = _WEBHOOK_KIND.fullmatch(name)
    kind = match.group(1) if match else ""
    if kind in _SINCE and release < _SINCE[kind]:
        return Foreign(name, f"exists since {written(_SINCE[kind])}")
    if kind in _UNTIL and release > _UNTIL[kind]:
        return Foreign(name, f"was dropped after {written(_UNTIL[kind])}")
    return None
