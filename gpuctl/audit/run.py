"""One run: gathers what the checks declare, judges it, and makes the report."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import gpuctl
from gpuctl.audit.catalogue import Broken, Catalogue
from gpuctl.audit.check import Check
from gpuctl.audit.coverage import coverage
from gpuctl.audit.decisions import Decisions
from gpuctl.audit.finding import Finding
from gpuctl.audit.judge import Gap, Judgement, Verdict, judge
from gpuctl.audit.mask import masked_text
from gpuctl.audit.outcome import Gate, check_verdict, outcome
from gpuctl.audit.policy import POLICY, Policy
from gpuctl.audit.report import (
    AssertionItem,
    AuditReport,
    CheckItem,
    Coverage,
    EvidenceItem,
    FindingItem,
    ObjectRef,
    Run,
    Source,
    SubjectItem,
    UnknownItem,
)
from gpuctl.facts.fact import Argument, Fact
from gpuctl.facts.gather import Facts, Watch, gather
from gpuctl.facts.kinds import Ref
from gpuctl.facts.reader import Reader
from gpuctl.facts.state import Known, Reason


@dataclass(frozen=True, slots=True)
class Request:
    """What a run is asked for."""

    checks: Catalogue
    policy: Policy
    gate: Gate = field(default_factory=Gate)
    baseline: Collection[str] = ()  # fingerprints of findings that were known before
    arguments: Mapping[Argument[Any], Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Observer:
    """Told how a run goes on: of each fact that is settled, and of each check that is judged."""

    fact: Watch = lambda _fact, _facts: None
    check: Callable[[CheckItem], None] = lambda _check: None


def audit(
    request: Request, reader: Reader, source: Callable[[], Source], observer: Observer | None = None
) -> AuditReport:
    """Reads, judges and reports. Never raises for what the cluster did.

    `source` is asked when the reading is done, for it tells what the server said of itself.
    """
    started = datetime.now(UTC)
    decisions = Decisions(request.policy, started.date(), request.baseline)
    checks = tuple(_judged(request, reader, decisions, observer or Observer()))
    return AuditReport(
        run=Run(
            id=secrets.token_hex(6),
            started_at=started,
            finished_at=datetime.now(UTC),
            version=gpuctl.__version__,
            source=source(),
        ),
        outcome=outcome(checks, request.gate),
        checks=checks,
        notices=tuple(decisions.notices(_names(request.checks.checks))),
    )


def _judged(
    request: Request, reader: Reader, decisions: Decisions, observer: Observer
) -> Iterator[CheckItem]:
    """The results in the checks' order; the observer gets each as soon as its facts are settled, and those
    of the checks before it, so that what a person reads has the same order in every run."""
    waiting = list(request.checks.checks)
    done: list[CheckItem] = []

    def judge_ready(facts: Facts) -> None:
        while waiting and all(facts.settled(need) for need in waiting[0].needs):
            tell(_check(waiting.pop(0), facts))

    def tell(check: CheckItem) -> None:
        done.append(decisions.applied(check))
        observer.check(done[-1])

    def watch(fact: Fact[Any], facts: Facts) -> None:
        observer.fact(fact, facts)
        judge_ready(facts)

    needs = [need for check in request.checks.checks for need in check.needs]
    judge_ready(gather(needs, reader, {POLICY: request.policy, **request.arguments}, watch))
    for broken in request.checks.broken:
        tell(_broken(broken))
    yield from done


def _names(checks: Iterable[Check]) -> list[str]:
    """What decisions can refer to: codes, and `check/assertion`."""
    return [
        name
        for check in checks
        for name in (
            *(code.id for code in check.codes),
            *(f"{check.id}/{assertion.id}" for assertion in check.assertions),
        )
    ]


def _check(check: Check, facts: Facts) -> CheckItem:
    judgements = [judge(assertion, facts) for assertion in check.assertions]
    return CheckItem(
        id=check.id,
        title=check.title,
        verdict=check_verdict(judgement.verdict for judgement in judgements).value,
        assertions=tuple(_assertion(judgement, facts) for judgement in judgements),
        coverage=coverage(check.needs, facts),
        subjects=tuple(_subjects(check, facts)),
    )


def _broken(broken: Broken) -> CheckItem:
    """A check that can't be loaded has one assertion, which is unknown."""
    gap = UnknownItem(object=broken.id, reason=Reason.INTERNAL.value, message=broken.error)
    return CheckItem(
        id=broken.id,
        title=broken.id,
        verdict=Verdict.UNKNOWN.value,
        assertions=(
            AssertionItem(
                id="loads",
                statement="the check can be loaded",
                kind="required",
                verdict=Verdict.UNKNOWN.value,
                reason=broken.error,
                looked=0,
                findings=(),
                unknown=(gap,),
            ),
        ),
        coverage=Coverage(expected=0, read=0, missing=()),
        subjects=(),
    )


def _assertion(judgement: Judgement, facts: Facts) -> AssertionItem:
    return AssertionItem(
        id=judgement.assertion.id,
        statement=judgement.assertion.says,
        kind=judgement.assertion.strength.value,
        verdict=judgement.verdict.value,
        reason=masked_text(judgement.reason),
        looked=judgement.looked,
        findings=tuple(_finding(finding, facts) for finding in _sorted(judgement.findings)),
        unknown=tuple(_gap(gap) for gap in judgement.gaps),
    )


def _sorted(findings: Sequence[Finding]) -> list[Finding]:
    """The same order in every run, whatever the order of the reads."""
    return sorted(
        findings, key=lambda each: (each.code.id, each.object.namespace, each.object.name, each.mark)
    )


def _finding(finding: Finding, facts: Facts) -> FindingItem:
    return FindingItem(
        code=finding.code.id,
        severity=finding.weight.value,
        object=object_ref(finding.object),
        message=masked_text(finding.message),
        evidence=tuple(
            EvidenceItem(
                source=f"{item.source} {item.where}".rstrip(),
                observed=masked_text(item.observed),
                at=facts.read_at(item.source),
            )
            for item in finding.evidence
        ),
        look=finding.look,
        remedy=finding.remedy,
        runbook=finding.runbook,
        fingerprint=finding.fingerprint,
        cause=finding.cause,
    )


def object_ref(ref: Ref) -> ObjectRef:
    """A reference in the shape of the report."""
    return ObjectRef(
        api_version=ref.kind.api_version(), kind=ref.kind.kind, namespace=ref.namespace, name=ref.name
    )


def _gap(gap: Gap) -> UnknownItem:
    name = gap.subject if isinstance(gap.subject, str) else str(gap.subject)
    return UnknownItem(object=name, reason=gap.state.reason.value, message=masked_text(gap.state.message))


def _subjects(check: Check, facts: Facts) -> Iterator[SubjectItem]:
    if check.learned is None:
        return
    state = facts.state(check.learned)
    if isinstance(state, Known):
        for ref, learned in state.value.known():
            yield SubjectItem(object=object_ref(ref), facts=dict(learned))
