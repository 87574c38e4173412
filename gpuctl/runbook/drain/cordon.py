"""The steps that keep others away from a node: the cordon, and the word to NVSentinel to leave it alone. And
those that leave both to a person, for what is done to the node after the run.

Each puts its mark in the same patch as the change. What another did before, or in between, is never taken for
this run's, and never undone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from gpuctl.facts.fact import Fact
from gpuctl.facts.gather import Facts
from gpuctl.facts.kinds import Ref, Rule
from gpuctl.nvidia.objects import NodeView
from gpuctl.runbook.step import Step
from gpuctl.runbook.target import NODE, SELF
from gpuctl.runbook.writer import Change, Drop, Put, Test, Writer, pointer

CORDONED_BY: Final = "gpuctl.dev/cordoned-by"
DRAINED_BY: Final = "gpuctl.dev/drained-by"
SENTINEL_LABEL: Final = "k8saas.nvidia.com/ManagedByNVSentinel"
SENTINEL_KEPT_OFF_BY: Final = "gpuctl.dev/nvsentinel-kept-off-by"
SENTINEL_LEFT_OFF_BY: Final = "gpuctl.dev/nvsentinel-left-off-by"
PATCHES_NODES: Final = Rule("", "nodes", "patch")
_UNSCHEDULABLE: Final = "/spec/unschedulable"


class OnNode(Step, frozen=True, kw_only=True):
    """A step about one node, known by its uid: another may get its name."""

    node: str
    node_uid: str

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        return (NODE, SELF)

    @property
    def rules(self) -> frozenset[Rule]:
        return frozenset({PATCHES_NODES})

    @property
    def ref(self) -> Ref:
        """The node."""
        return Ref(NodeView.of, self.node)

    def replaced(self, facts: Facts) -> str:
        """That the node is another one now; empty if it is not."""
        uid = facts[NODE].metadata.uid
        if uid == self.node_uid:
            return ""
        return f"node {self.node} was replaced by another of the same name: uid {uid}, not {self.node_uid}"

    def marked(self, facts: Facts, mark: str) -> str:
        """Which run's mark the node bears; empty if none."""
        return facts[NODE].metadata.annotations.get(mark, "")


def annotated(node: NodeView, name: str, value: str) -> Sequence[Change]:
    """Puts an annotation in the place of what stands there. The first one of all needs a place."""
    if not node.metadata.annotations:
        return Test("/metadata/annotations", None), Put("/metadata/annotations", {name: value})
    path = pointer("metadata", "annotations", name)
    return Test(path, node.metadata.annotations.get(name)), Put(path, value)


def unannotated(name: str, value: str) -> Sequence[Change]:
    """Removes an annotation that has this value."""
    path = pointer("metadata", "annotations", name)
    return Test(path, value), Drop(path)


class Cordon(OnNode, frozen=True, kw_only=True):
    """Keeps the scheduler from the node to the end of the run. `before`: it was cordoned when the plan was
    made, by somebody else: then it stays so."""

    held: ClassVar[bool] = True

    before: bool = False

    @property
    def says(self) -> str:
        return f"cordon node {self.node}" + (" (it is already, by another)" if self.before else "")

    @property
    def undoes(self) -> str:
        return "" if self.before else f"uncordon node {self.node}"

    def holds(self, facts: Facts) -> bool:
        return not self.replaced(facts) and facts[NODE].spec.unschedulable

    def stuck(self, facts: Facts) -> str:
        if self.marked(facts, CORDONED_BY) == facts[SELF].run:
            return f"node {self.node} was cordoned by this run, and uncordoned by somebody else"
        if self.before:
            return f"node {self.node} was cordoned when the plan was made, and is not any more"
        return self.replaced(facts)

    def act(self, facts: Facts, writer: Writer) -> None:
        """One patch, so that a cordon with the mark is ours, and one without is not. The mark of an earlier
        run on a node that is not cordoned is a left-over: somebody uncordoned it by hand."""
        marks = list(annotated(facts[NODE], CORDONED_BY, facts[SELF].run))
        drained = self.marked(facts, DRAINED_BY)
        if drained:
            marks += unannotated(DRAINED_BY, drained)
        writer.patch(self.ref, self.node_uid, (Test(_UNSCHEDULABLE, None), Put(_UNSCHEDULABLE, True), *marks))

    def undone(self, facts: Facts) -> bool:
        return bool(self.replaced(facts)) or self.marked(facts, CORDONED_BY) != facts[SELF].run

    def undo(self, facts: Facts, writer: Writer) -> None:
        """Also where somebody uncordoned it: then the mark is all that is left."""
        changes: list[Change] = [*unannotated(CORDONED_BY, facts[SELF].run)]
        if facts[NODE].spec.unschedulable:
            changes += (Test(_UNSCHEDULABLE, True), Drop(_UNSCHEDULABLE))
        writer.patch(self.ref, self.node_uid, changes)


