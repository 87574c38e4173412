"""Runs the terminal sessions of docs/maintenance-window.md on the real control plane, and writes down what
they print: `make walkthrough`.

A live session is a fenced block of the language `shell-session`. RUN in a command is the run that waits for
somebody. A comment `<!-- before: WORD -->` above a session names what happens in the cluster before it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from .bed import Bed, lifecycle
from .bed.migworld import MigWorld
from .bed.simulated import SimulatedNodes, gpu_node
from .bed.workloads import Workloads

PAGE = Path(__file__).parent.parent.parent / "docs" / "maintenance-window.md"
SEVEN = ["1g.10gb"] * 7
SLICE = "nvidia.com/mig-1g.10gb"
POLICY = """\
apiVersion: gpuctl.dev/v1
kind: Policy
runbooks:
  windows:
  - {days: [mon, tue, wed, thu, fri, sat, sun], from: "00:00", to: "24:00", timeZone: Europe/Berlin}
  maxNodes: 1
  maxPoolShare: 0.5
  leaseSeconds: 10
"""
_SESSION = re.compile(
    r"(<!-- before: ([\w-]+) -->\n)?^```shell-session\n(.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Stage:
    """The cluster in which the sessions play, and the folder that they are run in."""

    bed: Bed
    world: MigWorld
    folder: Path

    def happens(self, what: str) -> None:
        """Something that befalls the cluster between two sessions."""
        events: Mapping[str, Callable[[], None]] = {
            "mig-manager-fails": lambda: self.world.node("gpu-2").fail_at(
                "apply", message="In use by another client"
            ),
            "mig-manager-is-slow": lambda: self.world.node("gpu-1").slow(10),
            "all-is-well": self._all_is_well,
        }
        events[what]()

    def _all_is_well(self) -> None:
        for name in ("gpu-1", "gpu-2"):
            self.world.node(name).honest()

    def run(self, command: str) -> str:
        """A command with all that it prints, and its exit code where that is not 0."""
        command = command.replace("RUN", self._waiting()) if " RUN" in command else command
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        variables = {
            **os.environ,
            "PATH": path,
            "COLUMNS": "100",
            "KUBECONFIG": str(self.bed.kubeconfig),
            "XDG_STATE_HOME": str(self.folder / "state"),
        }
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
            check=False,
        )
        code = f"(exit code {done.returncode})\n" if done.returncode else ""
        return f"$ {command}\n{done.stdout}{code}"

    def _waiting(self) -> str:
        answer = self.run("gpuctl runs -o json 2>/dev/null").partition("\n")[2].rpartition("(exit")[0]
        waiting: list[str] = [each["id"] for each in json.loads(answer) if each["state"] == "unfinished"]
        return waiting[0]


def rewritten(text: str, stage: Stage) -> str:
    """The page with its live sessions as they run now."""

    def replayed(match: re.Match[str]) -> str:
        mark, what, session = match.group(1) or "", match.group(2), match.group(3)
        if what:
            stage.happens(what)
        commands = [line[2:] for line in session.splitlines() if line.startswith("$ ")]
        stable = [re.sub(r"\b\d{8}-\d{6}-[0-9a-f]+\b", "RUN", command) for command in commands]
        return f"{mark}```shell-session\n{''.join(map(stage.run, stable))}```"

    return _SESSION.sub(replayed, text)


def set_up(bed: Bed, world: MigWorld, folder: Path) -> None:
    """Two nodes in service, a spare one, and work on the first."""
    (folder / "gpuctl.yaml").write_text(POLICY)
    bed.kubectl("create", "namespace", "gpuctl-system")
    for name in ("team-a", "team-b"):
        bed.kubectl("create", "namespace", name)
    world.add(gpu_node("gpu-1", profiles=[SEVEN, SEVEN]))
    serving, training = Workloads(bed, "team-a"), Workloads(bed, "team-b")
    serving.deployment("llm-gateway", replicas=2, asks={SLICE: 1})
    serving.budget("llm-gateway", max_unavailable=1)
    serving.running("llm-gateway", 2)
    training.job("finetune", asks={SLICE: 1})
    training.running("finetune")
    world.add(*(gpu_node(name, profiles=[SEVEN, SEVEN]) for name in ("gpu-2", "gpu-3", "gpu-4")))


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as scratch,
        lifecycle.temporary(logs=Path(scratch) / "cluster") as bed,
        MigWorld(SimulatedNodes(bed)) as world,
    ):
        folder = Path(scratch) / "here"
        folder.mkdir()
        set_up(bed, world, folder)
        page = rewritten(PAGE.read_text(encoding="utf-8"), Stage(bed, world, folder))
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
