"""The Service, the manager behind it, and one cause for all their symptoms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from gpuctl.audit.finding import Severity
from gpuctl.audit.judge import Verdict
from tests.builders.kueue import HELM, OLD, UPSTREAM, Cluster, Item, endpoints, healthy, service
from tests.checks.judging import FORBIDDEN, Verdicts
from tests.checks.judging import judged_webhooks as judged


def no_endpoints(cluster: Cluster) -> None:
    cluster.one("EndpointSlice")["endpoints"] = []


def unavailable(cluster: Cluster, ready: int = 0) -> None:
    status = cluster.one("Deployment")["status"]
    status |= {"readyReplicas": ready, "availableReplicas": ready}


def pod_status(cluster: Cluster, **status: object) -> None:
    """The manager's container is not ready, in this state."""
    no_endpoints(cluster)
    unavailable(cluster)
    pod = cluster.one("Pod")["status"]
    pod["conditions"] = [{"type": "Ready", "status": "False", "reason": "ContainersNotReady"}]
    pod["containerStatuses"][0] |= {"ready": False, **status}


def stopped() -> Cluster:
    cluster = healthy()
    cluster.one("Deployment")["spec"]["replicas"] = 0
    cluster.one("Deployment")["status"] = {}
    cluster.drop("Pod")
    no_endpoints(cluster)
    return cluster


def test_zero_replicas_are_one_cause_with_endpoints_as_evidence() -> None:
    finding = judged(stopped()).one("KWH041")
    assert judged(stopped()).codes == ["KWH041"]
    assert finding.object.name == "kueue-controller-manager"
    assert (
        "has zero replicas, so Service kueue-system/kueue-webhook-service has no endpoint" in finding.message
    )
    assert any("0 ready endpoints" in each.observed for each in finding.evidence)
    assert "scale deployment/kueue-controller-manager --replicas=1" in finding.remedy


def test_a_crash_loop() -> None:
    cluster = healthy()
    died = {"terminated": {"exitCode": 1, "reason": "Error", "message": "acquiring secret: not found"}}
    pod_status(cluster, restartCount=7, state={"waiting": {"reason": "CrashLoopBackOff"}}, lastState=died)
    finding = judged(cluster).one("KWH042")
    assert judged(cluster).codes == ["KWH042"]
    assert str(finding.object) == "Deployment kueue-system/kueue-controller-manager"
    assert finding.weight is Severity.ERROR
    assert "restarted 7 times, last exit 1 Error: acquiring secret: not found" in finding.evidence[0].observed
    assert "logs kueue-controller-manager-7d9f0 --previous" in finding.look


def test_a_crash_seen_between_two_starts() -> None:
    cluster = healthy()
    died = {"terminated": {"exitCode": 2, "reason": "Error"}}
    pod_status(cluster, restartCount=2, state={"running": {}}, lastState=died)
    assert judged(cluster).codes == ["KWH042"]


def test_a_few_restarts_long_ago_are_no_loop() -> None:
    cluster = healthy()
    died = {"terminated": {"exitCode": 2, "reason": "Error"}}
    cluster.one("Pod")["status"]["containerStatuses"][0] |= {"restartCount": 9, "lastState": died}
    assert judged(cluster).codes == []


def test_a_crash_loop_beside_a_ready_pod_is_a_warning() -> None:
    cluster = healthy(replace(UPSTREAM, replicas=2))
    unavailable(cluster, ready=1)
    pod = cluster.one("Pod", "kueue-controller-manager-7d9f1")["status"]
    pod["conditions"] = []
    pod["containerStatuses"][0] |= {
        "ready": False, "restartCount": 5, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
    }  # fmt: skip
    verdicts = judged(cluster)
    assert verdicts.codes == ["KWH042"]
    assert verdicts.one("KWH042").weight is Severity.WARNING
    assert "answered by other pods" in verdicts.one("KWH042").message


def test_a_pod_that_waits_beside_a_ready_one_is_a_warning() -> None:
    cluster = healthy(replace(UPSTREAM, replicas=2))
    unavailable(cluster, ready=1)
    assert judged(cluster).one("KWH045").weight is Severity.WARNING


def test_a_rollout_that_is_stuck() -> None:
    cluster = healthy()
    stuck = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    cluster.one("Deployment")["status"]["conditions"].append(stuck)
    finding = judged(cluster).one("KWH045")
    assert any("ProgressDeadlineExceeded" in each.observed for each in finding.evidence)


