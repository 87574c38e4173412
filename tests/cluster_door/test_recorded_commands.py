"""What nodes told, as a record keeps it and gives it back."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpuctl.cluster.archive import files
from gpuctl.cluster.recorded_commands import KUBELET, Probed, RecordedNodes, of, write
from gpuctl.facts.nodes import Output, Target
from gpuctl.facts.state import Known, Reason, State, Unknown

AT = datetime(2026, 11, 30, 10, 0, tzinfo=UTC)


def read(folder: Path, command: str, node: str = "n", why_not: str = "") -> State[Output]:
    nodes: RecordedNodes = of(files(folder))
    (state,) = nodes.commands([(command, lambda output: output)], [Target(node, why_not=why_not)])
    if isinstance(state, Known):
        return state.value.entries[node]
    assert isinstance(state, Unknown)
    return state


@pytest.mark.parametrize(
    "output",
    [
        Output("GPU 0: x\n"),
        Output("", "oops\n", 9),
        Output("text\n", "", 6),
        Output("text\n", "a warning\n", 0),
    ],
)
def test_outputs_come_back_as_they_were(tmp_path: Path, output: Output) -> None:
    write(tmp_path, Probed("n", AT, 1.5, "driver pod a/b", {"nvidia-smi-L": output}))
    assert read(tmp_path, "nvidia-smi-L") == Known(output)


def test_a_second_look_replaces_the_first(tmp_path: Path) -> None:
    write(tmp_path, Probed("n", AT, 1, outputs={"pci": Output("", "oops", 1)}))
    write(tmp_path, Probed("n", AT, 1, outputs={"pci": Output("fine\n")}))
    assert read(tmp_path, "pci") == Known(Output("fine\n"))


def test_reasons_come_back(tmp_path: Path) -> None:
    write(tmp_path, Probed("n", AT, 0, failed=Unknown(Reason.FORBIDDEN, "may not exec", "n")))
    state = read(tmp_path, "nvidia-smi-L")
    assert isinstance(state, Unknown)
    assert (state.reason, state.message) == (Reason.FORBIDDEN, "may not exec")


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("nvidia-smi-L.err", "no-pod\n", Reason.NO_POD),
        ("nvidia-smi-L.err", "forbidden: user may not\n", Reason.FORBIDDEN),
        ("nvidia-smi-L.err", "something a person wrote\n", Reason.SERVER_ERROR),
        ("probe.yaml", "failed: timeout\n", Reason.TIMEOUT),
        ("probe.yaml", "failed: [", Reason.MALFORMED),
        ("other.txt", "x", Reason.NOT_ASKED),
    ],
)
def test_what_people_write_is_understood(tmp_path: Path, name: str, content: str, reason: Reason) -> None:
    (tmp_path / "nodes" / "n").mkdir(parents=True)
    (tmp_path / "nodes" / "n" / name).write_text(content)
    state = read(tmp_path, "nvidia-smi-L")
    assert isinstance(state, Unknown)
    assert state.reason is reason


def test_the_text_decides_beside_an_exit_code(tmp_path: Path) -> None:
    (tmp_path / "nodes" / "n").mkdir(parents=True)
    (tmp_path / "nodes" / "n" / "nvidia-smi-mig-lgi.txt").write_text("No MIG-enabled devices found.\n")
    (tmp_path / "nodes" / "n" / "nvidia-smi-mig-lgi.err").write_text("exit 6\n")
    assert read(tmp_path, "nvidia-smi-mig-lgi") == Known(Output("No MIG-enabled devices found.\n", "", 6))


def test_a_node_without_a_folder_was_not_probed(tmp_path: Path) -> None:
    write(tmp_path, Probed("other", AT, 1, outputs={"pci": Output("x")}))
    state = read(tmp_path, "pci", why_not="not tried: not Ready")
    assert isinstance(state, Unknown)
    assert (state.reason, state.message) == (Reason.NOT_ASKED, "not tried: not Ready")


def test_what_plugins_answered_is_not_kept(tmp_path: Path) -> None:
    told = '{"Data":{"PodDeviceEntries":[{"PodUID":"u","AllocResp":"c2VjcmV0"}]}}'
    write(tmp_path, Probed("n", AT, 1, outputs={KUBELET: Output(told)}))
    assert "c2VjcmV0" not in (tmp_path / "nodes" / "n" / "kubelet-devices.json").read_text()


def test_secrets_in_what_nodes_tell_are_masked(tmp_path: Path) -> None:
    told = "GPU-1, 4711, python3 --key hf_abcdefghijklmnopqrstuvwxyz, 10\n"
    write(tmp_path, Probed("n", AT, 1, outputs={"nvidia-smi-compute-apps": Output(told)}))
    assert "hf_abc" not in (tmp_path / "nodes" / "n" / "nvidia-smi-compute-apps.txt").read_text()
