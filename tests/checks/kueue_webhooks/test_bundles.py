"""What is wrong with caBundles, and the same bundles a little different, with which nothing is."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuctl.audit.finding import Severity
from gpuctl.audit.judge import Verdict
from tests.builders.certificates import DAY, MADE, bundle, leaf, pem, rotators_ca
from tests.builders.kueue import HELM, OPENSHIFT, UPSTREAM, Cluster, Shape, healthy, written
from tests.checks.judging import FORBIDDEN
from tests.checks.judging import judged_webhooks as judged
from tests.memory import A_MOMENT

GOOD = rotators_ca(1)
MUTATING = "MutatingWebhookConfiguration"
VALIDATING = "ValidatingWebhookConfiguration"


def set_bundles(cluster: Cluster, kind: str, text: str | None, first: int | None = None) -> None:
    """Writes the caBundles of a kind; None takes them away."""
    for client in clients(cluster, kind)[:first]:
        if text is None:
            del client["caBundle"]
        else:
            client["caBundle"] = text


def clients(cluster: Cluster, kind: str) -> list[dict[str, Any]]:
    if kind == "CustomResourceDefinition":
        webhooks = [item["spec"]["conversion"].get("webhook") for item in cluster.all(kind)]
        return [webhook["clientConfig"] for webhook in webhooks if webhook]
    ours = (item for item in cluster.all(kind) if item["metadata"]["name"] != "someone-elses")
    return [webhook["clientConfig"] for item in ours for webhook in item["webhooks"]]


def everywhere(text: str, shape: Shape = UPSTREAM) -> Cluster:
    """A cluster in which all bundles are this one."""
    cluster = healthy(shape)
    for kind in (MUTATING, VALIDATING, "CustomResourceDefinition"):
        set_bundles(cluster, kind, text)
    return cluster


EMPTY = {"missing": None, "empty": "", "a newline": "Cg==", "blank": "  "}


@pytest.mark.parametrize("text", EMPTY.values(), ids=EMPTY)
def test_a_missing_bundle_is_one_finding_per_configuration(text: str | None) -> None:
    cluster = healthy()
    set_bundles(cluster, MUTATING, text)
    finding = judged(cluster).one("KWH001")
    assert finding.object.kind.kind == MUTATING
    assert "12 of 12 webhooks of MutatingWebhookConfiguration" in finding.message
    assert "no jobs, pods, deployments, statefulsets and" in finding.message
    assert "in 5 of 5 namespaces" in finding.message
    assert finding.weight is Severity.ERROR


def test_a_missing_bundle_of_a_crd_breaks_reads() -> None:
    cluster = healthy()
    cluster.crd("workloads")["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"] = ""
    finding = judged(cluster).one("KWH001")
    assert finding.message.startswith(
        "The conversion of CustomResourceDefinition workloads.kueue.x-k8s.io has no caBundle"
    )
    assert "workloads can't be read or written in v1beta1 (they are stored in v1beta2)" in finding.message


UNREADABLE = {
    "no base64": "%%%",
    "no PEM": base64.b64encode(b"hello").decode(),
    "cut in half": base64.b64encode(GOOD.encode()[: len(GOOD) // 2]).decode(),
    "cut inside": bundle(GOOD[:400] + "\n-----END CERTIFICATE-----\n"),
    "a key": bundle(pem(b"0123", "RSA PRIVATE KEY")),
    "garbage in PEM": bundle(pem(b"hello")),
}


@pytest.mark.parametrize("text", UNREADABLE.values(), ids=UNREADABLE)
def test_what_is_no_certificate_fails_at_once(text: str) -> None:
    cluster = healthy()
    set_bundles(cluster, VALIDATING, text, first=3)
    verdicts = judged(cluster)
    assert verdicts.codes == ["KWH002"]
    assert "3 of 13 webhooks of ValidatingWebhookConfiguration" in verdicts.one("KWH002").message


def test_a_whole_certificate_beside_a_damaged_one_is_a_warning() -> None:
    finding = judged(everywhere(bundle(GOOD, GOOD[:300]))).findings[0]
    assert (finding.code.id, finding.weight) == ("KWH002", Severity.WARNING)


def test_a_certificate_that_the_library_refuses_is_unknown_and_no_finding() -> None:
    cluster = healthy()
    set_bundles(cluster, MUTATING, bundle(pem(b"\x30\x03\x02\x01\x05")), first=1)
    verdicts = judged(cluster)
    assert verdicts.codes == []
    assert verdicts.by_assertion["usable-ca-bundles"] is Verdict.UNKNOWN
    assert verdicts.by_assertion["agreeing-ca-bundles"] is Verdict.UNKNOWN


DATED = {
    "expired": (rotators_ca(1, MADE - 400 * DAY, A_MOMENT - DAY), "KWH003"),
    "expires now": (rotators_ca(1, MADE, A_MOMENT), "KWH003"),
    "not yet valid": (rotators_ca(1, A_MOMENT + timedelta(hours=1), A_MOMENT + 900 * DAY), "KWH004"),
    "expires soon": (rotators_ca(1, MADE, A_MOMENT + 13 * DAY), "KWH006"),
    "expires later": (rotators_ca(1, MADE, A_MOMENT + 31 * DAY), None),
    "just made": (rotators_ca(1, A_MOMENT - timedelta(hours=1), A_MOMENT + 3650 * DAY), None),
}


@pytest.mark.parametrize(("ca", "code"), DATED.values(), ids=DATED)
def test_dates(ca: str, code: str | None) -> None:
    assert set(judged(everywhere(bundle(ca))).codes) == ({code} if code else set())


def test_a_leaf_in_the_place_of_the_ca() -> None:
    assert set(judged(everywhere(bundle(leaf(("elsewhere.example",))))).codes) == {"KWH005"}


def test_a_self_signed_leaf_is_its_own_ca() -> None:
    assert judged(everywhere(bundle(leaf((OPENSHIFT.dns_name,), self_signed=True)), OPENSHIFT)).codes == []


def test_several_certificates_are_a_warning_and_only_said_with_cert_manager() -> None:
    two = bundle(rotators_ca(1), rotators_ca(2))
    verdicts = judged(everywhere(two))
    assert {(each.code.id, each.weight) for each in verdicts.findings} == {("KWH007", Severity.WARNING)}
    injected = judged(everywhere(two, OPENSHIFT))
    assert {(each.code.id, each.weight) for each in injected.findings} == {("KWH007", Severity.INFO)}
    assert injected.verdict is Verdict.PASS


def test_the_same_certificate_twice_is_one() -> None:
    assert judged(everywhere(bundle(GOOD, GOOD))).codes == []


def test_an_expired_one_beside_a_valid_one_does_not_matter() -> None:
    both = bundle(rotators_ca(2, MADE - 400 * DAY, A_MOMENT - DAY), GOOD)
    assert set(judged(everywhere(both)).codes) == {"KWH007"}


def test_an_older_ca_of_the_same_name_in_one_webhook() -> None:
    cluster = healthy()
    older = rotators_ca(2, MADE - 300 * DAY)
    set_bundles(cluster, MUTATING, bundle(older), first=1)
    finding = judged(cluster).one("KWH010")
    assert finding.object.name == "kueue-mutating-webhook-configuration"
    assert "1 of 12 webhooks" in finding.message
    assert "the other 29 places" in finding.message
    set_bundles(cluster, MUTATING, bundle(GOOD), first=1)
    assert judged(cluster).codes == []


def test_the_same_key_in_another_certificate_is_the_same_ca() -> None:
    cluster = healthy()
    set_bundles(cluster, VALIDATING, bundle(rotators_ca(1, MADE - DAY)))
    assert judged(cluster).codes == []


def test_a_planned_change_trusts_both_cas_for_a_while() -> None:
    """One configuration trusts the old and the new, the others the old: every call works."""
    cluster = healthy()
    set_bundles(cluster, MUTATING, bundle(GOOD, rotators_ca(2)))
    assert "KWH010" not in judged(cluster).codes
    set_bundles(cluster, MUTATING, bundle(rotators_ca(2)))
    assert "KWH010" in judged(cluster).codes


def test_one_finding_for_each_configuration_that_differs() -> None:
    cluster = healthy()
    set_bundles(cluster, "CustomResourceDefinition", bundle(rotators_ca(2)))
    verdicts = judged(cluster)
    assert verdicts.codes == ["KWH010"] * 5
    assert len({finding.cause for finding in verdicts.findings}) == 1
    assert "localqueues can't be read or written in v1beta1" in verdicts.findings[2].message


def rewritten(seconds: int, by: str, *, shape: Shape = UPSTREAM, ca: str = rotators_ca(2)) -> Cluster:
    """One configuration has a new CA, written by somebody so many seconds ago."""
    cluster = healthy(shape)
    item = cluster.one(MUTATING)
    set_bundles(cluster, MUTATING, bundle(ca))
    fields = item["metadata"]["managedFields"][1]["fieldsV1"]
    item["metadata"]["managedFields"][1] = written(by, fields, A_MOMENT - timedelta(seconds=seconds))
    return cluster


def test_a_rotation_under_way_is_said_and_does_not_fail() -> None:
    verdicts = judged(rewritten(5, "kueue"))
    assert verdicts.codes == ["KWH011"]
    assert verdicts.verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("seconds", "by"), [(91, "kueue"), (-3600, "kueue"), (5, "kubectl-edit"), (5, "cert-manager-cainjector")]
)
def test_an_old_or_foreign_write_is_no_rotation(seconds: int, by: str) -> None:
    verdicts = judged(rewritten(seconds, by))
    assert "KWH010" in verdicts.codes
    assert verdicts.verdict is Verdict.FAIL


def test_a_bundle_by_hand_is_no_rotation_even_while_the_owner_writes() -> None:
    cluster = rewritten(5, "kueue")
    item = cluster.one(VALIDATING, "kueue-validating-webhook-configuration")
    item["metadata"]["managedFields"][1]["manager"] = "kubectl-patch"
    assert "KWH010" in judged(cluster).codes


def test_cert_managers_rotation() -> None:
    ca = leaf((OPENSHIFT.dns_name,), 2, self_signed=True)
    assert judged(rewritten(5, "cert-manager-cainjector", shape=OPENSHIFT, ca=ca)).codes == ["KWH011"]


@pytest.mark.parametrize("text", ["", "%%%"])
def test_an_empty_or_damaged_bundle_is_no_rotation(text: str) -> None:
    cluster = rewritten(5, "kueue")
    set_bundles(cluster, MUTATING, text)
    assert judged(cluster).verdict is Verdict.FAIL


def test_without_managed_fields_the_age_is_unknown_and_the_finding_stays() -> None:
    cluster = rewritten(5, "kueue")
    for item in cluster.items:
        item["metadata"].pop("managedFields", None)
    finding = judged(cluster).one("KWH010")
    assert any("its age is unknown" in each.observed for each in finding.evidence)


def test_who_wrote_it_and_when_is_evidence() -> None:
    cluster = rewritten(500, "helm")
    finding = judged(cluster).one("KWH010")
    assert any("last written by helm at 2026-11-30 09:51:40" in each.observed for each in finding.evidence)


def test_a_foreign_writer_of_a_good_bundle_is_only_said() -> None:
    verdicts = judged(rewritten(500, "helm", ca=GOOD))
    assert verdicts.codes == ["KWH012"]
    assert verdicts.verdict is Verdict.PASS


def test_without_namespaces_their_number_is_unknown_and_the_finding_stays() -> None:
    cluster = healthy()
    set_bundles(cluster, MUTATING, "")
    finding = judged(cluster, missing={"namespaces": FORBIDDEN}).one("KWH001")
    assert "number of namespaces unknown" in finding.message


def test_the_reach_follows_the_selectors() -> None:
    cluster = healthy()
    item = cluster.one(MUTATING)
    item["webhooks"] = [
        each for each in item["webhooks"] if each["name"] in {"mpod.kb.io", "mdeployment.kb.io"}
    ]
    for webhook in item["webhooks"]:
        webhook["clientConfig"]["caBundle"] = ""
    finding = judged(cluster).one("KWH001")
    assert "no pods, deployments can be created in 3 of 5 namespaces" in finding.message


def test_what_lets_everything_pass_refuses_nothing() -> None:
    cluster = healthy(HELM)
    item = cluster.one(MUTATING)
    item["webhooks"] = [each for each in item["webhooks"] if each["name"] == "mpod.kb.io"]
    item["webhooks"][0]["clientConfig"]["caBundle"] = ""
    assert "objects pass unchecked" in judged(cluster).one("KWH001").message


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300), st.sampled_from(["raw", "base64", "pem", "sequence"]))
def test_no_bytes_crash_it(data: bytes, clothes: str) -> None:
    dress: dict[str, Callable[[bytes], str]] = {
        "raw": lambda text: text.decode("latin-1"),
        "base64": lambda text: base64.b64encode(text).decode(),
        "pem": lambda text: bundle(pem(text)),
        "sequence": lambda text: bundle(pem(b"\x30\x82" + len(text).to_bytes(2, "big") + text)),
    }
    cluster = healthy()
    set_bundles(cluster, MUTATING, dress[clothes](data))
    verdicts = judged(cluster)
    gaps = [gap for each in verdicts.judgements for gap in each.gaps]
    assert not any(gap.state.reason == "internal-error" for gap in gaps)
    assert verdicts.by_assertion["usable-ca-bundles"] in {Verdict.FAIL, Verdict.UNKNOWN}
