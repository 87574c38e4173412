"""Kueue from its own manifests, its certificates managed by itself; and what breaks and mends it."""

import base64
import json
import re
import shutil
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from . import build, images
from .api import APPLY, JSON_PATCH, Api, ApiError, Object
from .kubectl import Kubectl
from .wait import TooLong, wait

MODULE = "sigs.k8s.io/kueue"
CONFIGURATIONS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
CRDS = "crds"
COLLECTIONS = {
    **{each: f"/apis/admissionregistration.k8s.io/v1/{each}" for each in CONFIGURATIONS},
    CRDS: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
}
API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
FLAVORS = "/apis/kueue.x-k8s.io/v1beta1/resourceflavors"  # not as they are stored: reading takes a conversion
AT_ONCE = 4  # objects of its manifests
CONVERSION = "/spec/conversion/webhook"
ROTATOR = "kueue"  # as managedFields names who writes the caBundles
KUEUES = "app.kubernetes.io/name=kueue"
MANAGER = "control-plane=controller-manager"
READING = ("get", "list", "watch")
CARRIERS_OF_BUNDLES = {"admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io"}
CRD_AS_TEXT = re.compile("^kind: CustomResourceDefinition$", re.MULTILINE)
LOOKS_EVERY = 0.5  # seconds
SLOW_TO_HEAL = 90  # seconds, after which the manager is started anew: on a busy machine a new pod takes 40

