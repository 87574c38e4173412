"""The steps that change a node's MIG configuration, once it is cordoned and its GPUs are idle.

MIG manager does the change; these steps ask for it, follow it, and believe nothing that nvidia-smi, labels
and the kubelet do not say together. What they need to know of the time before is in their fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final

from gpuctl.facts.fact import Fact
from gpuctl.facts.gather import Facts
from gpuctl.facts.kinds import Rule
from gpuctl.facts.state import Known, attempt
from gpuctl.nvidia.comparison import of_hardware, stale, unhealthy, wrong_capacity, wrong_labels
from gpuctl.nvidia.model import Hardware
from gpuctl.nvidia.node import CONFIG, Node
from gpuctl.nvidia.objects import GpuPod
from gpuctl.nvidia.operands import MANAGER
from gpuctl.runbook.drain.candidates import DrainRules, listed
from gpuctl.runbook.drain.cordon import OnNode as StepOnNode
from gpuctl.runbook.drain.cordon import annotated
from gpuctl.runbook.drain.draining import CLAIMS, PODS, candidates
from gpuctl.runbook.drain.idle import held_by, holders
from gpuctl.runbook.mig.change import Wish, fits, layout, unlike
from gpuctl.runbook.mig.facts import (
    AGAIN_AFTER,
    AT_REST,
    BACK,
    BEFORE_THE_WAY_BACK,
    IN_DOUBT,
    LATER,
    ON_THE_WAY_BACK,
    SET_BY,
    SUCCESS,
    UNDER_WAY,
    answered,
    at_it_for,
    failed,
    seems_at_it_for,
    the_GPU_node,
    the_GPU_node_a_while_later,
    written,
)
from gpuctl.runbook.mig.words import log_of, minutes, paused, retry, shown_state
from gpuctl.runbook.target import NODE, SELF
from gpuctl.runbook.writer import Drop, Put, Test, Writer, pointer

TIMEOUT: Final = 1800  # seconds: MIG manager waits 5 min for each of five operands
_LABEL: Final = pointer("metadata", "labels", CONFIG)
_MARK: Final = pointer("metadata", "annotations", SET_BY)
_CORDONED: Final = Test("/spec/unschedulable", True)
_APART: Final = timedelta(seconds=2)  # times of writes are kept in whole seconds
_BEGUN: Final = timedelta(seconds=10)  # by then MIG manager is at the next configuration, if there is one


def disagreements(
    node: Node, hardware: Hardware, wanted: Sequence[Wish], *, described: bool, whole: bool = True
) -> Iterator[str]:
    """Where what is wished, hardware, labels, capacity and allocatable do not agree. `described`: labels of
    GPU feature discovery must be there; `whole`: devices that are unhealthy count. Raises NotKnown."""
    yield from unlike(wanted, hardware)
    if described and not node.described:
        yield "GPU feature discovery has not described the GPUs yet"
    if node.invalid:
        yield f"nvidia.com/gpu.product is {node.label('gpu.product')}"
    offered = of_hardware(node, hardware)
    gaps = (
        *wrong_labels(node, hardware),
        *wrong_capacity(offered, node.capacity),
        *stale(offered, node.capacity),
        *(unhealthy(node) if whole else ()),
    )
    yield from dict.fromkeys(map(str, gaps))


def _managers(node: Node) -> tuple[GpuPod, ...]:
    return node.operands.get(MANAGER, ())


def wedge(node: Node, limit: float) -> str:
    """That MIG manager has stood still for too long, and its documented way out; empty if it has not."""
    stands = at_it_for(node)
    if stands < timedelta(seconds=limit):
        return ""
    held = f", operands paused: {paused(node)}" if node.paused else ""
    way_out = retry(*_managers(node))
    return (
        f"MIG manager is wedged: its state is {node.state} for {minutes(stands)} without progress{held}; its "
        f"way out: {way_out}, then resume or undo the run"
    )


class OfChange(StepOnNode, frozen=True, kw_only=True):
    """A step after the label was set: it watches that the label stays what this run set."""

    config: str
    timeout: float = TIMEOUT

    @property
    def limit(self) -> float:
        return self.timeout

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        return (NODE, SELF, the_GPU_node)

    @property
    def rules(self) -> frozenset[Rule]:
        return frozenset()

    def foreign(self, facts: Facts) -> str:
        """That the label is not, or no longer, what this run set; empty while it is."""
        if self.replaced(facts):
            return self.replaced(facts)
        found, mark = facts[NODE].metadata.labels.get(CONFIG, ""), self.marked(facts, SET_BY)
        if found != self.config:
            return (
                f"somebody else set {CONFIG} of node {self.node} to {found or 'nothing'}, while this run "
                f"changes it to {self.config}"
            )
        if mark != facts[SELF].run:
            return (
                f"{CONFIG}={found} of node {self.node} bears the mark of {mark or 'nobody'}, not of this run"
            )
        return ""

    def stuck(self, facts: Facts) -> str:
        return self.foreign(facts)


class SetConfig(StepOnNode, frozen=True, kw_only=True):
    """Asks MIG manager for another configuration, and on the way back for the old one.

    `old` is what the label was, empty for none; `restores` what it will bring back on each GPU, empty where
    that is not known: then the way back gives the label back and no more. `deployed`: what labels of operands
    were, for whoever has to set them back after MIG manager stood still with them paused.
    """

    old: str
    new: str
    restores: tuple[Wish, ...] = ()
    deployed: Mapping[str, str] = {}
    described: bool = True
    timeout: float = TIMEOUT

    @property
    def says(self) -> str:
        return f"set {CONFIG} of node {self.node} to {self.new} (was {self.old or 'not set'})"

    @property
    def undoes(self) -> str:
        if not self.old:
            return f"take {CONFIG} away from node {self.node}: the GPUs stay as they are by then"
        rest = "and wait until the GPUs are as before" if self.restores else "which gives no GPU back"
        return f"set {CONFIG} of node {self.node} back to {self.old}, {rest}"

    @property
    def limit(self) -> float:
        """On the way back MIG manager may first have to end what it is at."""
        return 2 * self.timeout

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        back = (ON_THE_WAY_BACK.hardware, BEFORE_THE_WAY_BACK.first, BEFORE_THE_WAY_BACK.later)
        return (NODE, SELF, the_GPU_node, *back, PODS, CLAIMS)

    # Forward

    def holds(self, facts: Facts) -> bool:
        ours = self.marked(facts, SET_BY) == facts[SELF].run
        return not self.replaced(facts) and ours and self._label(facts) == self.new

    def stuck(self, facts: Facts) -> str:
        if self.replaced(facts):
            return self.replaced(facts)
        node, found = facts[the_GPU_node], self._label(facts)
        if found != self.old or self.marked(facts, SET_BY) == facts[SELF].run:
            return (
                f"somebody else set {CONFIG} of node {self.node} to {found or 'nothing'}; the plan was made "
                f"for a change from {self.old or 'nothing'}"
            )
        if node.state in UNDER_WAY or node.paused:
            return f"MIG manager is at work on node {self.node} on something else: {shown_state(node)}"
        held = self._holders(facts)
        return (
            f"GPUs of node {self.node} are in use again, by {held}: resuming drains it anew" if held else ""
        )

    def act(self, facts: Facts, writer: Writer) -> None:
        """In another second than the state that stands was written, so that an answer is known as one."""
        if not self._told_within(facts, _APART):
            self._ask(facts, writer, self.new, facts[SELF].run)

    # Back

    def undone(self, facts: Facts) -> bool:
        """Once the node bears no mark of this run any more: it is taken away last."""
        run = facts[SELF].run
        return bool(self.replaced(facts)) or self.marked(facts, SET_BY) not in (run, run + BACK)

    def hampered(self, facts: Facts) -> str:
        node, found = facts[the_GPU_node], self._label(facts)
        if failed(node) and (self._going_back(facts) or found not in (self.old, self.new)):
            return (
                f"MIG manager failed to apply {found or 'nothing'} on node {self.node}: see "
                f"{log_of(_managers(node))}; to let it try again: {retry(*_managers(node))}, then undo again"
            )
        if self._going_back(facts):
            return wedge(node, self.timeout) or self._lie(facts)
        if found == self.new and self.restores:
            held = self._holders(facts)
            if held:
                return f"GPUs of node {self.node} are in use by {held}, and can't be sliced back meanwhile"
            return held_by(BEFORE_THE_WAY_BACK.stay(facts), self.node)
        return ""

    def undo(self, facts: Facts, writer: Writer) -> None:
        """The label first, with the mark of the way back; the mark last."""
        run, found = facts[SELF].run, self._label(facts)
        if not self._going_back(facts) and found == self.new:
            if not self._must_wait(facts):
                self._ask(facts, writer, self.old, run + BACK)
        elif not self._going_back(facts) and found == self.old:
            writer.patch(self.ref, self.node_uid, (Test(_MARK, run), Put(_MARK, run + BACK)))
        elif self._restored(facts):
            writer.patch(self.ref, self.node_uid, (Test(_MARK, self._mark(facts)), Drop(_MARK)))

    def progress(self, facts: Facts) -> str:
        if self.marked(facts, SET_BY) == "":
            return ""
        node, hardware = facts[the_GPU_node], facts.state(ON_THE_WAY_BACK.hardware)
        left = (
            list(disagreements(node, hardware.value, self.restores, described=self.described, whole=False))
            if isinstance(hardware, Known) and self._going_back(facts) and self.restores
            else []
        )
        if node.paused and node.state not in UNDER_WAY:
            left.append(f"operands were left paused; the way out, if it lasts: {retry(*_managers(node))}")
        return "; ".join((shown_state(node), *left[:5]))

    def _must_wait(self, facts: Facts) -> bool:
        """Until it has ended what it is at: values that change under it may be lost. One that stands still,
        or is gone, is not waited for; nor is a second in which times would be alike."""
        if self._told_within(facts, _APART):
            return True
        node = facts[the_GPU_node]
        return node.state in UNDER_WAY and bool(_managers(node)) and not wedge(node, self.timeout)

    def _restored(self, facts: Facts) -> bool:
        """Whether nothing is under way, and the GPUs are what the label as it is now makes of them."""
        node = facts[the_GPU_node]
        if node.change is not None or not node.ready:
            return False
        found = self._label(facts)
        if found != self.old:  # another's, whose matter the GPUs are; success may still be of what was before
            return node.state == SUCCESS and answered(node.view) and not self._told_within(facts, _BEGUN)
        if not self.restores:
            return True
        hardware = facts[ON_THE_WAY_BACK.hardware]
        left = disagreements(node, hardware, self.restores, described=self.described, whole=False)
        return node.state == SUCCESS and not any(True for _ in left)

    @staticmethod
    def _told_within(facts: Facts, span: timedelta) -> bool:
        """Whether MIG manager's state was written so lately. One from the future is a matter of clocks."""
        told = written(facts[NODE], "state")
        return told is not None and timedelta() <= facts.now - told < span

    def _lie(self, facts: Facts) -> str:
        """That it says success over what is not so; empty if it does not."""
        node, hardware = facts[the_GPU_node], facts.state(ON_THE_WAY_BACK.hardware)
        if not self.restores or node.state != SUCCESS or not answered(node.view):
            return ""
        return _untrue(self.node, hardware.value, self.restores) if isinstance(hardware, Known) else ""

    def _ask(self, facts: Facts, writer: Writer, config: str, mark: str) -> None:
        """One patch: on the label as it was seen, on a node that is cordoned."""
        there = facts[NODE].metadata
        label = Put(_LABEL, config) if config else Drop(_LABEL)
        seen = Test(_LABEL, there.labels.get(CONFIG))
        changes = (_CORDONED, seen, label, *annotated(facts[NODE], SET_BY, mark))
        writer.patch(self.ref, self.node_uid, changes)

    def _holders(self, facts: Facts) -> str:
        """The pods that hold GPUs now, maybe bound behind the cordon since they were seen idle."""
        held = holders(candidates(facts[PODS], facts.state(CLAIMS), DrainRules()))
        return listed([str(each.pod) for each in held])

    def _label(self, facts: Facts) -> str:
        return facts[NODE].metadata.labels.get(CONFIG, "")

    def _mark(self, facts: Facts) -> str:
        return self.marked(facts, SET_BY)

    def _going_back(self, facts: Facts) -> bool:
        return self._mark(facts) == facts[SELF].run + BACK


