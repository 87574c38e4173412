"""mig-manager on one simulated node: its steps in their order, its triggers, and the faults it can have.

It sees the node's label `nvidia.com/mig.config`, moves `nvidia.com/mig.config.state`, pauses the operands,
changes what the nvidia-smi stand-in answers, and lets the operands come back. It neither cordons nor drains.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from tests.cluster.standins import mig_parted
from tests.cluster.standins.mig_parted import Failed, Part
from tests.cluster.standins.state import NodeState

from . import operands
from .api import ApiError

if TYPE_CHECKING:
    from .migworld import WorldNode

PREFIX = "nvidia.com/"
CONFIG = "nvidia.com/mig.config"
STATE = "nvidia.com/mig.config.state"
DEPLOY = "nvidia.com/gpu.deploy."
PAUSED = "paused-for-mig-change"
PENDING, SUCCESS, FAILED, REBOOTING = "pending", "success", "failed", "rebooting"
CLIENTS = ("device-plugin", "gpu-feature-discovery", "dcgm-exporter", "dcgm", "nvsm")
WRITER = "nvidia-mig-manager"


class Step(StrEnum):
    """The steps of a run, in order."""

    READ = "read-labels"
    VALID = "valid-config"
    ASSERT = "assert"
    ASSERT_MODE = "assert-mode"
    PENDING = "set-pending"
    PAUSE = "pause-operands"
    WAIT = "wait-operands"
    STOP = "stop-host-clients"
    APPLY_MODE = "apply-mode"
    APPLY = "apply"
    CDI = "cdi"
    START = "start-host-clients"
    VALIDATOR = "restart-validator"
    RESUME = "resume-operands"
    DONE = "set-success"


_SILENT = (Step.WAIT, Step.VALIDATOR)  # where an error ends the run without a word in the state


class Killed(Exception):
    """The pod, or its node, is gone in the middle."""


class Wedged(Exception):
    """The run ends and says nothing: pending for ever."""


class Rebooted(Exception):
    """The run has rebooted the node that it runs on."""


@dataclass
class Gate:
    """A place at which mig-manager waits until the test opens it."""

    _reached: threading.Event = field(default_factory=threading.Event)
    _open: threading.Event = field(default_factory=threading.Event)

    def reached(self, timeout: float = 90) -> None:
        """Until mig-manager stands there."""
        assert self._reached.wait(timeout), f"mig-manager did not get there within {timeout:g} s"

    def open(self) -> None:
        """Let it go on."""
        self._open.set()

    def pass_(self, alive: Callable[[], bool]) -> None:
        """Called by mig-manager: stands here until it is open, or the pod is gone."""
        self._reached.set()
        while alive() and not self._open.wait(0.05):
            continue


@dataclass
class Faults:
    """What goes wrong on a node. Counts say how often it still will; None is always."""

    failing: dict[Step, tuple[int | None, str, bool]] = field(default_factory=dict)
    wedging: dict[Step, int | None] = field(default_factory=dict)
    before: dict[Step, list[Callable[[], None]]] = field(default_factory=dict)
    slow: float = 1.0
    lie: str = ""
    wrong: Sequence[Sequence[str] | None] | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def fails(self, step: Step) -> tuple[str, bool] | None:
        """The message and whether operands stay paused, if this step fails now."""
        with self.lock:
            found = self.failing.get(step)
            if not found or found[0] == 0:
                return None
            left, text, paused = found
            self.failing[step] = (None if left is None else left - 1, text, paused)
            return text, paused

    def wedges(self, step: Step) -> bool:
        """Whether the run ends here without a word."""
        with self.lock:
            left = self.wedging.get(step, 0)
            if left:
                self.wedging[step] = left - 1
            return left is None or left > 0

    def actions(self, step: Step) -> list[Callable[[], None]]:
        """What is to happen once before this step."""
        with self.lock:
            return self.before.pop(step, [])


class Slot:
    """The one value that waits: values in between are lost, and only a change wakes the reader."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._current = self._read = ""
        self._woken = self._waiting = self._begun = False

    @property
    def idle(self) -> bool:
        """Whether the reader waits, and nothing is there for it."""
        with self._changed:
            return self._waiting and not self._woken

    def begin(self, value: str) -> None:
        """The value that is there at the start, unless a newer one has been put."""
        if not self._begun:
            self.put(value)

    def put(self, value: str) -> None:
        """A new value of the label; its removal wakes nobody."""
        with self._changed:
            self._begun = True
            self._current = value
            if value:
                self._woken = True
                self._changed.notify_all()

    def take(self, alive: Callable[[], bool]) -> str:
        """The value, as soon as it is another than the last, or has been put anew while waiting."""
        with self._changed:
            if self._read == self._current:
                self._woken, self._waiting = False, True
                while not self._woken:
                    if not alive():
                        raise Killed
                    self._changed.wait(0.1)
                self._waiting = False
            self._read = self._current
            return self._read


