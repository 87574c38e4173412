"""The chain from a flavor to the pods that run on it: the first link that is broken is where to look."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gpuctl.facts.state import NotKnown
from gpuctl.kueue.footing import Footing, Stuck, stuck
from gpuctl.kueue.quantities import shown
from gpuctl.kueue.scene import Line, is_active


@dataclass(frozen=True, slots=True)
class Link:
    """One link. `broken`: why it does not hold, empty if it does; None if that could not be told."""

    text: str
    broken: str | None = ""


def chain(line: Line, footing: Footing, resource: str) -> tuple[Link, ...]:
    """ResourceFlavor, labels, nodes, resources, quota, ClusterQueue, LocalQueues, Workloads, pods."""
    links = (_labels, _nodes, _resources, _quota, _queue, _local_queues, _workloads, _pods)
    flavor = Link(f"ResourceFlavor {footing.name}")
    return (flavor, *(_told(link, line, footing, resource) for link in links))


def first_broken(links: tuple[Link, ...]) -> str:
    """Why the first broken link does not hold; empty if none is."""
    return next((each.broken for each in links if each.broken), "")


def _told(link: Callable[[Line, Footing, str], Link], line: Line, footing: Footing, resource: str) -> Link:
    try:
        return link(line, footing, resource)
    except NotKnown as gap:
        return Link(f"? ({gap.state})", None)


def _labels(_: Line, footing: Footing, __: str) -> Link:
    labels = footing.flavor.spec.node_labels
    return Link(", ".join(f"{key}={label}" for key, label in labels.items()) or "every node")


def _nodes(_: Line, footing: Footing, __: str) -> Link:
    there, usable = len(footing.nodes), len(footing.usable)
    text = f"{_counted(there, 'node')}" + (f", {usable} usable" if usable < there else "")
    if not there:
        return Link(text, "no node has the flavor's labels")
    return Link(text, "" if usable else "no node of the flavor is ready and uncordoned")


def _resources(_: Line, footing: Footing, resource: str) -> Link:
    there = footing.offered(resource, footing.usable)
    return Link(f"{shown(there, resource)} {resource}", "" if there else f"no usable node offers {resource}")


def _quota(_: Line, footing: Footing, resource: str) -> Link:
    promised, there = footing.promised.get(resource, 0), footing.offered(resource, footing.nodes)
    text = f"{shown(promised, resource)} promised in all"
    over = shown(max(0, promised - there), resource)
    return Link(text, f"{over} more are promised than there are" if promised > there else "")


def _queue(line: Line, _: Footing, __: str) -> Link:
    stopped = line.queue.spec.stop_policy not in ("", "None")
    why = "the queue is stopped" if stopped else "" if is_active(line.queue) else "the queue is inactive"
    return Link(f"ClusterQueue {line.name}", why)


def _local_queues(line: Line, _: Footing, __: str) -> Link:
    found = {(each.metadata.namespace, each.spec.queue_name) for each in line.everyone}
    return Link(f"{_counted(len(found), 'LocalQueue')} in use")


def _workloads(line: Line, _: Footing, __: str) -> Link:
    return Link(f"{_counted(len(line.holding), 'Workload')} with quota, {len(line.waiting)} waiting")


def _pods(line: Line, footing: Footing, _: str) -> Link:
    pods = [pod for each in line.holding for pod in footing.ground.owned.of(each)]
    lost = sum(len(each.pods) for each in _stuck_of(line, footing))
    return Link(_counted(len(pods), "pod"), f"{_counted(lost, 'pod')} of them find no node" if lost else "")


def _stuck_of(line: Line, footing: Footing) -> Iterator[Stuck]:
    own = {each.ref for each in line.holding}
    yield from (each for each in stuck(footing) if each.workload.ref in own)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
