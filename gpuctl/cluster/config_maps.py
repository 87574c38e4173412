"""ConfigMaps of a record. Of each, a view had only those keys stored that it uses: one may be in parts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from gpuctl.cluster.decode import name_of
from gpuctl.cluster.documents import Object
from gpuctl.facts.kinds import Kind, Ref

DATA: Final = "data"


def united(items: Iterable[Object], kind: Kind) -> list[Object]:
    """Each object once, with the data of all its parts; of one key that which comes last."""
    whole: dict[Ref, Object] = {}
    nameless: list[Object] = []
    for item in items:
        ref = name_of(item.text, kind)
        if ref is None:
            nameless.append(item)
        else:
            whole[ref] = _joined(whole[ref], item) if ref in whole else item
    return [*whole.values(), *nameless]


def _joined(earlier: Object, later: Object) -> Object:
    try:
        before, after = (_tree(each) for each in (earlier, later))
        after[DATA] = {**(before.get(DATA) or {}), **(after.get(DATA) or {})}
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError, RecursionError):
        return later  # it is broken, which its decoding will tell
    return Object(later.type, msgspec.json.encode(after))


def _tree(item: Object) -> dict[str, Any]:
    return msgspec.json.decode(item.text, type=dict[str, Any])
