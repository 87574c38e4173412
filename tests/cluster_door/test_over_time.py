"""What is watched for a while, and what a Prometheus answers: read, recorded, replayed; only with consent."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuctl.audit.report import Source
from gpuctl.cluster.connection import Access, connect
from gpuctl.cluster.consent import Consent
from gpuctl.cluster.live import ROUNDS, LiveReader
from gpuctl.cluster.metrics import parse
from gpuctl.cluster.record import Recorder
from gpuctl.cluster.snapshot import open_snapshot
from gpuctl.cluster.web import Server
from gpuctl.facts.metrics import labels
from gpuctl.facts.state import Inapplicable, Known, Reason, Unknown
from gpuctl.kueue.objects import WatchedQueue
from tests.cluster_door import fake_api as does
from tests.cluster_door.fake_api import Exchange, FakeApi

QUEUES = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues"
GROUP = "/apis/kueue.x-k8s.io"
RANGE = "/api/v1/query_range"
QUERY = 'sum by (cluster_queue) (kueue_pending_workloads{role!="x"})'
SOURCE = Source(kind="live", name="here")


def queue(pending: int) -> dict[str, Any]:
    return {"metadata": {"name": "vision"}, "status": {"pendingWorkloads": pending}}


def matrix(*values: Any) -> dict[str, Any]:
    series = {
        "metric": {"cluster_queue": "vision"},
        "values": [[1000 + at, each] for at, each in enumerate(values)],
    }
    return {"status": "success", "data": {"resultType": "matrix", "result": [series]}}


@pytest.fixture
def open_reader(api: FakeApi, kubeconfig: Callable[..., Access]) -> Callable[..., LiveReader]:
    def make(**settings: Any) -> LiveReader:
        return LiveReader(connect(kubeconfig(api.url), 30), 30, **settings)

    versions = [{"groupVersion": "kueue.x-k8s.io/v1beta2", "version": "v1beta2"}]
    api.on(GROUP, does.body({"kind": "APIGroup", "versions": versions, "preferredVersion": versions[0]}))
    return make


def test_nothing_is_watched_or_asked_without_consent(
    open_reader: Callable[..., LiveReader], api: FakeApi
) -> None:
    reader = open_reader()
    watched, asked = reader.sampled(WatchedQueue), reader.metrics(QUERY, 6)
    assert isinstance(watched, Unknown)
    assert watched.reason is Reason.NOT_ASKED
    assert isinstance(asked, Inapplicable)
    assert api.requests == []


def test_what_is_watched_is_recorded_and_replayed(
    open_reader: Callable[..., LiveReader], api: FakeApi, tmp_path: Path
) -> None:
    rounds = [does.a_list("ClusterQueueList", [queue(number)]) for number in range(ROUNDS - 1)]
    api.on(QUEUES, *rounds, does.status(500, "InternalError", "etcd is away"))
    recorder = Recorder(tmp_path / "snapshot")
    told: list[str] = []
    reader = open_reader(sink=recorder, consent=Consent(window=0.6))
    reader.report_to(told.append)
    live = reader.sampled(WatchedQueue)
    recorder.close(SOURCE)
    assert isinstance(live, Known)
    assert told[-1] == f"watching clusterqueues.kueue.x-k8s.io: {ROUNDS} of {ROUNDS}"
    counts = [[each.status.pending_workloads for each in queues] for _, queues in sorted(live.value.known())]
    assert counts == [[number] for number in range(ROUNDS - 1)]
    assert len(list(live.value.gaps())) == 1, "the round that failed is a gap, and costs no other"
    assert sorted(each.name for each in (tmp_path / "snapshot" / "series").iterdir()) == list(
        map(str, range(ROUNDS))
    )


def test_rounds_are_replayed_in_their_order(tmp_path: Path) -> None:
    for number in range(12):
        folder = tmp_path / "series" / str(number)
        (folder / "resources").mkdir(parents=True)
        item = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", **queue(number)}
        (folder / "resources" / "queues.json").write_text(json.dumps(item))
        (folder / "capture.yaml").write_text(
            "apiVersion: gpuctl.dev/v1\nkind: Snapshot\nwriter: test\n"
            f"capturedAt: 2026-11-30T10:00:{number:02}Z\ncomplete: [clusterqueues.kueue.x-k8s.io]\n"
        )
    (tmp_path / "capture.yaml").write_text(
        "apiVersion: gpuctl.dev/v1\nkind: Snapshot\nwriter: test\ncapturedAt: 2026-11-30T10:01:00Z\n"
    )
    state = open_snapshot(tmp_path).sampled(WatchedQueue)
    assert isinstance(state, Known)
    counts = [queues.get(next(iter(queues.entries))) for _, queues in sorted(state.value.known())]
    assert [each.status.pending_workloads for each in counts if each] == list(range(12))


def test_a_snapshot_without_rounds_was_not_asked(tmp_path: Path) -> None:
    (tmp_path / "capture.yaml").write_text("apiVersion: gpuctl.dev/v1\nkind: Snapshot\nwriter: test\n")
    snapshot = open_snapshot(tmp_path)
    state = snapshot.sampled(WatchedQueue)
    assert isinstance(state, Unknown)
    assert state.reason is Reason.NOT_ASKED
    assert isinstance(snapshot.metrics(QUERY, 6), Inapplicable)


def test_series_are_asked_for_recorded_and_replayed(
    open_reader: Callable[..., LiveReader], api: FakeApi, tmp_path: Path
) -> None:
    api.on(RANGE, does.body(matrix("1", "2.5", "NaN", "4")))
    recorder = Recorder(tmp_path / "snapshot")
    live = open_reader(sink=recorder, consent=Consent(prometheus=Server(api.url))).metrics(QUERY, 6)
    recorder.close(SOURCE)
    assert isinstance(live, Known)
    points = live.value[labels({"cluster_queue": "vision"})]
    assert [each for _, each in points] == [1.0, 2.5, 4.0]
    again = open_snapshot(tmp_path / "snapshot")
    assert again.metrics(QUERY, 6) == live
    other = again.metrics("another", 6)
    assert isinstance(other, Unknown)
    assert other.reason is Reason.NOT_ASKED


def refusing(status: int) -> Callable[[Exchange], None]:
    return lambda exchange: exchange.send(status, b"no")


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        (refusing(401), Reason.UNAUTHORIZED),
        (refusing(403), Reason.FORBIDDEN),
        (refusing(503), Reason.SERVER_ERROR),
        (does.body({"status": "error", "error": "bad query"}), Reason.MALFORMED),
        (does.body({"status": "success", "data": {"result": [{"metric": {}}]}}), Reason.MALFORMED),
        (does.body([]), Reason.MALFORMED),
        (lambda exchange: exchange.send(200, b"<html>"), Reason.MALFORMED),
    ],
)
def test_whatever_a_prometheus_answers_is_a_state(
    open_reader: Callable[..., LiveReader], api: FakeApi, behaviour: Any, reason: Reason
) -> None:
    api.on(RANGE, behaviour)
    state = open_reader(consent=Consent(prometheus=Server(api.url))).metrics(QUERY, 6)
    assert isinstance(state, Unknown)
    assert state.reason is reason


def test_a_prometheus_that_is_not_there(open_reader: Callable[..., LiveReader]) -> None:
    state = open_reader(consent=Consent(prometheus=Server("http://127.0.0.1:9"))).metrics(QUERY, 6)
    assert isinstance(state, Unknown)
    assert state.reason is Reason.UNREACHABLE


def test_an_empty_answer_has_no_series() -> None:
    assert parse('{"status": "success", "data": {"result": []}}').entries == {}
