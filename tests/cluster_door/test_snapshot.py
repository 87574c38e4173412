"""A record answers for what it holds, says what it does not, and is refused if it is hostile."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuctl.cluster.archive import LIMITS, Limits
from gpuctl.cluster.documents import Damage, Object, json_pieces, yaml_pieces
from gpuctl.cluster.snapshot import BadSnapshot
from gpuctl.cluster.snapshot import open_snapshot as opened
from gpuctl.facts.kinds import Attempt, Kind, Ref, View
from gpuctl.facts.state import Inapplicable, Known, Reason, Unknown

CAPTURE = {
    "apiVersion": "gpuctl.dev/v1",
    "kind": "Snapshot",
    "capturedAt": "2026-11-30T10:00:00Z",
    "serverVersion": "v1.36.3",
    "clusterUID": "7d0c",
}
GROUP = "kueue.x-k8s.io"


class Pod(View, frozen=True):
    of: ClassVar[Kind] = Kind("", ("v1",), "Pod", "pods", namespaced=True)


class Node(View, frozen=True):
    of: ClassVar[Kind] = Kind("", ("v1",), "Node", "nodes", namespaced=False)


class Secret(View, frozen=True):
    of: ClassVar[Kind] = Kind("", ("v1",), "Secret", "secrets", namespaced=True)


class Queue(View, frozen=True):
    of: ClassVar[Kind] = Kind(GROUP, ("v1beta2", "v1beta1"), "LocalQueue", "localqueues", namespaced=True)
    spec: dict[str, str] = {}


class OldQueue(View, frozen=True):
    of: ClassVar[Kind] = Kind(GROUP, ("v1beta1",), "LocalQueue", "localqueues", namespaced=True)


def an_object(kind: Kind, name: str, namespace: str = "", **more: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
    metadata.update(more.pop("metadata", {}))
    return {
        "apiVersion": kind.api_version(more.pop("version", "")),
        "kind": kind.kind,
        "metadata": metadata,
        **more,
    }


def a_list(*items: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": list(items)}


POD = an_object(Pod.of, "llm-0", "serving", metadata={"labels": {"app": "vllm"}})
OTHER_POD = an_object(Pod.of, "job-1", "batch")
NODE = an_object(Node.of, "gpu-1", metadata={"creationTimestamp": "2026-01-02T03:04:05Z"})


def write(folder: Path, name: str, content: object) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def a_snapshot(folder: Path, *items: Mapping[str, Any], **capture: Any) -> Any:
    write(folder, "capture.yaml", yaml.safe_dump({**CAPTURE, **capture}))
    write(folder, "resources/all.json", a_list(*items))
    return open_snapshot(folder)


def open_snapshot(path: Path, limits: Limits = LIMITS, namespace: str = "") -> Any:
    """A reader whose answers are looked into without telling their states apart first."""
    return opened(path, limits, namespace)


def pods(reader: Any, labels: str = "") -> Any:
    return reader.objects(Pod.of, labels, [Pod])[0]


def names(state: Any) -> set[str]:
    assert isinstance(state, Known), state
    return {ref.name for ref in state.value.entries}


def reason(state: Any) -> Reason:
    assert isinstance(state, Unknown), state
    return state.reason


# What a record with capture.yaml answers for


def test_a_complete_kind_is_known_and_what_is_absent_is_absent(tmp_path: Path) -> None:
    reader = a_snapshot(tmp_path, POD, complete=["pods"])
    assert names(pods(reader)) == {"llm-0"}
    assert names(reader.named(Pod, [Ref(Pod.of, "x", "serving")])) == set()


def test_a_kind_that_is_not_complete_is_not_asked_though_some_objects_are_there(tmp_path: Path) -> None:
    reader = a_snapshot(tmp_path, POD)
    assert reason(pods(reader)) is Reason.NOT_ASKED
    here, gone = Ref(Pod.of, "llm-0", "serving"), Ref(Pod.of, "x", "serving")
    found = reader.named(Pod, [here, gone])
    assert isinstance(found, Known)
    assert found.value[here].metadata.name == "llm-0"
    assert reason(found.value.entries[gone]) is Reason.NOT_ASKED


def test_everything_complete_leaves_secrets_out(tmp_path: Path) -> None:
    reader = a_snapshot(tmp_path, POD, complete=["*"])
    assert names(reader.objects(Node.of, "", [Node])[0]) == set()
    assert reason(reader.objects(Secret.of, "", [Secret])[0]) is Reason.NOT_ASKED


def test_missing_gives_its_reason_and_message(tmp_path: Path) -> None:
    gap = {"resource": "pods", "reason": "forbidden", "message": "no right"}
    state = pods(a_snapshot(tmp_path, complete=["*"], missing=[gap]))
    assert reason(state) is Reason.FORBIDDEN
    assert "no right" in str(state)


def test_a_list_that_broke_off_gives_what_came_before_and_a_hole(tmp_path: Path) -> None:
    state = pods(a_snapshot(tmp_path, POD, missing=[{"resource": "pods", "reason": "timeout"}]))
    assert names(state) == {"llm-0"}
    assert [hole.reason for hole in state.value.holes] == [Reason.TIMEOUT]


def test_missing_objects_and_namespaces_are_gaps_in_a_complete_list(tmp_path: Path) -> None:
    missing = [
        {"resource": "pods", "namespace": "serving", "name": "gone", "reason": "timeout"},
        {"resource": "pods", "namespace": "secret", "reason": "forbidden"},
        {"resource": "pods/log", "namespace": "serving", "name": "llm-0", "reason": "forbidden"},
    ]
    state = pods(a_snapshot(tmp_path, POD, complete=["pods"], missing=missing))
    assert {gap.reason for gap in state.value.gaps()} == {Reason.TIMEOUT, Reason.FORBIDDEN}
    assert isinstance(state.value.entries[Ref(Pod.of, "llm-0", "serving")], Known)


FORBIDDEN_A = {"resource": "pods", "namespace": "a", "reason": "forbidden"}
IN_A = Ref(Pod.of, "x", "a")


def test_what_is_missing_is_an_exception_to_what_is_complete(tmp_path: Path) -> None:
    reader = a_snapshot(tmp_path, POD, complete=["pods"], missing=[FORBIDDEN_A])
    assert reason(reader.named(Pod, [IN_A]).value.entries[IN_A]) is Reason.FORBIDDEN
    assert [gap.reason for gap in reader.within(Pod, ["a"]).value.gaps()] == [Reason.FORBIDDEN]
    assert [gap.reason for gap in pods(reader).value.gaps()] == [Reason.FORBIDDEN]
    assert not list(reader.within(Pod, ["serving"]).value.gaps())
    assert names(reader.named(Pod, [Ref(Pod.of, "x", "serving")])) == set()


@pytest.mark.parametrize("everything", ["pods", "*"])
def test_a_narrower_read_gave_what_a_wider_one_could_not(tmp_path: Path, everything: str) -> None:
    complete = [everything, {"resource": "pods", "namespace": "a", "name": "x"}]
    reader = a_snapshot(tmp_path, complete=complete, missing=[FORBIDDEN_A])
    assert names(reader.named(Pod, [IN_A])) == set()
    other = Ref(Pod.of, "y", "a")
    assert reason(reader.named(Pod, [other]).value.entries[other]) is Reason.FORBIDDEN


@pytest.mark.parametrize("version", [{}, {"version": "v1"}])
def test_a_missing_object_is_a_gap_in_its_namespace(tmp_path: Path, version: dict[str, str]) -> None:
    missing = {"resource": "pods", "namespace": "b", "name": "x", "reason": "malformed", **version}
    reader = a_snapshot(tmp_path, complete=["pods"], missing=[missing])
    gone = Ref(Pod.of, "x", "b")
    assert reason(reader.within(Pod, ["b"]).value.entries[gone]) is Reason.MALFORMED
    assert reason(pods(reader).value.entries[gone]) is Reason.MALFORMED
    assert not list(reader.within(Pod, ["a"]).value.gaps())


def test_a_namespace_that_timed_out_in_the_only_version_is_a_gap_in_the_whole(tmp_path: Path) -> None:
    missing = {"resource": "pods", "namespace": "b", "version": "v1", "reason": "timeout"}
    state = pods(a_snapshot(tmp_path, POD, complete=["pods"], missing=[missing]))
    assert [gap.reason for gap in state.value.gaps()] == [Reason.TIMEOUT]


def test_one_object_that_is_not_served_is_not_the_whole(tmp_path: Path) -> None:
    missing = {"resource": "pods", "namespace": "a", "name": "x", "reason": "not-served"}
    reader = a_snapshot(tmp_path, POD, missing=[missing])
    here, gone = Ref(Pod.of, "llm-0", "serving"), Ref(Pod.of, "y", "a")
    found = reader.named(Pod, [here, IN_A, gone])
    assert names(found) == {"llm-0", "x", "y"}
    assert isinstance(found.value.entries[here], Known)
    assert isinstance(found.value.entries[IN_A], Inapplicable)
    assert reason(found.value.entries[gone]) is Reason.NOT_ASKED
    assert isinstance(reader.named(Pod, [IN_A]), Inapplicable)


def test_one_namespace_that_is_not_served_is_not_the_whole(tmp_path: Path) -> None:
    missing = {"resource": "pods", "namespace": "a", "reason": "not-served"}
    reader = a_snapshot(tmp_path, POD, complete=["pods"], missing=[missing])
    both = reader.within(Pod, ["serving", "a"])
    assert names(both) == {"llm-0"}
    assert [gap.reason for gap in both.value.gaps()] == [Reason.NOT_SERVED]
    assert isinstance(reader.within(Pod, ["a"]), Inapplicable)


def test_an_object_without_a_name_may_be_any(tmp_path: Path) -> None:
    a_snapshot(tmp_path, {"apiVersion": "v1", "kind": "Pod", "metadata": {}}, POD, complete=["*"])
    for reader in (open_snapshot(tmp_path), open_snapshot(tmp_path, namespace="a")):
        assert "without a name" in str(next(pods(reader).value.gaps()))
        assert list(reader.within(Pod, ["a"]).value.gaps())
        assert reason(reader.named(Pod, [IN_A]).value.entries[IN_A]) is Reason.MALFORMED


def test_fewer_objects_than_were_stored_are_a_gap_in_their_kind(tmp_path: Path) -> None:
    reader = a_snapshot(tmp_path, POD, NODE, complete=["*"], objects={"pods": 2, "nodes": 1})
    assert [gap.message for gap in pods(reader).value.gaps()] == [
        "2 objects were stored, and 1 of them are here"
    ]
    assert reason(reader.named(Pod, [IN_A]).value.entries[IN_A]) is Reason.MALFORMED
    assert list(reader.within(Pod, ["a"]).value.gaps())
    assert not list(reader.objects(Node.of, "", [Node])[0].value.gaps())


def test_not_served_is_inapplicable(tmp_path: Path) -> None:
    gap = {"resource": "pods", "reason": "not-served"}
    assert isinstance(pods(a_snapshot(tmp_path, missing=[gap])), Inapplicable)


def test_a_kind_read_in_one_version_is_known_and_the_version_that_failed_is_not(tmp_path: Path) -> None:
    gap = {
        "resource": f"localqueues.{GROUP}",
        "version": "v1beta1",
        "reason": "server-error",
        "message": "no",
    }
    queue = an_object(Queue.of, "main", "a")
    reader = a_snapshot(tmp_path, queue, complete=[f"localqueues.{GROUP}"], missing=[gap])
    assert names(reader.objects(Queue.of, "", [Queue])[0]) == {"main"}
    assert reason(reader.objects(OldQueue.of, "", [OldQueue])[0]) is Reason.SERVER_ERROR


def test_an_object_held_only_in_a_version_not_asked_for_is_unknown(tmp_path: Path) -> None:
    queue = an_object(Queue.of, "main", "a")
    reader = a_snapshot(tmp_path, queue, complete=["*"])
    state = reader.objects(OldQueue.of, "", [OldQueue])[0]
    assert [gap.reason for gap in state.value.gaps()] == [Reason.NOT_ASKED]


@pytest.mark.parametrize("order", [1, -1])
def test_of_one_object_in_two_versions_the_preferred_one_counts(tmp_path: Path, order: int) -> None:
    both = [an_object(Queue.of, "q", "a", version=v, spec={"v": v}) for v in ("v1beta2", "v1beta1")]
    reader = a_snapshot(tmp_path, *both[::order], complete=["*"])
    state = reader.objects(Queue.of, "", [Queue])[0]
    assert [queue.spec["v"] for queue in state.value] == ["v1beta2"]


def test_labels_choose(tmp_path: Path) -> None:
    reader = a_snapshot(tmp_path, POD, OTHER_POD, complete=["pods"])
    assert names(pods(reader, "app=vllm")) == {"llm-0"}
    assert names(pods(reader, "app!=vllm")) == {"job-1"}


def test_the_pods_of_one_node(tmp_path: Path) -> None:
    here, strange = {**POD, "spec": {"nodeName": "n-1"}}, {**OTHER_POD, "spec": {"nodeName": 7}}
    reader = a_snapshot(tmp_path, here, strange, complete=["pods"])
    assert names(reader.on_node("n-1", [Pod])[0]) == {"llm-0", "job-1"}
    assert names(reader.on_node("n-2", [Pod])[0]) == {"job-1"}  # it may be there


def test_narrow_reads_answer_for_as_much_as_they_covered(tmp_path: Path) -> None:
    scopes = [
        {"resource": "pods", "namespace": "serving"},
        {"resource": "pods", "labels": "app=vllm"},
        {"resource": "nodes", "name": "gone"},
    ]
    reader = a_snapshot(tmp_path, POD, complete=scopes)
    assert reason(pods(reader)) is Reason.NOT_ASKED
    assert names(pods(reader, "app=vllm")) == {"llm-0"}
    assert not list(reader.within(Pod, ["serving"]).value.gaps())
    assert [gap.reason for gap in reader.within(Pod, ["serving", "x"]).value.gaps()] == [Reason.NOT_ASKED]
    assert names(reader.named(Node, [Ref(Node.of, "gone")])) == set()
    assert (
        reason(reader.named(Node, [Ref(Node.of, "b")]).value.entries[Ref(Node.of, "b")]) is Reason.NOT_ASKED
    )


def test_within_gives_the_objects_of_the_namespaces(tmp_path: Path) -> None:
    reader = a_snapshot(tmp_path, POD, OTHER_POD, complete=["pods"])
    assert names(reader.within(Pod, ["batch"])) == {"job-1"}


# API groups


def test_served_says_what_is_not_there(tmp_path: Path) -> None:
    reader = a_snapshot(tmp_path, served={"apps": ["v1"]}, complete=["*"])
    assert reader.served(GROUP) == Known(())
    assert isinstance(reader.objects(Queue.of, "", [Queue])[0], Inapplicable)
    assert isinstance(pods(reader), Known)  # the core group is always served


def test_served_keeps_discoverys_order(tmp_path: Path) -> None:
    reader = a_snapshot(tmp_path, served={GROUP: ["v1beta2", "v1beta1"]})
    assert reader.served(GROUP) == Known(("v1beta2", "v1beta1"))


def a_crd(group: str, *versions: str) -> dict[str, Any]:
    spec = {"group": group, "versions": [{"name": each, "served": each != "v1alpha1"} for each in versions]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"localqueues.{group}"},
        "spec": spec,
    }


def test_without_served_the_crds_tell(tmp_path: Path) -> None:
    crd = a_crd(GROUP, "v1alpha1", "v1beta1", "v1beta2")
    reader = a_snapshot(tmp_path, crd, complete=["customresourcedefinitions.apiextensions.k8s.io"])
    assert reader.served(GROUP) == Known(("v1beta2", "v1beta1"))
    assert reader.served("ray.io") == Known(())
    assert reason(reader.objects(Queue.of, "", [Queue])[0]) is Reason.NOT_ASKED


def test_without_served_and_crds_nothing_is_known_of_a_group(tmp_path: Path) -> None:
    assert reason(a_snapshot(tmp_path, POD, complete=["pods"]).served(GROUP)) is Reason.NOT_ASKED


# What a colleague mails


def test_without_capture_the_kinds_that_appear_are_known(tmp_path: Path) -> None:
    write(tmp_path, "deep/er/x.json", a_list(POD, NODE))
    reader = open_snapshot(tmp_path)
    assert names(pods(reader)) == {"llm-0"}
    assert reason(reader.objects(Queue.of, "", [Queue])[0]) is Reason.NOT_ASKED


def test_an_empty_list_of_a_kind_says_that_there_are_none(tmp_path: Path) -> None:
    write(tmp_path, "x.json", {"apiVersion": "v1", "kind": "PodList", "items": []})
    assert names(pods(open_snapshot(tmp_path))) == set()


def test_a_kind_of_the_same_name_in_another_group_does_not_appear(tmp_path: Path) -> None:
    write(tmp_path, "x.yaml", "apiVersion: example.com/v1\nkind: Pod\nmetadata: {name: x}\n")
    assert reason(pods(open_snapshot(tmp_path))) is Reason.NOT_ASKED


def test_now_is_the_newest_time_at_which_something_happened(tmp_path: Path) -> None:
    certificate = {"annotations": {"certificate-not-after": "2036-01-01T00:00:00Z"}}
    fields = {"managedFields": [{"manager": "kubelet", "time": "2026-05-06T07:08:09Z"}]}
    write(tmp_path, "x.json", a_list(NODE, an_object(Pod.of, "p", "a", metadata={**certificate, **fields})))
    reader = open_snapshot(tmp_path)
    assert reader.now == reader.clock() == datetime(2026, 5, 6, 7, 8, 9, tzinfo=UTC)
    assert "2026-05-06T07:08:09Z, the newest time in it" in reader.notes[0]


def test_without_any_time_now_is_when_the_file_was_written(tmp_path: Path) -> None:
    path = write(tmp_path, "x.json", POD)
    os.utime(path, (1_800_000_000, 1_800_000_000))
    assert open_snapshot(path).now == datetime.fromtimestamp(1_800_000_000, UTC)


def test_the_source_of_a_snapshot(tmp_path: Path) -> None:
    source = a_snapshot(tmp_path, POD).source()
    assert (source.kind, source.cluster_uid, source.server_version) == ("snapshot", "7d0c", "v1.36.3")
    assert source.captured_at == datetime(2026, 11, 30, 10, tzinfo=UTC)


SHAPES = {
    "x.json": json.dumps(a_list(POD, NODE)),
    "x.yaml": yaml.safe_dump(a_list(POD, NODE)),
    "x.yml": yaml.safe_dump_all([POD, NODE]),
    "array.json": json.dumps([POD, NODE]),
    "two.json": json.dumps(POD, indent=1) + "\n" + json.dumps(NODE),
    "x.json.gz": gzip.compress(json.dumps(a_list(POD, NODE)).encode()),
    "flow.yaml": "{apiVersion: v1, kind: List, items: [" + json.dumps(POD) + ", " + json.dumps(NODE) + "]}",
    "comment.yaml": "# mailed\n---\n" + yaml.safe_dump(POD) + "--- # next\n" + yaml.safe_dump(NODE),
    "windows.yaml": yaml.safe_dump_all([POD, NODE]).replace("\n", "\r\n").encode("utf-16"),
    "bom.json": b"\xef\xbb\xbf" + json.dumps(a_list(POD, NODE)).encode(),
    "alias.yaml": "x: &v v1\n---\n" + yaml.safe_dump_all([POD, NODE]),
}


@pytest.mark.parametrize("name", SHAPES)
def test_every_way_of_writing_objects_down(tmp_path: Path, name: str) -> None:
    reader = open_snapshot(write(tmp_path, name, SHAPES[name]))
    assert names(pods(reader)) == {"llm-0"}
    node = next(iter(reader.objects(Node.of, "", [Node])[0].value))
    assert node.metadata.creation_timestamp == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize("dump", [json.dumps, yaml.safe_dump])
def test_items_of_a_typed_list_may_leave_their_kind_to_it(tmp_path: Path, dump: Callable[[Any], str]) -> None:
    item = {"metadata": POD["metadata"]}
    write(tmp_path, "x.yaml", dump({"apiVersion": "v1", "kind": "PodList", "items": [item]}))
    assert names(pods(open_snapshot(tmp_path))) == {"llm-0"}


def an_archive(folder: Path) -> Path:
    """An archive of a folder, beside it."""
    path = folder.with_suffix(".tgz")
    with tarfile.open(path, "w:gz") as archive:
        archive.add(folder, folder.name)
    return path


def test_an_archive_with_one_folder_around_everything(tmp_path: Path) -> None:
    a_snapshot(tmp_path / "snap", POD, complete=["pods"])
    assert names(pods(open_snapshot(an_archive(tmp_path / "snap")))) == {"llm-0"}


def test_several_snapshots_in_one_folder_are_refused(tmp_path: Path) -> None:
    a_snapshot(tmp_path / "a", POD)
    a_snapshot(tmp_path / "b", POD)
    with pytest.raises(BadSnapshot, match="several snapshots: a/, b/"):
        open_snapshot(tmp_path)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(json_values)
def test_json_and_yaml_of_the_same_value_are_read_alike(value: Any) -> None:
    item = {**POD, "spec": value}
    as_json = list(json_pieces(json.dumps(item).encode()))
    as_yaml = list(yaml_pieces(yaml.safe_dump(item).encode()))
    texts = [json.loads(bytes(piece.text)) for piece in (*as_json, *as_yaml) if isinstance(piece, Object)]
    assert texts == [item, item]


@settings(deadline=None)
@given(st.integers(0, 400))
def test_text_cut_off_anywhere_is_damage_and_never_an_error(end: int) -> None:
    text = json.dumps({"kind": "PodList", "apiVersion": "v1", "items": [POD, OTHER_POD]}).encode()
    pieces = list(json_pieces(text[:end]))
    assert end >= len(text) or any(isinstance(piece, Damage) for piece in pieces)


# Files that are broken


BROKEN = {
    "truncated.json": json.dumps(a_list(NODE))[:-9],
    "truncated.yaml": "apiVersion: v1\nitems:\n- {apiVersion: v1, kind: Pod, metad",
    "truncated.json.gz": gzip.compress(json.dumps(a_list(NODE)).encode())[:-12],
    "not.json.gz": b"no gzip at all",
    "utf8.json": b'{"apiVersion":"v1","items":[],"kind":"List","x":"\xff\xfe"}',
    "utf8.yaml": b"a: \xff\xfe\n",
    "tab.yaml": "a:\n\t- b",
    "empty.json": "",
    "deep.json": '{"apiVersion":"v1","kind":"List","items":' + "[" * 100_000,
    "deep.yaml": "[" * 100_000,
    "bomb.yaml": "a: &a [x,x,x,x,x,x,x,x,x]\n"
    + "".join(
        f"{b}: &{b} [*{a},*{a},*{a},*{a},*{a},*{a},*{a},*{a},*{a}]\n"
        for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    ),
    "itself.yaml": "&a [*a]",
    "items.json": '{"apiVersion":"v1","kind":"List","items":[3]}',
    "nameless.json": json.dumps(a_list({"metadata": {"name": "x"}})),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_a_gap_in_every_kind_it_may_have_held(tmp_path: Path, name: str) -> None:
    write(tmp_path, f"resources/{name}", BROKEN[name])
    state = pods(a_snapshot(tmp_path, POD, complete=["*"]))
    assert names(state) == {"llm-0"}
    assert any(name in str(gap) and gap.reason is Reason.MALFORMED for gap in state.value.gaps())
    found = open_snapshot(tmp_path).named(Pod, [Ref(Pod.of, "x", "y")])
    assert reason(found.value.entries[Ref(Pod.of, "x", "y")]) is Reason.MALFORMED


STATUS = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "Unauthorized", "code": 401}
NO_OBJECTS = {
    "status.json": json.dumps(STATUS),
    "status.yaml": yaml.safe_dump(STATUS),
    "table.json": json.dumps({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "rows": []}),
    "partial.json": json.dumps(
        {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "items": [POD]}
    ),
    "slurped.json": json.dumps([STATUS]),
    "bare.json": json.dumps({"kind": "List", "apiVersion": "v1"}),
    "page.json": json.dumps({**a_list(POD), "metadata": {"continue": "xyz"}}),
}


@pytest.mark.parametrize("name", NO_OBJECTS)
def test_an_answer_that_holds_no_objects_is_a_gap_in_every_kind(tmp_path: Path, name: str) -> None:
    write(tmp_path, f"resources/{name}", NO_OBJECTS[name])
    reader = a_snapshot(tmp_path, POD, complete=["*"])
    for state in (pods(reader), reader.objects(Node.of, "", [Node])[0]):
        assert [gap.what for gap in state.value.gaps()] == [f"file resources/{name}"]
    mailed = tmp_path / "mailed"
    write(mailed, "pods.json", a_list(POD))
    write(mailed, name, NO_OBJECTS[name])
    assert list(pods(open_snapshot(mailed)).value.gaps())


def test_nothing_but_an_error_is_refused_with_its_words(tmp_path: Path) -> None:
    with pytest.raises(BadSnapshot, match=r"pods\.json: a Status instead of objects \(401 Unauthorized\)"):
        open_snapshot(write(tmp_path, "pods.json", STATUS))


@pytest.mark.parametrize("dump", [json.dumps, yaml.safe_dump])
def test_a_list_without_items_is_a_gap_in_its_kind_only(tmp_path: Path, dump: Callable[[Any], str]) -> None:
    write(tmp_path, "resources/x.yaml", dump({"apiVersion": "v1", "kind": "PodList", "metadata": {}}))
    reader = a_snapshot(tmp_path, NODE, complete=["*"])
    assert len(list(pods(reader).value.gaps())) == 1
    assert not list(reader.objects(Node.of, "", [Node])[0].value.gaps())


class AllowList(View, frozen=True):
    of: ClassVar[Kind] = Kind("example.com", ("v1",), "AllowList", "allowlists", namespaced=False)


@pytest.mark.parametrize("dump", [json.dumps, yaml.safe_dump])
def test_an_object_whose_kind_is_called_a_list_is_an_object(
    tmp_path: Path, dump: Callable[[Any], str]
) -> None:
    write(tmp_path, "resources/x.yaml", dump(an_object(AllowList.of, "friends")))
    reader = a_snapshot(tmp_path, complete=["*"])
    state = reader.objects(AllowList.of, "", [AllowList])[0]
    assert names(state) == {"friends"}
    assert not list(state.value.gaps())


def test_lists_in_an_array_are_opened(tmp_path: Path) -> None:
    one = {"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": POD["metadata"]}]}
    write(tmp_path, "x.json", [one, a_list(OTHER_POD)])
    assert names(pods(open_snapshot(tmp_path))) == {"llm-0", "job-1"}


def a_page(*items: Mapping[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "PodList", "metadata": metadata, "items": list(items)}


PAGES = {
    "the first": [a_page(POD, **{"continue": "a"})],
    "the first, counted": [a_page(POD, remainingItemCount=3)],
    "without the last": [a_page(POD, **{"continue": "a"}), a_page(OTHER_POD, **{"continue": "b"})],
    "without the middle": [
        a_page(POD, **{"continue": "a", "remainingItemCount": 2}),
        a_page(OTHER_POD),
    ],
}


@pytest.mark.parametrize("name", PAGES)
def test_some_pages_of_a_list_are_not_the_list(tmp_path: Path, name: str) -> None:
    for number, page in enumerate(PAGES[name]):
        write(tmp_path, f"resources/{number}.json", page)
    reader = a_snapshot(tmp_path, NODE, complete=["*"])
    assert "the pages after it are not here" in str(next(pods(reader).value.gaps()))
    assert not list(reader.objects(Node.of, "", [Node])[0].value.gaps())


def test_all_pages_of_a_list_are_the_list(tmp_path: Path) -> None:
    first = a_page(POD, **{"continue": "a", "remainingItemCount": 1})
    for number, page in enumerate((first, a_page(OTHER_POD))):
        write(tmp_path, f"resources/{number}.json", page)
    write(tmp_path, "resources/other.json", a_page(OTHER_POD))
    state = pods(a_snapshot(tmp_path, complete=["*"]))
    assert names(state) == {"llm-0", "job-1"}
    assert not list(state.value.gaps())


@pytest.mark.parametrize("name", BROKEN)
def test_nothing_but_a_broken_file_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadSnapshot, match=name.removesuffix(".gz")):
        open_snapshot(write(tmp_path, name, BROKEN[name]))


def test_a_broken_list_of_one_kind_is_a_gap_in_that_kind_only(tmp_path: Path) -> None:
    broken = json.dumps({"kind": "NodeList", "apiVersion": "v1", "items": [NODE]})[:-5]
    write(tmp_path, "resources/a.json", broken)
    write(tmp_path, "resources/b.yaml", "apiVersion: v1\nkind: Node\nmetadata: {name: [}\n")
    reader = a_snapshot(tmp_path, POD, complete=["*"])
    assert not list(pods(reader).value.gaps())
    gaps = list(reader.objects(Node.of, "", [Node])[0].value.gaps())
    assert [gap.what for gap in gaps] == ["file resources/a.json", "file resources/b.yaml"]


TWO_DOCUMENTS = {
    "lines": json.dumps(a_page(POD))[:-9] + "\n" + json.dumps(a_list(NODE)),
    "no line between": json.dumps(a_page(POD))[:-9] + json.dumps({**a_list(NODE), "kind": "NodeList"}),
    "an object": json.dumps(a_page(POD), indent=1)[:-9] + "\n" + json.dumps(NODE, indent=1),
    "after a good one": json.dumps(OTHER_POD) + json.dumps(a_page(POD))[:-9] + "\n" + json.dumps(NODE),
}


@pytest.mark.parametrize("name", TWO_DOCUMENTS)
def test_a_broken_document_does_not_hide_what_came_after_it(tmp_path: Path, name: str) -> None:
    write(tmp_path, "resources/x.json", TWO_DOCUMENTS[name])
    reader = a_snapshot(tmp_path, complete=["*"])
    assert list(reader.objects(Node.of, "", [Node])[0].value.gaps())


UNREAD = {
    "001.json.xz": b"\xfd7zXZ",
    "pods.txt": "NAME READY",
    "001": json.dumps(a_list(OTHER_POD)),
    "comment.yaml": "# emptied\n---\n  # here too\n",
    "blank.yaml": " \n",
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", UNREAD)
def test_what_cannot_be_read_by_its_name_or_is_emptied_is_a_gap_in_every_kind(
    tmp_path: Path, name: str, packed: bool
) -> None:
    write(tmp_path / "snap", f"resources/{name}", UNREAD[name])
    reader = a_snapshot(tmp_path / "snap", POD, complete=["*"])
    if packed:
        reader = open_snapshot(an_archive(tmp_path / "snap"))
    for state in (pods(reader), reader.objects(Node.of, "", [Node])[0]):
        assert [gap.what for gap in state.value.gaps()] == [f"file resources/{name}"]
    assert any(name in note for note in reader.notes)


@pytest.mark.parametrize("name", ["._001.json", ".DS_Store", ".gitkeep"])
def test_what_machines_leave_behind_is_no_gap(tmp_path: Path, name: str) -> None:
    write(tmp_path, f"resources/{name}", b"\0")
    assert not list(pods(a_snapshot(tmp_path, POD, complete=["*"])).value.gaps())


@pytest.mark.parametrize("name", ["x.JSON", "x.Json.GZ", "x.YAML"])
def test_endings_may_be_in_capitals(tmp_path: Path, name: str) -> None:
    text = json.dumps(a_list(OTHER_POD)).encode()
    write(tmp_path, f"resources/{name}", gzip.compress(text) if name.endswith("GZ") else text)
    state = pods(a_snapshot(tmp_path, POD, complete=["*"]))
    assert names(state) == {"llm-0", "job-1"}
    assert not list(state.value.gaps())


def test_a_malformed_object_is_one_unknown_entry(tmp_path: Path) -> None:
    state = pods(
        a_snapshot(tmp_path, POD, an_object(Pod.of, "bad", "x", metadata={"labels": 3}), complete=["*"])
    )
    assert reason(state.value.entries[Ref(Pod.of, "bad", "x")]) is Reason.MALFORMED
    assert isinstance(state.value.entries[Ref(Pod.of, "llm-0", "serving")], Known)


def test_text_that_is_no_object_is_passed_over_in_what_a_colleague_mails(tmp_path: Path) -> None:
    write(tmp_path, "etcd_info/status.json", {"Endpoint": "x"})
    write(tmp_path, "pods.json", a_list(POD))
    assert not list(pods(open_snapshot(tmp_path)).value.gaps())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("kind: [", "capture.yaml"),
        ("[]", "not a mapping"),
        ("", "not a mapping"),
        (yaml.safe_dump({**CAPTURE, "kind": "Other"}), "it is a Other of gpuctl.dev/v1"),
        (yaml.safe_dump({**CAPTURE, "apiVersion": "gpuctl.dev/v9"}), "gpuctl.dev/v9"),
        (yaml.safe_dump({**CAPTURE, "missing": [{"resource": "pods", "reason": "lazy"}]}), "lazy"),
        (
            yaml.safe_dump({**CAPTURE, "missing": [{"resource": "pods", "reason": "internal-error"}]}),
            "internal",
        ),
        (yaml.safe_dump({**CAPTURE, "capturedAt": "yesterday"}), "capturedAt"),
        (yaml.safe_dump({**CAPTURE, "capturedAt": "2026-11-30T10:00:00"}), "capturedAt"),
        (yaml.safe_dump({"a": 1}), "apiVersion"),
        (b"\xff\x00bad", "capture.yaml"),
    ],
)
def test_a_wrong_capture_is_refused(tmp_path: Path, text: Any, says: str) -> None:
    write(tmp_path, "capture.yaml", text)
    write(tmp_path, "resources/x.json", POD)
    with pytest.raises(BadSnapshot, match=says):
        open_snapshot(tmp_path)


def test_empty_fields_and_times_of_people_are_fine(tmp_path: Path) -> None:
    head = "apiVersion: gpuctl.dev/v1\nkind: Snapshot\ncapturedAt: 2026-11-30T12:00:00+02:00\n"
    write(tmp_path, "capture.yaml", f"{head}missing:\nserved:\nnews: 1\n")
    assert open_snapshot(tmp_path).now == datetime(2026, 11, 30, 10, tzinfo=UTC)


@pytest.mark.parametrize("name", ["x.zip", "x.txt", "x"])
def test_other_files_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadSnapshot, match=name):
        open_snapshot(write(tmp_path, name, "PK"))


def test_an_empty_folder_and_a_missing_path_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none", tmp_path / "none.json", tmp_path / "none.tgz"):
        with pytest.raises(BadSnapshot, match=str(path)):
            open_snapshot(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file_is_a_gap(tmp_path: Path) -> None:
    write(tmp_path, "resources/x.json", POD).chmod(0)
    assert list(pods(a_snapshot(tmp_path, POD, complete=["*"])).value.gaps())


# Archives that are hostile


def tarred(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for member, content in members:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def member(name: str, sort: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = sort, link
    return info


HOSTILE = {
    "leads out": [(member("../../etc/x.json"), b"{}")],
    "leads out of": [(member("/etc/x.json"), b"{}")],
    "leads out of the": [(member("a/../../x.json"), b"{}")],
    "leads out of the archive": [(member("..\\x.json"), b"{}")],
    "symbolic link": [(member("x.json", tarfile.SYMTYPE, "/etc/passwd"), b"")],
    "hard link": [(member("x.json", tarfile.LNKTYPE, "/etc/passwd"), b"")],
    "device or pipe": [(member("x.json", tarfile.CHRTYPE), b"")],
    "device or": [(member("x.json", tarfile.FIFOTYPE), b"")],
    "twice": [(member("x.json"), b"{}"), (member("./x.json"), b"{}")],
}


@pytest.mark.parametrize("says", HOSTILE)
def test_hostile_members_refuse_the_archive(tmp_path: Path, says: str) -> None:
    path = tarred(tmp_path / "x.tgz", *HOSTILE[says])
    with pytest.raises(BadSnapshot, match=says) as refused:
        open_snapshot(path)
    assert str(path) in str(refused.value)


def zeros(size: int) -> tuple[tarfile.TarInfo, bytes]:
    return member("x.json"), bytes(size)


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        (Limits(total=2**20), "more than 1 MiB"),
        (Limits(file=2**20), "larger than 1 MiB"),
        (Limits(ratio_from=2**20), "300 times"),
    ],
)
def test_archives_over_a_limit_are_refused(tmp_path: Path, limits: Limits, says: str) -> None:
    path = tarred(tmp_path / "x.tgz", zeros(3 * 2**20))
    with pytest.raises(BadSnapshot, match=says):
        open_snapshot(path, limits)


def test_more_files_than_the_limit_are_refused(tmp_path: Path) -> None:
    for number in range(4):
        write(tmp_path, f"{number}.json", POD)
    with pytest.raises(BadSnapshot, match="more than 3 files"):
        open_snapshot(tmp_path, Limits(files=3))


def test_a_bomb_inside_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "x.json.gz", gzip.compress(bytes(3 * 2**20)))
    with pytest.raises(BadSnapshot, match=r"x\.json\.gz"):
        open_snapshot(tmp_path, Limits(file=2**20))
    with pytest.raises(BadSnapshot, match="300 times"):
        open_snapshot(tmp_path, Limits(ratio_from=2**20))


def test_many_bombs_inside_are_one(tmp_path: Path) -> None:
    text = json.dumps(a_list(POD)) + " " * 2**19
    for number in range(4):
        write(tmp_path, f"snap/resources/{number}.json.gz", gzip.compress(text.encode()))
    write(tmp_path, "snap/capture.yaml", yaml.safe_dump(CAPTURE))
    for path in (tmp_path / "snap", an_archive(tmp_path / "snap")):
        with pytest.raises(BadSnapshot, match="the snapshot unpacks to more than 1 MiB"):
            open_snapshot(path, Limits(total=2**20))


def test_a_file_that_is_read_again_is_counted_once(tmp_path: Path) -> None:
    write(tmp_path, "x.json.gz", gzip.compress(json.dumps(a_list(POD)).encode() + b" " * 2**19))
    reader = open_snapshot(tmp_path, Limits(total=2**20))
    for _ in range(4):
        assert names(pods(reader)) == {"llm-0"}


def not_archives() -> Iterator[bytes]:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w:gz") as archive:
        info = member("x.json")
        content = os.urandom(50_000)
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    yield whole.getvalue()[:20_000]
    yield whole.getvalue()[:-3]
    yield bytes(whole.getvalue()[:-8]) + b"12345678"
    yield b""
    yield b"PK\x03\x04"
    yield gzip.compress(b"not a tar")
    yield gzip.compress(b"")


@pytest.mark.parametrize("content", tuple(not_archives()), ids=range(7))
def test_what_is_no_whole_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(BadSnapshot, match=r"x\.tgz"):
        open_snapshot(write(tmp_path, "x.tgz", content))


def test_links_that_stay_inside_are_followed(tmp_path: Path) -> None:
    write(tmp_path, "store/one.json", a_list(OTHER_POD))
    write(tmp_path, "folders/deep/two.json", an_object(Pod.of, "job-2", "batch"))
    a_snapshot(tmp_path, POD, complete=["*"])
    (tmp_path / "resources/one.json").symlink_to("../store/one.json")
    (tmp_path / "resources/more").symlink_to("../folders")
    (tmp_path / "folders/circle").symlink_to("../folders")
    state = pods(open_snapshot(tmp_path))
    assert names(state) == {"llm-0", "job-1", "job-2"}
    assert not list(state.value.gaps())


def test_a_link_to_nothing_is_a_gap(tmp_path: Path) -> None:
    a_snapshot(tmp_path, POD, complete=["*"])
    (tmp_path / "resources/one.json").symlink_to("../gone.json")
    assert "one.json" in str(next(pods(open_snapshot(tmp_path)).value.gaps()))


def test_links_that_multiply_are_refused(tmp_path: Path) -> None:
    for name, to in (("a", "b"), ("b", "c"), ("c", "d")):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / to).mkdir(exist_ok=True)
        (tmp_path / name / "x").symlink_to(f"../{to}")
    with pytest.raises(BadSnapshot, match="a link led to"):
        open_snapshot(tmp_path)


def test_links_out_of_a_folder_are_refused(tmp_path: Path) -> None:
    snapshot = tmp_path / "snap"
    write(snapshot, "a/x.json", POD)
    (snapshot / "again").symlink_to("a")
    assert names(pods(open_snapshot(snapshot))) == {"llm-0"}
    (snapshot / "out.json").symlink_to("/etc/passwd")
    with pytest.raises(BadSnapshot, match="leads out of the snapshot"):
        open_snapshot(snapshot)


def test_a_pipe_in_a_folder_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.json")
    with pytest.raises(BadSnapshot, match="not a regular file"):
        open_snapshot(tmp_path)


# Dry runs


def an_attempt(namespace: str = "a") -> Attempt:
    return Attempt(Queue.of, namespace, {})


def sent(at: str, status: int, namespace: str = "a") -> dict[str, Any]:
    return {"at": at, "seconds": 0.1, "status": status, "namespace": namespace, "sent": {}, "body": {}}


def test_the_last_answer_counts(tmp_path: Path) -> None:
    attempts = [
        sent("2026-11-30T09:02:00Z", 201),
        sent("2026-11-30T09:01:00Z", 500),
        sent("2026-11-30T09:03:00Z", 500, "b"),
    ]
    write(tmp_path, f"dry-run/localqueues.{GROUP}.yaml", yaml.safe_dump({"attempts": attempts}))
    found = a_snapshot(tmp_path).dry_run([an_attempt(), an_attempt("b"), an_attempt("c")]).value
    assert found[an_attempt()].status == 201
    assert found[an_attempt("b")].status == 500
    assert reason(found.entries[an_attempt("c")]) is Reason.NOT_ASKED


def test_without_the_folder_no_dry_run_was_asked_for(tmp_path: Path) -> None:
    found = a_snapshot(tmp_path).dry_run([an_attempt()]).value
    assert reason(found.entries[an_attempt()]) is Reason.NOT_ASKED


def test_a_broken_dry_run_is_malformed(tmp_path: Path) -> None:
    write(tmp_path, f"dry-run/localqueues.{GROUP}.yaml", "attempts: [{at: x}]")
    assert (
        reason(a_snapshot(tmp_path).dry_run([an_attempt()]).value.entries[an_attempt()]) is Reason.MALFORMED
    )


# Speed


def test_two_thousand_nodes_are_read_quickly(tmp_path: Path) -> None:
    padding = {"annotations": {"x": "y" * 12_000}}
    nodes = [an_object(Node.of, f"gpu-{number}", metadata=padding) for number in range(2000)]
    write(tmp_path, "x.json", a_list(*nodes))
    start = time.process_time()
    reader = open_snapshot(tmp_path)
    assert len(names(reader.objects(Node.of, "", [Node])[0])) == 2000
    assert time.process_time() - start < 5


# A tenant's namespace


def test_within_a_namespace_a_snapshot_of_the_whole_answers_as_the_cluster_would(tmp_path: Path) -> None:
    a_snapshot(tmp_path, POD, OTHER_POD, NODE, complete=["*"])
    tenant = open_snapshot(tmp_path, namespace="serving")
    outside = Inapplicable("outside of the namespace serving")

    assert names(pods(tenant)) == {"llm-0"}
    assert tenant.objects(Node.of, "", [Node, Node]) == [outside, outside]
    assert names(tenant.within(Pod, ["serving"])) == {"llm-0"}
    assert tenant.within(Pod, ["batch"]) == outside
    both = tenant.within(Pod, ["serving", "batch"])
    assert names(both) == {"llm-0"}
    assert [(gap.reason, gap.what) for gap in both.value.gaps()] == [
        (Reason.NOT_ASKED, "pods in namespace batch")
    ]
    here, there = Ref(Pod.of, "llm-0", "serving"), Ref(Pod.of, "job-1", "batch")
    assert tenant.named(Pod, [here, there]).value.entries[there] == outside
    assert names(tenant.named(Pod, [here])) == {"llm-0"}
    assert tenant.named(Node, [Ref(Node.of, "gpu-1")]) == outside


def test_a_snapshot_that_was_taken_within_a_namespace_knows_no_other(tmp_path: Path) -> None:
    complete = [{"resource": "pods", "namespace": "serving"}]
    reader = a_snapshot(tmp_path, POD, complete=complete, namespace="serving")
    assert names(pods(reader)) == {"llm-0"}
    assert reader.objects(Node.of, "", [Node]) == [Inapplicable("outside of the namespace serving")]
    assert open_snapshot(tmp_path, namespace="serving").namespace == "serving"
    with pytest.raises(BadSnapshot, match="within the namespace serving; it holds nothing of batch"):
        open_snapshot(tmp_path, namespace="batch")


def test_what_was_forbidden_in_the_namespace_is_unknown_and_not_outside(tmp_path: Path) -> None:
    missing = [{"resource": "pods", "namespace": "serving", "reason": "forbidden"}]
    reader = a_snapshot(tmp_path, namespace="serving", missing=missing)
    assert reason(pods(reader)) is Reason.FORBIDDEN
