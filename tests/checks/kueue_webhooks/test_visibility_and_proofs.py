"""The visibility API, reads that take a conversion, and what a creation that is not stored proves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gpuctl.audit.judge import Verdict
from gpuctl.checks.kueue_webhooks import CHECK
from gpuctl.facts.kinds import Answer, Attempt, Kind, View
from gpuctl.facts.state import Inapplicable, Reason, State, Unknown
from gpuctl.kueue.objects import RESOURCE_FLAVOR, LocalQueueInNewVersion
from tests.builders.kueue import OPENSHIFT, Cluster, healthy
from tests.checks.judging import Verdicts, judged_by
from tests.checks.judging import judged_webhooks as judged
from tests.memory import A_MOMENT

NEWER = "v1beta2.visibility.kueue.x-k8s.io"


def dead(cluster: Cluster, reason: str = "FailedDiscoveryCheck") -> None:
    cluster.one("APIService", NEWER)["status"]["conditions"] = [
        {"type": "Available", "status": "False", "reason": reason, "message": "no response"}
    ]


def test_a_missing_bundle_is_normal() -> None:
    assert "caBundle" not in healthy().one("APIService", NEWER)["spec"]
    assert judged(healthy()).codes == []


def test_a_dead_visibility_api_blocks_namespaces() -> None:
    cluster = healthy()
    dead(cluster)
    finding = judged(cluster).one("KWH080")
    assert judged(cluster).codes == ["KWH080"]
    assert "namespaces are not deleted cluster-wide" in finding.message


def test_its_cause_is_the_managers_where_that_is_down() -> None:
    cluster = healthy()
    cluster.one("Deployment")["spec"]["replicas"] = 0
    dead(cluster, "MissingEndpoints")
    verdicts = judged(cluster)
    assert verdicts.one("KWH080").cause == verdicts.one("KWH041").cause
    assert "because Kueue's manager does not answer" in verdicts.one("KWH080").message


def test_a_visibility_api_left_by_a_removed_kueue() -> None:
    cluster = healthy()
    for kind in ("CustomResourceDefinition", "MutatingWebhookConfiguration", "LocalQueue", "Service"):
        cluster.drop(kind)
    cluster.drop("ValidatingWebhookConfiguration", "kueue-validating-webhook-configuration")
    cluster.drop("APIService", "v1beta1.visibility.kueue.x-k8s.io")
    dead(cluster, "ServiceNotFound")
    verdicts = judged(cluster)
    assert verdicts.codes == ["KWH080"]
    assert f"kubectl delete apiservice {NEWER}" in verdicts.one("KWH080").remedy


def test_where_certificates_are_verified_an_empty_bundle_is_a_fault() -> None:
    cluster = healthy(OPENSHIFT)
    cluster.one("APIService", NEWER)["spec"]["caBundle"] = ""
    assert judged(cluster).codes == ["KWH081"]


def test_an_api_service_without_a_condition_is_unknown() -> None:
    cluster = healthy()
    cluster.one("APIService", NEWER)["status"] = {}
    assert judged(cluster).by_assertion["available-visibility"] is Verdict.UNKNOWN


# Reads

FAILED = (
    "conversion webhook for kueue.x-k8s.io/v1beta1, Kind=LocalQueue failed: Post "
    '"https://kueue-webhook-service.kueue-system.svc:443/convert?timeout=30s": tls: failed to verify '
    "certificate: x509: certificate signed by unknown authority"
)
NOT_FOUND = (
    "conversion webhook for kueue.x-k8s.io/v1beta1, Kind=LocalQueue failed: the server could not find the "
    "requested resource"
)


def reads(gap: Unknown | Inapplicable) -> Verdicts:
    """Reads of LocalQueues that fail like this."""
    return judged(healthy(), missing={"localqueues.kueue.x-k8s.io": gap})


@pytest.mark.parametrize(("message", "why"), [(FAILED, "the caBundle is not"), (NOT_FOUND, "does not serve")])
def test_a_failing_conversion_is_a_finding_and_no_crash(message: str, why: str) -> None:
    verdicts = reads(Unknown(Reason.SERVER_ERROR, message))
    finding = verdicts.one("KWH070")
    assert finding.object.name == "localqueues.kueue.x-k8s.io"
    assert "can't be read in v1beta1 (they are stored in v1beta2)" in finding.message
    assert why in finding.message


@pytest.mark.parametrize(
    ("gap", "verdict"),
    [
        (Unknown(Reason.FORBIDDEN, "no"), Verdict.NOT_PROVEN),
        (Unknown(Reason.NOT_ASKED), Verdict.NOT_PROVEN),
        (Unknown(Reason.TIMEOUT), Verdict.UNKNOWN),
        (Unknown(Reason.SERVER_ERROR, "etcd is tired"), Verdict.UNKNOWN),
    ],
)
def test_other_failures_prove_nothing(gap: Unknown, verdict: Verdict) -> None:
    assert reads(gap).by_assertion["readable-versions"] is verdict


def test_the_version_that_is_stored_must_have_been_read_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """An API server that failed to list it let the assertion pass, on the strength of the other version."""
    reader = healthy().reader()
    read, gap = reader.objects, Unknown(Reason.SERVER_ERROR, "etcd is tired")

    def without_stored(kind: Kind, labels: str, views: Sequence[type[View]]) -> Sequence[State[Any]]:
        return [gap] * len(views) if kind == LocalQueueInNewVersion.of else read(kind, labels, views)

    monkeypatch.setattr(reader, "objects", without_stored)
    assert judged_by(CHECK, reader).by_assertion["readable-versions"] is Verdict.UNKNOWN


def test_reading_no_queue_takes_no_conversion() -> None:
    cluster = healthy()
    cluster.drop("LocalQueue")
    assert judged(cluster).by_assertion["readable-versions"] is Verdict.NOT_PROVEN


# Creations that are not stored

ATTEMPT = Attempt(RESOURCE_FLAVOR, "", {})
PREFIX = (
    'Internal error occurred: failed calling webhook "mresourceflavor.kb.io": failed to call webhook: '
    'Post "https://kueue-webhook-service.kueue-system.svc:443'
    '/mutate-kueue-x-k8s-io-v1beta2-resourceflavor?timeout=10s": '
)
X509 = "tls: failed to verify certificate: x509: "
BY_AN_OLDER_CA = (
    f'{X509}certificate signed by unknown authority (possibly because of "crypto/rsa: verification error" '
    'while trying to verify candidate authority certificate "kueue-ca")'
)


def tried(status: int, body: dict[str, Any]) -> Verdicts:
    return judged(healthy(), answers={ATTEMPT: Answer(A_MOMENT, 0.1, status, body)})


def failed(message: str, status: int = 500) -> Verdicts:
    return tried(status, {"kind": "Status", "status": "Failure", "message": message})


FAILURES = {
    "an unknown CA": (f"{X509}certificate signed by unknown authority", "KWH090"),
    "a stale CA": (BY_AN_OLDER_CA, "KWH090"),
    "expired": (f"{X509}certificate has expired or is not yet valid: current time … is after …", "KWH091"),
    "another name": (f"{X509}certificate is valid for a.b.svc, not c.d.svc", "KWH092"),
    "no endpoints": ('no endpoints available for service "kueue-webhook-service"', "KWH093"),
    "refused": ("dial tcp 10.96.15.9:443: connect: connection refused", "KWH093"),
    "firewall": ("context deadline exceeded", "KWH093"),
    "hanging process": ("net/http: TLS handshake timeout", "KWH093"),
    "no service": ('service "kueue-webhook-service" not found', "KWH093"),
    "404": ("the server could not find the requested resource", "KWH094"),
}


@pytest.mark.parametrize(("tail", "code"), FAILURES.values(), ids=FAILURES)
def test_what_a_failed_creation_proves(tail: str, code: str) -> None:
    verdicts = failed(PREFIX + tail)
    assert verdicts.codes == [code]
    assert verdicts.one(code).object.name == "kueue-webhook-service"
    assert verdicts.verdict is Verdict.FAIL


def test_a_stale_bundle_is_told_from_an_unknown_ca() -> None:
    assert "an older CA of the same name" in failed(PREFIX + BY_AN_OLDER_CA).one("KWH090").message


@pytest.mark.parametrize("others", [[], ["x"]])
def test_a_created_object_with_kueues_finalizer_proves_the_bundles(others: list[str]) -> None:
    finalizers = [*others, "kueue.x-k8s.io/resource-in-use"]
    verdicts = tried(201, {"metadata": {"name": "p", "finalizers": finalizers}})
    assert verdicts.by_assertion["verified-certificate"] is Verdict.PASS


@pytest.mark.parametrize(
    "metadata", [{}, {"finalizers": []}, {"finalizers": ["other"]}, {"finalizers": None}]
)
def test_without_the_finalizer_the_webhook_did_not_run(metadata: dict[str, Any]) -> None:
    assert tried(201, {"metadata": metadata}).codes == ["KWH095"]


def test_a_refusal_by_kueue_is_an_answer() -> None:
    message = 'admission webhook "vresourceflavor.kb.io" denied the request: nodeTaints invalid'
    assert failed(message, 403).by_assertion["verified-certificate"] is Verdict.PASS


CANNOT = 'resourceflavors is forbidden: User "u" cannot create resource "resourceflavors" in API group'
PROXY = "proxy error from localhost:9443 while dialing 10.0.0.1:9443, code 502: 502 Bad Gateway"
PERMISSION, OTHERS = "create resourceflavors.kueue.x-k8s.io", "policy.example.com"
NO_DRY_RUN = f'admission webhook "{OTHERS}" does not support dry run'
DENIED = f'admission webhook "{OTHERS}" denied the request: no'
OTHER_FAILS = f'failed calling webhook "{OTHERS}": failed to call webhook: EOF'
NOTHING = {
    "no permission": (403, CANNOT, Verdict.NOT_PROVEN, PERMISSION),
    "another's webhook has side effects": (400, NO_DRY_RUN, Verdict.NOT_PROVEN, OTHERS),
    "another's webhook denies": (403, DENIED, Verdict.NOT_PROVEN, OTHERS),
    "another's webhook fails": (500, OTHER_FAILS, Verdict.NOT_PROVEN, OTHERS),
    "EOF": (500, PREFIX + "EOF", Verdict.UNKNOWN, "may be restarting"),
    "reset": (500, PREFIX + "read: connection reset by peer", Verdict.UNKNOWN, "may be restarting"),
    "egress proxy": (500, PREFIX + PROXY, Verdict.UNKNOWN, "may be restarting"),
    "a schema error": (422, "ResourceFlavor is invalid", Verdict.UNKNOWN, "says nothing"),
    "a status without words": (500, "", Verdict.UNKNOWN, "says nothing"),
}


@pytest.mark.parametrize(("status", "message", "verdict", "names"), NOTHING.values(), ids=NOTHING)
def test_answers_that_prove_nothing(status: int, message: str, verdict: Verdict, names: str) -> None:
    judgement = failed(message, status).of("verified-certificate")
    assert (judgement.verdict, judgement.findings) == (verdict, ())
    assert names in judgement.reason
