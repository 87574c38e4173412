"""A bed leaves nothing on the machine, and the bed beside it alone."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .bed import Bed, claim, network
from .bed.machine import Machine
from .bed.wait import wait

MAKER = """
import sys, time
from pathlib import Path
from tests.cluster.bed import lifecycle
with lifecycle.temporary(logs=Path(sys.argv[1])) as bed:
    print(bed.folder, flush=True)
    time.sleep(1000)
"""
START = 19  # of the fields behind the command's name, when the process began
NOT_TO_BE_TOUCHED = ("/run/netns", "/run/containerd", "/var/lib/cni", "/var/lib/kubelet", "/var/log/pods")


@pytest.fixture
def maker(bed: Bed, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A program with a bed of its own, beside that of the test run."""
    command = (sys.executable, "-c", MAKER, str(tmp_path / "logs"))
    with subprocess.Popen(command, cwd=claim.CHECKOUT, stdout=subprocess.PIPE, text=True) as maker:
        yield maker
        maker.kill()


def machine_of(maker: subprocess.Popen[str]) -> Machine:
    assert maker.stdout
    folder = maker.stdout.readline().strip()
    assert folder, "the maker has ended; it says above why"
    return Machine(Path(folder))


@pytest.mark.slow
def test_an_interrupted_run_leaves_nothing_but_logs(
    bed: Bed, maker: subprocess.Popen[str], tmp_path: Path
) -> None:
    surroundings = untouched()
    machine = machine_of(maker)
    inhabitants = processes_of(machine)
    assert len(inhabitants) > 10
    assert traces(machine.folder)

    maker.send_signal(signal.SIGINT)
    maker.wait()

    wait(lambda: not processes_left(inhabitants), 60, "the end of all its processes")
    assert traces(machine.folder) == []
    assert untouched() == surroundings
    assert (tmp_path / "logs" / "kube-apiserver.log").stat().st_size > 0
    assert [*(tmp_path / "logs" / "pods").rglob("*.log")]
    bed.wait(bed.healthy, 60, "a healthy bed beside it")


@pytest.mark.slow
def test_the_next_claim_clears_away_what_a_killed_run_left(bed: Bed, maker: subprocess.Popen[str]) -> None:
    surroundings = untouched()
    machine = machine_of(maker)
    inhabitants = processes_of(machine)

    maker.kill()
    maker.wait()
    claim.claim().remove()

    wait(lambda: not processes_left(inhabitants), 60, "the end of all its processes")
    assert traces(machine.folder) == []
    assert untouched() == surroundings
    bed.wait(bed.healthy, 60, "a healthy bed beside it")


def processes_of(machine: Machine) -> dict[str, str]:
    """The processes in the machine's cgroups and namespace: pid and start time of each."""
    name, namespace = network.Link(int(machine.folder.name)).name, os.readlink(f"/proc/{machine.init}/ns/net")
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            in_cgroup = f"/{name}/" in (process / "cgroup").read_text()
            if in_cgroup or os.readlink(process / "ns/net") == namespace:
                found[process.name] = _stat(process)[START]
        except OSError:  # gone meanwhile, or not ours to look at
            continue
    return found


def processes_left(known: dict[str, str]) -> list[str]:
    left = []
    for pid, started in known.items():
        try:
            state = _stat(Path("/proc", pid))
            if state[START] == started and state[0] != "Z":  # not a dead one that nobody has collected yet
                left.append(pid)
        except OSError:  # gone meanwhile, or not ours to look at
            continue
    return left


def _stat(process: Path) -> list[str]:
    return (process / "stat").read_text().rpartition(")")[2].split()


def traces(folder: Path) -> list[str]:
    """What the machine shows of this bed, apart from processes."""
    link = network.Link(int(folder.name))
    places = [folder, Path("/sys/class/net", link.name), *Path("/sys/fs/cgroup").rglob(link.name)]
    mounts = [line for line in Path("/proc/mounts").read_text().splitlines() if f"{folder}/" in line]
    return [*mounts, *(str(place) for place in places if place.exists())]


def untouched() -> dict[str, list[str]]:
    """What belongs to the machine's own container runtime, if it has one."""
    seen = {place: sorted(os.listdir(place)) for place in NOT_TO_BE_TOUCHED if Path(place).exists()}
    return {**seen, "mounts": sorted(Path("/proc/mounts").read_text().splitlines())}
