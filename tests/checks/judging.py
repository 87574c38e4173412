"""Runs a check over a cluster in memory, and says what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuctl.audit.check import Check
from gpuctl.audit.finding import Finding, Severity
from gpuctl.audit.judge import Judgement, Verdict, judge
from gpuctl.audit.outcome import check_verdict
from gpuctl.audit.policy import POLICY, ChecksPolicy, FlavorImpactPolicy, Policy, QueueGrowthPolicy
from gpuctl.checks import flavor_impact, kueue_webhooks, queue_growth, vllm_mode
from gpuctl.facts.fact import Argument
from gpuctl.facts.gather import gather
from gpuctl.facts.state import Known, Reason, State, Unknown
from tests.builders import vllm as make
from tests.builders.kueue import Cluster
from tests.builders.queues import World
from tests.memory import MemoryReader

FORBIDDEN = Unknown(Reason.FORBIDDEN, "no")


@dataclass(frozen=True)
class Verdicts:
    """The judgements of a check's assertions, and what it learned."""

    judgements: tuple[Judgement, ...]
    learned: State[Any] | None = None

    @property
    def verdict(self) -> Verdict:
        return check_verdict(each.verdict for each in self.judgements)

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(finding for each in self.judgements for finding in each.findings)

    @property
    def codes(self) -> list[str]:
        """The codes of all findings, in order."""
        return sorted(finding.code.id for finding in self.findings)

    @property
    def failing(self) -> set[str]:
        """The codes of what fails."""
        return {each.code.id for each in self.findings if each.weight is not Severity.INFO}

    @property
    def by_assertion(self) -> Mapping[str, Verdict]:
        return {each.assertion.id: each.verdict for each in self.judgements}

    def of(self, assertion: str) -> Judgement:
        """The judgement of one assertion."""
        return next(each for each in self.judgements if each.assertion.id == assertion)

    def one(self, code: str) -> Finding:
        """The one finding of a code."""
        found = [finding for finding in self.findings if finding.code.id == code]
        assert len(found) == 1, [(each.code.id, each.message) for each in self.findings]
        return found[0]


def judged_by(
    check: Check,
    reader: MemoryReader,
    policy: Policy | None = None,
    arguments: Mapping[Argument[Any], Any] = {},
) -> Verdicts:
    """Judges what a reader reads."""
    facts = gather(check.needs, reader, {POLICY: policy or Policy(), **arguments})
    learned = facts.state(check.learned) if check.learned else None
    return Verdicts(tuple(judge(each, facts) for each in check.assertions), learned)


# Kueue's webhooks


def judged_webhooks(cluster: Cluster, **reader: Any) -> Verdicts:
    """Judges the cluster as it is now."""
    return judged_by(kueue_webhooks.CHECK, cluster.reader(**reader))


# Kueue's queues


def judged_queues(world: World, policy: QueueGrowthPolicy | None = None, **reader: Any) -> Verdicts:
    """Judges the queues as they are now."""
    chosen = Policy(checks=ChecksPolicy(queue_growth=policy or QueueGrowthPolicy()))
    return judged_by(queue_growth.CHECK, world.reader(**reader), chosen)


def judged_flavors(world: World, policy: FlavorImpactPolicy | None = None, **reader: Any) -> Verdicts:
    """Judges the flavors of the queues as they are now."""
    chosen = Policy(checks=ChecksPolicy(flavor_impact=policy or FlavorImpactPolicy()))
    return judged_by(flavor_impact.CHECK, world.reader(**reader), chosen)


# vLLM's engines

Written = Mapping[tuple[str, str], str | Unknown]
CHAT = "chat-7c9d5b8f4-x2x4z"
DEFAULT: Written = {(CHAT, "vllm"): make.graphs_log()}


class OfEngines(Verdicts):
    """With a short way to what was learned of the engines."""

    def engines(self, pod: str = CHAT) -> list[dict[str, Any]]:
        assert isinstance(self.learned, Known)
        return next(facts["engines"] for ref, facts in self.learned.value.known() if ref.name == pod)

    @property
    def engine(self) -> dict[str, Any]:
        (only,) = self.engines()
        return only


def judged_engines(
    *items: Mapping[str, Any],
    written: Written | None = DEFAULT,
    policy: Policy | None = None,
    arguments: Mapping[Argument[Any], Any] = {},
    **reader: Any,
) -> OfEngines:
    """Judges these objects, with a node of two GPUs beside them if none is given."""
    everything = items if any(each["kind"] == "Node" for each in items) else (*items, make.node())
    door = MemoryReader(list(everything), written=written, **reader)
    found = judged_by(vllm_mode.CHECK, door, policy, arguments)
    return OfEngines(found.judgements, found.learned)
