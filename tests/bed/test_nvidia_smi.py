"""The stand-ins for nvidia-smi and lspci, against answers in the layout of the real programs."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests.cluster.standins import faults, nvidia_smi
from tests.cluster.standins.state import (
    LSPCI,
    NVIDIA_SMI,
    Fault,
    Gpu,
    NodeState,
    Process,
    a30,
    a100,
    h100,
    h200,
    identifier,
    v100,
)

GOLDEN = Path(nvidia_smi.__file__).with_name("golden")
WHEN = "Mon Mar  2 09:05:07 2026"
COMMANDS = {
    "table": [],
    "L": ["-L"],
    "lgi": ["mig", "-lgi"],
    "lci": ["mig", "-lci"],
    "lgip": ["mig", "-lgip"],
    "lgipp": ["mig", "-lgipp"],
    "q-x": ["-q", "-x"],
    "query-gpu": [
        "--query-gpu=index,uuid,name,mig.mode.current,mig.mode.pending,memory.used,memory.total,pci.bus_id,power.draw",
        "--format=csv",
    ],
    "query-gpu-bare": ["--query-gpu=index,utilization.gpu,memory.free", "--format=csv,noheader,nounits"],
    "compute-apps": ["--query-compute-apps=gpu_uuid,pid,process_name,used_memory", "--format=csv"],
}


def few_clocks(gpu: Gpu) -> Gpu:
    """The list of clocks makes the XML long and proves nothing more."""
    return replace(gpu, clocks={"2619": (1980, 1950, 15), "1593": (1980, 1950, 15)})


def mixed() -> NodeState:
    """One GPU of uneven slices, one of them with media engines, beside a whole GPU at work."""
    sliced = h100(0, ["1g.10gb@6", "1c.3g.40gb@0", "1g.10gb+me@4"], node="mixed", used={"1": 12627})
    whole = replace(h100(1, node="mixed"), memory_used=4627, utilization=100, temperature=66, power=355.57)
    processes = (
        Process(gpu=0, pid=23808, name="/opt/ghost", memory=4188, gi=1, ci=0),
        Process(gpu=0, pid=23804, name="/usr/bin/python3", memory=8376, gi=1, ci=0),
        Process(gpu=1, pid=559, name="/srv/environments/serving/lib/bin/python3.12", memory=4618),
    )
    return NodeState(timestamp=WHEN, gpus=(few_clocks(sliced), few_clocks(whole)), processes=processes)


def shared() -> NodeState:
    """Two compute instances that share a GPU instance."""
    gpu = h200(0, ["1c.2g.35gb@2"], node="shared")
    instance = gpu.instances[0]
    first = instance.compute_instances[0]
    second = replace(first, id=1, start=1, uuid=f"MIG-{identifier('shared', 'second')}")
    gpu = replace(gpu, instances=(replace(instance, compute_instances=(first, second)),))
    return NodeState(
        driver="610.43.02", cuda="13.3", timestamp=WHEN, gpus=(few_clocks(replace(gpu, memory_used=None)),)
    )


def pending() -> NodeState:
    """A change of mode that waits for a reset, persistence off, an older driver."""
    first = replace(a30(0, ["1g.6gb@0", "1g.6gb@1", "2g.12gb@2"], node="pending"), mig_pending="Disabled")
    second = replace(a30(1, node="pending"), mig_pending="Enabled", persistence=False)
    return NodeState(
        driver="535.183.01", cuda="12.2", timestamp=WHEN, gpus=(few_clocks(first), few_clocks(second))
    )


def old() -> NodeState:
    """The first driver with MIG: other names, other widths."""
    gpu = replace(a100(0, ["3g.20gb", "2g.10gb", "1g.5gb"], node="old"), name="A100-SXM4-40GB")
    gpu = replace(
        gpu, profiles=tuple(each for each in gpu.profiles if each.name not in ("1g.5gb+me", "1g.10gb"))
    )
    return NodeState(driver="450.80.02", cuda="11.0", timestamp=WHEN, gpus=(few_clocks(gpu),))


STATES: dict[str, Callable[[], NodeState]] = {
    "mixed": mixed,
    "shared": shared,
    "pending": pending,
    "old": old,
}


def ask(node: NodeState, *arguments: str) -> tuple[str, str, int]:
    """What the stand-in says, without starting it."""
    return nvidia_smi.run(json.loads(json.dumps(asdict(node))), list(arguments))


def say(node: NodeState, *arguments: str) -> str:
    """The answer of a run that must succeed."""
    out, err, code = ask(node, *arguments)
    assert (err, code) == ("", 0)
    return out


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", STATES)
def test_layout(name: str, command: str) -> None:
    golden = GOLDEN / f"{name}-{command}.txt"
    assert say(STATES[name](), *COMMANDS[command]) == golden.read_text(encoding="utf-8")


def test_no_golden_is_forgotten() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == {
        f"{name}-{each}" for name in STATES for each in COMMANDS
    }


@pytest.mark.parametrize(
    ("gpu", "free"),
    [
        (h100(0, []), "7 1 4 3 2 1 1"),
        (h100(0, ["1g.10gb@4", "1g.10gb@6"]), "5 1 2 2 1 1 0"),
        (h100(0, ["3g.40gb@0", "1g.10gb+me@4", "1g.10gb@6"]), "1 0 0 0 0 0 0"),
        (h100(0, ["1g.10gb"] * 7), "0 0 0 0 0 0 0"),
        (h100(0, ["4g.40gb", "3g.40gb"]), "0 0 0 0 0 0 0"),
        (a30(0, ["2g.12gb+me@0"]), "2 0 1 0 0"),
    ],
)
def test_what_still_fits(gpu: Gpu, free: str) -> None:
    rows = say(NodeState(gpus=(gpu,)), "mig", "-lgip").splitlines()
    assert [row.split("/")[0].split()[-1] for row in rows if "MIG " in row] == free.split()


@pytest.mark.parametrize(
    ("node", "arguments", "text", "code"),
    [
        (NodeState(gpus=(h100(0),)), ["mig", "-lgi"], "No MIG-enabled devices found.\n", 6),
        (NodeState(gpus=(h100(0),)), ["mig", "-lci"], "No MIG-enabled devices found.\n", 6),
        (NodeState(gpus=(v100(0),)), ["mig", "-lgip"], "No MIG-supported devices found.\n", 6),
        (NodeState(gpus=(h100(0, []),)), ["mig", "-lgi"], "No GPU instances found.\n", 6),
        (
            NodeState(driver="535.183.01", gpus=(a30(0, []),)),
            ["mig", "-lgi"],
            "No GPU instances found: Not Found\n",
            6,
        ),
        (
            NodeState(driver="535.183.01", gpus=(a30(0),)),
            ["mig", "-lgip"],
            "No MIG-enabled devices found.\n",
            6,
        ),
        (NodeState(gpus=(h100(0, ["0c.1g.10gb"]),)), ["mig", "-lci"], "No compute instances found.\n", 6),
        (NodeState(), ["-L"], "No devices were found\n", 6),
        (NodeState(gpus=(h100(0),)), ["-L", "-i", "3"], "No devices were found\n", 6),
        (
            NodeState(gpus=(h100(0),)),
            ["--query-gpu=nonsense", "--format=csv"],
            'Field "nonsense" is not a valid field to query.\n\n',
            2,
        ),
        (
            NodeState(gpus=(h100(0),)),
            ["--fans"],
            "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n\n",
            1,
        ),
    ],
)
def test_nothing_to_tell(node: NodeState, arguments: list[str], text: str, code: int) -> None:
    assert ask(node, *arguments) == (text, "", code)


def test_an_instance_without_compute_is_not_listed() -> None:
    node = NodeState(gpus=(h100(0, ["0c.1g.10gb", "1g.10gb"]),))
    assert say(node, "-L").count("MIG 1g.10gb") == 1
    assert say(node, "mig", "-lgi").count("MIG 1g.10gb") == 2


@pytest.mark.parametrize("by", ["1", "GPU-9", "00000000:2D:00.0", "0000:2D:00.0"])
def test_one_gpu_by_any_name(by: str) -> None:
    node = NodeState(gpus=(h100(0), replace(h100(1), uuid="GPU-9")))
    assert say(node, "-L", "-i", by) == "GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-9)\n"
    assert say(node, "mig", "-lgipp", "-i", by).startswith(
        "GPU  1 Profile ID 19 Placements: {0,1,2,3,4,5,6}:1\n"
    )


def test_no_processes() -> None:
    node = NodeState(gpus=(h100(0),))
    assert "|  No running processes found   " in say(node)
    assert say(node, "--query-compute-apps=pid", "--format=csv,noheader") == ""


@pytest.mark.parametrize(
    ("fault", "arguments", "code", "begins"),
    [
        (
            faults.DRIVER_DOWN,
            ["-L"],
            9,
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
        ),
        (faults.NO_DEVICES, ["mig", "-lgi"], 6, "No devices were found\n"),
        (faults.NO_DEVICES_L.only("^-L"), ["-L"], 6, "No devices found.\n"),
        (
            faults.VERSION_MISMATCH,
            ["-q", "-x"],
            18,
            "Failed to initialize NVML: Driver/library version mismatch\n",
        ),
        (faults.NVML_UNKNOWN, [], 255, "Failed to initialize NVML: Unknown Error\n"),
        (
            faults.GPU_ERROR,
            ["-L"],
            255,
            "Unable to determine the device handle for GPU0000:A1:00.0: Unknown Error\n",
        ),
        (
            faults.GPU_ERROR_R610,
            ["-L"],
            255,
            "Unable to determine the device handle for GPU1: 0000:34:00.0: Unknown",
        ),
        (
            faults.GPU_LOST,
            ["-L"],
            15,
            "Unable to determine the device handle for GPU 0000:A1:00.0: GPU is lost.",
        ),
        (
            faults.LGI_PERMISSIONS,
            ["mig", "-lgi"],
            4,
            "Failed to display GPU instances: Insufficient Permissions\n",
        ),
        (
            faults.LCI_PERMISSIONS,
            ["mig", "-lci"],
            4,
            "Failed to display compute instances: Insufficient Permissions\n",
        ),
        (
            faults.LGIP_UNKNOWN,
            ["mig", "-lgip"],
            255,
            "Failed to display GPU instance profiles: Unknown Error\n",
        ),
        (faults.MODE_PENDING, ["-mig", "0"], 0, "Warning: MIG mode is in pending disable state for GPU"),
        (
            faults.DESTROY_IN_USE,
            ["mig", "-dgi"],
            19,
            "Unable to destroy GPU instance ID  3 from GPU  0: In use by",
        ),
        (faults.RESET_IN_USE, ["-r"], 1, "GPU 00000000:C1:00.0 is currently in use by another process.\n"),
        (faults.EXIT_6, ["-L"], 6, "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-"),
        (faults.GARBAGE, ["-L"], 0, "\x1b[2J\x00"),
        (faults.truncated("GPU 0: NVIDIA H100", 8), ["-L"], 0, "GPU 0: N"),
    ],
)
def test_faults(fault: Fault, arguments: list[str], code: int, begins: str) -> None:
    out, err, exit_code = ask(mixed().failing(fault), *arguments)
    assert out.startswith(begins)
    assert (err, exit_code) == ("", code)


def test_a_fault_spares_other_commands() -> None:
    node = mixed().failing(faults.LCI_PERMISSIONS)
    assert say(node, "mig", "-lgi") == say(mixed(), "mig", "-lgi")


def test_slices_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="do not fit together"):
        h100(0, ["4g.40gb", "3g.40gb", "1g.10gb"])


def test_balanced_slices_find_their_places() -> None:
    gpu = h100(0, ["3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"])
    assert [(each.id, each.start) for each in gpu.instances] == [(2, 4), (3, 0), (9, 2), (10, 3)]


def start(script: Path, path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a stand-in as a node would."""
    environment = {"PATH": os.environ["PATH"], "NVIDIA_SMI_STATE": str(path)}
    return subprocess.run([script, *arguments], env=environment, capture_output=True, text=True, check=False)


