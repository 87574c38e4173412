"""How much of what a check wanted to read was read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from gpuctl.audit.mask import masked_text
from gpuctl.audit.report import Coverage, MissingItem
from gpuctl.facts.fact import Fact, Named, Read, graph
from gpuctl.facts.gather import Facts
from gpuctl.facts.kinds import Attempt, Ref
from gpuctl.facts.state import Each, Known, Unknown


def coverage(wanted: Iterable[Fact[Any]], facts: Facts) -> Coverage:
    """Counts the reads behind these facts: each list is one, each object asked for by name is one.

    A proof that was not asked for is missing too; what does not apply is not expected.
    """
    reads = [fact for fact in graph(wanted) if isinstance(fact, Read)]
    missing = tuple(dict.fromkeys(item for read in reads for item in _missing(read, facts)))
    read = sum(_read(fact, facts) for fact in reads)
    return Coverage(expected=read + len(missing), read=read, missing=missing)


def _read(fact: Read[Any], facts: Facts) -> int:
    state = facts.state(fact)
    if not isinstance(state, Known):
        return 0
    if isinstance(fact, Named):
        return sum(1 for _ in state.value.known())
    return 1


def _missing(fact: Read[Any], facts: Facts) -> Iterator[MissingItem]:
    state = facts.state(fact)
    if isinstance(state, Unknown):
        yield MissingItem(
            resource=state.what or fact.name, reason=state.reason.value, message=masked_text(state.message)
        )
    if isinstance(state, Known) and isinstance(state.value, Each):
        yield from _gaps(state.value)


def _gaps(collection: Each[Any, Any]) -> Iterator[MissingItem]:
    for key, state in collection.entries.items():
        if isinstance(state, Unknown):
            yield _item(key, state)
    for hole in collection.holes:
        yield MissingItem(resource=hole.what, reason=hole.reason.value, message=masked_text(hole.message))


def _item(key: object, gap: Unknown) -> MissingItem:
    reason, message = gap.reason.value, masked_text(gap.message)
    if isinstance(key, Ref):
        return MissingItem(
            resource=key.kind.resource, namespace=key.namespace, name=key.name, reason=reason, message=message
        )
    if isinstance(key, Attempt):
        return MissingItem(
            resource=key.kind.resource, namespace=key.namespace, reason=reason, message=message
        )
    return MissingItem(resource=str(key), reason=reason, message=message)