@pytest.mark.parametrize("reason", ["ContainerCreating", "ImagePullBackOff"])
def test_a_manager_that_is_not_ready_yet(reason: str) -> None:
    cluster = healthy()
    pod_status(cluster, state={"waiting": {"reason": reason}})
    finding = judged(cluster).one("KWH043")
    assert judged(cluster).codes == ["KWH043"]
    assert any(reason in each.observed for each in finding.evidence)
    assert "wait 30 to 90 s" in finding.remedy


def test_a_deployment_whose_pods_cannot_be_made() -> None:
    cluster = healthy()
    cluster.drop("Pod")
    no_endpoints(cluster)
    unavailable(cluster)
    cluster.one("Deployment")["status"]["conditions"] = [
        {"type": "Available", "status": "False", "reason": "MinimumReplicasUnavailable"}
    ]
    finding = judged(cluster).one("KWH043")
    assert any("MinimumReplicasUnavailable" in each.observed for each in finding.evidence)
    assert any("has no pod" in each.observed for each in finding.evidence)


def test_ready_pods_without_endpoints() -> None:
    cluster = healthy()
    no_endpoints(cluster)
    assert judged(cluster).codes == ["KWH044"]


def test_endpoints_that_are_not_ready() -> None:
    cluster = healthy()
    cluster.one("EndpointSlice")["endpoints"][0]["conditions"] = {"ready": False}
    assert judged(cluster).codes == ["KWH044"]


def test_an_endpoint_that_does_not_say_is_ready() -> None:
    cluster = healthy()
    cluster.one("EndpointSlice")["endpoints"][0]["conditions"] = {}
    assert judged(cluster).codes == []


def test_other_services_endpoints_do_not_count() -> None:
    cluster = healthy()
    cluster.one("EndpointSlice")["metadata"]["labels"]["kubernetes.io/service-name"] = "metrics"
    assert judged(cluster).codes == ["KWH044"]


def test_a_service_that_selects_no_deployment() -> None:
    cluster = healthy()
    cluster.drop("Deployment")
    cluster.drop("Pod")
    no_endpoints(cluster)
    assert judged(cluster).codes == ["KWH040"]


def test_a_manager_outside_of_the_cluster() -> None:
    cluster = healthy()
    cluster.drop("Deployment")
    cluster.drop("Pod")
    cluster.one("Service", "kueue-webhook-service")["spec"]["selector"] = {}
    assert judged(cluster).codes == []


def another_operator(item: Item) -> Item:
    spec = item["spec"]["template"]["spec"]
    container = {"name": "manager", "image": "example.com/other:v1", "ports": [{"containerPort": 8443}]}
    return item | {
        "metadata": item["metadata"] | {"name": "other"},
        "spec": item["spec"] | {
            "replicas": 0,
            "template": item["spec"]["template"] | {"spec": spec | {"containers": [container]}},
        },
    }  # fmt: skip


def test_another_operator_with_the_same_label_in_the_namespace() -> None:
    cluster = healthy()
    cluster.items.append(another_operator(cluster.one("Deployment")))
    assert judged(cluster).codes == []


def renamed(cluster: Cluster) -> None:
    cluster.one("Service", "kueue-webhook-service")["metadata"]["name"] = "renamed"


def test_a_renamed_service() -> None:
    cluster = healthy()
    renamed(cluster)
    verdicts = judged(cluster)
    finding = verdicts.one("KWH030")
    assert "30 webhooks and conversions call" in finding.message
    assert "does not exist" in finding.message
    assert any(each.source.name == "renamed" for each in finding.evidence)


def test_a_conversion_that_calls_another_service() -> None:
    cluster = healthy()
    client = cluster.crd("cohorts")["spec"]["conversion"]["webhook"]["clientConfig"]
    client["service"]["name"] = "old-webhook-service"
    finding = judged(cluster).one("KWH030")
    assert finding.object.name == "old-webhook-service"
    assert "cohorts can't be read or written" in finding.message


def test_webhooks_of_one_configuration_that_call_several_services() -> None:
    cluster = healthy()
    webhook = cluster.one("MutatingWebhookConfiguration")["webhooks"][0]
    webhook["clientConfig"]["service"]["namespace"] = "elsewhere"
    verdicts = judged(cluster)
    assert {"KWH034", "KWH031"} <= set(verdicts.codes)
    assert "namespace elsewhere does not exist" in verdicts.one("KWH031").message


def test_a_webhook_that_calls_a_url() -> None:
    cluster = healthy()
    client = cluster.one("MutatingWebhookConfiguration")["webhooks"][0]["clientConfig"]
    del client["service"]
    client["url"] = "https://172.17.0.1:9443/mutate-kueue-x-k8s-io-v1beta2-resourceflavor"
    verdicts = judged(cluster)
    assert "KWH033" in verdicts.codes
    assert "url https://172.17.0.1:9443" in verdicts.one("KWH033").evidence[0].observed


