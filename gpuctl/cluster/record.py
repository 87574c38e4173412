"""Records what is read as a snapshot: masked, readable by people, whole or not there at all."""

from __future__ import annotations

import gzip
import io
import os
import re
import shutil
import tarfile
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock, RLock
from typing import Any, Final

import msgspec

import gpuctl
from gpuctl.audit.mask import masked, masked_text
from gpuctl.audit.report import Source
from gpuctl.cluster import (
    recorded_commands,
    recorded_dry_runs,
    recorded_handshakes,
    recorded_metrics,
    recorded_pods,
)
from gpuctl.cluster.archive import ARCHIVES
from gpuctl.cluster.capture import API_VERSION, KIND, SECRETS, Capture, Missing, Scope
from gpuctl.cluster.recorded_commands import Probed
from gpuctl.cluster.recorded_logs import RESOURCE as LOGS
from gpuctl.cluster.recorded_logs import path as log_path
from gpuctl.cluster.recorded_logs import path_about
from gpuctl.facts.kinds import Answer, Attempt, Kind, Log, View
from gpuctl.facts.pods import Page, Run
from gpuctl.facts.state import Reason, Unknown
from gpuctl.facts.tls import Handshake, ServedPort

SERIES: Final = "series"
PLAIN_UP_TO: Final = 256 * 1024  # bytes of a page that stays readable without unpacking
# Permissions and consent know no versions of an API; every other reason may differ from one to the next.
_VERSIONLESS: Final = (Reason.FORBIDDEN, Reason.UNAUTHORIZED, Reason.NOT_ASKED)


_LINE_TIME: Final = re.compile(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z) ", re.MULTILINE)


class CannotRecord(Exception):
    """The snapshot can't be written; the message says where and why."""


@dataclass(frozen=True, slots=True)
class _Page:
    """A file of objects; `attempt`: the try to read a list that brought them."""

    file: Path
    resource: str
    objects: int
    attempt: int


