"""What a subresource tells: read where it is served, and otherwise a state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuctl.cluster.connection import Access, connect
from gpuctl.cluster.live import LiveReader
from gpuctl.cluster.snapshot import open_snapshot
from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Inapplicable, Known, Reason, Unknown
from gpuctl.kueue.objects import PENDING_WORKLOADS, ClusterQueue, PendingWorkloads
from tests.cluster_door import fake_api as does
from tests.cluster_door.fake_api import FakeApi

GROUP = "/apis/visibility.kueue.x-k8s.io"
LINE = f"{GROUP}/v1beta2/clusterqueues/vision/pendingworkloads"
VISION = Ref(ClusterQueue.of, "vision")
ANSWER = {
    "kind": "PendingWorkloadsSummary",
    "apiVersion": "visibility.kueue.x-k8s.io/v1beta2",
    "metadata": {},
    "items": [
        {
            "metadata": {"name": "train", "namespace": "team-a", "creationTimestamp": "2026-11-30T09:00:00Z"},
            "priority": 0,
            "localQueueName": "main",
            "positionInClusterQueue": 3,
            "positionInLocalQueue": 1,
        }
    ],
}


@pytest.fixture
def reader(api: FakeApi, kubeconfig: Callable[..., Access]) -> LiveReader:
    api.on(GROUP, does.group("visibility.kueue.x-k8s.io", "v1beta2", "v1beta1"))
    api.on(f"{GROUP}/v1beta2", does.resources("clusterqueues", "clusterqueues/pendingworkloads"))
    return LiveReader(connect(kubeconfig(api.url), 5), 5)


def read(reader: Any) -> Any:
    return reader.part(PENDING_WORKLOADS, PendingWorkloads, (VISION,))


def test_the_line_of_a_queue(api: FakeApi, reader: LiveReader) -> None:
    api.on(LINE, does.body(ANSWER))
    (item,) = read(reader).value[VISION].items
    assert (item.metadata.namespace, item.metadata.name, item.position) == ("team-a", "train", 3)


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        (does.status(403, "Forbidden", "cannot get clusterqueues/pendingworkloads"), Reason.FORBIDDEN),
        (does.status(503, "ServiceUnavailable", "no endpoints"), Reason.SERVER_ERROR),
        (does.body({"items": [{"metadata": {}}]}), Reason.MALFORMED),
    ],
)
def test_what_is_refused_is_unknown(api: FakeApi, reader: LiveReader, behaviour: Any, reason: Reason) -> None:
    api.on(LINE, behaviour)
    (gap,) = read(reader).value.gaps()
    assert isinstance(gap, Unknown)
    assert gap.reason is reason


def test_where_it_is_not_served_the_question_does_not_arise(
    api: FakeApi, kubeconfig: Callable[..., Access]
) -> None:
    assert isinstance(read(LiveReader(connect(kubeconfig(api.url), 5), 5)), Inapplicable)
    tenant = LiveReader(connect(kubeconfig(api.url), 5), 5, namespace="team-a")
    assert isinstance(read(tenant), Inapplicable)


def test_nothing_named_is_nothing_asked(api: FakeApi, reader: LiveReader) -> None:
    state = reader.part(PENDING_WORKLOADS, PendingWorkloads, ())
    assert isinstance(state, Known)
    assert api.requests == []


def test_no_record_holds_it(tmp_path: Path) -> None:
    (tmp_path / "capture.yaml").write_text("apiVersion: gpuctl.dev/v1\nkind: Snapshot\nwriter: test\n")
    assert isinstance(read(open_snapshot(tmp_path)), Inapplicable)
