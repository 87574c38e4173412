"""Begins runs, goes on with them, takes them back, and gives them up: locks, journal and engine together."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from threading import Event
from typing import Any, Final

import msgspec

from gpuctl.audit.policy import Policy
from gpuctl.facts.fact import Argument
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import NotKnown
from gpuctl.runbook.bounded import BoundedWriter, Ledger
from gpuctl.runbook.engine import Ended, Engine
from gpuctl.runbook.events import event
from gpuctl.runbook.fence import fenced
from gpuctl.runbook.guard import Blocker
from gpuctl.runbook.journal import Journal, outdated, ref_of
from gpuctl.runbook.lock import SLOT, Claim, Lock, Locks, Taken, lease_name
from gpuctl.runbook.look import Look
from gpuctl.runbook.patience import PatientWriter
from gpuctl.runbook.plan import Plan, TargetPlan, stale
from gpuctl.runbook.planning import Task, in_the_way, plan_of
from gpuctl.runbook.records import (
    LEASES,
    RUN_MAPS,
    STOPPED,
    Direction,
    Lease,
    Outcome,
    Person,
    Run,
    Standing,
    StepRecord,
    runs,
)
from gpuctl.runbook.writer import Conflict, Fenced, Put, Test, WriteFailed, Writer

_NO_WAY_BACK: Final = (
    "all of the run is done and verified, only its release is left, and others may use the target again: "
    "gpuctl resume {0} ends it; to take back what it did is a new plan, made by gpuctl undo {0} after that"
)


@dataclass(frozen=True)
class Crew:
    """Who works on a run, with what, and why, as far as that is said now. `look` makes eyes for facts with
    these arguments; `stop` is set by an interruption; `keep` and `note` write on this machine: the journal's
    copy, and a line of the audit log."""

    writer: Writer
    look: Callable[[Mapping[Argument[Any], Any]], Look]
    user: str
    host: str
    session: str
    policy: Policy
    namespace: str
    stop: Event
    tell: Callable[[str], None]
    keep: Callable[[Run], None] = lambda _: None
    note: Callable[[Mapping[str, Any]], None] = lambda _: None
    limit: float = 7200.0
    reason: str = ""
    ticket: str = ""

    @property
    def holder(self) -> str:
        """`ana@bastion-1 (kubernetes user ana)`: by which a person can be found."""
        return f"{self.host} as {self.user}" if self.user else self.host

    def person(self, did: str) -> Person:
        """This person, doing something now."""
        return Person(
            user=self.user,
            host=self.host,
            at=datetime.now(UTC),
            did=did,
            reason=self.reason,
            ticket=self.ticket,
        )

    def gave_up(self, taken: Taken) -> Ending:
        """Why a lock was not taken over: who was interrupted while waiting for it was refused nothing."""
        outcome = Outcome.CANCELLED if self.stop.is_set() else Outcome.REFUSED
        return Ending(outcome, str(taken), left=True)

    def wait(self, seconds: float) -> bool:
        """Lets time pass; False when interrupted."""
        return not self.stop.wait(seconds)


@dataclass(frozen=True, slots=True)
class Order:
    """On whose word a run is begun: which plan, of whom, and why."""

    cluster_uid: str
    plan: str
    planner: Person
    reason: str = ""
    ticket: str = ""

    @staticmethod
    def of(plan: Plan) -> Order:
        """What a plan says of that."""
        return Order(plan.cluster.uid, plan.digest, plan.planner, plan.reason, plan.ticket)


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run stands when this process leaves it. `left`: it is unfinished, and waits for a person."""

    outcome: Outcome
    why: str = ""
    run: str = ""
    left: bool = False
    blockers: tuple[str, ...] = ()
    result: Mapping[str, Any] = field(default_factory=dict)  # what its steps learned

    @property
    def learned(self) -> Iterator[str]:
        """`seconds to recover: 1.2`, for each thing that the steps of the run learned."""
        for name, told in self.result.items():
            if name == STOPPED:
                continue
            words = "".join(f" {each.lower()}" if each.isupper() else each for each in name)
            several = told if isinstance(told, list | tuple) else [told]
            yield f"{words}: {', '.join(map(_word, several))}"


def _word(told: object) -> str:
    return {True: "yes", False: "no"}[told] if isinstance(told, bool) else str(told)


