"""What a record holds of dry runs and handshakes gives the same answers again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from gpuctl.audit.report import Source
from gpuctl.cluster.record import Recorder
from gpuctl.cluster.snapshot import SnapshotReader, open_snapshot
from gpuctl.facts.kinds import Answer, Attempt, Kind, Ref
from gpuctl.facts.objects import Pod, Service
from gpuctl.facts.state import Known, Reason, State, Unknown
from gpuctl.facts.tls import Handshake, ServedPort

JOB = Kind("batch", ("v1",), "Job", "jobs", namespaced=True)
TRIED = Attempt(JOB, "lab", {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"generateName": "x-"}})
PORT = ServedPort(
    Ref(Service.of, "hooks", "lab"), 443, "hooks.lab.svc", Ref(Pod.of, "manager-0", "lab"), 9443
)
AT = datetime(2026, 11, 30, 10, 0, tzinfo=UTC)
SHOWN = Handshake(AT, "hooks.lab.svc", ("-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n",))


def recorded(path: Path, tell: Callable[[Recorder], None]) -> SnapshotReader:
    recorder = Recorder(path / "s")
    tell(recorder)
    recorder.close(Source(kind="live", name="lab"), AT)
    return open_snapshot(path / "s")


def answer(seconds: int, status: int, message: str = "") -> Answer:
    return Answer(AT + timedelta(seconds=seconds), 0.5, status, {"kind": "Status", "message": message})


def replayed(reader: SnapshotReader) -> State[Answer]:
    found = reader.dry_run([TRIED])
    assert isinstance(found, Known)
    return found.value.entries[TRIED]


def test_the_last_success_heals(tmp_path: Path) -> None:
    def tell(recorder: Recorder) -> None:
        for each in (answer(0, 500, "EOF"), answer(2, 500, "EOF"), answer(4, 201)):
            recorder.dry_run(TRIED, "jane", each)

    state = replayed(recorded(tmp_path, tell))
    assert isinstance(state, Known)
    assert (state.value.status, state.value.lasted) == (201, 0.5)
    (entry, *_) = yaml.safe_load((tmp_path / "s/dry-run/jobs.batch.yaml").read_text())["attempts"]
    assert {"at", "seconds", "as", "namespace", "sent", "status", "body"} == set(entry)
    assert (entry["as"], entry["namespace"], entry["sent"]["kind"]) == ("jane", "lab", "Job")


def test_for_how_long_nothing_better_was_said(tmp_path: Path) -> None:
    def tell(recorder: Recorder) -> None:
        for each in (answer(0, 201), answer(10, 500, "EOF"), answer(40, 500, "EOF")):
            recorder.dry_run(TRIED, "", each)

    state = replayed(recorded(tmp_path, tell))
    assert isinstance(state, Known)
    assert (state.value.status, state.value.lasted) == (500, 30.5)


def test_secrets_in_messages_are_masked(tmp_path: Path) -> None:
    said = "denied: token hf_abcdefghijklmnopqrstuvwx at https://me:pw@host"
    recorded(tmp_path, lambda recorder: recorder.dry_run(TRIED, "", answer(0, 403, said)))
    text = (tmp_path / "s/dry-run/jobs.batch.yaml").read_text()
    assert "hf_abc" not in text
    assert "me:pw" not in text


def test_why_there_is_none(tmp_path: Path) -> None:
    def tell(recorder: Recorder) -> None:
        recorder.missing_dry_run(TRIED, Unknown(Reason.FORBIDDEN, "the permission is missing"))
        recorder.missing_handshake(PORT, Unknown(Reason.FORBIDDEN, "this one too"))

    reader = recorded(tmp_path, tell)
    assert replayed(reader) == Unknown(
        Reason.FORBIDDEN, "the permission is missing", "dry run of a Job in namespace lab"
    )
    assert shown(reader) == Unknown(Reason.FORBIDDEN, "this one too", str(PORT))


def shown(reader: SnapshotReader) -> Any:
    found = reader.handshakes([PORT])
    assert isinstance(found, Known)
    return found.value.entries[PORT]


def test_a_handshake(tmp_path: Path) -> None:
    assert shown(recorded(tmp_path, lambda recorder: recorder.handshake(PORT, SHOWN))) == Known(SHOWN)
    tree = yaml.safe_load((tmp_path / "s/tls/lab.hooks.443.yaml").read_text())
    assert tree["serverName"] == "hooks.lab.svc"


def test_a_broken_file_is_malformed(tmp_path: Path) -> None:
    reader = recorded(tmp_path, lambda recorder: recorder.handshake(PORT, SHOWN))
    (tmp_path / "s/tls/lab.hooks.443.yaml").write_text("chain: 7")
    assert shown(reader).reason is Reason.MALFORMED
    assert replayed(reader) == Unknown(
        Reason.NOT_ASKED, "the snapshot holds no such dry run", "dry run of a Job in namespace lab"
    )
