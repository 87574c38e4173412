"""What keeps a runbook from working on a node: each breaks a scene in one way, and a guard has to see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpuctl.facts.nodes import Output
from gpuctl.nvidia.operands import BY_NAME
from tests.runbook.booked import DEPLOY, BookScene
from tests.runbook.mig.mig_scenes import NAME, holder, job

Break = Callable[[BookScene], object]


# The node


def not_ready(scene: BookScene) -> None:
    scene.node()["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]


def held(scene: BookScene) -> None:
    scene.annotated({"maintenance.nvidia.com/x": "yes"})


def another_owner(scene: BookScene) -> None:
    scene.annotated({"hami.io/node-nvidia-register": "x"})


def machine_config(scene: BookScene) -> None:
    scene.annotated({"machineconfiguration.openshift.io/state": "Working"})


def by_gitops(scene: BookScene) -> None:
    scene.annotated({"argocd.argoproj.io/tracking-id": "nodes:/Node:/gpu-1"})


def lost(scene: BookScene) -> None:
    text = "Unable to determine the device handle for GPU0000:1B:00.0: GPU is lost."
    scene.told[NAME, "nvidia-smi-mig-lgi"] = Output(text, "", 15)


def blind(scene: BookScene) -> None:
    scene.states.pop(NAME)


def in_use(scene: BookScene) -> None:
    scene.add(holder(), job())


def asked(**options: Any) -> Break:
    """For something else."""

    def asked_otherwise(scene: BookScene) -> None:
        scene.options = {**scene.options, **options}

    return asked_otherwise


def both(*breaks: Break) -> Break:
    """All of them."""

    def broken(scene: BookScene) -> None:
        for each in breaks:
            each(scene)

    return broken


# The operands' DaemonSet


def no_daemon_set(scene: BookScene) -> None:
    scene.drop("DaemonSet", "operand")


def another_daemon_set(scene: BookScene) -> None:
    scene.one("DaemonSet", "operand")["metadata"]["uid"] = "another"


def daemon_set_that_goes(scene: BookScene) -> None:
    scene.one("DaemonSet", "operand")["metadata"]["deletionTimestamp"] = "2026-11-30T09:00:00Z"


def tainted(scene: BookScene) -> None:
    scene.tolerating().tainted("team", value="research")


def without(app: str) -> Break:
    """No pod of this operand."""

    def no_pod(scene: BookScene) -> None:
        scene.drop("Pod", f"{app}-{NAME}")

    return no_pod


def not_wanting(operand: str) -> Break:
    """The DaemonSet wants other nodes than this one."""

    def not_wanted(scene: BookScene) -> None:
        spec = scene.one("DaemonSet", "operand")["spec"]["template"]["spec"]
        spec["nodeSelector"] = {f"{DEPLOY}{operand}": "sometimes"}

    return not_wanted


Refusal = tuple[Break, str, str]  # what is broken, the guard that refuses, and words of it


def of_any_operand(app: str, operand: str) -> list[Refusal]:
    """What keeps a pod that is deleted from coming back."""
    return [
        (without(app), "comes-back", f"there is no pod of the {BY_NAME[operand].title}"),
        (no_daemon_set, "comes-back", "does not exist any more"),
        (another_daemon_set, "comes-back", "does not exist any more"),
        (daemon_set_that_goes, "comes-back", "is being deleted"),
        (not_wanting(operand), "comes-back", "wants nodes with"),
        (tainted, "comes-back", "does not tolerate the node's taint"),
    ]


# What every runbook that restarts an operand refuses.
OF_A_NODE: list[Refusal] = [
    (not_ready, "node-is-ready", "is not Ready"),
    (lost, "gpus-are-sound", "nvidia-smi mig -lgi on"),
]


def name_of(breaks: object) -> str | None:
    """For pytest's ids."""
    return getattr(breaks, "__name__", None)
