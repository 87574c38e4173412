"""A whole cluster with a healthy Kueue, as kubectl prints its objects."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from tests.builders.certificates import bundle, leaf, rotators_ca
from tests.memory import A_MOMENT, MemoryReader

Item = dict[str, Any]

WRITTEN = A_MOMENT - timedelta(days=2)
CRD_NAMES = {
    "admissionchecks": "AdmissionCheck",
    "clusterqueues": "ClusterQueue",
    "cohorts": "Cohort",
    "localqueues": "LocalQueue",
    "multikueueclusters": "MultiKueueCluster",
    "resourceflavors": "ResourceFlavor",
    "topologies": "Topology",
    "workloads": "Workload",
}
CONVERTED = ("localqueues", "clusterqueues", "workloads", "cohorts", "multikueueclusters")
INTEGRATIONS = {  # kind: group, version, plural, since
    "job": ("batch", "v1", "jobs", (0, 6)),
    "jobset": ("jobset.x-k8s.io", "v1alpha2", "jobsets", (0, 6)),
    "pod": ("", "v1", "pods", (0, 6)),
    "deployment": ("apps", "v1", "deployments", (0, 9)),
    "statefulset": ("apps", "v1", "statefulsets", (0, 9)),
    "pytorchjob": ("kubeflow.org", "v1", "pytorchjobs", (0, 6)),
    "raycluster": ("ray.io", "v1", "rayclusters", (0, 6)),
    "trainjob": ("trainer.kubeflow.org", "v1alpha1", "trainjobs", (0, 14)),
    "rayservice": ("ray.io", "v1", "rayservices", (0, 17)),
}
OWN = {"resourceflavor": "mv", "clusterqueue": "mv", "workload": "mv", "cohort": "v"}


@dataclass(frozen=True)
class Shape:
    """Which Kueue: its release, its names, and who owns its certificates."""

    release: tuple[int, int] = (0, 17)
    namespace: str = "kueue-system"
    name: str = "kueue"
    cert_manager: bool = False
    image: str = ""
    frameworks: tuple[str, ...] = ("batch/job", "pod", "deployment", "statefulset")
    replicas: int = 1

    @property
    def version(self) -> str:
        return "v1beta2" if self.release >= (0, 15) else "v1beta1"

    @property
    def service(self) -> str:
        return f"{self.name}-webhook-service"

    @property
    def the_image(self) -> str:
        return self.image or f"registry.k8s.io/kueue/kueue:v{self.release[0]}.{self.release[1]}.0"

    @property
    def dns_name(self) -> str:
        return f"{self.service}.{self.namespace}.svc"

    @property
    def ca(self) -> str:
        """The caBundle of everything."""
        if self.cert_manager:
            return bundle(leaf((self.dns_name, f"{self.dns_name}.cluster.local"), self_signed=True))
        return bundle(rotators_ca(1))


UPSTREAM = Shape()
OLD = Shape(release=(0, 14))
HELM = Shape(name="prod-kueue", namespace="batch-system", frameworks=("batch/job",))
OPENSHIFT = Shape(
    release=(0, 16),
    namespace="openshift-kueue-operator",
    cert_manager=True,
    image="registry.redhat.io/kueue/kueue-rhel9@sha256:0123456789abcdef",
)


@dataclass
class Cluster:
    """Objects that tests change, and a reader of them."""

    shape: Shape
    items: list[Item] = field(default_factory=list)

    def all(self, kind: str) -> Iterator[Item]:
        """The objects of a kind."""
        return (item for item in self.items if item["kind"] == kind)

    def one(self, kind: str, name: str = "") -> Item:
        """An object by its kind, and by its name where there are several."""
        found = [item for item in self.all(kind) if not name or item["metadata"]["name"] == name]
        assert len(found) == 1, f"{len(found)} {kind} {name}"
        return found[0]

    def crd(self, plural: str) -> Item:
        return self.one("CustomResourceDefinition", f"{plural}.kueue.x-k8s.io")

    def drop(self, kind: str, name: str = "") -> None:
        """Deletes the objects of a kind, or one of them."""
        self.items = [
            item for item in self.items if item["kind"] != kind or (name and item["metadata"]["name"] != name)
        ]

    def reader(self, **settings: Any) -> MemoryReader:
        """Reads what there is now; later changes do not reach it."""
        return MemoryReader(copy.deepcopy(self.items), **settings)


def healthy(shape: Shape = UPSTREAM) -> Cluster:
    """Everything in order."""
    return Cluster(
        shape,
        [
            *(namespace(name) for name in ("kube-system", "default", "team-a", "team-b", shape.namespace)),
            *crds(shape),
            configuration("Mutating", shape),
            configuration("Validating", shape),
            *others_webhooks(),
            service(shape, shape.service, 443, 9443),
            service(shape, f"{shape.name}-visibility-server", 443, 8082),
            endpoints(shape, shape.service, 9443),
            deployment(shape),
            *(pod(shape, number) for number in range(shape.replicas)),
            config_map(shape),
            *api_services(shape),
            *queues(shape),
        ],
    )


def namespace(name: str, **labels: str) -> Item:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name, **labels}},
        "status": {"phase": "Active"},
    }


def written(by: str, fields: Mapping[str, Any], at: Any = WRITTEN) -> Item:
    """One entry of managedFields."""
    return {
        "manager": by,
        "operation": "Update",
        "apiVersion": "v1",
        "time": f"{at:%Y-%m-%dT%H:%M:%SZ}",
        "fieldsType": "FieldsV1",
        "fieldsV1": dict(fields),
    }


def _metadata(name: str, shape: Shape, fields: Mapping[str, Any]) -> Item:
    owner = "cert-manager-cainjector" if shape.cert_manager else "kueue"
    annotations = (
        {"cert-manager.io/inject-ca-from": f"{shape.namespace}/webhook-cert"} if shape.cert_manager else {}
    )
    applied: Item = {"f:metadata": {"f:labels": {}}}
    return {
        "name": name,
        "annotations": annotations,
        "managedFields": [written("kubectl", applied), written(owner, fields)],
    }


def client(shape: Shape, path: str) -> Item:
    return {
        "caBundle": shape.ca,
        "service": {"name": shape.service, "namespace": shape.namespace, "path": path, "port": 443},
    }


def crds(shape: Shape) -> Iterator[Item]:
    for plural, kind in CRD_NAMES.items():
        yield crd(shape, plural, kind)


def crd(shape: Shape, plural: str, kind: str) -> Item:
    converts = shape.version == "v1beta2" and plural in CONVERTED
    names = ["v1beta1", "v1beta2"] if shape.version == "v1beta2" else ["v1beta1"]
    conversion: Item = {"strategy": "None"}
    if converts:
        webhook = {"clientConfig": client(shape, "/convert"), "conversionReviewVersions": ["v1"]}
        conversion = {"strategy": "Webhook", "webhook": webhook}
    owned: Item = {"f:spec": {"f:conversion": {"f:webhook": {"f:clientConfig": {"f:caBundle": {}}}}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": _metadata(f"{plural}.kueue.x-k8s.io", shape, owned if converts else {}),
        "spec": {
            "group": "kueue.x-k8s.io",
            "names": {"plural": plural, "kind": kind},
            "scope": "Namespaced" if plural in {"localqueues", "workloads"} else "Cluster",
            "versions": [{"name": name, "served": True, "storage": name == shape.version} for name in names],
            "conversion": conversion,
        },
    }


def configuration(which: str, shape: Shape) -> Item:
    """The Mutating or the Validating webhook configuration."""
    letter, verb = which[0].lower(), {"M": "mutate", "V": "validate"}[which[0]]
    hooks = [
        webhook(shape, f"{letter}{kind}.kb.io", f"/{verb}-kueue-x-k8s-io-{shape.version}-{kind}",
                ("kueue.x-k8s.io", shape.version, f"{kind}s"), letter)
        for kind, sides in OWN.items() if letter in sides and (kind != "cohort" or shape.release >= (0, 9))
    ]  # fmt: skip
    for kind, (group, version, plural, since) in INTEGRATIONS.items():
        if shape.release >= since:
            path = f"/{verb}-{group.replace('.', '-')}-{version}-{kind}"
            hooks.append(webhook(shape, f"{letter}{kind}.kb.io", path, (group, version, plural), letter))
    owned: Item = {f'k:{{"name":"{each["name"]}"}}': {"f:clientConfig": {"f:caBundle": {}}} for each in hooks}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{which}WebhookConfiguration",
        "metadata": _metadata(
            f"{shape.name}-{which.lower()}-webhook-configuration", shape, {"f:webhooks": owned}
        ),
        "webhooks": hooks,
    }


def webhook(shape: Shape, name: str, path: str, of: tuple[str, str, str], letter: str) -> Item:
    group, version, plural = of
    guarded = plural in {"pods", "deployments", "statefulsets"}
    off = guarded and plural[:-1] not in shape.frameworks
    excluded = {
        "matchExpressions": [
            {
                "key": "kubernetes.io/metadata.name",
                "operator": "NotIn",
                "values": ["kube-system", shape.namespace],
            }
        ]
    }
    return {
        "name": name,
        "clientConfig": client(shape, path),
        "rules": [
            {
                "apiGroups": [group],
                "apiVersions": [version],
                "operations": ["CREATE"] if letter == "m" else ["CREATE", "UPDATE"],
                "resources": [plural],
                "scope": "*",
            }
        ],
        "failurePolicy": "Ignore" if off else "Fail",
        "namespaceSelector": excluded if guarded else {},
        "objectSelector": {},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 10,
        "matchPolicy": "Equivalent",
    }


def others_webhooks() -> Iterator[Item]:
    """Another kubebuilder operator's: the suffix .kb.io says nothing."""
    yield {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "someone-elses"},
        "webhooks": [
            {
                "name": "vdatabase.kb.io",
                "clientConfig": {"service": {"name": "db", "namespace": "db-system", "path": "/validate-db"}},
                "rules": [],
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
        ],
    }


