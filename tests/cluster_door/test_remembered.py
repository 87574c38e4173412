"""What looks at one server share: where to read. What is there each of them reads anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest

from gpuctl.audit.policy import Policy
from gpuctl.cli.acting import Acting, Means
from gpuctl.cli.looking import Looking
from gpuctl.cli.monitoring import Monitoring
from gpuctl.cluster.connection import Access
from gpuctl.cluster.probe import Probing
from gpuctl.facts.fact import Fact, Named, Objects, Part, Served, given
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Inapplicable, Known, Reason, State, Unknown
from gpuctl.kueue.objects import PENDING_WORKLOADS, ClusterQueue, PendingWorkloads
from tests.cluster_door import fake_api as does
from tests.cluster_door.fake_api import Behaviour, FakeApi

KUEUE, VISIBILITY = "/apis/kueue.x-k8s.io", "/apis/visibility.kueue.x-k8s.io"
QUEUES = Objects(ClusterQueue)
SERVED = Served("kueue.x-k8s.io")
VISION = Ref(ClusterQueue.of, "vision")


@given()
def the_queue() -> tuple[Ref, ...]:
    return (VISION,)


ONE = Named(ClusterQueue, the_queue)
LINE = Part(PENDING_WORKLOADS, PendingWorkloads, the_queue)


def queue(version: str = "v1beta2") -> dict[str, Any]:
    return {
        "apiVersion": f"kueue.x-k8s.io/{version}",
        "kind": "ClusterQueue",
        "metadata": {"name": "vision", "uid": "u-1"},
        "spec": {},
    }


class Cluster:
    """A server with Kueue, or without it, and a run that looks at it again and again."""

    def __init__(self, api: FakeApi, access: Access) -> None:
        self.api = api
        api.on("/api/v1/namespaces/kube-system", does.body({"metadata": {"name": "x", "uid": "cluster-1"}}))
        acting = Acting(Policy(), "gpuctl-system", "", "", 60)
        self.site = Means(access, Looking(Probing("none"), (), ""), acting, Monitoring()).open()

    def serves(self, *versions: str) -> Cluster:
        """Kueue in these versions; in none: it is not installed."""
        known = dict.fromkeys(("v1beta2", "v1beta1"), does.no_such_path)
        self.api.on("/apis", does.groups(*(["kueue.x-k8s.io"] if versions else [])))
        self.api.on(KUEUE, does.group("kueue.x-k8s.io", *versions) if versions else does.no_such_path)
        for version in known:
            there = version in versions
            for path, good in self._answers(version).items():
                self.api.on(path, good if there else does.no_such_path)
        return self

    def _answers(self, version: str) -> dict[str, Behaviour]:
        root = f"{KUEUE}/{version}"
        return {
            root: does.resources("clusterqueues"),
            f"{root}/clusterqueues": does.a_list("ClusterQueue", [queue(version)]),
            f"{root}/clusterqueues/vision": does.body(queue(version)),
        }

    def look(self, fact: Fact[Any]) -> State[Any]:
        return self.site.looks(quiet=True)({})([fact]).state(fact)

    def asked(self) -> list[str]:
        """The paths that were asked for since the last time."""
        paths = [urlsplit(path).path for path, _ in self.api.requests]
        self.api.requests.clear()
        return paths


@pytest.fixture
def cluster(api: FakeApi, kubeconfig: Callable[..., Access]) -> Cluster:
    found = Cluster(api, kubeconfig(api.url)).serves("v1beta2", "v1beta1")
    found.asked()
    return found


def names(state: State[Any]) -> list[str]:
    assert isinstance(state, Known), state
    return [each.metadata.name for each in state.value]


@pytest.mark.parametrize(("fact", "path"), [(QUEUES, "clusterqueues"), (ONE, "clusterqueues/vision")])
def test_where_to_read_is_asked_once_and_what_is_there_each_time(
    cluster: Cluster, fact: Fact[Any], path: str
) -> None:
    assert names(cluster.look(fact)) == ["vision"]
    assert cluster.asked() == [KUEUE, f"{KUEUE}/v1beta2/{path}"]
    for _ in range(3):
        assert names(cluster.look(fact)) == ["vision"]
        assert cluster.asked() == [f"{KUEUE}/v1beta2/{path}"]
    cluster.api.on(f"{KUEUE}/v1beta2/clusterqueues", does.a_list("ClusterQueue", []))
    cluster.api.on(f"{KUEUE}/v1beta2/clusterqueues/vision", does.status(404, "NotFound", "no vision"))
    assert not names(cluster.look(QUEUES))


def test_which_versions_are_served_is_a_fact_and_asked_each_time(cluster: Cluster) -> None:
    assert cluster.look(SERVED) == Known(("v1beta2", "v1beta1"))
    cluster.look(QUEUES)
    cluster.serves("v1beta1")
    assert cluster.look(SERVED) == Known(("v1beta1",))
    cluster.serves()
    assert cluster.look(SERVED) == Known(())


@pytest.mark.parametrize("fact", [QUEUES, ONE])
def test_what_was_not_served_may_have_been_installed_since(cluster: Cluster, fact: Fact[Any]) -> None:
    cluster.serves()
    for _ in range(2):
        assert isinstance(cluster.look(fact), Inapplicable)
    cluster.serves("v1beta1")
    assert names(cluster.look(fact)) == ["vision"]


@pytest.mark.parametrize("fact", [QUEUES, ONE])
def test_what_was_served_may_have_been_removed_since(cluster: Cluster, fact: Fact[Any]) -> None:
    cluster.look(fact)
    cluster.serves()
    assert isinstance(cluster.look(fact), Inapplicable)
    cluster.serves("v1beta2")
    assert names(cluster.look(fact)) == ["vision"]


@pytest.mark.parametrize("fact", [QUEUES, ONE])
@pytest.mark.parametrize(("before", "after"), [("v1beta1", "v1beta2"), ("v1beta2", "v1beta1")])
def test_an_upgrade_in_between_is_no_absence(
    cluster: Cluster, fact: Fact[Any], before: str, after: str
) -> None:
    cluster.serves(before)
    assert names(cluster.look(fact)) == ["vision"]
    cluster.serves(after)
    for _ in range(2):
        assert names(cluster.look(fact)) == ["vision"]


@pytest.mark.parametrize("fact", [QUEUES, ONE])
def test_a_version_that_fails_is_read_in_another_that_was_added(cluster: Cluster, fact: Fact[Any]) -> None:
    broken = does.status(500, "InternalError", "conversion webhook failed")
    cluster.serves("v1beta1")
    cluster.look(fact)
    cluster.serves("v1beta1", "v1beta2")
    for path in ("clusterqueues", "clusterqueues/vision"):
        cluster.api.on(f"{KUEUE}/v1beta1/{path}", broken)
    assert names(cluster.look(fact)) == ["vision"]


@pytest.mark.parametrize("fact", [QUEUES, ONE])
def test_where_nothing_is_known_nothing_is_said(cluster: Cluster, fact: Fact[Any]) -> None:
    cluster.look(fact)
    cluster.serves()
    cluster.api.on(KUEUE, does.status(500, "InternalError", "no"))
    state = cluster.look(fact)
    gap = state if isinstance(state, Unknown) else next(state.value.gaps())  # type: ignore[union-attr]
    assert gap.reason is Reason.SERVER_ERROR


def test_a_part_of_what_moved_to_another_version(cluster: Cluster) -> None:
    answer = {"kind": "PendingWorkloadsSummary", "metadata": {}, "items": []}

    def serves(version: str) -> None:
        cluster.api.on("/apis", does.groups("visibility.kueue.x-k8s.io"))
        cluster.api.on(VISIBILITY, does.group("visibility.kueue.x-k8s.io", version))
        for each in ("v1beta2", "v1beta1"):
            root = f"{VISIBILITY}/{each}"
            there = each == version
            plurals = does.resources("clusterqueues", "clusterqueues/pendingworkloads")
            cluster.api.on(root, plurals if there else does.no_such_path)
            line = f"{root}/clusterqueues/vision/pendingworkloads"
            cluster.api.on(line, does.body(answer) if there else does.no_such_path)

    for version in ("v1beta1", "v1beta2", "v1beta1"):
        serves(version)
        state = cluster.look(LINE)
        assert isinstance(state, Known)
        assert state.value[VISION].items == ()


def test_two_sites_share_nothing(api: FakeApi, kubeconfig: Callable[..., Access]) -> None:
    for _ in range(2):
        found = Cluster(api, kubeconfig(api.url)).serves("v1beta2")
        found.asked()
        found.look(QUEUES)
        assert KUEUE in found.asked()
