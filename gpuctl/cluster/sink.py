"""Where a reader reports what it reads, so that it can be recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import msgspec

from gpuctl.cluster.recorded_commands import Probed
from gpuctl.facts.kinds import Answer, Attempt, Kind, Log, View
from gpuctl.facts.pods import Page, Run
from gpuctl.facts.state import Unknown
from gpuctl.facts.tls import Handshake, ServedPort


class Sink(Protocol):
    """Told of everything a live reader reads, from several threads at once."""

    def items(
        self,
        kind: Kind,
        version: str,
        views: Sequence[type[View]],
        items: Sequence[msgspec.Raw],
        attempt: int = 0,
    ) -> None:
        """Objects as the API server gave them; `version` is the one they were read in. `attempt`: the number
        of the try to read a list that they belong to."""
        ...

    def withdraw(self, attempt: int) -> None:
        """A list is read anew: what an earlier try brought does not count, for some of it may be gone."""
        ...

    def complete(self, kind: Kind, *, labels: str = "", namespace: str = "", name: str = "") -> None:
        """All objects of this kind were read, or all with these labels, in this namespace, of this name:
        what was not among the items does not exist."""
        ...

    def missing(
        self, kind: Kind, gap: Unknown, *, namespace: str = "", name: str = "", version: str = ""
    ) -> None:
        """Something was asked for and could not be read."""
        ...

    def served(self, group: str, versions: Sequence[str]) -> None:
        """What discovery said of an API group."""
        ...

    def log(
        self, log: Log, kept: Callable[[], str], *, cut_at: int | None, lost: Unknown | None = None
    ) -> None:
        """What may be kept of a log; `cut_at` so many bytes, if it is longer. `lost`: why its end is not
        here."""
        ...

    def missing_log(self, log: Log | None, gap: Unknown) -> None:
        """A log was asked for and could not be read; None for all of them."""
        ...

    def logs_complete(self) -> None:
        """Every log that was asked for was read or is missing: the others were never written."""
        ...

    def probed(self, probed: Probed) -> None:
        """A node was looked into, or was to be."""
        ...

    def dry_run(self, attempt: Attempt, user: str, answer: Answer) -> None:
        """What the server said to a creation that it did not store; `user`: as whom, if that is known."""
        ...

    def missing_dry_run(self, attempt: Attempt, gap: Unknown) -> None:
        """A dry run was wanted and told nothing."""
        ...

    def handshake(self, port: ServedPort, handshake: Handshake) -> None:
        """The certificates that a port showed."""
        ...

    def missing_handshake(self, port: ServedPort, gap: Unknown) -> None:
        """A handshake was wanted and told nothing."""
        ...

    def heard(self, question: Page | Run, kept: str | None) -> None:
        """What may be kept of a pod's answer; None if the pod knows no such page."""
        ...

    def not_heard(self, question: Page | Run, gap: Unknown) -> None:
        """A pod was to be asked, and told nothing."""
        ...

    def round(self, number: int) -> AbstractContextManager[Sink]:
        """Where a later round of a sampled fact is reported to."""
        ...

    def metrics(self, query: str, answer: str) -> None:
        """What a Prometheus answered to a query."""
        ...


class NoSink:
    """Records nothing."""

    def items(
        self,
        kind: Kind,
        version: str,
        views: Sequence[type[View]],
        items: Sequence[msgspec.Raw],
        attempt: int = 0,
    ) -> None:
        pass

    def withdraw(self, attempt: int) -> None:
        pass

    def complete(self, kind: Kind, *, labels: str = "", namespace: str = "", name: str = "") -> None:
        pass

    def missing(
        self, kind: Kind, gap: Unknown, *, namespace: str = "", name: str = "", version: str = ""
    ) -> None:
        pass

    def served(self, group: str, versions: Sequence[str]) -> None:
        pass

    def log(
        self, log: Log, kept: Callable[[], str], *, cut_at: int | None, lost: Unknown | None = None
    ) -> None:
        pass

    def missing_log(self, log: Log | None, gap: Unknown) -> None:
        pass

    def logs_complete(self) -> None:
        pass

    def probed(self, probed: Probed) -> None:
        pass

    def dry_run(self, attempt: Attempt, user: str, answer: Answer) -> None:
        pass

    def missing_dry_run(self, attempt: Attempt, gap: Unknown) -> None:
        pass

    def handshake(self, port: ServedPort, handshake: Handshake) -> None:
        pass

    def missing_handshake(self, port: ServedPort, gap: Unknown) -> None:
        pass

    def heard(self, question: Page | Run, kept: str | None) -> None:
        pass

    def not_heard(self, question: Page | Run, gap: Unknown) -> None:
        pass

    def round(self, number: int) -> AbstractContextManager[Sink]:  # noqa: ARG002
        return nullcontext(self)

    def metrics(self, query: str, answer: str) -> None:
        pass
