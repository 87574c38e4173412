"""What a record answers for: why a kind, a namespace or an object is not known from it, or that it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from gpuctl.cluster.capture import EVERYTHING, SECRETS, Capture, Missing, Scope
from gpuctl.cluster.contents import CRDS, Contents
from gpuctl.cluster.must_gather import ONLY_SOME, Gathered, gathered
from gpuctl.facts.kinds import Kind
from gpuctl.facts.state import Inapplicable, Known, Reason, State, Unknown

NOT_HELD: Final = "the snapshot does not hold it"

# Every API server serves these, whatever a `served` map written by hand leaves out.
ALWAYS_SERVED: Final = frozenset(
    {
        "",
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "apiregistration.k8s.io",
        "apps",
        "authentication.k8s.io",
        "authorization.k8s.io",
        "autoscaling",
        "batch",
        "certificates.k8s.io",
        "coordination.k8s.io",
        "discovery.k8s.io",
        "events.k8s.io",
        "networking.k8s.io",
        "node.k8s.io",
        "policy",
        "rbac.authorization.k8s.io",
        "scheduling.k8s.io",
        "storage.k8s.io",
    }
)


Gap = Unknown | Inapplicable | None


@dataclass(frozen=True)
class Account:
    """`capture` is what the record says of itself; without it, the kinds that appear in it are known, of a
    must-gather those of the namespaces that were gathered."""

    capture: Capture | None
    contents: Contents

    def gap(self, kind: Kind, asked: Scope) -> Gap:
        """Why what was asked for is not known in full, or None if it is."""
        missing = self._missing(kind, asked)
        if missing is not None:
            return missing
        if self._answers_for(asked) or self._shows(kind, asked):
            return None
        if self._not_served(kind.group):
            return Inapplicable(f"the cluster does not serve {kind.group}")
        if self._everything(kind):
            return None
        why = ONLY_SOME if self.holds_some(kind) else NOT_HELD
        return Unknown(Reason.NOT_ASKED, why, str(asked))

    def holds_some(self, kind: Kind) -> bool:
        """Whether this is a must-gather that holds a kind in some namespaces."""
        return self._gathered is not None and self._gathered.holds_some(kind)

    def parts_missing(self, kind: Kind, asked: Scope) -> Iterator[Missing]:
        """What the record says could not be read of a part of what was asked for."""
        for gap in self._missing_of(kind):
            is_part = gap.scope.overlaps(asked) and not gap.scope.covers(asked)
            if is_part and not self._outdone(gap, kind, gap.scope):
                yield gap

    def lost(self, kind: Kind, found: int) -> tuple[Unknown, ...]:
        """That the record once held more objects of a kind than there are in it."""
        stored = self.capture.objects.get(kind.resource, 0) if self.capture else 0
        if found >= stored:
            return ()
        error = f"{stored} objects were stored, and {found} of them are here"
        return (Unknown(Reason.MALFORMED, error, kind.resource),)

    def _missing_of(self, kind: Kind) -> Iterator[Missing]:
        """In any version that is asked for."""
        for gap in self.capture.missing if self.capture else ():
            if gap.resource == kind.resource and gap.version in ("", *kind.versions):
                yield gap

    def served(self, group: str) -> State[tuple[str, ...]]:
        """The versions of an API group: as discovery said, else as CRDs, APIServices and objects show."""
        told = self.capture.served if self.capture else None
        if told is not None and (group in told or group not in ALWAYS_SERVED):
            return Known(told.get(group, ()))
        versions = self.contents.versions(group)
        if versions or self._not_served(group):
            return Known(versions)
        return Unknown(Reason.NOT_ASKED, NOT_HELD, f"API group {group}")

    def _missing(self, kind: Kind, asked: Scope) -> Gap:
        for gap in self._missing_of(kind):
            if gap.scope.covers(asked) and not self._outdone(gap, kind, asked):
                if gap.reason is Reason.NOT_SERVED:
                    return Inapplicable(gap.message or f"the cluster does not serve {kind}")
                return Unknown(gap.reason, gap.message, str(asked))
        return None

    def _outdone(self, gap: Missing, kind: Kind, asked: Scope) -> bool:
        """Whether another read gave what this one could not: in another version, or a narrower one.

        A wider one does not: what is missing is an exception to it.
        """
        if gap.version and kind.versions != (gap.version,):
            return self._answers_for(asked) or self._everything(kind)
        return any(gap.scope != scope and gap.scope.covers(scope) for scope in self._answers(asked))

    def _answers_for(self, asked: Scope) -> bool:
        return next(self._answers(asked), None) is not None

    def _answers(self, asked: Scope) -> Iterator[Scope]:
        """The reads in full that cover what was asked for."""
        scopes = self.capture.scopes() if self.capture else ()
        return (scope for scope in scopes if scope.covers(asked))

    def _shows(self, kind: Kind, asked: Scope) -> bool:
        """Whether a record that says nothing of itself answers by what it holds."""
        if self.capture is not None:
            return False
        if self._gathered is not None:
            return self._gathered.holds(kind, asked)
        return self.contents.appears(kind)

    @cached_property
    def _gathered(self) -> Gathered | None:
        return None if self.capture else gathered(part.path for part in self.contents.parts)

    def _everything(self, kind: Kind) -> bool:
        complete = self.capture.complete if self.capture else ()
        return EVERYTHING in complete and kind.resource != SECRETS

    def _not_served(self, group: str) -> bool:
        """Whether it is known that the cluster does not serve this API group."""
        if group in ALWAYS_SERVED:
            return False
        if self.capture and self.capture.served is not None:
            return group not in self.capture.served
        return self._crds_known and not self.contents.versions(group)

    @cached_property
    def _crds_known(self) -> bool:
        return self.gap(CRDS, Scope(CRDS.resource)) is None and not self.contents.read(CRDS)[1]
