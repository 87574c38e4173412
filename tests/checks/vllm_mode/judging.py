"""Runs the check over a cluster in memory, and says what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuctl.audit.finding import Finding
from gpuctl.audit.judge import Judgement, Verdict, judge
from gpuctl.audit.outcome import check_verdict
from gpuctl.audit.policy import POLICY, Policy
from gpuctl.checks.vllm_mode import CHECK
from gpuctl.facts.fact import Argument
from gpuctl.facts.gather import gather
from gpuctl.facts.state import Known, State, Unknown
from tests.builders import vllm as make
from tests.memory import MemoryReader

Written = Mapping[tuple[str, str], str | Unknown]
CHAT = "chat-7c9d5b8f4-x2x4z"
DEFAULT: Written = {(CHAT, "vllm"): make.graphs_log()}


@dataclass(frozen=True)
class Verdicts:
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
        return sorted(finding.code.id for finding in self.findings)

    def of(self, assertion: str) -> Judgement:
        return next(each for each in self.judgements if each.assertion.id == assertion)

    def one(self, code: str) -> Finding:
        found = [finding for finding in self.findings if finding.code.id == code]
        assert len(found) == 1, self.codes
        return found[0]

    def engines(self, pod: str = CHAT) -> list[dict[str, Any]]:
        assert isinstance(self.learned, Known)
        return next(facts["engines"] for ref, facts in self.learned.value.known() if ref.name == pod)

    @property
    def engine(self) -> dict[str, Any]:
        (only,) = self.engines()
        return only


def judged(
    *items: Mapping[str, Any],
    written: Written | None = DEFAULT,
    policy: Policy | None = None,
    arguments: Mapping[Argument[Any], Any] = {},
    **reader: Any,
) -> Verdicts:
    """Judges these objects, with a node of two GPUs beside them if none is given."""
    everything: Sequence[Mapping[str, Any]] = items
    if not any(each["kind"] == "Node" for each in items):
        everything = (*items, make.node())
    door = MemoryReader(list(everything), written=written, **reader)
    facts = gather(CHECK.needs, door, {POLICY: policy or Policy(), **arguments})
    assert CHECK.learned is not None
    return Verdicts(tuple(judge(each, facts) for each in CHECK.assertions), facts.state(CHECK.learned))
