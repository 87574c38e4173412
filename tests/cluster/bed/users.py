"""Users of the cluster who may do exactly what a test grants them."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .control_plane import ControlPlane
from .kubectl import Kubectl

Rule = Mapping[str, Any]  # a PolicyRule of RBAC, as in a manifest
GROUP = "rbac.authorization.k8s.io"
MADE_FOR = "gpuctl-bed/user"


@dataclass(frozen=True)
class Users:
    """Makes users, and takes their rights away again."""

    control_plane: ControlPlane
    kubectl: Kubectl

    def add(
        self, name: str, rules: Iterable[Rule] = (), namespaced: Mapping[str, Iterable[Rule]] | None = None
    ) -> Path:
        """A kubeconfig of this user, with these rights everywhere and those in single namespaces."""
        grants = [*_grant(name, "", rules)]
        for namespace, its_rules in (namespaced or {}).items():
            grants += _grant(name, namespace, its_rules)
        self.kubectl(
            "apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": grants})
        )
        return self.control_plane.kubeconfig(self._file(name), name)

    def remove(self, name: str) -> None:
        """Their rights and the kubeconfig; the certificate is good until the bed is gone, but for nothing."""
        kinds = "clusterroles,clusterrolebindings,roles,rolebindings"
        self.kubectl("delete", kinds, "--all-namespaces", "-l", f"{MADE_FOR}={name}", "--wait=false")
        self._file(name).unlink(missing_ok=True)

    def _file(self, name: str) -> Path:
        return self.control_plane.machine.folder / f"user-{name}.kubeconfig"


def _grant(user: str, namespace: str, rules: Iterable[Rule]) -> list[dict[str, Any]]:
    scope, kind = ({"namespace": namespace}, "Role") if namespace else ({}, "ClusterRole")
    about = {
        "apiVersion": f"{GROUP}/v1",
        "metadata": {"name": f"bed-{user}", "labels": {MADE_FOR: user}, **scope},
    }
    return [
        {**about, "kind": kind, "rules": [*rules]},
        {
            **about,
            "kind": f"{kind}Binding",
            "roleRef": {"apiGroup": GROUP, "kind": kind, "name": f"bed-{user}"},
            "subjects": [{"apiGroup": GROUP, "kind": "User", "name": user}],
        },
    ]
