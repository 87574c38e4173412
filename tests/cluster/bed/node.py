"""The real node: containerd and kubelet, as on any machine, but in this machine's own namespaces."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import yaml

from . import build, cgroups
from .control_plane import ControlPlane
from .images import PAUSE, Image
from .machine import Machine, Process
from .network import PODS
from .packages import CNI_PLUGINS
from .wait import wait

NAME = "gpu-worker-1"
SOCKET = "/run/containerd/containerd.sock"  # on the machine's own /run
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}

CONTAINERD = """\
version = 2
root = "{folder}/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt"]

[grpc]
address = "{socket}"

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
disable_apparmor = true
restrict_oom_score_adj = true  # lowering it takes CAP_SYS_RESOURCE, which root in a container lacks

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{plugins}"
conf_dir = "{folder}/cni"
"""

SIGNALS = ("memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available")


@dataclass(frozen=True)
class Node:
    """The node of a bed's cluster that runs real containers."""

    machine: Machine
    control_plane: ControlPlane

    @property
    def cgroup(self) -> str:
        """The cgroup that all its containers are under."""
        return self.control_plane.link.name

    def start_containerd(self) -> None:
        """Until it answers; it needs no API server."""
        folder = self.machine.folder
        file = folder / "containerd.toml"
        file.write_text(CONTAINERD.format(folder=folder, socket=SOCKET, pause=PAUSE, plugins=CNI_PLUGINS))
        self._write_network()
        containerd = self.machine.start("containerd", ("containerd", "--config", str(file)), ENVIRONMENT)
        wait(lambda: containerd.require_alive() and self._containerd_answers(), 120, "containerd's answer")

    def load(self, images: Sequence[Image]) -> None:
        """Put images where pods find them."""
        for image in images:
            archive = image.write(self.machine.folder / "image.tar")
            self._ctr("images", "import", str(archive))
            archive.unlink()

    def start_kubelet(self) -> Process:
        """Register the node."""
        cgroups.make(self.cgroup)
        (self.machine.logs / "pods").symlink_to(self.machine.root / "var/log/pods")
        file = self.machine.folder / "kubelet.yaml"
        file.write_text(yaml.safe_dump(self._kubelet_configuration()))
        identity = self.control_plane.identity("kubelet-client", f"system:node:{NAME}", ("system:nodes",))
        flags = {
            "config": file,
            "kubeconfig": identity,
            "node-ip": self.control_plane.link.inside,
            "hostname-override": NAME,
        }
        command = [str(build.KUBELET.binary()), *(f"--{name}={value}" for name, value in flags.items())]
        return self.machine.start("kubelet", command, ENVIRONMENT)

    def _kubelet_configuration(self) -> dict[str, object]:
        trust, folder = self.control_plane.trust, self.machine.folder
        serving = trust.cluster.server(trust.folder, "kubelet", (NAME, self.control_plane.link.inside))
        no_name_servers = folder / "resolv.conf"
        no_name_servers.touch()
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {"x509": {"clientCAFile": str(trust.cluster.files.certificate)}},
            "tlsCertFile": str(serving.certificate),
            "tlsPrivateKeyFile": str(serving.key),
            "containerRuntimeEndpoint": f"unix://{SOCKET}",
            "resolvConf": str(no_name_servers),
            "configMapAndSecretChangeDetectionStrategy": "Watch",
            "containerLogMonitorInterval": "3s",  # so often it looks whether a log is to be rotated
            "syncFrequency": "2s",  # so soon a changed Secret is in the pods that mount it
            "failSwapOn": False,
            "failCgroupV1": False,
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.cgroup}",
            "enforceNodeAllocatable": ["none"],
            "evictionHard": dict.fromkeys(SIGNALS, "0%"),  # never: the disk belongs to whoever runs the tests
            "imageGCHighThresholdPercent": 100,  # an image that is collected can't be pulled again
        }

    def _write_network(self) -> None:
        folder = self.machine.folder / "cni"
        folder.mkdir()
        bridge = {
            "type": "bridge",
            "bridge": "pods",
            "isGateway": True,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": PODS}]], "routes": [{"dst": "0.0.0.0/0"}]},
        }
        network = {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}
        (folder / "pods.conflist").write_text(json.dumps(network))

    def _containerd_answers(self) -> bool:
        try:
            self._ctr("version")
        except RuntimeError:
            return False
        return True

    def _ctr(self, *arguments: str) -> None:
        self.machine.run("ctr", "--address", SOCKET, "--namespace", "k8s.io", *arguments)