class Recorder:
    """A sink that writes a snapshot, as a folder or, if the path ends in .tar.gz or .tgz, as an archive.

    Pages are written as they arrive, to a temporary folder beside the path, which `close` moves into place.
    A failure to write, such as a full disk, is kept and raised by `close`, so that it costs no reading.
    `namespace` is the only one that is looked into, empty for the whole cluster.
    Raises CannotRecord.
    """

    def __init__(self, path: Path, namespace: str = "", outer: Recorder | None = None) -> None:
        if os.path.lexists(path):
            raise CannotRecord(f"{path} exists already; a snapshot never overwrites anything")
        try:
            self._folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.absolute().parent))
        except OSError as error:
            raise CannotRecord(f"can't write to {path.absolute().parent}: {error.strerror}") from error
        self._path = path
        self._namespace = namespace
        self._lock = Lock()
        self._files = RLock()
        self._is_gone = False
        self._outer = outer
        self._numbers: Counter[str] = Counter()
        self._pages: list[_Page] = []
        self._logs: set[str] = set()
        self._complete: set[Scope] = set()
        self._missing: dict[Missing, None] = {}
        self._served: dict[str, tuple[str, ...]] = {}
        self._dry_runs: dict[str, list[recorded_dry_runs.Sent]] = {}
        self._failure: OSError | None = None

    def items(
        self,
        kind: Kind,
        version: str,
        views: Sequence[type[View]],
        items: Sequence[msgspec.Raw],
        attempt: int = 0,
    ) -> None:
        """Writes a page of objects, masked; of ConfigMaps the keys that the views use."""
        if kind.resource == SECRETS or not items or self._failure:
            return
        keys = frozenset(key for view in views for key in view.keys)
        trees = [tree for item in items if (tree := _tree(item)) is not None]
        if len(trees) < len(items):
            self.missing(kind, Unknown(Reason.MALFORMED, "an object is not JSON"), version=version)
        objects = [_clean(tree, kind, version, keys) for tree in trees]
        page = {"apiVersion": kind.api_version(version), "kind": f"{kind.kind}List", "items": objects}
        try:
            file = self._write_page(kind, msgspec.json.encode(page))
        except OSError as error:
            self._failure = error
        else:
            with self._lock:
                self._pages.append(_Page(file, kind.resource, len(objects), attempt))

    def withdraw(self, attempt: int) -> None:
        """Takes away the pages of a list that is read anew."""
        with self._lock:
            gone = [page for page in self._pages if page.attempt == attempt]
            self._pages = [page for page in self._pages if page.attempt != attempt]
        try:
            for page in gone:
                page.file.unlink()
        except OSError as error:
            self._failure = error

    def complete(self, kind: Kind, *, labels: str = "", namespace: str = "", name: str = "") -> None:
        """Notes what was read in full. Of Secrets nothing is stored, so nothing of them is answered for."""
        if kind.resource == SECRETS:
            return
        with self._lock:
            self._complete.add(Scope(kind.resource, namespace, name, labels))

    def missing(
        self, kind: Kind, gap: Unknown, *, namespace: str = "", name: str = "", version: str = ""
    ) -> None:
        """Notes what was asked for and could not be read."""
        if gap.reason is Reason.INTERNAL:
            return
        if not version and len(kind.versions) == 1 and gap.reason not in _VERSIONLESS:
            version = kind.versions[0]
        message = masked_text(gap.message)
        with self._lock:
            self._missing[Missing(kind.resource, gap.reason, message, version, namespace, name)] = None

    def served(self, group: str, versions: Sequence[str]) -> None:
        """Notes what discovery said of an API group."""
        with self._lock:
            self._served[group] = tuple(versions)

    def log(
        self, log: Log, kept: Callable[[], str], *, cut_at: int | None, lost: Unknown | None = None
    ) -> None:
        """Writes what may be kept of a log, masked, and how much of it was read."""
        if self._failure:
            return
        text = masked_text(kept())
        meta: dict[str, Any] = {"readFrom": "start", "filtered": True, **_span(text)}
        if cut_at is not None:
            meta["truncatedAt"] = cut_at
        if lost is not None and lost.reason is not Reason.INTERNAL:
            meta["endMissing"] = {"reason": lost.reason.value, "message": masked_text(lost.message)}
        try:
            with self._writing():
                file = self._folder / log_path(log)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
                self._logs.add(log_path(log))
                (self._folder / path_about(log)).write_text(_dumped(meta), encoding="utf-8")
        except OSError as error:
            self._failure = error

    def missing_log(self, log: Log | None, gap: Unknown) -> None:
        """Notes a log that could not be read, or that none was asked for."""
        if gap.reason is Reason.INTERNAL:
            return
        message = masked_text(gap.message)
        named = (
            {"namespace": log.pod.namespace, "name": log.pod.name, "container": log.container} if log else {}
        )
        with self._lock:
            self._missing[Missing(LOGS, gap.reason, message, **named)] = None

    def logs_complete(self) -> None:
        """Notes that a log which is neither here nor missing was never written."""
        with self._lock:
            self._complete.add(Scope(LOGS))

    def probed(self, probed: Probed) -> None:
        """Writes what the commands printed on a node; a second look replaces the first."""
        if self._failure:
            return
        try:
            with self._writing():
                recorded_commands.write(self._folder, probed)
        except OSError as error:
            self._failure = error

    def heard(self, question: Page | Run, kept: str | None) -> None:
        """Writes what may be kept of a pod's answer, masked."""
        self._write_heard(lambda: recorded_pods.write(self._folder, question, kept))

    def not_heard(self, question: Page | Run, gap: Unknown) -> None:
        """Writes why a pod told nothing."""
        self._write_heard(lambda: recorded_pods.write_gap(self._folder, question, gap))

    def _write_heard(self, write: Callable[[], None]) -> None:
        if self._failure:
            return
        try:
            with self._writing():
                write()
        except OSError as error:
            self._failure = error

    def dry_run(self, attempt: Attempt, user: str, answer: Answer) -> None:
        """Keeps an answer until the end, when all of one kind are written to one file."""
        with self._lock:
            noted = recorded_dry_runs.noted(attempt, user, answer)
            self._dry_runs.setdefault(attempt.kind.resource, []).append(noted)

    def missing_dry_run(self, attempt: Attempt, gap: Unknown) -> None:
        """Notes a dry run that told nothing."""
        self._note(recorded_dry_runs.missing(attempt, gap))

    def handshake(self, port: ServedPort, handshake: Handshake) -> None:
        """Writes the certificates that a port showed."""
        if self._failure:
            return
        try:
            with self._writing():
                recorded_handshakes.write(self._folder, port, handshake)
        except OSError as error:
            self._failure = error

    def missing_handshake(self, port: ServedPort, gap: Unknown) -> None:
        """Notes a handshake that told nothing."""
        self._note(recorded_handshakes.missing(port, gap))

    def _note(self, gap: Missing) -> None:
        if gap.reason is Reason.INTERNAL:
            return
        with self._lock:
            self._missing[gap] = None

    @contextmanager
    def round(self, number: int) -> Iterator[Recorder]:
        """A later round is a snapshot of its own, inside of this one."""
        folder = self._folder / SERIES
        with self._writing():
            folder.mkdir(exist_ok=True)
            later = Recorder(folder / str(number), self._namespace, self)
        try:
            yield later
            later.close(Source(kind="live", name=""))
        finally:
            later.abandon()

    def metrics(self, query: str, answer: str) -> None:
        """Writes what a Prometheus answered."""
        if self._failure:
            return
        try:
            with self._writing():
                file = self._folder / recorded_metrics.path(query)
                file.parent.mkdir(exist_ok=True)
                file.write_text(recorded_metrics.text(query, answer), encoding="utf-8")
        except OSError as error:
            self._failure = error

    def close(self, source: Source, captured_at: datetime | None = None) -> None:
        """Writes capture.yaml and moves the snapshot into place. Raises CannotRecord, and nothing is left."""
        try:
            if self._failure:
                raise self._failure
            for resource, sent in sorted(self._dry_runs.items()):
                recorded_dry_runs.write(self._folder, resource, sent)
            capture = self._capture(source, captured_at or datetime.now(UTC))
            (self._folder / "capture.yaml").write_text(_yaml(capture), encoding="utf-8")
            self._move()
        except OSError as error:
            raise CannotRecord(f"can't write {self._path}: {error.strerror or error}") from error
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Takes away what was written so far; after `close` there is nothing to take."""
        with self._files:
            self._is_gone = True
            shutil.rmtree(self._folder, ignore_errors=True)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Within it the folder stays. Raises OSError where it is gone: reads that were given up may still
        end, and must not make it anew."""
        with self._files, self._outer._writing() if self._outer else nullcontext():
            if self._is_gone:
                raise OSError("the record was abandoned")
            yield

    def _write_page(self, kind: Kind, page: bytes) -> Path:
        with self._lock:
            self._numbers[kind.resource] += 1
            number = self._numbers[kind.resource]
        folder = self._folder / "resources" / kind.resource
        is_plain = len(page) <= PLAIN_UP_TO
        file = folder / (f"{number:03}.json" if is_plain else f"{number:03}.json.gz")
        packed = msgspec.json.format(page, indent=1) + b"\n" if is_plain else gzip.compress(page, 6, mtime=0)
        with self._writing():
            folder.mkdir(parents=True, exist_ok=True)
            file.write_bytes(packed)
        return file

    def _capture(self, source: Source, at: datetime) -> Capture:
        return Capture(
            api_version=API_VERSION,
            kind=KIND,
            captured_at=at.astimezone(UTC).replace(microsecond=0),
            writer=f"gpuctl {gpuctl.__version__}",
            server_version=source.server_version,
            cluster_uid=source.cluster_uid,
            namespace=self._namespace,
            served=dict(sorted(self._served.items())),
            complete=tuple(_short(scope) for scope in sorted(self._complete, key=_order)),
            missing=tuple(sorted(self._lasting(), key=_missing_order)),
            objects=dict(sorted(self._stored().items())),
        )

    def _stored(self) -> Counter[str]:
        """How many objects of each resource there are in the files, and how many logs."""
        stored = Counter({LOGS: len(self._logs)} if self._logs else {})
        for page in self._pages:
            stored[page.resource] += page.objects
        return stored

    def _lasting(self) -> Iterator[Missing]:
        """What another read of the same did not give in the end."""
        return (gap for gap in self._missing if gap.version or gap.scope not in self._complete)

    def _move(self) -> None:
        if not self._path.name.endswith(ARCHIVES):
            self._folder.chmod(0o755)
            os.rename(self._folder, self._path)  # fails if something came to be there, unless an empty folder
            return
        packed = self._folder.with_name(f"{self._folder.name}.tmp")
        try:
            _pack(self._folder, packed)
            os.link(packed, self._path)  # unlike a rename, never overwrites
        finally:
            packed.unlink(missing_ok=True)


