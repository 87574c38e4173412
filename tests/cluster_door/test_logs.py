"""Logs from a live cluster and from a record: bounded, each in its own time, and masked."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuctl.audit.report import Source
from gpuctl.cluster import logs as live_logs
from gpuctl.cluster.connection import Access, connect
from gpuctl.cluster.live import LiveReader
from gpuctl.cluster.record import Recorder
from gpuctl.cluster.snapshot import open_snapshot
from gpuctl.facts.kinds import Log, LogReading, Ref
from gpuctl.facts.state import Each, Known, Reason, State, Unknown
from gpuctl.vllm.objects import EnginePod
from gpuctl.vllm.reading import kept, parse, tells, without_end
from tests.builders import vllm as make
from tests.cluster_door import fake_api as fake
from tests.cluster_door.fake_api import Exchange, FakeApi

READING = LogReading(parse, kept, tells, without_end)
PLAIN = LogReading(str, str)


def log(name: str, *, previous: bool = False) -> Log:
    return Log(Ref(EnginePod.of, name, "serving"), "vllm", previous)


def path(name: str) -> str:
    return f"/api/v1/namespaces/serving/pods/{name}/log"


def written(text: str) -> Callable[[Exchange], None]:
    """A log that obeys limitBytes and tailLines."""

    def answer(exchange: Exchange) -> None:
        lines = text.splitlines(keepends=True)
        query = exchange.query
        tail = int(query["tailLines"]) if "tailLines" in query else len(lines)
        content = "".join(lines[-tail:]).encode()[: int(query["limitBytes"])]
        exchange.send(200, content, "text/plain")

    return answer


def known(state: State[Each[Log, Any]]) -> Each[Log, Any]:
    assert isinstance(state, Known)
    return state.value


@pytest.fixture
def reader(api: FakeApi, kubeconfig: Callable[..., Access]) -> LiveReader:
    return LiveReader(connect(kubeconfig(api.url, user={"token": "t"})), 5.0)


def test_a_log_is_read_from_its_beginning(api: FakeApi, reader: LiveReader) -> None:
    api.on(path("a"), written(make.graphs_log()))
    found = known(reader.logs([log("a")], READING))[log("a")]
    assert found.start.ready
    (asked,) = [each for each, _ in api.requests if "/log" in each]
    assert "limitBytes" in asked
    assert "tailLines" not in asked


def test_of_a_long_log_the_end_is_read_too(api: FakeApi, reader: LiveReader) -> None:
    noise = "(APIServer pid=1) said something of no interest\n" * 30_000
    api.on(path("a"), written(f"{make.graphs_log()}{noise}{make.stats_line(99.0, 9, 8)}\n"))
    found = known(reader.logs([log("a")], READING))[log("a")]
    assert found.start.ready
    assert (found.load.running, found.load.waiting) == (9, 8)
    assert max(len(each) for each, _ in api.requests) < 300
    assert api.asked(path("a")) == 2


def test_an_end_that_can_not_be_read_is_noted_live_and_in_a_record(
    api: FakeApi, kubeconfig: Callable[..., Access], tmp_path: Path
) -> None:
    noise = "(APIServer pid=1) said something of no interest\n" * 30_000
    whole = written(f"{make.graphs_log()}{noise}")

    def without_end_of_a(exchange: Exchange) -> None:
        failed = fake.status(500, "InternalError", "dial tcp 10.0.0.1:10250: connect: no route to host")
        (failed if "tailLines" in exchange.query else whole)(exchange)

    api.on(path("a"), without_end_of_a).on(path("b"), whole)
    recorder = Recorder(tmp_path / "snapshot")
    reader = LiveReader(connect(kubeconfig(api.url, user={"token": "t"})), 5.0, sink=recorder)
    live = known(reader.logs([log("a"), log("b")], READING))
    recorder.close(Source(kind="live", name="x"))
    again = known(open_snapshot(tmp_path / "snapshot").logs([log("a"), log("b")], READING))
    for found in (live, again):
        assert found[log("a")].start.ready, "the beginning counts all the same"
        assert found[log("a")].without_end.reason is Reason.SERVER_ERROR
        assert "no route to host" in found[log("a")].without_end.message
        assert found[log("b")].without_end is None


def test_more_is_read_where_the_beginning_does_not_tell(api: FakeApi, reader: LiveReader) -> None:
    before, after = (
        make.graphs_log().split("Capturing CUDA graphs")[0],
        make.graphs_log().partition("35/35")[2],
    )
    noise = "Loading something slowly\n" * 10_000
    api.on(path("a"), written(f"{before}{noise}{after}"))
    assert known(reader.logs([log("a")], READING))[log("a")].start.ready


@pytest.mark.parametrize(
    "message",
    [
        'container "vllm" in pod "a" is waiting to start: ContainerCreating',
        'previous terminated container "vllm" in pod "a" not found',
    ],
)
def test_a_log_that_was_never_written_is_absent(api: FakeApi, reader: LiveReader, message: str) -> None:
    api.on(path("a"), fake.status(400, "BadRequest", message))
    assert known(reader.logs([log("a")], PLAIN)).entries == {}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (fake.status(403, "Forbidden", "pods/log is forbidden"), Reason.FORBIDDEN),
        (
            fake.status(500, "InternalError", "dial tcp 10.0.0.1:10250: connect: no route to host"),
            Reason.SERVER_ERROR,
        ),
        (fake.text(200, "unable to retrieve container logs for containerd://0123"), Reason.SERVER_ERROR),
        (fake.cut_off, Reason.MALFORMED),
        (fake.text(200, "<html><title>Sign in</title></html>", "text/html"), Reason.MALFORMED),
    ],
)
def test_a_log_that_can_not_be_read_costs_itself_alone(
    api: FakeApi, reader: LiveReader, answer: Callable[[Exchange], None], reason: Reason
) -> None:
    api.on(path("a"), answer).on(path("b"), written("hello"))
    found = known(reader.logs([log("a"), log("b")], PLAIN))
    gap = found.entries[log("a")]
    assert isinstance(gap, Unknown)
    assert gap.reason is reason
    assert found[log("b")] == "hello"


def test_a_log_that_hangs_costs_its_own_time_only(
    api: FakeApi, reader: LiveReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_logs, "SECONDS", 4.0)
    api.on(path("slow"), fake.stall).on(path("drips"), fake.drip)
    names = [f"well-{number}" for number in range(30)]
    for name in names:
        api.on(path(name), written(name))
    started = time.monotonic()
    found = known(reader.logs([log("slow"), log("drips"), *(log(name) for name in names)], PLAIN))
    assert time.monotonic() - started < 10, "one after the other they would take a minute and more"
    assert {key.pod.name for key, _ in found.known()} == set(names)
    assert {gap.reason for gap in found.gaps()} == {Reason.TIMEOUT}


def test_a_mistake_in_reading_one_is_not_a_verdict(api: FakeApi, reader: LiveReader) -> None:
    def fails(text: str) -> str:
        raise ZeroDivisionError(text)

    api.on(path("a"), written("x"))
    (gap,) = known(reader.logs([log("a")], LogReading(fails, str))).gaps()
    assert gap.reason is Reason.INTERNAL


def test_without_consent_nothing_is_asked_for(api: FakeApi, kubeconfig: Callable[..., Access]) -> None:
    reader = LiveReader(connect(kubeconfig(api.url, user={"token": "t"})), 5.0, logs=False)
    state = reader.logs([log("a")], PLAIN)
    assert isinstance(state, Unknown)
    assert state.reason is Reason.NOT_ASKED
    assert api.asked(path("a")) == 0


def test_a_record_holds_what_tells_and_nothing_else(
    api: FakeApi, kubeconfig: Callable[..., Access], tmp_path: Path
) -> None:
    secret = "sk-0123456789abcdefghij"
    text = (
        make.graphs_log()
        + f"my prompt\n(APIServer pid=1) INFO 09-01 10:00:00 [utils.py:1] args: api_key='{secret}'\n"
    )
    api.on(path("a"), written(text)).on(path("b"), fake.status(403, "Forbidden", "no"))
    api.on(path("c"), fake.status(400, "BadRequest", "container is waiting to start: PodInitializing"))
    recorder = Recorder(tmp_path / "snapshot")
    reader = LiveReader(connect(kubeconfig(api.url, user={"token": "t"})), 5.0, sink=recorder)
    wanted = [log("a"), log("b"), log("c")]
    live = known(reader.logs(wanted, READING))
    recorder.close(Source(kind="live", name="x"))
    folder = tmp_path / "snapshot" / "logs" / "serving" / "a"
    stored = (folder / "vllm.log").read_text()
    assert secret not in stored
    assert "my prompt" not in stored
    meta = (folder / "vllm.meta.yaml").read_text()
    assert "readFrom: start" in meta
    assert "filtered: true" in meta
    again = known(open_snapshot(tmp_path / "snapshot").logs(wanted, READING))
    assert again[log("a")].starts == live[log("a")].starts
    gap = again.entries[log("b")]
    assert isinstance(gap, Unknown)
    assert gap.reason is Reason.FORBIDDEN
    assert log("c") not in again.entries


def test_a_log_that_a_record_does_not_hold_is_not_absent(tmp_path: Path) -> None:
    (tmp_path / "resources").mkdir()
    (tmp_path / "capture.yaml").write_text(
        "apiVersion: gpuctl.dev/v1\nkind: Snapshot\ncapturedAt: 2026-11-30T10:00:00Z\ncomplete: [pods]\n"
    )
    gap = known(open_snapshot(tmp_path).logs([log("a")], PLAIN)).entries[log("a")]
    assert isinstance(gap, Unknown)
    assert gap.reason is Reason.NOT_ASKED
