"""Walks the graph of facts: each fact once and as soon as it can, reads in parallel."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar, cast

from gpuctl.facts.fact import (
    NOW,
    Alerts,
    Argument,
    Command,
    Derived,
    DryRun,
    Fact,
    Handshakes,
    Later,
    Logs,
    Maybe,
    Metrics,
    Named,
    Objects,
    OnNode,
    Pages,
    Part,
    Read,
    Runs,
    Sampled,
    Served,
    Within,
    graph,
)
from gpuctl.facts.kinds import Kind, Ref
from gpuctl.facts.reader import Reader
from gpuctl.facts.state import Known, NotKnown, Reason, State, Unknown, value

T = TypeVar("T")
READS_AT_ONCE = 8


@dataclass(frozen=True)
class Facts:
    """What was gathered, or so far. Indexing gives a value or raises `NotKnown`."""

    states: Mapping[Fact[Any], State[Any]]
    now: datetime
    times: Mapping[Kind, datetime]

    def __getitem__(self, fact: Fact[T]) -> T:
        return value(self.state(fact))

    def state(self, fact: Fact[T]) -> State[T]:
        """What is known of a fact, whatever that is."""
        return cast("State[T]", self.states[fact])

    def read_at(self, ref: Ref) -> datetime:
        """When objects of this kind were read."""
        return self.times.get(ref.kind, self.now)

    def settled(self, fact: Fact[Any]) -> bool:
        """Whether it is known yet what is known of this fact."""
        return fact in self.states


Watch = Callable[[Fact[Any], Facts], None]


def gather(
    wanted: Iterable[Fact[Any]],
    reader: Reader,
    arguments: Mapping[Argument[Any], Any],
    watch: Watch = lambda _fact, _facts: None,
) -> Facts:
    """Reads and derives the wanted facts.

    `watch` is told of each fact the moment it is settled, with all that is settled, in the calling thread.
    Reads are bounded by the reader's own deadline. An interruption abandons the reads under way and is
    passed on.
    """
    facts = graph(wanted)
    walk = _Walk(reader, {NOW: reader.now, **arguments}, watch, _shared_reads(facts))
    pool = ThreadPoolExecutor(READS_AT_ONCE, thread_name_prefix="gpuctl-read")
    try:
        walk.run(facts, pool)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    return walk.facts


def _shared_reads(facts: Iterable[Fact[Any]]) -> dict[Fact[Any], tuple[Read[Any], ...]]:
    """The reads that share a request: lists of one kind, of one node's pods, commands on the same nodes."""
    shared: dict[Any, list[Read[Any]]] = {}
    for fact in facts:
        if isinstance(fact, Objects):
            shared.setdefault((fact.view.of, fact.labels), []).append(fact)
        elif isinstance(fact, OnNode):
            shared.setdefault((OnNode, fact.node), []).append(fact)
        elif isinstance(fact, Command):
            shared.setdefault(fact.on, []).append(fact)
    return {fact: tuple(group) for group in shared.values() for fact in group}


