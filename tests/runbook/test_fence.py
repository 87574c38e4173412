"""Before each write it is looked whether the run still holds its lock."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpuctl.facts.kinds import Ref
from gpuctl.facts.state import Inapplicable, NotKnown
from gpuctl.nvidia.objects import GpuPod, NodeView
from gpuctl.runbook.fence import fenced
from gpuctl.runbook.lock import Locks
from gpuctl.runbook.writer import Fenced, Put, WriteFailed, Writer
from tests.runbook.little import Hands, World
from tests.runbook.test_lock import locks

NODE, POD = Ref(NodeView.of, "gpu-1"), Ref(GpuPod.of, "gpu-1-train-0", "team-a")
WRITES: dict[str, Callable[[Writer], object]] = {
    "patch": lambda writer: writer.patch(NODE, "uid-of-gpu-1", (Put("/metadata/labels", {"a": "b"}),)),
    "create": lambda writer: writer.create(Ref(NodeView.of, "gpu-9"), {}),
    "delete": lambda writer: writer.delete(POD, "uid-of-gpu-1-train-0"),
    "evict": lambda writer: writer.evict(POD, "uid-of-gpu-1-train-0"),
}


@pytest.fixture(autouse=True)
def no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Locks, "_keep_alive", lambda _: None)


def with_the_lock(world: World) -> Writer:
    held = locks(world)
    held.take()
    return fenced(Hands(world), held)


@pytest.mark.parametrize("verb", WRITES)
def test_with_the_lock_every_write_is_made(verb: str) -> None:
    world = World()
    writer = with_the_lock(world)
    WRITES[verb](writer)
    assert world.writer.calls[-1].verb == verb


@pytest.mark.parametrize("verb", WRITES)
def test_without_it_none_is(verb: str) -> None:
    world = World()
    writer = with_the_lock(world)
    locks(world, session="s2").take_over(lambda _: True, lambda _: None)
    before = len(world.writer.calls)
    with pytest.raises(Fenced):
        WRITES[verb](writer)
    assert len(world.writer.calls) == before


@pytest.mark.parametrize("verb", WRITES)
def test_where_that_cant_be_told_none_is_and_it_may_be_tried_again(verb: str) -> None:
    world = World()
    writer = with_the_lock(world)
    world.blind = lambda _: True
    before = len(world.writer.calls)
    with pytest.raises(WriteFailed) as failed:
        WRITES[verb](writer)
    assert not failed.value.hopeless
    assert len(world.writer.calls) == before
    world.blind = lambda _: False
    WRITES[verb](writer)


def test_an_answer_about_the_lock_that_comes_too_late_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    writer = with_the_lock(world)
    ticks = iter([0.0, 16.0, 20.0, 21.0])  # of 30 s that the lock is good for
    monkeypatch.setattr("gpuctl.runbook.fence.time.monotonic", lambda: next(ticks))
    with pytest.raises(WriteFailed, match="so late"):
        WRITES["patch"](writer)
    WRITES["patch"](writer)


def test_what_is_not_served_is_not_known_either(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    writer = with_the_lock(world)

    def not_served(_: Locks) -> None:
        raise NotKnown(Inapplicable("leases are not served"))

    monkeypatch.setattr(Locks, "confirm", not_served)
    with pytest.raises(WriteFailed, match="leases are not served"):
        WRITES["patch"](writer)
