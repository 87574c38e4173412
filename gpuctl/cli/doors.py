"""Opens the door a verb reads through: a live cluster, a live cluster that is recorded, or a snapshot."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from gpuctl.cli.border import INCOMPLETE, Stop, warn

if TYPE_CHECKING:
    from gpuctl.audit.report import Source
    from gpuctl.cluster.connection import Access
    from gpuctl.cluster.consent import Consent
    from gpuctl.cluster.probe import Probing
    from gpuctl.cluster.sink import Sink
    from gpuctl.facts.reader import Reader


@dataclass(frozen=True, slots=True)
class Door:
    """An open door. `close` finishes what was recorded, `abandon` takes it away; both may be called."""

    name: str
    reader: Reader
    source: Callable[[], Source]
    close: Callable[[], None] = lambda: None
    abandon: Callable[[], None] = lambda: None
    report_to: Callable[[Callable[[str], None]], None] = lambda _: None  # who is told how a long read goes on

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with ExitStack() as undo:
            undo.callback(self.abandon)
            if kind is None:
                self.close()  # which may be interrupted, too
                undo.pop_all()


def open_door(
    access: Access,
    snapshot: Path | None,
    save: Path | None,
    deadline: float,
    *,
    logs: str = "all",
    consent: Consent | None = None,
    probing: Probing | None = None,
) -> Door:
    """Opens the snapshot if one is named, else the cluster. `deadline` in seconds; without a consent nothing
    is done but reading. Raises Stop."""
    wanted = _wants_logs(logs)
    if snapshot is None:
        return _live(access, save, deadline, logs=wanted, consent=consent, probing=probing)
    if save is not None:
        raise Stop("--save stores what is read from a cluster; --from reads no cluster")
    return open_snapshot_door(snapshot, logs=wanted, namespace=access.namespace or "")


def _wants_logs(which: str) -> bool:
    if which not in ("all", "none"):
        raise Stop(f"--logs is all or none, not {which!r}")
    return which == "all"


def open_snapshot_door(path: Path, *, logs: bool = True, namespace: str = "") -> Door:
    """Opens a snapshot, or a namespace of it. Raises Stop."""
    from gpuctl.cluster.snapshot import BadSnapshot, open_snapshot

    if not path.exists():
        raise Stop(f"there is no snapshot at {path}")
    try:
        reader = replace(open_snapshot(path, namespace=namespace), with_logs=logs)
    except BadSnapshot as error:
        raise Stop(str(error), INCOMPLETE) from error
    for note in reader.notes:
        warn(note)
    return Door(str(path), reader, reader.source)


def _live(
    access: Access,
    save: Path | None,
    deadline: float,
    *,
    logs: bool,
    consent: Consent | None,
    probing: Probing | None,
) -> Door:
    from gpuctl.cluster.connection import CannotConnect, connect
    from gpuctl.cluster.live import LiveReader

    recording = _recording(save, access.namespace or "")
    with ExitStack() as undo:
        undo.callback(recording.abandon)
        try:
            connection = connect(access, deadline)
        except CannotConnect as error:
            raise Stop(str(error), INCOMPLETE) from error
        undo.pop_all()
    reader = LiveReader(
        connection,
        deadline,
        sink=recording.sink,
        namespace=access.namespace,
        logs=logs,
        consent=consent,
        announce=warn,
        probing=probing,
    )

    def close() -> None:
        reader.close()
        recording.close(reader.source())

    def abandon() -> None:
        recording.abandon()
        reader.close()

    return Door(
        connection.name,
        reader,
        reader.source,
        close,
        abandon,
        reader.report_to,
    )


@dataclass(frozen=True, slots=True)
class _Recording:
    """Where reads are reported to, and how the record is finished or taken away."""

    sink: Sink
    close: Callable[[Source], None]
    abandon: Callable[[], None]


def _recording(path: Path | None, namespace: str) -> _Recording:
    from gpuctl.cluster.record import CannotRecord, Recorder
    from gpuctl.cluster.sink import NoSink

    if path is None:
        return _Recording(NoSink(), lambda _: None, lambda: None)

    def close(source: Source) -> None:
        try:
            recorder.close(source)
        except CannotRecord as error:
            raise Stop(str(error)) from error
        warn(f"stored what was read in {path}")

    try:
        recorder = Recorder(path, namespace)
    except CannotRecord as error:
        raise Stop(str(error)) from error
    return _Recording(recorder, close, recorder.abandon)
