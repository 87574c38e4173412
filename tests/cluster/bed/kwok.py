"""kwok: simulates the nodes that are annotated `kwok.x-k8s.io/node: fake`, and the pods on them.

exec on such a node runs the asked command in the bed's machine, found in the folder of stand-ins first;
objects `Exec` and `Logs` (and `ClusterExec`, `ClusterLogs`) say with which environment, and which file
is the log.
"""

from dataclasses import dataclass

from . import build, stages
from .control_plane import ADMINS, ControlPlane
from .kubectl import Kubectl
from .machine import Machine, Process
from .network import SIMULATED_PODS

MODULE = "sigs.k8s.io/kwok"
FAKE = "kwok.x-k8s.io/node=fake"
PORT = 10247
KINDS = {"Exec": "execs", "ClusterExec": "clusterexecs", "Logs": "logs", "ClusterLogs": "clusterlogs"}


@dataclass(frozen=True)
class Kwok:
    """The bed's kwok."""

    machine: Machine
    control_plane: ControlPlane
    kubectl: Kubectl

    def start(self) -> Process:
        """Until it has been started; nodes that are there later are found then."""
        source = build.source("kwok", MODULE) / "kustomize"
        crds = [f"{source}/crd/bases/kwok.x-k8s.io_{plural}.yaml" for plural in KINDS.values()]
        self.kubectl("apply", "--server-side", *(f"--filename={crd}" for crd in crds))
        self.kubectl("wait", "--for=condition=Established", *(f"--filename={crd}" for crd in crds))
        configs = [
            f"--config={stage}" for stage in stages.write(source / "stage", self.machine.folder / "kwok")
        ]
        command = (str(build.KWOK.binary()), *configs, *self._flags())
        path = f"{self.machine.standins}:/usr/local/bin:/usr/bin:/bin"
        return self.machine.start("kwok", command, {"PATH": path})

    def _flags(self) -> list[str]:
        trust, address = self.control_plane.trust, self.control_plane.link.inside
        serving = trust.cluster.server(trust.folder, "kwok", (address,))
        flags = {
            "kubeconfig": self.control_plane.identity("kwok-client", "kwok", ADMINS),
            "manage-all-nodes": "false",
            "manage-nodes-with-annotation-selector": FAKE,
            "node-lease-duration-seconds": 40,
            "cidr": SIMULATED_PODS,
            "server-address": f"{address}:{PORT}",
            "node-ip": address,
            "node-port": PORT,
            "tls-cert-file": serving.certificate,
            "tls-private-key-file": serving.key,
            "enable-crds": ",".join(KINDS),
        }
        return [f"--{name}={value}" for name, value in flags.items()]
