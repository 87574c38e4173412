"""From the text of a file to the Kubernetes objects in it: JSON or YAML, Lists, several documents.

Text that is broken is not passed over: it is a `Damage`, which says what kind may have been lost with it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from gpuctl.cluster.archive import Damaged, File

ANY_KIND: Final = ""
# What a YAML document with aliases may weigh, these followed: a value as many as so many characters.
_MOST_WEIGHT: Final = 2**26
_VALUE_WEIGHT: Final = 2**6
_UNWANTED_TAGS: Final = frozenset(
    f"tag:yaml.org,2002:{tag}"
    for tag in (
        "timestamp",  # a string in JSON
        "value",  # a lone `=`, which PyYAML can't construct
        "merge",  # multiplies while it is parsed
    )
)

_JSON_HEAD: Final = re.compile(
    rb'\s*\{\s*(?:"apiVersion"\s*:\s*"(?P<version>[^"]*)"\s*,\s*)?"kind"\s*:\s*"(?P<kind>\w+)"'
)
_YAML_KIND: Final = re.compile(rb"^kind: *[\"']?(\w+)[\"']?\s*$", re.MULTILINE)
_YAML_VERSION: Final = re.compile(rb"^apiVersion: *[\"']?([\w./-]+)[\"']?\s*$", re.MULTILINE)
_YAML_SPLIT: Final = re.compile(rb"^---[ \t]*(?:#.*)?\r?$", re.MULTILINE)
_YAML_CONTENT: Final = re.compile(rb"^[ \t]*[^\s#]", re.MULTILINE)  # not a comment
_JSON_BEGINS: Final = re.compile(rb"^\{", re.MULTILINE)
_JSON_LIST: Final = re.compile(rb'"kind"\s*:\s*"\w*List"')
# What a server answers in place of objects: an error, or what it makes of them for printing and collecting.
_NO_OBJECTS: Final = frozenset({"Status", "Table", "PartialObjectMetadata", "PartialObjectMetadataList"})
_NO_OBJECTS_GROUPS: Final = frozenset({"", "meta.k8s.io"})


class Type(NamedTuple):
    """What apiVersion and kind say."""

    group: str
    version: str
    kind: str

    @staticmethod
    def of(api_version: str, kind: str) -> Type:
        """`kueue.x-k8s.io/v1beta1, WorkloadList` is the type of its items."""
        group, _, version = api_version.rpartition("/")
        return Type(group, version, kind.removesuffix("List"))


@dataclass(frozen=True, slots=True)
class Object:
    """One object, as JSON."""

    type: Type
    text: msgspec.Raw | bytes


@dataclass(frozen=True, slots=True)
class Listed:
    """A list of one type was here, perhaps an empty one, or one page of it.

    `more`: further pages follow, with `left` objects as far as that is known.
    """

    type: Type
    items: int = 0
    more: bool = False
    left: int = 0


@dataclass(frozen=True, slots=True)
class Damage:
    """Text that can't be read. `kind` is the only one it can have held, or ANY_KIND."""

    kind: str
    error: str


@dataclass(frozen=True, slots=True)
class Foreign:
    """Text in good order that is no Kubernetes object."""

    error: str


Piece: TypeAlias = Object | Listed | Damage | Foreign


@dataclass(frozen=True, slots=True)
class Part:
    """A file or one document of it. `types` are those it may hold; `read` gives its pieces anew."""

    path: str
    types: frozenset[Type]
    read: Callable[[], tuple[Piece, ...]] = field(repr=False)
    known: tuple[Piece, ...] = ()  # damages and foreign text already seen


def parts(file: File) -> Iterator[Part]:
    """What a file holds, as far as it takes to know of which types. Raises BadSnapshot beyond the limits."""
    try:
        text = file.text()
    except Damaged as error:
        yield damaged(file.path, str(error), _head(error.start))
        return
    if _is_json(text):
        yield _json_part(file, text)
    else:
        yield from _yaml_parts(file.path, text)


def damaged(path: str, error: str, kind: str = ANY_KIND) -> Part:
    """A file that can't be read."""
    return _kept(path, (Damage(kind, error),))


def _is_json(text: bytes) -> bool:
    return text.lstrip()[:1] in (b"{", b"[", b"")


def _json_part(file: File, text: bytes) -> Part:
    pieces = tuple(json_pieces(text))
    if file.ends((".yaml", ".yml")) and _all_damaged(pieces):
        return _kept(file.path, tuple(yaml_pieces(text)) or pieces)  # YAML in flow style begins like JSON
    return Part(file.path, _types(pieces), lambda: _again(file), _no_objects(pieces))


def _all_damaged(pieces: tuple[Piece, ...]) -> bool:
    return all(isinstance(piece, Damage) for piece in pieces)


