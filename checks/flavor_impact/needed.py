"""Which assertions depend on which reads where nothing is wrong: somewhere among what flavors can be. All of
them are looked at by more, to say who is concerned."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from gpuctl.audit.assertion import Assertion
from gpuctl.checks.flavor_impact.deleted import lasting_flavors
from gpuctl.checks.flavor_impact.drill import drilled_loss, removed_canaries
from gpuctl.checks.flavor_impact.existing import existing_flavors, protected_flavors
from gpuctl.checks.flavor_impact.nodes import flavors_with_nodes, separate_nodes
from gpuctl.checks.flavor_impact.written import accepted_queues, read_flavors
from gpuctl.facts.fact import Fact
from gpuctl.kueue import drills, facts, queue_facts

_NODES: Final = (flavors_with_nodes, separate_nodes)
_FLAVORS: Final = (
    *_NODES,
    existing_flavors,
    lasting_flavors,
    protected_flavors,
    read_flavors,
    removed_canaries,
)
# As what the nodes' resources are counted stands in the manager's configuration; to find it takes all these.
_SETTINGS: Final = _NODES
NEEDED_FOR: Final[Mapping[Fact[Any], Collection[Assertion]]] = {
    queue_facts.FLAVORS: _FLAVORS,
    queue_facts.QUEUES: (*_FLAVORS, accepted_queues),
    queue_facts.COHORTS: (*_NODES, existing_flavors, protected_flavors),
    queue_facts.WORKLOADS: _NODES,  # that tolerate a taint by themselves
    queue_facts.LOCAL_QUEUES: _NODES,  # through which they wait
    queue_facts.NODES: _NODES,
    queue_facts.TOPOLOGIES: (),
    queue_facts.ADMISSION_CHECKS: (),
    queue_facts.CLAIM_TEMPLATES: (),
    drills.JOURNALS: (drilled_loss,),
    facts.NAMESPACES: (),
    **dict.fromkeys(facts.READ_FOR_SETTINGS, _SETTINGS),
    facts.API_SERVICES: (),
    facts.PODS: (),
    facts.SLICES: (),
}
