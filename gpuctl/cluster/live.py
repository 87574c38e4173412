"""Reads a live cluster. Whatever the API server does, the answer is a state, in time."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from gpuctl.audit.report import Source, scoped
from gpuctl.cluster import alerts, errors
from gpuctl.cluster.capture import SECRETS
from gpuctl.cluster.connection import Connection, Reply
from gpuctl.cluster.consent import Consent
from gpuctl.cluster.deadline import Deadline, in_background
from gpuctl.cluster.decode import Collector
from gpuctl.cluster.discovery import Discovery, Remembered, typed
from gpuctl.cluster.dry_run import DryRunner
from gpuctl.cluster.handshakes import Handshaker
from gpuctl.cluster.logs import LogReader
from gpuctl.cluster.metrics import Prometheus
from gpuctl.cluster.pages import Expired, Listing
from gpuctl.cluster.pods import PodAsker
from gpuctl.cluster.probe import Prober, Probing
from gpuctl.cluster.reviews import Reviews
from gpuctl.cluster.sink import NoSink, Sink
from gpuctl.facts.alerts import Alert
from gpuctl.facts.kinds import Answer, Attempt, Kind, Log, LogReading, Ref, View
from gpuctl.facts.metrics import Labels, Points
from gpuctl.facts.nodes import Output, Target
from gpuctl.facts.pods import Page, PodReading, Run
from gpuctl.facts.state import Each, Inapplicable, Known, NotKnown, Reason, State, Unknown, attempt, merged
from gpuctl.facts.tls import Handshake, ServedPort

T = TypeVar("T")
R = TypeVar("R")

PARALLEL = 6  # requests of one read that names many objects or namespaces
ROUNDS = 7  # of what is watched for a while
STARTS = 3  # of a list that keeps expiring while it is read
_OK, _NOT_FOUND = 200, 404
_JSON = "application/json"
_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


class _ServerVersion(msgspec.Struct, frozen=True, rename="camel"):
    git_version: str


class _Uid(msgspec.Struct, frozen=True):
    uid: str


class _Namespace(msgspec.Struct, frozen=True):
    metadata: _Uid


@dataclass(frozen=True, slots=True)
class _Where:
    """The part of a cluster that is listed."""

    namespace: str = ""
    labels: str = ""
    fields: str = ""


@dataclass(frozen=True, slots=True)
class _Listed:
    """What a list brought before it ended, once for each view; `gap` is None if it ended well.

    `attempt`: by which number the sink knows the objects.
    """

    found: tuple[Each[Ref, Any], ...]
    gap: Unknown | Inapplicable | None = None
    attempt: int = 0

    @property
    def worth(self) -> int:
        """How much it tells: all objects, some, an error that may hide some, nothing."""
        if self.gap is None:
            return 3
        return 2 if self.found else int(isinstance(self.gap, Unknown))


class LiveReader:
    """A reader of the cluster behind a connection, all of it over within `deadline` seconds from now.

    `announce` is told of what the consent permits beyond reading, before it is done. With a `namespace`,
    everything outside of it is inapplicable: a tenant's question does not arise there. A list that is
    restarted, or read in another version, reports its objects to the sink again and withdraws the earlier.
    `remembered` is what readers of the same server share of the versions they found.
    """

    def __init__(
        self,
        connection: Connection,
        deadline: float,
        *,
        sink: Sink | None = None,
        namespace: str | None = None,
        logs: bool = True,
        probing: Probing | None = None,
        consent: Consent | None = None,
        announce: Callable[[str], None] = lambda _: None,
        remembered: Remembered | None = None,
    ) -> None:
        self._logs = logs
        self._consent = consent or Consent()
        self._announce = announce
        self._probes = probing is not None and probing.mode != "none"
        self._told: Callable[[str], None] = lambda _: None
        self._connection = connection
        self._deadline = Deadline.after(deadline)
        self._sink = sink or NoSink()
        self._attempts = count(1)
        self._namespace = namespace or ""
        self._remembered = remembered
        self._discovery = Discovery(connection, self._deadline, self._sink, remembered)
        self._reviews = Reviews(connection, self._deadline)
        self._now = datetime.now(UTC)
        self._prober = Prober(
            connection, self._deadline, self._sink, Reviews(connection, self._deadline), probing or Probing()
        )

    def close(self) -> None:
        """Takes away what was made in the cluster to read it."""
        self._prober.close()

    @property
    def now(self) -> datetime:
        return self._now

    def clock(self) -> datetime:
        return datetime.now(UTC)

    def report_to(self, told: Callable[[str], None]) -> None:
        """Names who is told how a long read goes on."""
        self._told = told

    def objects(
        self, kind: Kind, labels: str, views: Sequence[type[View]]
    ) -> Sequence[State[Each[Ref, Any]]]:
        if self._namespace and not kind.namespaced:
            return [self._outside(kind)] * len(views)
        found = self._list(kind, views, _Where(self._namespace, labels))
        return [Known(each) for each in found.value] if isinstance(found, Known) else [found] * len(views)

    def within(self, view: type[View], namespaces: Collection[str]) -> State[Each[Ref, Any]]:
        inside = [name for name in namespaces if self._namespace in ("", name)]
        if namespaces and not inside:
            return self._outside(view.of)
        lists = in_parallel(lambda name: self._list(view.of, [view], _Where(name)), inside)
        outside = [Unknown(Reason.NOT_ASKED, self._why_not, f"{view.of} in namespace {name}")
                   for name in namespaces if name not in inside]  # fmt: skip
        return _joined(view.of, lists, outside)

    def on_node(self, node: str, views: Sequence[type[View]]) -> Sequence[State[Each[Ref, Any]]]:
        """Not recorded: a record answers for kinds and namespaces, not for nodes."""
        kind = views[0].of
        found = self._with_sink(NoSink())._list(
            kind, views, _Where(self._namespace, fields=f"spec.nodeName={node}")
        )
        return [Known(each) for each in found.value] if isinstance(found, Known) else [found] * len(views)

    def named(self, view: type[View], refs: Collection[Ref]) -> State[Each[Ref, Any]]:
        if view.of.resource == SECRETS and not (view.metadata_only or self._consent.webhook_secret):
            return Inapplicable("a Secret is read only with --read-webhook-secret")
        states = in_parallel(lambda ref: self._get(view, ref), refs)
        entries = {ref: state for ref, state in zip(refs, states, strict=True) if state != Known(None)}
        refused = [state for state in entries.values() if isinstance(state, Inapplicable)]
        return refused[0] if refused and len(refused) == len(refs) else Known(Each(entries))

    def part(self, kind: Kind, shape: type[T], refs: Collection[Ref]) -> State[Each[Ref, T]]:
        if self._namespace and not kind.namespaced:
            return Inapplicable(self._why_not)
        states = in_parallel(lambda ref: self._part(kind, shape, ref), refs)
        refused = [state for state in states if isinstance(state, Inapplicable)]
        return refused[0] if refused else Known(Each(dict(zip(refs, states, strict=True))))

    def served(self, group: str) -> State[tuple[str, ...]]:
        return self._discovery.served(group)

    def dry_run(self, attempts: Collection[Attempt]) -> State[Each[Attempt, Answer]]:
        inside = [each for each in attempts if self._namespace in ("", each.namespace)]
        if attempts and not inside:
            return Inapplicable(self._why_not)
        runner = DryRunner(
            self._connection,
            self._deadline,
            self._sink,
            self._reviews,
            self._consent.dry_run,
            self._announce,
        )
        return Known(runner.answers(inside))

    def handshakes(self, ports: Collection[ServedPort]) -> State[Each[ServedPort, Handshake]]:
        inside = [each for each in ports if self._namespace in ("", each.pod.namespace)]
        if ports and not inside:
            return Inapplicable(self._why_not)
        shaker = Handshaker(
            self._connection,
            self._deadline,
            self._sink,
            self._reviews,
            self._probes,
            self._announce,
        )
        return Known(shaker.handshakes(inside))

    def logs(self, logs: Collection[Log], reading: LogReading[T]) -> State[Each[Log, T]]:
        if not self._logs:
            gap = Unknown(Reason.NOT_ASKED, "logs are not read with --logs none", "logs")
            self._sink.missing_log(None, gap)
            return gap
        reader = LogReader(self._connection, self._deadline, self._sink, self._told)
        return Known(reader.read(logs, reading))

    def pages(self, pages: Collection[Page], reading: PodReading[Page, T]) -> State[Each[Page, T]]:
        if not self._consent.vllm_http:
            return Inapplicable("engines are asked over HTTP only with --vllm-http")
        inside = [each for each in pages if self._namespace in ("", each.pod.namespace)]
        if inside:
            pods = len({each.pod for each in inside})
            self._announce(f"sending GET requests to {pods} pods through the API server's proxy")
        return Known(self._asker().pages(inside, reading))

    def runs(self, runs: Collection[Run], reading: PodReading[Run, T]) -> State[Each[Run, T]]:
        if not self._consent.vllm_exec:
            return Inapplicable("the command lines of engines are read only with --vllm-exec")
        inside = [each for each in runs if self._namespace in ("", each.pod.namespace)]
        if inside:
            commands = ", ".join(sorted({" ".join(each.command) for each in inside}))
            self._announce(f"running `{commands}` in {len(inside)} containers")
        return Known(self._asker().runs(inside, reading))

    def _asker(self) -> PodAsker:
        return PodAsker(self._connection, self._deadline, self._sink, self._reviews, self._told)

    def commands(
        self, wanted: Sequence[tuple[str, Callable[[Output], Any]]], targets: Collection[Target]
    ) -> Sequence[State[Each[str, Any]]]:
        return self._prober.commands(wanted, targets)

    def later(self, seconds: float) -> State[None]:
        if seconds >= self._deadline.left:
            return Unknown(Reason.TIMEOUT, f"no {seconds:g} s are left for a second read")
        time.sleep(seconds)
        return Known(None)

    def sampled(self, view: type[View]) -> State[Each[datetime, Each[Ref, Any]]]:
        """Reads that fail are unknown entries; the others tell all the same."""
        window = self._consent.window
        if window is None:
            return Unknown(
                Reason.NOT_ASKED, "queues are watched with --window 60s", f"{view.of} over a while"
            )
        if self._namespace and not view.of.namespaced:
            return self._outside(view.of)
        found: dict[datetime, State[Each[Ref, Any]]] = {}
        for number in range(ROUNDS):
            if number:
                time.sleep(max(0.0, min(window / (ROUNDS - 1), self._deadline.left)))
            self._told(f"watching {view.of}: {number + 1} of {ROUNDS}")
            with self._sink.round(number) as sink:
                state = self._once(view, sink)
            found[datetime.now(UTC)] = state
        return Known(Each(found))

    def _once(self, view: type[View], sink: Sink) -> State[Each[Ref, Any]]:
        """A list as it is now, reported to another sink."""
        return self._with_sink(sink).objects(view.of, "", [view])[0]

    def _with_sink(self, sink: Sink) -> LiveReader:
        again = copy.copy(self)
        again._sink = sink
        again._discovery = Discovery(self._connection, self._deadline, NoSink(), self._remembered)
        return again

    def metrics(self, query: str, hours: float) -> State[Each[Labels, Points]]:
        if self._consent.prometheus is None:
            return Inapplicable("no Prometheus was named (--prometheus URL)")
        server = Prometheus(self._consent.prometheus)
        state, answer = server.series(query, self.clock(), hours, max(1.0, self._deadline.left))
        if answer:
            self._sink.metrics(query, answer)
        return state

    def alerts(self) -> State[Each[Labels, Alert]]:
        """An Alertmanager knows more: the alerts of many, and which are silenced."""
        given, timeout = self._consent, max(1.0, self._deadline.left)
        if given.alertmanager is not None:
            return alerts.of_alertmanager(given.alertmanager, timeout)
        if given.prometheus is not None:
            return alerts.of_prometheus(given.prometheus, timeout)
        return Inapplicable("neither Alertmanager nor Prometheus was named (--alertmanager URL)")

    def source(self) -> Source:
        """Which cluster this is. What cannot be read of that stays empty."""
        version, uid = self._one("/version", _ServerVersion), self.cluster_uid()
        return Source(
            kind="live",
            name=scoped(self._connection.name, self._namespace),
            cluster_uid=uid.value if isinstance(uid, Known) else "",
            server_version=version.value.git_version if isinstance(version, Known) else "",
        )

    def cluster_uid(self) -> State[str]:
        """By what clusters are told apart: the uid of the namespace kube-system."""
        found = self._one("/api/v1/namespaces/kube-system", _Namespace)
        return Known(found.value.metadata.uid) if isinstance(found, Known) else found

    # Lists

    def _list(
        self, kind: Kind, views: Sequence[type[View]], where: _Where
    ) -> State[tuple[Each[Ref, Any], ...]]:
        """The objects of a kind, once for each view, with a hole where the list broke off."""
        listed = attempt(lambda: self._in_best_version(kind, views, where))
        gap = listed.value.gap if isinstance(listed, Known) else listed
        if gap is None:
            self._sink.complete(kind, labels=where.labels, namespace=where.namespace)
        else:
            self._sink.missing(kind, _as_missing(kind, gap), namespace=where.namespace)
        if not isinstance(listed, Known):
            return listed
        return Known(listed.value.found) if gap is None or listed.value.found else gap

    def _in_best_version(self, kind: Kind, views: Sequence[type[View]], where: _Where) -> _Listed:
        """Another version is tried where one is not served or fails, as by a conversion webhook."""
        versions = self._discovery.versions(kind)
        tried = self._tried(kind, versions, views, where)
        if all(each.gap is not None and _may_differ(each.gap) for each in tried):
            tried += self._tried(kind, self._discovery.others(kind, versions), views, where)
        return self._best(tried)

    def _tried(
        self, kind: Kind, versions: tuple[str, ...], views: Sequence[type[View]], where: _Where
    ) -> list[_Listed]:
        """What each version brought, up to the first that is as good as any."""
        tried: list[_Listed] = []
        for version in versions:
            listed = self._restarted(kind, version, views, where)
            tried.append(listed)
            if listed.gap is None or not _may_differ(listed.gap):
                break
            if isinstance(listed.gap, Unknown) and len(versions) > 1:
                self._sink.missing(kind, listed.gap, namespace=where.namespace, version=version)
        return tried

    def _best(self, tried: Sequence[_Listed]) -> _Listed:
        """That which tells most; of the others nothing is to be recorded."""
        best = max(tried, key=lambda each: each.worth)
        for other in tried:
            if other is not best:
                self._sink.withdraw(other.attempt)
        return best

    def _restarted(self, kind: Kind, version: str, views: Sequence[type[View]], where: _Where) -> _Listed:
        for start in range(1, STARTS + 1):
            number, collector = next(self._attempts), Collector(kind, views)
            error = self._read(kind, version, views, where, collector, number)
            if not isinstance(error, Expired) or start == STARTS:
                break
            self._sink.withdraw(number)
        return replace(self._concluded(kind, version, collector, error), attempt=number)

    def _read(
        self,
        kind: Kind,
        version: str,
        views: Sequence[type[View]],
        where: _Where,
        collector: Collector,
        number: int,
    ) -> NotKnown | None:
        what = f"{kind} in namespace {where.namespace}" if where.namespace else str(kind)
        path = _path(kind, version, where.namespace)
        try:
            for items in Listing(
                self._connection, self._deadline, path, what, where.labels, where.fields
            ).pages():
                collector.add(items)
                self._sink.items(kind, version, views, items, number)
        except NotKnown as error:
            return error
        return None

    def _concluded(self, kind: Kind, version: str, collector: Collector, error: NotKnown | None) -> _Listed:
        if error is None:
            return _Listed(collector.result())
        gap = self._discovery.explained(kind, version, error.state)
        found = collector.result()
        if isinstance(gap, Inapplicable) or not any(each.entries or each.holes for each in found):
            return _Listed((), gap)
        collector.hole(gap)
        return _Listed(collector.result(), gap)

    # Single objects

    def _get(self, view: type[View], ref: Ref) -> State[View | None]:
        """The object, known to be None if it does not exist."""
        if self._namespace and ref.namespace != self._namespace:
            return Inapplicable(self._why_not)
        found = attempt(
            lambda: self._in_versions(ref.kind, lambda them: self._get_in_one_of(them, view, ref))
        )
        if isinstance(found, Known):
            self._sink.complete(ref.kind, namespace=ref.namespace, name=ref.name)
        else:
            self._sink.missing(ref.kind, _as_missing(ref.kind, found), namespace=ref.namespace, name=ref.name)
        return found

    def _in_versions(self, kind: Kind, read: Callable[[tuple[str, ...]], T]) -> T:
        """What is read in the versions that are known; where they fail, in those that are served now."""
        versions = self._discovery.versions(kind)
        try:
            return read(versions)
        except NotKnown as error:
            others = self._discovery.others(kind, versions) if _may_differ(error.state) else ()
            if not others:
                raise
            return read(others)

    def _get_in_one_of(self, versions: tuple[str, ...], view: type[View], ref: Ref) -> View | None:
        gaps: list[NotKnown] = []
        for version in versions:
            try:
                return self._object(view, ref, version)
            except NotKnown as error:
                gaps.append(error)
                if not _may_differ(error.state):
                    break
        raise next((gap for gap in gaps if isinstance(gap.state, Unknown)), gaps[-1])

    def _object(self, view: type[View], ref: Ref, version: str) -> View | None:
        path = f"{_path(ref.kind, version, ref.namespace)}/{quote(ref.name, safe='')}"
        reply = self._reply(path, str(ref), _METADATA if view.metadata_only else _JSON)
        if reply.status == _NOT_FOUND and errors.is_absent(reply.body):
            return None
        if reply.status != _OK:
            gap = errors.of_status(reply.status, reply.body, str(ref))
            raise NotKnown(self._discovery.explained(ref.kind, version, gap))
        found = _decoded(view, ref, reply)
        if not view.metadata_only:  # a record would hold it for the object
            self._sink.items(ref.kind, version, [view], [msgspec.Raw(reply.body)])
        return found

    def _part(self, kind: Kind, shape: type[T], ref: Ref) -> State[T]:
        return attempt(lambda: self._in_versions(kind, lambda them: self._part_in(them[0], kind, shape, ref)))

    def _part_in(self, version: str, kind: Kind, shape: type[T], ref: Ref) -> T:
        plural, _, part = kind.plural.partition("/")
        what = f"{part} of {ref}"
        path = f"{_path(replace(kind, plural=plural), version, ref.namespace)}/{quote(ref.name, safe='')}"
        try:
            return typed(self._reply(f"{path}/{part}", what), what, shape)
        except NotKnown as gap:
            raise NotKnown(self._discovery.explained(kind, version, gap.state)) from gap

    def _reply(self, path: str, what: str, accept: str = _JSON) -> Reply:
        request = in_background(lambda: self._connection.get(path, what, self._deadline, accept=accept))
        return self._deadline.result(what, request)

    def _one(self, path: str, shape: type[T]) -> State[T]:
        return attempt(lambda: typed(self._reply(path, path), path, shape))

    # A tenant's scope

    @property
    def _why_not(self) -> str:
        return f"outside of the namespace {self._namespace}"

    def _outside(self, kind: Kind) -> Inapplicable:
        self._sink.missing(kind, Unknown(Reason.NOT_ASKED, self._why_not, str(kind)))
        return Inapplicable(self._why_not)


def in_parallel(work: Callable[[T], R], things: Iterable[T]) -> list[R]:
    """The results in the order of the things."""
    with ThreadPoolExecutor(PARALLEL, thread_name_prefix="gpuctl-part") as pool:
        return list(pool.map(work, things))


def _joined(
    kind: Kind, lists: Sequence[State[tuple[Each[Ref, Any], ...]]], holes: Sequence[Unknown]
) -> State[Each[Ref, Any]]:
    gaps = [each for each in lists if not isinstance(each, Known)]
    if gaps and len(gaps) == len(lists) and all(isinstance(gap, Inapplicable) for gap in gaps):
        return gaps[0]
    known = [each.value[0] for each in lists if isinstance(each, Known)]
    return Known(merged([*known, Each({}, (*(_as_missing(kind, gap) for gap in gaps), *holes))]))


def _as_missing(kind: Kind, gap: Unknown | Inapplicable) -> Unknown:
    return gap if isinstance(gap, Unknown) else Unknown(Reason.NOT_SERVED, gap.why, str(kind))


def _may_differ(gap: Unknown | Inapplicable) -> bool:
    """Whether another version of the same objects may be readable."""
    return isinstance(gap, Inapplicable) or gap.reason in (Reason.SERVER_ERROR, Reason.NOT_SERVED)


def _path(kind: Kind, version: str, namespace: str) -> str:
    root = f"/apis/{kind.group}/{version}" if kind.group else f"/api/{version}"
    place = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    return f"{root}{place}/{kind.plural}"


def _decoded(view: type[View], ref: Ref, reply: Reply) -> View:
    collector = Collector(ref.kind, [view])
    collector.add([reply.body])
    (each,) = collector.result()
    state = each.entries.get(ref)
    if isinstance(state, Known):
        found: View = state.value
        return found
    gap = next(each.gaps(), None)
    error = ValueError(gap.message if gap else "another object came back")
    raise NotKnown(errors.of_body(reply.body, error, str(ref)))
