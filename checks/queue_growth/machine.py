"""What quota promises is there: nodes for every flavor, and room on them for what was admitted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from gpuctl.audit.assertion import every, holds
from gpuctl.audit.finding import Evidence, Finding, Severity
from gpuctl.audit.policy import POLICY, Policy
from gpuctl.checks.queue_growth import codes
from gpuctl.checks.queue_growth.words import all_of, counted, get, some, verb
from gpuctl.facts.fact import given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Each
from gpuctl.kueue.footing import DESIRES, Footing, Stuck, overlapping, stuck
from gpuctl.kueue.quantities import Amount, shown
from gpuctl.kueue.queue_facts import flavors_on_the_machine
from gpuctl.kueue.standing import admitted_at, age


@every(flavors_on_the_machine, "what quota promises is there", given())
def real_quota(footing: Footing) -> Iterator[Finding]:
    yield from all_of(lambda: _wishes(footing), lambda: _nodes(footing), lambda: _amounts(footing))


def _wishes(footing: Footing) -> Iterator[Finding]:
    for label, better in DESIRES.items():
        if label in footing.flavor.spec.node_labels:
            yield Finding(
                code=codes.DESIRED_LABEL,
                object=footing.flavor.ref,
                message=(
                    f"ResourceFlavor {footing.name} selects nodes by {label}, which states what is wished "
                    "for a node, not what it has: nodes leave the flavor when the wish changes, and join it "
                    "before it is fulfilled"
                ),
                evidence=(
                    Evidence(
                        footing.flavor.ref,
                        f".spec.nodeLabels['{label}']",
                        footing.flavor.spec.node_labels[label],
                    ),
                ),
                look=get(footing.flavor.ref),
                remedy=(
                    f"select by what is there, such as nvidia.com/gpu.product or {better}; risk: a flavor in "
                    "use can't be renamed; make a new one and move the queues"
                ),
                mark=label,
            )


def _nodes(footing: Footing) -> Iterator[Finding]:
    if footing.nodes or footing.on_demand or not any(footing.promised.values()):
        return
    footing.checks_must_be_read()
    labels = ", ".join(f"{key}={label}" for key, label in footing.flavor.spec.node_labels.items())
    yield Finding(
        code=codes.NO_NODES,
        object=footing.flavor.ref,
        message=(
            f"No node has the labels of ResourceFlavor {footing.name} ({labels}), of which "
            f"{_queues(footing)} {verb(len(footing.queues), 'gives', 'give')} quota: what is admitted there "
            "can't run"
        ),
        evidence=(
            Evidence(footing.flavor.ref, ".spec.nodeLabels", labels),
            *(
                Evidence(each.ref, ".spec.resourceGroups", f"refers to {footing.name}")
                for each in footing.queues[:3]
            ),
        ),
        look=f"kubectl get nodes -l {labels.replace(', ', ',')}",
        remedy=(
            "correct the flavor's nodeLabels or the nodes' labels (with an autoscaler that starts from zero, "
            "waive this); risk: a flavor of a topology can't be changed"
        ),
        cause=f"no node behind {footing.flavor.ref}",
    )


def _amounts(footing: Footing) -> Iterator[Finding]:
    if footing.nodes and not footing.on_demand:
        measured = (*footing.accelerators, *footing.shares)
        yield from all_of(*(partial(_amount, footing, resource) for resource in measured))
    footing.must_be_whole()


def _amount(footing: Footing, resource: str) -> Iterator[Finding]:
    found = _shortage(footing, resource)
    if found:
        footing.checks_must_be_read()
        footing.must_be_on_nodes(resource)
        yield found


def _shortage(footing: Footing, resource: str) -> Finding | None:
    promised, there = footing.promised[resource], footing.offered(resource, footing.nodes)
    usable = footing.offered(resource, footing.usable)
    outside = footing.taken_outside(resource)
    if not there:
        return _not_offered(footing, resource, promised)
    if promised > there:
        return _too_much(footing, resource, promised, there)
    if promised > usable:
        return _out_of_service(footing, resource, promised, usable)
    if outside and promised + outside > there:
        return _taken(footing, resource, promised, there, outside)
    return None


def _too_much(footing: Footing, resource: str, promised: Amount, there: Amount) -> Finding:
    return Finding(
        code=codes.PROMISED_TOO_MUCH,
        object=footing.flavor.ref,
        message=(
            f"{shown(promised, resource)} {resource} are promised in flavor {footing.name}, and its "
            f"{counted(len(footing.nodes), 'node')} {verb(len(footing.nodes), 'has', 'have')} "
            f"{shown(there, resource)}: {shown(promised - there, resource)} can be admitted and never run; "
            f"{shown(footing.reserved(resource), resource)} are reserved now ({_queues(footing)})"
        ),
        evidence=_chain(footing, resource, promised, there),
        look=f"gpuctl queues; {_look_at_nodes(footing)}",
        remedy=(
            f"lower nominalQuota by {shown(promised - there, resource)}, or add nodes (estimate; quota of "
            "cohorts counts on top); risk: what is admitted keeps running"
        ),
        mark=resource,
    )


def _out_of_service(footing: Footing, resource: str, promised: Amount, usable: Amount) -> Finding:
    away = [each.metadata.name for each in footing.nodes if not each.usable]
    return Finding(
        code=codes.OUT_OF_SERVICE,
        object=footing.flavor.ref,
        message=(
            f"{shown(promised, resource)} {resource} are promised in flavor {footing.name}, and "
            f"{shown(usable, resource)} are in service: {some(away)} are cordoned or not ready"
        ),
        evidence=_chain(footing, resource, promised, usable),
        look=_look_at_nodes(footing),
        remedy="uncordon the nodes when their work is done; risk: none",
        mark=resource,
    )


def _not_offered(footing: Footing, resource: str, promised: Amount) -> Finding:
    return Finding(
        code=codes.NOT_OFFERED,
        object=footing.flavor.ref,
        message=(
            f"{shown(promised, resource)} {resource} are promised in flavor {footing.name} "
            f"({_queues(footing)}), and none of its {counted(len(footing.nodes), 'node')} offers any: what "
            "is admitted there can't run"
        ),
        evidence=_chain(footing, resource, promised, 0),
        look=_look_at_nodes(footing),
        remedy=(
            "compare with what nodes offer: another MIG layout or strategy names resources differently "
            "(`gpuctl check mig-consistency`); risk: none"
        ),
        mark=resource,
    )


def _taken(footing: Footing, resource: str, promised: Amount, there: Amount, outside: Amount) -> Finding:
    return Finding(
        code=codes.TAKEN_OUTSIDE,
        object=footing.flavor.ref,
        message=(
            f"Pods outside of Kueue take {shown(outside, resource)} {resource} on nodes of flavor "
            f"{footing.name}, which have {shown(there, resource)} and of which {shown(promised, resource)} "
            "are promised as quota"
        ),
        evidence=_chain(footing, resource, promised, there),
        look=f"kubectl get pods -A -o wide; {_look_at_nodes(footing)}",
        remedy=(
            f"lower nominalQuota by {shown(promised + outside - there, resource)}, or bring those pods into "
            "a queue (estimate); risk: none for what runs"
        ),
        mark=resource,
    )


def _chain(footing: Footing, resource: str, promised: Amount, there: Amount) -> tuple[Evidence, ...]:
    """The chain from the flavor to the machine, link by link."""
    labels = ", ".join(f"{key}={label}" for key, label in footing.flavor.spec.node_labels.items())
    names = some(each.metadata.name for each in footing.nodes)
    return (
        Evidence(footing.flavor.ref, ".spec.nodeLabels", labels or "none: every node"),
        *(
            Evidence(
                each.ref, f".status.allocatable['{resource}']", str(each.status.allocatable.get(resource, 0))
            )
            for each in footing.nodes[:3]
        ),
        *(
            Evidence(each.ref, ".spec.resourceGroups", f"{footing.name}: {resource}")
            for each in footing.queues[:3]
        ),
        Evidence(
            footing.flavor.ref,
            "",
            f"labels → {names}: {shown(there, resource)}; promised {shown(promised, resource)}",
        ),
    )


def _look_at_nodes(footing: Footing) -> str:
    labels = ",".join(f"{key}={label}" for key, label in footing.flavor.spec.node_labels.items())
    return f"kubectl describe nodes -l '{labels}'" if labels else "kubectl describe nodes"


def _queues(footing: Footing) -> str:
    return some(f"ClusterQueue {each.metadata.name}" for each in footing.queues) or "cohorts"


@every(flavors_on_the_machine, "what was admitted finds its nodes", given(POLICY))
def placed_pods(footing: Footing, policy: Policy) -> Iterator[Finding]:
    settled = policy.checks.queue_growth.settle_seconds
    found: dict[bool, list[Stuck]] = {}
    for each in stuck(footing):
        if age(admitted_at(each.workload), footing.scene.now).total_seconds() >= settled:
            found.setdefault(each.fragmented, []).append(each)
    for fragmented, members in found.items():
        yield _stuck(footing, members, fragmented=fragmented)


def _stuck(footing: Footing, members: list[Stuck], *, fragmented: bool) -> Finding:
    first = max(members, key=lambda each: (each.asked, each.workload.metadata.name))
    pods = sum(len(each.pods) for each in members)
    return Finding(
        code=codes.FRAGMENTED if fragmented else codes.PODS_PENDING,
        object=footing.flavor.ref,
        message=(
            f"{counted(len(members), 'admitted Workload')} in flavor {footing.name} ({_named(first)}) "
            f"{verb(len(members), 'has', 'have')} {counted(pods, 'pod')} without a node: "
            f"{_why(first, footing)}; Kueue counts them as running"
        ),
        evidence=(
            Evidence(first.pods[0].ref, '.status.conditions[?(@.type=="PodScheduled")].message', first.says),
            Evidence(first.workload.ref, '.status.conditions[?(@.type=="Admitted")]', "True"),
            Evidence(
                footing.flavor.ref,
                "",
                f"{counted(len(footing.usable), 'usable node')}: {shown(first.free, first.resource)} "
                f"{first.resource} free, at most {shown(first.largest, first.resource)} on one",
            ),
        ),
        look=f"kubectl -n {first.pods[0].metadata.namespace} describe pod {first.pods[0].metadata.name}",
        remedy=_remedy(first),
        severity=Severity.ERROR,
    )


def _why(first: Stuck, footing: Footing) -> str:
    asked, resource = shown(first.asked, first.resource), first.resource
    if first.fragmented:
        return (
            f"a pod asks for {asked} {resource}, {shown(first.free, resource)} are free on "
            f"{counted(len(footing.usable), 'node')}, but no single node has {asked} free"
        )
    if first.short:
        return f"a pod asks for {asked} {resource}, and {shown(first.free, resource)} are free"
    return f"{asked} {resource} are free on a node, the scheduler says: {first.says}"


def _remedy(first: Stuck) -> str:
    if first.fragmented:
        return (
            "free a whole node (`kubectl drain` one that holds little), or let Kueue count nodes: "
            "TopologyAwareScheduling with a Topology; risk: drained pods start again"
        )
    if first.short:
        return "lower nominalQuota to what is there, or add nodes; risk: none for what runs"
    return "see the scheduler's words: taints, selectors or another resource keep the pod out; risk: none"


def _named(found: Stuck) -> str:
    return f"{found.workload.metadata.namespace}/{found.workload.metadata.name}"


@holds("no two flavors promise the same nodes", given(flavors_on_the_machine))
def separate_flavors(footings: Each[Ref, Footing]) -> Iterator[Finding]:
    known = [each for _, each in footings.known() if not each.on_demand]
    for resource in sorted({resource for each in known for resource in each.accelerators}):
        for group in overlapping([each for each in known if resource in each.accelerators]):
            yield from _overlap(resource, group)
    for each in footings:  # raises NotKnown for a flavor that could not be read
        each.must_be_whole()


def _overlap(resource: str, group: Sequence[Footing]) -> Iterator[Finding]:
    nodes = {node.ref: node for each in group for node in each.nodes}
    promised = sum(each.promised[resource] for each in group)
    there = group[0].offered(resource, nodes.values())
    alone = any(each.promised[resource] > each.offered(resource, each.nodes) for each in group)
    if promised <= there or alone:
        return
    for each in group:
        each.checks_must_be_read()
        each.must_be_on_nodes(resource)
    names = ", ".join(each.name for each in group)
    yield Finding(
        code=codes.OVERLAP,
        object=group[0].flavor.ref,
        message=(
            f"ResourceFlavors {names} match the same nodes, and together promise {shown(promised, resource)} "
            f"{resource} of the {shown(there, resource)} that are there"
        ),
        evidence=tuple(
            Evidence(each.flavor.ref, ".spec.nodeLabels", str(each.flavor.spec.node_labels)) for each in group
        ),
        look="kubectl get resourceflavors.kueue.x-k8s.io -o yaml",
        remedy=(
            "select by labels that exclude each other, or lower nominalQuota by "
            f"{shown(promised - there, resource)} (estimate); risk: none for what runs"
        ),
        mark=resource,
    )
