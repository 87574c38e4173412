"""A machine goes with all that is in it, however its maker ends. These need root, but no cluster."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from .bed import claim, down, packages
from .bed.machine import Machine
from .bed.network import Link
from .bed.wait import wait
from .conftest import require_prerequisites

pytestmark = pytest.mark.cluster

MAKER = """
import time
from tests.cluster.bed import claim
from tests.cluster.bed.machine import Machine
from tests.cluster.bed.network import Link
claimed = claim.claim()
machine = Machine(claimed.folder)
machine.boot("dying", dies_with_starter=True)
Link(claimed.number).connect(machine)
machine.start("sleeper", ("sleep", "1000"))
print(claimed.folder, flush=True)
time.sleep(1000)
"""


@pytest.fixture(autouse=True)
def _prerequisites() -> None:
    require_prerequisites()
    packages.ensure()


@pytest.fixture
def maker() -> subprocess.Popen[str]:
    """A program that has made a machine, and lives for it."""
    command = (sys.executable, "-c", MAKER)
    return subprocess.Popen(command, cwd=claim.CHECKOUT, stdout=subprocess.PIPE, text=True)


def folder_of(maker: subprocess.Popen[str]) -> Path:
    assert maker.stdout
    return Path(maker.stdout.readline().strip())


def test_a_killed_maker_takes_its_machine_along(maker: subprocess.Popen[str]) -> None:
    folder = folder_of(maker)
    machine, sleeper = Machine(folder), Machine(folder).process("sleeper")
    assert machine.alive
    assert sleeper.alive

    maker.send_signal(signal.SIGKILL)
    maker.wait()

    wait(lambda: not machine.alive and not sleeper.alive, 60, "the end of the machine")
    wait(lambda: not Link(int(folder.name)).exists, 60, "the end of its link")


def test_the_next_claim_sweeps_what_a_killed_maker_left(maker: subprocess.Popen[str]) -> None:
    folder = folder_of(maker)
    maker.send_signal(signal.SIGKILL)
    maker.wait()

    claimed = claim.claim()
    try:
        assert claimed.folder == folder or not folder.exists()
        assert not (claimed.folder / "logs").exists()
    finally:
        claimed.remove()


def test_a_bed_whose_maker_lives_is_left_alone(maker: subprocess.Popen[str]) -> None:
    folder = folder_of(maker)

    claimed = claim.claim()
    claimed.remove()

    assert Machine(folder).alive
    maker.kill()
    maker.wait()
    down.remove(folder)


def test_a_half_made_bed_is_removed(tmp_path: Path) -> None:
    half_made = tmp_path / "49"
    half_made.mkdir()
    down.remove(half_made)
    assert not half_made.exists()
