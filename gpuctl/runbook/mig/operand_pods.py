"""A pod that serves the GPUs of a node, and its DaemonSet: whether it comes back when it is deleted, and the
step that lets it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import msgspec

from gpuctl.audit.finding import Finding
from gpuctl.facts.fact import Fact, Named, given
from gpuctl.facts.gather import Facts
from gpuctl.facts.kinds import Kind, OwnerReference, Ref, Rule, View
from gpuctl.facts.objects import Toleration
from gpuctl.facts.selectors import has_all
from gpuctl.facts.state import Each, NotKnown, Reason, Unknown
from gpuctl.nvidia.node import Node
from gpuctl.nvidia.objects import GpuPod, NodeView, OperandSet
from gpuctl.nvidia.operands import BY_NAME, DEPLOY
from gpuctl.runbook.drain.candidates import listed
from gpuctl.runbook.drain.cordon import OnNode as StepOnNode
from gpuctl.runbook.drain.evict import DELETES
from gpuctl.runbook.drain.owners import DaemonSet
from gpuctl.runbook.guard import Guard, blocks, guard
from gpuctl.runbook.mig.facts import the_GPU_node
from gpuctl.runbook.mig.taints import TAINTED, TaintedNode, bars_daemons
from gpuctl.runbook.target import NODE, SELF
from gpuctl.runbook.writer import Writer

OWN_TAINTS: Final = "gpuctl.dev/"


class _Part(msgspec.Struct, frozen=True, rename="camel", gc=False):
    pass


class _PodSpec(_Part, frozen=True):
    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()


class _Template(_Part, frozen=True):
    spec: _PodSpec = _PodSpec()


class _SetSpec(_Part, frozen=True):
    template: _Template = _Template()


class ServingSet(View, frozen=True):
    """A DaemonSet, as far as it tells whether it makes a pod on a node."""

    of: ClassVar[Kind] = OperandSet.of
    spec: _SetSpec = _SetSpec()

    @property
    def selector(self) -> Mapping[str, str]:
        """The labels of nodes that it wants a pod on."""
        return self.spec.template.spec.node_selector

    @property
    def tolerations(self) -> tuple[Toleration, ...]:
        """What its pods tolerate."""
        return self.spec.template.spec.tolerations


def controller_of(pod: GpuPod) -> OwnerReference | None:
    """Who makes it anew, if anybody does."""
    return next((each for each in pod.metadata.owner_references if each.controller), None)


def set_of(pod: GpuPod) -> Ref | None:
    """The DaemonSet that makes it anew; None for another controller, or none."""
    owner = controller_of(pod)
    return (
        Ref(DaemonSet.of, owner.name, pod.metadata.namespace) if owner and owner.kind == "DaemonSet" else None
    )


@given(the_GPU_node)
def sets_of_the_operands(node: Node) -> Collection[Ref]:
    found = (set_of(pod) for pods in node.operands.values() for pod in pods)
    return tuple(dict.fromkeys(ref for ref in found if ref))


SETS: Final = Named(ServingSet, sets_of_the_operands)


def is_ready(pod: GpuPod) -> bool:
    """Whether it runs, and all its containers are ready."""
    statuses = pod.status.container_statuses
    return pod.running and bool(statuses) and all(each.ready for each in statuses)


# Whether it comes back


@dataclass(frozen=True, eq=False)
class Restarting:
    """The restart of one operand: the pod that goes, and the guard that it comes back."""

    operand: str
    pod: Fact[GpuPod]
    comes_back: Guard

    def step(self, node: NodeView, pod: GpuPod) -> RestartOperand:
        """The step that restarts it."""
        return RestartOperand(
            node=node.metadata.name,
            node_uid=node.metadata.uid,
            operand=self.operand,
            namespace=pod.metadata.namespace,
            pod=pod.metadata.name,
            pod_uid=pod.metadata.uid,
        )


@given()
def in_no_case() -> bool:
    return False


def restarting(operand: str, unless: Fact[bool] = in_no_case) -> Restarting:
    """Declares the restart of an operand on the target. `unless`: this time it is not restarted."""
    title = BY_NAME[operand].title

    def the_pod(node: Node) -> GpuPod:
        pods = node.operands.get(operand, ())
        if len(pods) != 1:
            names = listed([str(each.ref) for each in pods])
            what = f"there are {len(pods)}: {names}" if pods else "there is none"
            raise NotKnown(Unknown(Reason.NOT_ASKED, what, f"the {title} pod of {node.name}"))
        return pods[0]

    the_pod.__name__ = f"the_{operand.replace('-', '_')}_pod"

    @guard(f"the {title} comes back when its pod is deleted", given(the_GPU_node, SETS, TAINTED, unless))
    def comes_back(
        node: Node, sets: Each[Ref, ServingSet], tainted: TaintedNode, not_this_time: bool
    ) -> Iterator[Finding]:
        if not_this_time:
            return
        pods = node.operands.get(operand, ())
        if not pods:
            yield blocks(
                node.ref,
                f"there is no pod of the {title} on {node.ref}: {_why_none(node, operand)}",
                remedy=f"see that {DEPLOY}{operand} is true and its DaemonSet is there",
            )
        if len(pods) > 1:
            names = listed([str(each.ref) for each in pods])
            yield blocks(
                node.ref, f"which of them is meant can't be told: {names}", remedy="wait until one is left"
            )
        for pod in pods:
            why = away(pod, node, sets, tainted)
            if why:
                yield blocks(pod.ref, f"{pod.ref} would not come back: {why}", remedy=_way_back(why))

    return Restarting(operand, given(the_GPU_node)(the_pod), comes_back)


def _why_none(node: Node, operand: str) -> str:
    label = node.labels.get(DEPLOY + operand, "")
    return f"{DEPLOY}{operand} is {label}" if label else f"it has no label {DEPLOY}{operand}"


def _way_back(why: str) -> str:
    if OWN_TAINTS in why:
        return (
            "gpuctl plan taint-unmigged NODE --remove, or let the operands tolerate it: "
            "spec.daemonsets.tolerations of the ClusterPolicy"
        )
    return "put that right first"


def away(pod: GpuPod, node: Node, sets: Each[Ref, ServingSet], tainted: TaintedNode) -> str:
    """Why nothing would make the pod anew; empty if something would. Raises NotKnown."""
    ref = set_of(pod)
    owner = controller_of(pod)
    if ref is None or owner is None:
        return f"its controller is {owner.kind} {owner.name}" if owner else "no controller makes it anew"
    found = sets.get(ref)
    if found is None or found.metadata.uid not in ("", owner.uid):
        return f"{ref} does not exist any more"
    if found.metadata.deletion_timestamp is not None:
        return f"{ref} is being deleted"
    if not has_all(node.labels, found.selector):
        missing = [f"{key}={text}" for key, text in found.selector.items() if node.labels.get(key) != text]
        return f"{ref} wants nodes with {listed(missing)}"
    barred = list(map(str, bars_daemons(tainted.taints, found.tolerations)))
    return f"{ref} does not tolerate the node's taint {listed(barred)}" if barred else ""


# The step


class RestartOperand(StepOnNode, frozen=True, kw_only=True):
    """Deletes the pod of an operand, by its uid, and waits until its DaemonSet has made another, and that one
    is Ready."""

    once: ClassVar[bool] = True
    seconds: ClassVar[float] = 600.0

    operand: str
    namespace: str
    pod: str
    pod_uid: str

    @property
    def says(self) -> str:
        title = BY_NAME[self.operand].title
        return f"restart the {title} of node {self.node}: delete pod {self.namespace}/{self.pod}"

    @property
    def needs(self) -> tuple[Fact[Any], ...]:
        return (NODE, SELF, the_GPU_node)

    @property
    def rules(self) -> frozenset[Rule]:
        return frozenset({DELETES})

    def holds(self, facts: Facts) -> bool:
        pods = self._pods(facts)
        others = [each for each in pods if each.metadata.uid != self.pod_uid]
        return not self.replaced(facts) and len(others) == len(pods) > 0 and any(map(is_ready, others))

    def stuck(self, facts: Facts) -> str:
        return self.replaced(facts)

    def act(self, facts: Facts, writer: Writer) -> None:
        for pod in self._pods(facts):
            about = pod.metadata
            if about.uid == self.pod_uid and about.deletion_timestamp is None:
                writer.delete(pod.ref, self.pod_uid)

    def progress(self, facts: Facts) -> str:
        pods = self._pods(facts)
        if not pods:
            deploy = facts[the_GPU_node].labels.get(DEPLOY + self.operand, "not there")
            return f"its DaemonSet has made no other pod yet ({DEPLOY}{self.operand} is {deploy})"
        return "; ".join(f"{each.ref} is {_state(each)}" for each in pods)

    def learned(self, facts: Facts) -> Mapping[str, Any]:
        return {f"restarted {self.operand}": [str(each.ref) for each in self._pods(facts)]}

    def _pods(self, facts: Facts) -> tuple[GpuPod, ...]:
        return facts[the_GPU_node].operands.get(self.operand, ())


def _state(pod: GpuPod) -> str:
    if pod.metadata.deletion_timestamp is not None:
        return "ending"
    return "Ready" if is_ready(pod) else (pod.status.phase or "not started")
