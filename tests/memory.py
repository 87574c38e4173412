"""A cluster in memory: a reader over plain objects, for tests of everything that is judged."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from gpuctl.cluster.decode import Collector
from gpuctl.facts.alerts import Alert
from gpuctl.facts.kinds import Answer, Attempt, Kind, Log, LogReading, Ref, View
from gpuctl.facts.metrics import Labels, Points
from gpuctl.facts.nodes import Output, Target, parsed
from gpuctl.facts.pods import Page, PodReading, Run
from gpuctl.facts.state import Each, Inapplicable, Known, Reason, State, Unknown
from gpuctl.facts.tls import Handshake, ServedPort

T = TypeVar("T")

A_MOMENT = datetime(2026, 11, 30, 10, 0, tzinfo=UTC)


@dataclass
class MemoryReader:
    """Answers from `items` (as kubectl prints them). A kind in `missing` answers that it is not known."""

    items: Sequence[Mapping[str, Any]]
    missing: Mapping[str, Unknown | Inapplicable] = field(default_factory=dict)  # by "<plural>[.<group>]"
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    answers: Mapping[Attempt, Answer | Unknown] | None = None
    shown: Mapping[str, State[Handshake]] | None = None  # TLS handshakes, by the Service's name
    written: Mapping[tuple[str, str], str | Unknown] | None = None  # logs, by pod and container
    told: Mapping[tuple[str, str], Output | str | Unknown] | None = None  # by node and command
    answered: Mapping[tuple[str, str], str | Unknown] | None = None  # over HTTP, by pod and path
    ran: Mapping[tuple[str, str], str | Unknown] | None = None  # in containers, by pod and container
    later_told: Mapping[tuple[str, str], Output | str | Unknown] | None = None  # the same, ten seconds later
    later_items: Sequence[Mapping[str, Any]] | None = None
    rounds: Mapping[datetime, Sequence[Mapping[str, Any]]] | None = None  # what is watched, by when
    series: Mapping[str, Each[Labels, Points]] | Unknown | None = None  # of a Prometheus, by query
    firing: Each[Labels, Alert] | Unknown | None = None
    parts: Mapping[Ref, Any] | None = None  # what a subresource tells
    now: datetime = A_MOMENT

    def clock(self) -> datetime:
        return self.now

    def objects(
        self, kind: Kind, labels: str, views: Sequence[type[View]]
    ) -> Sequence[State[Each[Ref, Any]]]:
        gap = self.missing.get(kind.resource)
        if gap is not None:
            return [gap] * len(views)
        return [Known(each) for each in _collected(kind, views, self._of(kind))]

    def within(self, view: type[View], namespaces: Collection[str]) -> State[Each[Ref, Any]]:
        return self._some(
            view, (item for item in self._of(view.of) if item["metadata"].get("namespace") in namespaces)
        )

    def on_node(self, node: str, views: Sequence[type[View]]) -> Sequence[State[Each[Ref, Any]]]:
        kind = views[0].of
        gap = self.missing.get(kind.resource)
        if gap is not None:
            return [gap] * len(views)
        there = [item for item in self._of(kind) if item.get("spec", {}).get("nodeName") == node]
        return [Known(each) for each in _collected(kind, views, there)]

    def named(self, view: type[View], refs: Collection[Ref]) -> State[Each[Ref, Any]]:
        wanted = {(ref.namespace, ref.name) for ref in refs}
        found = (item for item in self._of(view.of) if _name(item) in wanted)
        return self._some(view, found)

    def part(self, kind: Kind, shape: type[T], refs: Collection[Ref]) -> State[Each[Ref, T]]:
        gap = self.missing.get(kind.resource)
        if gap is not None or self.parts is None:
            return gap or Inapplicable(f"the API {kind} is not served by this cluster")
        return Known(Each.of({ref: msgspec.convert(self.parts[ref], shape) for ref in refs}))

    def served(self, group: str) -> State[tuple[str, ...]]:
        return Known(self.groups.get(group, ()))

    def dry_run(self, attempts: Collection[Attempt]) -> State[Each[Attempt, Answer]]:
        if self.answers is None:
            return Unknown(Reason.NOT_ASKED, "no dry run was made")
        found = {each: self.answers[each] for each in attempts if each in self.answers}
        return Known(
            Each({each: got if isinstance(got, Unknown) else Known(got) for each, got in found.items()})
        )

    def handshakes(self, ports: Collection[ServedPort]) -> State[Each[ServedPort, Handshake]]:
        if self.shown is None:
            return Unknown(Reason.NOT_ASKED, "no port was asked")
        return Known(Each({each: self.shown[each.service.name] for each in ports}))

    def logs(self, logs: Collection[Log], reading: LogReading[T]) -> State[Each[Log, T]]:
        if self.written is None:
            return Unknown(Reason.NOT_ASKED, "logs are read only with consent")
        found = {each: self.written.get(_log_name(each)) for each in logs}
        return Known(
            Each(
                {
                    each: text if isinstance(text, Unknown) else Known(reading.parse(text))
                    for each, text in found.items()
                    if text is not None
                }
            )
        )

    def pages(self, pages: Collection[Page], reading: PodReading[Page, T]) -> State[Each[Page, T]]:
        if self.answered is None:
            return Inapplicable("engines are asked over HTTP only with --vllm-http")
        told = {each: self.answered.get((each.pod.name, each.path.partition("?")[0])) for each in pages}
        return Known(Each({each: _read(reading, each, text) for each, text in told.items() if text}))

    def runs(self, runs: Collection[Run], reading: PodReading[Run, T]) -> State[Each[Run, T]]:
        if self.ran is None:
            return Inapplicable("the command lines of engines are read only with --vllm-exec")
        told = {each: self.ran.get((each.pod.name, each.container)) for each in runs}
        return Known(Each({each: _read(reading, each, text) for each, text in told.items() if text}))

    def commands(
        self, wanted: Sequence[tuple[str, Callable[[Output], Any]]], targets: Collection[Target]
    ) -> Sequence[State[Each[str, Any]]]:
        if self.told is None:
            return [Unknown(Reason.NOT_ASKED, "nodes are looked into only with consent")] * len(wanted)
        return [
            Known(Each({each.node: self._told(command, parse, each) for each in targets}))
            for command, parse in wanted
        ]

    def later(self, seconds: float) -> State[None]:
        if self.later_told is None and self.later_items is None:
            return Inapplicable("a record holds one read")
        self.told = self.told if self.later_told is None else self.later_told
        self.items = self.items if self.later_items is None else self.later_items
        return Known(None)

    def sampled(self, view: type[View]) -> State[Each[datetime, Each[Ref, Any]]]:
        if self.rounds is None:
            return Unknown(Reason.NOT_ASKED, "queues are watched with --window 60s")
        return Known(
            Each.of({at: _collected(view.of, [view], items)[0] for at, items in self.rounds.items()})
        )

    def metrics(self, query: str, hours: float) -> State[Each[Labels, Points]]:
        if self.series is None:
            return Inapplicable("no Prometheus was named (--prometheus URL)")
        return self.series if isinstance(self.series, Unknown) else Known(self.series.get(query, Each()))

    def alerts(self) -> State[Each[Labels, Alert]]:
        if self.firing is None:
            return Inapplicable("neither Alertmanager nor Prometheus was named (--alertmanager URL)")
        return self.firing if isinstance(self.firing, Unknown) else Known(self.firing)

    def _told(self, command: str, parse: Callable[[Output], Any], target: Target) -> State[Any]:
        found = (self.told or {}).get((target.node, command))
        if found is None or isinstance(found, Unknown):
            return found or Unknown(Reason.NOT_ASKED, target.why_not or "not looked into", target.node)
        return parsed(parse, Output(found) if isinstance(found, str) else found, target.node)

    def _some(self, view: type[View], items: Iterable[Mapping[str, Any]]) -> State[Each[Ref, Any]]:
        gap = self.missing.get(view.of.resource)
        return gap if gap is not None else Known(_collected(view.of, [view], items)[0])

    def _of(self, kind: Kind) -> list[Mapping[str, Any]]:
        versions = {kind.api_version(version) for version in kind.versions}
        return [item for item in self.items if item["kind"] == kind.kind and item["apiVersion"] in versions]


def _read(reading: PodReading[Any, T], question: Any, text: str | Unknown) -> State[T]:
    """What is kept of a text must tell the same."""
    if isinstance(text, Unknown):
        return text
    try:
        told = reading.parse(question, text)
    except ValueError as error:
        return Unknown(Reason.MALFORMED, str(error), str(question))
    assert reading.parse(question, reading.keep(question, text)) == told
    return Known(told)


def _log_name(log: Log) -> tuple[str, str]:
    return log.pod.name, f"{log.container} previous" if log.previous else log.container


def _name(item: Mapping[str, Any]) -> tuple[str, str]:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


def _collected(
    kind: Kind, views: Sequence[type[View]], items: Iterable[Mapping[str, Any]]
) -> tuple[Each[Ref, Any], ...]:
    collector = Collector(kind, views)
    collector.add(msgspec.json.encode(item) for item in items)
    return collector.result()
