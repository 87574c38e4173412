"""What a Workload asks for, as Kueue counts it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpuctl.facts.state import State, value
from gpuctl.kueue.objects import PodSet, Requesting, RequestingPodSpec, Workload
from gpuctl.kueue.quantities import ONE, Amount, Amounts, amount, amounts, largest, times, total
from gpuctl.kueue.settings import Settings, Transformation

PODS = "pods"


@dataclass(frozen=True, slots=True)
class Ask:
    """What one pod set asks for in all."""

    name: str
    count: int
    amounts: Amounts


def asked(workload: Workload, settings: State[Settings]) -> tuple[Ask, ...]:
    """What each pod set asks for: in Kueue's own words where it has written them down.

    Otherwise counted from the pod templates, for which the manager's configuration must be known.
    """
    written = {each.name: each.resources for each in workload.status.resource_requests}
    sets = workload.spec.pod_sets
    if sets and all(each.name in written for each in sets):
        return tuple(Ask(each.name, each.count, _positive(amounts(written[each.name]))) for each in sets)
    known = value(settings)
    return tuple(_counted(each, known) for each in sets)


def _counted(pods: PodSet, settings: Settings) -> Ask:
    one = transformed(of_pod(pods.template.spec), settings)
    counted = {resource: each for resource, each in one.items() if settings.counts(resource)}
    return Ask(pods.name, pods.count, _positive(times(pods.count, counted)))


def _positive(found: Mapping[str, Amount]) -> dict[str, Amount]:
    return {resource: each for resource, each in found.items() if each > 0}


def of_pod(spec: RequestingPodSpec) -> dict[str, Amount]:
    """What one pod takes: the larger of its containers together and of each that runs before them."""
    if not spec.init_containers and not spec.overhead and len(spec.containers) == 1:
        return of_container(spec.containers[0])
    beside = [each for each in spec.init_containers if each.restart_policy == "Always"]
    before = [each for each in spec.init_containers if each.restart_policy != "Always"]
    running = total(map(of_container, (*spec.containers, *beside)))
    return total((largest((running, *map(of_container, before))), amounts(spec.overhead)))


def of_container(container: Requesting) -> dict[str, Amount]:
    """A limit stands for a request that is not written."""
    needs = container.resources
    return {resource: amount(each) for resource, each in {**needs.limits, **needs.requests}.items()}


def transformed(found: Amounts, settings: Settings) -> dict[str, Amount]:
    """The same as the manager counts it: resources that it was told to count as others."""
    if not settings.transformations:
        return dict(found)
    rules = {each.resource: each for each in settings.transformations}
    return total(_outputs(resource, each, rules.get(resource), found) for resource, each in found.items())


def _outputs(resource: str, each: Amount, rule: Transformation | None, found: Amounts) -> Amounts:
    if rule is None:
        return {resource: each}
    factor = found.get(rule.multiplied_by, ONE) if rule.multiplied_by else ONE
    made = {output: worth * each // ONE * factor // ONE for output, worth in rule.outputs}
    return made if rule.replaced else total(({resource: each}, made))


def held(workload: Workload) -> dict[tuple[str, str], Amount]:
    """What a Workload has been given, by flavor and resource."""
    admission = workload.status.admission
    return total_cells(
        {
            (flavor, resource): amount(each.resource_usage.get(resource, 0))
            for resource, flavor in each.flavors.items()
        }
        for each in (admission.pod_set_assignments if admission else ())
    )


def total_cells(parts: Iterable[Mapping[tuple[str, str], Amount]]) -> dict[tuple[str, str], Amount]:
    """The sum of several, by flavor and resource."""
    found: dict[tuple[str, str], Amount] = {}
    for part in parts:
        for cell, each in part.items():
            found[cell] = found.get(cell, 0) + each
    return found
