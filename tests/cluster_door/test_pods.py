"""Pods that are asked through the API server: with consent alone, after a review, each in its own time."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, cast

import pytest

from gpuctl.audit.report import Source
from gpuctl.cluster import pods as live_pods
from gpuctl.cluster.connection import Access, Connection, connect
from gpuctl.cluster.consent import Consent
from gpuctl.cluster.deadline import Deadline
from gpuctl.cluster.live import LiveReader
from gpuctl.cluster.pods import PodAsker
from gpuctl.cluster.record import Recorder
from gpuctl.cluster.reviews import ACCESS, Reviews
from gpuctl.cluster.sink import NoSink, Sink
from gpuctl.cluster.snapshot import open_snapshot
from gpuctl.facts.kinds import Ref
from gpuctl.facts.pods import Page, PodReading, Run
from gpuctl.facts.state import Each, Inapplicable, Known, Reason, State, Unknown
from gpuctl.vllm.answers import COMMAND_LINE, PATHS, kept_of_page, kept_of_run, of_page, of_run
from gpuctl.vllm.objects import EnginePod
from tests.cluster_door import fake_api as fake
from tests.cluster_door.fake_api import Exchange, FakeApi
from tests.cluster_door.test_probe import Cluster
from tests.vllm.test_answers import V1_METRICS, info

PAGES: PodReading[Page, Any] = PodReading(of_page, kept_of_page)
RUNS: PodReading[Run, Any] = PodReading(of_run, kept_of_run)
BOTH = Consent(vllm_http=True, vllm_exec=True)
ALLOWED = fake.body({"status": {"allowed": True}})
DENIED = fake.body({"status": {"allowed": False}})


def pages(*names: str, https: bool = False) -> list[Page]:
    return [Page(Ref(EnginePod.of, name, "serving"), 8000, path, https) for name in names for path in PATHS]


def at(name: str, page: str, scheme: str = "") -> str:
    return f"/api/v1/namespaces/serving/pods/{scheme}{name}:8000/proxy/{page}"


def known(state: State[Each[Any, Any]]) -> Each[Any, Any]:
    assert isinstance(state, Known)
    return state.value


@pytest.fixture
def reader(api: FakeApi, kubeconfig: Callable[..., Access]) -> Callable[..., LiveReader]:
    def make(*, consent: Consent = BOTH, sink: Sink | None = None, **more: Any) -> LiveReader:
        connection = connect(kubeconfig(api.url, user={"token": "t"}))
        return LiveReader(connection, 8.0, consent=consent, sink=sink, **more)

    return make


Make = Callable[..., LiveReader]


def serve(api: FakeApi, name: str, scheme: str = "") -> None:
    api.on(at(name, "version", scheme), fake.text(200, '{"version": "0.22.1"}'))
    api.on(at(name, "metrics", scheme), fake.text(200, V1_METRICS))
    api.on(at(name, "server_info", scheme), fake.text(404, '{"detail": "Not Found"}'))


def test_nothing_is_asked_without_consent(api: FakeApi, reader: Make) -> None:
    asker = reader(consent=Consent())
    assert isinstance(asker.pages(pages("a"), PAGES), Inapplicable)
    assert isinstance(asker.runs([], RUNS), Inapplicable)
    assert not [each for each, _ in api.requests if "/proxy/" in each]


@pytest.mark.parametrize("scheme", ["", "https:"])
def test_pages_are_read_and_one_that_does_not_exist_is_absent(
    api: FakeApi, reader: Make, scheme: str
) -> None:
    api.on(ACCESS, ALLOWED)
    serve(api, "a", scheme)
    said: list[str] = []
    wanted = pages("a", https=bool(scheme))
    found = known(reader(announce=said.append).pages(wanted, PAGES))
    assert found[wanted[0]] == "0.22.1"
    assert found[wanted[1]].waiting == 12
    assert wanted[2] not in found.entries
    assert said == ["sending GET requests to 1 pods through the API server's proxy"]


def test_the_permission_that_is_missing_is_named_and_nothing_is_sent(api: FakeApi, reader: Make) -> None:
    api.on(ACCESS, DENIED)
    gaps = list(known(reader().pages(pages("a"), PAGES)).gaps())
    assert {gap.reason for gap in gaps} == {Reason.FORBIDDEN}
    assert "get pods/proxy in namespace serving" in gaps[0].message
    assert not [each for each, _ in api.requests if "/proxy/" in each]


@pytest.mark.parametrize(
    ("answer", "reason", "says"),
    [
        (fake.status(403, "Forbidden", "pods a is forbidden"), Reason.FORBIDDEN, "forbidden"),
        (fake.text(403, "go away"), Reason.SERVER_ERROR, "the pod itself answers HTTP 403"),
        (fake.text(401, '{"error":"Unauthorized"}'), Reason.SERVER_ERROR, "HTTP 401"),
        (
            fake.status(503, "ServiceUnavailable", "dial tcp: connection refused"),
            Reason.SERVER_ERROR,
            "refused",
        ),
        (fake.text(200, "<html>Sign in</html>"), Reason.MALFORMED, ""),
        (fake.text(302, "", headers={"Location": "http://169.254.1.1/"}), Reason.SERVER_ERROR, "HTTP 302"),
        (fake.reset, Reason.UNREACHABLE, ""),
    ],
)
def test_a_pod_that_does_not_answer_well_costs_itself_alone(
    api: FakeApi, reader: Make, answer: Callable[[Exchange], None], reason: Reason, says: str
) -> None:
    api.on(ACCESS, ALLOWED)
    api.on(at("a", "version"), answer).on(at("a", "metrics"), answer).on(at("a", "server_info"), answer)
    serve(api, "b")
    first, second = pages("a")[0], pages("b")[0]
    found = known(reader().pages([*pages("a"), *pages("b")], PAGES))
    gap = found.entries[first]
    assert isinstance(gap, Unknown)
    assert (gap.reason, says in gap.message) == (reason, True), gap
    assert gap.what == str(first)
    assert found[second] == "0.22.1"


def test_a_pod_that_wants_a_key_of_its_own_costs_no_second_login(
    api: FakeApi, reader: Make, monkeypatch: Any
) -> None:
    """With a credentials plugin it would open a browser."""
    renewed: list[str] = []
    monkeypatch.setattr(Connection, "_renew", lambda _self, _session, what, _deadline: renewed.append(what))
    api.on(ACCESS, ALLOWED)
    serve(api, "a")
    api.on(at("a", "version"), fake.text(401, '{"error":"Unauthorized"}'))
    known(reader().pages(pages("a"), PAGES))
    assert renewed == []
    api.on(at("a", "version"), fake.status(401, "Unauthorized", "Unauthorized"))
    known(reader().pages(pages("a"), PAGES))
    assert len(renewed) == 1, "the API server's own word is another matter"


@pytest.mark.parametrize("behaviour", [fake.stall, fake.drip])
def test_one_that_hangs_has_its_own_time_for_all_it_is_asked(
    api: FakeApi, reader: Make, monkeypatch: Any, behaviour: Callable[[Exchange], None]
) -> None:
    monkeypatch.setattr(live_pods, "SECONDS", 1.0)
    api.on(ACCESS, ALLOWED).on(at("a", "version"), behaviour)
    api.on(at("a", "metrics"), behaviour).on(at("a", "server_info"), behaviour)
    serve(api, "b")
    started = time.monotonic()
    found = known(reader().pages([*pages("a"), *pages("b")], PAGES))
    assert time.monotonic() - started < 4, "three pages share the one second"
    assert {gap.reason for gap in found.gaps()} == {Reason.TIMEOUT}
    assert found[pages("b")[0]] == "0.22.1"


def test_an_answer_without_an_end_is_cut(api: FakeApi, reader: Make, monkeypatch: Any) -> None:
    monkeypatch.setattr(live_pods, "LARGEST", 1 << 16)
    api.on(ACCESS, ALLOWED)
    serve(api, "a")
    api.on(at("a", "metrics"), fake.text(200, "vllm:x 1\n" * 300_000))
    gap = known(reader().pages(pages("a"), PAGES)).entries[pages("a")[1]]
    assert isinstance(gap, Unknown)
    assert (gap.reason, "65536 bytes" in gap.message) == (Reason.MALFORMED, True)


def test_a_record_holds_what_is_used_and_tells_the_same(api: FakeApi, reader: Make, tmp_path: Path) -> None:
    api.on(ACCESS, ALLOWED)
    serve(api, "a")
    api.on(at("b", "version"), fake.text(200, '{"version": "0.21.0"}'))
    api.on(at("b", "metrics"), fake.status(503, "ServiceUnavailable", "connection refused"))
    api.on(at("b", "server_info"), fake.text(200, info()))
    recorder = Recorder(tmp_path / "snapshot")
    wanted = pages("a", "b")
    live = known(reader(sink=recorder).pages(wanted, PAGES))
    recorder.close(Source(kind="live", name="x"))
    again = known(open_snapshot(tmp_path / "snapshot").pages(wanted, PAGES))
    assert again.entries == live.entries
    stored = "".join(each.read_text() for each in (tmp_path / "snapshot" / "pods").rglob("*.*"))
    for secret in ("sk-secret", "hf_x", "VLLM_API_KEY", "model_name"):
        assert secret not in stored


def test_a_record_that_was_made_without_asking_says_so(tmp_path: Path) -> None:
    (tmp_path / "resources").mkdir()
    (tmp_path / "capture.yaml").write_text(
        "apiVersion: gpuctl.dev/v1\nkind: Snapshot\ncapturedAt: 2026-11-30T10:00:00Z\ncomplete: [pods]\n"
    )
    assert isinstance(open_snapshot(tmp_path).pages(pages("a"), PAGES), Inapplicable)


@pytest.mark.parametrize(
    ("name", "content"), [("8000-version.txt", "<html>"), ("8000-version.err", "no reason of ours\nx")]
)
def test_a_damaged_record_is_no_answer(tmp_path: Path, name: str, content: str) -> None:
    folder = tmp_path / "pods" / "serving" / "a"
    folder.mkdir(parents=True)
    (folder / name).write_text(content)
    (tmp_path / "capture.yaml").write_text(
        "apiVersion: gpuctl.dev/v1\nkind: Snapshot\ncapturedAt: 2026-11-30T10:00:00Z\ncomplete: [pods]\n"
    )
    gap = known(open_snapshot(tmp_path).pages(pages("a"), PAGES)).entries[pages("a")[0]]
    assert isinstance(gap, Unknown)
    assert gap.reason is Reason.MALFORMED


# Commands

SERVE = "python3\0/usr/local/bin/vllm\0serve\0m\0--api-key\0sk-0123456789abcdefghij\0--enforce-eager\0"


def runs(*names: str) -> list[Run]:
    return [Run(Ref(EnginePod.of, name, "serving"), "vllm", COMMAND_LINE) for name in names]


def asked(cluster: Cluster, questions: Collection[Run], sink: Sink | None = None) -> Each[Run, Any]:
    connection, deadline = cast("Connection", cluster), Deadline.after(8.0)
    return PodAsker(connection, deadline, sink or NoSink(), Reviews(connection, deadline)).runs(
        questions, RUNS
    )


def test_a_command_line_is_read_and_recorded_without_keys(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "snapshot")
    cluster = Cluster(runs={"a": lambda _: (SERVE, "", 0), "b": lambda _: ("", "cat: no such file", 1)})
    found = asked(cluster, runs("a", "b"), recorder)
    recorder.close(Source(kind="live", name="x"))
    first, second = runs("a", "b")
    assert "--enforce-eager" in found[first]
    gap = found.entries[second]
    assert isinstance(gap, Unknown)
    assert gap.message == "exit code 1: cat: no such file"
    again = known(open_snapshot(tmp_path / "snapshot").runs([first, second], RUNS))
    assert again[first][-1] == "--enforce-eager"
    assert again[first][-2] == "<masked>"
    assert again.entries[second] == gap


def test_exec_that_is_not_permitted_is_not_tried() -> None:
    cluster = Cluster(forbidden=frozenset({"create pods/exec"}))
    (gap,) = asked(cluster, runs("a")).gaps()
    assert gap.reason is Reason.FORBIDDEN
    assert "pods/exec" in gap.message
    assert cluster.execs == []


def test_an_image_without_the_command(monkeypatch: Any) -> None:
    monkeypatch.setattr(live_pods, "SECONDS", 1.0)
    missing = 'exec: "cat": executable file not found in $PATH'
    cluster = Cluster(runs={"a": lambda _: ("", missing, -1), "b": lambda _: None})
    found = asked(cluster, runs("a", "b"))
    reasons = [gap.reason for gap in found.gaps()]
    assert reasons == [Reason.SERVER_ERROR, Reason.TIMEOUT]
