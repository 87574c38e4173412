"""Bringing a bed up: what doesn't need each other starts side by side."""

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import build, images, kubeconfig, packages
from .bed import Bed
from .control_plane import Trust
from .node import NAME, Node
from .progress import say
from .wait import wait

STANDINS = Path(__file__).parent.parent / "standins"


def start(bed: Bed, dies_with_starter: bool) -> None:
    """From an empty folder to a healthy cluster; building and installing first what is not there yet."""
    packages.ensure()
    build.ensure()
    say(f"starting a cluster in {bed.folder}")
    _start_machine(bed, dies_with_starter)
    node = Node(bed.machine, bed.control_plane)
    _side_by_side(bed.control_plane.start, lambda: _start_runtime(node), bed.kueue.render)
    say("the API server is ready")
    node.start_kubelet()
    _side_by_side(bed.kueue.apply, bed.kwok.start)
    wait(bed.node_ready, 240, "a Ready node")
    say("the node is Ready")
    bed.kueue.wait_healthy()
    say("Kueue is healthy")


def _start_machine(bed: Bed, dies_with_starter: bool) -> None:
    _install_standins(bed.machine.standins)
    bed.machine.boot(NAME, dies_with_starter)
    bed.control_plane.link.connect(bed.machine)
    trust = Trust.make(bed.control_plane.trust.folder)
    kubeconfig.write(bed.kubeconfig, bed.server, trust.cluster.files.certificate, trust.admin)


def _install_standins(folder: Path) -> None:
    """Every script among the stand-ins, under the name of the command it stands in for."""
    folder.mkdir()
    for script in STANDINS.glob("*.py"):
        if script.read_text().startswith("#!"):
            command = folder / script.stem.replace("_", "-")
            shutil.copyfile(script, command)
            command.chmod(0o755)


def _start_runtime(node: Node) -> None:
    node.start_containerd()
    node.load(images.images(build.KUEUE.binary()))


def _side_by_side(*parts: Callable[[], object]) -> None:
    with ThreadPoolExecutor() as together:
        for started in [together.submit(part) for part in parts]:
            started.result()