def _tree(item: msgspec.Raw) -> dict[str, Any] | None:
    try:
        tree = msgspec.json.decode(item)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return tree if isinstance(tree, dict) else None


def _clean(tree: dict[str, Any], kind: Kind, version: str, keys: frozenset[str]) -> dict[str, Any] | None:
    """A masked object. Items of a list leave apiVersion and kind to the list."""
    return masked({"apiVersion": kind.api_version(version), "kind": kind.kind, **tree}, keys)


def _short(scope: Scope) -> str | Scope:
    return scope.resource if scope == Scope(scope.resource) else scope


def _order(scope: Scope) -> tuple[str, str, str, str]:
    return scope.resource, scope.namespace, scope.name, scope.labels


def _missing_order(gap: Missing) -> tuple[str, ...]:
    return gap.resource, gap.version, gap.namespace, gap.name, gap.container, gap.reason


def _yaml(capture: Capture) -> str:
    """Times stay unquoted, as a person would write them."""
    return _dumped(msgspec.to_builtins(capture))


def _dumped(tree: Any) -> str:
    import yaml

    text: str = yaml.safe_dump(tree, sort_keys=False, allow_unicode=True, width=120)
    return text


def _span(text: str) -> dict[str, str]:
    """The first and the last time at the beginning of a log's lines."""
    times = _LINE_TIME.findall(text)
    return {"firstAt": times[0], "lastAt": times[-1]} if times else {}


def _pack(folder: Path, path: Path) -> None:
    """The same snapshot gives the same bytes: no times, no owners, names in order."""
    with (
        path.open("xb") as file,
        gzip.GzipFile("", "wb", 6, file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for each in sorted(folder.rglob("*")):
            if each.is_file():
                _add(archive, each.relative_to(folder).as_posix(), each.read_bytes())


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    member.mode = 0o644
    archive.addfile(member, io.BytesIO(content))