def _again(file: File) -> tuple[Piece, ...]:
    """The pieces of a JSON file, read anew rather than kept: a list of pods is large."""
    try:
        return tuple(json_pieces(file.text()))
    except Damaged as error:
        return (Damage(ANY_KIND, f"changed while it was read: {error}"),)


def _yaml_parts(path: str, text: bytes) -> Iterator[Part]:
    """One part for each document. A file without any may have lost them."""
    documents = [each for each in _YAML_SPLIT.split(text) if _YAML_CONTENT.search(each)]
    if not documents:
        yield _kept(path, (Foreign("there is no object in it"),))
    for document in documents:
        yield _yaml_part(path, document)


def _yaml_part(path: str, document: bytes) -> Part:
    kinds, versions = _YAML_KIND.findall(document), _YAML_VERSION.findall(document)
    kind = kinds[0].decode() if len(kinds) == 1 else "List"
    if len(versions) != 1 or kind == "List" or kind in _NO_OBJECTS:
        return _kept(path, tuple(yaml_pieces(document)))
    of = Type.of(versions[0].decode(), kind)
    types = frozenset({of, of._replace(kind=kind)})
    return Part(path, types, cache(lambda: tuple(yaml_pieces(document))))


def _kept(path: str, pieces: tuple[Piece, ...]) -> Part:
    return Part(path, _types(pieces), lambda: pieces, _no_objects(pieces))


def _types(pieces: tuple[Piece, ...]) -> frozenset[Type]:
    return frozenset(piece.type for piece in pieces if isinstance(piece, Object | Listed))


