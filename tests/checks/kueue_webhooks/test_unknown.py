"""What can't be read is unknown: never a pass, never a crash; and what strangers write stays data."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpuctl.audit.judge import Verdict
from gpuctl.checks.kueue_webhooks import CHECK
from gpuctl.facts.fact import Named, Objects, Within, graph
from gpuctl.facts.state import Reason, Unknown
from tests.builders.kueue import Cluster, healthy
from tests.checks.judging import judged_webhooks as judged

READS = sorted(
    {
        fact.view.of.resource
        for fact in graph(CHECK.needs)
        if isinstance(fact, Objects | Within | Named)
        and fact.view.of.plural not in ("localqueues", "secrets")
    }
)
# What each read is needed for, when nothing else is wrong.
NEEDED_FOR = {
    "apiservices.apiregistration.k8s.io": {"available-visibility"},
    "configmaps": {"one-certificate-owner", "reachable-service"},
    "customresourcedefinitions.apiextensions.k8s.io": {
        "usable-ca-bundles",
        "one-release",
        "converted-versions",
    },
    "deployments.apps": {"answering-manager", "one-release", "one-certificate-owner"},
    "endpointslices.discovery.k8s.io": {"answering-manager"},
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": {
        "usable-ca-bundles",
        "agreeing-ca-bundles",
    },
    "namespaces": {"free-own-namespace"},
    "pods": {"answering-manager", "one-release"},
    "services": {"reachable-service", "answering-manager"},
    "validatingwebhookconfigurations.admissionregistration.k8s.io": {"usable-ca-bundles", "closed-webhooks"},
}


def test_every_read_is_tried() -> None:
    assert sorted(NEEDED_FOR) == READS


@pytest.mark.parametrize("reason", [Reason.FORBIDDEN, Reason.TIMEOUT, Reason.MALFORMED, Reason.NOT_ASKED])
@pytest.mark.parametrize("resource", READS)
def test_what_is_not_read_is_unknown(resource: str, reason: Reason) -> None:
    verdicts = judged(healthy(), missing={resource: Unknown(reason, "no")})
    unknown = {name for name, verdict in verdicts.by_assertion.items() if verdict is Verdict.UNKNOWN}
    assert NEEDED_FOR[resource] <= unknown
    assert verdicts.verdict is Verdict.UNKNOWN
    assert verdicts.codes == []
    gaps = [gap for each in verdicts.judgements for gap in each.gaps]
    assert not any(gap.state.reason is Reason.INTERNAL for gap in gaps)


@pytest.mark.parametrize("resource", READS)
def test_a_finding_stays_whatever_else_is_not_read(resource: str) -> None:
    cluster = healthy()
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        for item in cluster.all(kind):
            for webhook in item["webhooks"]:
                webhook["clientConfig"].pop("caBundle", None)
    verdicts = judged(cluster, missing={resource: Unknown(Reason.FORBIDDEN, "no")})
    assert "KWH001" in verdicts.codes


def test_nothing_at_all_can_be_read() -> None:
    missing = dict.fromkeys([*READS, "localqueues.kueue.x-k8s.io"], Unknown(Reason.FORBIDDEN, "no"))
    verdicts = judged(healthy(), missing=missing)
    assert verdicts.verdict is Verdict.UNKNOWN
    assert Verdict.PASS not in verdicts.by_assertion.values()


def malformed_configuration(cluster: Cluster) -> None:
    cluster.one("MutatingWebhookConfiguration")["webhooks"] = "none"


def malformed_service(cluster: Cluster) -> None:
    cluster.one("Service", "kueue-webhook-service")["spec"] = 7


def malformed_deployment(cluster: Cluster) -> None:
    cluster.one("Deployment")["spec"]["replicas"] = "one"


def malformed_crd(cluster: Cluster) -> None:
    cluster.crd("cohorts")["spec"] = {}


@pytest.mark.parametrize(
    "spoil", [malformed_configuration, malformed_service, malformed_deployment, malformed_crd]
)
def test_a_malformed_object_is_unknown(spoil: Callable[[Cluster], None]) -> None:
    cluster = healthy()
    spoil(cluster)
    verdicts = judged(cluster)
    assert Verdict.UNKNOWN in verdicts.by_assertion.values()
    assert verdicts.verdict is not Verdict.PASS
    gaps = [gap for each in verdicts.judgements for gap in each.gaps]
    assert not any(gap.state.reason is Reason.INTERNAL for gap in gaps)


HOSTILE = ["[bold red]x[/]", "\x1b[2J\x1b]0;owned\x07", "a\nb; rm -rf /", "\u202egnp.exe", "$(reboot)`id`'\""]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_pass_through_as_data(name: str) -> None:
    cluster = healthy()
    item = cluster.one("MutatingWebhookConfiguration")
    item["metadata"]["name"] = name
    item["metadata"]["managedFields"][1]["manager"] = name
    for webhook in item["webhooks"]:
        webhook["clientConfig"]["caBundle"] = ""
    cluster.one("Deployment")["metadata"]["name"] = name
    cluster.one("Deployment")["status"] = {"conditions": [{"type": name, "status": "False", "reason": name}]}
    verdicts = judged(cluster)
    finding = verdicts.one("KWH001")
    assert finding.object.name == name
    assert name in finding.message
    assert any(name in each.observed for each in finding.evidence)
    gaps = [gap for each in verdicts.judgements for gap in each.gaps]
    assert not any(gap.state.reason is Reason.INTERNAL for gap in gaps)


def test_commands_quote_names() -> None:
    cluster = healthy()
    item = cluster.one("MutatingWebhookConfiguration")
    item["metadata"]["name"] = "x; reboot"
    item["webhooks"][0]["clientConfig"]["caBundle"] = ""
    assert "'x; reboot'" in judged(cluster).one("KWH001").look


def test_fingerprints_are_the_same_in_every_run() -> None:
    def prints() -> list[str]:
        cluster = healthy()
        cluster.one("Deployment")["spec"]["replicas"] = 0
        cluster.items.reverse()
        return [finding.fingerprint for finding in judged(cluster).findings]

    assert prints() == prints()