def removed(cluster: Cluster) -> None:
    """The namespace was deleted with all in it."""
    for kind in ("Deployment", "Pod", "Service", "EndpointSlice", "ConfigMap"):
        cluster.drop(kind)
    cluster.drop("Namespace", cluster.shape.namespace)


def test_what_a_removed_kueue_left() -> None:
    cluster = healthy()
    removed(cluster)
    cluster.drop("APIService")
    verdicts = judged(cluster)
    assert verdicts.codes == ["KWH031"]
    assert "namespace kueue-system does not exist" in verdicts.one("KWH031").message
    assert verdicts.by_assertion["answering-manager"] is Verdict.NOT_APPLICABLE


def test_crds_left_by_openshifts_operator() -> None:
    cluster = healthy()
    for kind in ("Deployment", "Pod", "Service", "EndpointSlice", "ConfigMap", "APIService"):
        cluster.drop(kind)
    cluster.drop("MutatingWebhookConfiguration")
    cluster.drop("ValidatingWebhookConfiguration")
    finding = judged(cluster).one("KWH031")
    assert "nothing in namespace kueue-system runs Kueue" in finding.message
    assert "can't be read or written in versions other than the stored one" in finding.message


def test_crds_without_webhooks_or_manager() -> None:
    cluster = healthy(OLD)
    removed(cluster)
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "APIService"):
        cluster.drop(kind)
    verdicts = judged(cluster)
    assert verdicts.codes == ["KWH040"]
    assert verdicts.verdict is Verdict.FAIL


def test_a_deleted_configuration() -> None:
    cluster = healthy()
    cluster.drop("MutatingWebhookConfiguration")
    verdicts = judged(cluster)
    assert verdicts.codes == ["KWH046"]
    assert "sends mresourceflavor.kb.io to Service" in verdicts.one("KWH046").message


def test_conversions_that_call_another_service_than_the_webhooks() -> None:
    cluster = healthy()
    cluster.items.append(service(cluster.shape, "other-webhook-service", 443, 9443))
    slices = endpoints(cluster.shape, "other-webhook-service", 9443)
    cluster.items.append(slices)
    for plural in ("cohorts", "localqueues"):
        client = cluster.crd(plural)["spec"]["conversion"]["webhook"]["clientConfig"]
        client["service"]["name"] = "other-webhook-service"
    assert judged(cluster).codes == ["KWH022"]


def test_a_port_that_the_service_lacks() -> None:
    cluster = healthy()
    cluster.one("Service", "kueue-webhook-service")["spec"]["ports"] = [{"port": 8443, "targetPort": 9443}]
    assert "call port 443 of Service" in judged(cluster).one("KWH032").message


def test_a_port_that_leads_elsewhere() -> None:
    cluster = healthy()
    cluster.one("Service", "kueue-webhook-service")["spec"]["ports"][0]["targetPort"] = 8443
    finding = judged(cluster).one("KWH032")
    assert (
        "leads to 8443 of Deployment kueue-system/kueue-controller-manager, which listens on 9443"
        in finding.message
    )


def test_a_port_by_name_and_a_port_that_the_manager_was_told() -> None:
    cluster = healthy()
    ports = cluster.one("Service", "kueue-webhook-service")["spec"]["ports"]
    ports[0]["targetPort"] = "webhook-server"
    assert judged(cluster).codes == []
    data = cluster.one("ConfigMap")["data"]
    data["controller_manager_config.yaml"] = data["controller_manager_config.yaml"].replace("9443", "9444")
    assert judged(cluster).codes == ["KWH032"]
    ports[0]["targetPort"] = 9444
    assert judged(cluster).codes == []


def without(cluster: Cluster, kind: str) -> Verdicts:
    return judged(cluster, missing={kind: FORBIDDEN})


HIDDEN: dict[str, Callable[[], Cluster]] = {"pods": stopped, "endpointslices.discovery.k8s.io": stopped}


@pytest.mark.parametrize("kind", HIDDEN)
def test_a_cause_is_found_without_what_is_forbidden(kind: str) -> None:
    verdicts = without(HIDDEN[kind](), kind)
    assert "KWH041" in verdicts.codes


def test_helms_names_are_found_by_rule() -> None:
    cluster = healthy(HELM)
    cluster.one("Deployment")["spec"]["replicas"] = 0
    finding = judged(cluster).one("KWH041")
    assert str(finding.object) == "Deployment batch-system/prod-kueue-controller-manager"
