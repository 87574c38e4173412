"""How far a dead webhook reaches: what can't be created, and in how many namespaces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpuctl.facts.kinds import Ref
from gpuctl.facts.objects import Namespace
from gpuctl.facts.selectors import is_empty, selects
from gpuctl.facts.state import Each, Known, State, attempt
from gpuctl.kueue.registrations import Converted, Hook

_BEST_KNOWN = ("jobs", "pods", "deployments", "statefulsets", "workloads", "resourceflavors", "clusterqueues")
_SHOWN = 4
NAME_LABEL = "kubernetes.io/metadata.name"  # every API server sets it
_CLUSTER_WIDE = frozenset({"resourceflavors", "clusterqueues", "cohorts"})


@dataclass(frozen=True, slots=True)
class Reach:
    """The kinds that are refused, and in how many of the namespaces; None if those could not be listed."""

    kinds: tuple[str, ...]
    within: int | None
    of: int | None
    only_labelled: bool = False

    def __str__(self) -> str:
        """The end of a sentence: `no jobs, pods can be created in 3 of 5 namespaces`."""
        if not self.kinds:
            return "nothing is refused, objects pass unchecked"
        return f"no {self._named()}{self._labelled()} can be created{self._where()}"

    def _named(self) -> str:
        shown, rest = self.kinds[:_SHOWN], len(self.kinds) - _SHOWN
        names = ", ".join(shown)
        return f"{names} and {rest} more kinds" if rest > 0 else names

    def _labelled(self) -> str:
        return " with the labels it selects" if self.only_labelled else ""

    def _where(self) -> str:
        if all(kind in _CLUSTER_WIDE for kind in self.kinds):
            return ""
        if self.within is None:
            return " (number of namespaces unknown)"
        return f" in {self.within} of {self.of} namespaces"


def reach(hooks: Iterable[Hook], namespaces: State[Each[Ref, Namespace]]) -> Reach:
    """What is refused while these webhooks do not answer."""
    closed = tuple(hook for hook in hooks if hook.fails_closed and not hook.converts)
    kinds = tuple(sorted({kind for hook in closed for kind in _created(hook)}, key=_order))
    counted = attempt(lambda: _count(closed, namespaces))
    within, total = counted.value if isinstance(counted, Known) else (None, None)
    return Reach(kinds, within, total, bool(closed) and not any(is_empty(hook.objects) for hook in closed))


def broken_reads(converted: Converted) -> str:
    """What a dead conversion breaks: the end of a sentence."""
    others = " and ".join(converted.others)
    if not others:
        return f"{converted.plural} stay readable, as they are served in {converted.stored} alone"
    return f"{converted.plural} can't be read or written in {others} (they are stored in {converted.stored})"


def _count(
    closed: tuple[Hook, ...], namespaces: State[Each[Ref, Namespace]]
) -> tuple[int | None, int | None]:
    if not isinstance(namespaces, Known):
        return None, None
    listed = list(namespaces.value)
    namespaced = [hook for hook in closed if not all(kind in _CLUSTER_WIDE for kind in _created(hook))]
    selected = [space for space in listed if any(covers(hook, space) for hook in namespaced)]
    return len(selected), len(listed)


def covers(hook: Hook, namespace: Namespace) -> bool:
    """Whether a webhook is called for objects in a namespace. Its name is a label that every API server sets,
    and that manifests lack."""
    labels = {NAME_LABEL: namespace.metadata.name, **namespace.metadata.labels}
    return selects(hook.namespaces, labels)


def _created(hook: Hook) -> Iterator[str]:
    for rule in hook.rules:
        if {"CREATE", "*"} & set(rule.operations):
            yield from (resource for resource in rule.resources if "/" not in resource)


def _order(kind: str) -> tuple[int, str]:
    return (_BEST_KNOWN.index(kind) if kind in _BEST_KNOWN else len(_BEST_KNOWN), kind)