def new_id() -> str:
    """A name for a run: by time, so that runs sort, and by chance, so that two never share one."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


def begin(task: Task, order: Order, planned: TargetPlan, crew: Crew, run: str = "") -> Ending:
    """Applies the plan of one target: lock, read everything again, act, verify, release."""
    task = replace(task, run=run or new_id(), allowed=planned.bounds)
    look = crew.look(task.arguments)
    locks = _locks(task, planned.target_uid, crew, look)
    noted = partial(_noted, crew, _run_of(task, order, planned, crew))
    try:
        locks.take()
    except Taken as taken:
        return noted(Ending(Outcome.REFUSED, str(taken)))
    except (WriteFailed, NotKnown) as failed:
        return noted(Ending(Outcome.FAILED, f"no lock: {failed}"))
    try:
        fresh = plan_of(task, look(task.runbook.needs))
        against = (*(each.message for each in fresh.blockers), *stale(planned, fresh))
        if against or crew.stop.is_set():
            drop(locks, crew.tell)
            outcome = Outcome.REFUSED if against else Outcome.CANCELLED
            return noted(Ending(outcome, "; ".join(against), blockers=against))
        journal = _journal(task, _run_of(task, order, fresh, crew), locks, crew, look)
        journal.begin()
    except (WriteFailed, Fenced, NotKnown) as failed:
        drop(locks, crew.tell)
        return noted(Ending(Outcome.FAILED, f"the run could not be begun: {failed}"))
    return _work(task, journal, locks, crew, look)


def _run_of(task: Task, order: Order, fresh: TargetPlan, crew: Crew) -> Run:
    now = datetime.now(UTC)
    return Run(
        id=task.run,
        runbook=task.runbook.id,
        target=task.target,
        target_uid=fresh.target_uid,
        options=task.options,
        cluster_uid=order.cluster_uid,
        plan=order.plan,
        bounds=task.allowed or fresh.bounds,
        steps=tuple(StepRecord(says=each.says, step=each.step) for each in fresh.steps),
        people=(order.planner, crew.person("applied")),
        reason=order.reason,
        ticket=order.ticket,
        started_at=now,
        updated_at=now,
        session=crew.session,
    )


def go_on(run: Run, task: Task, crew: Crew, *, back: bool = False) -> Ending:
    """Goes on with an unfinished run, the way it was going, or back from where it is."""
    task = replace(task, run=run.id, allowed=run.bounds)
    look = crew.look(task.arguments)
    locks = _locks(task, run.target_uid, crew, look)
    noted = partial(_noted, crew, run)
    try:
        locks.take_over(crew.wait, crew.tell)
    except Taken as taken:
        return noted(crew.gave_up(taken))
    except (WriteFailed, NotKnown, Fenced) as failed:
        return noted(Ending(Outcome.FAILED, f"no lock: {failed}", left=True))
    journal = _journal(task, run, locks, crew, look)
    try:
        journal.go_on(crew.session)
        if journal.run.state is not Standing.UNFINISHED:
            drop(locks, crew.tell)
            return noted(Ending(Outcome.REFUSED, f"run {run.id} is {journal.run.state} already"))
        if back and journal.run.verified:
            leave(locks)
            return noted(Ending(Outcome.REFUSED, _NO_WAY_BACK.format(run.id), left=True))
        direction = Direction.BACK if back else journal.run.direction
        over = direction is Direction.BACK or journal.run.verified
        against = () if over else _against(journal.run, task, look)
        if against:
            leave(locks)
            return noted(Ending(Outcome.REFUSED, "; ".join(against), left=True, blockers=against))
        who = crew.person("undid" if direction is Direction.BACK else "resumed")
        people = journal.run.goes_on_by(who, task.options)
        journal.note(direction=direction, people=people, outcome=Outcome.NONE, why="")
    except (WriteFailed, Fenced, NotKnown) as failed:
        leave(locks)
        return noted(Ending(Outcome.FAILED, f"the journal could not be taken over: {failed}", left=True))
    return _work(task, journal, locks, crew, look)


def _against(run: Run, task: Task, look: Look) -> tuple[str, ...]:
    """What has come up since the run stopped, with the flags that override it. Going back is never refused:
    it makes nothing worse."""
    if run.untouched:
        fresh = plan_of(task, look(task.runbook.needs))
        return (*map(_with_override, fresh.blockers), *fresh.bounds.beyond(run.bounds))
    guards = [each for each in task.runbook.guards if each.again(run)]
    needs = [need for each in guards for need in each.needs]
    return tuple(map(_with_override, in_the_way(task, guards, look(needs))))


def _with_override(blocker: Blocker) -> str:
    return blocker.message + (f" (override: {blocker.override})" if blocker.override else "")


def _work(task: Task, journal: Journal, locks: Locks, crew: Crew, look: Look) -> Ending:
    run = journal.run
    try:
        steps = tuple(task.runbook.step(each.step) for each in run.steps)
    except msgspec.ValidationError as error:
        leave(locks)
        why = f"this version of gpuctl does not know a step of the run: {error}"
        return _noted(crew, run, Ending(Outcome.FAILED, why, left=True))
    target = task.runbook.ref(task.target)
    _announce(crew, target, journal.writer, run, "undoing" if run.direction is Direction.BACK else "begun")
    engine = Engine(
        steps=steps,
        journal=journal,
        look=look,
        writer=journal.writer,
        stop=crew.stop,
        tell=crew.tell,
        target_uid=task.runbook.target_uid,
        limit=crew.limit,
    )
    try:
        outcome = engine.run()
    except Fenced as lost:
        locks.stop()
        why = f"{lost}; another process goes on with the run"
        return _noted(crew, run, Ending(Outcome.FAILED, why, left=True))
    except Ended as ended:
        leave(locks)
        return _noted(crew, run, Ending(ended.outcome, ended.why, left=True))
    _announce(crew, target, journal.writer, journal.run, outcome.value)
    if journal.run.state is Standing.UNFINISHED:
        leave(locks)
        return Ending(outcome, journal.run.why, run.id, left=True, result=journal.run.result)
    drop(locks, crew.tell)
    _forget_old(crew, task)
    return Ending(outcome, journal.run.why, run.id, result=journal.run.result)


def leave(locks: Locks) -> None:
    """The lock stays with the run. One that still names this process is waited for by whoever goes on."""
    try:
        locks.let_go()
    except (WriteFailed, Fenced):
        locks.stop()


def drop(locks: Locks, tell: Callable[[str], None]) -> None:
    """A lock that can't be removed now is named by `gpuctl runs`, and removed by `gpuctl unlock`."""
    try:
        locks.release()
    except (WriteFailed, Fenced) as failed:
        locks.stop()
        tell(f"a lock stays, for it could not be removed: {failed}; see gpuctl runs")


