"""The door facts are read through. A reader holds consent, time and place; checks never see one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

from gpuctl.facts.alerts import Alert
from gpuctl.facts.kinds import Answer, Attempt, Kind, Log, LogReading, Ref, View
from gpuctl.facts.metrics import Labels, Points
from gpuctl.facts.nodes import Output, Target
from gpuctl.facts.pods import Page, PodReading, Run
from gpuctl.facts.state import Each, State
from gpuctl.facts.tls import Handshake, ServedPort

T = TypeVar("T")


class Reader(Protocol):
    """Reads a cluster or a record of one. Each call ends within the reader's deadline and never raises for
    what the cluster did: the answer is a state. A single object that does not parse is one unknown entry."""

    @property
    def now(self) -> datetime:
        """The time every judgement refers to: the clock, or when the snapshot was taken."""
        ...

    def clock(self) -> datetime:
        """The time of a read that ends now: the clock, or when the snapshot was taken."""
        ...

    def objects(
        self, kind: Kind, labels: str, views: Sequence[type[View]]
    ) -> Sequence[State[Each[Ref, Any]]]:
        """All objects of a kind, in one request, once for each view."""
        ...

    def within(self, view: type[View], namespaces: Collection[str]) -> State[Each[Ref, Any]]:
        """All objects of a kind in these namespaces. A namespace that can't be listed is a hole."""
        ...

    def on_node(self, node: str, views: Sequence[type[View]]) -> Sequence[State[Each[Ref, Any]]]:
        """The pods on a node, in one request, once for each view."""
        ...

    def named(self, view: type[View], refs: Collection[Ref]) -> State[Each[Ref, Any]]:
        """These objects; what does not exist is absent."""
        ...

    def part(self, kind: Kind, shape: type[T], refs: Collection[Ref]) -> State[Each[Ref, T]]:
        """What a subresource tells of these objects; inapplicable where it is not served."""
        ...

    def served(self, group: str) -> State[tuple[str, ...]]:
        """The versions of an API group, the preferred one first; empty when the group is not served."""
        ...

    def dry_run(self, attempts: Collection[Attempt]) -> State[Each[Attempt, Answer]]:
        """What the server answers to these creations; `not-asked` without the person's consent."""
        ...

    def handshakes(self, ports: Collection[ServedPort]) -> State[Each[ServedPort, Handshake]]:
        """The certificates that these ports show; `not-asked` without the person's consent."""
        ...

    def logs(self, logs: Collection[Log], reading: LogReading[T]) -> State[Each[Log, T]]:
        """The beginnings of these logs, parsed; what was never written is absent."""
        ...

    def pages(self, pages: Collection[Page], reading: PodReading[Page, T]) -> State[Each[Page, T]]:
        """What pods answer over HTTP, parsed; a page that does not exist is absent. Inapplicable without
        the person's consent."""
        ...

    def runs(self, runs: Collection[Run], reading: PodReading[Run, T]) -> State[Each[Run, T]]:
        """What these commands print, parsed. Inapplicable without the person's consent."""
        ...

    def commands(
        self, wanted: Sequence[tuple[str, Callable[[Output], Any]]], targets: Collection[Target]
    ) -> Sequence[State[Each[str, Any]]]:
        """What each of the commands printed on each of the nodes, parsed, in the order of the commands.
        A node that was not looked into is an unknown entry: `not-asked` without the person's consent."""
        ...

    def later(self, seconds: float) -> State[None]:
        """Known when so many seconds have passed; inapplicable where reading again would tell nothing new."""
        ...

    def sampled(self, view: type[View]) -> State[Each[datetime, Each[Ref, Any]]]:
        """All objects of a kind, read again and again for a while; `not-asked` without consent."""
        ...

    def metrics(self, query: str, hours: float) -> State[Each[Labels, Points]]:
        """The past hours of what a query selects; inapplicable where no Prometheus was named."""
        ...

    def alerts(self) -> State[Each[Labels, Alert]]:
        """The alerts that are not over; inapplicable where nothing was named that knows of alerts."""
        ...