def service(shape: Shape, name: str, port: int, target: int) -> Item:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": shape.namespace},
        "spec": {
            "selector": {"control-plane": "controller-manager"},
            "ports": [{"port": port, "protocol": "TCP", "targetPort": target}],
        },
    }


def endpoints(shape: Shape, of: str, port: int) -> Item:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"{of}-x7k2p",
            "namespace": shape.namespace,
            "labels": {"kubernetes.io/service-name": of},
        },
        "addressType": "IPv4",
        "endpoints": [
            {"addresses": [f"10.88.0.{10 + number}"], "conditions": {"ready": True, "serving": True}}
            for number in range(shape.replicas)
        ],
        "ports": [{"name": "", "port": port, "protocol": "TCP"}],
    }


def _pod_spec(shape: Shape) -> Item:
    return {
        "containers": [
            {
                "name": "manager",
                "image": shape.the_image,
                "command": ["/manager"],
                "args": ["--config=/controller_manager_config.yaml", "--zap-log-level=2"],
                "ports": [
                    {"containerPort": 8082, "name": "visibility"},
                    {"containerPort": 9443, "name": "webhook-server"},
                ],
                "volumeMounts": [
                    {"name": "cert", "mountPath": "/tmp/k8s-webhook-server/serving-certs"},
                    {
                        "name": "manager-config",
                        "mountPath": "/controller_manager_config.yaml",
                        "subPath": "controller_manager_config.yaml",
                    },
                ],
            }
        ],
        "volumes": [
            {"name": "cert", "secret": {"secretName": f"{shape.name}-webhook-server-cert"}},
            {"name": "manager-config", "configMap": {"name": f"{shape.name}-manager-config"}},
        ],
    }


