"""Behind every flavor there is a node that takes its pods: with its labels, Ready, and without a taint that
keeps them out. Kueue never looks: it admits, and the pods find no node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from gpuctl.audit.assertion import every, holds
from gpuctl.audit.finding import Evidence, Finding, Severity
from gpuctl.checks.flavor_impact import codes
from gpuctl.checks.flavor_impact.words import concerned, counted, get, references
from gpuctl.facts.fact import given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Each, Inapplicable, NotKnown
from gpuctl.kueue.flavors import CORDONED, ON_FLAVORS, Flavor
from gpuctl.kueue.objects import ResourceNode


@every(ON_FLAVORS, "every flavor that gives out quota has a Ready node for its pods", given())
def flavors_with_nodes(flavor: Flavor) -> Iterator[Finding]:
    if flavor.run_of_drill:
        raise NotKnown(Inapplicable("a drill made it for itself"))
    if not flavor.queues and not flavor.cohorts:
        flavor.all_queues_seen()
        flavor.all_cohorts_seen()
        raise NotKnown(Inapplicable("nothing refers to the flavor"))
    if flavor.footing.on_demand:
        raise NotKnown(Inapplicable("its nodes are made when they are asked for, or another cluster's"))
    for resource in _given_out(flavor):
        if not any(_takes(flavor, node, resource) for node in flavor.footing.nodes):
            flavor.footing.checks_must_be_read()
            yield _finding(flavor, resource)
    flavor.footing.must_be_whole()


def _given_out(flavor: Flavor) -> Sequence[str]:
    """The accelerators that are promised of it; of a flavor without any, whatever it is (empty)."""
    if not any(flavor.footing.promised.values()):
        return ()
    return flavor.footing.accelerators or ("",)


def _takes(flavor: Flavor, node: ResourceNode, resource: str) -> bool:
    return not flavor.hindrance(node, resource) and _offers(flavor, node, resource)


def _offers(flavor: Flavor, node: ResourceNode, resource: str) -> bool:
    if not resource or flavor.footing.offered(resource, (node,)):
        return True
    flavor.footing.must_be_on_nodes(resource)
    return False


def _finding(flavor: Flavor, resource: str) -> Finding:
    nodes, labels = flavor.footing.nodes, _labels(flavor)
    why = {node.ref: _why(flavor, node, resource) for node in nodes}
    on_purpose = bool(nodes) and set(why.values()) == {CORDONED}
    return Finding(
        code=codes.NO_NODE,
        object=flavor.ref,
        message=(
            f"What is admitted in ResourceFlavor {flavor.name} can't run"
            f"{f' with {resource}' if resource else ''}: "
            + (f"{_summary(list(why.values()))}" if nodes else f"no node has its labels ({labels})")
            + concerned(flavor)
        ),
        evidence=(
            Evidence(flavor.ref, ".spec.nodeLabels", labels),
            *(Evidence(ref, "", each) for ref, each in list(why.items())[:3]),
            *references(flavor),
        ),
        look=f"kubectl get nodes{f' -l {labels}' if flavor.written.spec.node_labels else ''}",
        remedy=_remedy(flavor, on_purpose=on_purpose),
        mark=resource if nodes else "",
        cause=f"no node behind {flavor.ref}",
        severity=Severity.INFO if on_purpose else None,
    )


def _why(flavor: Flavor, node: ResourceNode, resource: str) -> str:
    return flavor.hindrance(node, resource) or f"offers no {resource}"


def _summary(why: Sequence[str]) -> str:
    """`of its 3 nodes 2 are not Ready, 1 is cordoned`."""
    parts = (f"{number} {_verb(each, number)}" for each, number in sorted(Counter(why).items()))
    return f"of its {counted(len(why), 'node')} {', '.join(parts)}"


def _verb(why: str, number: int) -> str:
    if why.startswith("offers"):
        return why if number == 1 else f"offer{why.removeprefix('offers')}"
    return f"{'is' if number == 1 else 'are'} {why}"


def _labels(flavor: Flavor) -> str:
    return ",".join(f"{key}={label}" for key, label in flavor.written.spec.node_labels.items()) or "none"


def _remedy(flavor: Flavor, *, on_purpose: bool) -> str:
    if on_purpose:
        return "uncordon them when their work is done; risk: none"
    if not flavor.footing.nodes:
        return (
            "correct the flavor's nodeLabels or the nodes' labels (with an autoscaler that starts from zero, "
            "waive this); risk: a flavor of a topology can't be changed"
        )
    return (
        "bring a node back, or give the flavor the tolerations that its nodes' taints ask for; what the "
        "nodes offer is told by `gpuctl check mig-consistency`; risk: none for what runs"
    )


@holds("no two ResourceFlavors share their nodes", given(ON_FLAVORS))
def separate_nodes(flavors: Each[Ref, Flavor]) -> Iterator[Finding]:
    known = [each for _, each in flavors.known() if each.queues and not each.run_of_drill]
    for resource in sorted({resource for each in known for resource in each.footing.accelerators}):
        for group in _groups([each for each in known if resource in each.footing.accelerators], resource):
            yield _shared(group, resource)
    for each in flavors:  # raises NotKnown for a flavor that could not be read
        each.footing.must_be_whole()


def _groups(flavors: Sequence[Flavor], resource: str) -> Iterator[list[Flavor]]:
    """Flavors that reach the same nodes, each group with at least two."""
    groups: list[tuple[set[Ref], list[Flavor]]] = []
    for flavor in sorted(flavors, key=lambda each: each.name):
        nodes = {node.ref for node in flavor.reachable(resource)}
        touching = [group for group in groups if group[0] & nodes]
        members = [each for group in touching for each in group[1]]
        groups = [group for group in groups if group not in touching]
        groups.append((nodes.union(*(group[0] for group in touching)), [*members, flavor]))
    yield from (members for _, members in groups if len(members) > 1)


def _shared(group: Sequence[Flavor], resource: str) -> Finding:
    names = ", ".join(each.name for each in group)
    first = group[0]
    return Finding(
        code=codes.SHARED,
        object=first.ref,
        message=(
            f"ResourceFlavors {names} give out {resource} of the same nodes: what one of them has left, pods "
            "of another may hold, and the loss of one is not the loss of its nodes"
        ),
        evidence=tuple(Evidence(each.ref, ".spec.nodeLabels", _labels(each)) for each in group),
        look=get(first.ref),
        remedy="select by labels that exclude each other, unless it is meant so; risk: none for what runs",
        mark=resource,
    )
