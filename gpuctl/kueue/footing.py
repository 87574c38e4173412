"""What stands under a flavor: its nodes, what they offer, and how much quota is promised on them.

Kueue never compares quota with nodes. Transformations are undone here: nodes know only what they offer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Each, Inapplicable, Known, NotKnown, Reason, State, Unknown, value
from gpuctl.kueue.objects import (
    AdmissionCheck,
    CheckRule,
    ClusterQueue,
    PlacedPod,
    ResourceFlavor,
    ResourceNode,
    Workload,
)
from gpuctl.kueue.placement import barring_taints, stands_for
from gpuctl.kueue.pods import Owned, by_node, is_kueues, takes, unschedulable
from gpuctl.kueue.quantities import ONE, Amount, amount, is_accelerator, is_share
from gpuctl.kueue.quota import limits, reserved
from gpuctl.kueue.scene import Line, Scene, told

# Labels by which something is asked of a node; what it has is told by others.
DESIRES: Mapping[str, str] = {
    "nvidia.com/mig.config": "nvidia.com/mig.config.state",
    "nvidia.com/device-plugin.config": "nvidia.com/gpu.product",
}

PROVISIONING = "kueue.x-k8s.io/provisioning-request"
MULTIKUEUE = "kueue.x-k8s.io/multikueue"
_BRINGERS = (PROVISIONING, MULTIKUEUE)


@dataclass(frozen=True)
class Ground:
    """Nodes and pods, as they were read."""

    nodes: State[Each[Ref, ResourceNode]]
    owned: Owned
    holding: tuple[Workload, ...] = ()  # all Workloads with quota, of whatever flavor
    gaps: tuple[Unknown, ...] = ()  # Workloads that may hold quota and could not be read

    @cached_property
    def kueues(self) -> frozenset[Ref]:
        """The pods of Workloads with quota."""
        return frozenset(pod.ref for each in self.holding for pod in self.owned.of(each))

    @cached_property
    def unclear(self) -> frozenset[str]:
        """The namespaces of Workloads whose pods are not known by their owners: any pod there may be
        theirs."""
        return frozenset(each.metadata.namespace for each in self.holding if not self.owned.of(each))

    def is_outside(self, pod: PlacedPod) -> bool:
        """Whether Kueue can't be counting a pod."""
        known = is_kueues(pod) or pod.ref in self.kueues
        return not known and pod.metadata.namespace not in self.unclear

    @cached_property
    def pods_on(self) -> Mapping[str, list[PlacedPod]]:
        """The pods on each node."""
        return by_node(self.owned.alive)

    def free(self, node: ResourceNode, resource: str) -> Amount:
        """What is left of a resource on a node."""
        used = sum(takes(pod, resource) for pod in self.pods_on.get(node.metadata.name, ()))
        return amount(node.status.allocatable.get(resource, 0)) - used


@dataclass(frozen=True)
class Footing:
    """A flavor and all that concerns it. `named`: queues that refer to it, by name."""

    flavor: ResourceFlavor
    scene: Scene
    ground: Ground
    lines: tuple[Line, ...]

    @property
    def name(self) -> str:
        return self.flavor.metadata.name

    @cached_property
    def nodes(self) -> tuple[ResourceNode, ...]:
        """The nodes that bear its labels."""
        return tuple(each for each in told(self.ground.nodes, "nodes") if stands_for(self.flavor, each))

    @property
    def usable(self) -> tuple[ResourceNode, ...]:
        """Those that are Ready and not cordoned."""
        return tuple(each for each in self.nodes if each.usable)

    @property
    def on_demand(self) -> bool:
        """Whether for all that can be admitted in it an AdmissionCheck brings nodes when they are asked for,
        or sends it to another cluster's. A check that could not be read counts as one that does not."""
        rules = self._rules
        return bool(rules) and all(any(map(self._brings_nodes, each)) for each in rules)

    def checks_must_be_read(self) -> None:
        """Raises NotKnown if AdmissionChecks that could not be read may be such that bring nodes."""
        rules = self._rules
        for rule in (rule for each in rules for rule in each) if all(rules) else ():
            told(self.scene.written.checks, "AdmissionChecks").get(Ref(AdmissionCheck.of, rule.name))

    @property
    def _rules(self) -> tuple[tuple[CheckRule, ...], ...]:
        """Of each queue that can admit something in it, the AdmissionChecks that stand before it."""
        users = (each for each in self.queues if _can_admit(each, self.name))
        return tuple(tuple(rule for rule in each.checks if rule.covers(self.name)) for each in users)

    def _brings_nodes(self, rule: CheckRule) -> bool:
        checks = self.scene.written.checks
        found = (
            checks.value.entries.get(Ref(AdmissionCheck.of, rule.name)) if isinstance(checks, Known) else None
        )
        return isinstance(found, Known) and found.value.spec.controller_name in _BRINGERS

    @property
    def queues(self) -> tuple[ClusterQueue, ...]:
        """The queues that give it out."""
        return tuple(each.queue for each in self.lines)

    @cached_property
    def promised(self) -> Mapping[str, Amount]:
        """The quota that queues and cohorts promise, by resource; without cohorts that could not be read."""
        cohorts = self.scene.written.cohorts
        written = [each.spec.resource_groups for each in self.scene.written.queues]
        if isinstance(cohorts, Known):
            written += [each.spec.resource_groups for _, each in cohorts.value.known()]
        found: dict[str, Amount] = {}
        for groups in written:
            for (flavor, resource), each in limits(groups).items():
                if flavor == self.name:
                    found[resource] = found.get(resource, 0) + each.nominal
        return found

    def must_be_whole(self) -> None:
        """Raises NotKnown if more may be promised than could be read."""
        cohorts = self.scene.written.cohorts
        if not isinstance(cohorts, Inapplicable):
            for _ in told(cohorts, "Cohorts"):
                pass

    def reserved(self, resource: str) -> Amount:
        """What is held of it, over all queues."""
        uses = (reserved(each).get((self.name, resource), 0) for each in self.scene.written.queues)
        return sum(uses)

    def offered(self, resource: str, nodes: Iterable[ResourceNode]) -> Amount:
        """What nodes offer of a resource that Kueue counts, in Kueue's units. Raises NotKnown."""
        settings = told(self.scene.settings, "the manager's configuration")
        worth = dict(_worths(resource, self.scene))
        found = 0
        for node in nodes:
            for source in settings.inputs_of(resource):
                found += amount(node.status.allocatable.get(source, 0)) * worth.get(source, ONE) // ONE
        return found

    def must_be_on_nodes(self, resource: str) -> None:
        """Raises NotKnown if there may be more of a resource than nodes offer: devices that are claimed, or
        shares that a scheduler of their own counts."""
        if resource in told(self.scene.settings, "the manager's configuration").claimed:
            raise _uncompared(resource, "it is claimed too (deviceClassMappings)")
        if is_share(resource) and not self.offered(resource, self.nodes):
            raise _uncompared(resource, "no node offers it, and a scheduler of its own may count it")

    def taken_outside(self, resource: str) -> Amount:
        """What pods that Kueue does not count take on its nodes. Raises NotKnown if they may be Kueue's."""
        on_nodes = (pod for node in self.nodes for pod in self.ground.pods_on.get(node.metadata.name, ()))
        taken = sum(takes(pod, resource) for pod in on_nodes if self.ground.is_outside(pod))
        for gap in self.ground.gaps if taken else ():
            raise NotKnown(gap)
        return taken

    @property
    def accelerators(self) -> Sequence[str]:
        """The resources people queue for, of which quota is promised."""
        return sorted(each for each, quota in self.promised.items() if quota and is_accelerator(each))

    @property
    def shares(self) -> Sequence[str]:
        """The memory and cores of GPUs of which quota is promised."""
        return sorted(each for each, quota in self.promised.items() if quota and is_share(each))

    def barred(self) -> Iterator[str]:
        """The taints on its nodes that only pods' own tolerations get past."""
        yield from sorted({str(taint) for node in self.usable for taint in barring_taints(self.flavor, node)})