def _untrue(name: str, hardware: Hardware, wanted: Sequence[Wish]) -> str:
    known = attempt(lambda: list(unlike(wanted, hardware)))
    found = known.value if isinstance(known, Known) else []
    return (
        f"MIG manager says success on node {name}, but nvidia-smi shows {'; '.join(found)}" if found else ""
    )


class Follow(OfChange, frozen=True, kw_only=True):
    """Follows MIG manager to its end: pending, maybe a reboot, then success or not. `boot`: the boot id of
    before."""

    wanted: tuple[Wish, ...]
    boot: str = ""

    @property
    def says(self) -> str:
        return f"follow MIG manager on node {self.node} to {self.config}"

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        return (*super().needs, IN_DOUBT.hardware)

    def holds(self, facts: Facts) -> bool:
        """A state of before our label is no answer, unless there was nothing to do."""
        node = facts[the_GPU_node]
        if self.foreign(facts) or node.state != SUCCESS:
            return False
        if answered(node.view):
            return True
        hardware = facts.state(IN_DOUBT.hardware)
        return isinstance(hardware, Known) and fits(self.wanted, hardware.value)

    def stuck(self, facts: Facts) -> str:
        node = facts[the_GPU_node]
        if self.foreign(facts):
            return self.foreign(facts)
        if failed(node):
            held = f"; operands are still paused: {paused(node)}" if node.paused else ""
            return (
                f"MIG manager failed to apply {self.config} on node {self.node}{held}; why is in its log: "
                f"{log_of(_managers(node))}. Its GPUs may be without instances now. To go back: undo the "
                f"run; to let it try again: {retry(*_managers(node))}, then resume the run"
            )
        return wedge(node, self.timeout)

    def progress(self, facts: Facts) -> str:
        node = facts[the_GPU_node]
        return "; ".join(self._waits(node))

    def _waits(self, node: Node) -> Iterator[str]:
        yield shown_state(node)
        if not node.ready:
            yield "the node is not Ready: its kubelet is stopped for the change, or it reboots"
        boot = node.view.status.node_info.boot_id
        if self.boot and boot and boot != self.boot:
            yield "it was rebooted"
        known = attempt(lambda: _managers(node))
        if isinstance(known, Known) and not any(pod.running for pod in known.value):
            yield "MIG manager does not run there"
        elif node.state in UNDER_WAY and seems_at_it_for(node) >= timedelta(seconds=self.timeout / 3):
            yield f"it may be wedged; its way out would be: {retry(*_managers(node))}"


