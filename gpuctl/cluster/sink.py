"""Where a reader reports what it reads, so that it can be recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from gpuctl.facts.kinds import Kind, View
from gpuctl.facts.state import Unknown


class Sink(Protocol):
    """Told of everything a live reader reads, from several threads at once."""

    def items(
        self, kind: Kind, version: str, views: Sequence[type[View]], items: Sequence[msgspec.Raw]
    ) -> None:
        """Objects as the API server gave them; `version` is the one they were read in."""
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


class NoSink:
    """Records nothing."""

    def items(
        self, kind: Kind, version: str, views: Sequence[type[View]], items: Sequence[msgspec.Raw]
    ) -> None:
        pass

    def complete(self, kind: Kind, *, labels: str = "", namespace: str = "", name: str = "") -> None:
        pass

    def missing(
        self, kind: Kind, gap: Unknown, *, namespace: str = "", name: str = "", version: str = ""
    ) -> None:
        pass

    def served(self, group: str, versions: Sequence[str]) -> None:
        pass
