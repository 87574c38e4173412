"""Whether a node's GPUs are free: no pod holds one, and nvidia-smi on the node itself knows of no process."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, ClassVar, Final

from gpuctl.audit.finding import Finding
from gpuctl.facts.fact import NOW, Command, Fact, Later, Maybe, OnNode, given
from gpuctl.facts.gather import Facts
from gpuctl.facts.kinds import Ref
from gpuctl.facts.nodes import Target
from gpuctl.facts.state import Each, Known, NotKnown, Reason, State, Unknown, attempt
from gpuctl.nvidia.detail import Detail, parse_detail
from gpuctl.nvidia.facts import target_of
from gpuctl.nvidia.kubelet import Devices, parse_devices
from gpuctl.nvidia.listing import Listing, parse_listing
from gpuctl.nvidia.node import Around, Node
from gpuctl.nvidia.objects import GpuPod, NodeView
from gpuctl.nvidia.query import Process, Processes, parse_processes
from gpuctl.runbook.drain.candidates import Candidate, DrainRules, listed
from gpuctl.runbook.drain.cordon import OnNode as StepOnNode
from gpuctl.runbook.drain.draining import CLAIMS, PODS, candidates, pods_with_verdicts
from gpuctl.runbook.guard import before, blocks, guard
from gpuctl.runbook.target import NODE, SELF, TARGET, Self

AGAIN_AFTER: Final = 5.0  # seconds in which the process of a pod that has ended is gone, too
ASKED_BY: Final = "gpuctl.dev/mig-config-by"  # begins with the run that asked MIG manager for a change
LOOK_FOR_PROCESSES: Final = (
    "nvidia-smi --query-compute-apps=gpu_uuid,pid,process_name,used_memory --format=csv (there)"
)
_NOT_READ: Final = Unknown(Reason.NOT_ASKED, "not read for this one node")


def _asked(view: NodeView, run: str) -> bool:
    """Whether this run has asked for its change already: what it needed idle GPUs for."""
    return run != "" and view.metadata.annotations.get(ASKED_BY, "").partition(":")[0] == run


@given(NODE, OnNode(GpuPod, TARGET), NOW, SELF)
def the_node_to_look_into(
    view: NodeView, pods: Each[Ref, GpuPod], now: datetime, self: Self
) -> Collection[Target]:
    """Not while this run's change is under way: nvidia-smi would be in its way."""
    return () if _asked(view, self.run) else (seeing_processes(view, pods, now),)


def seeing_processes(view: NodeView, pods: Each[Ref, GpuPod], now: datetime) -> Target:
    """A node, to be looked into by pods that see the host's processes: to others nvidia-smi shows none,
    whatever runs there."""
    there = tuple(pod for pod in pods if not pod.over)
    seeing = {(pod.metadata.namespace, pod.metadata.name) for pod in there if pod.spec.host_pid}
    around = Around(Known({view.metadata.name: there}), _NOT_READ, _NOT_READ, _NOT_READ, now)
    target = target_of(Node(view, around))
    places = tuple(place for place in target.places if (place.namespace, place.pod) in seeing)
    return replace(target, places=places)


def processes_on(on: Fact[Collection[Target]]) -> Fact[tuple[Process, ...]]:
    """Declares a look for processes on the GPUs of nodes."""

    @given(
        on,
        Command("nvidia-smi-L", on, parse_listing),
        Command("nvidia-smi-compute-apps", on, parse_processes),
        Maybe(Command("nvidia-smi-q-x", on, parse_detail)),
    )
    def processes_on_the_GPUs(  # noqa: N802
        targets: Collection[Target],
        listings: Each[str, Listing],
        apps: Each[str, Processes],
        details: State[Each[str, Detail]],
    ) -> tuple[Process, ...]:
        found: dict[tuple[str, int], Process] = {}
        for target in targets:
            _must_list(listings[target.node], target.node)
            for each in (*_computing(apps[target.node], target.node), *_detailed(details, target.node)):
                found[each.gpu, each.pid] = each
        return tuple(found.values())

    return processes_on_the_GPUs


def _must_list(listing: Listing, node: str) -> None:
    """An nvidia-smi that sees no GPU sees no process either: that proves nothing."""
    if not listing.gpus or listing.said:
        why = str(listing.said[0]) if listing.said else "nvidia-smi lists no GPU"
        raise NotKnown(Unknown(Reason.SERVER_ERROR, why, f"processes on {node}"))


def _computing(apps: Processes, node: str) -> tuple[Process, ...]:
    if apps.said and not apps.found:
        raise NotKnown(Unknown(Reason.SERVER_ERROR, str(apps.said[0]), f"processes on {node}"))
    return apps.found


def _detailed(details: State[Each[str, Detail]], node: str) -> Iterator[Process]:
    """It knows of processes that draw, too. Where it can't be read, the other is enough."""
    known = attempt(lambda: details.value[node]) if isinstance(details, Known) else details
    for gpu in known.value.gpus if isinstance(known, Known) else ():
        yield from gpu.processes


@dataclass(frozen=True, eq=False)
class Lasting:
    """Two looks for processes: the second a while later, where the first found any. One that stays belongs to
    no pod that has just ended."""

    first: Fact[tuple[Process, ...]]
    later: Fact[tuple[Process, ...]]

    def stay(self, facts: Facts) -> tuple[Process, ...]:
        """Those that both looks have seen; none where either could not look."""
        first, later = facts.state(self.first), facts.state(self.later)
        if not isinstance(first, Known) or not isinstance(later, Known):
            return ()
        before = {(each.gpu, each.pid) for each in first.value}
        return tuple(each for each in later.value if (each.gpu, each.pid) in before)


