"""What follows the hardware of a simulated node: device plugin, feature discovery, and the kubelet's word.

Both operands look at the hardware when their pod starts, and at no other time. When the plugin's pod is
gone, nothing of its devices can be allocated; after a grace the kubelet says 0, and keeps the names.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from . import operands
from .api import Object
from .simulated import PREFIX, devices, discovered, invalid

if TYPE_CHECKING:
    from .migworld import WorldNode

Amounts = dict[str, tuple[int, int]]  # capacity and allocatable by name
STATIC = (
    "gpu.present",
    "gpu.deploy.",
    "gpu.workload.config",
    "gpu-driver-upgrade",
    "mig.config",
    "device-plugin.config",
)


class Kubelet:
    """One node's plugin, discovery and kubelet; `tick` takes them on to now."""

    def __init__(self, node: WorldNode) -> None:
        self._node = node
        self._plugin = self._discovery = "?"  # the starts they were seen in; "?": as it was found
        self._devices: dict[str, int] = {}
        self._known: Amounts = {}
        self._gone_at = 0.0
        self._register_at = self._describe_at = float("inf")

    def adopt(self, status: Mapping[str, Mapping[str, str]]) -> None:
        """Take what the node offers as the plugin's word."""
        self._devices = {
            name: int(count) for name, count in status["capacity"].items() if name.startswith(f"{PREFIX}/")
        }
        self._known = {name: (count, count) for name, count in self._devices.items()}

    def restarted(self) -> None:
        """The kubelet, or the whole node, has been started anew: its plugins have to come back."""
        self._plugin = self._discovery = ""
        self._devices = {}

    def settled(self) -> bool:
        """Whether plugin and discovery have seen their last start, and old resources are at 0."""
        pods = self._node.pods()
        seen = (self._plugin, self._discovery)
        due = (self._register_at, self._describe_at)
        return (
            seen == (_start_of(pods, operands.PLUGIN), _start_of(pods, operands.DISCOVERY))
            and min(due) == float("inf")
            and self._known == self._amounts(fresh=False)
        )

    def tick(self, pods: list[Object]) -> None:
        """Look at the pods, and do what is due."""
        now = time.monotonic()
        self._see_plugin(_start_of(pods, operands.PLUGIN), now)
        self._see_discovery(_start_of(pods, operands.DISCOVERY), now)

    def _see_plugin(self, start: str, now: float) -> None:
        if self._plugin == "?":
            self._plugin = start or "?"
            return
        delay = self._node.world.pace.operand * self._node.faults.slow
        if start != self._plugin:
            if self._plugin:
                self._gone_at = now
            self._plugin = start
            self._register_at = now + delay if start else float("inf")
            if self._node.faults.lie != "capacity":
                self._devices = {}
        if now >= self._register_at and self._node.faults.lie != "capacity":
            self._devices = self._enumerated()
        self._report(now)
        if now >= self._register_at:
            self._register_at = float("inf")

    def _enumerated(self) -> dict[str, int]:
        """What the plugin registers; with strategy single and an uneven node it ends at once."""
        gpus, strategy = self._node.silicon.gpus, self._node.strategy
        if strategy == "single" and invalid(gpus):
            return {}
        return {f"{PREFIX}/{name}": count for name, count in devices(gpus, strategy).items()}

    def _report(self, now: float) -> None:
        amounts = self._amounts(fresh=now - self._gone_at < self._node.world.pace.grace)
        if amounts != self._known:
            self._node.offer(amounts)
            self._known = amounts

    def _amounts(self, *, fresh: bool) -> Amounts:
        """What the kubelet says of each resource; of those that are gone, what it said before or 0."""
        amounts: Amounts = {}
        for name in {**self._known, **self._devices}:
            count = self._devices.get(name)
            before = self._known.get(name, (0, 0))[0]
            amounts[name] = (count, count) if count is not None else (before if fresh else 0, 0)
        return amounts

    def _see_discovery(self, start: str, now: float) -> None:
        if self._discovery == "?":
            self._discovery = start or "?"
            return
        if start != self._discovery:
            self._discovery = start
            self._describe_at = now + self._node.world.pace.operand if start else float("inf")
            if not start and self._node.faults.lie != "labels":
                self._write_labels({})
        if now >= self._describe_at:
            if self._node.faults.lie != "labels":
                fresh = discovered(self._node.silicon, self._node.strategy)
                self._write_labels({**fresh, "gfd.timestamp": str(int(time.time()))})
            self._describe_at = float("inf")

    def _write_labels(self, labels: Mapping[str, str]) -> None:
        """Feature discovery owns its labels: those that it no longer writes go."""
        new: dict[str, str | None] = {f"{PREFIX}/{name}": text for name, text in labels.items()}
        old = [name for name in self._node.labels if _is_discovered(name)]
        self._node.write_labels({**dict.fromkeys(old), **new}, "nfd-master")


def _is_discovered(label: str) -> bool:
    prefix, _, name = label.partition("/")
    return prefix == PREFIX and not name.startswith(STATIC)


def _start_of(pods: list[Object], app: str) -> str:
    """Which start of the operand runs, empty for none."""
    for pod in pods:
        meta, status = pod["metadata"], pod.get("status", {})
        if meta.get("labels", {}).get("app") != app or "deletionTimestamp" in meta:
            continue
        if status.get("phase") == "Running":
            restarts = sum(each.get("restartCount", 0) for each in status.get("containerStatuses", ()))
            return f"{meta['uid']} {restarts}"
    return ""
