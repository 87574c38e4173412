"""From JSON to views, one object at a time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import import_module
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuctl.cluster.decode import Collector
from gpuctl.facts.kinds import Kind, Ref, View
from gpuctl.facts.state import Each, Known, Reason, Unknown
from tests.facts.views import PODS, OtherPodView, PodView, pod


class NamedLikeThis(View, frozen=True):
    """Takes only the pods whose names begin with gpu."""

    of: ClassVar[Kind] = PODS

    @property
    def relevant(self) -> bool:
        return self.metadata.name.startswith("gpu")


def collected(*items: object, view: type[View] = PodView) -> Each[Ref, View]:
    collector = Collector(PODS, [view])
    collector.add(item if isinstance(item, bytes) else msgspec.json.encode(item) for item in items)
    (each,) = collector.result()
    return each


def test_a_malformed_object_hides_no_other() -> None:
    each = collected(pod("a"), pod("b") | {"spec": 7}, pod("c"))
    assert [ref.name for ref, _ in each.known()] == ["a", "c"]
    assert [gap.what for gap in each.gaps()] == ["Pod default/b"]


@pytest.mark.parametrize(
    "item",
    [b"{", b"[]", b"null", b"\xff", b'{"metadata": {}}', b'{"metadata": {"name": ""}}', b'{"metadata": 3}'],
)
def test_what_has_no_name_is_a_hole(item: bytes) -> None:
    each = collected(pod("a"), item)
    assert [ref.name for ref, _ in each.known()] == ["a"]
    assert [hole.reason for hole in each.holes] == [Reason.MALFORMED]


def test_null_stands_for_an_empty_list() -> None:
    each = collected(pod("a") | {"spec": None})
    assert isinstance(each.entries[Ref(PODS, "a", "default")], Known)


def test_one_page_serves_several_views() -> None:
    collector = Collector(PODS, [PodView, OtherPodView])
    collector.add([msgspec.json.encode(pod("a") | {"spec": 7})])
    ours, other = collector.result()
    assert list(ours.gaps())
    assert not list(other.gaps())


def test_what_is_not_relevant_is_dropped_but_what_is_malformed_is_not() -> None:
    each = collected(pod("gpu-1"), pod("web-1"), pod("web-2") | {"metadata": {"name": "web-2", "labels": 3}},
                     view=NamedLikeThis)  # fmt: skip
    assert [ref.name for ref, _ in each.known()] == ["gpu-1"]
    assert [ref.name for ref in each.entries if not isinstance(each.entries[ref], Known)] == ["web-2"]


@given(st.binary())
def test_no_bytes_crash_it_and_none_are_lost(item: bytes) -> None:
    each = collected(item)
    assert len(each.entries) + len(each.holes) == 1
    assert all(isinstance(state, Known | Unknown) for state in each.entries.values())


@pytest.mark.parametrize("text", ["2026-11-30T10:00:00", "2026-11-30 10:00:00", "2026-11-30T10:00:00.0"])
def test_a_time_without_a_zone_is_in_utc(text: str) -> None:
    metadata = {"name": "a", "namespace": "default", "creationTimestamp": text, "annotations": {"x": text}}
    (view,) = collected({"metadata": metadata})
    assert view.metadata.creation_timestamp == datetime(2026, 11, 30, 10, tzinfo=UTC)
    assert view.metadata.annotations == {"x": text}


def test_a_time_that_is_none_is_malformed() -> None:
    metadata = {"name": "a", "namespace": "default", "creationTimestamp": "yesterday"}
    assert [gap.reason for gap in collected({"metadata": metadata}).gaps()] == [Reason.MALFORMED]


def _zoneless(types: Any) -> Iterator[str]:
    for struct in types:
        about = msgspec.inspect.type_info(struct)
        assert isinstance(about, msgspec.inspect.StructType)
        for each in about.fields:
            parts = each.type.types if isinstance(each.type, msgspec.inspect.UnionType) else (each.type,)
            for part in parts:
                if isinstance(part, msgspec.inspect.DateTimeType) and part.tz is not True:
                    yield f"{struct.__module__}.{struct.__name__}.{each.name}"


@pytest.mark.parametrize("room", ["facts", "kueue", "nvidia", "vllm"])
def test_every_time_of_a_view_has_a_zone(room: str) -> None:
    module = import_module(f"gpuctl.{room}.objects")
    structs = [
        each for each in vars(module).values() if isinstance(each, type) and issubclass(each, msgspec.Struct)
    ]
    assert structs
    assert list(_zoneless(structs)) == []
