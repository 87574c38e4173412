"""Kueue from its own manifests, its certificates managed by itself; and what breaks and mends it."""

import base64
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from . import build, images
from .kubectl import Kubectl, KubectlError
from .wait import TooLong, wait

MODULE = "sigs.k8s.io/kueue"
CONFIGURATIONS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
CONVERSION = "/spec/conversion/webhook"
KUEUES = "app.kubernetes.io/name=kueue"
MANAGER = "control-plane=controller-manager"
READING = ("get", "list", "watch")
CARRIERS_OF_BUNDLES = {"admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io"}
SLOW_TO_HEAL = 30  # seconds, after which the manager is started anew

_CONTAINER = "/spec/template/spec/containers/0"
_DEPLOYMENT_PATCH = [
    {"op": "replace", "path": f"{_CONTAINER}/image", "value": images.KUEUE},
    {"op": "replace", "path": f"{_CONTAINER}/imagePullPolicy", "value": "Never"},
    {"op": "replace", "path": f"{_CONTAINER}/readinessProbe/periodSeconds", "value": 1},  # less waiting
    {"op": "replace", "path": f"{_CONTAINER}/resources/limits/memory", "value": "4Gi"},  # see load.py
]
OVERLAY = {
    "apiVersion": "kustomize.config.k8s.io/v1beta1",
    "kind": "Kustomization",
    "resources": ["config/default"],
    "patches": [{"target": {"kind": "Deployment"}, "patch": json.dumps(_DEPLOYMENT_PATCH)}],
}


@dataclass(frozen=True)
class Bundle:
    """A place that holds a caBundle: an object, and in it the path of the client configuration."""

    resource: str
    name: str
    path: str
    value: bytes


