"""Certificate owners, releases, conversions, failure policies and selectors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpuctl.audit.judge import Verdict
from tests.builders.kueue import HELM, OLD, OPENSHIFT, UPSTREAM, Cluster, healthy
from tests.checks.judging import FORBIDDEN
from tests.checks.judging import judged_webhooks as judged

MUTATING = "MutatingWebhookConfiguration"
VALIDATING = "ValidatingWebhookConfiguration"


def configure(cluster: Cluster, old: str, new: str) -> None:
    """Changes the manager's configuration."""
    data = cluster.one("ConfigMap")["data"]
    assert old in data["controller_manager_config.yaml"]
    data["controller_manager_config.yaml"] = data["controller_manager_config.yaml"].replace(old, new)


def test_two_owners() -> None:
    cluster = healthy(OPENSHIFT)
    configure(cluster, "enable: false", "enable: true")
    finding = judged(cluster).one("KWH020")
    assert judged(cluster).codes == ["KWH020"]
    assert str(finding.object) == "ConfigMap openshift-kueue-operator/kueue-manager-config"
    assert "caBundles of 7 objects" in finding.message


def test_internal_management_is_the_default() -> None:
    cluster = healthy(OPENSHIFT)
    cluster.one("ConfigMap")["data"]["controller_manager_config.yaml"] = "kind: Configuration"
    assert "KWH020" in judged(cluster).codes


def test_no_owner() -> None:
    cluster = healthy()
    configure(cluster, "enable: true", "enable: false")
    verdicts = judged(cluster)
    assert verdicts.codes == ["KWH021"]


def test_the_configuration_is_found_by_the_deployments_volumes() -> None:
    cluster = healthy()
    configure(cluster, "enable: true", "enable: false")
    cluster.one("ConfigMap")["metadata"]["name"] = "kueue-config-v2"
    volumes = cluster.one("Deployment")["spec"]["template"]["spec"]["volumes"]
    volumes[1]["configMap"]["name"] = "kueue-config-v2"
    assert judged(cluster).codes == ["KWH021"]


def test_a_certificate_for_another_service() -> None:
    cluster = healthy()
    configure(cluster, "webhookServiceName: kueue-webhook-service", "webhookServiceName: q-webhook-service")
    assert "KWH022" in judged(cluster).codes


def test_a_configuration_whose_name_the_manager_does_not_derive() -> None:
    cluster = healthy()
    cluster.one(MUTATING)["metadata"]["name"] = "webhooks-of-kueue"
    finding = judged(cluster).one("KWH023")
    assert finding.object.name == "webhooks-of-kueue"


def test_names_before_they_were_derived() -> None:
    shape = replace(HELM, release=(0, 11))
    assert judged(healthy(shape)).codes == ["KWH023", "KWH023"]
    assert judged(healthy(replace(HELM, release=(0, 13)))).codes == []


def test_a_secret_that_is_not_mounted() -> None:
    cluster = healthy()
    configure(cluster, "webhookSecretName: kueue-webhook-server-cert", "webhookSecretName: webhook-certs")
    assert judged(cluster).codes == ["KWH024"]