_CONTAINER = "/spec/template/spec/containers/0"
_DEPLOYMENT_PATCH = [
    {"op": "add", "path": "/spec/strategy", "value": {"type": "RollingUpdate"}},  # to be put right, too
    {"op": "replace", "path": f"{_CONTAINER}/image", "value": images.KUEUE},
    {"op": "replace", "path": f"{_CONTAINER}/imagePullPolicy", "value": "Never"},
    {"op": "replace", "path": f"{_CONTAINER}/readinessProbe/periodSeconds", "value": 1},  # less waiting
    # On a busy machine an answer may take longer than the usual second: that is not a manager that is down.
    {"op": "add", "path": f"{_CONTAINER}/readinessProbe/timeoutSeconds", "value": 10},
    {"op": "add", "path": f"{_CONTAINER}/livenessProbe/timeoutSeconds", "value": 10},
    # Nor is one that a test has stopped. Started anew while its rotator is frozen, it would never get ready.
    {"op": "add", "path": f"{_CONTAINER}/livenessProbe/failureThreshold", "value": 30},
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
    writers: frozenset[str]  # of the object's caBundles, as managedFields has them

    def is_right(self, authority: bytes) -> bool:
        """Whether it holds what the rotator would write, and the rotator wrote it."""
        return (self.value, self.writers) == (authority, frozenset({ROTATOR}))


@dataclass(frozen=True)
class Kueue:
    """The bed's Kueue."""

    kubectl: Kubectl
    api: Api
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
        """As it was, after whatever a test has done to it."""
        self._put_right()
        self.give_bundles_back()
        try:
            wait(self.healthy, SLOW_TO_HEAL, "Kueue's own healing", every=LOOKS_EVERY)
        except TooLong:
            self.restart()
            self.wait_healthy()

    def wait_healthy(self, timeout: float = 300) -> None:
        what = "a healthy Kueue: available, its caBundles its own and by its own hand, webhooks answering"
        wait(self.healthy, timeout, what, every=LOOKS_EVERY)

    def healthy(self) -> bool:
        """Available, every caBundle is its rotator's, and the API services and webhooks answer."""
        signs = (self._available, self._api_services_answer, self._webhooks_answer, self._bundles_agree)
        try:
            return all(sign() for sign in signs)
        except (ApiError, OSError):
            return False

    def bundles(self) -> list[Bundle]:
        """Every caBundle of its webhooks and its CRDs' conversions as it is now."""
        return [*self._admission_bundles(), *self._conversion_bundles()]

    def set_bundle(self, bundle: Bundle, value: bytes) -> None:
        """Write a caBundle; while Kueue may, it soon writes its own again (see freeze_rotator)."""
        self.set_bundles([bundle], value)

    def set_bundles(self, bundles: Iterable[Bundle], value: bytes, writer: str = "gpuctl-bed") -> None:
        """The same for many of them, those of an object at once."""
        encoded = base64.b64encode(value).decode()
        patches: dict[str, list[dict[str, str]]] = {}
        for each in bundles:
            step = {"op": "add", "path": f"{each.path}/caBundle", "value": encoded}
            patches.setdefault(f"{COLLECTIONS[each.resource]}/{each.name}", []).append(step)
        for path, steps in patches.items():
            self.api.patch(path, steps, JSON_PATCH, fieldManager=writer)

    def give_bundles_back(self) -> None:
        """Have every caBundle as its rotator would, and in its name. It would, too. But it waits longer each
        time that it was refused, and leaves what is right already, whoever wrote that."""
        if own := self._authority():
            wrong = [each for each in self.bundles() if not each.is_right(own)]
            for value in (own + b"\n", own):  # who writes what is there already does not become its writer
                self.set_bundles(wrong, value, ROTATOR)

    def freeze_rotator(self) -> None:
        """Take its right to write caBundles, so that a broken one stays as it is."""
        role = json.loads(self.kubectl("get", "clusterrole", self.cluster_role, "-o", "json"))
        for rule in role["rules"]:
            if CARRIERS_OF_BUNDLES & {*rule.get("apiGroups", ())}:
                rule["verbs"] = [verb for verb in rule["verbs"] if verb in READING]
        patch = json.dumps({"rules": role["rules"]})
        self.kubectl("patch", "clusterrole", self.cluster_role, "--type=merge", "-p", patch)
        # Who authorizes hears of it a moment later.
        as_it = f"--as=system:serviceaccount:{self.namespace}:{self.deployment}"
        asks = ("auth", "can-i", "update", CONFIGURATIONS[0], as_it)
        wait(lambda: self.kubectl(*asks, check=False).startswith("no"), 60, "its rotator without that right")

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

    @cached_property
    def _but_crds(self) -> list[Object]:
        """What the manifests have but CRDs, of which tests change nothing but caBundles: to put them anew is
        most of the work of the API server, which compiles all their rules each time."""
        parts = self.manifests.read_text().split("\n---\n")
        others = (each for each in parts if not CRD_AS_TEXT.search(each))
        return [yaml.load(each, yaml.CSafeLoader) for each in others]

    def _put_right(self) -> None:
        """As `apply` does, many at once."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for applied in [pool.submit(self._apply_one, each) for each in self._but_crds]:
                applied.result()

    def _apply_one(self, item: Object) -> None:
        self.api.patch(_path(item), item, APPLY, fieldManager="kubectl", force="true")

    def _authority(self) -> bytes:
        """The CA that it keeps; empty while there is none."""
        secret = self.api.get(f"/api/v1/namespaces/{self.namespace}/secrets/{self.secret}")
        return base64.b64decode(secret.get("data", {}).get("ca.crt", ""))

    def _available(self) -> bool:
        deployment = self.api.get(f"/apis/apps/v1/namespaces/{self.namespace}/deployments/{self.deployment}")
        wanted, status = deployment["spec"]["replicas"], deployment.get("status", {})
        counts = {status.get(count, 0) for count in ("replicas", "updatedReplicas", "availableReplicas")}
        current = bool(status.get("observedGeneration") == deployment["metadata"]["generation"])
        return current and wanted > 0 and counts == {wanted}

    def _bundles_agree(self) -> bool:
        own = self._authority()
        return bool(own) and {each.is_right(own) for each in self.bundles()} == {True}

    def _api_services_answer(self) -> bool:
        conditions = [
            {each["type"]: each["status"] for each in service.get("status", {}).get("conditions", ())}
            for service in self.api.items(API_SERVICES, labelSelector=KUEUES)
        ]
        return {each.get("Available") for each in conditions} == {"True"}

    def _webhooks_answer(self) -> bool:
        body = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ResourceFlavor"}
        self.api.post(FLAVORS, {**body, "metadata": {"name": "dry-run"}}, dryRun="All")
        return True

    def _admission_bundles(self) -> Iterator[Bundle]:
        for resource in CONFIGURATIONS:
            for configuration in self._own(resource):
                for index, webhook in enumerate(configuration.get("webhooks", ())):
                    yield _bundle(resource, configuration, f"/webhooks/{index}", webhook)

    def _conversion_bundles(self) -> Iterator[Bundle]:
        for crd in self._own(CRDS):
            if (conversion := crd["spec"].get("conversion", {})).get("strategy") == "Webhook":
                yield _bundle(CRDS, crd, CONVERSION, conversion["webhook"])

    def _own(self, resource: str) -> list[dict[str, Any]]:
        """Kueue's own objects of a cluster-wide kind."""
        return self.api.items(COLLECTIONS[resource], labelSelector=KUEUES)

    def _in_namespace(self, *arguments: str) -> str:
        return self.kubectl("-n", self.namespace, *arguments)


def _path(item: Object) -> str:
    """Where an object of the manifests is; the plurals of their kinds are regular."""
    version, namespace = str(item["apiVersion"]), item["metadata"].get("namespace")
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    place = f"/namespaces/{namespace}" if namespace else ""
    return f"{root}{place}/{item['kind'].lower()}s/{item['metadata']['name']}"


def _bundle(resource: str, holder: Object, path: str, webhook: Object) -> Bundle:
    meta, encoded = holder["metadata"], webhook.get("clientConfig", {}).get("caBundle", "")
    fields = ((each["manager"], json.dumps(each["fieldsV1"])) for each in meta["managedFields"])
    writers = frozenset(manager for manager, written in fields if "f:caBundle" in written)
    return Bundle(resource, meta["name"], f"{path}/clientConfig", base64.b64decode(encoded), writers)
