"""Runs the check over queues in memory, and says what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpuctl.audit.finding import Finding, Severity
from gpuctl.audit.judge import Judgement, Verdict, judge
from gpuctl.audit.outcome import check_verdict
from gpuctl.audit.policy import POLICY, ChecksPolicy, Policy, QueueGrowthPolicy
from gpuctl.checks.queue_growth import CHECK
from gpuctl.facts.gather import gather
from gpuctl.facts.state import Reason, Unknown
from tests.builders.queues import World
from tests.memory import MemoryReader

FORBIDDEN = Unknown(Reason.FORBIDDEN, "no")


@dataclass(frozen=True)
class Verdicts:
    """The judgements of the check's assertions."""

    judgements: tuple[Judgement, ...]

    @property
    def verdict(self) -> Verdict:
        return check_verdict(each.verdict for each in self.judgements)

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(finding for each in self.judgements for finding in each.findings)

    @property
    def codes(self) -> set[str]:
        """The codes of what fails."""
        return {each.code.id for each in self.findings if each.weight is not Severity.INFO}

    def one(self, code: str) -> Finding:
        """The one finding of a code."""
        found = [finding for finding in self.findings if finding.code.id == code]
        assert len(found) == 1, [(each.code.id, each.message) for each in self.findings]
        return found[0]

    def of(self, assertion: str) -> Judgement:
        return next(each for each in self.judgements if each.assertion.id == assertion)


def judged(world: World, policy: QueueGrowthPolicy | None = None, **reader: Any) -> Verdicts:
    """Judges the cluster as it is now."""
    return judged_by(world.reader(**reader), policy)


def judged_by(reader: MemoryReader, policy: QueueGrowthPolicy | None = None) -> Verdicts:
    chosen = Policy(checks=ChecksPolicy(queue_growth=policy or QueueGrowthPolicy()))
    facts = gather(CHECK.needs, reader, {POLICY: chosen})
    return Verdicts(tuple(judge(each, facts) for each in CHECK.assertions))