@dataclass
class _Walk:
    reader: Reader
    arguments: Mapping[Argument[Any], Any]
    watch: Watch
    shared: Mapping[Fact[Any], tuple[Read[Any], ...]]
    states: dict[Fact[Any], State[Any]] = field(default_factory=dict)
    times: dict[Kind, datetime] = field(default_factory=dict)
    reading: dict[Future[Sequence[State[Any]]], tuple[Read[Any], ...]] = field(default_factory=dict)

    @property
    def facts(self) -> Facts:
        """All that is settled; it grows as the walk goes on."""
        return Facts(self.states, self.reader.now, self.times)

    def run(self, facts: Sequence[Fact[Any]], pool: ThreadPoolExecutor) -> None:
        waiting = list(facts)
        while waiting or self.reading:
            waiting = [fact for fact in waiting if not self._advance(fact, pool)]
            if self.reading:
                self._collect()

    def _advance(self, fact: Fact[Any], pool: ThreadPoolExecutor) -> bool:
        """Settles a fact, or starts its read, if what it needs is settled; says whether it could."""
        if fact in self.states:
            return True
        if any(need not in self.states for need in fact.needs):
            return False
        if isinstance(fact, Read):
            self._start(fact, pool)
        else:
            self._settle(fact, self._derive(fact))
        return True

    def _start(self, fact: Read[Any], pool: ThreadPoolExecutor) -> None:
        if any(fact in group for group in self.reading.values()):
            return
        group = self.shared.get(fact, (fact,))
        self.reading[pool.submit(self._read, group)] = group

    def _collect(self) -> None:
        done, _ = wait(self.reading, return_when=FIRST_COMPLETED)
        for future in done:
            for fact, state in zip(self.reading.pop(future), future.result(), strict=True):
                self._settle(fact, state)

    def _settle(self, fact: Fact[Any], state: State[Any]) -> None:
        self.states[fact] = state
        if isinstance(fact, Objects | Within | OnNode | Named):
            self.times[fact.view.of] = self.reader.clock()
        self.watch(fact, self.facts)

    def _read(self, group: tuple[Read[Any], ...]) -> Sequence[State[Any]]:
        try:
            return self._ask(group)
        except NotKnown as gap:
            return [gap.state] * len(group)
        except Exception as error:  # noqa: BLE001 - the border around one fact: a bug here must not cost the others
            return [_internal(group[0], error)] * len(group)

    def _ask(self, group: tuple[Read[Any], ...]) -> Sequence[State[Any]]:
        fact = group[0]
        if isinstance(fact, Objects):
            views = [cast("Objects[Any]", each).view for each in group]
            return self.reader.objects(fact.view.of, fact.labels, views)
        if isinstance(fact, OnNode):
            views = [cast("OnNode[Any]", each).view for each in group]
            return self.reader.on_node(value(self.states[fact.node]), views)
        if isinstance(fact, Within):
            return [self.reader.within(fact.view, value(self.states[fact.namespaces]))]
        if isinstance(fact, Named):
            return [self.reader.named(fact.view, value(self.states[fact.refs]))]
        if isinstance(fact, Served):
            return [self.reader.served(fact.group)]
        if isinstance(fact, DryRun):
            return [self.reader.dry_run(value(self.states[fact.attempts]))]
        if isinstance(fact, Handshakes):
            return [self.reader.handshakes(value(self.states[fact.of]))]
        if isinstance(fact, Logs):
            return [self.reader.logs(value(self.states[fact.of]), fact.reading)]
        if isinstance(fact, Command):
            commands = [cast("Command[Any]", each) for each in group]
            wanted = [(each.command, each.parse) for each in commands]
            return self.reader.commands(wanted, value(self.states[fact.on]))
        return [self._of_pods(fact) if isinstance(fact, Pages | Runs) else self._over_time(fact)]

    def _of_pods(self, fact: Pages[Any] | Runs[Any]) -> State[Any]:
        """What pods themselves tell when they are asked."""
        if isinstance(fact, Pages):
            return self.reader.pages(value(self.states[fact.of]), fact.reading)
        return self.reader.runs(value(self.states[fact.of]), fact.reading)

    def _over_time(self, fact: Read[Any]) -> State[Any]:
        """What is not as it is at one moment: what was before, what comes, what is watched. A subresource is
        here, for no record holds what it told."""
        if isinstance(fact, Part):
            return self.reader.part(fact.kind, fact.shape, value(self.states[fact.refs]))
        if isinstance(fact, Sampled):
            return self.reader.sampled(fact.view)
        if isinstance(fact, Metrics):
            return self.reader.metrics(fact.query, fact.hours)
        if isinstance(fact, Alerts):
            return self.reader.alerts()
        if isinstance(fact, Later):
            return self._later(fact)
        raise TypeError(f"no reader for {type(fact).__name__}")

    def _later(self, fact: Later[T]) -> State[Collection[T]]:
        things = cast("Collection[T]", value(self.states[fact.of]))
        if not things:
            return Known(things)
        waited = self.reader.later(fact.seconds)
        return Known(things) if isinstance(waited, Known) else waited

    def _derive(self, fact: Fact[Any]) -> State[Any]:
        try:
            return Known(self._make(fact))
        except NotKnown as gap:
            return gap.state
        except Exception as error:  # noqa: BLE001 - the border around one fact: a bug here must not cost the others
            return _internal(fact, error)

    def _make(self, fact: Fact[Any]) -> Any:
        if isinstance(fact, Argument):
            return self.arguments.get(fact, fact.default)
        if isinstance(fact, Maybe):
            return self.states[fact.fact]
        if isinstance(fact, Derived):
            return fact.make(*(value(self.states[need]) for need in fact.needs))
        raise TypeError(f"no way to make {type(fact).__name__}")


def _internal(fact: Fact[Any], error: Exception) -> Unknown:
    return Unknown(Reason.INTERNAL, f"{type(error).__name__}: {error}", fact.name)
