"""A bed: a whole cluster on this machine, and what tests do with it."""

import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from . import build, images, kubeconfig, node, packages
from .audit import AuditLog
from .control_plane import ControlPlane, Trust
from .kubectl import Kubectl
from .kueue import Kueue
from .kwok import Kwok
from .machine import Machine
from .network import Link
from .node import Node
from .progress import say
from .users import Rule, Users
from .wait import wait

STANDINS = Path(__file__).parent.parent / "standins"


@dataclass(frozen=True)
class Bed:
    """The cluster in one folder. That is all it takes to find its parts, so any process can use it."""

    folder: Path

    @cached_property
    def machine(self) -> Machine:
        return Machine(self.folder)

    @cached_property
    def control_plane(self) -> ControlPlane:
        return ControlPlane(self.machine, Link(int(self.folder.name)), Trust(self.folder / "pki"))

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.folder / "kubeconfig"

    @property
    def server(self) -> str:
        return self.control_plane.server

    @property
    def logs(self) -> Path:
        """The folder of the components' logs."""
        return self.machine.logs

    @property
    def node(self) -> str:
        """The name of the node that runs real containers."""
        return node.NAME

    @property
    def host(self) -> Path:
        """The file system of that node, as its privileged pods see it: for state files of stand-ins."""
        return self.machine.root

    @cached_property
    def audit(self) -> AuditLog:
        return AuditLog(self.control_plane.audit_log)

    @cached_property
    def kubectl(self) -> Kubectl:
        """kubectl as the administrator: `bed.kubectl("get", "nodes")` gives what it printed."""
        return Kubectl(self.kubeconfig)

    @cached_property
    def kueue(self) -> Kueue:
        return Kueue(self.kubectl, self.folder / "kueue")

    @cached_property
    def users(self) -> Users:
        return Users(self.control_plane, self.kubectl)

    @cached_property
    def kwok(self) -> Kwok:
        return Kwok(self.machine, self.control_plane, self.kubectl)

    def user(
        self, name: str, rules: Iterable[Rule] = (), namespaced: Mapping[str, Iterable[Rule]] | None = None
    ) -> Path:
        """A kubeconfig of a user with exactly these rights."""
        return self.users.add(name, rules, namespaced)

    def gpu_capacity(self, name: str, resources: Mapping[str, int]) -> None:
        """Let a node offer these extended resources, as a device plugin would."""
        amounts = {resource: str(amount) for resource, amount in resources.items()}
        patch = json.dumps({"status": {"capacity": amounts, "allocatable": amounts}})
        self.kubectl("patch", "node", name, "--subresource=status", "--type=merge", "-p", patch)

    def wait(self, condition: Callable[[], object], timeout: float, what: str) -> None:
        """Until the condition is true."""
        wait(condition, timeout, what)

    def healthy(self) -> bool:
        """Whether a test can begin here."""
        return (
            self.machine.alive and self.control_plane.ready() and self._node_ready() and self.kueue.healthy()
        )

    def start(self, dies_with_starter: bool) -> None:
        """Bring everything up in the empty folder; what doesn't need each other starts side by side."""
        packages.ensure()
        build.ensure()
        say(f"starting a cluster in {self.folder}")
        self._install_standins()
        self.machine.boot(node.NAME, dies_with_starter)
        self.control_plane.link.connect(self.machine)
        trust = Trust.make(self.control_plane.trust.folder)
        kubeconfig.write(self.kubeconfig, self.server, trust.cluster.files.certificate, trust.admin)
        with ThreadPoolExecutor() as together:
            parts = (self.control_plane.start, self._start_runtime, self._render_kueue)
            for part in [together.submit(part) for part in parts]:
                part.result()
        say("the API server is ready")
        self._start_cluster()

    def _start_runtime(self) -> None:
        runtime = Node(self.machine, self.control_plane)
        runtime.start_containerd()
        runtime.load(images.images(build.KUEUE.binary()))

    def _render_kueue(self) -> None:
        self.kueue.folder.mkdir()
        self.kueue.render()

    def _start_cluster(self) -> None:
        Node(self.machine, self.control_plane).start_kubelet()
        self.kueue.apply()
        self.kwok.start()
        wait(self._node_ready, 60, "a Ready node")
        say("the node is Ready")
        self.kueue.wait_healthy()
        say("Kueue is healthy")

    def _install_standins(self) -> None:
        """Every script among the stand-ins, under the name of the command it stands in for."""
        self.machine.standins.mkdir(parents=True)
        for script in STANDINS.glob("*.py"):
            if script.read_text().startswith("#!"):
                command = self.machine.standins / script.stem.replace("_", "-")
                shutil.copyfile(script, command)
                command.chmod(0o755)

    def _node_ready(self) -> bool:
        condition = r'jsonpath={.status.conditions[?(@.type=="Ready")].status}'
        return self.kubectl("get", "node", node.NAME, "--ignore-not-found", "-o", condition) == "True"
