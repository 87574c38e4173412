"""Locks: one Lease for the target and one of the cluster's slots, held by one process of one run.

A lock is made, never stolen: while its run is unfinished it blocks every other run, whatever its age. Only a
process that goes on with the same run may take it over, and only from one that shows no life.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from threading import Event, Thread
from typing import Any, Final

import msgspec

from gpuctl.facts.fact import Argument, Named
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Known, NotKnown, State, attempt
from gpuctl.runbook.look import Look
from gpuctl.runbook.records import HOLDER, LEASES, TARGET_NAME, TARGET_UID, Lease, LeaseSpec, labels_of
from gpuctl.runbook.writer import Change, Conflict, Fenced, Put, Test, WriteFailed, Writer, pointer

LONGEST_NAME: Final = 253
TRIES: Final = 3  # of one write: its answer may be lost
SLOT: Final = "gpuctl-slot-"


@dataclass(frozen=True, slots=True)
class Claim:
    """Who wants a lock: which process of which run, for which target, and for how many seconds a lock counts
    as alive without being renewed."""

    run: str
    session: str
    runbook: str
    namespace: str
    target: str
    target_uid: str
    holder: str
    seconds: float = 30.0

    @property
    def identity(self) -> str:
        """The holderIdentity."""
        return f"{self.run}/{self.session}"


class Taken(Exception):
    """The lock belongs to another run, or to a process of this one that is alive."""


def lease_name(kind: str, target: str) -> str:
    """The name of a target's lock: `gpuctl-node-gpu-1`, `gpuctl-deployment-serving.llm`. Namespaces have no
    dots, so two targets never share one."""
    target = target.replace("/", ".")
    name = f"gpuctl-{kind.lower()}-{target}"
    if len(name) <= LONGEST_NAME:
        return name
    return f"gpuctl-{kind.lower()}-{hashlib.sha256(target.encode()).hexdigest()[:32]}"


@dataclass(eq=False)
class Lock:
    """One Lease. `lost` is set once the run no longer holds it."""

    ref: Ref
    claim: Claim
    writer: Writer
    look: Look
    uid: str = ""
    lost: Event = field(default_factory=Event)

    def read(self) -> Lease | None:
        """The Lease as it is now; None if there is none. Raises NotKnown."""
        lease: Argument[Any] = Argument(str(self.ref), (self.ref,))
        fact = Named(Lease, lease)
        return self.look([fact])[fact].get(self.ref)

    def take(self) -> None:
        """Makes the Lease, or none. Raises Taken, WriteFailed, or NotKnown."""
        try:
            _persistently(self._make)
        except (WriteFailed, NotKnown):
            self._forsake()
            raise

    def _make(self) -> None:
        try:
            self.uid = self.writer.create(self.ref, self._body())
        except Conflict as conflict:
            found = self.read()
            if found is None:  # let go in between
                raise WriteFailed(conflict.state) from conflict
            if found.spec.holder_identity != self.claim.identity:
                raise Taken(self._whose(found)) from conflict
            self.uid = found.metadata.uid

    def _forsake(self) -> None:
        """Removes what may have been made without an answer. What is left in spite of it is named by
        `gpuctl runs`: a lock without a journal."""
        with suppress(WriteFailed, NotKnown):
            found = self.read()
            if found is not None and found.spec.holder_identity == self.claim.identity:
                self.writer.delete(self.ref, found.metadata.uid)

    def take_over(self, wait: Callable[[float], bool], tell: Callable[[str], None]) -> None:
        """Goes on with a run's lock: at once where no process holds it, else once that shows no life for the
        time that the lock is good for. `wait` returns False when it is to be given up. Raises Taken."""
        found = self.read()
        if found is None:
            self.take()
            return
        if found.run != self.claim.run:
            raise Taken(self._whose(found))
        if found.session and found.session != self.claim.session:
            self._see_no_life(found, wait, tell)
        self.assume(found)

    def _see_no_life(self, found: Lease, wait: Callable[[float], bool], tell: Callable[[str], None]) -> None:
        seconds = found.spec.lease_duration_seconds or self.claim.seconds
        tell(f"waiting {seconds:g} s to see whether {_holder(found)} still works on run {found.run}")
        if not wait(seconds):
            raise Taken("given up while waiting for the lock")
        again = self.read()
        if again is None or again.spec != found.spec:
            raise Taken(f"run {found.run} is being worked on by {_holder(again or found)}; stop that first")

    def assume(self, found: Lease) -> None:
        """Makes a lock of this run that of this process. Raises Taken, or WriteFailed."""
        self.uid = found.metadata.uid
        changes: list[Change] = [
            Test("/spec/holderIdentity", found.spec.holder_identity),
            Test("/spec/renewTime", found.spec.renew_time),
            Put("/spec/holderIdentity", self.claim.identity),
            Put("/spec/renewTime", _now()),
            Put(pointer("metadata", "annotations", HOLDER), self.claim.holder),
        ]

        def assume() -> None:
            try:
                self.writer.patch(self.ref, self.uid, changes)
            except Conflict as conflict:
                if not self._is_mine(attempt(self.read)):
                    why = f"somebody else went on with run {found.run} at the same moment"
                    raise Taken(why) from conflict

        _persistently(assume)

    def renew(self) -> None:
        """Shows life. Raises Fenced if the lock is lost, WriteFailed or NotKnown if that can't be told."""
        changes: list[Change] = [
            Test("/spec/holderIdentity", self.claim.identity),
            Put("/spec/renewTime", _now()),
        ]
        try:
            self.writer.patch(self.ref, self.uid, changes)
        except Conflict:  # another's, or only another's change at the same moment
            self.confirm()

    def confirm(self) -> None:
        """Looks whether the lock is still held, as before each write. Raises Fenced, or NotKnown."""
        found = self.read()
        if not self._is_mine(Known(found)):
            self.lost.set()
            raise Fenced(f"the lock is lost: {self._whose(found)}")

    def let_go(self) -> None:
        """Says that no process works on the run any more, and leaves the lock with the run. Raises
        WriteFailed: also where an earlier request was carried out, and its answer lost."""
        changes: list[Change] = [
            Test("/spec/holderIdentity", self.claim.identity),
            Put("/spec/holderIdentity", f"{self.claim.run}/"),
        ]
        _persistently(lambda: self.writer.patch(self.ref, self.uid, changes))

    def release(self) -> None:
        """Removes the lock. One that is gone is released. Raises WriteFailed."""
        _persistently(lambda: self.writer.delete(self.ref, self.uid))

    def _is_mine(self, state: State[Lease | None]) -> bool:
        found = state.value if isinstance(state, Known) else None
        return found is not None and found.spec.holder_identity == self.claim.identity

    def _whose(self, found: Lease | None) -> str:
        if found is None:
            return f"{self.ref} is gone"
        target = found.metadata.annotations.get(TARGET_NAME, self.claim.target)
        return f"{target} is locked by run {found.run or '?'} of {_holder(found)}"

    def _body(self) -> Mapping[str, Any]:
        claim, now = self.claim, _now()
        annotations = {TARGET_NAME: claim.target, TARGET_UID: claim.target_uid, HOLDER: claim.holder}
        spec = LeaseSpec(claim.identity, max(1, round(claim.seconds)), now, now)
        return {
            "metadata": {"labels": labels_of(claim.run, claim.runbook), "annotations": annotations},
            "spec": msgspec.to_builtins(spec),
        }


