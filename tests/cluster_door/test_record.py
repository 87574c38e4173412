"""What is recorded replays as it was read, holds no secrets, and is there whole or not at all."""

from __future__ import annotations

import gzip
import json
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest_mock import MockerFixture

from gpuctl.audit.report import Source
from gpuctl.cluster.record import CannotRecord, Recorder
from gpuctl.cluster.snapshot import open_snapshot
from gpuctl.facts.kinds import Kind, Ref, View
from gpuctl.facts.state import Inapplicable, Known, Reason, Unknown
from tests.memory import A_MOMENT, MemoryReader

SOURCE = Source(kind="live", name="here", cluster_uid="7d0c", server_version="v1.36.3")
SECRET = "hunter2-Zq9"


class Pod(View, frozen=True):
    of: ClassVar[Kind] = Kind("", ("v1",), "Pod", "pods", namespaced=True)
    spec: dict[str, Any] = {}


class Config(View, frozen=True):
    of: ClassVar[Kind] = Kind("", ("v1",), "ConfigMap", "configmaps", namespaced=True)
    keys: ClassVar[tuple[str, ...]] = ("config.yaml",)
    data: dict[str, str] = {}


class OtherConfig(View, frozen=True):
    of: ClassVar[Kind] = Config.of
    keys: ClassVar[tuple[str, ...]] = ("other.yaml",)
    data: dict[str, str] = {}


class Secret(View, frozen=True):
    of: ClassVar[Kind] = Kind("", ("v1",), "Secret", "secrets", namespaced=True)


class Old(View, frozen=True):
    of: ClassVar[Kind] = Kind("kueue.x-k8s.io", ("v1beta1",), "LocalQueue", "localqueues", namespaced=True)


class New(View, frozen=True):
    of: ClassVar[Kind] = Kind("kueue.x-k8s.io", ("v1beta2",), "LocalQueue", "localqueues", namespaced=True)


