"""Runs the check over a cluster in memory, and says what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuctl.audit.finding import Finding
from gpuctl.audit.judge import Judgement, Verdict, judge
from gpuctl.audit.outcome import check_verdict
from gpuctl.audit.policy import POLICY, Policy
from gpuctl.checks.kueue_webhooks import CHECK
from gpuctl.facts.gather import gather
from gpuctl.facts.state import Reason, State, Unknown
from tests.builders.kueue import Cluster
from tests.memory import MemoryReader

FORBIDDEN = Unknown(Reason.FORBIDDEN, "no")


@dataclass(frozen=True)
class Verdicts:
    """The judgements of the check's assertions."""

    judgements: tuple[Judgement, ...]
    learned: State[Any]

    @property
    def verdict(self) -> Verdict:
        return check_verdict(each.verdict for each in self.judgements)

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(finding for each in self.judgements for finding in each.findings)

    @property
    def codes(self) -> list[str]:
        return [finding.code.id for finding in self.findings]

    @property
    def by_assertion(self) -> Mapping[str, Verdict]:
        return {each.assertion.id: each.verdict for each in self.judgements}

    def of(self, assertion: str) -> Judgement:
        """The judgement of one assertion."""
        return next(each for each in self.judgements if each.assertion.id == assertion)

    def one(self, code: str) -> Finding:
        """The one finding of a code."""
        found = [finding for finding in self.findings if finding.code.id == code]
        assert len(found) == 1, self.codes
        return found[0]


def judged(cluster: Cluster, **reader: Any) -> Verdicts:
    """Judges the cluster as it is now."""
    return judged_by(cluster.reader(**reader))


def judged_by(reader: MemoryReader) -> Verdicts:
    """Judges what a reader reads."""
    facts = gather(CHECK.needs, reader, {POLICY: Policy()})
    assert CHECK.learned is not None
    return Verdicts(tuple(judge(each, facts) for each in CHECK.assertions), facts.state(CHECK.learned))
