"""Workloads are admitted, wait while the flavor is missing, and are admitted again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from gpuctl.facts.gather import Facts
from gpuctl.kueue.objects import Workload
from gpuctl.runbook.flavors.canaries import CANARIES, DrillWorkload, condition, seconds_between, written
from gpuctl.runbook.flavors.drill_steps.harm import harm, why_not
from gpuctl.runbook.flavors.drill_steps.loss import Restore
from gpuctl.runbook.flavors.drill_steps.step import PATIENCE, DrillStep, differences
from gpuctl.runbook.flavors.own_journal import begun
from gpuctl.runbook.writer import Writer


class Admit(DrillStep, frozen=True, kw_only=True):
    """Makes a Workload, which is admitted on the flavor. On one that is going, a Workload that waits is a
    difference, and no failure."""

    name: str
    going: bool = False

    @property
    def says(self) -> str:
        on = " on the flavor that is going" if self.going else ""
        return f"make Workload {self.name}, which is admitted{on}"

    def holds(self, facts: Facts) -> bool:
        workload = facts[CANARIES].workloads.get(self.name)
        if workload is None:
            return False
        waits = not workload.admitted and self.going and self._waited(workload, facts) > PATIENCE
        return waits or (workload.admitted and self.names.main in workload.flavors)

    def stuck(self, facts: Facts) -> str:
        workload = facts[CANARIES].workloads.get(self.name)
        if workload is None or not workload.admitted or self.names.main in workload.flavors:
            return ""
        given = ", ".join(sorted(workload.flavors)) or "none"
        return f"Workload {self.name} was admitted on the flavor {given}, not on {self.names.main}"

    def _waited(self, workload: DrillWorkload, facts: Facts) -> float:
        return seconds_between(workload.metadata.creation_timestamp, facts.now) or 0.0

    def progress(self, facts: Facts) -> str:
        workload = facts[CANARIES].workloads.get(self.name)
        return why_not(workload) if workload else ""

    def act(self, facts: Facts, writer: Writer) -> None:
        ref = written(Workload.of, self.name, self.run, self.version)
        self.create(ref, self.names.workload, facts[CANARIES], writer)

    def learned(self, facts: Facts) -> Mapping[str, Any]:
        workload = facts[CANARIES].workloads[self.name]
        word = f"{self.name}Admitted"
        if not workload.admitted:
            said = f"Workload {self.name} was not admitted on the flavor that is going: {why_not(workload)}"
            return {word: False, **differences(facts, said)}
        admitted = condition(workload.status.conditions, "Admitted")
        by_kueue = seconds_between(
            workload.metadata.creation_timestamp, admitted.last_transition_time if admitted else None
        )
        seconds = seconds_between(begun(facts, self), facts.now)
        return {
            word: True,
            **({f"{self.name}SecondsToAdmit": round(seconds, 2)} if seconds is not None else {}),
            **({f"{self.name}SecondsByConditions": by_kueue} if by_kueue is not None else {}),
        }


class StayWaiting(DrillStep, frozen=True, kw_only=True):
    """A Workload that is made while the flavor is missing waits."""

    name: str
    lasts: float = 5.0

    @property
    def says(self) -> str:
        return f"make Workload {self.name}, which waits while the flavor is missing"

    def holds(self, facts: Facts) -> bool:
        workload = facts[CANARIES].workloads.get(self.name)
        if workload is None or workload.admitted:
            return False
        age = seconds_between(workload.metadata.creation_timestamp, facts.now) or 0.0
        told = condition(workload.status.conditions, "QuotaReserved")
        return age >= self.lasts and (told is not None or age >= PATIENCE)

    def stuck(self, facts: Facts) -> str:
        canaries = facts[CANARIES]
        workload = canaries.workloads.get(self.name)
        if workload is not None and workload.admitted:
            return f"Workload {self.name} was admitted although its flavor is missing"
        return harm(facts)

    def act(self, facts: Facts, writer: Writer) -> None:
        ref = written(Workload.of, self.name, self.run, self.version)
        self.create(ref, self.names.workload, facts[CANARIES], writer)

    def learned(self, facts: Facts) -> Mapping[str, Any]:
        why = why_not(facts[CANARIES].workloads[self.name])
        said = [] if "is inactive" in why else [f"Workload {self.name} waits, and Kueue says: {why}"]
        return {f"{self.name}Waits": why, **differences(facts, *said)}


class AdmitAgain(DrillStep, frozen=True, kw_only=True):
    """What waited for the flavor is admitted on it."""

    measures: ClassVar[str] = "secondsToAdmitAgain"

    name: str

    @property
    def says(self) -> str:
        return f"Workload {self.name} is admitted"

    def took(self, facts: Facts) -> Mapping[str, Any]:
        """Counted from the flavor's return."""
        return self.took_since(facts, Restore)

    def holds(self, facts: Facts) -> bool:
        workload = facts[CANARIES].workloads.get(self.name)
        return workload is not None and workload.admitted

    def stuck(self, facts: Facts) -> str:
        return harm(facts)

    def progress(self, facts: Facts) -> str:
        return why_not(facts[CANARIES].workloads.get(self.name))