def _locks(task: Task, uid: str, crew: Crew, look: Look) -> Locks:
    claim = Claim(
        run=task.run,
        session=crew.session,
        runbook=task.runbook.id,
        namespace=crew.namespace,
        target=task.target,
        target_uid=uid,
        holder=crew.holder,
        seconds=crew.policy.runbooks.lease_seconds,
    )

    def lock(name: str) -> Lock:
        return Lock(Ref(Lease.of, name, crew.namespace), claim, crew.writer, look)

    slots = tuple(lock(f"{SLOT}{number}") for number in range(crew.policy.runbooks.max_nodes))
    return Locks(lock(lease_name(task.runbook.kind.kind, task.target)), slots)


def _journal(task: Task, run: Run, locks: Locks, crew: Crew, look: Look) -> Journal:
    def counted() -> Collection[str]:
        planned = (uid for each in journal.run.steps for uid in task.runbook.step(each.step).evicts)
        return {*journal.run.evicted, *planned}

    def note(uid: str) -> None:
        journal.note(evicted=(*journal.run.evicted, uid))

    bounded = BoundedWriter(PatientWriter(crew.writer), run.bounds, Ledger(counted, note))
    journal = Journal(run, crew.namespace, fenced(bounded, locks), look, crew.wait, crew.keep)
    return journal


def _announce(crew: Crew, target: Ref | None, writer: Writer, run: Run, what: str) -> None:
    """An audit line here, and an Event on the target, if it is one object. That is a courtesy: without it the
    run goes on."""
    line = _line(crew, run, what, run.why)
    crew.note(line)
    if target is None:
        return
    message = f"gpuctl {run.runbook} {what} by {crew.holder}, run {run.id}"
    rest = "".join(f"; {name}: {line[name]}" for name in ("reason", "ticket") if line[name])
    try:
        writer.create(*event(target, run, what, message + rest))
    except (WriteFailed, Fenced) as failed:
        crew.tell(f"no Event could be written: {failed}")