def _persistently(write: Callable[[], None]) -> None:
    """Tries it again where it is not known what became of it. Raises what stands in the way to the end."""
    for left in reversed(range(TRIES)):
        try:
            return write()
        except WriteFailed as failed:
            if failed.hopeless or isinstance(failed, Conflict) or not left:
                raise
    return None


def _holder(lease: Lease) -> str:
    return lease.metadata.annotations.get(HOLDER, "somebody")


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@dataclass(eq=False)
class Locks:
    """The locks of a run: its target's, and a slot of the cluster. Kept alive by a thread of their own."""

    target: Lock
    slots: tuple[Lock, ...] = ()
    slot: Lock | None = None
    done: Event = field(default_factory=Event)

    def take(self) -> None:
        """Takes both, or none. Raises Taken, WriteFailed, or NotKnown."""
        self.target.take()
        try:
            self.slot = self._free_slot()
        except (Taken, WriteFailed, NotKnown):
            with suppress(WriteFailed):
                self.target.release()
            raise
        self._keep_alive()

    def take_over(self, wait: Callable[[float], bool], tell: Callable[[str], None]) -> None:
        """Goes on with both, or leaves both. Raises Taken, WriteFailed, or NotKnown."""
        self.target.take_over(wait, tell)
        try:
            self.slot = self._own_slot() or self._free_slot()
        except (Taken, WriteFailed, NotKnown):
            with suppress(WriteFailed):
                self.target.let_go()
            raise
        self._keep_alive()

    def confirm(self) -> None:
        """Raises Fenced if a lock is lost, NotKnown if that can't be told."""
        for lock in self._held():
            if lock.lost.is_set():
                raise Fenced(f"the lock {lock.ref} is lost")
        self.target.confirm()

    def let_go(self) -> None:
        """Leaves the locks with the run, and no process with the locks. Raises WriteFailed."""
        self._end()
        self._each(Lock.let_go)

    def release(self) -> None:
        """Removes both. Raises WriteFailed: after trying each."""
        self._end()
        self._each(Lock.release)

    def _each(self, do: Callable[[Lock], None]) -> None:
        failures = []
        for lock in reversed(self._held()):
            try:
                do(lock)
            except WriteFailed as failed:
                failures.append(failed)
        if failures:
            raise failures[0]

    def stop(self) -> None:
        """Shows life no more, and changes nothing."""
        self._end()

    def _held(self) -> list[Lock]:
        return [self.target, *([self.slot] if self.slot else [])]

    def _free_slot(self) -> Lock | None:
        if not self.slots:
            return None
        whose = []
        for lock in self.slots:
            try:
                lock.take()
            except Taken as taken:
                whose.append(str(taken))
            else:
                return lock
        raise Taken(f"all {len(self.slots)} slots of the cluster are taken: {'; '.join(whose)}")

    def _own_slot(self) -> Lock | None:
        """The slot that the run holds already, be it one that this person's policy does not count."""
        if not self.slots:
            return None
        for found in self.target.look([LEASES])[LEASES]:
            if found.relevant and found.run == self.target.claim.run and found.metadata.name.startswith(SLOT):
                lock = replace(self.slots[0], ref=found.ref, lost=Event())
                lock.assume(found)
                return lock
        return None

    def _keep_alive(self) -> None:
        Thread(target=self._renew, daemon=True, name="gpuctl-lock").start()

    def _renew(self) -> None:
        pause = self.target.claim.seconds / 3
        while not self.done.wait(pause):
            for lock in self._held():
                if not lock.lost.is_set():
                    with suppress(WriteFailed, NotKnown, Fenced):
                        lock.renew()  # else soon again; who takes over waits longer than that

    def _end(self) -> None:
        self.done.set()
