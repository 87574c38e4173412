"""From the JSON of objects to views. One malformed object is one unknown entry; the others are unharmed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from gpuctl.facts.kinds import Kind, Ref, View
from gpuctl.facts.state import Each, Known, Reason, State, Unknown

NAMELESS = "an object without a name"
_TIME_KEY: Final = re.compile(r"(?:[tT]ime|Timestamp|At)$")
_ZONELESS: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d+)?")


class Page(msgspec.Struct, frozen=True):
    """One page of a list, its objects still undecoded."""

    metadata: PageMeta
    items: tuple[msgspec.Raw, ...] | None = ()


class PageMeta(msgspec.Struct, frozen=True, rename={"next": "continue"}):
    """`next` is the token of the following page, empty at the last."""

    next: str = ""


class _Name(msgspec.Struct, frozen=True):
    name: str
    namespace: str = ""


class _Named(msgspec.Struct, frozen=True):
    metadata: _Name


class Collector:
    """Gathers the objects of one kind, once for each view that is wanted of them."""

    def __init__(self, kind: Kind, views: Sequence[type[View]]) -> None:
        self._kind = kind
        self._decoders = tuple(msgspec.json.Decoder(view) for view in views)
        self._entries: tuple[dict[Ref, State[Any]], ...] = tuple({} for _ in views)
        self._holes: list[Unknown] = []

    def add(self, items: Iterable[msgspec.Raw | bytes]) -> None:
        """Takes the objects of a page; their text may be dropped afterwards."""
        for item in items:
            for decoder, entries in zip(self._decoders, self._entries, strict=True):
                self._add(item, decoder, entries)

    def hole(self, gap: Unknown) -> None:
        """Notes that some objects could not be read, whichever they are."""
        self._holes.append(gap)

    def result(self) -> tuple[Each[Ref, Any], ...]:
        """What was collected, in the order of the views."""
        holes = tuple(dict.fromkeys(self._holes))
        return tuple(Each(entries, holes) for entries in self._entries)

    def _add(
        self, item: msgspec.Raw | bytes, decoder: msgspec.json.Decoder[View], entries: dict[Ref, State[Any]]
    ) -> None:
        try:
            view = _decode(item, decoder)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self._malformed(item, str(error), entries)
        else:
            if view.relevant:
                entries[Ref(self._kind, view.metadata.name, view.metadata.namespace)] = Known(view)

    def _malformed(self, item: msgspec.Raw | bytes, error: str, entries: dict[Ref, State[Any]]) -> None:
        ref = name_of(item, self._kind)
        if ref is None:
            self._holes.append(Unknown(Reason.MALFORMED, error, f"{self._kind}: {NAMELESS}"))
        else:
            entries[ref] = Unknown(Reason.MALFORMED, error, str(ref))


def name_of(item: msgspec.Raw | bytes, kind: Kind) -> Ref | None:
    """The reference of an object, even if the rest of it does not fit its kind."""
    try:
        metadata = msgspec.json.decode(item, type=_Named).metadata
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return Ref(kind, metadata.name, metadata.namespace) if metadata.name else None


def _decode(item: msgspec.Raw | bytes, decoder: msgspec.json.Decoder[View]) -> View:
    try:
        view = decoder.decode(item)
    except msgspec.ValidationError:
        view = decoder.decode(msgspec.json.encode(_mended(msgspec.json.decode(item))))
    if not view.metadata.name:
        raise msgspec.ValidationError("metadata.name is empty")
    return view


def _mended(tree: Any) -> Any:
    """Without nulls, which the API server writes for an empty list in a required field and people in files,
    and with the zone UTC at times without one, which people leave out."""
    if isinstance(tree, dict):
        return {key: _field(key, part) for key, part in tree.items() if part is not None}
    if isinstance(tree, list):
        return [_mended(part) for part in tree if part is not None]
    return tree


def _field(key: str, part: Any) -> Any:
    if isinstance(part, str) and _TIME_KEY.search(key) and _ZONELESS.fullmatch(part):
        return f"{part}Z"
    return _mended(part)
