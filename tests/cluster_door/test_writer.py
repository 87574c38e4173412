"""Writes to a live cluster: what is sent, and what each answer means for a run."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from gpuctl.cluster.connection import Access, connect
from gpuctl.cluster.writer import LiveWriter
from gpuctl.facts.kinds import Kind, Ref
from gpuctl.facts.state import Reason
from gpuctl.nvidia.objects import GpuPod, NodeView
from gpuctl.runbook.records import Lease
from gpuctl.runbook.writer import Blocked, Conflict, Drop, Put, Test, WriteFailed, pointer
from tests.cluster_door.fake_api import (
    Behaviour,
    Exchange,
    FakeApi,
    body,
    cut_off,
    reset,
    stall,
    status,
    text,
)

NODE = Ref(NodeView.of, "gpu-1")
POD = Ref(GpuPod.of, "train-0", "team-a")
LEASE = Ref(Lease.of, "gpuctl-node-gpu-1", "gpuctl-system")
AT: dict[str, str] = {
    "patch": "/api/v1/nodes/gpu-1",
    "create": "/apis/coordination.k8s.io/v1/namespaces/gpuctl-system/leases",
    "delete": "/api/v1/namespaces/team-a/pods/train-0",
    "evict": "/api/v1/namespaces/team-a/pods/train-0/eviction",
}
DO: dict[str, Callable[[LiveWriter], Any]] = {
    "patch": lambda writer: writer.patch(NODE, "u1", (Put("/spec/unschedulable", True),)),
    "create": lambda writer: writer.create(LEASE, {"spec": {"holderIdentity": "r/s"}}),
    "delete": lambda writer: writer.delete(POD, "u1"),
    "evict": lambda writer: writer.evict(POD, "u1"),
}


@pytest.fixture
def writer(api: FakeApi, kubeconfig: Callable[..., Access]) -> LiveWriter:
    return LiveWriter(connect(kubeconfig(api.url)), seconds=3.0)


class Seen:
    """Answers, and keeps how it was asked."""

    def __init__(self, then: Behaviour) -> None:
        self.then = then
        self.asked: list[tuple[str, str]] = []

    def __call__(self, exchange: Exchange) -> None:
        self.asked.append((exchange.command, exchange.headers["Content-Type"]))
        self.then(exchange)


GOOD = body({"kind": "Lease", "metadata": {"uid": "u9"}})


# What is sent


def test_a_patch_tests_the_uid_before_everything(api: FakeApi, writer: LiveWriter) -> None:
    seen = Seen(GOOD)
    api.on(AT["patch"], seen)
    label = pointer("metadata", "labels", "nvidia.com/mig.config")
    writer.patch(NODE, "u1", (Test(label, "old"), Put(label, "new"), Test("/x", None), Drop("/y~z")))
    assert seen.asked == [("PATCH", "application/json-patch+json")]
    assert api.sent == [
        (
            AT["patch"],
            [
                {"op": "test", "path": "/metadata/uid", "value": "u1"},
                {"op": "test", "path": "/metadata/labels/nvidia.com~1mig.config", "value": "old"},
                {"op": "add", "path": "/metadata/labels/nvidia.com~1mig.config", "value": "new"},
                {"op": "test", "path": "/x", "value": None},
                {"op": "remove", "path": "/y~z"},
            ],
        )
    ]


def test_a_creation_is_whole_and_tells_the_uid(api: FakeApi, writer: LiveWriter) -> None:
    api.on(AT["create"], Seen(GOOD))
    made = writer.create(LEASE, {"metadata": {"labels": {"a": "b"}}, "spec": {"holderIdentity": "r/s"}})
    assert made == "u9"
    (sent,) = [content for _, content in api.sent]
    assert sent == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"labels": {"a": "b"}, "name": "gpuctl-node-gpu-1", "namespace": "gpuctl-system"},
        "spec": {"holderIdentity": "r/s"},
    }


@pytest.mark.parametrize("grace", [None, 0, 30])
def test_deletions_and_evictions_name_the_uid(api: FakeApi, writer: LiveWriter, grace: int | None) -> None:
    deleted, evicted = Seen(GOOD), Seen(GOOD)
    api.on(AT["delete"], deleted).on(AT["evict"], evicted)
    writer.delete(POD, "u1", grace)
    assert writer.evict(POD, "u1", grace) is None
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "u1"}}
    if grace is not None:
        options["gracePeriodSeconds"] = grace
    assert [content for _, content in api.sent] == [
        options,
        {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": "train-0", "namespace": "team-a"},
            "deleteOptions": options,
        },
    ]
    assert [deleted.asked[0][0], evicted.asked[0][0]] == ["DELETE", "POST"]


def test_names_are_quoted(api: FakeApi, writer: LiveWriter) -> None:
    api.on("/api/v1/nodes/a%2Fb%3Fc", GOOD)
    writer.patch(Ref(NodeView.of, "a/b?c"), "u1", ())
    group = Kind("kueue.x-k8s.io", ("v1beta2", "v1beta1"), "ClusterQueue", "clusterqueues", namespaced=False)
    api.on("/apis/kueue.x-k8s.io/v1beta2/clusterqueues/research", GOOD)
    writer.patch(Ref(group, "research"), "u1", ())


# What the answers mean


def refusal(writer: LiveWriter, verb: str) -> WriteFailed:
    with pytest.raises(WriteFailed) as failed:
        DO[verb](writer)
    return failed.value


GONE = status(404, "NotFound", 'pods "train-0" not found')
ANSWERS: dict[str, tuple[Behaviour, dict[str, str]]] = {
    # by verb: conflict, hopeless, passing, or fine
    "forbidden": (status(403, "Forbidden", "no"), dict.fromkeys(AT, "hopeless")),
    "unauthorized": (status(401, "Unauthorized", "no"), dict.fromkeys(AT, "hopeless")),
    "bad request": (status(400, "BadRequest", "no"), dict.fromkeys(AT, "hopeless")),
    "too large": (status(413, "RequestEntityTooLarge", "no"), dict.fromkeys(AT, "hopeless")),
    "changed": (
        status(409, "Conflict", "the object has been modified"),
        {"patch": "conflict", "create": "passing", "delete": "conflict", "evict": "conflict"},
    ),
    "there already": (
        status(409, "AlreadyExists", "leases already exists"),
        {"patch": "conflict", "create": "conflict", "delete": "conflict", "evict": "conflict"},
    ),
    "a test that fails": (
        status(422, "Invalid", "the server rejected our request due to an error in our request"),
        {"patch": "conflict", "create": "hopeless", "delete": "conflict", "evict": "conflict"},
    ),
    "gone": (GONE, {"patch": "conflict", "create": "hopeless", "delete": "fine", "evict": "fine"}),
    "no such API": (text(404, "404 page not found\n"), dict.fromkeys(AT, "hopeless")),
    "a server's mistake": (status(500, "InternalError", "oops"), dict.fromkeys(AT, "passing")),
    "a bad gateway": (text(502, "<html><title>Bad</title>", "text/html"), dict.fromkeys(AT, "passing")),
    "unavailable": (status(503, "ServiceUnavailable", "later"), dict.fromkeys(AT, "passing")),
    "late at the server": (status(504, "Timeout", "late"), dict.fromkeys(AT, "passing")),
    "late at a proxy": (text(408, "late"), dict.fromkeys(AT, "passing")),
    "reset": (reset, dict.fromkeys(AT, "passing")),
    "cut off": (cut_off, dict.fromkeys(AT, "passing")),
}


@pytest.mark.parametrize("verb", AT)
@pytest.mark.parametrize("answer", ANSWERS)
def test_what_an_answer_means(api: FakeApi, writer: LiveWriter, verb: str, answer: str) -> None:
    behaviour, meaning = ANSWERS[answer]
    api.on(AT[verb], behaviour)
    if meaning[verb] == "fine":
        DO[verb](writer)
        return
    failed = refusal(writer, verb)
    told = "conflict" if isinstance(failed, Conflict) else "hopeless" if failed.hopeless else "passing"
    assert told == meaning[verb], failed
    assert failed.state.what.startswith({"patch": "change of", "create": "creation of"}.get(verb, ""))


@pytest.mark.parametrize("verb", AT)
@pytest.mark.parametrize("failure", [reset, cut_off, status(500, "InternalError", "oops")])
def test_what_may_have_been_carried_out_is_not_sent_again(
    api: FakeApi, writer: LiveWriter, verb: str, failure: Behaviour
) -> None:
    if verb == "delete":  # gone is gone
        return
    api.on(AT[verb], failure)
    refusal(writer, verb)
    assert api.asked(AT[verb]) == 1


@pytest.mark.parametrize("verb", AT)
def test_a_server_that_says_nothing_is_not_waited_for_beyond_the_time(
    api: FakeApi, kubeconfig: Callable[..., Access], verb: str
) -> None:
    writer = LiveWriter(connect(kubeconfig(api.url)), seconds=0.3)
    api.on(AT[verb], stall)
    start = time.monotonic()
    failed = refusal(writer, verb)
    assert time.monotonic() - start < 3
    assert failed.state.reason is Reason.TIMEOUT
    assert not failed.hopeless


def test_nobody_there(kubeconfig: Callable[..., Access]) -> None:
    writer = LiveWriter(connect(kubeconfig()), seconds=2.0)
    failed = refusal(writer, "patch")
    assert (failed.state.reason, failed.hopeless) == (Reason.UNREACHABLE, False)


def test_a_creation_whose_answer_is_no_object_may_have_been_carried_out(
    api: FakeApi, writer: LiveWriter
) -> None:
    api.on(AT["create"], text(200, "<html>", "text/html"))
    failed = refusal(writer, "create")
    assert not failed.hopeless
    assert not isinstance(failed, Conflict)


# Evictions


def test_a_budget_that_does_not_allow_it_is_an_answer(api: FakeApi, writer: LiveWriter) -> None:
    message = "Cannot evict pod as it would violate the pod's disruption budget."
    api.on(AT["evict"], status(429, "TooManyRequests", message, {"Retry-After": "10"}))
    assert writer.evict(POD, "u1") == Blocked(message, 10.0)
    api.on(AT["evict"], status(429, "TooManyRequests", message))
    assert writer.evict(POD, "u1") == Blocked(message, None)
    assert api.asked(AT["evict"]) == 2


def forbidden(cause: str) -> Behaviour:
    content = {"kind": "Status", "status": "Failure", "reason": "Forbidden", "message": "no", "code": 403}
    body = json.dumps({**content, "details": {"causes": [{"reason": cause, "field": "metadata.namespace"}]}})
    return text(403, body, "application/json")


def test_a_pod_of_a_namespace_that_ends_is_waited_for_as_kubectl_drain_does(
    api: FakeApi, writer: LiveWriter
) -> None:
    api.on(AT["evict"], forbidden("NamespaceTerminating"))
    assert not refusal(writer, "evict").hopeless
    api.on(AT["evict"], forbidden("SomethingElse"))
    assert refusal(writer, "evict").hopeless
    api.on(AT["evict"], text(403, '{"kind": "Status", "details": {"causes": null}}', "application/json"))
    assert refusal(writer, "evict").hopeless


def test_a_busy_server_is_asked_again_for_other_writes(api: FakeApi, writer: LiveWriter) -> None:
    api.on(AT["create"], status(429, "TooManyRequests", "busy", {"Retry-After": "0"}), GOOD)
    assert DO["create"](writer) == "u9"
