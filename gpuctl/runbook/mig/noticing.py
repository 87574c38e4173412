"""Who would notice a change on a node: the pods that hold its GPUs, and those that wait for what it offers.
And whether its GPUs are fit for one."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from gpuctl.facts.fact import Maybe, Objects, given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.selectors import has_all
from gpuctl.facts.state import Each, Known, State
from gpuctl.nvidia.node import Node
from gpuctl.runbook.drain.candidates import Candidate, listed, several
from gpuctl.runbook.drain.draining import pods_with_verdicts
from gpuctl.runbook.drain.idle import holders
from gpuctl.runbook.drain.pods import DrainPod
from gpuctl.runbook.mig.facts import the_GPU_node
from gpuctl.runbook.mig.guards import soundness
from gpuctl.runbook.mig.standing import STILL

ALL_PODS: Final = Objects(DrainPod)


@given(pods_with_verdicts)
def holders_on_the_node(pods: Each[Ref, Candidate]) -> tuple[Candidate, ...]:
    """The pods that hold its GPUs, NVIDIA's own left aside."""
    return tuple(holders(pods))


@given(the_GPU_node, ALL_PODS)
def pods_that_wait_for_it(node: Node, pods: Each[Ref, DrainPod]) -> tuple[DrainPod, ...]:
    """Pods without a node that ask for a resource of this one's, as far as their selectors let them on it."""
    names = set(node.capacity)
    return tuple(
        pod
        for pod in pods
        if pod.status.phase in ("", "Pending")
        and not pod.spec.node_name
        and names & set(pod.gpus)
        and has_all(node.labels, pod.spec.node_selector)
    )


def named(pods: Collection[DrainPod]) -> str:
    """`3 pods (a/b, c/d, e/f)`."""
    return f"{several(len(pods), 'pod')} ({listed([str(each) for each in pods])})"


def unknown(what: str, state: State[object]) -> Iterator[str]:
    """A line on what could not be read."""
    if not isinstance(state, Known):
        yield f"it can't be told {what}: {state}"


@given(Maybe(holders_on_the_node))
def who_holds_its_GPUs(holding: State[tuple[Candidate, ...]]) -> tuple[str, ...]:  # noqa: N802
    if not isinstance(holding, Known):
        return tuple(unknown("who holds GPUs of the node", holding))
    if not holding.value:
        return ("no pod holds a GPU of the node",)
    return (f"{named([each.pod for each in holding.value])} hold GPUs of the node",)


# Of a node that stands still: no restart brings back a GPU that is lost or in error.
gpus_are_sound: Final = soundness(STILL.hardware)
