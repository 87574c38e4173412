"""Which Deployment a restart is meant for: told only where no other can be meant."""

from __future__ import annotations

from dataclasses import replace

from gpuctl.facts.gather import gather
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Each, Known, Reason, Unknown
from gpuctl.kueue.facts import kueue_managers
from gpuctl.kueue.manager import Manager
from gpuctl.kueue.restarts import deployment_in_doubt, plan_of_restart
from tests.builders.kueue import Cluster, healthy

FORBIDDEN = Unknown(Reason.FORBIDDEN, "no")


def managers(cluster: Cluster) -> Each[Ref, Manager]:
    return gather((kueue_managers,), cluster.reader(), {})[kueue_managers]


def test_the_only_manager_is_meant() -> None:
    deployment = deployment_in_doubt(Known(managers(healthy())))
    assert deployment is not None
    assert plan_of_restart(deployment) == "gpuctl plan kueue-restart kueue-system/kueue-controller-manager"


def test_of_two_none_is_meant_unless_one_is_silent() -> None:
    known = managers(healthy())
    (ref,) = known.entries
    other = replace(ref, namespace="elsewhere")
    assert deployment_in_doubt(Known(Each({**known.entries, other: known.entries[ref]}))) is None
    cluster = healthy()
    cluster.drop("EndpointSlice")
    cluster.drop("Pod")
    cluster.one("Deployment")["spec"]["replicas"] = 0
    silent = managers(cluster).entries[ref]
    found = deployment_in_doubt(Known(Each({other: known.entries[ref], ref: silent})))
    assert found is not None
    assert found.namespace == "kueue-system"


def test_where_it_is_not_known_none_is_meant() -> None:
    known = managers(healthy())
    assert deployment_in_doubt(FORBIDDEN) is None
    assert deployment_in_doubt(Known(Each(known.entries, (FORBIDDEN,)))) is None
    assert deployment_in_doubt(Known(Each({}))) is None
