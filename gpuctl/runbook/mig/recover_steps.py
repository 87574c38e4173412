"""The steps after MIG manager was restarted, or in its place: follow it, give operands back their labels, and
believe nothing that nvidia-smi, labels and capacity do not say together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final

from gpuctl.facts.fact import Fact
from gpuctl.facts.gather import Facts
from gpuctl.facts.state import Known, attempt
from gpuctl.nvidia.comparison import wrong_labels
from gpuctl.nvidia.model import Hardware
from gpuctl.nvidia.node import CONFIG, Node
from gpuctl.nvidia.objects import GpuPod, NodeView
from gpuctl.nvidia.operands import DEPLOY, MANAGER
from gpuctl.runbook.drain.candidates import listed
from gpuctl.runbook.drain.cordon import OnNode as StepOnNode
from gpuctl.runbook.drain.cordon import annotated, unannotated
from gpuctl.runbook.mig.change import Wish, fits
from gpuctl.runbook.mig.facts import AT_REST, FAILED, SUCCESS, the_GPU_node, written
from gpuctl.runbook.mig.operand_pods import is_ready
from gpuctl.runbook.mig.standing import STILL, misoffered, unfinished
from gpuctl.runbook.mig.steps import TIMEOUT, VerifyAgain, wedge
from gpuctl.runbook.mig.words import log_of, paused, shown_state
from gpuctl.runbook.target import NODE, SELF
from gpuctl.runbook.writer import Change, Put, Test, Writer, pointer

RESUMED_BY: Final = "gpuctl.dev/operands-resumed-by"
QUIET: Final = timedelta(seconds=120)  # in which a MIG manager that was started has said something
KUBELET: Final = 600.0  # seconds: the kubelet keeps a gone plugin's resources for five minutes


def another_label(name: str, config: str, view: NodeView) -> str:
    """That somebody asks for something else meanwhile; empty if not."""
    found = view.metadata.labels.get(CONFIG, "")
    if found == config:
        return ""
    return f"somebody set {CONFIG} of node {name} to {found or 'nothing'} meanwhile; it was {config}"


class FollowRestart(StepOnNode, frozen=True, kw_only=True):
    """Follows the MIG manager that was started to the end of its check: success, or not. `told`: when the
    state of before was written. A state of then is no answer, unless the GPUs are as `wanted`: then it finds
    nothing to do, and to write the same word again leaves no trace."""

    config: str
    wanted: tuple[Wish, ...] = ()
    told: datetime | None = None
    timeout: float = TIMEOUT

    @property
    def says(self) -> str:
        return f"follow MIG manager on node {self.node} through its check of {self.config}"

    @property
    def limit(self) -> float:
        return self.timeout

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        return (NODE, SELF, the_GPU_node, AT_REST.hardware)

    def holds(self, facts: Facts) -> bool:
        node = facts[the_GPU_node]
        if self._foreign(facts) or node.state != SUCCESS or node.change is not None or not node.ready:
            return False
        hardware = facts[AT_REST.hardware] if not self._anew(node) else None
        return hardware is None or (fits(self.wanted, hardware) and not any(unfinished(hardware)))

    def stuck(self, facts: Facts) -> str:
        node = facts[the_GPU_node]
        if self._foreign(facts):
            return self._foreign(facts)
        silent = self._said_nothing(node, facts.now)
        if node.state == SUCCESS and not self._anew(node) and silent:
            return (
                f"MIG manager was started on node {self.node} and says nothing, while the GPUs are not as "
                f"{self.config} asks; see its log: {log_of(_managers(node))}"
            )
        if node.state == FAILED and (self._anew(node) or silent):
            held = f"; operands are paused: {paused(node)}" if node.paused else ""
            return (
                f"MIG manager failed again to make {self.config} on node {self.node}{held}; why is in its "
                f"log: {log_of(_managers(node))}"
            )
        return wedge(node, self.timeout)

    def progress(self, facts: Facts) -> str:
        node = facts[the_GPU_node]
        return shown_state(node) + ("" if node.ready else "; the node is not Ready")

    def _foreign(self, facts: Facts) -> str:
        return self.replaced(facts) or another_label(self.node, self.config, facts[NODE])

    def _anew(self, node: Node) -> bool:
        """Whether the state was written since the plan was made."""
        told = written(node.view, "state")
        return told is not None and (self.told is None or told > self.told)

    def _said_nothing(self, node: Node, now: datetime) -> bool:
        """One that fails at once where it failed before writes the same word again, without a trace."""
        starts = [
            each.state.running.started_at
            for pod in _managers(node)
            for each in pod.status.container_statuses
            if each.state.running and each.state.running.started_at
        ]
        return bool(starts) and now - max(starts) > QUIET


def _managers(node: Node) -> tuple[GpuPod, ...]:
    return node.operands.get(MANAGER, ())


class VerifyRecovered(VerifyAgain, frozen=True, kw_only=True):
    """As after a change of the configuration, but the label is not one that this run has set."""

    def agrees(self, node: Node, hardware: Hardware) -> bool:
        return super().agrees(node, hardware) and not any(unfinished(hardware))

    def foreign(self, facts: Facts) -> str:
        return self.replaced(facts) or another_label(self.node, self.config, facts[NODE])


def relabelled(view: NodeView, old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Change]:
    """The patch of the labels that are still as of old."""
    for name, text in new.items():
        if name in old and view.metadata.labels.get(name) == old[name]:
            path = pointer("metadata", "labels", name)
            yield from (Test(path, old[name]), Put(path, text))


class ResumeOperands(StepOnNode, frozen=True, kw_only=True):
    """Sets labels of paused operands back to what they were. `paused` and `was` by the name of the label."""

    paused: Mapping[str, str]
    was: Mapping[str, str]

    @property
    def says(self) -> str:
        return f"set {self._shown(self.was)} on node {self.node}"

    @property
    def undoes(self) -> str:
        return f"set {self._shown(self.paused)} on node {self.node} again"

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        return (NODE, SELF)

    def holds(self, facts: Facts) -> bool:
        labels = facts[NODE].metadata.labels
        return not self.replaced(facts) and all(labels.get(name) == text for name, text in self.was.items())

    def stuck(self, facts: Facts) -> str:
        labels = facts[NODE].metadata.labels
        other = [
            f"{name}={labels.get(name, '')}"
            for name, text in self.was.items()
            if labels.get(name) not in (text, self.paused[name])
        ]
        if other:
            return f"somebody else changed labels of node {self.node} meanwhile: {listed(other)}"
        if self.marked(facts, RESUMED_BY) == facts[SELF].run and not self.holds(facts):
            return f"the operands of node {self.node} were resumed by this run, and paused again by another"
        return self.replaced(facts)

    def act(self, facts: Facts, writer: Writer) -> None:
        mark = annotated(facts[NODE], RESUMED_BY, facts[SELF].run)
        changes = relabelled(facts[NODE], self.paused, self.was)
        writer.patch(self.ref, self.node_uid, (*changes, *mark))

    def undone(self, facts: Facts) -> bool:
        return bool(self.replaced(facts)) or self.marked(facts, RESUMED_BY) != facts[SELF].run

    def undo(self, facts: Facts, writer: Writer) -> None:
        """Only what is still as this run has set it."""
        mark = unannotated(RESUMED_BY, facts[SELF].run)
        changes = relabelled(facts[NODE], self.was, self.paused)
        writer.patch(self.ref, self.node_uid, (*changes, *mark))

    def _shown(self, labels: Mapping[str, str]) -> str:
        return ", ".join(f"{name.removeprefix('nvidia.com/')}={text}" for name, text in labels.items())


class OperandsRun(StepOnNode, frozen=True, kw_only=True):
    """Waits until operands run. `operands` by name, as in their labels."""

    seconds: ClassVar[float] = 600.0

    operands: tuple[str, ...]

    @property
    def says(self) -> str:
        return f"wait until {' and '.join(self.operands)} run on node {self.node}"

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        return (NODE, SELF, the_GPU_node)

    def holds(self, facts: Facts) -> bool:
        return not self.replaced(facts) and not any(True for _ in self._missing(facts[the_GPU_node]))

    def stuck(self, facts: Facts) -> str:
        return self.replaced(facts)

    def progress(self, facts: Facts) -> str:
        return "; ".join(self._missing(facts[the_GPU_node]))

    def _missing(self, node: Node) -> Iterator[str]:
        for name in self.operands:
            pods = node.operands.get(name, ())
            if node.labels.get(DEPLOY + name) == "false":
                continue
            if not any(map(is_ready, pods)):
                yield f"{name} is not Ready ({DEPLOY}{name} is {node.labels.get(DEPLOY + name, 'not there')})"


class OfferHardware(StepOnNode, frozen=True, kw_only=True):
    """Waits until the node offers what nvidia-smi shows, and all of it can be allocated. `described`: labels
    of GPU feature discovery must tell the same."""

    seconds: ClassVar[float] = KUBELET
    pause: ClassVar[float] = 5.0

    described: bool = False

    @property
    def says(self) -> str:
        labels = "labels, " if self.described else ""
        return f"verify that nvidia-smi, {labels}capacity and allocatable of node {self.node} agree"

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        return (NODE, SELF, the_GPU_node, STILL.hardware)

    def holds(self, facts: Facts) -> bool:
        left = list(self._left(facts))
        return not self.replaced(facts) and facts[the_GPU_node].ready and not left

    def stuck(self, facts: Facts) -> str:
        return self.replaced(facts)

    def progress(self, facts: Facts) -> str:
        known = attempt(lambda: list(self._left(facts)))
        if not isinstance(known, Known):
            return str(known)
        kubelet = "; the kubelet reports old resources for up to 6 min" if known.value else ""
        return listed(known.value) + kubelet

    def _left(self, facts: Facts) -> Iterator[str]:
        node, hardware = facts[the_GPU_node], facts[STILL.hardware]
        if self.described:
            if not node.described:
                yield "GPU feature discovery has not described the GPUs yet"
            yield from map(str, wrong_labels(node, hardware))
        yield from misoffered(node, hardware, whole=True)
