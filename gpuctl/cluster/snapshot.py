"""A record of a cluster as a reader: a folder, an archive of one, or a file of objects that someone mailed.

What the record does not answer for is unknown. capture.yaml says what it answers for; without one, the kinds
that appear are known and all others were not captured. Nothing is decoded before a kind is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any, Final, TypeVar

import msgspec

from gpuctl.audit.report import Source, scoped
from gpuctl.cluster import capture as captures
from gpuctl.cluster import (
    recorded_commands,
    recorded_dry_runs,
    recorded_handshakes,
    recorded_logs,
    recorded_metrics,
    recorded_pods,
)
from gpuctl.cluster.account import Account, Gap
from gpuctl.cluster.archive import LIMITS, BadSnapshot, Damaged, File, Limits, files
from gpuctl.cluster.capture import Capture, Scope
from gpuctl.cluster.config_maps import united
from gpuctl.cluster.contents import Contents
from gpuctl.cluster.decode import Collector, name_of
from gpuctl.cluster.documents import Damage, Foreign, Listed, Object, Part, damaged, parts
from gpuctl.facts.alerts import Alert
from gpuctl.facts.kinds import Answer, Attempt, Kind, Log, LogReading, Ref, View
from gpuctl.facts.metrics import Labels, Points
from gpuctl.facts.nodes import Output, Target
from gpuctl.facts.pods import Page, PodReading, Run
from gpuctl.facts.selectors import parse, selects
from gpuctl.facts.state import Each, Inapplicable, Known, Reason, State, Unknown
from gpuctl.facts.tls import Handshake, ServedPort

__all__ = ["BadSnapshot", "SnapshotReader", "open_snapshot"]

T = TypeVar("T")

CAPTURE: Final = "capture.yaml"
SERIES: Final = "series"
RESOURCES: Final = "resources"
OBJECT_FILES: Final = (".json", ".yaml", ".yml")

# Times at which something happened; not such as a certificate's end, which lies in the future.
_TIMES: Final = re.compile(
    rb"\b(?:creationTimestamp|time|startTime|startedAt|finishedAt|completionTime|renewTime|eventTime"
    rb"|firstTimestamp|last(?:Transition|Heartbeat|Probe|Update)Time|lastTimestamp)[\"']?\s*:\s*[\"']?"
    rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)"
)


def open_snapshot(path: Path, limits: Limits = LIMITS, namespace: str = "") -> SnapshotReader:
    """Opens a snapshot, or a namespace of it. Raises BadSnapshot, which names the file and the reason."""
    found = files(path, limits)
    root = _root(path, found)
    capture = _capture(path, found, root)
    inside = _inside(found, root)
    index = _index(inside, capture)
    _must_be_readable(path, index, capture)
    reader = _reader(path, capture, index, inside)
    return replace(reader, namespace=_scope(path, capture, namespace))


def _scope(path: Path, capture: Capture | None, asked: str) -> str:
    """The only namespace to look into: of the person's choice, else the only one that was looked into."""
    taken = capture.namespace if capture else ""
    if taken and asked not in ("", taken):
        raise BadSnapshot(f"{path}: was taken within the namespace {taken}; it holds nothing of {asked}")
    return asked or taken


def _root(path: Path, found: Sequence[File]) -> str:
    """The folder that holds capture.yaml, as a prefix: an archive often has one folder around everything."""
    tops = [file.path.removesuffix(CAPTURE) for file in found if PurePosixPath(file.path).name == CAPTURE]
    least = min((top.count("/") for top in tops), default=0)
    roots = [top for top in tops if top.count("/") == least]
    if len(roots) > 1:
        raise BadSnapshot(f"{path}: holds several snapshots: {', '.join(sorted(roots))}; name one of them")
    return roots[0] if roots else ""


def _capture(path: Path, found: Sequence[File], root: str) -> Capture | None:
    for file in found:
        if file.path == f"{root}{CAPTURE}":
            try:
                return captures.parse(file.text())
            except (Damaged, ValueError) as error:
                raise BadSnapshot(f"{path}: {file.path}: {error}") from error
    return None


def _inside(found: Sequence[File], root: str) -> tuple[File, ...]:
    """The files of the snapshot, named from its root."""
    return tuple(
        replace(file, path=file.path.removeprefix(root)) for file in found if file.path.startswith(root)
    )


