"""Guards: assertions that must hold before a run may act. What is not known blocks like what is false."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVarTuple

import msgspec

from gpuctl.audit.assertion import Assertion, holds
from gpuctl.audit.finding import Code, Evidence, Finding, Severity
from gpuctl.audit.judge import Judgement, Verdict, judge
from gpuctl.facts.fact import Fact, Given
from gpuctl.facts.gather import Facts
from gpuctl.facts.kinds import Ref
from gpuctl.runbook.records import Reached, Run

Ts = TypeVarTuple("Ts")

When = Callable[[Run], bool]
"""Whether a guard is asked again when this run, which stood still, is resumed."""


def never(_run: Run) -> bool:
    """What it is about is looked at by the steps themselves, or can't change under the run's lock."""
    return False


def always(_run: Run) -> bool:
    """Whatever the run has done so far, going on could hurt without it."""
    return True


def before(*steps: str) -> When:
    """As long as none of the run's steps of these names was begun: what the guard protects is not touched
    before."""
    return lambda run: _are(run, steps, (Reached.WAITING,))


def until(*steps: str) -> When:
    """As long as none of the run's steps of these names is done: they go on to take what it protects."""
    return lambda run: _are(run, steps, (Reached.WAITING, Reached.BEGUN))


def _are(run: Run, steps: tuple[str, ...], reached: tuple[Reached, ...]) -> bool:
    found = [each for each in run.steps if each.name in steps]
    return bool(found) and all(each.reached in reached for each in found)


class Blocker(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One reason not to act. `override`: the flag that takes the risk, empty if there is none."""

    guard: str
    message: str
    object: str = ""
    look: str = ""
    remedy: str = ""
    override: str = ""


@dataclass(frozen=True, eq=False)
class Guard:
    """An assertion that blocks. `override` names the flag by which a person takes the risk of it.

    `again`: when it must hold once more, as a run that stood still is resumed. One that has begun no step is
    resumed as it would be begun: then each must.
    """

    assertion: Assertion
    override: str = ""
    again: When = never

    @property
    def id(self) -> str:
        """What it is called in plans and journals."""
        return self.assertion.id

    @property
    def says(self) -> str:
        """What must hold, in one sentence."""
        return self.assertion.says

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        """The facts it rests on."""
        return self.assertion.needs

    def blockers(self, facts: Facts) -> Iterator[Blocker]:
        """What speaks against acting. A guard that had nothing to judge blocks too: a misspelt name is not
        fine."""
        judgement = judge(self.assertion, facts)
        against = [each for each in judgement.findings if each.weight is not Severity.INFO]
        for finding in against:
            yield self._blocker(finding.message, str(finding.object), finding.look, finding.remedy)
        for gap in judgement.gaps:
            yield self._blocker(f"cannot be told whether {self.says}: {gap.state}")
        if not against and not judgement.gaps and judgement.verdict is not Verdict.PASS:
            yield self._blocker(f"cannot be told whether {self.says}: {judgement.reason}")

    def notes(self, facts: Facts) -> Iterator[str]:
        """What is worth knowing before acting, and does not block."""
        judgement: Judgement = judge(self.assertion, facts)
        for finding in judgement.findings:
            if finding.weight is Severity.INFO:
                yield finding.message

    def _blocker(self, message: str, object_: str = "", look: str = "", remedy: str = "") -> Blocker:
        return Blocker(
            guard=self.id, message=message, object=object_, look=look, remedy=remedy, override=self.override
        )


def guard(
    says: str, given: Given[*Ts], override: str = "", *, again: When = never
) -> Callable[[Callable[[*Ts], Iterator[Finding]]], Guard]:
    """Makes a guard of a function that yields what speaks against acting: see `blocks` and `notes`."""

    def made(judge_: Callable[[*Ts], Iterator[Finding]]) -> Guard:
        return Guard(holds(says, given)(judge_), override, again)

    return made


def asked_again(when: When, *guards: Guard) -> tuple[Guard, ...]:
    """These guards of a runbook, asked again when it says so."""
    return tuple(replace(each, again=when) for each in guards)


def blocks(object_: Ref, message: str, *, look: str = "", remedy: str = "", seen: str = "") -> Finding:
    """What a guard yields to block."""
    return _finding(object_, message, look, remedy, seen, Severity.ERROR)


def notes(object_: Ref, message: str, *, look: str = "", seen: str = "") -> Finding:
    """What a guard yields to say something without blocking."""
    return _finding(object_, message, look, "", seen, Severity.INFO)


def _finding(object_: Ref, message: str, look: str, remedy: str, seen: str, severity: Severity) -> Finding:
    evidence = (Evidence(object_, "", seen),) if seen else ()
    look = look or f"kubectl get {object_.kubectl} -o yaml"
    return Finding(_CODE, object_, message, evidence, look, remedy, severity=severity)


# Guards are known by their ids; the code exists because a finding has one.
_CODE = Code("GUARD", "a guard refuses", Severity.ERROR)
