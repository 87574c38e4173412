"""The steps of queue-limit: each sets one value, and brings back the one that was there before.

The run's mark goes with the value in one patch: a value without it is another's, and is never taken back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gpuctl.facts.fact import Fact
from gpuctl.facts.gather import Facts
from gpuctl.facts.kinds import Meta, Ref, Rule
from gpuctl.kueue.objects import GROUP, ClusterQueue, Job
from gpuctl.kueue.quantities import Written
from gpuctl.runbook.kueue.limits import JOB, QUEUE, Place, in_version, place_of, same, told
from gpuctl.runbook.step import Step
from gpuctl.runbook.target import SELF
from gpuctl.runbook.writer import Change, Drop, Put, Test, Writer, pointer

PATCHES_QUEUES: Final = Rule(GROUP, "clusterqueues", "patch")
PATCHES_JOBS: Final = Rule("batch", "jobs", "patch", namespaced=True)
LIMITED_BY: Final = "gpuctl.dev/limited-by"
_DEADLINE: Final = "/spec/activeDeadlineSeconds"
_MARK: Final = pointer("metadata", "annotations", LIMITED_BY)


def to(path: str, before: Any, after: Any) -> Sequence[Change]:
    """Sets a value in the place of another; None stands for none."""
    return Test(path, before), Drop(path) if after is None else Put(path, after)


class _Marked(Step, frozen=True, kw_only=True):
    """`marked_before`: the run that had set a limit there before."""

    marked_before: str = ""

    def _about(self, facts: Facts) -> Meta:
        raise NotImplementedError

    def _ours(self, facts: Facts) -> bool:
        return self._about(facts).annotations.get(LIMITED_BY, "") == facts[SELF].run

    def _marking(self, facts: Facts) -> Sequence[Change]:
        there, run = self._about(facts).annotations, facts[SELF].run
        if not there:
            return Test("/metadata/annotations", None), Put("/metadata/annotations", {LIMITED_BY: run})
        return Test(_MARK, there.get(LIMITED_BY)), Put(_MARK, run)

    def _unmarking(self, facts: Facts) -> Sequence[Change]:
        back = Put(_MARK, self.marked_before) if self.marked_before else Drop(_MARK)
        return Test(_MARK, facts[SELF].run), back

    def undone(self, facts: Facts) -> bool:
        return not self._ours(facts)


class SetLimit(_Marked, frozen=True, kw_only=True):
    """Sets the borrowing or lending limit of one resource in one flavor of a ClusterQueue."""

    queue: str
    uid: str
    version: str
    flavor: str
    resource: str
    field: str
    before: Written | None
    after: Written | None

    @property
    def says(self) -> str:
        return f"set {self.field} of {self._quota} from {told(self.before)} to {told(self.after)}"

    @property
    def undoes(self) -> str:
        return f"set {self.field} of {self._quota} back to {told(self.before)}"

    @property
    def _quota(self) -> str:
        return f"{self.resource} in flavor {self.flavor} of ClusterQueue {self.queue}"

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        return (QUEUE.now, SELF)

    @property
    def rules(self) -> frozenset[Rule]:
        return frozenset({PATCHES_QUEUES})

    @property
    def ref(self) -> Ref:
        """The ClusterQueue."""
        return in_version(Ref(ClusterQueue.of, self.queue), self.version)

    def _place(self, facts: Facts) -> Place | None:
        return place_of(facts[QUEUE.now], self.flavor, self.resource)

    def _is(self, facts: Facts, wanted: Written | None) -> bool:
        place = self._place(facts)
        return place is not None and same(place.limit(self.field), wanted)

    def _about(self, facts: Facts) -> Meta:
        return facts[QUEUE.now].metadata

    def _neither(self, facts: Facts) -> str:
        place = self._place(facts)
        if place is None:
            return f"the quota of {self._quota} was taken away by somebody"
        now = place.limit(self.field)
        if same(now, self.before) or same(now, self.after):
            return ""
        return self._changed(now)

    def _changed(self, now: Written | None) -> str:
        return f"{self.field} of {self._quota} is {told(now)} now: somebody else changed it"

    def holds(self, facts: Facts) -> bool:
        return self._ours(facts) and self._is(facts, self.after)

    def stuck(self, facts: Facts) -> str:
        """The value of before with the mark, or that of after without it, is somebody else's."""
        neither = self._neither(facts)
        if neither or self._ours(facts) is self._is(facts, self.after):
            return neither
        return self._changed(self.before if self._ours(facts) else self.after)

    def act(self, facts: Facts, writer: Writer) -> None:
        writer.patch(self.ref, self.uid, (*self._set(facts, self.after), *self._marking(facts)))

    def hampered(self, facts: Facts) -> str:
        return self._neither(facts)

    def undo(self, facts: Facts, writer: Writer) -> None:
        """Also where somebody has set the old value again: then the mark is all that is left."""
        back = () if self._is(facts, self.before) else self._set(facts, self.before)
        writer.patch(self.ref, self.uid, (*back, *self._unmarking(facts)))

    def _set(self, facts: Facts, wanted: Written | None) -> Sequence[Change]:
        place = self._place(facts)
        if place is None:
            return ()
        return limited(place, self.flavor, self.resource, self.field, place.limit(self.field), wanted)