def _index(inside: Sequence[File], capture: Capture | None) -> tuple[Part, ...]:
    """What may hold objects. Whatever else lies under resources/ may hide some."""
    if capture is None:
        return tuple(part for file in inside if file.ends(OBJECT_FILES) for part in parts(file))
    stored = [file for file in inside if file.path.startswith(f"{RESOURCES}/")]
    return tuple(
        part for file in stored for part in (parts(file) if file.ends(OBJECT_FILES) else (_odd(file),))
    )


def _odd(file: File) -> Part:
    return damaged(file.path, "its name ends in none of .json, .yaml, .yml, each also with .gz")


def _must_be_readable(path: Path, index: Sequence[Part], capture: Capture | None) -> None:
    """Refuses a snapshot in which nothing can be read, for the first reason there is."""
    if capture is not None or any(_holds_something(part) for part in index):
        return
    reasons = [f"{part.path}: {piece.error}" for part in index for piece in _bad(part)]
    raise BadSnapshot(f"{path}: no Kubernetes object in it" + (f" ({reasons[0]})" if reasons else ""))


def _holds_something(part: Part) -> bool:
    return bool(part.types) and any(isinstance(piece, Object | Listed) for piece in part.read())


def _bad(part: Part) -> Iterator[Damage | Foreign]:
    return (piece for piece in part.read() if isinstance(piece, Damage | Foreign))


def _reader(
    path: Path, capture: Capture | None, index: tuple[Part, ...], found: Sequence[File]
) -> SnapshotReader:
    inside = [file for file in found if file.ends()]
    contents = Contents(index, only_objects=capture is not None)
    now, notes = _now(path, capture, inside)
    notes += tuple(str(gap) for gap in contents.broken())
    dry_runs = tuple(
        file for file in inside if capture and file.path.startswith(f"{recorded_dry_runs.FOLDER}/")
    )
    shown = tuple(file for file in inside if file.path.startswith(f"{recorded_handshakes.FOLDER}/"))
    logs = tuple(file for file in inside if file.path.startswith(f"{recorded_logs.FOLDER}/"))
    nodes = recorded_commands.of(inside)
    reader = SnapshotReader(str(path), now, notes, Account(capture, contents), dry_runs, logs, nodes, shown)
    rounds = tuple(file for file in inside if file.path.startswith(f"{SERIES}/"))
    series = tuple(file for file in inside if file.path.startswith(f"{recorded_metrics.FOLDER}/"))
    asked = tuple(file for file in inside if file.path.startswith(f"{recorded_pods.FOLDER}/"))
    return replace(reader, later_rounds=rounds, pod_files=asked, metric_files=series)


def _now(path: Path, capture: Capture | None, inside: Sequence[File]) -> tuple[datetime, tuple[str, ...]]:
    if capture and capture.captured_at:
        return capture.captured_at.astimezone(UTC), ()
    lack = f"{path} does not say when it was taken"
    newest = max((_newest(file) for file in inside), default=b"")
    if newest:
        now = datetime.fromisoformat(newest.decode()).replace(tzinfo=UTC)
        return now, (f"{lack}; judged as of {now:%Y-%m-%dT%H:%M:%SZ}, the newest time in it",)
    now = datetime.fromtimestamp(int(path.stat().st_mtime), UTC)
    return now, (f"{lack}; judged as of {now:%Y-%m-%dT%H:%M:%SZ}, when it was last written",)


def _newest(file: File) -> bytes:
    try:
        return max(_TIMES.findall(file.text()), default=b"")
    except Damaged:
        return b""


class _Labels(msgspec.Struct, frozen=True):
    labels: dict[str, str] | None = None


class _Labelled(msgspec.Struct, frozen=True):
    metadata: _Labels


class _PlacedSpec(msgspec.Struct, frozen=True):
    node_name: str = msgspec.field(default="", name="nodeName")


class _Placed(msgspec.Struct, frozen=True):
    spec: _PlacedSpec


