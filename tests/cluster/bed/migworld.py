"""Simulated GPU nodes on which a MIG reconfiguration really happens: the stand-ins put together.

    nodes = SimulatedNodes(bed)
    with MigWorld(nodes) as world:
        world.add(gpu_node("gpu-1", profiles=[None, None]), gpu_node("gpu-2", profiles=[SEVEN]))
        bed.kubectl("label", "node", "gpu-1", "--overwrite", "nvidia.com/mig.config=all-1g.10gb")
        world.node("gpu-1").settled("all-1g.10gb")      # state success, operands back, capacity followed

`node.until("pending")` waits for a state, `node.ended("failed")` for one in which MIG manager is done.

Patching the label `nvidia.com/mig.config` is all it takes, by whomever. Then happens, in mig-manager's order
(Step in mig_manager.py) and some hundred times quicker: state pending; deploy labels paused, so that the real
DaemonSet controller takes the operands' pods away, allocatable goes to 0, and feature discovery's labels go;
the GPUs of the nvidia-smi stand-in are sliced anew (refused if a pod or a process is on them); deploy labels
back; state success; pods back, and capacity and labels follow the hardware. Old resource names stay, at 0.

Per node, before or in the middle of a run (`node = world.node(name)`):

    node.fail_at("apply")                state failed, operands back, the GPUs of a failed apply cleared
    node.fail_at("apply", times=None)    always; `paused=True`: operands are left paused
    node.wedge_at("wait-operands")       pending and paused for ever, until mig-manager's pod is deleted
    node.slow(5)                         every step takes so many times longer
    node.lie("unchanged")                success without touching a GPU
    node.lie("wrong", [["7g.80gb"]])     success over another geometry
    node.lie("capacity")                 the plugin goes on with the resources of before; "labels": discovery
    node.honest()                        no fault any more
    gate = node.stop_before("apply")     gate.reached(); do something in the middle; gate.open()
    node.before("apply", action)         the same as a call in mig-manager's thread
    node.hold()                          a process on a GPU that no pod explains; node.let_go()
                                         (pods that ask for GPUs have processes there, as long as they run)
    node.reboot()                        not Ready, another boot id, Ready again; instances are gone
    node.stop_kubelet(), start_kubelet() not Ready for as long as you want
    node.remove_manager()                MIG manager's pod goes and stays away; node.restore_manager()
    node.restart_manager()               its pod is deleted and comes back: the full check runs anew
    node.slice(["3g.40gb"], None)        geometry changed by hand, behind everybody's back
    world.replace(node)                  the Node object deleted, and another of that name made

What depends on how a node is made: `world.add(..., host_driver=True)`: no driver pod, and the kubelet is
stopped during a change of mode; `reboots=True`: MIG manager runs WITH_REBOOT. Ampere models (A100, A30) reset
all GPUs of a node for a change of mode, so one in use fails it; on Hopper the mode does not outlive a reboot.
As in mig-manager: an error in apply-mode is swallowed (or leads to the reboot), one in wait-operands or
restart-validator wedges; a configuration already applied gives success and touches no pod; the value that is
there when its pod starts is worked on anew; after a failure it just waits.

Pods on such nodes: workloads.py. `node.logged` has mig-manager's words, `kubectl logs` of its pod too.
One controller serves all nodes: two watches, a thread per node that mostly sleeps.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from tests.cluster.standins import mig_parted
from tests.cluster.standins.state import Gpu, NodeState, Process, sliced

from . import operands, stages
from .api import NOT_FOUND, STRATEGIC, Api, ApiError, Mirror, Object
from .clients import FIRST_PID, MEMORY, Clients, with_processes
from .kubelet import Amounts, Kubelet
from .mig_manager import CONFIG, DEPLOY, STATE, SUCCESS, Faults, Gate, MigManager, Step
from .simulated import DRIVER, DRIVER_LABEL, IMAGE, MADE_FOR, NAMESPACE, GpuNode, SimulatedNodes


@dataclass(frozen=True)
class Pace:
    """Seconds that things take."""

    step: float = 0.1
    operand: float = 0.1
    grace: float = 1.0  # of the kubelet for the names of a plugin that is gone
    boot: float = 1.5
    patience: float = 60  # mig-manager's, for the pods of each operand


class WorldNode:
    """One node of the world."""

    def __init__(self, world: MigWorld, made: GpuNode, *, host_driver: bool, reboots: bool) -> None:
        self.world = world
        self.name = made.name
        self.strategy = made.strategy
        self.host_driver = host_driver
        self.reboots = reboots
        self.faults = Faults()
        self.logged: list[str] = []
        self._lock = threading.RLock()
        self.down = False
        self._rebooting = threading.Event()
        self._boots = 0
        self._told: set[str] = set()
        self.manager = MigManager(self)
        self.kubelet = Kubelet(self)
        self.clients = Clients(self)

    # What is to go wrong

    def fail_at(self, step: str, *, times: int | None = 1, message: str = "", paused: bool = False) -> None:
        """Let this step fail."""
        self.faults.failing[Step(step)] = (times, message or f"{step} failed", paused)

    def wedge_at(self, step: str, *, times: int | None = 1) -> None:
        """Let the run end before this step without a word."""
        self.faults.wedging[Step(step)] = times

    def slow(self, factor: float) -> None:
        """Let every step take longer."""
        self.faults.slow = factor

    def lie(self, how: str, geometry: Sequence[Sequence[str] | None] = ()) -> None:
        """Let it say success over what is not so: unchanged, wrong, capacity, labels."""
        if how not in ("unchanged", "wrong", "capacity", "labels"):
            raise ValueError(how)
        self.faults.lie = how
        self.faults.wrong = geometry or None

    def honest(self) -> None:
        """No fault any more."""
        self.faults = Faults()

    def before(self, step: str, action: Callable[[], None]) -> None:
        """Do something once, when the run gets to this step."""
        self.faults.before.setdefault(Step(step), []).append(action)

    def stop_before(self, step: str) -> Gate:
        """Let mig-manager stand still before this step, once, until the gate is opened."""
        gate = Gate()

        def stand() -> None:
            life = self.manager_life()
            gate.pass_(lambda: self.world.running and self.manager_life() == life)

        self.before(step, stand)
        return gate

    def hold(self, gpu: int = 0, *, pid: int = 4711, name: str = "/usr/bin/nv-hostengine") -> None:
        """A process on a GPU, in its first instance if it has any, that no pod explains."""

        def held(state: NodeState) -> NodeState:
            (there,) = [each for each in state.gpus if each.index == gpu]
            gi = there.instances[0].id if there.instances else None
            process = Process(gpu=gpu, pid=pid, name=name, memory=MEMORY, gi=gi, ci=None if gi is None else 0)
            return with_processes(state, (*state.processes, process))

        self.alter(held)

    def let_go(self) -> None:
        """No such process any more."""

        def without(state: NodeState) -> NodeState:
            return with_processes(state, tuple(each for each in state.processes if each.pid >= FIRST_PID))

        self.alter(without)

    # The hardware

    @property
    def state_file(self) -> Path:
        """What its nvidia-smi answers from."""
        return self.world.nodes.state_file(self.name)

    @property
    def silicon(self) -> NodeState:
        """The GPUs as they are now."""
        return NodeState.read(self.state_file)

    @property
    def layout(self) -> list[list[str] | None]:
        """The profiles on each GPU; None: MIG off."""
        return [
            None if gpu.mig_current != "Enabled" else sorted(each.profile for each in gpu.instances)
            for gpu in self.silicon.gpus
        ]

    def alter(self, change: Callable[[NodeState], NodeState]) -> None:
        """Change what nvidia-smi answers."""
        with self._lock:
            change(self.silicon).write(self.state_file)

    def slice(self, *profiles: Sequence[str] | None) -> None:
        """Give the GPUs this geometry by hand; None: MIG off."""

        def by_hand(gpu: Gpu, wanted: Sequence[str] | None) -> Gpu:
            bare = replace(
                mig_parted.without_instances(gpu), mig_current=mig_parted.OFF, mig_pending=mig_parted.OFF
            )
            return bare if wanted is None else sliced(bare, wanted, {})

        self.alter(
            lambda state: replace(
                state, gpus=tuple(by_hand(*pair) for pair in zip(state.gpus, profiles, strict=True))
            )
        )

    def holders(self, state: NodeState) -> frozenset[mig_parted.Holder]:
        """What is in use now, by the pods that the API server knows and the processes."""
        pods = self.world.api.items("/api/v1/pods", fieldSelector=f"spec.nodeName={self.name}")
        return self.clients.holders(state, pods)

    # What the API server shows

    @property
    def seen(self) -> Object | None:
        """The Node object."""
        return self.world.nodes_seen.find(self.name)

    @property
    def labels(self) -> dict[str, str]:
        """Its labels."""
        seen = self.seen
        return dict(seen["metadata"].get("labels", {})) if seen else {}

    def label(self, name: str) -> str:
        """A label, empty if it is absent."""
        return self.labels.get(name, "")

    def capacity(self, name: str) -> int:
        """What it offers of a resource, without prefix; 0 if it has no such name."""
        seen = self.seen
        return int(seen["status"]["capacity"].get(f"nvidia.com/{name}", 0)) if seen else 0

    @property
    def ready(self) -> bool:
        """Whether it is Ready."""
        conditions = (self.seen or {}).get("status", {}).get("conditions", ())
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    @property
    def boot_id(self) -> str:
        """Its boot id."""
        return str((self.seen or {}).get("status", {}).get("nodeInfo", {}).get("bootID", ""))

    def pods(self) -> list[Object]:
        """The operands' pods on it."""
        return [pod for pod in self.world.pods_seen.all() if _is_operand(pod, self.name)]

    def pods_of(self, app: str) -> list[Object]:
        """Those of one operand."""
        return [pod for pod in self.pods() if pod["metadata"].get("labels", {}).get("app") == app]

    @property
    def current(self) -> bool:
        """Whether no other node has taken its name."""
        return self.world.has(self)

    def manager_life(self) -> str:
        """Which start of MIG manager runs; empty if none does."""
        if self._rebooting.is_set() or not self.current:
            return ""
        for pod in self.pods_of(operands.MANAGER):
            if pod.get("status", {}).get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]:
                return f"{pod['metadata']['uid']} {self._boots}"
        return ""

    # Waiting

    def wait(self, condition: Callable[[], object], what: str, timeout: float = 60) -> None:
        """Until the condition is true."""

        def explained() -> str:
            return f"{what} on {self.name}; {CONFIG}={self.label(CONFIG)}, {STATE}={self.label(STATE)}"

        deadline = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"not within {timeout:g} s: {explained()}\n" + "\n".join(self.logged[-9:])
                )
            time.sleep(0.05)

    def until(self, state: str, timeout: float = 60) -> None:
        """Until MIG manager's state is this."""
        self.wait(lambda: self.label(STATE) == state, f"state {state}", timeout)

    def ended(self, state: str, config: str = "", timeout: float = 60) -> None:
        """Until MIG manager is done, with this configuration asked for, and has left this state."""
        wanted = config or self.label(CONFIG)
        self.wait(lambda: self.label(CONFIG) == wanted and self.manager.idle, "an idle MIG manager", timeout)
        self.wait(lambda: self.label(STATE) == state, f"state {state}", 1)

    def settled(self, config: str = "", timeout: float = 60) -> None:
        """Until the state is success, of this configuration, and operands, labels and capacity followed."""
        wanted = config or self.label(CONFIG)
        self.wait(lambda: self.label(CONFIG) == wanted and self.manager.idle, "an idle MIG manager", timeout)
        self.wait(lambda: self.label(STATE) == SUCCESS, "success", 1)
        self.wait(self.operands_run, "operands", timeout)
        self.wait(self.kubelet.settled, "capacity and labels", timeout)

    def operands_run(self) -> bool:
        """Whether every operand that the node's labels ask for runs."""
        wanted = {
            app for name, app in operands.DAEMON_SETS.items() if self.label(DEPLOY + name) == "true"
        } | ({operands.MANAGER} if self.label(f"{DEPLOY}mig-manager") == "true" else set())
        running = {
            pod["metadata"]["labels"].get("app")
            for pod in self.pods()
            if _runs(pod) and pod["metadata"].get("labels")
        }
        return wanted <= running

    def is_up(self) -> bool:
        """Whether it was started, and MIG manager on it has found everything as it should be."""
        return bool(self.boot_id) and self.manager.idle

    # What happens to it

    def write_labels(self, labels: Mapping[str, str | None], writer: str) -> None:
        """Patch labels as a program of this name."""
        self._patch("", {"metadata": {"labels": dict(labels)}}, writer)

    def offer(self, amounts: Amounts) -> None:
        """Let the kubelet report these amounts."""
        status = {
            "capacity": {name: str(has) for name, (has, _) in amounts.items()},
            "allocatable": {name: str(free) for name, (_, free) in amounts.items()},
        }
        self._patch("/status", {"status": status}, "kubelet")

    def delete_pods(self, app: str) -> None:
        """Delete an operand's pods on the node."""
        for pod in self.pods_of(app):
            self.world.api.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}")

    def restart_manager(self) -> None:
        """MIG manager's pod is deleted; its DaemonSet makes another."""
        old = self.manager_life()
        self.delete_pods(operands.MANAGER)
        self.wait(lambda: self.manager_life() not in ("", old), "another MIG manager")

    def remove_manager(self) -> None:
        """MIG manager goes, and stays away."""
        self.write_labels({f"{DEPLOY}mig-manager": "false"}, "gpu-operator")
        self.wait(lambda: not self.pods_of(operands.MANAGER), "MIG manager gone")

    def restore_manager(self) -> None:
        """MIG manager is deployed again."""
        self.write_labels({f"{DEPLOY}mig-manager": "true"}, "gpu-operator")
        self.wait(self.operands_run, "MIG manager")

    def stop_kubelet(self, reason: str = "Kubelet stopped posting node status.") -> None:
        """Not Ready from now on."""
        with self._lock:
            self.down = True
            self._patch("", {"metadata": {"annotations": {stages.KUBELET: stages.STOPPED}}}, "gpuctl-bed")
            self._condition("Unknown", "NodeStatusUnknown", reason, "kube-controller-manager")

    def start_kubelet(self) -> None:
        """Ready again, and its pods too."""
        with self._lock:
            self._revive(restarted=False)

    def reboot(self, seconds: float | None = None) -> None:
        """Down, without its pods being told; up with another boot id; instances gone. Returns when up."""
        self._rebooting.set()
        self._boots += 1
        self.stop_kubelet()
        self.clients.forget()
        self.alter(mig_parted.after_boot)
        self.world.stopped.wait(self.world.pace.boot * self.faults.slow if seconds is None else seconds)
        with suppress(ApiError):
            self._patch("/status", {"status": {"nodeInfo": {"bootID": str(uuid.uuid4())}}}, "kubelet")
            with self._lock:
                self._revive(restarted=True)
        self._rebooting.clear()

    def _condition(self, status: str, reason: str, message: str, writer: str) -> None:
        now = _now()
        ready = {
            "type": "Ready",
            "status": status,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        self._patch("/status", {"status": {"conditions": [ready]}}, writer, STRATEGIC)

    def _revive(self, *, restarted: bool) -> None:
        """Ready before kwok may see it again: its own way of making a node Ready forgets the addresses."""
        self._condition("True", "KubeletReady", "kubelet is posting ready status", "kubelet")
        self._patch("", {"metadata": {"annotations": {stages.KUBELET: None}}}, "gpuctl-bed")
        pods = self.world.api.items("/api/v1/pods", fieldSelector=f"spec.nodeName={self.name}")
        for pod in pods:
            self._revive_pod(pod, restarted=restarted)
        self.kubelet.restarted()
        self.down = False
        self.clients.caught_up(pods)

    def _revive_pod(self, pod: Object, *, restarted: bool) -> None:
        """The node controller has called it not ready; kwok never looks at it again."""
        status = pod.get("status", {})
        if status.get("phase") != "Running" or "deletionTimestamp" in pod["metadata"]:
            return
        now = _now()
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": now}
        body: dict[str, Any] = {"conditions": [ready]}
        if restarted:
            body["containerStatuses"] = [
                {
                    **each,
                    "ready": True,
                    "restartCount": each.get("restartCount", 0) + 1,
                    "state": {"running": {"startedAt": now}},
                }
                for each in status.get("containerStatuses", ())
            ]
        meta = pod["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/status"
        with suppress(ApiError):
            self.world.api.patch(path, {"status": body}, STRATEGIC, fieldManager="kubelet")

    def _patch(
        self, sub: str, body: Mapping[str, Any], writer: str, form: str = "application/merge-patch+json"
    ) -> None:
        path = f"/api/v1/nodes/{self.name}{sub}"
        self.world.nodes_seen.note(self.world.api.patch(path, body, form, fieldManager=writer))

    # Called by the world

    def heard(self, old: Object | None, new: Object | None) -> None:
        """The Node object has changed."""
        if new is not None:
            before = None if old is None else old["metadata"].get("labels", {}).get(CONFIG, "")
            self.manager.heard(before, new["metadata"].get("labels", {}).get(CONFIG, ""))

    def tick(self, pods: list[Object]) -> None:
        """Take plugin, discovery and kubelet on to now."""
        if self.seen is None or self.down:
            return
        own = [pod for pod in pods if pod["metadata"]["namespace"] == NAMESPACE]
        try:
            self.clients.kill(pods)
            self._let_run_commands(own)
            self.kubelet.tick(own)
        except ApiError as error:
            if error.status != NOT_FOUND:
                self.log(f"Error: {error}")

    def log(self, text: str) -> None:
        """MIG manager says something."""
        self.logged.append(text)
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        with self.log_file.open("a", encoding="utf-8") as file:
            file.write(f"{stamp} stdout F {text}\n")

    @property
    def log_file(self) -> Path:
        """What `kubectl logs` of MIG manager's pod shows."""
        return self.state_file.with_suffix(".mig-manager.log")

    def _let_run_commands(self, pods: list[Object]) -> None:
        """exec and logs in pods of MIG manager and of the driver that are new here."""
        for pod in pods:
            name, app = pod["metadata"]["name"], pod["metadata"].get("labels", {}).get("app")
            if name in self._told or app not in (operands.MANAGER, DRIVER):
                continue
            self._told.add(name)
            if app == DRIVER:
                self.world.declare("execs", self.world.nodes.exec(name, self.name))
                continue
            container = operands.MANAGER_CONTAINER
            self.world.declare("execs", self.world.nodes.exec(name, self.name, container))
            self.world.declare("logs", _logs(name, container, self.log_file))


@dataclass
class MigWorld:
    """The stand-ins of all its nodes, for as long as the `with` block lasts; then its nodes are gone."""

    nodes: SimulatedNodes
    pace: Pace = field(default_factory=Pace)
    stopped: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.bed = self.nodes.bed
        self.api = Api(self.bed.control_plane)
        self._nodes: dict[str, WorldNode] = {}
        self.nodes_seen = Mirror(self.api, "/api/v1/nodes", self._heard, labelSelector=MADE_FOR)
        self.pods_seen = Mirror(self.api, "/api/v1/pods", self._heard_of_pod)
        self._loop = threading.Thread(target=self._run, name="kubelets", daemon=True)

    @property
    def running(self) -> bool:
        return not self.stopped.is_set()

    def __enter__(self) -> Self:
        self.nodes_seen.start()
        self.pods_seen.start()
        self._loop.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.nodes.remove()

    def stop(self) -> None:
        """End all stand-ins; what they made stays as it is."""
        self.stopped.set()
        self.nodes_seen.stop()
        self.pods_seen.stop()
        for pod in self.pods_seen.all():
            node = self._nodes.get(pod["spec"].get("nodeName", ""))
            if node and pod["metadata"].get("annotations", {}).get(stages.SIGTERM) == stages.HEEDED:
                node.clients.mark(pod, None)
        self._loop.join(10)
        for node in self._nodes.values():
            node.manager.join()

    def add(self, *made: GpuNode, host_driver: bool = False, reboots: bool = False) -> list[WorldNode]:
        """Until the nodes are Ready and their operands run."""
        fitted = [_fitted(node, host_driver=host_driver, reboots=reboots) for node in made]
        self.nodes.add(*fitted)
        self._deploy()
        added = [WorldNode(self, node, host_driver=host_driver, reboots=reboots) for node in fitted]
        for node in added:
            node.wait(node.operands_run, "operands", 120)
        for node in added:
            node.kubelet.adopt((node.seen or {})["status"])
            boot = {"status": {"nodeInfo": {"bootID": str(uuid.uuid4())}}}
            self.api.patch(f"/api/v1/nodes/{node.name}/status", boot, fieldManager="kubelet")
            self._nodes[node.name] = node
            node.clients.caught_up(self._pods_on(node.name))
            node.manager.start()
        for node in added:
            node.wait(node.is_up, "MIG manager's first look")
        return added

    def node(self, name: str) -> WorldNode:
        """A node by name."""
        return self._nodes[name]

    def has(self, node: WorldNode) -> bool:
        """Whether it is the node of its name."""
        return self._nodes.get(node.name) is node

    def replace(self, made: GpuNode) -> WorldNode:
        """Delete the node of this name and make another: another uid, another machine."""
        old = self._nodes.pop(made.name)
        self.api.delete(f"/api/v1/nodes/{made.name}")
        for pod in self.api.items("/api/v1/pods", fieldSelector=f"spec.nodeName={made.name}"):
            meta = pod["metadata"]
            path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
            self.api.remove(path, meta["uid"])
        old.wait(lambda: old.seen is None and not old.pods(), "the old node gone")
        return self.add(made, host_driver=old.host_driver, reboots=old.reboots)[0]

    def config(self) -> str:
        """MIG manager's configurations, as its pods have them mounted."""
        path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{operands.CONFIG_MAP}"
        return str(self.api.get(path)["data"][operands.CONFIG_KEY])

    def declare(self, plural: str, item: Object) -> None:
        """Make an object of kwok's."""
        path = f"/apis/kwok.x-k8s.io/v1alpha1/namespaces/{NAMESPACE}/{plural}/{item['metadata']['name']}"
        self.api.apply(path, item)

    def _pods_on(self, name: str) -> list[Object]:
        return [pod for pod in self.pods_seen.all() if pod["spec"].get("nodeName") == name]

    def _deploy(self) -> None:
        items = [*operands.daemon_sets(IMAGE), operands.config_map()]
        listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        self.bed.kubectl("apply", "--server-side", "-f", "-", input=listed)

    def _heard(self, old: Object | None, new: Object | None) -> None:
        name = (new or old or {})["metadata"]["name"]
        if name in self._nodes:
            self._nodes[name].heard(old, new)

    def _heard_of_pod(self, old: Object | None, new: Object | None) -> None:
        pod = new or old or {}
        node = self._nodes.get(pod["spec"].get("nodeName", ""))
        if node is not None:
            node.clients.seen(pod, gone=new is None)

    def _run(self) -> None:
        while not self.stopped.wait(0.1):
            by_node: dict[str, list[Object]] = {}
            for pod in self.pods_seen.all():
                by_node.setdefault(pod["spec"].get("nodeName", ""), []).append(pod)
            for node in list(self._nodes.values()):
                node.tick(by_node.get(node.name, []))


def _fitted(node: GpuNode, *, host_driver: bool, reboots: bool) -> GpuNode:
    extra: dict[str, str | None] = {operands.REBOOTS: str(reboots).lower(), **node.extra}
    if host_driver:
        extra[DRIVER_LABEL] = "pre-installed"
    return replace(node, extra=extra)


def _logs(pod: str, container: str, file: Path) -> Object:
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Logs",
        "metadata": {"name": pod, "namespace": NAMESPACE},
        "spec": {"logs": [{"containers": [container], "logsFile": str(file)}]},
    }


def _is_operand(pod: Object, node: str) -> bool:
    return bool(pod["spec"].get("nodeName") == node and pod["metadata"]["namespace"] == NAMESPACE)


def _runs(pod: Object) -> bool:
    return pod.get("status", {}).get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