class MigManager:
    """mig-manager of one node; a life for each start of its pod."""

    def __init__(self, node: WorldNode) -> None:
        self._node = node
        self._slot = Slot()
        self._life = ""
        self._paused = False
        self._stays_paused = False
        self._mode = False
        self._thread = threading.Thread(target=self._run, name=f"mig-manager {node.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        self._thread.join(10)

    @property
    def idle(self) -> bool:
        """Whether it runs, and has done what it was asked."""
        return self._slot.idle and self._alive()

    def heard(self, old: str | None, new: str) -> None:
        """The node was seen with this value of the label; `old` None: it was not there before."""
        if old != new:
            self._slot.put(new)

    def _run(self) -> None:
        node = self._node
        while node.world.running and node.current:
            self._slot = Slot()
            self._life = node.manager_life()
            if not self._life:
                node.world.stopped.wait(0.1)
                continue
            with suppress(Killed, Rebooted):
                self._live()

    def _live(self) -> None:
        """From the start of the pod: the value that is there is worked on as if it were new."""
        self._slot.begin(self._node.label(CONFIG))
        while True:
            value = self._slot.take(self._alive)
            self._node.log(f"Updating to MIG config: {value}")
            try:
                self._reconfigure(value)
            except Wedged as wedged:
                self._node.log(f"Error: {wedged}")
            except ApiError as error:
                if not self._alive():
                    raise Killed from error
                self._node.log(f"Error: {error}")

    def _reconfigure(self, name: str) -> None:
        self._paused = self._stays_paused = False
        try:
            self._change(name)
        except Failed as failed:
            self._node.log(f"Error: {failed}")
            if self._mode and self._node.host_driver:
                self._node.start_kubelet()
            if self._paused and not self._stays_paused:
                self._resume()
            self._state(FAILED)

    def _change(self, name: str) -> None:
        node = self._node
        self._enter(Step.READ)
        was = node.label(STATE)
        self._enter(Step.VALID)
        parts = self._parts(name)
        self._enter(Step.ASSERT)
        if mig_parted.is_applied(parts, node.silicon):
            self._resume()
            self._state(SUCCESS)
            return
        self._enter(Step.ASSERT_MODE)
        self._mode = not mig_parted.mode_is_right(parts, node.silicon)
        if self._mode and was == REBOOTING:
            raise Failed("MIG mode change did not take effect after rebooting", node.silicon)
        self._enter(Step.PENDING)
        self._state(PENDING)
        self._enter(Step.PAUSE)
        self._pause()
        self._enter(Step.WAIT)
        self._wait_for_operands()
        self._apply(parts)
        self._enter(Step.CDI)
        self._enter(Step.START)
        if self._mode and node.host_driver:
            node.start_kubelet()
        self._enter(Step.VALIDATOR)
        node.delete_pods(operands.VALIDATOR)
        self._enter(Step.RESUME)
        self._resume()
        self._enter(Step.DONE)
        self._state(SUCCESS)

    def _apply(self, parts: Sequence[Part]) -> None:
        node = self._node
        self._enter(Step.STOP)
        if self._mode and node.host_driver:
            node.stop_kubelet()
        try:
            self._enter(Step.APPLY_MODE)
            self._alter(parts, mig_parted.with_mode)
        except Failed as failed:
            node.log(f"Error: {failed}")
            if node.reboots:
                self._state(REBOOTING)
                node.reboot()
                raise Rebooted from failed
        try:
            self._enter(Step.APPLY)
        except Failed as failed:
            node.alter(lambda state: mig_parted.cleared(parts, state))
            raise failed from None
        self._alter(parts, mig_parted.with_geometry)
        if node.faults.wrong is not None:
            node.slice(*node.faults.wrong)

    def _alter(self, parts: Sequence[Part], how: Callable[..., NodeState]) -> None:
        if self._node.faults.lie == "unchanged":
            return
        try:
            self._node.alter(lambda state: how(parts, state, self._node.holders(state)))
        except Failed as failed:
            after = failed.after
            self._node.alter(lambda _: after)
            raise

    def _parts(self, name: str) -> Sequence[Part]:
        found = mig_parted.configurations(self._node.world.config()).get(name)
        if found is None:
            raise Failed(f"selected mig-config not present: {name}", self._node.silicon)
        return found

    def _pause(self) -> None:
        now = {client: self._node.label(DEPLOY + client) for client in CLIENTS}
        if self._node.label(f"{DEPLOY}client"):
            now["client"] = self._node.label(f"{DEPLOY}client")
        paused = {DEPLOY + name: PAUSED if text not in ("", "false") else text for name, text in now.items()}
        self._node.write_labels(paused, WRITER)
        self._paused = True

    def _resume(self) -> None:
        names = [*CLIENTS, *(["client"] if self._node.label(f"{DEPLOY}client") else [])]
        labels = {DEPLOY + name: "true" for name in names if self._node.label(DEPLOY + name) != "false"}
        self._node.write_labels(labels, WRITER)
        self._paused = False

    def _wait_for_operands(self) -> None:
        patience = self._node.world.pace.patience
        for app in operands.PAUSED.values():
            deadline = time.monotonic() + patience
            while self._node.pods_of(app):
                if time.monotonic() > deadline:
                    raise Wedged(f"pods of {app} did not shutdown")
                self._check()
                time.sleep(0.05)

    def _state(self, text: str) -> None:
        self._check()
        self._node.log(f"Changing the '{STATE}' node label to '{text}'")
        self._node.write_labels({STATE: text}, WRITER)

    def _enter(self, step: Step) -> None:
        """Each step begins here: with what the test wants, the time it takes, and its faults."""
        faults, world = self._node.faults, self._node.world
        self._check()
        for action in faults.actions(step):
            action()
        world.stopped.wait(world.pace.step * faults.slow)
        self._check()
        if faults.wedges(step):
            raise Wedged(f"{step}: gave up")
        if found := faults.fails(step):
            text, self._stays_paused = found
            if step in _SILENT:
                raise Wedged(text)
            raise Failed(text, self._node.silicon)

    def _check(self) -> None:
        if not self._alive():
            raise Killed

    def _alive(self) -> bool:
        node = self._node
        return not node.world.stopped.is_set() and node.manager_life() == self._life