@dataclass(frozen=True)
class SnapshotReader:
    """Reads a record of a cluster. `notes` are what a person should be told of it before any verdict.

    With a `namespace`, everything outside of it is inapplicable, as it is live.
    """

    name: str
    now: datetime
    notes: tuple[str, ...]
    account: Account
    dry_runs: tuple[File, ...] = field(default=(), repr=False)
    log_files: tuple[File, ...] = field(default=(), repr=False)
    nodes: recorded_commands.RecordedNodes = field(
        default_factory=recorded_commands.RecordedNodes, repr=False
    )
    handshake_files: tuple[File, ...] = field(default=(), repr=False)
    with_logs: bool = True
    namespace: str = ""
    later_rounds: tuple[File, ...] = field(default=(), repr=False)
    metric_files: tuple[File, ...] = field(default=(), repr=False)
    pod_files: tuple[File, ...] = field(default=(), repr=False)

    def clock(self) -> datetime:
        """When the snapshot was taken: nothing in it was read later."""
        return self.now

    def source(self) -> Source:
        """Where the facts come from, for the report."""
        capture = self.account.capture
        return Source(
            kind="snapshot",
            name=scoped(self.name, self.namespace),
            cluster_uid=capture.cluster_uid if capture else "",
            server_version=capture.server_version if capture else "",
            captured_at=self.now,
        )

    def objects(
        self, kind: Kind, labels: str, views: Sequence[type[View]]
    ) -> Sequence[State[Each[Ref, Any]]]:
        """All objects of a kind that have these labels, once for each view."""
        if self.namespace and not kind.namespaced:
            return [self._outside] * len(views)
        wanted = parse(labels)
        asked = Scope(kind.resource, self.namespace, labels=labels)
        return self._objects(kind, asked, views, lambda item: not labels or selects(wanted, _labels_of(item)))

    def _objects(
        self, kind: Kind, asked: Scope, views: Sequence[type[View]], keep: Callable[[Object], bool]
    ) -> Sequence[State[Each[Ref, Any]]]:
        gap = self.account.gap(kind, asked)
        if isinstance(gap, Inapplicable):
            return [gap] * len(views)
        if gap is not None and gap.reason is Reason.NOT_ASKED and not self.account.holds_some(kind):
            return [gap] * len(views)
        found = self._collected(kind, views, lambda item: self._is_inside(item, kind) and keep(item))
        if gap is None:
            return [Known(self._with_gaps(kind, each, [asked])) for each in found]
        return [_begun(each, gap) for each in found]

    def within(self, view: type[View], namespaces: Collection[str]) -> State[Each[Ref, Any]]:
        """All objects of a kind in these namespaces. One that was not listed is a hole."""
        inside = [name for name in namespaces if self.namespace in ("", name)]
        if namespaces and not inside:
            return self._outside
        asked = [Scope(view.of.resource, namespace=name) for name in inside]
        gaps = [self.account.gap(view.of, scope) for scope in asked]
        refused = [gap for gap in gaps if isinstance(gap, Inapplicable)]
        if refused and len(refused) == len(gaps):
            return refused[0]
        places = (*inside, None)
        each = self._collected(view.of, [view], lambda item: _namespace_of(item, view.of) in places)[0]
        each = self._with_gaps(view.of, each, asked)
        outside = (
            Unknown(Reason.NOT_ASKED, self._outside.why, f"{view.of} in namespace {name}")
            for name in namespaces
            if name not in inside
        )
        holes = (*(_as_hole(gap, view.of) for gap in gaps if gap is not None), *outside)
        return Known(Each(each.entries, (*each.holes, *holes)))

    def on_node(self, node: str, views: Sequence[type[View]]) -> Sequence[State[Each[Ref, Any]]]:
        """The pods on a node, once for each view."""
        return self._objects(views[0].of, Scope(views[0].of.resource, self.namespace), views, _is_on(node))

    def named(self, view: type[View], refs: Collection[Ref]) -> State[Each[Ref, Any]]:
        """These objects; one that the snapshot neither holds nor answers for is an unknown entry."""
        if view.of.resource == captures.SECRETS:
            return Inapplicable("a snapshot holds no Secret")
        wanted = {ref for ref in refs if self.namespace in ("", ref.namespace)}
        if refs and not wanted:
            return self._outside
        if not refs:
            return Known(Each())
        sought = {*wanted, None}
        each = self._collected(view.of, [view], lambda item: name_of(item.text, view.of) in sought)[0]
        absent = {ref: self._absent(ref, each.holes) for ref in wanted if ref not in each.entries}
        refused = [gap for gap in absent.values() if isinstance(gap, Inapplicable)]
        if refused and len(refused) == len(wanted):
            return refused[0]
        unknown = {ref: gap for ref, gap in absent.items() if gap is not None}
        outside = {ref: self._outside for ref in refs if ref not in wanted}
        return Known(Each({**each.entries, **unknown, **outside}))

    def served(self, group: str) -> State[tuple[str, ...]]:
        """The versions of an API group, the preferred one first; empty when the group is not served."""
        return self.account.served(group)

    def dry_run(self, attempts: Collection[Attempt]) -> State[Each[Attempt, Answer]]:
        """What the server answered when the snapshot was taken."""
        capture = self.account.capture
        inside = [each for each in attempts if self.namespace in ("", each.namespace)]
        if attempts and not inside:
            return self._outside
        states = {each: recorded_dry_runs.answered(self.dry_runs, capture, each) for each in inside}
        return Known(Each(states))

    def handshakes(self, ports: Collection[ServedPort]) -> State[Each[ServedPort, Handshake]]:
        """The certificates that the ports showed when the snapshot was taken."""
        capture = self.account.capture
        inside = [each for each in ports if self.namespace in ("", each.pod.namespace)]
        if ports and not inside:
            return self._outside
        return Known(
            Each({each: recorded_handshakes.shown(self.handshake_files, capture, each) for each in inside})
        )

    def logs(self, logs: Collection[Log], reading: LogReading[T]) -> State[Each[Log, T]]:
        """The logs that the snapshot holds, as far as they were kept."""
        if not self.with_logs:
            return Unknown(Reason.NOT_ASKED, "logs are not read with --logs none", "logs")
        recorded = recorded_logs.RecordedLogs(self.log_files, self.account.capture)
        return Known(recorded.read(logs, reading))

    def pages(self, pages: Collection[Page], reading: PodReading[Page, T]) -> State[Each[Page, T]]:
        """What pods answered over HTTP when the snapshot was taken."""
        inside = [each for each in pages if self.namespace in ("", each.pod.namespace)]
        return recorded_pods.RecordedPods(self.pod_files).read(inside, reading)

    def runs(self, runs: Collection[Run], reading: PodReading[Run, T]) -> State[Each[Run, T]]:
        """What commands printed in containers when the snapshot was taken."""
        inside = [each for each in runs if self.namespace in ("", each.pod.namespace)]
        return recorded_pods.RecordedPods(self.pod_files).read(inside, reading)

    def commands(
        self, wanted: Sequence[tuple[str, Callable[[Output], Any]]], targets: Collection[Target]
    ) -> Sequence[State[Each[str, Any]]]:
        """What the commands printed when the snapshot was taken."""
        return self.nodes.commands(wanted, targets)

    def later(self, seconds: float) -> State[None]:  # noqa: ARG002 - of a record there is no later
        """A snapshot holds one read of everything."""
        return Inapplicable("a snapshot holds one read")

    @property
    def _outside(self) -> Inapplicable:
        return Inapplicable(f"outside of the namespace {self.namespace}")

    def _is_inside(self, item: Object, kind: Kind) -> bool:
        return not self.namespace or _namespace_of(item, kind) in (self.namespace, None)

    def sampled(self, view: type[View]) -> State[Each[datetime, Each[Ref, Any]]]:
        """What was watched when the snapshot was taken."""
        if self.namespace and not view.of.namespaced:
            return self._outside
        rounds = _rounds(self.later_rounds)
        if not rounds:
            what = f"{view.of} over a while"
            return Unknown(Reason.NOT_ASKED, "the snapshot holds no later rounds (--window 60s)", what)
        readers = [replace(_later_round(self.name, inside), namespace=self.namespace) for inside in rounds]
        return Known(Each({each.now: _of_round(each, view) for each in readers}))

    def metrics(self, query: str, hours: float) -> State[Each[Labels, Points]]:  # noqa: ARG002 - as recorded
        """What a Prometheus answered when the snapshot was taken."""
        return recorded_metrics.recorded(self.metric_files, query)

    def part(self, kind: Kind, shape: type[T], refs: Collection[Ref]) -> State[Each[Ref, T]]:  # noqa: ARG002
        """What a subresource tells is of the moment: none is recorded."""
        return Inapplicable(f"a snapshot holds no {kind}")

    def alerts(self) -> State[Each[Labels, Alert]]:
        """What fires is of the moment: none is recorded."""
        return Inapplicable("a snapshot holds no alerts")

    def _collected(
        self, kind: Kind, views: Sequence[type[View]], keep: Callable[[Object], bool]
    ) -> tuple[Each[Ref, Any], ...]:
        """Decodes objects; of one object in several versions the one that gpuctl prefers."""
        collector = Collector(kind, views)
        found, holes = self.account.contents.read(kind)
        lost = self.account.lost(kind, len(found))
        readable, strange = _split(filter(keep, found), kind)
        found.clear()
        readable.sort(key=lambda item: -kind.versions.index(item.type.version))
        if any(view.keys for view in views):
            readable = united(readable, kind)
        collector.add(item.text for item in _drained(readable))
        for hole in (*holes, *lost):
            collector.hole(hole)
        return tuple(_with_strange(each, strange, kind) for each in collector.result())

    def _with_gaps(self, kind: Kind, each: Each[Ref, Any], asked: Iterable[Scope]) -> Each[Ref, Any]:
        """Adds what is missing in parts that were asked for: single objects, namespaces."""
        entries = dict(each.entries)
        holes = list(each.holes)
        for gap in (gap for scope in asked for gap in self.account.parts_missing(kind, scope)):
            if gap.name and (gap.namespace or not kind.namespaced):
                ref = Ref(kind, gap.name, gap.namespace)
                entries.setdefault(ref, Unknown(gap.reason, gap.message, str(ref)))
            else:
                holes.append(Unknown(gap.reason, gap.message, str(gap.scope)))
        return Each(entries, tuple(dict.fromkeys(holes)))

    def _absent(self, ref: Ref, holes: tuple[Unknown, ...]) -> Gap:
        """Why it isn't known that an object does not exist, or None if that is known."""
        gap = self.account.gap(ref.kind, Scope(ref.kind.resource, ref.namespace, ref.name))
        if isinstance(gap, Unknown):
            return Unknown(gap.reason, gap.message, str(ref))
        return gap or next(iter(holes), None)


