"""What the printed role says of a rule is so: without it exactly the assertions it names can't be judged."""

from __future__ import annotations

import pytest

from gpuctl.audit.permissions import Grant, grants
from gpuctl.checks.flavor_impact import CHECK
from gpuctl.facts.fact import graph
from tests.builders.queues import GPU, World, healthy
from tests.checks.flavor_impact.worlds import both, journal, taint, tolerating
from tests.checks.judging import FORBIDDEN, Verdicts
from tests.checks.judging import judged_flavors as judged
from tests.checks.queue_growth.test_manager import with_manager

READS = [grant for grant in grants([CHECK]) if grant.reads]


def all_in_use() -> World:
    """A cluster that makes use of everything there is, and in which nothing is wrong."""
    world = healthy()
    both(taint("dedicated"), tolerating("dedicated"), journal())(world)
    world.flavor("unused")
    world.cohort("all", quota={"h100": {GPU: "1"}})
    return with_manager(world)


def resource(grant: Grant) -> str:
    return f"{grant.rule.resource}.{grant.rule.group}" if grant.rule.group else grant.rule.resource


def not_judged(world: World, grant: Grant) -> set[str]:
    """What comes out otherwise without a permission."""
    before, after = judged(world), judged(world, missing={resource(grant): FORBIDDEN})
    found = {name for name, verdict in after.by_assertion.items() if verdict != before.by_assertion[name]}
    assert {after.by_assertion[name].value for name in found} <= {"unknown", "not-proven"}
    return {f"{CHECK.id}/{name}" for name in found}


def named(grant: Grant) -> set[str]:
    """What the role names for a resource, whatever the verb: a cluster in memory knows no verbs."""
    same = (each for each in READS if resource(each) == resource(grant))
    return {name for each in same for name in each.assertions}


def test_nothing_is_wrong_there() -> None:
    found: Verdicts = judged(all_in_use())
    assert found.codes == []
    assert {each.value for each in found.by_assertion.values()} == {"pass"}


@pytest.mark.parametrize("grant", READS, ids=lambda grant: str(grant.rule))
def test_without_a_rule_exactly_what_it_names_is_not_judged(grant: Grant) -> None:
    assert not_judged(all_in_use(), grant) == named(grant)


@pytest.mark.parametrize("grant", READS, ids=lambda grant: str(grant.rule))
def test_in_a_plain_cluster_it_costs_no_more(grant: Grant) -> None:
    assert not_judged(with_manager(healthy()), grant) <= named(grant)


def test_nothing_is_declared_about_reads_that_are_not_made() -> None:
    assert set(CHECK.needed_for) <= set(graph(CHECK.needs))