def test_a_certificate_folder_that_is_not_mounted() -> None:
    cluster = healthy()
    configure(cluster, "  port: 9443", "  port: 9443\n  certDir: /certs")
    assert judged(cluster).codes == ["KWH024"]
    mounts = cluster.one("Deployment")["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]
    mounts[0]["mountPath"] = "/certs/"
    assert judged(cluster).codes == []


@pytest.mark.parametrize("text", ["{", "- a list", "webhook: 7", "integrations: {frameworks: pod}"])
def test_a_configuration_that_cannot_be_read_is_unknown(text: str) -> None:
    cluster = healthy()
    cluster.one("ConfigMap")["data"]["controller_manager_config.yaml"] = text
    verdicts = judged(cluster)
    assert verdicts.codes == []
    assert verdicts.by_assertion["one-certificate-owner"] is Verdict.UNKNOWN


def test_no_configuration_file_means_the_defaults() -> None:
    cluster = healthy()
    cluster.one("Deployment")["spec"]["template"]["spec"]["volumes"].pop()
    assert judged(cluster).codes == []


# Releases


def image(cluster: Cluster, text: str, *, pods: bool = True) -> None:
    specs = [cluster.one("Deployment")["spec"]["template"]["spec"]]
    specs += [item["spec"] for item in cluster.all("Pod")] if pods else []
    for spec in specs:
        spec["containers"][0]["image"] = text


def test_a_deployment_that_kept_its_image() -> None:
    cluster = healthy()
    image(cluster, "registry.k8s.io/kueue/kueue:v0.14.8")
    finding = judged(cluster).one("KWH050")
    assert judged(cluster).codes == ["KWH050"]
    seen = " ".join(each.observed for each in finding.evidence)
    assert "conversion webhooks exist since v0.15" in seen
    assert "exists since v0.17" in seen


def test_webhooks_and_crds_that_were_left_old() -> None:
    cluster = healthy(OLD)
    image(cluster, "registry.k8s.io/kueue/kueue:v0.17.0")
    finding = judged(cluster).one("KWH050")
    assert "its webhooks are for v1beta1, those of v0.17 for v1beta2" in [
        e.observed for e in finding.evidence
    ]


def test_webhooks_for_a_version_that_the_crds_lack() -> None:
    cluster = healthy(replace(UPSTREAM, image="kueue:main"))
    for item in healthy(OLD).all("CustomResourceDefinition"):
        cluster.drop("CustomResourceDefinition", item["metadata"]["name"])
        cluster.items.append(item)
    finding = judged(cluster).one("KWH050")
    assert any("serves v1beta1; its webhook is for v1beta2" in each.observed for each in finding.evidence)


def test_a_webhook_that_was_dropped() -> None:
    cluster = healthy()
    hook = cluster.one(VALIDATING, "kueue-validating-webhook-configuration")["webhooks"][-1]
    hook["name"] = "vmxjob.kb.io"
    assert any("dropped after v0.10" in each.observed for each in judged(cluster).one("KWH050").evidence)


def test_pods_that_were_not_restarted() -> None:
    cluster = healthy()
    image(cluster, "registry.k8s.io/kueue/kueue:v0.17.1", pods=False)
    finding = judged(cluster).one("KWH051")
    assert judged(cluster).codes == ["KWH051"]
    assert "1 of 1 pods of Deployment kueue-system/kueue-controller-manager still run" in finding.message


# Conversions


def test_conversion_that_is_off() -> None:
    cluster = healthy()
    cluster.crd("clusterqueues")["spec"]["conversion"] = {"strategy": "None"}
    finding = judged(cluster).one("KWH052")
    assert "clusterqueues.kueue.x-k8s.io serves v1beta1 beside v1beta2" in finding.message
    cluster.crd("clusterqueues")["spec"]["versions"][0]["served"] = False
    assert judged(cluster).codes == []


def test_conversion_by_another_path() -> None:
    cluster = healthy()
    cluster.crd("workloads")["spec"]["conversion"]["webhook"]["clientConfig"]["service"]["path"] = "/convertx"
    assert "workloads can't be read or written in v1beta1" in judged(cluster).one("KWH071").message


# failurePolicy


def loosen(cluster: Cluster, *names: str) -> None:
    for kind in (MUTATING, VALIDATING):
        for item in cluster.all(kind):
            for webhook in item["webhooks"]:
                if webhook["name"] in names:
                    webhook["failurePolicy"] = "Ignore"


def test_a_policy_loosened_by_hand() -> None:
    cluster = healthy()
    loosen(cluster, "vjob.kb.io", "vresourceflavor.kb.io")
    finding = judged(cluster).one("KWH060")
    assert "2 of 13 webhooks" in finding.message
    assert "vresourceflavor.kb.io, vjob.kb.io" in finding.message


def test_helm_ignores_what_is_off() -> None:
    assert judged(healthy(HELM)).codes == []


def test_ignoring_an_integration_that_is_on() -> None:
    cluster = healthy()
    loosen(cluster, "mpod.kb.io")
    assert judged(cluster).codes == ["KWH060"]


def test_without_the_configuration_only_these_are_unknown() -> None:
    hidden = {"configmaps": FORBIDDEN}
    verdicts = judged(healthy(HELM), missing=hidden)
    assert verdicts.by_assertion["closed-webhooks"] is Verdict.UNKNOWN
    assert judged(healthy(), missing=hidden).by_assertion["closed-webhooks"] is Verdict.PASS
    cluster = healthy(HELM)
    loosen(cluster, "mjob.kb.io")
    verdicts = judged(cluster, missing=hidden)
    assert verdicts.codes == ["KWH060"]
    assert verdicts.of("closed-webhooks").gaps


# Selectors


def selector(cluster: Cluster, name: str, selector: dict[str, Any]) -> None:
    for webhook in cluster.one(MUTATING)["webhooks"]:
        if webhook["name"] == name:
            webhook["namespaceSelector"] = selector


def test_a_webhook_that_blocks_its_own_manager() -> None:
    cluster = healthy()
    selector(cluster, "mpod.kb.io", {})
    verdicts = judged(cluster)
    assert verdicts.codes == ["KWH061", "KWH061"]
    assert {finding.mark for finding in verdicts.findings} == {"kueue-system", "kube-system"}
    selector(cluster, "mpod.kb.io", {"matchLabels": {"managed": "true"}})
    assert judged(cluster).codes == []


def test_an_object_selector_spares_the_others() -> None:
    cluster = healthy()
    selector(cluster, "mpod.kb.io", {})
    for webhook in cluster.one(MUTATING)["webhooks"]:
        webhook["objectSelector"] = {"matchExpressions": [{"key": "queue", "operator": "Exists"}]}
    assert judged(cluster).codes == []