def _rounds(found: Sequence[File]) -> list[tuple[File, ...]]:
    """The files of each later round, named from its own root, in the order of the rounds."""
    numbered: dict[int, list[File]] = {}
    for file in found:
        number, _, rest = file.path.removeprefix(f"{SERIES}/").partition("/")
        if number.isdecimal() and rest:
            numbered.setdefault(int(number), []).append(replace(file, path=rest))
    return [tuple(numbered[number]) for number in sorted(numbered)]


def _later_round(name: str, inside: tuple[File, ...]) -> SnapshotReader:
    path = Path(name)
    capture = _capture(path, inside, "")
    return _reader(path, capture, _index(inside, capture), inside)


def _of_round(reader: SnapshotReader, view: type[View]) -> State[Each[Ref, Any]]:
    """A round that has lost its capture.yaml may have lost anything."""
    if reader.account.capture is None:
        return Unknown(Reason.MALFORMED, "a later round without capture.yaml", str(view.of))
    return reader.objects(view.of, "", [view])[0]


def _begun(each: Each[Ref, Any], gap: Unknown) -> State[Each[Ref, Any]]:
    """A list that failed: what came before it did is known, the rest is a hole."""
    return Known(Each(each.entries, (*each.holes, gap))) if any(each.known()) else gap


