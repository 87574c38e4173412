"""A rolling change: one target after the other, or a few at once, each with a run of its own.

It stops at the first that does not succeed. Its journal says which are done, so that another process can go
on in the middle.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from threading import Lock as Mutex

import msgspec

from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import NotKnown
from gpuctl.runbook.conduct import Crew, Ending, Order, abandon, begin, drop, go_on, leave, new_id
from gpuctl.runbook.fence import fenced
from gpuctl.runbook.journal import Journal
from gpuctl.runbook.lock import Claim, Lock, Locks, Taken, lease_name
from gpuctl.runbook.look import Look
from gpuctl.runbook.plan import Plan, TargetPlan
from gpuctl.runbook.planning import Task
from gpuctl.runbook.records import Direction, Lease, Member, Outcome, Run, Standing, runs
from gpuctl.runbook.writer import Fenced, WriteFailed

TaskOf = Callable[[str], Task]
"""The task for one target, by its name."""


def begin_roll(plan: Plan, task_of: TaskOf, crew: Crew) -> Ending:
    """Applies a plan of several targets."""
    now = datetime.now(UTC)
    run = Run(
        id=new_id(),
        runbook=plan.runbook,
        target=plan.name,
        options=plan.options,
        cluster_uid=plan.cluster.uid,
        plan=plan.digest,
        members=tuple(_member(each) for each in plan.targets),
        max_unavailable=plan.max_unavailable,
        people=(plan.planner, crew.person("applied")),
        reason=plan.reason,
        ticket=plan.ticket,
        started_at=now,
        updated_at=now,
        session=crew.session,
    )

    def undone(locks: Locks) -> None:
        drop(locks, crew.tell)

    return _conducted(
        run, task_of, crew, lambda locks, _: locks.take(), lambda journal: journal.begin(), undone
    )


def _member(plan: TargetPlan) -> Member:
    return Member(
        target=plan.target, target_uid=plan.target_uid, preconditions=plan.preconditions, bounds=plan.bounds
    )


def resume_roll(run: Run, task_of: TaskOf, crew: Crew, *, back: bool = False) -> Ending:
    """Goes on with an unfinished rolling change; or takes back those of its runs that are unfinished."""

    def take(journal: Journal) -> None:
        journal.go_on(crew.session)
        if journal.run.state is not Standing.UNFINISHED:
            return
        direction = Direction.BACK if back else journal.run.direction
        who = crew.person("undid" if direction is Direction.BACK else "resumed")
        people = journal.run.goes_on_by(who, run.options)
        journal.note(direction=direction, people=people, outcome=Outcome.NONE, why="")

    return _conducted(
        run, task_of, crew, lambda locks, crew: locks.take_over(crew.wait, crew.tell), take, leave
    )


def _conducted(
    run: Run,
    task_of: TaskOf,
    crew: Crew,
    take: Callable[[Locks, Crew], None],
    open_: Callable[[Journal], None],
    unopened: Callable[[Locks], None],
) -> Ending:
    look = crew.look(task_of(run.target).arguments)
    claim = Claim(
        run=run.id,
        session=crew.session,
        runbook=run.runbook,
        namespace=crew.namespace,
        target=run.target,
        target_uid="",
        holder=crew.holder,
        seconds=crew.policy.runbooks.lease_seconds,
    )
    locks = Locks(Lock(Ref(Lease.of, lease_name("roll", run.id), crew.namespace), claim, crew.writer, look))
    journal = Journal(run, crew.namespace, fenced(crew.writer, locks), look, crew.wait, crew.keep)
    try:
        take(locks, crew)
    except Taken as taken:
        return replace(crew.gave_up(taken), run=run.id)
    except (WriteFailed, NotKnown) as failed:
        return Ending(Outcome.FAILED, f"no lock: {failed}", run.id)
    try:
        open_(journal)
    except (WriteFailed, NotKnown, Fenced) as failed:
        unopened(locks)
        return Ending(Outcome.FAILED, f"the journal of the rolling change: {failed}", run.id)
    if journal.run.state is not Standing.UNFINISHED:
        drop(locks, crew.tell)
        return Ending(Outcome.REFUSED, f"run {run.id} is {journal.run.state} already", run.id)
    try:
        return _Roll(journal, task_of, crew, look).go(locks)
    except (WriteFailed, NotKnown, Fenced) as failed:
        leave(locks)
        return Ending(Outcome.FAILED, f"the journal of the rolling change: {failed}", run.id, left=True)


@dataclass
class _Roll:
    journal: Journal
    task_of: TaskOf
    crew: Crew
    look: Look
    mutex: Mutex = field(default_factory=Mutex)

    def go(self, locks: Locks) -> Ending:
        back = self.journal.run.direction is Direction.BACK
        ending = self._back() if back else self._forward()
        if ending.left:
            self.journal.note(outcome=ending.outcome, why=ending.why)
            leave(locks)
            return ending
        state = Standing.UNDONE if back else Standing.FINISHED
        self.journal.note(state=state, outcome=ending.outcome, why="", finished_at=datetime.now(UTC))
        drop(locks, self.crew.tell)
        return ending

    @property
    def _id(self) -> str:
        return self.journal.run.id

    def _forward(self) -> Ending:
        """Begins members while all goes well, and waits for those that are begun."""
        waiting = [
            index
            for index, member in enumerate(self.journal.run.members)
            if member.outcome is not Outcome.SUCCEEDED
        ]
        at_once = min(max(1, self.journal.run.max_unavailable), self.crew.policy.runbooks.max_nodes)
        first_bad: Ending | None = None
        with ThreadPoolExecutor(at_once, thread_name_prefix="gpuctl-roll") as pool:
            going: dict[Future[Ending], int] = {}
            while going or (waiting and first_bad is None and not self.crew.stop.is_set()):
                while waiting and len(going) < at_once and first_bad is None:
                    index = waiting.pop(0)
                    going[pool.submit(self._one, index)] = index
                for done in wait(going, return_when=FIRST_COMPLETED).done:
                    ending = self._noted(going.pop(done), done.result())
                    if ending.outcome is not Outcome.SUCCEEDED:
                        first_bad = first_bad or ending
        if first_bad is not None:
            # What the undo of its own run took back is not changed, whoever asked for that.
            reverted = first_bad.outcome is Outcome.REVERTED
            outcome = Outcome.FAILED if reverted else first_bad.outcome
            return Ending(outcome, first_bad.why, self._id, left=True)
        if waiting:
            return Ending(Outcome.CANCELLED, "interrupted between two targets", self._id, left=True)
        return Ending(Outcome.SUCCEEDED, run=self._id)

    def _one(self, index: int) -> Ending:
        """Goes on with the member's run if it was begun, else begins it."""
        member = self.journal.run.members[index]
        task = self.task_of(member.target)
        known = self._run_of(member)
        if known is not None and known.state is Standing.UNFINISHED:
            return go_on(known, task, self.crew)
        if known is not None and known.outcome is Outcome.SUCCEEDED:
            return Ending(Outcome.SUCCEEDED, run=known.id)
        if known is None and member.run:
            abandon(member.run, self.crew, task.arguments)  # killed between its lock and its journal
        run = new_id()
        self._change(index, run=run)
        planned = TargetPlan(
            target=member.target,
            target_uid=member.target_uid,
            preconditions=member.preconditions,
            bounds=member.bounds,
        )
        self.crew.tell(f"{member.target}: {index + 1} of {len(self.journal.run.members)}, run {run}")
        roll = self.journal.run
        order = Order(roll.cluster_uid, roll.plan, roll.people[0], roll.reason, roll.ticket)
        return begin(task, order, planned, self.crew, run)

    def _noted(self, index: int, ending: Ending) -> Ending:
        target = self.journal.run.members[index].target
        self._change(index, outcome=ending.outcome)
        for learned in ending.learned:
            self.crew.tell(f"{target}: {learned}")
        why = f"{target}: {ending.why or ending.outcome.value}"
        return Ending(ending.outcome, why, ending.run, ending.left)

    def _change(self, index: int, **changes: object) -> None:
        with self.mutex:
            members = list(self.journal.run.members)
            members[index] = msgspec.structs.replace(members[index], **changes)
            self.journal.note(members=tuple(members))

    def _run_of(self, member: Member) -> Run | None:
        """The journal of its run; None if there is none. Raises NotKnown."""
        return self.look([runs])[runs].get(member.run) if member.run else None

    def _back(self) -> Ending:
        """Takes back what is unfinished. What is finished stays: undoing that is a new plan."""
        for index, member in enumerate(self.journal.run.members):
            known = self._run_of(member)
            if known is not None and known.state is Standing.FINISHED and known.outcome is not member.outcome:
                self._change(index, outcome=known.outcome)  # killed between its end and the note of it here
            if known is None or known.state is not Standing.UNFINISHED:
                continue
            ending = self._noted(index, go_on(known, self.task_of(member.target), self.crew, back=True))
            if ending.outcome is not Outcome.REVERTED:
                return Ending(ending.outcome, ending.why, self._id, left=True)
        stay = [each.target for each in self.journal.run.members if each.outcome is Outcome.SUCCEEDED]
        why = f"finished before, and not taken back: {', '.join(stay)}; gpuctl undo of their runs does that"
        return Ending(Outcome.REVERTED, why if stay else "", self._id)
