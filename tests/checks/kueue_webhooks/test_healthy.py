"""A healthy Kueue, in every shape it comes in, raises nothing; without Kueue there is nothing to judge."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuctl.audit.catalogue import Catalogue, catalogue
from gpuctl.audit.judge import Verdict
from gpuctl.audit.policy import Policy
from gpuctl.audit.report import Source
from gpuctl.audit.run import Request, audit
from gpuctl.checks.kueue_webhooks import CHECK
from gpuctl.facts.fact import rules
from gpuctl.facts.state import Inapplicable, Known
from tests.builders.kueue import HELM, OLD, OPENSHIFT, UPSTREAM, Cluster, Shape, healthy, namespace
from tests.checks.judging import judged_webhooks as judged

SHAPES = {
    "upstream": UPSTREAM,
    "v0.14": OLD,
    "helm": HELM,
    "openshift": OPENSHIFT,
    "two replicas": replace(UPSTREAM, replicas=2),
    "a branch's image": replace(UPSTREAM, image="us-docker.pkg.dev/staging/kueue/kueue:main"),
    "v0.6": Shape(release=(0, 6)),
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_healthy_kueue_passes(shape: Shape) -> None:
    verdicts = judged(healthy(shape))
    assert verdicts.codes == []
    assert verdicts.verdict is Verdict.PASS
    assert Verdict.UNKNOWN not in verdicts.by_assertion.values()


def test_what_data_cannot_show_is_not_proven() -> None:
    assert judged(healthy()).by_assertion["verified-certificate"] is Verdict.NOT_PROVEN


def test_it_is_found_through_the_entry_point() -> None:
    assert CHECK in catalogue().checks


def test_no_kueue_at_all_is_not_applicable() -> None:
    cluster = healthy()
    for kind in ("CustomResourceDefinition", "MutatingWebhookConfiguration", "LocalQueue"):
        cluster.drop(kind)
    cluster.drop("ValidatingWebhookConfiguration", "kueue-validating-webhook-configuration")
    for version in ("v1beta1", "v1beta2"):
        cluster.drop("APIService", f"{version}.visibility.kueue.x-k8s.io")
    verdicts = judged(cluster)
    assert verdicts.verdict is Verdict.NOT_APPLICABLE
    assert verdicts.codes == []
    assert "there is no Kueue here" in verdicts.of("usable-ca-bundles").reason


def test_a_tenant_may_not_ask() -> None:
    outside = Inapplicable("outside of the namespace team-a")
    kinds = (
        "mutatingwebhookconfigurations.admissionregistration.k8s.io",
        "validatingwebhookconfigurations.admissionregistration.k8s.io",
        "customresourcedefinitions.apiextensions.k8s.io",
        "apiservices.apiregistration.k8s.io",
        "namespaces",
    )
    verdicts = judged(healthy(), missing=dict.fromkeys(kinds, outside))
    assert verdicts.verdict is Verdict.NOT_APPLICABLE


def test_an_empty_cluster_is_not_applicable() -> None:
    assert judged(Cluster(UPSTREAM, [namespace("default")])).verdict is Verdict.NOT_APPLICABLE


def test_two_installations_are_told_apart() -> None:
    cluster = healthy()
    second = healthy(HELM)
    names = {"kube-system", "default", "team-a", "team-b"}
    kinds = {"CustomResourceDefinition", "APIService", "LocalQueue"}
    cluster.items += [
        item for item in second.items if item["kind"] not in kinds and item["metadata"]["name"] not in names
    ]
    cluster.one("Deployment", "prod-kueue-controller-manager")["spec"]["replicas"] = 0
    verdicts = judged(cluster)
    assert verdicts.codes == ["KWH041"]
    assert verdicts.one("KWH041").object.namespace == "batch-system"
    assert isinstance(verdicts.learned, Known)
    assert [ref.namespace for ref, _ in verdicts.learned.value.known()] == ["batch-system", "kueue-system"]


def test_what_is_learned_of_an_installation() -> None:
    learned = judged(healthy(replace(HELM, replicas=2))).learned
    assert isinstance(learned, Known)
    ((ref, facts),) = learned.value.known()
    assert str(ref) == "Service batch-system/prod-kueue-webhook-service"
    assert facts["releases"] == ["v0.17"]
    assert facts["images"] == ["registry.k8s.io/kueue/kueue:v0.17.0"]
    assert (facts["replicas"], facts["readyReplicas"]) == (2, 2)
    assert facts["certificateOwner"] == "internal"
    assert len(facts["caFingerprints"]) == 1
    assert facts["caNotAfter"].year == 2036
    assert (facts["webhooks"], facts["conversions"]) == (25, 5)
    assert facts["servedVersions"] == ["v1beta1", "v1beta2"]


def test_the_permissions_are_to_read_and_to_try() -> None:
    needed = rules(*CHECK.needs)
    assert {rule.verb for rule in needed} == {"get", "list", "create"}
    assert {str(rule) for rule in needed if rule.verb == "create"} == {
        "create resourceflavors.kueue.x-k8s.io",
        "create workloads.kueue.x-k8s.io",
        "create jobs.batch",
        "create pods/portforward",
    }
    assert [str(rule) for rule in needed if rule.resource == "secrets"] == ["get secrets"]


def test_the_whole_report() -> None:
    cluster = healthy()
    cluster.one("Deployment")["spec"]["replicas"] = 0
    source = Source(kind="snapshot", name="memory")
    report = audit(Request(Catalogue((CHECK,)), Policy()), cluster.reader(), lambda: source)
    (check,) = report.checks
    assert (check.verdict, report.outcome.exit_code) == ("fail", 1)
    assert check.subjects[0].facts["replicas"] == 0