class Settled(OfChange, frozen=True, kw_only=True):
    """Waits until the operands are back. `operands`: those that ran before; `anew`: they must have been
    started since, for they look at the GPUs only then."""

    operands: tuple[str, ...]
    anew: bool = True

    @property
    def says(self) -> str:
        return f"wait until {' and '.join(self.operands) or 'all operands'} are back on node {self.node}"

    def holds(self, facts: Facts) -> bool:
        return not self.foreign(facts) and not any(True for _ in self._missing(facts[the_GPU_node]))

    def progress(self, facts: Facts) -> str:
        return "; ".join(self._missing(facts[the_GPU_node]))

    def _missing(self, node: Node) -> Iterator[str]:
        if not node.ready:
            yield "the node is not Ready"
        if node.change is not None:
            yield node.change.what
        if node.paused and node.state == SUCCESS:
            yield f"MIG manager left them so; its way out, if it lasts: {retry(*_managers(node))}"
        asked = written(node.view, "config")
        for name in self.operands:
            pods = node.operands.get(name, ())
            if node.label(f"gpu.deploy.{name}") == "false":
                continue
            if not pods or not all(map(_ready, pods)):
                yield f"{name} is not Ready"
            elif self.anew and asked and any(_is_older(pod, asked) for pod in pods):
                yield f"{name} is the one of before the change"