def _noted(crew: Crew, run: Run, ending: Ending) -> Ending:
    """An audit line of what came to nothing, or was left to others: of that the target bears no Event."""
    crew.note(_line(crew, run, ending.outcome.value, ending.why))
    return replace(ending, run=run.id)


def _line(crew: Crew, run: Run, what: str, why: str) -> Mapping[str, Any]:
    planner = run.people[0] if run.people else None
    return {
        "at": datetime.now(UTC).isoformat(),
        "run": run.id,
        "runbook": run.runbook,
        "target": run.target,
        "what": what,
        "why": why,
        "user": crew.user,
        "host": crew.host,
        "planner": (planner.user or planner.host) if planner else "",
        "plan": run.plan,
        "reason": crew.reason or run.reason,
        "ticket": crew.ticket or run.ticket,
    }


def _forget_old(crew: Crew, task: Task) -> None:
    """Removes the journals beyond those that are kept."""
    facts = crew.look(task.arguments)([runs, RUN_MAPS])
    try:
        maps = {each.metadata.labels.get("gpuctl.dev/run", ""): each for each in facts[RUN_MAPS]}
        for run in outdated(list(facts[runs]), crew.policy.runbooks.keep_runs):
            crew.writer.delete(ref_of(run.id, crew.namespace), maps[run.id].metadata.uid)
    except (NotKnown, WriteFailed) as failed:
        crew.tell(f"old journals could not be removed: {failed}")


# Giving up


def abandon(
    id_: str,
    crew: Crew,
    arguments: Mapping[Argument[Any], Any],
    target_of: Callable[[Run], Ref | None] = lambda _: None,
) -> Ending:
    """Gives up a run: its locks are removed, its journal says so, nothing else is changed. A run without a
    journal (killed between lock and journal) and locks of nodes that are gone are given up the same way.
    `target_of`: on what an Event tells of it.

    Raises NotKnown, WriteFailed.
    """
    look = crew.look(arguments)
    facts = look([LEASES, runs])
    leases = [lease for lease in facts[LEASES] if lease.relevant and lease.run == id_]
    run = facts[runs].get(id_)
    if run is None and not leases:
        return Ending(Outcome.REFUSED, f"there is neither a journal nor a lock of run {id_}", id_)
    for lease in leases:
        alive = _alive(lease, crew, look)
        if alive:
            outcome = Outcome.CANCELLED if crew.stop.is_set() else Outcome.REFUSED
            return Ending(outcome, alive, id_, left=True)
    try:
        for lease in leases:
            _take_away(lease, crew)
    except Conflict:
        return Ending(Outcome.REFUSED, f"somebody took up run {id_} at the same moment", id_, left=True)
    if run is not None and run.state is Standing.UNFINISHED:
        journal = Journal(run, crew.namespace, crew.writer, look, crew.wait, crew.keep)
        journal.go_on(crew.session)
        people = (*journal.run.people, crew.person("abandoned"))
        journal.note(state=Standing.ABANDONED, people=people, finished_at=datetime.now(UTC))
        _announce(crew, target_of(journal.run), crew.writer, journal.run, Standing.ABANDONED.value)
    for lease in leases:
        crew.writer.delete(lease.ref, lease.metadata.uid)
    return Ending(Outcome.SUCCEEDED, run=id_)


def _take_away(lease: Lease, crew: Crew) -> None:
    """From whatever process held it, before the journal says that the run is given up: one that only slept
    must not write any more when it wakes. Raises WriteFailed, and Conflict if another holds it by now."""
    held, path = lease.spec.holder_identity, "/spec/holderIdentity"
    changes = (Test(path, held), Put(path, f"{lease.run}/{crew.session}"))
    crew.writer.patch(lease.ref, lease.metadata.uid, changes)


def _alive(lease: Lease, crew: Crew, look: Look) -> str:
    """Why a lock is not to be removed; empty if its process shows no life."""
    if not lease.session:
        return ""
    crew.tell(
        f"waiting {lease.spec.lease_duration_seconds} s to see whether run {lease.run} is being worked on"
    )
    if not crew.wait(lease.spec.lease_duration_seconds):
        return "interrupted"
    again = look([LEASES])[LEASES].get(lease.ref)
    if again is not None and again.spec.renew_time != lease.spec.renew_time:
        return f"run {lease.run} is being worked on; stop that process first"
    return ""
