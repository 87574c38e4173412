"""What was given up writes nothing any more: a read may end after the record of it was taken away."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest

from gpuctl.audit.report import Source
from gpuctl.cluster.record import CannotRecord, Recorder
from gpuctl.cluster.recorded_commands import Probed
from gpuctl.facts.kinds import Kind, Log, Ref, View
from gpuctl.facts.tls import Handshake, ServedPort
from tests.memory import A_MOMENT

SERVICE = Kind("", ("v1",), "Service", "services", namespaced=True)


class Pod(View, frozen=True):
    of: ClassVar[Kind] = Kind("", ("v1",), "Pod", "pods", namespaced=True)


POD = Ref(Pod.of, "a", "lab")
PAGE = (msgspec.Raw(b'{"metadata":{"name":"a","namespace":"lab"}}'),)
PORT = ServedPort(Ref(SERVICE, "s", "lab"), 443, "s.lab.svc", POD, 9443)

LATE: list[Callable[[Recorder], object]] = [
    lambda recorder: recorder.items(Pod.of, "v1", [Pod], PAGE),
    lambda recorder: recorder.log(Log(POD, "c"), lambda: "x", cut_at=None),
    lambda recorder: recorder.probed(Probed("gpu-1", A_MOMENT, 1.0)),
    lambda recorder: recorder.handshake(PORT, Handshake(A_MOMENT, "s.lab.svc", ("x",))),
    lambda recorder: recorder.metrics("up", "{}"),
]


@pytest.mark.parametrize("read", LATE, ids=["page", "log", "node", "handshake", "metrics"])
def test_a_late_read_leaves_nothing_behind(tmp_path: Path, read: Callable[[Recorder], object]) -> None:
    recorder = Recorder(tmp_path / "stored")
    recorder.abandon()
    read(recorder)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("read", LATE, ids=["page", "log", "node", "handshake", "metrics"])
def test_nor_beside_a_finished_record(tmp_path: Path, read: Callable[[Recorder], object]) -> None:
    recorder = Recorder(tmp_path / "stored")
    recorder.close(Source(kind="live", name="here"))
    read(recorder)
    assert [each.name for each in tmp_path.iterdir()] == ["stored"]


def test_nor_does_a_round_in_it(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "stored")

    def written_on() -> None:
        with recorder.round(1) as later:
            recorder.abandon()
            later.items(Pod.of, "v1", [Pod], PAGE)

    with pytest.raises(CannotRecord, match="abandoned"):
        written_on()
    assert list(tmp_path.iterdir()) == []
