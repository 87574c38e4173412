"""Somebody who drills the loss of a flavor on the bed, from the command line; and what must be left of it."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from . import gpuctl
from .bed import Bed
from .bed.audit import WritesSeen
from .lenient import lenient_file
from .test_queue_growth import GPU, Queues

STATE = "gpuctl-system"
CANARY = "gpuctl-drill-"
LABEL = "gpuctl.dev/runbook=flavor-drill"
RUN = "gpuctl.dev/run"
KINDS = "namespaces,resourceflavors.kueue.x-k8s.io,clusterqueues.kueue.x-k8s.io"
INSIDE = "localqueues.kueue.x-k8s.io,workloads.kueue.x-k8s.io"
DRILLERS = "drillers-"
CHANGES_NOTHING = ("selfsubjectaccessreviews", "selfsubjectreviews", "events")
RECORDS = "configmaps,leases.coordination.k8s.io"


@contextmanager
def somebodys_queue(bed: Bed, namespace: str) -> Iterator[Queues]:
    """A queue of somebody's, with a Workload that runs and one that waits."""
    bed.gpu_capacity(bed.node, {GPU: 4})
    made = Queues(bed, namespace)
    flavor = made.flavor("gpus")
    flavor["spec"]["nodeLabels"] = {"kubernetes.io/hostname": bed.node}
    try:
        made.apply(flavor, *made.line("busy", 4, flavor="gpus", resource=GPU))
        made.apply(made.workload("train-0", "busy", 3, GPU))
        made.admitted("train-0")  # before the other is there: of those of one second any may be the first
        made.apply(made.workload("train-1", "busy", 3, GPU))
        bed.wait(lambda: _settled(made), 60, "the queue's own counts")
        yield made
    finally:
        made.remove()
        bed.gpu_capacity(bed.node, {GPU: 0})


def _settled(queues: Queues) -> bool:
    name = f"clusterqueues.kueue.x-k8s.io/{queues.name('busy')}"
    status = json.loads(queues.bed.kubectl("get", name, "-o", "json")).get("status", {})
    return (status.get("admittedWorkloads"), status.get("pendingWorkloads")) == (1, 1)


class Person:
    """Somebody who drills by a plan file, and keeps journals in a namespace."""

    def __init__(self, bed: Bed, folder: Path, kubeconfig: Path | None = None, state: str = STATE) -> None:
        folder.mkdir(exist_ok=True)
        self.bed, self.folder, self.state = bed, folder, state
        self.kubeconfig = kubeconfig or bed.kubeconfig
        self.policy = folder / "gpuctl.yaml"
        self.policy.write_text(lenient_file())
        self.file = folder / "plan.json"

    @property
    def _flags(self) -> tuple[str, ...]:
        return "--policy", str(self.policy), "--state-namespace", self.state

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return gpuctl.run(*arguments, *self._flags, kubeconfig=self.kubeconfig)

    def plan(self, *flags: str) -> dict[str, Any]:
        """The plan for the one target; it is stored, too."""
        self.file.unlink(missing_ok=True)
        answer = self.run("plan", *flags, "-o", "json", "--out", str(self.file))
        assert answer.stdout, answer.stderr
        found: dict[str, Any] = json.loads(answer.stdout)["targets"][0]
        return found

    def apply(self, *flags: str) -> subprocess.CompletedProcess[str]:
        return self.run("apply", str(self.file), "--yes", *flags)

    def killed_at(self, step: int) -> str:
        """Begins, and is killed with SIGKILL as soon as it says that it begins this step. The run's id."""
        beginning = str(self.steps[step]["says"]).split(CANARY)[0]
        process = subprocess.Popen(
            [str(gpuctl.PROGRAM), "apply", str(self.file), "--yes", *self._flags],
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig), "HOME": str(self.folder)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if line.startswith(beginning):
                break
        process.kill()
        assert process.wait() == -signal.SIGKILL, "".join(said)
        found = self.newest
        assert {each["reached"] for each in found["steps"][:step]} <= {"done"}
        return str(found["id"])

    @property
    def steps(self) -> list[dict[str, Any]]:
        steps: list[dict[str, Any]] = json.loads(self.file.read_text())["targets"][0]["steps"]
        return steps

    def undo(self, run: str) -> subprocess.CompletedProcess[str]:
        return self.run("undo", run)

    def resume(self, run: str) -> subprocess.CompletedProcess[str]:
        return self.run("resume", run)

    @property
    def newest(self) -> dict[str, Any]:
        """The journal of the run that was begun last."""
        listed = self.bed.kubectl("-n", self.state, "get", "configmaps", "-l", RUN, "-o", "json")
        texts = (each.get("data", {}).get("run.json") for each in json.loads(listed)["items"])
        journals: list[dict[str, Any]] = [json.loads(text) for text in texts if text]
        return max(journals, key=lambda each: str(each["startedAt"]))


@contextmanager
def somebody(bed: Bed, folder: Path) -> Iterator[Person]:
    """Who keeps journals where they are kept by default."""
    if f"namespace/{STATE}" not in bed.kubectl("get", "namespaces", "-o", "name").split():
        bed.kubectl("create", "namespace", STATE)
    yield Person(bed, folder)
    bed.kubectl("-n", STATE, "delete", RECORDS, "-l", RUN)


@contextmanager
def several(bed: Bed, folder: Path, number: int) -> Iterator[list[Person]]:
    """People who drill at once, each with journals and locks in a namespace of its own."""
    mark = secrets.token_hex(3)
    names = [f"{DRILLERS}{mark}-{each}" for each in range(number)]
    spaces = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in names]
    bed.kubectl("apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": spaces}))
    yield [Person(bed, folder / name, state=name) for name in names]
    bed.kubectl("delete", "namespace", *names, "--wait=false")


def left(bed: Bed, run: str = "") -> set[str]:
    """All that bears the label of the drill, or of one run of it, but its journal."""
    label = f"{LABEL},{RUN}={run}" if run else LABEL
    wide = bed.kubectl("get", KINDS, "-l", label, "-o", "name").split()
    inside = bed.kubectl("get", INSIDE, "--all-namespaces", "-l", label, "-o", "name").split()
    return {*wide, *inside}


def others(bed: Bed) -> Mapping[str, Any]:
    """Each ClusterQueue and flavor: its generation, whether it is Active, and all that counts its use."""
    names = "resourceflavors.kueue.x-k8s.io,clusterqueues.kueue.x-k8s.io"
    found = json.loads(bed.kubectl("get", names, "-o", "json"))["items"]
    return {
        f"{each['kind']}/{each['metadata']['name']}": (
            each["metadata"]["uid"],
            each["metadata"]["generation"],
            each["metadata"].get("deletionTimestamp"),
            each.get("status"),
        )
        for each in found
        if not each["metadata"]["name"].startswith(CANARY)
    }


@contextmanager
def nobody_else_disturbed(bed: Bed) -> Iterator[None]:
    """At the end nothing of a drill is left, all else is as it was, and gpuctl has never written to anything
    but canaries, and records of its own."""
    before, forsaken, began = others(bed), left(bed), datetime.now(UTC)
    yield
    assert left(bed) - forsaken == set()  # a test that failed may have left something
    assert others(bed) == before
    written = [each for each in WritesSeen(bed.audit.file, "gpuctl/").all() if each.at >= began]
    strays = {
        f"{each.verb} {each.resource} {each.namespace}/{each.name}"
        for each in written
        if each.resource not in CHANGES_NOTHING
        and not each.dry_run
        and not (each.namespace or each.name).startswith((CANARY, STATE, DRILLERS))
    }
    assert written
    assert strays == set()
