"""Where what is reserved is not what pods ask for: Kueue counts a pod set when it admits it, and never looks
at its pods again.

Compared are accelerators: what webhooks and sidecars add to pods is cpu and memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import value
from gpuctl.kueue.leaks import Patience, leak_of
from gpuctl.kueue.objects import Assignment, Job, PlacedPod, Workload
from gpuctl.kueue.pods import Owned
from gpuctl.kueue.quantities import Amount, amount, is_accelerator, total
from gpuctl.kueue.quota import Cell, cells, reserved
from gpuctl.kueue.requests import of_pod, transformed
from gpuctl.kueue.scene import Line, told
from gpuctl.kueue.settings import Settings
from gpuctl.kueue.standing import Standing, admitted_at, age, standing

_OF_ACCELERATORS = re.compile(r"(?:^|[./-])(?:v?gpu|mig|tpu)(?:[./-]|$)")


@dataclass(frozen=True, slots=True)
class Off:
    """A Workload whose pods ask for more or less than it was given."""

    workload: Workload
    given: Amount
    asked: Amount
    pods: int
    expected: int


@dataclass(frozen=True, slots=True)
class Drift:
    """A resource of a flavor in a queue: what is reserved, what pods ask for, and whose differ."""

    cell: Cell
    reserved: Amount
    asked: Amount
    off: tuple[Off, ...]


@dataclass(frozen=True, slots=True)
class _Measured:
    """A Workload's own share of a resource in a flavor, and its pods' as things are."""

    workload: Workload
    cell: Cell
    given: Amount
    asked: Amount
    pods: int
    expected: int
    settled: bool

    @property
    def is_off(self) -> bool:
        return self.settled and self.given != self.asked


def drifts(line: Line, owned: Owned, patience: Patience) -> Iterator[Drift]:
    """The resources of a queue for which a Workload's pods ask for something else than it holds, and not just
    now. Raises NotKnown where pods or the manager's configuration could not be read."""
    found: dict[Cell, list[_Measured]] = {}
    for each in _measured(line, owned, patience):
        found.setdefault(each.cell, []).append(each)
    counted = reserved(line.queue)
    for cell in cells(line.queue):
        members = found.get(cell, [])
        off = tuple(_off(each) for each in members if each.is_off)
        if off:
            yield Drift(cell, counted.get(cell, 0), sum(each.asked for each in members), off)


@dataclass(frozen=True, slots=True)
class Uncounted:
    """A class of devices that Workloads claim, and that no quota counts."""

    device_class: str
    workloads: tuple[Workload, ...]


def uncounted(line: Line) -> Iterator[Uncounted]:
    """The accelerators that Workloads with quota claim, of classes that the manager was told nothing of.
    Raises NotKnown where templates or the manager's configuration could not be read."""
    found: dict[str, list[Workload]] = {}
    for workload in line.holding:
        for each in dict.fromkeys(_classes(workload, line)):
            found.setdefault(each, []).append(workload)
    for each in sorted(found):
        yield Uncounted(each, tuple(found[each]))


def _classes(workload: Workload, line: Line) -> Iterator[str]:
    for pods in workload.spec.pod_sets:
        for claim in pods.template.spec.resource_claims:
            template = line.crowd.template(claim, workload.metadata.namespace)
            settings = told(line.scene.settings, "the manager's configuration")
            for each in template.device_classes if template else ():
                if _OF_ACCELERATORS.search(each) and each not in settings.device_classes:
                    yield each


def _off(each: _Measured) -> Off:
    return Off(each.workload, each.given, each.asked, each.pods, each.expected)


def _measured(line: Line, owned: Owned, patience: Patience) -> Iterator[_Measured]:
    """Workloads that hold quota for nothing are left out: they are known by that."""
    for workload in line.holding:
        flavors = _flavors(workload)
        if not flavors or not _has_own_pods(workload, owned):
            continue
        if leak_of(workload, owned, line.scene.now, patience) is None:
            settings = told(line.scene.settings, "the manager's configuration")
            yield from _shares(workload, flavors, owned.ever(workload), settings, line.scene.now, patience)


def _shares(
    workload: Workload,
    flavors: Mapping[str, str],
    pods: Sequence[PlacedPod],
    settings: Settings,
    now: datetime,
    patience: Patience,
) -> Iterator[_Measured]:
    alive = [each for each in pods if not each.over]
    asked = _total(alive, settings)
    done = sum(each.status.phase == "Succeeded" for each in pods)
    counts = [each.count for each in _assignments(workload)]
    expected, over = sum(filter(None, counts)), max(done, workload.status.reclaimed)
    left = max(0, expected - over)
    clear = None not in counts and (len(counts) == 1 or not over)  # of which pod set the finished ones are
    settled = clear and _is_settled(workload, pods, now, patience)
    in_template = _in_template(workload, settings)
    for resource, flavor in flavors.items():
        given = _given(workload, resource) * left // expected if expected else 0
        known = settled and resource in in_template
        yield _Measured(
            workload, (flavor, resource), given, asked.get(resource, 0), len(alive), left, settled=known
        )


def _is_settled(workload: Workload, pods: Iterable[PlacedPod], now: datetime, patience: Patience) -> bool:
    """Whether nothing about its pods is still on its way: made, replaced after a failure, or ending."""
    if standing(workload) is not Standing.ADMITTED:
        return False
    moved = [admitted_at(workload), *(each.metadata.creation_timestamp for each in pods)]
    ending = any(each.metadata.deletion_timestamp for each in pods if not each.over)
    return not ending and all(age(each, now) > _patient(patience) for each in moved)


def _patient(patience: Patience) -> timedelta:
    """A Job makes a failed pod anew after at most six minutes."""
    return max(patience.without_pods, timedelta(minutes=6))


def _has_own_pods(workload: Workload, owned: Owned) -> bool:
    """Whether its pods can be told, and are in this cluster: a Job's, or the pods it was made for."""
    for owner in workload.metadata.owner_references:
        if owner.kind == "Job" and owner.api_version.startswith("batch/"):
            job = value(owned.jobs).get(Ref(Job.of, owner.name, workload.metadata.namespace))
            return job is not None and job.runs_here
        if owner.kind == "Pod" and owner.api_version == "v1":
            return True
    return False


def _flavors(workload: Workload) -> dict[str, str]:
    """The flavor of each accelerator; without those that pod sets got from different ones."""
    found: dict[str, set[str]] = {}
    for each in _assignments(workload):
        for resource, flavor in each.flavors.items():
            if is_accelerator(resource) and amount(each.resource_usage.get(resource, 0)):
                found.setdefault(resource, set()).add(flavor)
    return {resource: flavors.pop() for resource, flavors in found.items() if len(flavors) == 1}


def _assignments(workload: Workload) -> Sequence[Assignment]:
    admission = workload.status.admission
    return admission.pod_set_assignments if admission else ()


def _given(workload: Workload, resource: str) -> Amount:
    return sum(amount(each.resource_usage.get(resource, 0)) for each in _assignments(workload))


def _total(pods: Iterable[PlacedPod], settings: Settings) -> dict[str, Amount]:
    return total(transformed(of_pod(each.spec), settings) for each in pods)


def _in_template(workload: Workload, settings: Settings) -> frozenset[str]:
    """What its pods ask for themselves; devices that they claim are counted, and not among it."""
    specs = (each.template.spec for each in workload.spec.pod_sets)
    return frozenset(resource for spec in specs for resource in transformed(of_pod(spec), settings))
