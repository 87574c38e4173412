"""Judging one assertion. Pure: facts in, judgement out."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from gpuctl.audit.assertion import Assertion, Strength
from gpuctl.audit.finding import Finding, Severity
from gpuctl.facts.gather import Facts
from gpuctl.facts.state import Each, Inapplicable, Known, NotKnown, Reason, Unknown

# A proof missing for one of these was not permitted or not asked for; for anything else it was tried.
NOT_ATTEMPTED = frozenset({Reason.FORBIDDEN, Reason.NOT_ASKED, Reason.NO_POD})


class Verdict(StrEnum):
    """What came of an assertion, or of a whole check (which is never `not-proven`)."""

    FAIL = "fail"
    UNKNOWN = "unknown"
    NOT_PROVEN = "not-proven"
    NOT_APPLICABLE = "not-applicable"
    PASS = "pass"  # noqa: S105 - a verdict


@dataclass(frozen=True, slots=True)
class Gap:
    """A subject that could not be judged, and why."""

    subject: Any
    state: Unknown


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on one assertion: how many subjects were looked at, what refutes it, what is missing."""

    assertion: Assertion
    verdict: Verdict
    looked: int = 0
    findings: tuple[Finding, ...] = ()
    gaps: tuple[Gap, ...] = ()
    reason: str = ""


@dataclass(slots=True)
class _Tally:
    looked: int = 0
    findings: list[Finding] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    passed_over: list[Inapplicable] = field(default_factory=list)


def judge(assertion: Assertion, facts: Facts) -> Judgement:
    """Judges every subject by itself: one that can't be judged costs nothing but itself."""
    try:
        subjects: Each[Any, Any] = facts[assertion.subjects]
        given = [facts[fact] for fact in assertion.given]
    except NotKnown as gap:
        return _unjudged(assertion, gap.state)
    tally = _Tally()
    for subject, state in subjects.entries.items():
        if isinstance(state, Known):
            _judge_one(assertion, subject, (state.value, *given), tally)
        elif isinstance(state, Unknown):
            tally.gaps.append(Gap(subject, state))
    tally.gaps.extend(Gap(hole.what, hole) for hole in subjects.holes)
    return _concluded(assertion, tally)


def _judge_one(assertion: Assertion, subject: Hashable, given: tuple[Any, ...], tally: _Tally) -> None:
    try:
        for finding in _findings(assertion, given):
            tally.findings.append(finding)
    except NotKnown as gap:
        if isinstance(gap.state, Inapplicable):
            tally.passed_over.append(gap.state)
            return
        tally.gaps.append(Gap(subject, gap.state))
    except Exception as error:  # noqa: BLE001 - the border around one subject: a bug here must not cost the others
        tally.gaps.append(Gap(subject, Unknown(Reason.INTERNAL, f"{type(error).__name__}: {error}")))
    tally.looked += 1


def _findings(assertion: Assertion, given: tuple[Any, ...]) -> Iterator[Finding]:
    return assertion.judge(*given)


def _unjudged(assertion: Assertion, state: Unknown | Inapplicable) -> Judgement:
    if isinstance(state, Inapplicable):
        return Judgement(assertion, Verdict.NOT_APPLICABLE, reason=state.why)
    gap = Gap(state.what, state)
    verdict = unjudged(assertion.strength, (state.reason,))
    return Judgement(assertion, verdict, gaps=(gap,), reason=str(state))


def _concluded(assertion: Assertion, tally: _Tally) -> Judgement:
    gaps = tuple(tally.gaps)
    verdict, reason = _verdict(assertion, tally)
    return Judgement(assertion, verdict, tally.looked, tuple(tally.findings), gaps, reason)


def _verdict(assertion: Assertion, tally: _Tally) -> tuple[Verdict, str]:
    if any(finding.weight is not Severity.INFO for finding in tally.findings):
        return Verdict.FAIL, ""
    if tally.gaps:
        reasons = (gap.state.reason for gap in tally.gaps)
        return unjudged(assertion.strength, reasons), str(tally.gaps[0].state)
    if not tally.looked and tally.passed_over:
        return Verdict.NOT_APPLICABLE, tally.passed_over[0].why
    if not tally.looked:
        return Verdict.NOT_APPLICABLE, f"nothing to judge: no {assertion.subjects.name}"
    return Verdict.PASS, ""


def unjudged(strength: str, reasons: Iterable[str]) -> Verdict:
    """The verdict where nothing speaks against an assertion and something could not be read."""
    unattempted = all(reason in NOT_ATTEMPTED for reason in reasons)
    return Verdict.NOT_PROVEN if strength == Strength.PROOF and unattempted else Verdict.UNKNOWN