def _can_admit(queue: ClusterQueue, flavor: str) -> bool:
    """Whether a queue has quota of a flavor, or may borrow some."""
    return any(
        each.nominal or (queue.cohort and each.borrowing != 0)
        for (name, _), each in limits(queue.spec.resource_groups).items()
        if name == flavor
    )


def _uncompared(resource: str, why: str) -> NotKnown:
    return NotKnown(Unknown(Reason.NOT_ASKED, f"how much {resource} there is can't be told: {why}", resource))


def _worths(resource: str, scene: Scene) -> Iterator[tuple[str, Amount]]:
    for each in told(scene.settings, "the manager's configuration").transformations:
        for output, worth in each.outputs:
            if output == resource:
                if each.multiplied_by:
                    raise NotKnown(Inapplicable(f"{resource} is counted by {each.multiplied_by}"))
                yield each.resource, worth


@dataclass(frozen=True)
class Stuck:
    """An admitted Workload with pods for which the scheduler finds no node."""

    workload: Workload
    pods: tuple[PlacedPod, ...]
    resource: str
    asked: Amount  # by one pod
    free: Amount  # on all of the flavor's usable nodes together
    largest: Amount  # on the one that has most
    says: str

    @property
    def fragmented(self) -> bool:
        """Whether there is enough, but on no single node."""
        return self.free >= self.asked > self.largest

    @property
    def short(self) -> bool:
        """Whether there is not enough."""
        return self.free < self.asked


def stuck(footing: Footing) -> Iterator[Stuck]:
    """The admitted Workloads whose pods find no node."""
    for line in footing.lines:
        for workload in line.holding:
            resource = _resource_in(workload, footing.name)
            pods = tuple(each for each in footing.ground.owned.of(workload) if unschedulable(each))
            if resource and pods:
                yield _measured(workload, pods, resource, footing)


def _resource_in(workload: Workload, flavor: str) -> str:
    """The resource a Workload was given in a flavor, an accelerator before others; empty if none."""
    admission = workload.status.admission
    found = [
        resource
        for each in (admission.pod_set_assignments if admission else ())
        for resource, given in each.flavors.items()
        if given == flavor
    ]
    return min(found, key=lambda each: (not is_accelerator(each), each), default="")


def _measured(workload: Workload, pods: tuple[PlacedPod, ...], resource: str, footing: Footing) -> Stuck:
    source = next(iter(value(footing.scene.settings).inputs_of(resource)))
    free = [max(0, footing.ground.free(node, source)) for node in footing.usable]
    asked = max(takes(pod, source) for pod in pods)
    return Stuck(workload, pods, source, asked, sum(free), max(free, default=0), unschedulable(pods[0]))


def overlapping(footings: Sequence[Footing]) -> Iterator[tuple[Footing, ...]]:
    """Groups of flavors that share nodes, each with at least two."""
    groups: list[tuple[set[Ref], list[Footing]]] = []
    for footing in sorted(footings, key=lambda each: each.name):
        nodes = {node.ref for node in footing.nodes}
        touching = [group for group in groups if group[0] & nodes]
        members = [each for group in touching for each in group[1]]
        groups = [group for group in groups if group not in touching]
        groups.append((nodes.union(*(group[0] for group in touching)), [*members, footing]))
    yield from (tuple(members) for _, members in groups if len(members) > 1)
