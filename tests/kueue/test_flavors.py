"""What rests on flavors, what Kueue refuses, and what the journals of drills tell: as tables."""

from __future__ import annotations

import msgspec
import pytest

from gpuctl.facts.gather import gather
from gpuctl.facts.kinds import Ref
from gpuctl.kueue.drills import JOURNALS, newest_first
from gpuctl.kueue.flavors import ON_FLAVORS, REFERRED_TO, Flavor, Reliance
from gpuctl.kueue.objects import ClusterQueue, ResourceFlavor
from gpuctl.kueue.refusals import refusals
from tests.builders.queues import GPU, World, healthy
from tests.checks.flavor_impact.worlds import journal

CPU = "cpu"


def flavor(world: World, name: str = "h100") -> Flavor:
    return gather([ON_FLAVORS], world.reader(), {})[ON_FLAVORS][Ref(ResourceFlavor.of, name)]


def reliance(world: World, name: str) -> Reliance:
    return gather([REFERRED_TO], world.reader(), {})[REFERRED_TO][Ref(ResourceFlavor.of, name)]


def two_flavors() -> World:
    world = World()
    world.namespace("team-a")
    for name in ("h100", "a100"):
        world.flavor(name)
        world.node(f"node-{name}", flavor=name)
    world.queue("both", {"h100": {GPU: "8"}, "a100": {GPU: "8"}}, cohort="pool")
    world.queue("one", {"h100": {GPU: "8"}}, cohort="pool")
    world.queue("peer", {"a100": {GPU: "8"}}, cohort="pool")
    world.queue("far", {"a100": {GPU: "8"}})
    for name in ("both", "one", "peer"):
        world.local_queue(name, to=name)
    return world


def test_a_second_flavor_of_the_same_group_takes_the_place_of_a_lost_one() -> None:
    found = flavor(two_flavors())
    assert [each.metadata.name for each in found.queues] == ["both", "one"]
    assert [each.metadata.name for each in found.without_second] == ["one"]


def test_peers_in_the_cohort_lose_what_they_could_borrow() -> None:
    assert flavor(two_flavors()).peers == ("peer",)
    assert flavor(healthy()).peers == ()


def test_tenants_are_told_by_the_door_they_came_through() -> None:
    world = two_flavors()
    world.admitted("a", 2, to="one", queue="one", with_pod=False)
    world.workload("b", queue="both")
    world.workload("c", queue="peer")
    found = {each.name: (len(each.running), len(each.waiting)) for each in flavor(world).tenants}
    assert found == {"team-a/one": (1, 0), "team-a/both": (0, 1)}


def test_a_flavor_that_is_only_referred_to_has_tenants_too() -> None:
    world = healthy()
    world.drop("ResourceFlavor")
    found = reliance(world, "h100")
    assert [each.name for each in found.tenants] == ["team-a/main"]
    assert len(found.holding) == 8


def written(world: World, name: str = "vision") -> ClusterQueue:
    return msgspec.convert(world.one("ClusterQueue", name), ClusterQueue, strict=False)


@pytest.mark.parametrize(
    ("entry", "cohort", "kinds"),
    [
        ({"nominalQuota": "8"}, "", []),
        ({"nominalQuota": "8", "borrowingLimit": "0"}, "", ["has borrowingLimit without a cohort"]),
        ({"nominalQuota": "8", "lendingLimit": "2"}, "", ["has lendingLimit without a cohort"]),
        ({"nominalQuota": "8", "borrowingLimit": "2", "lendingLimit": "2"}, "pool", []),
    ],
)
@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_limits_take_a_cohort(entry: dict[str, str], cohort: str, kinds: list[str], version: str) -> None:
    world = World(version)
    world.queue("vision", {"h100": {GPU: entry}}, cohort=cohort)
    assert [each.kind for each in refusals(written(world))] == kinds


def test_every_flavor_gives_out_what_is_covered() -> None:
    world = World()
    world.queue("vision", {"h100": {GPU: "8", CPU: "4"}, "a100": {GPU: "8"}})
    (found,) = refusals(written(world))
    assert found.where == ".spec.resourceGroups[0].flavors[1].resources"
    assert found.observed == f"{GPU}; covered: {GPU}, {CPU}"


def test_the_newest_drill_comes_first() -> None:
    world = World()
    for number, days in enumerate((40, 2, 9)):
        journal(run=f"run-{number}", days=days)(world)
    found = gather([JOURNALS], world.reader(), {})[JOURNALS]
    assert [each.run for each in newest_first(found)] == ["run-1", "run-2", "run-0"]
