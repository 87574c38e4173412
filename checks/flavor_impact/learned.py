"""What is known of each flavor, whatever the verdict: the subjects of the JSON report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from gpuctl.checks.flavor_impact.words import doing
from gpuctl.facts.fact import given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Each, Known, attempt
from gpuctl.kueue.flavors import FINALIZER, ON_FLAVORS, REFERRED_TO, Flavor, Reliance, Tenant
from gpuctl.kueue.objects import ResourceFlavor
from gpuctl.kueue.quantities import is_accelerator, shown
from gpuctl.kueue.queue_facts import FLAVORS


@given(ON_FLAVORS, REFERRED_TO, FLAVORS)
def learned_of_flavors(
    flavors: Each[Ref, Flavor], referred: Each[Ref, Reliance], written: Each[Ref, ResourceFlavor]
) -> Each[Ref, Mapping[str, Any]]:
    """Those that exist, and those that are only referred to. What could not be read is null."""
    missing = {
        ref: each
        for ref, each in referred.known()
        if attempt(partial(written.get, ref)) == Known(None) and not each.of_drill
    }
    there = {ref: each for ref, each in flavors.known() if not each.run_of_drill}
    return Each.of(
        {ref: _learned(each, there.get(ref)) for ref, each in sorted({**missing, **there}.items(), key=_name)}
    )


def _name(entry: tuple[Ref, Reliance]) -> str:
    return entry[0].name


def _learned(of: Reliance, flavor: Flavor | None) -> Mapping[str, Any]:
    return {
        "exists": flavor is not None,
        "deletedAt": flavor.written.metadata.deletion_timestamp if flavor else None,
        "finalizer": FINALIZER in flavor.written.metadata.finalizers if flavor else None,
        "clusterQueues": [each.metadata.name for each in of.queues],
        "cohorts": [each.metadata.name for each in of.cohorts],
        "withoutSecondFlavor": [each.metadata.name for each in of.without_second],
        "admitted": _or_none(lambda: len(of.holding)),
        "waiting": _or_none(lambda: len(of.waiting)),
        "inUse": _or_none(lambda: {name: shown(each, name) for name, each in of.in_use(of.holding).items()}),
        "gpusInUse": _or_none(lambda: shown(_gpus(of))),
        "nodes": _or_none(lambda: len(flavor.footing.nodes) if flavor else 0),
        "usableNodes": _or_none(lambda: len(flavor.footing.usable) if flavor else 0),
        "deletion": _deletion(of, flavor),
        "loss": _or_none(lambda: [_loss(of, each) for each in of.tenants]),
        "lessToBorrowFor": _or_none(lambda: list(of.peers)),
    }


def _or_none(make: Callable[[], Any]) -> Any:
    known = attempt(make)
    return known.value if isinstance(known, Known) else None


def _gpus(of: Reliance) -> int:
    return sum(each for name, each in of.in_use(of.holding).items() if is_accelerator(name))


def _deletion(of: Reliance, flavor: Flavor | None) -> str:
    """What would come of deleting it now."""
    if flavor is None:
        return "it does not exist"
    if flavor.written.metadata.deletion_timestamp:
        return "it is being deleted already"
    if not of.queues:
        return "it would go at once"
    if FINALIZER not in flavor.written.metadata.finalizers:
        return "it would go at once, and the queues that refer to it would admit nothing"
    return "it would stay and work on, until the edit that drops the last reference; that can't be undone"


def _loss(of: Reliance, tenant: Tenant) -> Mapping[str, Any]:
    """What a tenant would feel if it were gone."""
    return {
        "namespace": tenant.namespace,
        "localQueue": tenant.local_queue,
        "clusterQueue": tenant.cluster_queue,
        "running": len(tenant.running),
        "waiting": len(tenant.waiting),
        "effect": (
            f"{doing(of, tenant)}: what runs would run on, nothing more would be admitted by any flavor of "
            "the queue"
            if tenant.refers
            else f"{doing(of, tenant)}: what runs would run on; the queue no longer refers to the flavor"
        ),
    }
