"""The logs that a record holds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal, TypeVar

import msgspec

from gpuctl.cluster.archive import Damaged, File
from gpuctl.cluster.capture import EVERYTHING, Capture, Scope
from gpuctl.cluster.documents import load_yaml
from gpuctl.cluster.logs import STEPS
from gpuctl.facts.kinds import Log, LogReading
from gpuctl.facts.state import Each, Known, Reason, State, Unknown

T = TypeVar("T")

FOLDER: Final = "logs"
RESOURCE: Final = "pods/log"
NOT_HELD: Final = "the snapshot does not hold it"
_LOG, _ABOUT = ".log", ".meta.yaml"


def path(log: Log) -> str:
    """Where a record keeps a log."""
    suffix = ".previous" if log.previous else ""
    return f"{FOLDER}/{log.pod.namespace}/{log.pod.name}/{log.container}{suffix}{_LOG}"


def path_about(log: Log) -> str:
    """Where a record keeps what it says of a log."""
    return f"{path(log).removesuffix(_LOG)}{_ABOUT}"


class EndMissing(msgspec.Struct, frozen=True):
    """Why the last lines of a long log are not here."""

    reason: Reason
    message: str = ""


class About(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The contents of .meta.yaml: how much of a log was read. Without one it is whole."""

    read_from: Literal["start", "tail"] = "start"
    truncated_at: int | None = None
    filtered: bool = False
    first_at: str | None = None
    last_at: str | None = None
    end_missing: EndMissing | None = None


@dataclass(frozen=True)
class RecordedLogs:
    """The files under logs/."""

    files: Sequence[File] = field(repr=False)
    capture: Capture | None

    def read(self, logs: Collection[Log], reading: LogReading[T]) -> Each[Log, T]:
        """The logs of the record; one that it says was never written is absent."""
        states = {log: self._one(log, reading) for log in logs}
        return Each({log: state for log, state in states.items() if state is not None})

    def _one(self, log: Log, reading: LogReading[T]) -> State[T] | None:
        """A mistake in `reading` costs this log alone."""
        file = self._by_path.get(path(log))
        if file is None:
            return self._absent(log)
        try:
            return self._read(file, log, reading)
        except Damaged as error:
            return Unknown(Reason.MALFORMED, f"{file.path}: {' '.join(str(error).split())}", str(log))
        except Exception as error:  # noqa: BLE001 - the border around one entry: a bug here must not cost the others
            return Unknown(Reason.INTERNAL, f"{type(error).__name__}: {error}", str(log))

    def _read(self, file: File, log: Log, reading: LogReading[T]) -> State[T]:
        about = self._about(log)
        if about.read_from == "tail":
            return Unknown(Reason.NOT_ASKED, "the snapshot holds its end, not its beginning", str(log))
        found = reading.parse(file.text().decode(errors="replace"))
        cut_at = about.truncated_at
        if cut_at is not None and cut_at < STEPS[-1] and not reading.enough(found):
            message = f"the snapshot holds its first {cut_at} bytes, which do not tell"
            return Unknown(Reason.NOT_ASKED, message, str(log))
        lost = about.end_missing
        if lost is not None:
            found = reading.without_end(found, Unknown(lost.reason, lost.message, str(log)))
        return Known(found)

    def _about(self, log: Log) -> About:
        """Raises Damaged."""
        import yaml

        file = self._by_path.get(path_about(log))
        if file is None:
            return About()
        try:
            return msgspec.convert(load_yaml(file.text()), About)
        except (yaml.YAMLError, msgspec.ValidationError) as error:
            raise Damaged(f"what {file.path} says of it: {error}") from error

    def _absent(self, log: Log) -> Unknown | None:
        """Why a log is not here, or None if the record says that it was never written."""
        gap = self._missing(log)
        if gap is not None:
            return gap
        stored = self.capture.objects.get(RESOURCE, 0) if self.capture else 0
        held = sum(each.endswith(_LOG) for each in self._by_path)
        if held < stored:
            message = f"{stored} logs were stored, and {held} of them are here"
            return Unknown(Reason.MALFORMED, message, str(log))
        return None if self._complete or log.previous else Unknown(Reason.NOT_ASKED, NOT_HELD, str(log))

    def _missing(self, log: Log) -> Unknown | None:
        asked = (log.pod.namespace, log.pod.name, log.container)
        for gap in self.capture.missing if self.capture else ():
            named = (gap.namespace, gap.name, gap.container)
            if gap.resource == RESOURCE and all(
                its in ("", mine) for its, mine in zip(named, asked, strict=True)
            ):
                return Unknown(gap.reason, gap.message, str(log))
        return None

    @property
    def _complete(self) -> bool:
        return self.capture is not None and any(
            scope in (Scope(RESOURCE), Scope(EVERYTHING)) for scope in self.capture.scopes()
        )

    @cached_property
    def _by_path(self) -> Mapping[str, File]:
        return {file.path.removesuffix(".gz"): file for file in self.files}