def _as_hole(gap: Unknown | Inapplicable, kind: Kind) -> Unknown:
    return gap if isinstance(gap, Unknown) else Unknown(Reason.NOT_SERVED, gap.why, str(kind))


def _labels_of(item: Object) -> Mapping[str, str]:
    try:
        return msgspec.json.decode(item.text, type=_Labelled).metadata.labels or {}
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}


def _is_on(node: str) -> Callable[[Object], bool]:
    """One that can't be read that far may be on any node."""

    def is_on(item: Object) -> bool:
        try:
            return msgspec.json.decode(item.text, type=_Placed).spec.node_name == node
        except (msgspec.DecodeError, UnicodeDecodeError):
            return True

    return is_on


def _namespace_of(item: Object, kind: Kind) -> str | None:
    """None if the object can't be read that far: it may be in any."""
    ref = name_of(item.text, kind)
    return ref.namespace if ref else None


def _split(items: Iterable[Object], kind: Kind) -> tuple[list[Object], list[Object]]:
    """The objects in versions that can be read, and the others."""
    readable: list[Object] = []
    strange: list[Object] = []
    for item in items:
        (readable if item.type.version in kind.versions else strange).append(item)
    return readable, strange


def _drained(items: list[Object]) -> Iterator[Object]:
    """The items in their order, each let go of before the next is taken: their text is large."""
    items.reverse()
    while items:
        yield items.pop()


def _with_strange(each: Each[Ref, Any], strange: Iterable[Object], kind: Kind) -> Each[Ref, Any]:
    """Adds objects that exist, but that the snapshot holds in no version that was asked for."""
    entries = dict(each.entries)
    for item in strange:
        ref = name_of(item.text, kind)
        if ref is not None:
            why = f"the snapshot holds it in {item.type.version}, not in {' or '.join(kind.versions)}"
            entries.setdefault(ref, Unknown(Reason.NOT_ASKED, why, str(ref)))
    return Each(entries, each.holes)