@dataclass(frozen=True)
class Kueue:
    """The bed's Kueue."""

    kubectl: Kubectl
    folder: Path
    namespace: str = "kueue-system"
    deployment: str = "kueue-controller-manager"
    service: str = "kueue-webhook-service"
    secret: str = "kueue-webhook-server-cert"
    cluster_role: str = "kueue-manager-role"

    @property
    def manifests(self) -> Path:
        return self.folder / "manifests.yaml"

    def render(self) -> None:
        """Kueue's own manifests, with the image that the bed has built; it needs no cluster."""
        self.folder.mkdir()
        source = build.source("kueue", MODULE) / "config"
        shutil.copytree(source, self.folder / "config", copy_function=shutil.copyfile)
        for copied in (self.folder, *self.folder.rglob("*")):
            copied.chmod(0o755 if copied.is_dir() else 0o644)  # a module's files are read-only
        (self.folder / "kustomization.yaml").write_text(yaml.safe_dump(OVERLAY))
        self.manifests.write_text(self.kubectl("kustomize", str(self.folder)))

    def apply(self) -> None:
        """Put every object as the manifests have it, whoever changed it since."""
        self.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(self.manifests))

    def restore(self) -> None:
        """Healthy again, after whatever a test has done to it."""
        self.apply()
        try:
            wait(self.healthy, SLOW_TO_HEAL, "Kueue's own healing")
        except TooLong:
            self.restart()
            self.wait_healthy()

    def wait_healthy(self, timeout: float = 180) -> None:
        wait(self.healthy, timeout, "a healthy Kueue: available, its caBundles its own, webhooks answering")

    def healthy(self) -> bool:
        """Available, every caBundle is its Secret's, and the API services and webhooks answer."""
        signs = (self._available, self._bundles_agree, self._api_services_answer, self._webhooks_answer)
        try:
            return all(sign() for sign in signs)
        except KubectlError:
            return False

    def bundles(self) -> list[Bundle]:
        """Every caBundle of its webhooks and its CRDs' conversions as it is now."""
        return [*self._admission_bundles(), *self._conversion_bundles()]

    def set_bundle(self, bundle: Bundle, value: bytes) -> None:
        """Write a caBundle; while Kueue may, it soon writes its own again (see freeze_rotator)."""
        encoded = base64.b64encode(value).decode()
        patch = [{"op": "add", "path": f"{bundle.path}/caBundle", "value": encoded}]
        self.kubectl("patch", bundle.resource, bundle.name, "--type=json", "-p", json.dumps(patch))

    def freeze_rotator(self) -> None:
        """Take its right to write caBundles, so that a broken one stays as it is."""
        role = json.loads(self.kubectl("get", "clusterrole", self.cluster_role, "-o", "json"))
        for rule in role["rules"]:
            if CARRIERS_OF_BUNDLES & {*rule.get("apiGroups", ())}:
                rule["verbs"] = [verb for verb in rule["verbs"] if verb in READING]
        patch = json.dumps({"rules": role["rules"]})
        self.kubectl("patch", "clusterrole", self.cluster_role, "--type=merge", "-p", patch)

    def scale(self, replicas: int) -> None:
        """Change the number of managers, and wait until there are that many pods."""
        self._in_namespace("scale", "deployment", self.deployment, f"--replicas={replicas}")
        wait(lambda: len(self.pods()) == replicas, 60, f"{replicas} pods of Kueue's manager")

    def restart(self) -> None:
        """Replace the manager's pods at once."""
        self._in_namespace("delete", "pods", "-l", MANAGER, "--now")

    def pods(self) -> list[str]:
        """The names of the manager's pods, those on their way out included."""
        names = self._in_namespace("get", "pods", "-l", MANAGER, "-o", "name")
        return [name.removeprefix("pod/") for name in names.split()]

    def _available(self) -> bool:
        deployment = json.loads(self._in_namespace("get", "deployment", self.deployment, "-o", "json"))
        wanted, status = deployment["spec"]["replicas"], deployment.get("status", {})
        counts = {status.get(count, 0) for count in ("replicas", "updatedReplicas", "availableReplicas")}
        current = status.get("observedGeneration") == deployment["metadata"]["generation"]
        return current and wanted > 0 and counts == {wanted}

    def _bundles_agree(self) -> bool:
        encoded = self._in_namespace("get", "secret", self.secret, "-o", r"jsonpath={.data.ca\.crt}")
        return bool(encoded) and {bundle.value for bundle in self.bundles()} == {base64.b64decode(encoded)}

    def _api_services_answer(self) -> bool:
        condition = r'jsonpath={.items[*].status.conditions[?(@.type=="Available")].status}'
        answers = self.kubectl("get", "apiservices", "-l", KUEUES, "-o", condition)
        return {*answers.split()} == {"True"}

    def _webhooks_answer(self) -> bool:
        about = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ResourceFlavor"}  # not as it is stored
        flavor = {**about, "metadata": {"name": "dry-run"}}
        self.kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(flavor))
        return True

    def _admission_bundles(self) -> Iterator[Bundle]:
        for resource in CONFIGURATIONS:
            for configuration in self._own(resource):
                name = configuration["metadata"]["name"]
                for index, webhook in enumerate(configuration.get("webhooks", ())):
                    yield _bundle(resource, name, f"/webhooks/{index}", webhook)

    def _conversion_bundles(self) -> Iterator[Bundle]:
        for crd in self._own("crds"):
            if (conversion := crd["spec"].get("conversion", {})).get("strategy") == "Webhook":
                yield _bundle("crds", crd["metadata"]["name"], CONVERSION, conversion["webhook"])

    def _own(self, resource: str) -> list[dict[str, Any]]:
        """Kueue's own objects of a cluster-wide kind."""
        listed = json.loads(self.kubectl("get", resource, "-l", KUEUES, "-o", "json"))
        return list(listed["items"])

    def _in_namespace(self, *arguments: str) -> str:
        return self.kubectl("-n", self.namespace, *arguments)


def _bundle(resource: str, name: str, path: str, webhook: dict[str, Any]) -> Bundle:
    encoded = webhook.get("clientConfig", {}).get("caBundle", "")
    return Bundle(resource, name, f"{path}/clientConfig", base64.b64decode(encoded))
