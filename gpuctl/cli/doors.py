"""Opens the door a verb reads through: a live cluster, a live cluster that is recorded, or a snapshot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpuctl.cli.border import INCOMPLETE, Stop, warn

if TYPE_CHECKING:
    from gpuctl.audit.report import Source
    from gpuctl.cluster.connection import Access
    from gpuctl.facts.reader import Reader


@dataclass(frozen=True, slots=True)
class Door:
    """An open door. `close` finishes what was recorded."""

    name: str
    reader: Reader
    source: Callable[[], Source]
    close: Callable[[], None]


def open_door(access: Access, snapshot: Path | None, save: Path | None, deadline: float) -> Door:
    """Opens the snapshot if one is named, else the cluster. `deadline` in seconds. Raises Stop."""
    if snapshot is None:
        return _live(access, save, deadline)
    if save is not None:
        raise Stop("--save stores what is read from a cluster; --from reads no cluster")
    return open_snapshot_door(snapshot)


def open_snapshot_door(path: Path) -> Door:
    """Opens a snapshot. Raises Stop."""
    from gpuctl.cluster.snapshot import BadSnapshot, open_snapshot

    if not path.exists():
        raise Stop(f"there is no snapshot at {path}")
    try:
        reader = open_snapshot(path)
    except BadSnapshot as error:
        raise Stop(str(error), INCOMPLETE) from error
    for note in reader.notes:
        warn(note)
    return Door(str(path), reader, reader.source, lambda: None)


def _live(access: Access, save: Path | None, deadline: float) -> Door:
    from gpuctl.cluster.connection import CannotConnect, connect
    from gpuctl.cluster.live import LiveReader
    from gpuctl.cluster.record import Recorder
    from gpuctl.cluster.sink import NoSink

    try:
        connection = connect(access)
        recorder = Recorder(save) if save else None
    except CannotConnect as error:
        raise Stop(str(error), INCOMPLETE) from error
    reader = LiveReader(connection, deadline, sink=recorder or NoSink(), namespace=access.namespace)

    def close() -> None:
        if recorder:
            recorder.close(reader.source())
            warn(f"stored what was read in {save}")

    return Door(connection.name, reader, reader.source, close)
