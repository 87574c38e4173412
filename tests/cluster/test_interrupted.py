"""Ctrl-C at any moment: exit code 130, one word, and nothing is left, here or in the cluster."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from .api_faults.scene import scene
from .bed import Bed
from .bed.faultproxy import Answer, FaultProxy, Late, Stalled
from .bed.images import BUSYBOX
from .bed.wait import wait
from .conftest import forget_runs
from .gpuctl import PROGRAM

SEED, MOMENTS, LONGEST = 4, 12, 4.0  # LONGEST: seconds until the latest of the moments
ENDS_WITHIN = 25.0  # seconds: debug pods are deleted before the end; but no late answer is waited for


@dataclass(frozen=True)
class Ended:
    """How a run that was interrupted ended."""

    code: int
    said: str


@contextmanager
def program(folder: Path, kubeconfig: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A run with a folder for all that it may write, in a process group of its own, as a shell makes it."""
    scratch, here = folder / "scratch", folder / "here"
    for each in (scratch, here):
        each.mkdir()
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "TMPDIR": str(scratch), "HOME": str(here)}
    process = subprocess.Popen(
        [PROGRAM, "check", "--save", str(here / "stored"), *arguments],
        env=environment,
        cwd=here,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def listens(process: subprocess.Popen[str]) -> bool:
    """Whether it is the program by now. Before, it is Python alone, which knows only tracebacks."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    caught = int(next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt")), 16)
    return bool(caught >> (signal.SIGTERM - 1) & 1)


def interrupted(process: subprocess.Popen[str]) -> Ended:
    """A terminal sends the signal to every process of the group."""
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=ENDS_WITHIN)
    return Ended(process.returncode, said)


def nothing_is_left(folder: Path, bed: Bed) -> None:
    files = [str(each.relative_to(folder)) for each in folder.rglob("*")]
    assert sorted(files) == ["here", "scratch"], "files"
    left = bed.kubectl(
        "get", "pods,jobs,configmaps", "--all-namespaces", "-l", "gpuctl.dev/run", "-o", "name"
    )
    assert left == ""
    assert "gpuctl-probe" not in bed.kubectl("get", "resourceflavors,workloads", "-A", "-o", "name")


def is_clean(ended: Ended) -> None:
    assert "Traceback" not in ended.said, ended.said
    assert ended.code == 130, ended.said
    assert ended.said.rstrip().endswith("gpuctl: interrupted")


@pytest.fixture(scope="module", autouse=True)
def something_to_read(bed: Bed) -> Iterator[None]:
    forget_runs(bed)
    with scene(bed):
        yield


@pytest.fixture
def proxy(bed: Bed) -> Iterator[FaultProxy]:
    with FaultProxy(bed.kubeconfig) as proxy:
        yield proxy


@dataclass(frozen=True)
class Station:
    """A request, while which the run is interrupted, after so many like it. `arguments` make the run send
    it."""

    path: str
    verb: str = "GET"
    arguments: tuple[str, ...] = ()
    answer: Answer = field(default_factory=Stalled)
    after: int = 0


STATIONS = {
    "discovery": Station("/apis/kueue.x-k8s.io"),
    "a list": Station("/api/v1/pods"),
    "an object": Station("/api/v1/namespaces/[^/]+/configmaps/.*"),
    "a log": Station(".*/log"),
    "exec": Station(".*/exec"),
    "an access review": Station(".*/selfsubjectaccessreviews", "POST"),
    "a dry run": Station(".*/resourceflavors", "POST"),
    "port-forward": Station(".*/portforward", arguments=("--dry-run=none",)),
    "a server that comes late": Station("/api/v1/nodes", answer=Late(30)),  # later than ENDS_WITHIN
    "after all checks": Station("/version"),
    "while the record is finished": Station("/version", after=1),
}


@pytest.mark.parametrize("name", STATIONS)
def test_while_something_is_asked_for(bed: Bed, proxy: FaultProxy, name: str, tmp_path: Path) -> None:
    station = STATIONS[name]
    fault = proxy.fault(station.answer, path=station.path, verb=station.verb, after=station.after)
    with program(tmp_path, proxy.kubeconfig, *station.arguments) as process:
        wait(lambda: fault.hits > station.after, 60, name)
        is_clean(interrupted(process))
    nothing_is_left(tmp_path, bed)


POD = "/api/v1/namespaces/[^/]+/pods"


@pytest.mark.parametrize(
    ("path", "verb", "answer"),
    [(POD, "POST", Late(1.5)), (f"{POD}/gpuctl-probe-.*", "GET", Late(0.0))],
    ids=["while it is made", "while it runs"],
)
def test_while_nodes_are_looked_into_by_debug_pods(
    bed: Bed, proxy: FaultProxy, namespace: str, tmp_path: Path, path: str, verb: str, answer: Answer
) -> None:
    fault = proxy.fault(answer, path=path, verb=verb)
    options = ("--probe=debug", f"--probe-namespace={namespace}", f"--probe-image={BUSYBOX}")
    with program(tmp_path, proxy.kubeconfig, *options) as process:
        wait(lambda: fault.hits, 60, "a debug pod")
        is_clean(interrupted(process))
    nothing_is_left(tmp_path, bed)


def test_during_the_login(bed: Bed, tmp_path: Path) -> None:
    """A credentials plugin that takes its time, as one does that opens a browser."""
    started, config = tmp_path / "started", yaml.safe_load(bed.kubeconfig.read_text())
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "sh",
        "args": ["-c", f"touch {started}; sleep 60"],
        "interactiveMode": "Never",
    }
    for user in config["users"]:
        user["user"] = {"exec": plugin}
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(config))
    folder = tmp_path / "run"
    folder.mkdir()
    with program(folder, kubeconfig) as process:
        wait(started.exists, 60, "the login")
        is_clean(interrupted(process))
    nothing_is_left(folder, bed)


def moments() -> Iterator[object]:
    """Every fourth of them here, the others where time does not matter."""
    chance = random.Random(SEED)
    for number in range(MOMENTS):
        moment = round(chance.uniform(0, LONGEST), 2)
        yield pytest.param(moment, marks=[pytest.mark.api_faults] if number % 4 else [])


@pytest.mark.parametrize("moment", [*moments()])
def test_at_any_moment(bed: Bed, moment: float, tmp_path: Path) -> None:
    stored = tmp_path / "here" / "stored"
    with program(tmp_path, bed.kubeconfig, "--dry-run=all") as process:
        wait(lambda: listens(process), 60, "the program")
        time.sleep(moment)
        if process.poll() is None:
            ended = interrupted(process)
            if not stored.exists():  # else it was over just then
                is_clean(ended)
                nothing_is_left(tmp_path, bed)
        else:
            assert stored.exists()
