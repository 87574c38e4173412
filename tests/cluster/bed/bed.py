"""A bed: a whole cluster on this machine, and what tests do with it."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from . import node
from .api import Api
from .audit import AuditLog
from .control_plane import ControlPlane, Trust
from .kubectl import Kubectl
from .kueue import Kueue
from .kwok import Kwok
from .machine import Machine
from .network import Link
from .users import Rule, Users
from .wait import wait


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
        return Kueue(self.kubectl, Api(self.control_plane), self.folder / "kueue")

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
        signs = (self.control_plane.ready, self.node_ready, self.kueue.healthy)
        return self.machine.alive and all(sign() for sign in signs)

    def node_ready(self) -> bool:
        """Whether the kubelet says so."""
        condition = r'jsonpath={.status.conditions[?(@.type=="Ready")].status}'
        return self.kubectl("get", "node", node.NAME, "--ignore-not-found", "-o", condition) == "True"
