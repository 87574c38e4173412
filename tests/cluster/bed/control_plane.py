"""etcd, API server, controller manager and scheduler, each an ordinary process of the machine."""

import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import yaml

from . import build, kubeconfig
from .certificates import Authority, Pair, key_pair
from .machine import Machine, Process
from .network import API_SERVICE, PODS, SERVICES, Link
from .wait import wait

ADMINS = ("system:masters",)
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


@dataclass(frozen=True)
class Trust:
    """Who vouches for whom: the files in the bed's folder pki/."""

    folder: Path

    @property
    def cluster(self) -> Authority:
        return Authority(Pair.at(self.folder, "cluster-ca"))

    @property
    def front_proxy(self) -> Authority:
        return Authority(Pair.at(self.folder, "front-proxy-ca"))

    @property
    def admin(self) -> Pair:
        return Pair.at(self.folder, "admin")

    @classmethod
    def make(cls, folder: Path) -> "Trust":
        folder.mkdir(parents=True)
        Authority.make(folder, "cluster-ca")
        Authority.make(folder, "front-proxy-ca")
        trust = cls(folder)
        trust.cluster.client(folder, "admin", ADMINS)
        return trust


@dataclass(frozen=True)
class ControlPlane:
    """The control plane of the cluster on this machine."""

    machine: Machine
    link: Link
    trust: Trust

    @property
    def server(self) -> str:
        return f"https://{self.link.inside}:443"

    @property
    def etcd(self) -> str:
        return f"http://{self.link.inside}:2379"

    @property
    def audit_log(self) -> Path:
        return self.machine.folder / "audit.log"

    def start(self) -> None:
        """Until the API server is ready and the controllers run: any sooner, they die on missing RBAC."""
        self._start_etcd()
        api_server = self._start_api_server()
        wait(lambda: api_server.require_alive() and self.ready(), 240, "a ready API server", every=0.1)
        self._start_controller("kube-controller-manager", build.CONTROLLER_MANAGER, self._controller_flags())
        self._start_controller("kube-scheduler", build.SCHEDULER, {})

    def ready(self) -> bool:
        """Whether /readyz answers 200. Its body says "ok" long before that."""
        trusting = ssl.create_default_context(cafile=str(self.trust.cluster.files.certificate))
        trusting.load_cert_chain(self.trust.admin.certificate, self.trust.admin.key)
        try:
            with urllib.request.urlopen(f"{self.server}/readyz", timeout=5, context=trusting) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def kubeconfig(self, file: Path, user: str, groups: tuple[str, ...] = ()) -> Path:
        """A kubeconfig of this user, who is in these groups."""
        pair = self.trust.cluster.client(self.trust.folder, user, groups, file=file.stem)
        return kubeconfig.write(file, self.server, self.trust.cluster.files.certificate, pair)

    def identity(self, file: str, user: str, groups: tuple[str, ...] = ()) -> Path:
        """A kubeconfig for a component, kept with its certificate."""
        return self.kubeconfig(self.trust.folder / f"{file}.kubeconfig", user, groups)

    def _start_etcd(self) -> Process:
        flags = {
            "data-dir": self.machine.folder / "etcd",
            "listen-client-urls": f"http://127.0.0.1:2379,{self.etcd}",
            "advertise-client-urls": "http://127.0.0.1:2379",
            "listen-peer-urls": "http://127.0.0.1:2380",
            "quota-backend-bytes": 4 << 30,
            "unsafe-no-fsync": "true",  # nothing here is to survive a power cut
            "log-level": "warn",
        }
        return self.machine.start("etcd", (str(build.ETCD.binary()), *_flags(flags)))

    def _start_api_server(self) -> Process:
        folder = self.machine.folder
        policy = folder / "audit-policy.yaml"
        policy.write_text(yaml.safe_dump(AUDIT_POLICY))
        flags = {
            "etcd-servers": "http://127.0.0.1:2379",
            "bind-address": "0.0.0.0",
            "secure-port": 443,
            "allow-privileged": "true",
            "advertise-address": self.link.inside,
            "service-cluster-ip-range": SERVICES,
            "endpoint-reconciler-type": "none",
            "authorization-mode": "Node,RBAC",
            "enable-aggregator-routing": "true",  # services resolve to endpoints here: no kube-proxy needed
            "kubelet-preferred-address-types": "InternalIP",
            "audit-policy-file": policy,
            "audit-log-path": self.audit_log,
            "audit-log-mode": "blocking",
            "audit-log-maxsize": 10_000,
            **self._api_server_certificates(),
        }
        return self.machine.start("kube-apiserver", (str(build.APISERVER.binary()), *_flags(flags)))

    def _api_server_certificates(self) -> dict[str, object]:
        folder, cluster = self.trust.folder, self.trust.cluster
        hosts = (self.link.inside, API_SERVICE, "127.0.0.1", "localhost", "kubernetes.default.svc")
        serving = cluster.server(folder, "kube-apiserver", hosts)
        kubelet_client = cluster.client(folder, "kube-apiserver-kubelet-client", ADMINS)
        proxy_client = self.trust.front_proxy.client(folder, "front-proxy-client")
        public, private = key_pair(folder, "service-accounts")
        return {
            "client-ca-file": cluster.files.certificate,
            "tls-cert-file": serving.certificate,
            "tls-private-key-file": serving.key,
            "kubelet-certificate-authority": cluster.files.certificate,
            "kubelet-client-certificate": kubelet_client.certificate,
            "kubelet-client-key": kubelet_client.key,
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": public,
            "service-account-signing-key-file": private,
            "requestheader-client-ca-file": self.trust.front_proxy.files.certificate,
            "requestheader-allowed-names": "front-proxy-client",
            "requestheader-username-headers": "X-Remote-User",
            "requestheader-group-headers": "X-Remote-Group",
            "requestheader-extra-headers-prefix": "X-Remote-Extra-",
            "proxy-client-cert-file": proxy_client.certificate,
            "proxy-client-key-file": proxy_client.key,
        }

    def _controller_flags(self) -> dict[str, object]:
        return {
            "root-ca-file": self.trust.cluster.files.certificate,
            "service-account-private-key-file": self.trust.folder / "service-accounts.key",
            "use-service-account-credentials": "true",
            "cluster-cidr": PODS,
            "kube-api-qps": 200,  # many simulated nodes at once are not to wait for its own throttle
            "kube-api-burst": 400,
        }

    def _start_controller(self, name: str, component: build.Component, flags: dict[str, object]) -> Process:
        identity = self.identity(name, f"system:{name}")
        common = {
            "kubeconfig": identity,
            "authentication-kubeconfig": identity,
            "authorization-kubeconfig": identity,
            "bind-address": "127.0.0.1",
            "leader-elect": "false",
        }
        return self.machine.start(name, (str(component.binary()), *_flags(common | flags)))


def _flags(values: dict[str, object]) -> list[str]:
    return [f"--{name}={value}" for name, value in values.items()]
