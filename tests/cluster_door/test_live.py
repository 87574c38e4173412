"""The reader against an API server that is good, bad or gone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from gpuctl.audit.report import Source
from gpuctl.cluster import pages
from gpuctl.cluster.connection import Access, connect
from gpuctl.cluster.live import LiveReader
from gpuctl.cluster.record import Recorder
from gpuctl.cluster.sink import NoSink
from gpuctl.cluster.snapshot import SnapshotReader, open_snapshot
from gpuctl.facts.fact import Objects
from gpuctl.facts.gather import gather
from gpuctl.facts.kinds import Attempt, Kind, Log, Ref, View
from gpuctl.facts.state import Each, Inapplicable, Known, Reason, State, Unknown
from gpuctl.facts.tls import ServedPort
from tests.cluster_door import fake_api as does
from tests.cluster_door.fake_api import Behaviour, FakeApi

DEADLINE = 1.5
POD = Kind("", ("v1",), "Pod", "pods", namespaced=True)
NODE = Kind("", ("v1",), "Node", "nodes", namespaced=False)
QUEUE = Kind("queues.example", ("v2", "v1"), "Queue", "queues", namespaced=False)
PODS, NODES, QUEUES = "/api/v1/pods", "/api/v1/nodes", "/apis/queues.example/{}/queues"


class Spec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class Pod(View, frozen=True):
    of: ClassVar[Kind] = POD
    spec: Spec = Spec()


class PodName(View, frozen=True):
    of: ClassVar[Kind] = POD


class Node(View, frozen=True):
    of: ClassVar[Kind] = NODE


class Queue(View, frozen=True):
    of: ClassVar[Kind] = QUEUE


@dataclass
class Recorded(NoSink):
    """A sink that keeps what it is told."""

    objects: list[tuple[str, str, int]] = field(default_factory=list)
    counted: dict[int, int] = field(default_factory=dict)  # objects by attempt, as far as not withdrawn
    whole: list[tuple[str, str, str, str]] = field(default_factory=list)
    gaps: list[tuple[str, Reason, str, str, str]] = field(default_factory=list)
    groups: dict[str, Sequence[str]] = field(default_factory=dict)
    logs: dict[str, tuple[str, int | None]] = field(default_factory=dict)

    def items(
        self,
        kind: Kind,
        version: str,
        views: Sequence[type[View]],
        items: Sequence[msgspec.Raw],
        attempt: int = 0,
    ) -> None:
        self.objects.append((str(kind), version, len(items)))
        self.counted[attempt] = self.counted.get(attempt, 0) + len(items)

    def withdraw(self, attempt: int) -> None:
        self.counted.pop(attempt, None)

    def complete(self, kind: Kind, *, labels: str = "", namespace: str = "", name: str = "") -> None:
        self.whole.append((str(kind), labels, namespace, name))

    def missing(
        self, kind: Kind, gap: Unknown, *, namespace: str = "", name: str = "", version: str = ""
    ) -> None:
        self.gaps.append((str(kind), gap.reason, namespace, name, version))

    def served(self, group: str, versions: Sequence[str]) -> None:
        self.groups[group] = versions

    def log(
        self, log: Log, kept: Callable[[], str], *, cut_at: int | None, lost: Unknown | None = None
    ) -> None:
        assert lost is None
        self.logs[str(log)] = (kept(), cut_at)

    def missing_log(self, log: Log | None, gap: Unknown) -> None:
        self.gaps.append(("pods/log", gap.reason, "", str(log), ""))

    def logs_complete(self) -> None:
        self.whole.append(("pods/log", "", "", ""))


@pytest.fixture
def sink() -> Recorded:
    return Recorded()


@pytest.fixture
def reader(api: FakeApi, sink: Recorded, kubeconfig: Callable[..., Access]) -> Iterator[LiveReader]:
    """A reader that must end within its deadline."""
    connection = connect(kubeconfig(api.url, user={"token": "t"}))
    start = time.monotonic()
    yield LiveReader(connection, DEADLINE, sink=sink)
    assert time.monotonic() - start < DEADLINE + 0.5


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "LIMIT", 2)


def pod(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "lab"}, "spec": spec}


def listed(reader: LiveReader, view: type[View] = Pod, labels: str = "") -> State[Each[Ref, Any]]:
    return reader.objects(view.of, labels, [view])[0]


def names(state: State[Each[Ref, Any]]) -> list[str]:
    assert isinstance(state, Known)
    return [ref.name for ref, _ in state.value.known()]


def gaps(state: State[Each[Ref, Any]]) -> list[tuple[Reason, str]]:
    assert isinstance(state, Known)
    return [(gap.reason, gap.what) for gap in state.value.gaps()]


FIVE = [pod(name) for name in "abcde"]


# Lists


@pytest.mark.parametrize("metadata_last", [False, True])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 21])
def test_all_pages_are_read_in_order(
    api: FakeApi, reader: LiveReader, sink: Recorded, small_pages: None, metadata_last: bool, count: int
) -> None:
    items = [pod(f"pod-{number:02}") for number in range(count)]
    api.on(PODS, does.a_list("Pod", items, metadata_last))

    assert names(listed(reader)) == [item["metadata"]["name"] for item in items]
    assert api.asked(PODS) == max(1, (count + 1) // 2)
    assert sum(number for _, _, number in sink.objects) == count
    assert (sink.whole, sink.gaps) == ([("pods", "", "", "")], [])


def test_two_views_share_a_request(api: FakeApi, reader: LiveReader) -> None:
    api.on(PODS, does.a_list("Pod", [pod("a", nodeName="gpu-1")]))

    whole, name = reader.objects(POD, "", [Pod, PodName])

    assert isinstance(whole, Known)
    assert next(iter(whole.value)).spec.node_name == "gpu-1"
    assert names(name) == ["a"]
    assert api.asked(PODS) == 1


def test_labels_are_handed_to_the_server(api: FakeApi, reader: LiveReader, sink: Recorded) -> None:
    api.on(PODS, does.a_list("Pod", []))

    listed(reader, labels="app in (a,b)")

    assert "labelSelector=app+in+%28a%2Cb%29" in api.requests[0][0]
    assert sink.whole == [("pods", "app in (a,b)", "", "")]


def test_the_pods_of_one_node_are_chosen_by_the_server_and_not_recorded(
    api: FakeApi, reader: LiveReader, sink: Recorded
) -> None:
    api.on(PODS, does.a_list("Pod", [pod("a", nodeName="n-1")]))

    (state,) = reader.on_node("n-1", [Pod])

    assert names(state) == ["a"]
    assert "fieldSelector=spec.nodeName%3Dn-1" in api.requests[0][0]
    assert not sink.whole


def test_a_malformed_object_hides_no_other(api: FakeApi, reader: LiveReader) -> None:
    api.on(PODS, does.a_list("Pod", [pod("a"), pod("b", nodeName=7), {"spec": {}}, pod("c")]))

    state = listed(reader)

    assert names(state) == ["a", "c"]
    assert gaps(state) == [
        (Reason.MALFORMED, "Pod lab/b"),
        (Reason.MALFORMED, "pods: an object without a name"),
    ]


def test_an_expired_list_is_read_anew(
    api: FakeApi, reader: LiveReader, sink: Recorded, small_pages: None
) -> None:
    whole = does.a_list("Pod", FIVE)
    expired = does.status(410, "Expired", "the provided continue parameter is too old")
    api.on(PODS, whole, expired, whole)

    assert names(listed(reader)) == list("abcde")
    assert list(sink.counted.values()) == [5]


def test_what_was_deleted_while_a_list_was_read_anew_is_not_recorded(
    api: FakeApi, kubeconfig: Callable[..., Access], tmp_path: Path, small_pages: None
) -> None:
    expired = does.status(410, "Expired", "the provided continue parameter is too old")
    api.on(PODS, does.a_list("Pod", FIVE), expired, does.a_list("Pod", FIVE[1:]))
    recorder = Recorder(tmp_path / "snap")

    live = listed(LiveReader(connect(kubeconfig(api.url)), DEADLINE, sink=recorder))
    recorder.close(Source(kind="live", name="lab"))

    assert names(live) == list("bcde")
    assert listed_in(open_snapshot(tmp_path / "snap")) == live


def listed_in(reader: SnapshotReader) -> State[Each[Ref, Any]]:
    return reader.objects(POD, "", [Pod])[0]


def test_a_list_that_always_expires_says_so(api: FakeApi, reader: LiveReader, small_pages: None) -> None:
    expired = does.status(410, "Expired", "the provided continue parameter is too old")
    api.on(PODS, does.from_second_page(expired, does.a_list("Pod", FIVE)))

    state = listed(reader)

    assert names(state) == ["a", "b"]
    assert gaps(state) == [(Reason.SERVER_ERROR, "pods")]
    assert isinstance(state, Known)
    assert "410 Gone" in state.value.holes[0].message


def test_what_was_read_before_a_failure_stays(
    api: FakeApi, reader: LiveReader, sink: Recorded, small_pages: None
) -> None:
    forbidden = does.status(403, "Forbidden", "no longer")
    api.on(PODS, does.from_second_page(forbidden, does.a_list("Pod", FIVE)))

    state = listed(reader)

    assert names(state) == ["a", "b"]
    assert gaps(state) == [(Reason.FORBIDDEN, "pods")]
    assert (sink.whole, sink.gaps) == ([], [("pods", Reason.FORBIDDEN, "", "", "")])


HTML = does.text(200, "<html><title>Sign in</title></html>", "text/html")
TROUBLES: list[tuple[str, Behaviour, Reason, str]] = [
    ("forbidden", does.status(403, "Forbidden", 'pods is forbidden: User "x"'), Reason.FORBIDDEN, "User"),
    ("expired credentials", does.status(401, "Unauthorized", "Unauthorized"), Reason.UNAUTHORIZED, "Unauth"),
    ("internal error", does.status(500, "InternalError", "etcd is sad"), Reason.SERVER_ERROR, "etcd is sad"),
    ("unavailable", does.text(503, "try later"), Reason.SERVER_ERROR, "HTTP 503: try later"),
    ("gateway timeout", does.status(504, "Timeout", "too slow"), Reason.TIMEOUT, "too slow"),
    ("too many requests", does.text(429, "", headers={"Retry-After": "60"}), Reason.SERVER_ERROR, "429"),
    ("conflict", does.status(409, "Conflict", "changed"), Reason.SERVER_ERROR, "changed"),
    ("gateway's 404", does.text(404, "<html></html>", "text/html"), Reason.MALFORMED, "HTML page"),
    ("redirect", does.text(302, "", headers={"Location": "http://127.0.0.1:1/"}), Reason.MALFORMED, "302"),
    ("HTML", HTML, Reason.MALFORMED, "an HTML page instead of JSON: “Sign in”"),
    ("no JSON", does.text(200, "hello"), Reason.MALFORMED, "malformed"),
    ("empty body", does.text(200, ""), Reason.MALFORMED, "truncated"),
    ("half of the JSON", does.text(200, '{"kind":"PodList","items":[{'), Reason.MALFORMED, "truncated"),
    ("invalid UTF-8", lambda ex: ex.send(200, b'{"kind":"\xff"}'), Reason.MALFORMED, "UTF-8"),
    ("no list", does.body({"kind": "Status", "metadata": {}, "items": []}), Reason.MALFORMED, "a Status"),
    ("no items", does.body({"kind": "PodList", "metadata": {}}), Reason.MALFORMED, "items"),
    ("broken gzip", lambda ex: ex.send(200, b"x" * 9, headers={"Content-Encoding": "gzip"}),
     Reason.MALFORMED, "breaks off"),
    ("cut-off body", does.cut_off, Reason.MALFORMED, "breaks off"),
    ("reset", does.reset, Reason.UNREACHABLE, "broke"),
    ("stall", does.stall, Reason.TIMEOUT, "within 1.5 s"),
    ("slow body", does.drip, Reason.TIMEOUT, "within 1.5 s"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("behaviour", "reason", "said"),
    [pytest.param(*trouble[1:], id=trouble[0]) for trouble in TROUBLES],
)
def test_every_trouble_is_unknown_with_its_reason(
    api: FakeApi, reader: LiveReader, sink: Recorded, behaviour: Behaviour, reason: Reason, said: str
) -> None:
    api.on(PODS, behaviour)

    state = listed(reader)

    assert isinstance(state, Unknown)
    assert (state.reason, state.what) == (reason, "pods")
    assert said in state.message
    assert "\n" not in state.message
    assert sink.gaps == [("pods", reason, "", "", "")]
    assert sink.whole == []


@pytest.mark.parametrize(
    ("trouble", "requests"),
    [
        (does.text(429, "", headers={"Retry-After": "0"}), 2),
        (does.text(503, ""), 2),
        (does.reset, 2),
        (does.cut_off, 2),
    ],
)
def test_a_trouble_that_passes_is_waited_out(
    api: FakeApi, reader: LiveReader, trouble: Behaviour, requests: int
) -> None:
    api.on(PODS, trouble, does.a_list("Pod", [pod("a")]))

    assert names(listed(reader)) == ["a"]
    assert api.asked(PODS) == requests


def test_retry_after_is_honoured(api: FakeApi, reader: LiveReader) -> None:
    api.on(PODS, does.text(429, "", headers={"Retry-After": "1"}), does.a_list("Pod", []))
    start = time.monotonic()

    assert names(listed(reader)) == []
    assert time.monotonic() - start >= 1


def test_a_first_page_that_is_read_twice_does_not_mix_two_lists(
    api: FakeApi, reader: LiveReader, small_pages: None
) -> None:
    """The prefetched page belongs to the list that broke off."""
    whole = does.a_list("Pod", FIVE)
    text = b'{"kind":"PodList","apiVersion":"v1","metadata":{"continue":"4"},"items":['

    def breaks_off(exchange: does.Exchange) -> None:
        exchange.begin(200, 9000)
        exchange.wfile.write(text + b" " * (3000 - len(text)))
        exchange.wfile.flush()
        time.sleep(0.2)
        exchange.close_connection = True

    api.on(PODS, breaks_off, whole)

    assert names(listed(reader)) == list("abcde")


def test_nobody_listens(kubeconfig: Callable[..., Access]) -> None:
    reader = LiveReader(connect(kubeconfig("http://127.0.0.1:1")), DEADLINE)

    state = listed(reader)

    assert isinstance(state, Unknown)
    assert state.reason is Reason.UNREACHABLE
    assert state.message == "cannot connect to http://127.0.0.1:1: Connection refused"


# Discovery


def test_the_best_version_that_is_served_is_read(api: FakeApi, reader: LiveReader, sink: Recorded) -> None:
    api.on("/apis/queues.example", does.group("queues.example", "v3", "v1"))
    api.on(QUEUES.format("v1"), does.a_list("Queue", [{"metadata": {"name": "q"}}]))

    assert names(listed(reader, Queue)) == ["q"]
    assert reader.served("queues.example") == Known(("v3", "v1"))
    assert api.asked("/apis/queues.example") == 1
    assert sink.groups == {"queues.example": ("v3", "v1")}
    assert sink.objects == [("queues.queues.example", "v1", 1)]


def test_a_group_that_is_not_served_is_inapplicable(api: FakeApi, reader: LiveReader, sink: Recorded) -> None:
    assert listed(reader, Queue) == Inapplicable(
        "the API queues.queues.example is not served by this cluster"
    )
    assert reader.served("queues.example") == Known(())
    assert sink.gaps == [("queues.queues.example", Reason.NOT_SERVED, "", "", "")]


@pytest.mark.parametrize("listing", [does.groups("other", "queues.example"), does.text(503, ""), HTML])
def test_a_group_is_absent_only_if_the_list_of_groups_agrees(
    api: FakeApi, reader: LiveReader, sink: Recorded, listing: Behaviour
) -> None:
    """On the word of one 404, whole checks did not apply, and the run was clean."""
    api.on("/apis", listing)

    assert isinstance(reader.served("queues.example"), Unknown)
    assert isinstance(listed(reader, Queue), Unknown)
    assert sink.groups == {}


def test_a_kind_that_a_served_group_lacks_is_inapplicable(api: FakeApi, reader: LiveReader) -> None:
    api.on("/apis/queues.example", does.group("queues.example", "v1"))
    api.on("/apis/queues.example/v1", does.resources("others"))

    assert isinstance(listed(reader, Queue), Inapplicable)


def test_a_kind_that_discovery_offers_and_the_list_denies_is_unknown(
    api: FakeApi, reader: LiveReader
) -> None:
    api.on("/apis/queues.example", does.group("queues.example", "v1"))
    api.on("/apis/queues.example/v1", does.resources("queues"))

    state = listed(reader, Queue)

    assert isinstance(state, Unknown)
    assert state.reason is Reason.NOT_SERVED


def test_versions_that_gpuctl_cannot_read_are_unknown(api: FakeApi, reader: LiveReader) -> None:
    api.on("/apis/queues.example", does.group("queues.example", "v9"))

    state = listed(reader, Queue)

    assert isinstance(state, Unknown)
    assert state.message == "the cluster serves v9; gpuctl reads v2, v1"


@pytest.mark.parametrize("behaviour", [does.text(503, "unavailable"), does.text(403, ""), does.drip, HTML])
def test_discovery_that_fails_is_unknown(api: FakeApi, reader: LiveReader, behaviour: Behaviour) -> None:
    api.on("/apis/queues.example", behaviour)

    assert isinstance(listed(reader, Queue), Unknown)
    assert isinstance(reader.served("queues.example"), Unknown)


@pytest.mark.parametrize("served", [True, False])
def test_forbidden_is_told_from_not_served(api: FakeApi, reader: LiveReader, served: bool) -> None:
    """The server asks for permission before it looks whether there is such an API."""
    api.on("/apis/queues.example", does.group("queues.example", "v1"))
    api.on("/apis/queues.example/v1", does.resources("queues" if served else "others"))
    api.on(QUEUES.format("v1"), does.status(403, "Forbidden", "queues is forbidden"))

    state = listed(reader, Queue)

    assert isinstance(state, Unknown) is served
    assert isinstance(state, Inapplicable) is not served


def test_a_version_that_fails_gives_way_to_another(api: FakeApi, reader: LiveReader, sink: Recorded) -> None:
    broken = does.status(500, "InternalError", "conversion webhook for queues.example/v1 failed")
    api.on("/apis/queues.example", does.group("queues.example", "v2", "v1"))
    api.on(QUEUES.format("v2"), broken)
    api.on(QUEUES.format("v1"), does.a_list("Queue", [{"metadata": {"name": "q"}}]))

    assert names(listed(reader, Queue)) == ["q"]
    assert list(sink.counted.values()) == [1]
    assert sink.gaps == [("queues.queues.example", Reason.SERVER_ERROR, "", "", "v2")]
    assert sink.whole == [("queues.queues.example", "", "", "")]


def test_a_version_that_breaks_off_leaves_nothing_in_the_record(
    api: FakeApi, reader: LiveReader, sink: Recorded, small_pages: None
) -> None:
    broken = does.status(500, "InternalError", "conversion webhook for queues.example/v1 failed")
    queues = [{"metadata": {"name": name}} for name in "abc"]
    api.on("/apis/queues.example", does.group("queues.example", "v2", "v1"))
    api.on(QUEUES.format("v2"), does.from_second_page(broken, does.a_list("Queue", queues)))
    api.on(QUEUES.format("v1"), does.a_list("Queue", queues[1:]))

    assert names(listed(reader, Queue)) == ["b", "c"]
    assert list(sink.counted.values()) == [2]


def test_of_two_versions_that_fail_the_one_that_tells_more_stays(
    api: FakeApi, reader: LiveReader, sink: Recorded, small_pages: None
) -> None:
    broken = does.status(500, "InternalError", "conversion webhook for queues.example/v1 failed")
    queues = [{"metadata": {"name": name}} for name in "abc"]
    api.on("/apis/queues.example", does.group("queues.example", "v2", "v1"))
    api.on(QUEUES.format("v2"), does.from_second_page(broken, does.a_list("Queue", queues)))
    api.on(QUEUES.format("v1"), broken)

    assert names(listed(reader, Queue)) == ["a", "b"]
    assert list(sink.counted.values()) == [2]


def test_if_every_version_fails_the_kind_is_unknown(api: FakeApi, reader: LiveReader) -> None:
    api.on("/apis/queues.example", does.group("queues.example", "v2", "v1"))
    api.on("/apis/queues.example/v2", does.resources())
    api.on(QUEUES.format("v1"), does.status(500, "InternalError", "conversion failed"))

    state = listed(reader, Queue)

    assert isinstance(state, Unknown)
    assert state.message == "conversion failed"


# Parts of a cluster


def test_a_namespace_that_fails_is_a_hole_with_its_name(
    api: FakeApi, reader: LiveReader, sink: Recorded
) -> None:
    api.on("/api/v1/namespaces/lab/pods", does.a_list("Pod", [pod("a")]))
    api.on("/api/v1/namespaces/prod/pods", does.status(403, "Forbidden", "no"))

    state = reader.within(Pod, ["lab", "prod"])

    assert names(state) == ["a"]
    assert gaps(state) == [(Reason.FORBIDDEN, "pods in namespace prod")]
    assert sink.whole == [("pods", "", "lab", "")]
    assert sink.gaps == [("pods", Reason.FORBIDDEN, "prod", "", "")]


def test_no_namespaces_are_no_objects(reader: LiveReader) -> None:
    assert reader.within(Pod, []) == Known(Each())


def test_named_objects_absent_and_unknown_ones_are_told_apart(
    api: FakeApi, reader: LiveReader, sink: Recorded
) -> None:
    there, gone, closed, odd = (Ref(POD, name, "lab") for name in ("there", "gone", "closed", "odd"))
    api.on("/api/v1/namespaces/lab/pods/there", does.body(pod("there")))
    api.on("/api/v1/namespaces/lab/pods/gone", does.status(404, "NotFound", 'pods "gone" not found'))
    api.on("/api/v1/namespaces/lab/pods/closed", does.status(403, "Forbidden", "no"))
    api.on("/api/v1/namespaces/lab/pods/odd", HTML)

    state = reader.named(Pod, [there, gone, closed, odd])

    assert names(state) == ["there"]
    assert isinstance(state, Known)
    assert state.value.get(gone) is None
    assert gaps(state) == [(Reason.FORBIDDEN, "Pod lab/closed"), (Reason.MALFORMED, "Pod lab/odd")]
    assert sorted(sink.whole) == [("pods", "", "lab", "gone"), ("pods", "", "lab", "there")]


def test_named_objects_of_a_kind_that_is_not_served(api: FakeApi, reader: LiveReader) -> None:
    assert isinstance(reader.named(Queue, [Ref(QUEUE, "q")]), Inapplicable)


@pytest.fixture
def tenant(api: FakeApi, sink: Recorded, kubeconfig: Callable[..., Access]) -> LiveReader:
    return LiveReader(connect(kubeconfig(api.url)), DEADLINE, sink=sink, namespace="lab")


def test_a_tenant_reads_nothing_outside_of_the_namespace(api: FakeApi, tenant: LiveReader) -> None:
    api.on("/api/v1/namespaces/lab/pods", does.a_list("Pod", [pod("a")]))
    api.on("/api/v1/namespaces/lab/pods/a", does.body(pod("a")))
    outside = Inapplicable("outside of the namespace lab")

    assert names(listed(tenant)) == ["a"]
    assert listed(tenant, Node) == outside
    assert names(tenant.within(Pod, ["lab"])) == ["a"]
    assert tenant.within(Pod, ["prod"]) == outside
    assert gaps(tenant.within(Pod, ["lab", "prod"])) == [(Reason.NOT_ASKED, "pods in namespace prod")]
    assert names(tenant.named(Pod, [Ref(POD, "a", "lab"), Ref(POD, "a", "prod")])) == ["a"]
    assert tenant.named(Node, [Ref(NODE, "n")]) == outside
    assert all("/namespaces/lab/" in path for path, _ in api.requests)


def test_a_tenant_reads_the_same_from_the_record(
    api: FakeApi, kubeconfig: Callable[..., Access], tmp_path: Path
) -> None:
    api.on("/api/v1/namespaces/lab/pods", does.a_list("Pod", [pod("a")]))
    api.on("/api/v1/namespaces/lab/pods/a", does.body(pod("a")))
    recorder = Recorder(tmp_path / "snap", "lab")
    live = LiveReader(connect(kubeconfig(api.url)), DEADLINE, sink=recorder, namespace="lab")
    inside, outside = Ref(POD, "a", "lab"), Ref(POD, "a", "prod")
    attempts = [Attempt(POD, "prod", pod("b")), Attempt(NODE, "", {})]
    ports = [ServedPort(Ref(POD, "s", "prod"), 443, "s", Ref(POD, "a", "prod"), 9443)]

    def answers(reader: LiveReader | SnapshotReader) -> list[object]:
        return [
            reader.objects(POD, "", [Pod])[0],
            reader.objects(NODE, "", [Node])[0],
            reader.within(Pod, ["lab"]),
            reader.within(Pod, ["prod"]),
            reader.within(Pod, ["lab", "prod"]),
            reader.named(Pod, [inside, outside]),
            reader.named(Pod, [outside]),
            reader.named(Node, [Ref(NODE, "n")]),
            reader.dry_run(attempts),
            reader.handshakes(ports),
        ]

    said = answers(live)
    recorder.close(Source(kind="live", name="lab"))

    assert answers(open_snapshot(tmp_path / "snap")) == said


# The rest


def test_the_source_names_the_cluster(api: FakeApi, reader: LiveReader) -> None:
    api.on("/version", does.body({"gitVersion": "v1.36.3"}))
    api.on("/api/v1/namespaces/kube-system", does.body({"metadata": {"uid": "u-1"}}))

    source = reader.source()

    assert (source.kind, source.name) == ("live", f"lab ({api.url})")
    assert (source.cluster_uid, source.server_version) == ("u-1", "v1.36.3")


def test_what_cannot_be_read_of_the_source_stays_empty(api: FakeApi, reader: LiveReader) -> None:
    api.on("/version", HTML)

    assert (reader.source().cluster_uid, reader.source().server_version) == ("", "")


def test_a_dry_run_needs_consent(api: FakeApi, reader: LiveReader) -> None:
    state = reader.dry_run([Attempt(POD, "lab", pod("a"))])

    assert isinstance(state, Known)
    assert [gap.reason for gap in state.value.gaps()] == [Reason.NOT_ASKED]
    assert api.requests == []


def test_one_stalled_list_costs_the_others_nothing(api: FakeApi, reader: LiveReader) -> None:
    api.on(PODS, does.stall).on(NODES, does.a_list("Node", [{"metadata": {"name": "n"}}]))
    pods, nodes = Objects(Pod), Objects(Node)

    facts = gather([pods, nodes], reader, {})

    assert [ref.name for ref, _ in facts[nodes].items()] == ["n"]
    state = facts.state(pods)
    assert isinstance(state, Unknown)
    assert state.reason is Reason.TIMEOUT


def test_connections_are_kept(api: FakeApi, reader: LiveReader) -> None:
    ports: list[int] = []

    def answer(exchange: does.Exchange) -> None:
        ports.append(exchange.client_address[1])
        does.a_list("Pod", [])(exchange)

    api.on(PODS, answer)
    for _ in range(3):
        listed(reader)

    assert len(set(ports)) == 1


# Secrets


class ASecret(View, frozen=True):
    of: ClassVar[Kind] = Kind("", ("v1",), "Secret", "secrets", namespaced=True)


class NameOfASecret(View, frozen=True):
    of: ClassVar[Kind] = ASecret.of
    metadata_only: ClassVar[bool] = True


def test_of_a_secret_that_must_exist_only_metadata_is_asked_for(
    api: FakeApi, reader: LiveReader, sink: Recorded
) -> None:
    accepted: list[str] = []

    def there(exchange: does.Exchange) -> None:
        accepted.append(exchange.headers["Accept"])
        about = {"name": "cert", "namespace": "lab", "uid": "u-1"}
        does.body({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": about})(
            exchange
        )

    api.on("/api/v1/namespaces/lab/secrets/cert", there)
    ref = Ref(ASecret.of, "cert", "lab")
    found = reader.named(NameOfASecret, [ref])
    assert isinstance(found, Known)
    assert found.value[ref].metadata.uid == "u-1"
    assert accepted == ["application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"]
    assert not sink.objects
    assert isinstance(reader.named(ASecret, [ref]), Inapplicable)
    assert len(accepted) == 1
