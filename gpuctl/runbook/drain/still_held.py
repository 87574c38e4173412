"""What holds GPUs of a node and does not go with a drain: processes are told before, what is left after it.

A drain is done once its pods are gone, so nothing here stands in its way. What can't be read is unknown, and
never idle. Nodes without GPUs are not looked into.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, ClassVar, Final

from gpuctl.audit.finding import Finding
from gpuctl.facts.fact import NOW, Command, Fact, Maybe, given
from gpuctl.facts.gather import Facts
from gpuctl.facts.kinds import Ref, Rule
from gpuctl.facts.nodes import Target
from gpuctl.facts.state import Each, Inapplicable, Known, State, attempt
from gpuctl.nvidia.kubelet import Devices, parse_devices
from gpuctl.nvidia.node import Around, Node
from gpuctl.nvidia.objects import NodeView
from gpuctl.nvidia.query import Process
from gpuctl.runbook.drain.candidates import Candidate
from gpuctl.runbook.drain.cordon import OnNode
from gpuctl.runbook.drain.draining import pods_with_verdicts
from gpuctl.runbook.drain.idle import (
    LOOK_FOR_PROCESSES,
    holders,
    processes_on,
    seen_again,
    shown,
    the_node_to_look_into,
    unexplained,
)
from gpuctl.runbook.guard import guard, notes
from gpuctl.runbook.target import NODE, SELF

_NOT_READ: Final = Inapplicable("not read for this one node")


@given(NODE, NOW)
def the_node_by_itself(view: NodeView, now: datetime) -> Node:
    return Node(view, Around(_NOT_READ, _NOT_READ, _NOT_READ, _NOT_READ, now))


@given(the_node_by_itself, the_node_to_look_into)
def the_node_if_it_has_gpus(node: Node, targets: Collection[Target]) -> Collection[Target]:
    """Not while its GPUs are being changed: nvidia-smi would be in the way of that."""
    if not node.has_gpus:
        return ()
    if node.change is not None:
        return tuple(replace(each, why_not=f"not tried: {node.change.what}") for each in targets)
    return targets


PROCESSES: Final = processes_on(the_node_if_it_has_gpus)
KUBELET: Final = Command("kubelet-devices", the_node_if_it_has_gpus, parse_devices)


@given(NODE, PROCESSES, pods_with_verdicts, Maybe(KUBELET))
def unexplained_processes(
    node: NodeView,
    processes: tuple[Process, ...],
    pods: Each[Ref, Candidate],
    kubelet: State[Each[str, Devices]],
) -> tuple[Process, ...]:
    return unexplained(node, processes, pods, kubelet)


@guard("processes that no pod explains are told", given(the_node_by_itself, Maybe(unexplained_processes)))
def processes_are_told(node: Node, found: State[tuple[Process, ...]]) -> Iterator[Finding]:
    if not node.has_gpus:
        return
    if not isinstance(found, Known):
        what = f"whether processes hold GPUs of {node.ref} that no pod explains"
        yield notes(node.ref, f"it can't be told {what}: {found}")
        return
    for each in found.value:
        yield notes(
            node.ref,
            f"a process holds a GPU of {node.ref} that no pod explains: {shown([each])}; the drain will not "
            "end it",
            look=LOOK_FOR_PROCESSES,
        )


# After the drain


STILL_THERE: Final = seen_again(the_node_if_it_has_gpus, unexplained_processes)


class SeeWhatIsLeft(OnNode, frozen=True, kw_only=True):
    """Tells what still holds GPUs of a node once it is drained: pods that were left alone, and processes that
    no pod explains. It stops nothing: whoever has drained the node for maintenance decides about that."""

    once: ClassVar[bool] = True

    @property
    def says(self) -> str:
        return f"see what still holds GPUs of node {self.node}"

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        return (NODE, SELF, pods_with_verdicts, unexplained_processes, STILL_THERE)

    @property
    def rules(self) -> frozenset[Rule]:
        return frozenset()

    def holds(self, facts: Facts) -> bool:
        return not self.replaced(facts)

    def stuck(self, facts: Facts) -> str:
        return self.replaced(facts)

    def learned(self, facts: Facts) -> Mapping[str, Any]:
        pods, unread = _by_pods(facts.state(pods_with_verdicts))
        processes, unseen = _by_processes(facts.state(unexplained_processes), facts.state(STILL_THERE))
        held, gaps = [*pods, *processes], [*unread, *unseen]
        return {
            "gpus": "held" if held else "unknown" if gaps else "idle",
            **({"heldBy": held} if held else {}),
            **({"notRead": gaps} if gaps else {}),
        }


def _by_pods(verdicts: State[Each[Ref, Candidate]]) -> tuple[list[str], list[str]]:
    """The pods that hold GPUs, and what could not be read of pods."""
    if not isinstance(verdicts, Known):
        return [], [str(verdicts)]
    held, gaps = [], [str(each) for each in verdicts.value.gaps()]
    for _, each in verdicts.value.known():
        found = attempt(lambda: tuple(holders(Each.of({each.pod.ref: each}))))  # noqa: B023 - called at once
        if isinstance(found, Known):
            held += [f"pod {one.pod} ({', '.join(one.holds)})" for one in found.value]
        else:
            gaps.append(str(found))
    return sorted(held), gaps


def _by_processes(
    first: State[tuple[Process, ...]], second: State[tuple[Process, ...]]
) -> tuple[list[str], list[str]]:
    """The processes that stay, and what could not be read. One that could not be looked at again counts."""
    if not isinstance(first, Known):
        return [], [str(first)]
    gaps = [] if isinstance(second, Known) else [str(second)]
    stay = {(each.gpu, each.pid) for each in (second if isinstance(second, Known) else first).value}
    alone = [each for each in first.value if (each.gpu, each.pid) in stay]
    return [f"process {shown([each])}, which no pod explains" for each in alone], gaps