def deployment(shape: Shape) -> Item:
    labels = {"app.kubernetes.io/name": "kueue", "control-plane": "controller-manager"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": f"{shape.name}-controller-manager", "namespace": shape.namespace},
        "spec": {
            "replicas": shape.replicas,
            "selector": {"matchLabels": {"control-plane": "controller-manager"}},
            "template": {"metadata": {"labels": labels}, "spec": _pod_spec(shape)},
        },
        "status": {
            "replicas": shape.replicas,
            "readyReplicas": shape.replicas,
            "availableReplicas": shape.replicas,
            "updatedReplicas": shape.replicas,
            "conditions": [{"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable"}],
        },
    }


def pod(shape: Shape, number: int = 0) -> Item:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{shape.name}-controller-manager-7d9f{number}",
            "namespace": shape.namespace,
            "labels": {"app.kubernetes.io/name": "kueue", "control-plane": "controller-manager"},
        },
        "spec": {"nodeName": "node-1", **_pod_spec(shape)},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [
                {
                    "name": "manager",
                    "ready": True,
                    "restartCount": 0,
                    "state": {"running": {"startedAt": "2026-11-28T10:00:00Z"}},
                    "lastState": {},
                }
            ],
        },
    }


def config_map(shape: Shape) -> Item:
    lines = [
        "apiVersion: config.kueue.x-k8s.io/v1beta2",
        "kind: Configuration",
        "webhook:",
        "  port: 9443",
        "internalCertManagement:",
        f"  enable: {str(not shape.cert_manager).lower()}",
        f"  webhookServiceName: {shape.service}",
        f"  webhookSecretName: {shape.name}-webhook-server-cert",
        "integrations:",
        "  frameworks:",
        *(f'  - "{framework}"' for framework in shape.frameworks),
    ]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{shape.name}-manager-config", "namespace": shape.namespace},
        "data": {"controller_manager_config.yaml": "\n".join(lines)},
    }


def api_services(shape: Shape) -> Iterator[Item]:
    versions = ("v1beta1", "v1beta2") if shape.version == "v1beta2" else ("v1beta1",)
    for version in versions:
        tls: Item = {"caBundle": shape.ca} if shape.cert_manager else {"insecureSkipTLSVerify": True}
        yield {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": f"{version}.visibility.kueue.x-k8s.io"},
            "spec": {
                "group": "visibility.kueue.x-k8s.io",
                "version": version,
                "service": {"name": f"{shape.name}-visibility-server", "namespace": shape.namespace},
                **tls,
            },
            "status": {"conditions": [{"type": "Available", "status": "True", "reason": "Passed"}]},
        }
    yield {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": "v1.apps"},
        "spec": {"group": "apps", "version": "v1"},
        "status": {"conditions": [{"type": "Available", "status": "True", "reason": "Local"}]},
    }


def queues(shape: Shape) -> Iterator[Item]:
    versions = ("v1beta1", "v1beta2") if shape.version == "v1beta2" else ("v1beta1",)
    for version in versions:
        yield {
            "apiVersion": f"kueue.x-k8s.io/{version}",
            "kind": "LocalQueue",
            "metadata": {"name": "default", "namespace": "team-a"},
            "spec": {"clusterQueue": "main"},
        }
