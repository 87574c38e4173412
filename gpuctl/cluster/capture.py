"""capture.yaml: when a snapshot was taken, and what it can and can't answer for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from gpuctl.facts.kinds import Moment
from gpuctl.facts.state import Reason

API_VERSION: Final = "gpuctl.dev/v1"
KIND: Final = "Snapshot"
EVERYTHING: Final = "*"
SECRETS: Final = "secrets"


class Scope(msgspec.Struct, frozen=True, omit_defaults=True):
    """Objects of one resource, "<plural>[.<group>]": all, or those a narrower read asked for."""

    resource: str
    namespace: str = ""
    name: str = ""
    labels: str = ""

    def covers(self, other: Scope) -> bool:
        """Whether all of the other lies in this one."""
        pairs = (
            (self.namespace, other.namespace),
            (self.name, other.name),
            (self.labels, other.labels),
        )
        return self.resource == other.resource and all(mine in ("", its) for mine, its in pairs)

    def overlaps(self, other: Scope) -> bool:
        """Whether something may lie in both. Labels never exclude each other for certain."""
        pairs = ((self.namespace, other.namespace), (self.name, other.name))
        return self.resource == other.resource and all(
            "" in (mine, its) or mine == its for mine, its in pairs
        )

    def __str__(self) -> str:
        """`pods with app=x`, `pods in kueue-system`: the way messages name it."""
        words = f"{self.resource} {self.name}" if self.name else self.resource
        words += f" with {self.labels}" if self.labels else ""
        return f"{words} in {self.namespace}" if self.namespace else words


class Missing(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something asked for and not read. With `version`: not in this one, perhaps in another."""

    resource: str
    reason: Reason
    message: str = ""
    version: str = ""
    namespace: str = ""
    name: str = ""
    container: str = ""

    @property
    def scope(self) -> Scope:
        """What could not be read."""
        return Scope(self.resource, self.namespace, self.name)


class Capture(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The contents of capture.yaml. Fields that a later gpuctl adds are passed over.

    `namespace` is the only one that was looked into: a question about anything else did not arise. `objects`
    says how many of each resource were stored, so that a file that got lost is noticed.
    """

    api_version: str
    kind: str
    captured_at: Moment | None = None
    writer: str = ""
    server_version: str = ""
    cluster_uid: str = msgspec.field(default="", name="clusterUID")
    namespace: str = ""
    served: dict[str, tuple[str, ...]] | None = None
    complete: tuple[str | Scope, ...] = ()
    missing: tuple[Missing, ...] = ()
    objects: dict[str, int] = {}

    def scopes(self) -> Iterator[Scope]:
        """What was read in full, short forms written out."""
        return (Scope(each) if isinstance(each, str) else each for each in self.complete)


def parse(text: bytes) -> Capture:
    """Reads capture.yaml. Raises ValueError with the reason and where in the file it lies."""
    import yaml

    from gpuctl.cluster.documents import load_yaml

    try:
        tree = load_yaml(text)
        return _checked(msgspec.convert(_without_empty(tree), Capture))
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error


def _without_empty(tree: Any) -> Any:
    """A person writes `missing:` with nothing behind it for "none"."""
    if not isinstance(tree, dict):
        raise ValueError("it is not a mapping")
    return {key: part for key, part in tree.items() if part is not None}


def _checked(capture: Capture) -> Capture:
    if (capture.api_version, capture.kind) != (API_VERSION, KIND):
        found = f"{capture.kind} of {capture.api_version}"
        raise ValueError(f"it is a {found}; this gpuctl reads a {KIND} of {API_VERSION}")
    for number, gap in enumerate(capture.missing):
        if gap.reason is Reason.INTERNAL:
            raise ValueError(f"{gap.reason} is no reason - at `$.missing[{number}].reason`")
    return capture
