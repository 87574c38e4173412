"""What Kueue's API refuses in a ClusterQueue: never found in a cluster, but in files that people copy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpuctl.kueue.objects import ClusterQueue, FlavorQuota, ResourceGroup


@dataclass(frozen=True, slots=True)
class Refusal:
    """A reason, where it stands, what stands there, and what should."""

    kind: str
    says: str
    where: str
    observed: str
    remedy: str


def refusals(queue: ClusterQueue) -> Iterator[Refusal]:
    """Every reason for which a queue is refused."""
    for number, group in enumerate(queue.spec.resource_groups):
        where = f".spec.resourceGroups[{number}]"
        if not group.flavors:
            yield Refusal(
                "has no flavors",
                "a resource group has no flavors",
                f"{where}.flavors",
                "empty",
                "name a ResourceFlavor in it, or remove the group",
            )
        yield from _flavors(queue, group, where)


def _flavors(queue: ClusterQueue, group: ResourceGroup, where: str) -> Iterator[Refusal]:
    for number, flavor in enumerate(group.flavors):
        place = f"{where}.flavors[{number}]"
        names = tuple(each.name for each in flavor.resources)
        if names != group.covered_resources:
            yield Refusal(
                "has other resources than it covers",
                f"the resources of flavor {flavor.name} are not those of coveredResources, in the same order",
                f"{place}.resources",
                f"{_list(names)}; covered: {_list(group.covered_resources)}",
                "give every flavor a quota of each covered resource, in the order of coveredResources",
            )
        for position, quota in enumerate(flavor.resources):
            yield from _limits(queue, quota, f"{place}.resources[{position}]")


def _list(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "none"


def _limits(queue: ClusterQueue, quota: FlavorQuota, where: str) -> Iterator[Refusal]:
    limits = (("borrowingLimit", quota.borrowing_limit), ("lendingLimit", quota.lending_limit))
    for name, limit in limits:
        if limit is not None and not queue.cohort:
            yield Refusal(
                f"has {name} without a cohort",
                f"{name} of {quota.name} means nothing without a cohort: there is nobody to share with",
                f"{where}.{name}",
                str(limit),
                f"remove {name}, or put the queue into a cohort (cohortName, in v1beta1 cohort)",
            )
