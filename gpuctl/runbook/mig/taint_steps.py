"""The steps that put a taint of gpuctl's on a node, and take it away.

The mark goes with the taint in one patch: a taint of this key without the mark is another's, and is left
alone. The list of taints can only be replaced as a whole, so each patch tests that it is still the one seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gpuctl.facts.fact import Fact
from gpuctl.facts.gather import Facts
from gpuctl.facts.objects import Taint
from gpuctl.runbook.drain.cordon import OnNode as StepOnNode
from gpuctl.runbook.drain.cordon import annotated, unannotated
from gpuctl.runbook.mig.taints import TAINTED, TaintedNode, taint_of
from gpuctl.runbook.target import NODE, SELF
from gpuctl.runbook.writer import Change, Drop, Put, Test, Writer

KEY: Final = "gpuctl.dev/mig-not-as-labelled"
EFFECT: Final = "NoSchedule"
TAINTED_BY: Final = "gpuctl.dev/mig-tainted-by"
_TAINTS: Final = "/spec/taints"


def the_taint(value: str) -> Taint:
    """The taint of a node that was asked for this configuration."""
    return Taint(KEY, EFFECT, value)


def found(node: TaintedNode) -> Taint | None:
    """The taint of this kind that the node has, whoever put it there."""
    return next((each for each in node.taints if (each.key, each.effect) == (KEY, EFFECT)), None)


def mark_of(node: TaintedNode) -> str:
    """The run that put it there; empty if none of gpuctl's did."""
    return node.metadata.annotations.get(TAINTED_BY, "")


def _as_seen(node: TaintedNode) -> Test:
    """That the list of taints is still the one that was seen."""
    return Test(_TAINTS, list(node.spec.taints) or None)


def putting(node: TaintedNode, value: str) -> Sequence[Change]:
    """The patch that puts the taint there."""
    added: Mapping[str, Any] = {"key": KEY, "value": value, "effect": EFFECT}
    return _as_seen(node), Put(_TAINTS, [*node.spec.taints, added])


def taking(node: TaintedNode) -> Sequence[Change]:
    """The patch that takes it away; none where there is none."""
    rest = [each for each in node.spec.taints if not _is_ours(taint_of(each))]
    if len(rest) == len(node.spec.taints):
        return ()
    return _as_seen(node), (Put(_TAINTS, rest) if rest else Drop(_TAINTS))


def _is_ours(taint: Taint) -> bool:
    return (taint.key, taint.effect) == (KEY, EFFECT)


class _OnTaints(StepOnNode, frozen=True, kw_only=True):
    value: str = ""

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        return (NODE, SELF, TAINTED)

    def _put(self, facts: Facts, writer: Writer, mark: str) -> None:
        changes = (*putting(facts[TAINTED], self.value), *annotated(facts[NODE], TAINTED_BY, mark))
        writer.patch(self.ref, self.node_uid, changes)

    def _take(self, facts: Facts, writer: Writer, mark: str) -> None:
        """Also where somebody took the taint away by hand: then the mark is all that is left."""
        changes = (*unannotated(TAINTED_BY, mark), *taking(facts[TAINTED]))
        writer.patch(self.ref, self.node_uid, changes)


class PutTaint(_OnTaints, frozen=True, kw_only=True):
    """Keeps new pods off the node, unless they tolerate the taint. Those that run there stay."""

    @property
    def says(self) -> str:
        return f"taint node {self.node} {the_taint(self.value)}"

    @property
    def undoes(self) -> str:
        return f"take the taint {KEY} away from node {self.node}"

    def holds(self, facts: Facts) -> bool:
        ours = mark_of(facts[TAINTED]) == facts[SELF].run
        return not self.replaced(facts) and ours and found(facts[TAINTED]) is not None

    def stuck(self, facts: Facts) -> str:
        there, mark = found(facts[TAINTED]), mark_of(facts[TAINTED])
        if there is not None and mark != facts[SELF].run:
            whose = f"run {mark}" if mark else "another"
            return f"node {self.node} bears the taint {there} already, of {whose}"
        if there is None and mark == facts[SELF].run:
            return f"somebody took the taint of this run away from node {self.node}"
        return self.replaced(facts)

    def act(self, facts: Facts, writer: Writer) -> None:
        self._put(facts, writer, facts[SELF].run)

    def undone(self, facts: Facts) -> bool:
        return bool(self.replaced(facts)) or mark_of(facts[TAINTED]) != facts[SELF].run

    def undo(self, facts: Facts, writer: Writer) -> None:
        self._take(facts, writer, facts[SELF].run)


class TakeTaint(_OnTaints, frozen=True, kw_only=True):
    """Lets pods onto the node again. `mark`: the run that put the taint there; no other's is taken away."""

    mark: str

    @property
    def says(self) -> str:
        return f"take the taint {KEY} of run {self.mark} away from node {self.node}"

    @property
    def undoes(self) -> str:
        return f"taint node {self.node} {the_taint(self.value)} again" if self.value else ""

    def holds(self, facts: Facts) -> bool:
        return not self.replaced(facts) and found(facts[TAINTED]) is None and not mark_of(facts[TAINTED])

    def stuck(self, facts: Facts) -> str:
        mark = mark_of(facts[TAINTED])
        if mark != self.mark and not self.holds(facts):
            whose = f"run {mark}" if mark else "another"
            return f"the taint of node {self.node} is of {whose} now, not of run {self.mark}"
        return self.replaced(facts)

    def act(self, facts: Facts, writer: Writer) -> None:
        self._take(facts, writer, self.mark)

    def undone(self, facts: Facts) -> bool:
        """Once it is as before, or of somebody else."""
        there = found(facts[TAINTED]) is not None or bool(mark_of(facts[TAINTED]))
        return bool(self.replaced(facts)) or there or not self.value

    def undo(self, facts: Facts, writer: Writer) -> None:
        self._put(facts, writer, self.mark)