def test_as_a_program(tmp_path: Path) -> None:
    path = mixed().write(tmp_path / "deep" / "state.json")
    done = start(NVIDIA_SMI, path, "-L")
    assert (done.stdout, done.stderr, done.returncode) == (say(mixed(), "-L"), "", 0)


def test_without_a_state_there_is_no_driver(tmp_path: Path) -> None:
    done = start(NVIDIA_SMI, tmp_path / "absent.json", "-L")
    assert done.stdout == faults.DRIVER_DOWN.stdout
    assert done.returncode == 9


def test_a_shell_that_does_not_find_it(tmp_path: Path) -> None:
    done = start(NVIDIA_SMI, mixed().failing(faults.SHELL_NOT_FOUND).write(tmp_path / "state.json"))
    assert (done.stdout, done.stderr, done.returncode) == ("", "bash: nvidia-smi: command not found\n", 127)


def test_a_hung_gpu(tmp_path: Path) -> None:
    path = mixed().failing(faults.hang(0.5)).write(tmp_path / "state.json")
    began = time.monotonic()
    assert start(NVIDIA_SMI, path, "-L").returncode == 0
    assert time.monotonic() - began > 0.5


def test_the_pci_bus_tells_of_lost_gpus(tmp_path: Path) -> None:
    node = NodeState(gpus=(h100(0), replace(h100(1), lost=True)))
    done = start(LSPCI, node.write(tmp_path / "state.json"), "-Dn", "-d", "10de:")
    assert done.stdout == "0000:1b:00.0 0302: 10de:2330 (rev a1)\n0000:2d:00.0 0302: 10de:2330 (rev a1)\n"
    assert say(node, "-L").count("GPU ") == 1


def test_other_questions_to_the_pci_bus(tmp_path: Path) -> None:
    assert start(LSPCI, tmp_path / "absent.json", "-v").returncode == 1
