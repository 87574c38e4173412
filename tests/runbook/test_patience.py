"""Retry-After is heeded for evictions, pod by pod."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from gpuctl.facts.kinds import Ref
from gpuctl.runbook.drain.pods import DrainPod
from gpuctl.runbook.patience import LONGEST, PatientWriter
from gpuctl.runbook.writer import Blocked, Writer

POD = Ref(DrainPod.of, "web-1", "team-a")


@dataclass
class Server:
    """Answers evictions from a list, and notes which were asked for."""

    answers: list[Blocked | None]
    asked: list[str] = field(default_factory=list)

    def evict(self, pod: Ref, uid: str, grace: int | None = None) -> Blocked | None:
        self.asked.append(uid)
        return self.answers.pop(0)


def patient(server: Any, clock: list[float]) -> PatientWriter:
    writer: Writer = server
    return PatientWriter(writer, clock=lambda: clock[0])


def test_a_pod_is_not_asked_for_before_its_time() -> None:
    server, clock = Server([Blocked("a budget", 10.0), None]), [100.0]
    writer = patient(server, clock)
    assert writer.evict(POD, "a") == Blocked("a budget", 10.0)
    clock[0] = 109.9
    assert writer.evict(POD, "a") == Blocked("a budget", 10.0)
    assert server.asked == ["a"]
    clock[0] = 110.0
    assert writer.evict(POD, "a") is None
    assert server.asked == ["a", "a"]


def test_another_pod_is_asked_for_meanwhile() -> None:
    server = Server([Blocked("a budget", 10.0), None])
    writer = patient(server, [0.0])
    writer.evict(POD, "a")
    assert writer.evict(POD, "b") is None


@pytest.mark.parametrize("after", [None, 0.0])
def test_without_a_time_it_is_asked_for_again_at_once(after: float | None) -> None:
    server = Server([Blocked("a budget", after), None])
    writer = patient(server, [0.0])
    writer.evict(POD, "a")
    assert writer.evict(POD, "a") is None


def test_an_absurd_time_is_shortened() -> None:
    server, clock = Server([Blocked("a budget", 1e9), None]), [0.0]
    writer = patient(server, clock)
    writer.evict(POD, "a")
    clock[0] = LONGEST
    assert writer.evict(POD, "a") is None
