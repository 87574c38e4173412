"""Incidents that people reported in public, as far as they gave data."""

from __future__ import annotations

from dataclasses import replace

from gpuctl.audit.judge import Verdict
from gpuctl.facts.kinds import Answer
from gpuctl.facts.state import Reason, Unknown
from tests.builders.kueue import OLD, UPSTREAM, Cluster, Shape, healthy
from tests.checks.judging import judged_webhooks as judged
from tests.checks.kueue_webhooks.test_manager import no_endpoints, pod_status, unavailable
from tests.checks.kueue_webhooks.test_owners_and_releases import configure, image, selector
from tests.checks.kueue_webhooks.test_visibility_and_proofs import ATTEMPT, dead
from tests.memory import A_MOMENT


def answered(cluster: Cluster, message: str) -> list[str]:
    """The codes when a creation was tried and failed like this."""
    body = {"message": f"Internal error occurred: {message}"}
    return judged(cluster, answers={ATTEMPT: Answer(A_MOMENT, 1.0, 500, body)}).codes


def call(tail: str, service: str = "kueue-webhook-service.kueue-system") -> str:
    path = "mutate-kueue-x-k8s-io-v1beta1-resourceflavor?timeout=10s"
    failed = 'failed calling webhook "mresourceflavor.kb.io": failed to call webhook: '
    return f'{failed}Post "https://{service}.svc:443/{path}": {tail}'


def test_622_no_well_formed_secret_on_a_private_control_plane() -> None:
    cluster = healthy(Shape(release=(0, 6)))
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        for item in cluster.all(kind):
            for webhook in item["webhooks"]:
                webhook["clientConfig"].pop("caBundle", None)
    assert judged(cluster).codes == ["KWH001", "KWH001"]
    assert answered(healthy(OLD), call("context deadline exceeded")) == ["KWH093"]


def test_5509_two_certificate_managers() -> None:
    shape = Shape(release=(0, 12), cert_manager=True)
    cluster = healthy(shape)
    configure(cluster, "enable: false", "enable: true")
    assert judged(cluster).codes == ["KWH020"]
    tail = "tls: failed to verify certificate: x509: certificate signed by unknown authority"
    assert answered(cluster, call(tail)) == ["KWH020", "KWH090"]


def test_7637_a_connection_that_breaks_is_no_verdict() -> None:
    body = {"message": f"Internal error occurred: {call('EOF')}"}
    verdicts = judged(healthy(), answers={ATTEMPT: Answer(A_MOMENT, 1.0, 500, body)})
    assert verdicts.codes == []
    assert verdicts.by_assertion["verified-certificate"] is Verdict.UNKNOWN


def test_marin_7220_a_partial_upgrade() -> None:
    cluster = healthy()
    image(cluster, "registry.k8s.io/kueue/kueue:v0.14.4")
    message = (
        "conversion webhook for kueue.x-k8s.io/v1beta1, Kind=LocalQueue failed: "
        "the server could not find the requested resource"
    )
    gap = Unknown(Reason.SERVER_ERROR, message)
    verdicts = judged(cluster, missing={"localqueues.kueue.x-k8s.io": gap})
    assert verdicts.codes == ["KWH050", "KWH070"]


def test_3794_another_namespace_without_endpoints() -> None:
    cluster = healthy(replace(OLD, namespace="mynamespace"))
    no_endpoints(cluster)
    unavailable(cluster)
    cluster.drop("Pod")
    assert judged(cluster).codes == ["KWH043"]
    tail = 'no endpoints available for service "kueue-webhook-service"'
    assert answered(cluster, call(tail, "kueue-webhook-service.mynamespace")) == ["KWH043", "KWH093"]


def test_4074_after_a_restart_of_everything() -> None:
    cluster = healthy()
    pod_status(cluster, state={"waiting": {"reason": "ContainerCreating"}})
    dead(cluster, "MissingEndpoints")
    verdicts = judged(cluster)
    assert verdicts.codes == ["KWH043", "KWH080"]
    assert len({finding.cause for finding in verdicts.findings}) == 1


def test_3150_a_webhook_that_blocks_its_own_deployment() -> None:
    cluster = healthy(replace(OLD, release=(0, 9)))
    selector(cluster, "mdeployment.kb.io", {})
    assert judged(cluster).codes == ["KWH061", "KWH061"]


def test_2987_a_webhook_that_the_binary_lacks() -> None:
    cluster = healthy()
    image(cluster, "registry.k8s.io/kueue/kueue:v0.16.2")
    assert judged(cluster).codes == ["KWH050"]
    assert answered(healthy(OLD), call("the server could not find the requested resource")) == ["KWH094"]


def test_12008_refused_just_after_available() -> None:
    tail = "dial tcp 10.96.15.9:443: connect: connection refused"
    assert answered(healthy(), call(tail)) == ["KWH093"]


def test_2073_a_replaced_pod() -> None:
    assert answered(healthy(), call("read tcp: connection reset by peer")) == []


def test_5430_the_certificate_folder() -> None:
    cluster = healthy()
    configure(cluster, "  port: 9443", "  port: 9443\n  certDir: /etc/kueue/certs")
    assert judged(cluster).codes == ["KWH024"]


def test_2087_another_secret_than_the_mounted_one() -> None:
    cluster = healthy(Shape(release=(0, 6)))
    volumes = cluster.one("Deployment")["spec"]["template"]["spec"]["volumes"]
    volumes[0]["secret"]["secretName"] = "webhook-server-cert"
    assert judged(cluster).codes == ["KWH024"]


def test_marin_6894_network_pods_of_a_new_node() -> None:
    cluster = healthy()
    selector(cluster, "mpod.kb.io", {"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]})
    assert {finding.mark for finding in judged(cluster).findings} == {"kube-system", "kueue-system"}


def test_6866_a_missing_secret() -> None:
    cluster = healthy()
    message = 'Could not run manager: acquiring secret to update certificates: Secret "x" not found'
    died = {"terminated": {"exitCode": 1, "reason": "Error", "message": message}}
    pod_status(cluster, restartCount=5, state={"waiting": {"reason": "CrashLoopBackOff"}}, lastState=died)
    finding = judged(cluster).one("KWH042")
    assert message in finding.evidence[0].observed
    assert "the manager fills it, but does not make it" in finding.remedy


def test_6918_a_helm_release_whose_configurations_are_never_injected() -> None:
    shape = Shape(release=(0, 11), name="test-kueue")
    assert judged(healthy(shape)).codes == ["KWH023", "KWH023"]
    assert judged(healthy(replace(UPSTREAM, name="test-kueue"))).codes == []
