"""What the steps of a drill have in common: whose objects they are, and how long it took.

The times that a drill is for are measured from here, between the entry in the journal before the first
write of a step and the look that found it true; the times that Kueue itself wrote stand beside them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from gpuctl.facts.fact import Fact
from gpuctl.facts.gather import Facts
from gpuctl.facts.kinds import Ref, Rule
from gpuctl.kueue.objects import ResourceFlavor
from gpuctl.runbook.flavors.canaries import CANARIES, RULES, Canaries, Names, seconds_between, written
from gpuctl.runbook.flavors.own_journal import OWN_JOURNAL, begun, begun_of_type, this_run
from gpuctl.runbook.step import Step
from gpuctl.runbook.target import SELF
from gpuctl.runbook.writer import Writer

PATIENCE: Final = 20.0  # seconds after which what is documented, and does not come, is a difference


class DrillStep(Step, frozen=True, kw_only=True):
    """A step on this run's canary objects. `version`: of Kueue's API, in which they are written."""

    once: ClassVar[bool] = True
    seconds: ClassVar[float] = 60.0
    pause: ClassVar[float] = 0.5
    measures: ClassVar[str] = ""  # the name under which the time it takes is kept

    run: str
    version: str

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        return (CANARIES, OWN_JOURNAL, SELF)

    @property
    def rules(self) -> frozenset[Rule]:
        return RULES

    @property
    def names(self) -> Names:
        """What this run's objects are called."""
        return Names(self.run)

    def took(self, facts: Facts) -> Mapping[str, Any]:
        """How long it took until it was seen to be true."""
        seconds = seconds_between(begun(facts, self), facts.now)
        return {self.measures: round(max(seconds, 0.0), 2)} if self.measures and seconds is not None else {}

    def took_since(self, facts: Facts, earlier: type[Step]) -> Mapping[str, Any]:
        """How long it took since an earlier step was begun."""
        seconds = seconds_between(begun_of_type(facts, earlier), facts.now)
        return {self.measures: round(max(seconds, 0.0), 2)} if seconds is not None else {}

    def learned(self, facts: Facts) -> Mapping[str, Any]:
        return self.took(facts)

    def create(self, ref: Ref, body: Mapping[str, Any], canaries: Canaries, writer: Writer) -> None:
        """Makes an object unless it is there."""
        if not canaries.has(ref):
            writer.create(ref, body)

    def flavor_ref(self) -> Ref:
        """The flavor that is lost."""
        return written(ResourceFlavor.of, self.names.main, self.run, self.version)


def differences(facts: Facts, *more: str) -> Mapping[str, Any]:
    """What went otherwise than it is documented, for the result: with what was noted before."""
    before = this_run(facts).result.get("differences", [])
    return {"differences": [*before, *more]} if more else {}