def _no_objects(pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
    return tuple(piece for piece in pieces if isinstance(piece, Damage | Foreign))


def _head(text: bytes) -> str:
    """The one kind a text can hold by its first lines, even if the rest of it is broken, or ANY_KIND."""
    if text.lstrip()[:1] == b"{":
        found = None if _goes_on(text) else _JSON_HEAD.match(text)
        kinds = [found["kind"]] if found else []
    else:
        kinds = [] if _YAML_SPLIT.search(text) else _YAML_KIND.findall(text)
    return kinds[0].decode().removesuffix("List") if len(kinds) == 1 else ANY_KIND


def _goes_on(text: bytes) -> bool:
    """Whether another JSON document may follow the first."""
    return any(len(begins.findall(text)) > 1 for begins in (_JSON_BEGINS, _JSON_LIST))


class _Heading(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""


class _Envelope(_Heading, frozen=True):
    metadata: msgspec.Raw = msgspec.Raw(b"{}")
    items: tuple[msgspec.Raw, ...] | msgspec.UnsetType | None = msgspec.UNSET


class _ListMeta(msgspec.Struct, frozen=True, rename={"next": "continue", "left": "remainingItemCount"}):
    """metadata of a list. `name` is none that a list has."""

    next: str | None = None
    left: int | None = None
    name: str | None = None


def json_pieces(text: bytes) -> Iterator[Piece]:
    """The objects of JSON text, which may hold one document, several, or an array of objects."""
    try:
        yield from _json_document(text)
    except msgspec.DecodeError as error:
        if "trailing characters" in str(error):
            yield from _json_documents(text)
        else:
            yield Damage(_head(text), str(error))
    except RecursionError:
        yield Damage(_head(text), "nested too deeply")
    yield from _not_utf8(text)


def _not_utf8(text: bytes) -> Iterator[Damage]:
    try:
        text.decode()
    except UnicodeDecodeError as error:
        yield Damage(_head(text), f"not UTF-8: byte {error.start} is 0x{text[error.start]:02x}")


def _json_document(text: bytes) -> tuple[Piece, ...]:
    if text.lstrip()[:1] == b"[":
        return tuple(_items(msgspec.json.decode(text, type=tuple[msgspec.Raw, ...]), Type("", "", "")))
    try:
        envelope = msgspec.json.decode(text, type=_Envelope)
    except msgspec.ValidationError as error:
        msgspec.json.decode(text, type=msgspec.Raw)  # tells whether it is JSON at all
        return (Foreign(str(error)),)
    return tuple(_opened(envelope, text))


def _opened(envelope: _Envelope, text: msgspec.Raw | bytes) -> Iterator[Piece]:
    type_ = Type.of(envelope.api_version, envelope.kind)
    if not (envelope.kind and type_.version):
        yield Foreign("it has no kind and apiVersion")
    elif _is_no_object(type_.group, envelope.kind):
        yield Damage(ANY_KIND, _instead(envelope.kind, text))
    elif not envelope.kind.endswith("List"):
        yield Object(type_._replace(kind=envelope.kind), text)
    else:
        yield from _list(envelope, type_, text)


def _list(envelope: _Envelope, of: Type, text: msgspec.Raw | bytes) -> Iterator[Piece]:
    """A list, or an object whose kind is called like one: it has a name."""
    about = _about(envelope.metadata)
    items = envelope.items or ()
    if envelope.items is msgspec.UNSET and about is not None and about.name:
        yield Object(of._replace(kind=envelope.kind), text)
    elif envelope.items is msgspec.UNSET:
        yield Damage(of.kind, "a list without items")
    elif about is None:
        yield Damage(of.kind, "a list whose metadata can't be read")
    elif of.kind == ANY_KIND and about.next:
        yield Damage(ANY_KIND, "one page of a list")
    elif of.kind != ANY_KIND:
        yield Listed(of, len(items), bool(about.next or about.left), about.left or 0)
    yield from _items(items, of if of.kind else Type("", "", ""))


def _about(metadata: msgspec.Raw) -> _ListMeta | None:
    try:
        return msgspec.json.decode(metadata, type=_ListMeta | None) or _ListMeta()
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _is_no_object(group: str, kind: str) -> bool:
    return kind in _NO_OBJECTS and group in _NO_OBJECTS_GROUPS


class _Status(msgspec.Struct, frozen=True):
    message: str = ""
    code: int = 0


def _instead(kind: str, text: msgspec.Raw | bytes) -> str:
    """What a server said where objects were expected: mostly why not."""
    try:
        status = msgspec.json.decode(text, type=_Status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        status = _Status()
    said = " ".join(part for part in (str(status.code or ""), status.message) if part)
    return f"a {kind} instead of objects" + (f" ({said})" if said else "")


def _items(items: tuple[msgspec.Raw, ...], of: Type) -> Iterator[Piece]:
    """The items of a list. Those of a typed list may leave kind and apiVersion to it."""
    for item in items:
        try:
            own = msgspec.json.decode(item, type=_Heading)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            yield Damage(of.kind, f"an item of a list: {error}")
        else:
            yield from json_pieces(bytes(item)) if _may_be_a_list(own) else _item(own, of, item)


def _may_be_a_list(own: _Heading) -> bool:
    """Also what stands in place of objects: `jq -s` makes an array of such answers."""
    return own.kind.endswith("List") or own.kind in _NO_OBJECTS


def _item(own: _Heading, of: Type, text: msgspec.Raw) -> Iterator[Piece]:
    type_ = Type.of(own.api_version, own.kind)._replace(kind=own.kind) if own.api_version else of
    if type_.kind and type_.version:
        yield Object(type_, text)
    else:
        yield Damage(ANY_KIND, "an item of a list has no kind and apiVersion")


def _json_documents(text: bytes) -> Iterator[Piece]:
    """Documents one after the other, as from several `kubectl get -o json >> file`."""
    try:
        rest = text.decode()
    except UnicodeDecodeError:
        yield Damage(ANY_KIND, "not UTF-8")
        return
    while rest := rest.lstrip():
        try:
            _, end = json.JSONDecoder().raw_decode(rest)
        except (ValueError, RecursionError) as error:
            yield Damage(_head(rest.encode()), str(error))
            return
        yield from json_pieces(rest[:end].encode())
        rest = rest[end:]


def yaml_pieces(text: bytes) -> Iterator[Piece]:
    """The objects of one YAML document."""
    import yaml

    try:
        tree = load_yaml(text)
        if b"&" in text:
            _must_be_finite(tree)
        encoded = msgspec.json.encode(tree)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError, OverflowError) as error:
        yield Damage(_head(text), " ".join(str(error).split()))
        return
    if tree is not None:
        yield from json_pieces(encoded)


def load_yaml(text: bytes) -> Any:
    """The value of one YAML document, timestamps left as the strings they are in JSON. Raises YAMLError."""
    import yaml

    return yaml.load(text, Loader=_loader())  # noqa: S506 - a SafeLoader


@cache
def _loader() -> Any:
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    resolvers = {
        first: [(tag, pattern) for tag, pattern in known if tag not in _UNWANTED_TAGS]
        for first, known in base.yaml_implicit_resolvers.items()
    }
    return type("Loader", (base,), {"yaml_implicit_resolvers": resolvers})


def _must_be_finite(tree: Any) -> None:
    """Refuses aliases that multiply: a few lines of YAML can stand for billions of values."""
    weight, waiting = 0, [tree]
    while waiting:
        part = waiting.pop()
        weight += _VALUE_WEIGHT + (len(part) if isinstance(part, str) else 0)
        if weight > _MOST_WEIGHT:
            raise ValueError("its aliases multiply to more than can be held")
        if isinstance(part, dict | list):
            waiting.extend(part.values() if isinstance(part, dict) else part)
