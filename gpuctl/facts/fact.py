"""Facts, and the graph they form: reads, what is derived from them, and the arguments of a run.

A read is a fact; a derived fact is a pure function of facts; the targets of a later read are a derived fact
handed to it. Which kinds are read is therefore known before anything is read: permissions, the contents of
a snapshot and the coverage figures all come from the one declaration.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar, TypeVarTuple, cast, overload

from gpuctl.facts.alerts import Alert
from gpuctl.facts.kinds import Answer, Attempt, Kind, Log, LogReading, Ref, Rule, View
from gpuctl.facts.metrics import Labels, Points
from gpuctl.facts.nodes import Output, Target
from gpuctl.facts.pods import Page, PodReading, Run
from gpuctl.facts.state import Each, State
from gpuctl.facts.tls import Handshake, ServedPort

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
O_co = TypeVar("O_co", bound=View, covariant=True)
Ts = TypeVarTuple("Ts")
R = TypeVar("R")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
F = TypeVar("F")


class Fact(Generic[T_co]):
    """Something that can be known. Equal declarations of a read are one fact; others are by identity."""

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        """The facts this one is made of, or that tell where to read it."""
        return ()

    @property
    def rules(self) -> frozenset[Rule]:
        """The permissions that reading it takes."""
        return frozenset()

    @property
    def name(self) -> str:
        """What a person calls it."""
        raise NotImplementedError


class Read(Fact[T_co]):
    """A fact that comes from the cluster."""


@dataclass(frozen=True)
class Objects(Read[Each[Ref, O_co]]):
    """All objects of a kind, in the whole cluster (or the tenant's namespace)."""

    view: type[O_co]
    labels: str = ""

    @property
    def rules(self) -> frozenset[Rule]:
        return frozenset({_rule(self.view.of, "list")})

    @property
    def name(self) -> str:
        return f"{self.view.of} with {self.labels}" if self.labels else str(self.view.of)


@dataclass(frozen=True)
class Within(Read[Each[Ref, O_co]]):
    """All objects of a kind in some namespaces, which another fact tells."""

    view: type[O_co]
    namespaces: Fact[Collection[str]]

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        return (self.namespaces,)

    @property
    def rules(self) -> frozenset[Rule]:
        return frozenset({_rule(self.view.of, "list")})

    @property
    def name(self) -> str:
        return f"{self.view.of} in {self.namespaces.name}"


@dataclass(frozen=True)
class OnNode(Read[Each[Ref, O_co]]):
    """The pods on one node, which another fact names: a few of tens of thousands."""

    view: type[O_co]
    node: Fact[str]

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        return (self.node,)

    @property
    def rules(self) -> frozenset[Rule]:
        return frozenset({_rule(self.view.of, "list")})

    @property
    def name(self) -> str:
        return f"{self.view.of} on {self.node.name}"


@dataclass(frozen=True)
class Named(Read[Each[Ref, O_co]]):
    """Single objects, which another fact names. One that does not exist is absent from the result."""

    view: type[O_co]
    refs: Fact[Collection[Ref]]

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        return (self.refs,)

    @property
    def rules(self) -> frozenset[Rule]:
        return frozenset({_rule(self.view.of, "get")})

    @property
    def name(self) -> str:
        return f"{self.view.of} of {self.refs.name}"


@dataclass(frozen=True)
class Part(Read[Each[Ref, T]]):
    """What a subresource tells of single objects, which another fact names, in the shape that is asked for.

    `kind` has it in its plural, as permissions do: `clusterqueues/pendingworkloads`. It is of the moment: no
    record holds it.
    """

    kind: Kind
    shape: type[T]
    refs: Fact[Collection[Ref]]

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        return (self.refs,)

    @property
    def rules(self) -> frozenset[Rule]:
        return frozenset({_rule(self.kind, "get")})

    @property
    def name(self) -> str:
        return f"{self.kind} of {self.refs.name}"


def _rule(kind: Kind, verb: str) -> Rule:
    return Rule(kind.group, kind.plural, verb, kind.namespaced)


@dataclass(frozen=True)
class Served(Read[tuple[str, ...]]):
    """The versions of an API group that the server offers, the preferred one first; empty if none is."""

    group: str

    @property
    def name(self) -> str:
        return f"API group {self.group}"


PROXY = Rule("", "pods/proxy", "get", namespaced=True)
# Opening a stream is a get to older API servers and a create to newer ones.
EXEC = frozenset(Rule("", "pods/exec", verb, namespaced=True) for verb in ("create", "get"))
PORT_FORWARD = frozenset(Rule("", "pods/portforward", verb, namespaced=True) for verb in ("create", "get"))


@dataclass(frozen=True)
class DryRun(Read[Each[Attempt, Answer]]):
    """What the server answers to creating objects that it is told not to store. Needs consent."""

    attempts: Fact[Collection[Attempt]]
    kinds: tuple[Rule, ...]

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        return (self.attempts,)

    @property
    def rules(self) -> frozenset[Rule]:
        return frozenset(self.kinds)

    @property
    def name(self) -> str:
        return f"dry run of {self.attempts.name}"


@dataclass(frozen=True)
class Handshakes(Read[Each[ServedPort, Handshake]]):
    """The certificates that the pods behind Services show, seen through port-forward. Needs consent."""

    of: Fact[Collection[ServedPort]]

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        return (self.of,)

    @property
    def rules(self) -> frozenset[Rule]:
        return PORT_FORWARD

    @property
    def name(self) -> str:
        return f"TLS handshake with {self.of.name}"


@dataclass(frozen=True)
class Logs(Read[Each[Log, T]]):
    """What containers logged, from the beginning, as `reading` makes it. Needs consent.

    A log that does not exist, of a container that never ran, is absent from the result.
    """

    of: Fact[Collection[Log]]
    reading: LogReading[T]

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        return (self.of,)

    @property
    def rules(self) -> frozenset[Rule]:
        return frozenset({Rule("", "pods/log", "get", namespaced=True)})

    @property
    def name(self) -> str:
        return self.of.name


@dataclass(frozen=True)
class Pages(Read[Each[Page, T]]):
    """What pods answer over HTTP, through the API server's proxy. Needs consent.

    A page that does not exist is absent from the result.
    """

    of: Fact[Collection[Page]]
    reading: PodReading[Page, T]

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        return (self.of,)

    @property
    def rules(self) -> frozenset[Rule]:
        return frozenset({PROXY})

    @property
    def name(self) -> str:
        return self.of.name


@dataclass(frozen=True)
class Runs(Read[Each[Run, T]]):
    """What commands print in containers. Needs consent."""

    of: Fact[Collection[Run]]
    reading: PodReading[Run, T]

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        return (self.of,)

    @property
    def rules(self) -> frozenset[Rule]:
        return EXEC

    @property
    def name(self) -> str:
        return self.of.name


@dataclass(frozen=True)
class Command(Read[Each[str, T]]):
    """What a command printed on nodes, by their names, in the shape that `parse` gives it. Needs consent.

    `parse` may raise ValueError for a text that it can't read. All commands of one `on` are run in one call
    for each node.
    """

    command: str
    on: Fact[Collection[Target]]
    parse: Callable[[Output], T]

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        return (self.on,)

    @property
    def rules(self) -> frozenset[Rule]:
        return EXEC

    @property
    def name(self) -> str:
        return f"{self.command} on {self.on.name}"


@dataclass(frozen=True)
class Later(Read[Collection[T]]):
    """A collection once more, so many seconds later: what is read by it is read a second time.

    An empty one is not waited for. Of a record there is no later.
    """

    of: Fact[Collection[T]]
    seconds: float

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        return (self.of,)

    @property
    def name(self) -> str:
        return f"{self.of.name}, {self.seconds:g} s later"


@dataclass(frozen=True)
class Sampled(Read[Each[datetime, Each[Ref, O_co]]]):
    """All objects of a kind, several times over a while, by when they were read. Needs consent: it waits."""

    view: type[O_co]

    @property
    def rules(self) -> frozenset[Rule]:
        return frozenset({_rule(self.view.of, "list")})

    @property
    def name(self) -> str:
        return f"{self.view.of} over a while"


@dataclass(frozen=True)
class Metrics(Read[Each[Labels, Points]]):
    """The past hours of what a query selects, from a Prometheus that the person has named."""

    query: str
    hours: float

    @property
    def name(self) -> str:
        return f"metrics {self.query}"


@dataclass(frozen=True)
class Alerts(Read[Each[Labels, Alert]]):
    """The alerts that are not over, from an Alertmanager or a Prometheus that the person has named."""

    @property
    def name(self) -> str:
        return "alerts"


@dataclass(frozen=True)
class Maybe(Fact[State[T]]):
    """The state of a fact as a value: the only way around `NotKnown`."""

    fact: Fact[T]

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        return (self.fact,)

    @property
    def name(self) -> str:
        return self.fact.name


@dataclass(frozen=True, eq=False)
class Argument(Fact[T]):
    """A value the run is given: policy, target, time."""

    name_: str
    default: T | None = None

    @property
    def name(self) -> str:
        return self.name_


NOW: Argument[datetime] = Argument("the time of the reading")


@dataclass(frozen=True, eq=False)
class Derived(Fact[T_co]):
    """A pure function of other facts."""

    make: Callable[..., T_co] = field(repr=False)
    of: tuple[Fact[Any], ...] = field(repr=False)
    name_: str

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        return self.of

    @property
    def name(self) -> str:
        return self.name_


@dataclass(frozen=True)
class Given(Generic[*Ts]):
    """Facts that a function is handed as its arguments. As a decorator it makes the derived fact."""

    facts: tuple[Fact[Any], ...]

    def __call__(self, make: Callable[[*Ts], R]) -> Fact[R]:
        return Derived(make, self.facts, make.__name__.replace("_", " "))


@overload
def given() -> Given[()]: ...
@overload
def given(a: Fact[A], /) -> Given[A]: ...
@overload
def given(a: Fact[A], b: Fact[B], /) -> Given[A, B]: ...
@overload
def given(a: Fact[A], b: Fact[B], c: Fact[C], /) -> Given[A, B, C]: ...
@overload
def given(a: Fact[A], b: Fact[B], c: Fact[C], d: Fact[D], /) -> Given[A, B, C, D]: ...
@overload
def given(a: Fact[A], b: Fact[B], c: Fact[C], d: Fact[D], e: Fact[E], /) -> Given[A, B, C, D, E]: ...
@overload
def given(
    a: Fact[A], b: Fact[B], c: Fact[C], d: Fact[D], e: Fact[E], f: Fact[F], /
) -> Given[A, B, C, D, E, F]: ...
def given(*facts: Fact[Any]) -> Any:
    """Names the facts a function needs, in the order of its parameters."""
    return cast(Any, Given(facts))


def graph(wanted: Iterable[Fact[Any]]) -> tuple[Fact[Any], ...]:
    """The wanted facts and all they need, each once, every fact after those it needs."""
    order: dict[Fact[Any], None] = {}
    for fact in wanted:
        for found in _walk(fact, order):
            order[found] = None
    return tuple(order)


def _walk(fact: Fact[Any], seen: Collection[Fact[Any]]) -> Iterator[Fact[Any]]:
    if fact in seen:
        return
    for need in fact.needs:
        yield from _walk(need, seen)
    yield fact


def rules(*wanted: Fact[Any]) -> frozenset[Rule]:
    """The permissions that gathering these facts takes. Reads nothing."""
    return frozenset(rule for fact in graph(wanted) for rule in fact.rules)