def a_pod(name: str, namespace: str = "a", **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def raw(items: Iterable[Mapping[str, Any]]) -> list[msgspec.Raw]:
    return [msgspec.Raw(msgspec.json.encode(item)) for item in items]


def bare(item: Mapping[str, Any]) -> dict[str, Any]:
    """As the API server gives the items of a list."""
    return {key: part for key, part in item.items() if key not in ("apiVersion", "kind")}


def replayed(recorder: Recorder, path: Path) -> Any:
    recorder.close(SOURCE, A_MOMENT)
    return open_snapshot(path)


def all_bytes(path: Path) -> bytes:
    """Every byte of a folder or archive, unpacked and packed, names included."""
    if path.is_dir():
        files = [(str(each), each.read_bytes()) for each in path.rglob("*") if each.is_file()]
    else:
        with tarfile.open(path) as archive:
            opened = [(each.name, archive.extractfile(each)) for each in archive]
        with tarfile.open(path) as archive:
            files = [(name, archive.extractfile(name).read()) for name, _ in opened]  # type: ignore[union-attr]
        files.append((path.name, path.read_bytes()))
    return b"\n".join(name.encode() + b"\n" + _unpacked(name, content) for name, content in files)


def _unpacked(name: str, content: bytes) -> bytes:
    return gzip.decompress(content) + content if name.endswith(".gz") and name.count(".json") else content


labels = st.dictionaries(st.sampled_from(["app", "x"]), st.text(max_size=5), max_size=2)
pods = st.lists(
    st.builds(
        a_pod, st.sampled_from("pqrst"), st.sampled_from("ab"), nodeName=st.text(max_size=5), labels=labels
    ),
    max_size=8,
    unique_by=lambda pod: (pod["metadata"]["name"], pod["metadata"]["namespace"]),
)


@settings(deadline=None, max_examples=40)
@given(pods, st.sampled_from(["snap", "snap.tar.gz", "snap.tgz"]))
def test_what_is_recorded_replays_as_it_was_read(items: list[dict[str, Any]], name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        recorder = Recorder(path)
        for page in (items[:3], items[3:]):
            recorder.items(Pod.of, "v1", [Pod], raw(map(bare, page)))
        recorder.complete(Pod.of)
        reader, memory = replayed(recorder, path), MemoryReader(items)
        assert reader.objects(Pod.of, "", [Pod]) == memory.objects(Pod.of, "", [Pod])
        assert reader.within(Pod, ["a"]) == memory.within(Pod, ["a"])
        refs = [Ref(Pod.of, "p", "a"), Ref(Pod.of, "z", "b")]
        assert reader.named(Pod, refs) == memory.named(Pod, refs)
        assert reader.now == A_MOMENT
        assert (reader.source().cluster_uid, reader.source().server_version) == ("7d0c", "v1.36.3")


def test_gaps_replay_with_their_reason(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "snap")
    recorder.missing(Pod.of, Unknown(Reason.FORBIDDEN, "no right"))
    recorder.missing(Config.of, Unknown(Reason.TIMEOUT), namespace="a", name="x")
    recorder.complete(Config.of, namespace="a", name="y")
    recorder.served("kueue.x-k8s.io", ("v1beta2", "v1beta1"))
    recorder.served("ray.io", ())
    reader = replayed(recorder, tmp_path / "snap")
    assert reader.objects(Pod.of, "", [Pod])[0] == Unknown(Reason.FORBIDDEN, "no right", "pods")
    ref = Ref(Config.of, "x", "a")
    found = reader.named(Config, [ref, Ref(Config.of, "y", "a")])
    assert found.value.entries == {ref: Unknown(Reason.TIMEOUT, "", str(ref))}
    assert reader.served("kueue.x-k8s.io") == Known(("v1beta2", "v1beta1"))
    assert reader.served("ray.io") == Known(())


def test_a_version_that_could_not_be_read_does_not_hurt_the_other(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "snap")
    recorder.missing(Old.of, Unknown(Reason.SERVER_ERROR, "conversion webhook failed"))
    recorder.complete(New.of)
    reader = replayed(recorder, tmp_path / "snap")
    assert reader.objects(Old.of, "", [Old])[0] == Unknown(
        Reason.SERVER_ERROR, "conversion webhook failed", "localqueues.kueue.x-k8s.io"
    )
    assert isinstance(reader.objects(New.of, "", [New])[0], Known)


def test_not_served_replays_as_inapplicable(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "snap")
    recorder.missing(Old.of, Unknown(Reason.NOT_SERVED, "not there"))
    assert replayed(recorder, tmp_path / "snap").objects(Old.of, "", [Old]) == [Inapplicable("not there")]


PLANTED = [
    a_pod("p", containers=[{"name": "c", "image": "i", "env": [{"name": "DB", "value": SECRET}]}]),
    a_pod(
        "q",
        containers=[
            {"name": "c", "args": ["--api-key", SECRET], "command": ["sh", "-c", f"TOKEN={SECRET} x"]}
        ],
    ),
    {
        **a_pod("r"),
        "metadata": {
            "name": "r",
            "namespace": "a",
            "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": SECRET,
                "example.com/password": SECRET,
                "example.com/url": f"https://me:{SECRET}@host",
            },
        },
    },
    a_pod("padding", text=[f"{number}" * 40 for number in range(9000)], password=SECRET),
]


@pytest.mark.parametrize("name", ["snap", "snap.tar.gz"])
def test_no_planted_secret_is_in_any_byte(tmp_path: Path, name: str) -> None:
    recorder = Recorder(tmp_path / name)
    recorder.items(Pod.of, "v1", [Pod], raw(PLANTED[:3]))
    recorder.items(Pod.of, "v1", [Pod], raw(PLANTED))
    data = {"config.yaml": f"a: 1\npassword: {SECRET}\n", "other": SECRET}
    config = {"metadata": {"name": "c", "namespace": "a"}, "data": data, "binaryData": {"b": SECRET}}
    recorder.items(Config.of, "v1", [Config], raw([config]))
    secret = {"metadata": {"name": SECRET, "namespace": "a"}, "data": {"x": SECRET}}
    recorder.items(Secret.of, "v1", [Secret], raw([secret]))
    recorder.complete(Secret.of)
    recorder.missing(
        Pod.of, Unknown(Reason.UNREACHABLE, f"https://me:{SECRET}@proxy: refused"), namespace="b"
    )
    reader = replayed(recorder, tmp_path / name)
    everything = all_bytes(tmp_path / name)
    assert SECRET.encode() not in everything
    assert b"<masked>" in everything
    assert isinstance(reader.objects(Secret.of, "", [Secret])[0], Unknown)
    found = reader.named(Config, [Ref(Config.of, "c", "a")]).value
    assert [each.data for each in found] == [{"config.yaml": "a: 1\npassword: <masked>\n"}]


def test_small_pages_are_readable_and_large_ones_packed(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "snap")
    recorder.items(Pod.of, "v1", [Pod], raw(PLANTED[:1]))
    recorder.items(Pod.of, "v1", [Pod], raw(PLANTED))
    recorder.close(SOURCE)
    files = sorted(path.name for path in (tmp_path / "snap/resources/pods").iterdir())
    assert files == ["001.json", "002.json.gz"]
    text = (tmp_path / "snap/resources/pods/001.json").read_text()
    assert json.loads(text)["kind"] == "PodList"
    assert text.count("\n") > 10
    assert (
        (tmp_path / "snap/capture.yaml").read_text().startswith("apiVersion: gpuctl.dev/v1\nkind: Snapshot\n")
    )


def test_the_same_archive_twice_is_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.tgz", "b.tgz"):
        recorder = Recorder(tmp_path / name)
        recorder.items(Pod.of, "v1", [Pod], raw(PLANTED))
        recorder.complete(Pod.of)
        recorder.close(SOURCE, datetime(2026, 1, 1, tzinfo=UTC))
    assert (tmp_path / "a.tgz").read_bytes() == (tmp_path / "b.tgz").read_bytes()


@pytest.mark.parametrize("name", ["snap", "snap.tgz"])
def test_nothing_is_overwritten(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(CannotRecord, match="exists already"):
        Recorder(tmp_path / name)
    (tmp_path / name).unlink()
    recorder = Recorder(tmp_path / name)
    (tmp_path / name).write_text("came later")
    with pytest.raises(CannotRecord, match=name):
        recorder.close(SOURCE)
    assert (tmp_path / name).read_text() == "came later"
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_nothing_is_left_of_what_is_abandoned(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "snap")
    recorder.items(Pod.of, "v1", [Pod], raw(PLANTED))
    assert not (tmp_path / "snap").exists()
    recorder.abandon()
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(CannotRecord, match="none"):
        Recorder(tmp_path / "none" / "snap")


def test_a_failure_to_write_costs_no_reading_and_is_said_at_the_end(
    tmp_path: Path, mocker: MockerFixture
) -> None:
    recorder = Recorder(tmp_path / "snap")
    mocker.patch.object(Path, "write_bytes", side_effect=OSError(28, "No space left on device"))
    recorder.items(Pod.of, "v1", [Pod], raw(PLANTED[:1]))
    with pytest.raises(CannotRecord, match="No space left"):
        recorder.close(SOURCE)
    assert not list(tmp_path.iterdir())


def test_several_threads_record_at_once(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "snap")

    def read(number: int) -> None:
        for page in range(10):
            recorder.items(Pod.of, "v1", [Pod], raw([a_pod(f"p-{number}-{page}")]))

    threads = [Thread(target=read, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recorder.complete(Pod.of)
    assert len(replayed(recorder, tmp_path / "snap").objects(Pod.of, "", [Pod])[0].value.entries) == 80


@pytest.mark.parametrize("views", [(Config, OtherConfig), (OtherConfig, Config)])
def test_two_views_of_one_config_map_have_their_keys(tmp_path: Path, views: tuple[type[View], ...]) -> None:
    data = {"config.yaml": "a: 1", "other.yaml": "b: 2", "third.yaml": "c: 3"}
    recorder = Recorder(tmp_path / "snap")
    for view in views:
        for name in "xy":
            metadata = {"name": name, "namespace": "a"}
            recorder.items(view.of, "v1", [view], raw([{"metadata": metadata, "data": data}]))
    recorder.complete(Config.of)
    reader = replayed(recorder, tmp_path / "snap")
    kept = {key: text for key, text in data.items() if key != "third.yaml"}
    for view in views:
        found = reader.named(view, [Ref(Config.of, "x", "a")]).value
        assert [each.data for each in found] == [kept]
    assert [each.data for each in reader.objects(Config.of, "", [Config])[0].value] == [kept, kept]


def test_a_page_that_got_lost_is_a_gap(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "snap")
    for name in "pq":
        recorder.items(Pod.of, "v1", [Pod], raw([a_pod(name)]))
    recorder.complete(Pod.of)
    reader = replayed(recorder, tmp_path / "snap")
    assert not list(reader.objects(Pod.of, "", [Pod])[0].value.gaps())
    assert reader.account.capture.objects == {"pods": 2}
    (tmp_path / "snap/resources/pods/001.json").unlink()
    state: Any = open_snapshot(tmp_path / "snap").objects(Pod.of, "", [Pod])[0]
    assert [gap.reason for gap in state.value.gaps()] == [Reason.MALFORMED]


def test_what_is_withdrawn_is_not_there(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "snap")
    for attempt, name in ((1, "p"), (0, "q"), (2, "r"), (1, "s")):
        recorder.items(Pod.of, "v1", [Pod], raw([a_pod(name)]), attempt)
    recorder.withdraw(1)
    recorder.withdraw(7)
    recorder.complete(Pod.of)
    state = replayed(recorder, tmp_path / "snap").objects(Pod.of, "", [Pod])[0]
    assert {ref.name for ref, _ in state.value.items()} == {"q", "r"}


def test_rounds_of_a_tenant_are_of_the_namespace(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "snap", "a")
    for number in (1, 2):
        with recorder.round(number) as later:
            later.items(Pod.of, "v1", [Pod], raw([a_pod("p")]))
            later.complete(Pod.of, namespace="a")
    state = replayed(recorder, tmp_path / "snap").sampled(Pod)
    assert [[ref.name for ref, _ in each.items()] for each in state.value] == [["p"]]


def test_a_round_that_lost_its_capture_is_unknown(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "snap")
    with recorder.round(1) as later:
        later.items(Pod.of, "v1", [Pod], raw([a_pod("p")]))
        later.complete(Pod.of)
    recorder.close(SOURCE, A_MOMENT)
    (tmp_path / "snap/series/1/capture.yaml").unlink()
    state: Any = open_snapshot(tmp_path / "snap").sampled(Pod)
    assert [gap.reason for gap in state.value.gaps()] == [Reason.MALFORMED]


def test_what_is_not_json_is_a_gap(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "snap")
    recorder.items(Pod.of, "v1", [Pod], [*raw(PLANTED[:1]), msgspec.Raw(b"{")])
    reader = replayed(recorder, tmp_path / "snap")
    assert list(reader.objects(Pod.of, "", [Pod])[0].value.gaps())