class HandOver(OnNode, frozen=True, kw_only=True):
    """Leaves what a held step did to whoever began the run for a purpose of their own: its end does not undo
    that. `ours` is the mark of what the run undoes, `theirs` of what it leaves. Of what another did nothing
    has to be handed over."""

    ours: ClassVar[str]
    theirs: ClassVar[str]

    def stands(self, node: NodeView) -> bool:
        """Whether what is handed over is true of the node."""
        raise NotImplementedError

    def holds(self, facts: Facts) -> bool:
        handed = self.marked(facts, self.ours) != facts[SELF].run
        return not self.replaced(facts) and self.stands(facts[NODE]) and handed

    def stuck(self, facts: Facts) -> str:
        return self.replaced(facts)

    def act(self, facts: Facts, writer: Writer) -> None:
        self._rename(facts, writer, self.ours, self.theirs)

    def undone(self, facts: Facts) -> bool:
        return bool(self.replaced(facts)) or self.marked(facts, self.theirs) != facts[SELF].run

    def undo(self, facts: Facts, writer: Writer) -> None:
        self._rename(facts, writer, self.theirs, self.ours)

    def _rename(self, facts: Facts, writer: Writer, old: str, new: str) -> None:
        run = facts[SELF].run
        changes = (*unannotated(old, run), *annotated(facts[NODE], new, run))
        writer.patch(self.ref, self.node_uid, changes)


class StayCordoned(HandOver, frozen=True, kw_only=True):
    """Leaves the node cordoned."""

    ours: ClassVar[str] = CORDONED_BY
    theirs: ClassVar[str] = DRAINED_BY

    @property
    def says(self) -> str:
        return f"leave node {self.node} cordoned"

    @property
    def undoes(self) -> str:
        return f"take the cordon of node {self.node} back into the run"

    def stands(self, node: NodeView) -> bool:
        return node.spec.unschedulable


class KeepSentinelOff(OnNode, frozen=True, kw_only=True):
    """Tells NVSentinel to leave the node alone, before anything is done that it could take for a fault.

    `before`: the label's value when the plan was made; empty for none.
    """

    held: ClassVar[bool] = True

    before: str = ""

    @property
    def says(self) -> str:
        return f"tell NVSentinel to leave node {self.node} alone"

    @property
    def undoes(self) -> str:
        return f"let NVSentinel manage node {self.node} again"

    def holds(self, facts: Facts) -> bool:
        return not self.replaced(facts) and facts[NODE].metadata.labels.get(SENTINEL_LABEL) == "false"

    def stuck(self, facts: Facts) -> str:
        mark = self.marked(facts, SENTINEL_KEPT_OFF_BY)
        if mark:
            return f"node {self.node} bears the mark {SENTINEL_KEPT_OFF_BY}={mark}, and not the label of it"
        return self.replaced(facts)

    def act(self, facts: Facts, writer: Writer) -> None:
        """The mark of an earlier run beside another label is a left-over: somebody let it on by hand."""
        path = pointer("metadata", "labels", SENTINEL_LABEL)
        marks = list(annotated(facts[NODE], SENTINEL_KEPT_OFF_BY, facts[SELF].run))
        left = self.marked(facts, SENTINEL_LEFT_OFF_BY)
        if left:
            marks += unannotated(SENTINEL_LEFT_OFF_BY, left)
        writer.patch(self.ref, self.node_uid, (Test(path, self.before or None), Put(path, "false"), *marks))

    def undone(self, facts: Facts) -> bool:
        return bool(self.replaced(facts)) or self.marked(facts, SENTINEL_KEPT_OFF_BY) != facts[SELF].run

    def undo(self, facts: Facts, writer: Writer) -> None:
        path = pointer("metadata", "labels", SENTINEL_LABEL)
        changes: list[Change] = [*unannotated(SENTINEL_KEPT_OFF_BY, facts[SELF].run)]
        if facts[NODE].metadata.labels.get(SENTINEL_LABEL) == "false":
            back = Put(path, self.before) if self.before else Drop(path)
            changes += (Test(path, "false"), back)
        writer.patch(self.ref, self.node_uid, changes)


class LeaveSentinelOff(HandOver, frozen=True, kw_only=True):
    """Leaves NVSentinel off the node for the maintenance that a drain is for: it is done after the run."""

    ours: ClassVar[str] = SENTINEL_KEPT_OFF_BY
    theirs: ClassVar[str] = SENTINEL_LEFT_OFF_BY

    @property
    def says(self) -> str:
        return f"leave NVSentinel off node {self.node}"

    @property
    def undoes(self) -> str:
        return f"take the word to NVSentinel about node {self.node} back into the run"

    def stands(self, node: NodeView) -> bool:
        return node.metadata.labels.get(SENTINEL_LABEL) == "false"


def sentinel_steps(node: NodeView) -> tuple[KeepSentinelOff, ...]:
    """The step that keeps it off; none where it is not at work, or is kept off by somebody already."""
    before = node.metadata.labels.get(SENTINEL_LABEL, "")
    if before == "false" or not sees_sentinel(node):
        return ()
    return (KeepSentinelOff(node=node.metadata.name, node_uid=node.metadata.uid, before=before),)


def sees_sentinel(node: NodeView) -> bool:
    """Whether NVSentinel is at work on this node, by its labels."""
    return any(
        name.startswith(("k8saas.nvidia.com/", "dgxc.nvidia.com/nvsentinel")) for name in node.metadata.labels
    )