def lasting_processes_on(on: Fact[Collection[Target]]) -> Lasting:
    """Declares both looks."""
    first = processes_on(on)
    return Lasting(first, seen_again(on, first))


def seen_again(on: Fact[Collection[Target]], first: Fact[tuple[Process, ...]]) -> Fact[tuple[Process, ...]]:
    """Declares another look at nodes where a first one found processes, a while later: the process of a pod
    that has ended is gone by then."""

    @given(on, first)
    def the_node_if_it_is_busy(
        targets: Collection[Target], processes: tuple[Process, ...]
    ) -> Collection[Target]:
        return targets if processes else ()

    return processes_on(Later(the_node_if_it_is_busy, AGAIN_AFTER))


LASTING: Final = lasting_processes_on(the_node_to_look_into)
PROCESSES: Final = LASTING.first


def shown(processes: Collection[Process]) -> str:
    """`4711 (python) on GPU-…`."""
    return listed(
        [f"{each.pid} ({each.name or 'of no name'}) on {each.gpu or 'a GPU'}" for each in processes]
    )


def held_by(processes: Collection[Process], node: str) -> str:
    """That processes hold GPUs where no pod does; empty without any."""
    return (
        f"a process that no pod explains holds a GPU of node {node}: {shown(processes)}" if processes else ""
    )


def holders(pods: Each[Ref, Candidate]) -> Iterator[Candidate]:
    """The pods that hold GPUs, also on their way out; NVIDIA's own and gpuctl's do not count."""
    yield from (
        each for each in pods if not (each.pod.over or each.pod.ours or each.pod.serves_gpus) and each.holds
    )


class Idle(StepOnNode, frozen=True, kw_only=True):
    """Waits until no pod holds a GPU of the node and nvidia-smi shows no process on them.

    A process that stays, and that no pod explains, stops the run: nobody but its owner may end it. Once the
    run has asked for what needs idle GPUs, as when it is resumed in the middle, it is over.
    """

    seconds: ClassVar[float] = 120.0
    pause: ClassVar[float] = 5.0

    @property
    def says(self) -> str:
        return f"see that the GPUs of node {self.node} are idle"

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        return (NODE, SELF, PODS, CLAIMS, PROCESSES, LASTING.later)

    @property
    def rules(self) -> frozenset[Any]:
        return frozenset()

    def holds(self, facts: Facts) -> bool:
        if self.replaced(facts):
            return False
        if _asked(facts[NODE], facts[SELF].run):
            return True
        return not self._holders(facts) and not facts[PROCESSES]

    def stuck(self, facts: Facts) -> str:
        if self._holders(facts):
            return self.replaced(facts)
        return self.replaced(facts) or held_by(LASTING.stay(facts), self.node)

    def progress(self, facts: Facts) -> str:
        found = self._holders(facts)
        if found:
            return f"held by {listed([f'{each.pod} ({each.holds[0]})' for each in found])}"
        return f"processes: {shown(facts[PROCESSES])}" if facts[PROCESSES] else ""

    def _holders(self, facts: Facts) -> list[Candidate]:
        return list(holders(candidates(facts[PODS], facts.state(CLAIMS), DrainRules())))


# Before anything is done: whether each process belongs to a pod


KUBELET: Final = Command("kubelet-devices", the_node_to_look_into, parse_devices)


@guard(
    "pods explain every process on the GPUs",
    given(NODE, PROCESSES, pods_with_verdicts, Maybe(KUBELET)),
    again=before("Drain"),  # after that Idle tells
)
def processes_are_explained(
    node: NodeView,
    processes: tuple[Process, ...],
    pods: Each[Ref, Candidate],
    kubelet: State[Each[str, Devices]],
) -> Iterator[Finding]:
    """A process of no pod would keep its GPU after every pod has gone."""
    alone = unexplained(node, processes, pods, kubelet)
    if alone:
        yield blocks(
            node.ref,
            f"processes hold GPUs of {node.ref} that no pod explains: {shown(alone)}",
            look=LOOK_FOR_PROCESSES,
            remedy="find out on the node whose they are, and have them ended",
        )


def unexplained(
    node: NodeView,
    processes: tuple[Process, ...],
    pods: Each[Ref, Candidate],
    kubelet: State[Each[str, Devices]],
) -> tuple[Process, ...]:
    """The processes that belong to no pod which holds a GPU. Raises NotKnown."""
    if not processes:
        return ()
    found = tuple(holders(pods))
    known = attempt(lambda: kubelet.value[node.metadata.name]) if isinstance(kubelet, Known) else kubelet
    return tuple(each for each in processes if not _explained(each, found, known))


def _explained(process: Process, pods: Collection[Candidate], kubelet: State[Devices]) -> bool:
    """By a pod that the kubelet gave this GPU or a part of it, or one that sees all GPUs without asking.

    Of MIG devices the kubelet names no GPU: any of them may be a part of it.
    """
    if not isinstance(kubelet, Known):
        return bool(pods)
    alive = {each.pod.metadata.uid for each in pods}
    held = [each for each in kubelet.value.held if each.pod in alive]
    counted = {each.pod for each in held}
    return any(each.device == process.gpu or each.device.startswith("MIG-") for each in held) or any(
        each.pod.metadata.uid not in counted for each in pods
    )
