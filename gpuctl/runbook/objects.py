"""Targets that are no nodes: how a person names one, and what it is now.

An object in a namespace is `NAMESPACE/NAME`. Each runbook makes the facts of its own target here, so that all
of them say the same of one that does not exist or has another uid.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Generic, TypeVar

from gpuctl.facts.fact import Fact, Named, given
from gpuctl.facts.kinds import Kind, Meta, Ref, View
from gpuctl.facts.state import Each, NotKnown, Reason, Unknown
from gpuctl.runbook.target import TARGET

V = TypeVar("V", bound=View)
Place = Callable[[str], Ref | None]


class NumberedMeta(Meta, frozen=True):
    """metadata with its generation: it grows when somebody changes the spec."""

    generation: int = 0


@dataclass(frozen=True, eq=False)
class Targeted(Generic[V]):
    """The facts of a target: the object as it is now, and by which uid it is known later (empty once it is
    gone). `refs` is where it is looked for."""

    refs: Fact[Collection[Ref]]
    now: Fact[V]
    uid: Fact[str]


def in_namespace(kind: Kind, prefix: str = "") -> Place:
    """`NAMESPACE/NAME`, behind a prefix where one runbook takes several kinds: `job/NAMESPACE/NAME`."""

    def place(target: str) -> Ref | None:
        if not target.startswith(prefix):
            return None
        namespace, slash, name = target[len(prefix) :].partition("/")
        return Ref(kind, name, namespace) if slash and namespace and name and "/" not in name else None

    return place


def cluster_wide(kind: Kind) -> Place:
    """`NAME`."""
    return lambda target: Ref(kind, target) if target and "/" not in target else None


def targeted(view: type[V], place: Place) -> Targeted[V]:
    """The facts of a target of this kind."""

    @given(TARGET)
    def the_target(name: str) -> Collection[Ref]:
        ref = place(name)
        return (ref,) if ref else ()

    read = Named(view, the_target)

    @given(read, TARGET)
    def target_as_it_is(found: Each[Ref, V], name: str) -> V:
        ref = place(name)
        if ref is None:
            raise NotKnown(Unknown(Reason.NOT_ASKED, _wanted(view.of), name or "no target"))
        there = found.get(ref)
        if there is None:
            raise NotKnown(Unknown(Reason.NOT_ASKED, f"there is no such {view.of.kind}", str(ref)))
        return there

    @given(read, TARGET)
    def uid_of_the_target(found: Each[Ref, V], name: str) -> str:
        ref = place(name)
        there = found.get(ref) if ref else None
        return there.metadata.uid if there else ""

    return Targeted(the_target, target_as_it_is, uid_of_the_target)


def _wanted(kind: Kind) -> str:
    form = "NAMESPACE/NAME" if kind.namespaced else "NAME"
    return f"it does not name a {kind.kind}, as {form} does"
