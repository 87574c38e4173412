"""What a record holds: the objects of a kind, broken files that may have held some, API versions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import msgspec

from gpuctl.cluster.documents import ANY_KIND, Damage, Foreign, Listed, Object, Part, Piece
from gpuctl.facts.kinds import Kind
from gpuctl.facts.state import Reason, Unknown

CRDS: Final = Kind(
    "apiextensions.k8s.io", ("v1",), "CustomResourceDefinition", "customresourcedefinitions", False
)
API_SERVICES: Final = Kind("apiregistration.k8s.io", ("v1",), "APIService", "apiservices", False)


@dataclass(frozen=True)
class Contents:
    """The indexed text of a record. `only_objects`: in it, other text than objects counts as broken."""

    parts: tuple[Part, ...] = field(repr=False)
    only_objects: bool = False

    def read(self, kind: Kind) -> tuple[list[Object], tuple[Unknown, ...]]:
        """The objects of a kind, in every version, and what may have been lost of it."""
        objects: list[Object] = []
        holes: list[Unknown] = []
        pages: list[tuple[Part, Listed]] = []
        for part in self.parts:
            for piece in part.read() if _may_hold(part, kind) else part.known:
                if isinstance(piece, Object) and _is_of(piece, kind):
                    objects.append(piece)
                elif isinstance(piece, Listed) and _is_of(piece, kind):
                    pages.append((part, piece))
                elif self._hurts(piece, kind):
                    holes.append(_broken(part, piece))
        return objects, (*holes, *_cut_off(pages))

    def appears(self, kind: Kind) -> bool:
        """Whether there is an object of this kind, or an empty list of it."""
        return any(_may_hold(part, kind) for part in self.parts)

    def broken(self) -> tuple[Unknown, ...]:
        """What was found to be broken when the record was opened."""
        return tuple(
            _broken(part, piece)
            for part in self.parts
            for piece in part.known
            if isinstance(piece, Damage) or self._is_out_of_place(piece)
        )

    def versions(self, group: str) -> tuple[str, ...]:
        """The versions of an API group that CRDs, APIServices and objects show, the preferred one first."""
        return _by_preference(self._offered.get(group, frozenset()) | self._present.get(group, frozenset()))

    def _hurts(self, piece: Piece, kind: Kind) -> bool:
        if isinstance(piece, Damage):
            return piece.kind in (ANY_KIND, kind.kind)
        return self._is_out_of_place(piece)

    def _is_out_of_place(self, piece: Piece) -> bool:
        return isinstance(piece, Foreign) and self.only_objects

    @cached_property
    def _offered(self) -> Mapping[str, frozenset[str]]:
        return _grouped(
            offer for kind in (CRDS, API_SERVICES) for item in self.read(kind)[0] for offer in _offers(item)
        )

    @cached_property
    def _present(self) -> Mapping[str, frozenset[str]]:
        return _grouped((type_.group, type_.version) for part in self.parts for type_ in part.types)


def _may_hold(part: Part, kind: Kind) -> bool:
    return any((type_.group, type_.kind) == (kind.group, kind.kind) for type_ in part.types)


def _is_of(item: Object | Listed, kind: Kind) -> bool:
    return (item.type.group, item.type.kind) == (kind.group, kind.kind)


def _cut_off(pages: Sequence[tuple[Part, Listed]]) -> Iterator[Unknown]:
    """The pages of lists whose later pages are not here."""
    lists = [page for _, page in pages]
    for part, page in pages:
        if page.more and not _ends(page, lists):
            error = "one page of a list, and the pages after it are not here"
            yield Unknown(Reason.MALFORMED, error, f"file {part.path}")


def _ends(page: Listed, pages: Sequence[Listed]) -> bool:
    """Whether a last page is there too, and as many objects after this one as it says."""
    after = [other for other in pages if not other.more or other.left < page.left]
    return any(not other.more for other in after) and sum(other.items for other in after) >= page.left


def _broken(part: Part, piece: Piece) -> Unknown:
    reason = piece.error if isinstance(piece, Damage | Foreign) else ""
    return Unknown(Reason.MALFORMED, reason, f"file {part.path}")


def _grouped(pairs: Iterable[tuple[str, str]]) -> Mapping[str, frozenset[str]]:
    groups: dict[str, set[str]] = {}
    for group, version in pairs:
        groups.setdefault(group, set()).add(version)
    return {group: frozenset(versions) for group, versions in groups.items()}


class _Version(msgspec.Struct, frozen=True):
    name: str
    served: bool = True


class _Spec(msgspec.Struct, frozen=True):
    group: str = ""
    version: str = ""  # of an APIService
    versions: tuple[_Version, ...] = ()  # of a CRD


class _Offer(msgspec.Struct, frozen=True):
    spec: _Spec


def _offers(item: Object) -> list[tuple[str, str]]:
    """Groups and versions that a CRD or an APIService offers."""
    try:
        spec = msgspec.json.decode(item.text, type=_Offer).spec
    except (msgspec.DecodeError, UnicodeDecodeError):
        return []
    versions = [version.name for version in spec.versions if version.served]
    return [(spec.group, version) for version in (*versions, spec.version) if version]


_VERSION: Final = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?")


def _by_preference(versions: Iterable[str]) -> tuple[str, ...]:
    """In discovery's order: v2, v1, v1beta2, v1beta1, v1alpha1, and what is no such version at the end."""

    def rank(version: str) -> tuple[int, int, int, str]:
        found = _VERSION.fullmatch(version)
        if not found:
            return (3, 0, 0, version)
        stage = {None: 0, "beta": 1, "alpha": 2}[found[2]]
        return (stage, -int(found[1]), -int(found[3] or 0), version)

    return tuple(sorted(versions, key=rank))
