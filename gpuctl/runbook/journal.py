"""The journal of a run, kept in the cluster, so that another person on another machine can go on with it.

Every change of it names the revision that it changes: two processes can't both write one journal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from gpuctl.facts.fact import Argument, Named
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import NotKnown, Reason, Unknown
from gpuctl.runbook.look import Look
from gpuctl.runbook.records import (
    JOURNAL,
    KEY,
    REVISION,
    STATE,
    TARGET_NAME,
    Run,
    RunMap,
    Standing,
    labels_of,
    run_of,
)
from gpuctl.runbook.writer import Change, Conflict, Fenced, Put, Test, WriteFailed, Writer, blind, pointer

TRIES: Final = 8  # of one entry: a run does not act without its journal
MOST: Final = 900_000  # bytes of one that is begun: a ConfigMap takes 1 MiB, and a journal grows
HURRIED: Final = 3  # the same, once the run is interrupted


def ref_of(run: str, namespace: str) -> Ref:
    """The ConfigMap of a run's journal."""
    return Ref(RunMap.of, f"{JOURNAL}{run}", namespace)


@dataclass
class Journal:
    """Writes a run's entries, one after the other. `keep` is told of each: the copy on this machine."""

    run: Run
    namespace: str
    writer: Writer
    look: Look
    wait: Callable[[float], bool]
    keep: Callable[[Run], None] = lambda _: None
    uid: str = ""

    def begin(self) -> None:
        """Makes the journal. Raises WriteFailed, or Fenced if there is one that another process began."""
        size = len(_text(self.run).encode())
        if size > MOST:
            why = f"it would have {size} bytes, and may have {MOST}: name fewer targets at once"
            raise WriteFailed(Unknown(Reason.NOT_ASKED, why, str(self._ref)), hopeless=True)
        self._persist(self.run, self._create)

    def go_on(self, session: str) -> None:
        """Takes over a run's journal for this process. Raises NotKnown, WriteFailed, Fenced."""
        found = self._read()
        if found is None:
            raise Fenced(f"{self._ref} is gone")
        self.uid, self.run = found.metadata.uid, run_of(found)
        self.note(session=session)

    def note(self, **changes: Any) -> None:
        """Writes an entry. Raises WriteFailed, or Fenced if another process has written one."""
        entry = msgspec.structs.replace(
            self.run, **changes, updated_at=datetime.now(UTC), revision=self.run.revision + 1
        )
        self.keep(entry)
        self._persist(entry, self._update)

    def reached(self, index: int, learned: Mapping[str, Any] | None = None, /, **changes: Any) -> None:
        """Writes how far a step has come, and what was learned by it."""
        steps = list(self.run.steps)
        steps[index] = msgspec.structs.replace(steps[index], **changes)
        self.note(steps=tuple(steps), result={**self.run.result, **(learned or {})})

    def _persist(self, entry: Run, write: Callable[[Run], None]) -> None:
        """Writes the entry; it counts as written once it stands in the cluster."""
        for attempt in range(TRIES):
            try:
                entry, stands = self._written(entry, write)
            except WriteFailed as failed:
                if failed.hopeless or attempt == TRIES - 1:
                    raise
                if not self.wait(min(5.0, 0.2 * 2**attempt)) and attempt >= HURRIED - 1:
                    raise
                continue
            if stands:
                self.run = entry
                return
            write = self._update
        raise Fenced(f"{self._ref} keeps changing under this process")

    def _written(self, entry: Run, write: Callable[[Run], None]) -> tuple[Run, bool]:
        """The entry as it was or can be written, and whether it stands."""
        try:
            write(entry)
        except Conflict as conflict:
            return self._against_what_stands(entry, conflict)
        return entry, True

    def _against_what_stands(self, entry: Run, conflict: Conflict) -> tuple[Run, bool]:
        """The entry as it can be written over what stands, and whether it stands already: the answer to an
        earlier request may have been lost. Raises Fenced if another process wrote what stands."""
        try:
            found = self._read()
            stands = None if found is None else run_of(found)
        except NotKnown as gap:
            raise blind(gap, str(self._ref)) from gap
        if found is None or stands is None or stands.session != entry.session:
            raise Fenced(f"another process has written {self._ref}: {conflict.state}") from conflict
        self.uid = found.metadata.uid
        if found.data.get(KEY) == _text(entry):
            return entry, True
        return msgspec.structs.replace(entry, revision=stands.revision + 1), False

    def _read(self) -> RunMap | None:
        refs: Argument[Any] = Argument(str(self._ref), (self._ref,))
        fact = Named(RunMap, refs)
        return self.look([fact])[fact].get(self._ref)

    def _create(self, entry: Run) -> None:
        labels = {**labels_of(entry.id, entry.runbook), STATE: entry.state.value}
        annotations = {REVISION: str(entry.revision), TARGET_NAME: entry.target}
        self.keep(entry)
        self.uid = self.writer.create(
            self._ref,
            {"metadata": {"labels": labels, "annotations": annotations}, "data": {KEY: _text(entry)}},
        )

    def _update(self, entry: Run) -> None:
        where = pointer("metadata", "annotations", REVISION)
        changes: Sequence[Change] = (
            Test(where, str(entry.revision - 1)),
            Put(where, str(entry.revision)),
            Put(pointer("metadata", "labels", STATE), entry.state.value),
            Put(pointer("data", KEY), _text(entry)),
        )
        self.writer.patch(self._ref, self.uid, changes)

    @property
    def _ref(self) -> Ref:
        return ref_of(self.run.id, self.namespace)


def _text(run: Run) -> str:
    return msgspec.json.encode(run).decode()


def outdated(runs: Sequence[Run], kept: int) -> Iterator[Run]:
    """Those of the runs with nothing left to do that are older than the last `kept` of their runbook: what is
    done on many nodes every day must not push out what a drill showed, or what a node had before."""
    over: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.started_at, reverse=True):
        if run.state is not Standing.UNFINISHED:
            over.setdefault(run.runbook, []).append(run)
    for each in over.values():
        yield from each[kept:]
