"""The runbooks there are. Their modules are loaded when one is wanted: help must be fast."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gpuctl.runbook.runbook import Runbook

# By id: the module and the title.
BOOKS: Final[Mapping[str, tuple[str, str]]] = {
    "device-plugin-restart": (
        "gpuctl.runbook.mig.device_plugin_restart",
        "restart a node's device plugin, so that it offers what its GPUs have",
    ),
    "drain": (
        "gpuctl.runbook.drain.runbook",
        "evict the pods of a node, one PodDisruptionBudget after the other",
    ),
    "flavor-drill": (
        "gpuctl.runbook.flavors.drill",
        "try out the loss of a ResourceFlavor on canary objects",
    ),
    "flavor-hold": (
        "gpuctl.runbook.flavors.hold",
        "hold a ClusterQueue for a while, as if it had lost its flavor, and let it go again",
    ),
    "kueue-restart": (
        "gpuctl.runbook.kueue.restart",
        "restart Kueue's manager, so that it makes and injects its certificates anew",
    ),
    "mig-recover": (
        "gpuctl.runbook.mig.recover",
        "bring back a node whose MIG manager failed or stands still",
    ),
    "mig-reconfigure": ("gpuctl.runbook.mig.reconfigure", "drain a node, change its MIG geometry, verify it"),
    "queue-limit": (
        "gpuctl.runbook.kueue.limit",
        "set how much a queue may borrow or lend, or how long a Job may take",
    ),
    "taint-unmigged": (
        "gpuctl.runbook.mig.taint_unmigged",
        "keep pods off a node whose MIG is not as labelled",
    ),
    "vllm-switch-mode": (
        "gpuctl.runbook.vllm.switch_mode",
        "switch an engine of vLLM between eager mode and CUDA graphs",
    ),
}


class NoRunbook(Exception):
    """There is no runbook of this name."""


def runbook(id_: str) -> Runbook:
    """The runbook of this name. Raises NoRunbook."""
    if id_ not in BOOKS:
        raise NoRunbook(f"there is no runbook {id_!r}; there are {', '.join(BOOKS)}")
    found: Runbook = import_module(BOOKS[id_][0]).RUNBOOK
    return found
