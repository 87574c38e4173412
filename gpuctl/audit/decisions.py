"""What a team has decided about findings and gaps: severities, waivers, accepted unknowns, a baseline.

A decision changes what a finding weighs, never whether it is shown. An expired decision weighs nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from fnmatch import fnmatchcase

import msgspec

from gpuctl.audit.finding import Severity
from gpuctl.audit.judge import Verdict, unjudged
from gpuctl.audit.outcome import check_verdict, counts
from gpuctl.audit.policy import Acceptance, Policy, Waiver
from gpuctl.audit.report import AssertionItem, CheckItem, FindingItem, NoticeItem, UnknownItem, WaiverItem


@dataclass(frozen=True)
class Decisions:
    """The decisions that hold on a day. `baseline` has the fingerprints that were known before."""

    policy: Policy
    today: date
    baseline: Collection[str] = frozenset()
    used: set[Waiver | Acceptance] = field(default_factory=set)

    def applied(self, check: CheckItem) -> CheckItem:
        """The check's result with the decisions marked in it, and the verdicts that follow."""
        assertions = tuple(self._assertion(check.id, each) for each in check.assertions)
        verdict = check_verdict(Verdict(each.verdict) for each in assertions)
        return msgspec.structs.replace(check, assertions=assertions, verdict=verdict.value)

    def notices(self, checks: Sequence[str]) -> Iterator[NoticeItem]:
        """Decisions that have expired, and such as nothing fitted in this run of these checks' codes."""
        decisions: tuple[Waiver | Acceptance, ...] = (*self.policy.waivers, *self.policy.accept_unknown)
        for decision in decisions:
            if self._expired(decision):
                yield _notice(decision, "expired", f"expired on {decision.expires}")
            elif decision not in self.used and _concerns(decision, checks):
                yield _notice(decision, "unused", "fits nothing that was found; remove it")

    def _expired(self, decision: Waiver | Acceptance) -> bool:
        return decision.expires < self.today

    def _assertion(self, check: str, item: AssertionItem) -> AssertionItem:
        name = f"{check}/{item.id}"
        findings = tuple(self._finding(finding) for finding in item.findings)
        unknown = tuple(self._gap(name, gap) for gap in item.unknown)
        verdict = _verdict(item, findings)
        return msgspec.structs.replace(item, findings=findings, unknown=unknown, verdict=verdict.value)

    def _finding(self, finding: FindingItem) -> FindingItem:
        return msgspec.structs.replace(
            finding,
            severity=self.policy.severity.get(finding.code, finding.severity),
            waiver=self._waiver(finding),
            known=finding.fingerprint in self.baseline,
        )

    def _waiver(self, finding: FindingItem) -> WaiverItem | None:
        for waiver in self.policy.waivers:
            if not self._expired(waiver) and _waives(waiver, finding):
                self.used.add(waiver)
                return WaiverItem(reason=waiver.reason, owner=waiver.owner, expires=waiver.expires)
        return None

    def _gap(self, assertion: str, gap: UnknownItem) -> UnknownItem:
        fitting = [each for each in self.policy.accept_unknown if _accepts(each, assertion, gap)]
        holding = [each for each in fitting if not self._expired(each)]
        self.used.update(holding)
        return msgspec.structs.replace(gap, accepted=bool(holding))


def _waives(waiver: Waiver, finding: FindingItem) -> bool:
    return waiver.code == finding.code and fnmatchcase(name(finding), waiver.object)


def _accepts(acceptance: Acceptance, assertion: str, gap: UnknownItem) -> bool:
    return (
        fnmatchcase(assertion, acceptance.assertion)
        and fnmatchcase(gap.object, acceptance.object)
        and acceptance.cause in {"", gap.reason}
    )


def name(finding: FindingItem) -> str:
    """`Service kueue-system/kueue-webhook-service`: the object of a finding as people write it."""
    where = finding.object
    place = f"{where.namespace}/" if where.namespace else ""
    return f"{where.kind} {place}{where.name}"


def _verdict(item: AssertionItem, findings: Iterable[FindingItem]) -> Verdict:
    """The verdict once the decisions are made; what was not judged stays as it was."""
    if any(finding.severity != Severity.INFO and counts(finding) for finding in findings):
        return Verdict.FAIL
    if item.verdict != Verdict.FAIL:
        return Verdict(item.verdict)
    return unjudged(item.kind, (gap.reason for gap in item.unknown)) if item.unknown else Verdict.PASS


def _concerns(decision: Waiver | Acceptance, checks: Sequence[str]) -> bool:
    """Whether the run could have used the decision: its code, or its assertion, belongs to what was run."""
    if isinstance(decision, Waiver):
        return decision.code in checks
    return any(fnmatchcase(each, decision.assertion) for each in checks)


def _notice(decision: Waiver | Acceptance, state: str, message: str) -> NoticeItem:
    if isinstance(decision, Waiver):
        subject = f"waiver of {decision.code} for {decision.object}"
    else:
        subject = f"acceptance of {decision.assertion} for {decision.object}"
    return NoticeItem(subject=f"{subject} (owner {decision.owner})", state=state, message=message)