def limited(
    place: Place, flavor: str, resource: str, field: str, now: Written | None, wanted: Written | None
) -> Sequence[Change]:
    """The patch, which holds only while flavor and resource stand where they stood."""
    return (
        Test(pointer(*place.of_flavor, "name"), flavor),
        Test(pointer(*place.path, "name"), resource),
        *to(pointer(*place.path, field), now, wanted),
    )


class SetDeadline(_Marked, frozen=True, kw_only=True):
    """Sets how long a Job may take, from its start on."""

    namespace: str
    name: str
    uid: str
    before: int | None
    after: int | None

    @property
    def says(self) -> str:
        return f"set activeDeadlineSeconds of {self.ref} from {told(self.before)} to {told(self.after)}"

    @property
    def undoes(self) -> str:
        return f"set activeDeadlineSeconds of {self.ref} back to {told(self.before)}"

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        return (JOB.now, SELF)

    @property
    def rules(self) -> frozenset[Rule]:
        return frozenset({PATCHES_JOBS})

    @property
    def ref(self) -> Ref:
        """The Job."""
        return Ref(Job.of, self.name, self.namespace)

    def _about(self, facts: Facts) -> Meta:
        return facts[JOB.now].metadata

    def holds(self, facts: Facts) -> bool:
        return self._ours(facts) and self._now(facts) == self.after

    def stuck(self, facts: Facts) -> str:
        """The value of before with the mark, or that of after without it, is somebody else's."""
        neither = self._neither(facts)
        if neither or self._ours(facts) is (self._now(facts) == self.after):
            return neither
        return self._changed(self._now(facts))

    def act(self, facts: Facts, writer: Writer) -> None:
        changes = to(_DEADLINE, self._now(facts), self.after)
        writer.patch(self.ref, self.uid, (*changes, *self._marking(facts)))

    def hampered(self, facts: Facts) -> str:
        return self._neither(facts)

    def undo(self, facts: Facts, writer: Writer) -> None:
        """Also where somebody has set the old value again: then the mark is all that is left."""
        now = self._now(facts)
        back = () if now == self.before else to(_DEADLINE, now, self.before)
        writer.patch(self.ref, self.uid, (*back, *self._unmarking(facts)))

    def _now(self, facts: Facts) -> int | None:
        return facts[JOB.now].spec.active_deadline_seconds

    def _neither(self, facts: Facts) -> str:
        job = facts[JOB.now]
        if job.over:
            return f"{self.ref} ended meanwhile: {job.over}"
        now = self._now(facts)
        return "" if now in (self.before, self.after) else self._changed(now)

    def _changed(self, now: int | None) -> str:
        return f"activeDeadlineSeconds of {self.ref} is {told(now)} now: somebody else changed it"


def deadline_set(now: int | None, wanted: int | None) -> Sequence[Change]:
    """The patch of a deadline."""
    return to(_DEADLINE, now, wanted)
