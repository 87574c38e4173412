"""What the printed role says of a rule is so: without it exactly the assertions it names can't be judged."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpuctl.audit.judge import judge
from gpuctl.audit.permissions import Grant, grants
from gpuctl.checks.kueue_webhooks import CHECK
from gpuctl.cluster.snapshot import SnapshotReader, open_snapshot
from gpuctl.facts.gather import gather
from gpuctl.facts.kinds import Kind, Ref, Rule, View
from gpuctl.facts.state import Each, Known, Reason, State, Unknown

READS = [grant for grant in grants([CHECK]) if grant.reads]


@dataclass(frozen=True)
class Forbidding:
    """Reads a snapshot, and is refused one permission."""

    reader: SnapshotReader
    rule: Rule

    def __getattr__(self, name: str) -> Any:
        return getattr(self.reader, name)

    def objects(
        self, kind: Kind, labels: str, views: Sequence[type[View]]
    ) -> Sequence[State[Each[Ref, Any]]]:
        gap = self._gap(kind, "list")
        return [gap] * len(views) if gap else self.reader.objects(kind, labels, views)

    def within(self, view: type[View], namespaces: Collection[str]) -> State[Each[Ref, Any]]:
        gap = self._gap(view.of, "list")
        return Known(Each({}, (gap,))) if gap else self.reader.within(view, namespaces)

    def named(self, view: type[View], refs: Collection[Ref]) -> State[Each[Ref, Any]]:
        gap = self._gap(view.of, "get")
        return Known(Each(dict.fromkeys(refs, gap))) if gap else self.reader.named(view, refs)

    def _gap(self, kind: Kind, verb: str) -> Unknown | None:
        refused = (kind.group, kind.plural, verb) == (self.rule.group, self.rule.resource, self.rule.verb)
        return Unknown(Reason.FORBIDDEN, "no", str(kind)) if refused else None


def verdicts(reader: Any) -> dict[str, str]:
    facts = gather(CHECK.needs, reader, {})
    return {f"{CHECK.id}/{each.id}": judge(each, facts).verdict.value for each in CHECK.assertions}


@pytest.mark.parametrize("grant", READS, ids=lambda grant: str(grant.rule))
def test_without_a_rule_exactly_what_it_names_is_not_judged(unproven: Path, grant: Grant) -> None:
    """On a record without dry runs: a live run would try them elsewhere than where they were recorded."""
    whole = open_snapshot(unproven)
    before, after = verdicts(whole), verdicts(Forbidding(whole, grant.rule))
    changed = {name: after[name] for name in after if after[name] != before[name]}
    judged = {name for name in grant.assertions if before[name] in ("pass", "fail")}  # it holds no proof
    assert set(changed) == judged
    assert set(changed.values()) <= {"unknown", "not-proven"}


def test_nothing_is_declared_about_reads_that_are_not_made() -> None:
    from gpuctl.facts.fact import graph

    assert set(CHECK.needed_for) <= set(graph(CHECK.needs))