def _ready(pod: GpuPod) -> bool:
    statuses = pod.status.container_statuses
    return pod.running and bool(statuses) and all(each.ready for each in statuses)


def _is_older(pod: GpuPod, moment: datetime) -> bool:
    made = pod.metadata.creation_timestamp
    return made is None or made < moment


class Verify(OfChange, frozen=True, kw_only=True):
    """Waits until hardware, labels, capacity and allocatable agree on what was asked for."""

    pause: ClassVar[float] = 5.0

    wanted: tuple[Wish, ...]
    described: bool = True

    @property
    def says(self) -> str:
        return f"verify that nvidia-smi, labels, capacity and allocatable of node {self.node} agree"

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        return (*super().needs, AT_REST.hardware)

    def holds(self, facts: Facts) -> bool:
        return not self.foreign(facts) and self.agrees(facts[the_GPU_node], facts[AT_REST.hardware])

    def agrees(self, node: Node, hardware: Hardware) -> bool:
        """Whether one look shows what was asked for. Raises NotKnown."""
        left = disagreements(node, hardware, self.wanted, described=self.described)
        return node.state == SUCCESS and node.ready and not any(True for _ in left)

    def stuck(self, facts: Facts) -> str:
        node, hardware = facts[the_GPU_node], facts.state(AT_REST.hardware)
        if self.foreign(facts):
            return self.foreign(facts)
        if isinstance(hardware, Known) and node.state == SUCCESS:
            return _untrue(self.node, hardware.value, self.wanted)
        return ""

    def progress(self, facts: Facts) -> str:
        node, hardware = facts[the_GPU_node], facts.state(AT_REST.hardware)
        if not isinstance(hardware, Known):
            return f"nvidia-smi: {hardware}"
        left = list(disagreements(node, hardware.value, self.wanted, described=self.described))
        kubelet = "; the kubelet reports old resources for up to 6 min" if left else ""
        return "; ".join(left[:5]) + kubelet


class VerifyAgain(Verify, frozen=True, kw_only=True):
    """Looks twice in a row, some seconds apart: both must show the same, and what was asked for."""

    @property
    def says(self) -> str:
        return f"verify node {self.node} again, twice within {AGAIN_AFTER:g} s"

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        return (*super().needs, the_GPU_node_a_while_later, LATER.hardware)

    def holds(self, facts: Facts) -> bool:
        if not super().holds(facts):
            return False
        node, hardware = facts[the_GPU_node_a_while_later], facts[LATER.hardware]
        same = layout(hardware) == layout(facts[AT_REST.hardware])
        return same and node.config == self.config and self.agrees(node, hardware)
