"""What is tried rather than looked at: rotations, failures that last, other kinds, handshakes, the Secret."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from gpuctl.audit.judge import Verdict
from gpuctl.checks.kueue_webhooks import CHECK
from gpuctl.facts.fact import Fact
from gpuctl.facts.gather import Facts, gather
from gpuctl.facts.kinds import Answer, Attempt
from gpuctl.facts.state import Known, Reason, State, Unknown
from gpuctl.facts.tls import Handshake
from gpuctl.kueue.objects import RESOURCE_FLAVOR, Job, Workload
from gpuctl.kueue.proofs import (
    DRY_RUN,
    a_resource_flavor_to_try,
    a_suspended_job_to_try,
    a_workload_to_try,
    webhook_secrets,
)
from tests.builders.certificates import bundle, leaf, rotators_ca
from tests.builders.kueue import Cluster, healthy
from tests.checks.judging import Verdicts
from tests.checks.judging import judged_webhooks as judged
from tests.memory import A_MOMENT

FLAVOR = Attempt(RESOURCE_FLAVOR, "", {})
PREFIX = 'Internal error occurred: failed calling webhook "{}": failed to call webhook: Post "https://x": '
UNKNOWN_CA = "tls: failed to verify certificate: x509: certificate signed by unknown authority"
RESET = "read: connection reset by peer"
SERVICE, NAME = "kueue-webhook-service", "kueue-webhook-service.kueue-system.svc"
CREATED = Answer(
    A_MOMENT,
    0.1,
    201,
    {"kind": "ResourceFlavor", "metadata": {"finalizers": ["kueue.x-k8s.io/resource-in-use"]}},
)


def failure(tail: str, hook: str = "mresourceflavor.kb.io", lasted: float = 0.0) -> Answer:
    body = {"kind": "Status", "message": PREFIX.format(hook) + tail}
    return Answer(A_MOMENT, 0.1, 500, body, lasted)


def written(cluster: Cluster, seconds: float) -> Cluster:
    """The owner of the certificates wrote every caBundle so many seconds ago."""
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        for item in cluster.all(kind):
            for entry in item["metadata"].get("managedFields", ()):
                entry["time"] = f"{A_MOMENT - timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"
    return cluster


# Rotations


def test_a_certificate_that_follows_a_rotation_is_no_alarm() -> None:
    verdicts = judged(written(healthy(), 20), answers={FLAVOR: failure(UNKNOWN_CA)})
    assert verdicts.codes == ["KWH011"]
    assert verdicts.by_assertion["verified-certificate"] is Verdict.NOT_PROVEN
    assert verdicts.verdict is Verdict.PASS


def test_one_that_does_not_follow_is() -> None:
    assert judged(written(healthy(), 95), answers={FLAVOR: failure(UNKNOWN_CA)}).codes == ["KWH090"]


def test_a_bundle_written_by_hand_is_no_rotation() -> None:
    cluster = written(healthy(), 20)
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        for item in cluster.all(kind):
            for entry in item["metadata"].get("managedFields", ()):
                entry["manager"] = "kubectl-patch"
    assert "KWH090" in judged(cluster, answers={FLAVOR: failure(UNKNOWN_CA)}).codes


# Patience


def facts(cluster: Cluster, **settings: Any) -> Facts:
    return gather(CHECK.needs, cluster.reader(**settings), {})


def patience(cluster: Cluster, answer: Answer) -> float:
    (attempt,) = facts(cluster)[a_resource_flavor_to_try]
    return attempt.patience(answer)


@pytest.mark.parametrize(
    ("tail", "waits"),
    [(RESET, True), ("EOF", True), ("dial tcp 1.2.3.4:443: connect: connection refused", True),
     ('no endpoints available for service "x"', True), ("context deadline exceeded", True),
     ("the server could not find the requested resource", True), (UNKNOWN_CA, False)],
)  # fmt: skip
def test_what_may_pass_is_waited_for(tail: str, waits: bool) -> None:
    assert bool(patience(healthy(), failure(tail))) is waits


def test_nothing_is_waited_for_where_the_data_shows_the_fault() -> None:
    stopped, emptied, unserved = healthy(), healthy(), healthy()
    stopped.one("Deployment")["spec"]["replicas"] = 0
    emptied.one("MutatingWebhookConfiguration")["webhooks"][0]["clientConfig"]["caBundle"] = ""
    unserved.drop("EndpointSlice")
    for cluster in (stopped, emptied, unserved):
        assert patience(cluster, failure(RESET)) == 0


def test_a_rotation_is_waited_for_shortly_or_to_its_end() -> None:
    early, late, over = (patience(written(healthy(), age), failure(UNKNOWN_CA)) for age in (20, 85, 200))
    assert 0 < early < 90 - 20
    assert late == 150 - 85
    assert over == 0


def test_a_success_is_not_waited_for() -> None:
    assert patience(written(healthy(), 20), CREATED) == 0


# Failures that last


def test_a_connection_that_breaks_for_long_is_a_failure() -> None:
    assert judged(healthy(), answers={FLAVOR: failure(RESET)}).codes == []
    finding = judged(healthy(), answers={FLAVOR: failure(RESET, lasted=30)}).one("KWH093")
    assert "for 30 s" in finding.message


def test_a_manager_in_trouble_is_one_cause() -> None:
    cluster = healthy()
    cluster.one("Deployment")["spec"]["replicas"] = 0
    cluster.drop("EndpointSlice")
    verdicts = judged(cluster, answers={FLAVOR: failure('no endpoints available for service "x"')})
    assert verdicts.one("KWH093").cause == verdicts.one("KWH041").cause


def test_a_refusal_by_a_quota_says_nothing() -> None:
    answer = Answer(
        A_MOMENT, 0.1, 403, {"kind": "Status", "message": 'jobs "x" is forbidden: exceeded quota'}
    )
    verdicts = judged(healthy(), answers={FLAVOR: answer})
    assert verdicts.by_assertion["verified-certificate"] is Verdict.NOT_PROVEN
    assert "before it asked" in verdicts.of("verified-certificate").reason


def test_what_could_not_be_read_costs_a_good_answer_nothing() -> None:
    missing = {"mutatingwebhookconfigurations.admissionregistration.k8s.io": Unknown(Reason.FORBIDDEN, "no")}
    verdicts = judged(healthy(), missing=missing, answers={FLAVOR: CREATED})
    assert verdicts.by_assertion["verified-certificate"] is Verdict.PASS


# Other kinds


def test_workloads_and_jobs_are_tried_where_kueue_is_called() -> None:
    known = facts(healthy())
    (job,) = known[a_suspended_job_to_try]
    assert (job.namespace, job.on_request, job.body["spec"]["suspend"]) == ("team-a", True, True)
    assert job.body["metadata"]["namespace"] == "team-a"


UNREAD = {"namespaces": Unknown(Reason.SERVER_ERROR, "etcd is tired")}


def test_where_namespaces_cannot_be_listed_default_may_do() -> None:
    (job,) = facts(healthy(), missing=UNREAD)[a_suspended_job_to_try]
    assert job.namespace == "default"


def test_but_not_where_labels_tell_whether_kueue_is_called_there() -> None:
    """A Job that no webhook of Kueue's was asked about would prove nothing, and pass."""
    cluster = healthy()
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        for hook in (hook for each in cluster.all(kind) for hook in each["webhooks"]):
            hook["namespaceSelector"] = {"matchLabels": {"kueue": "on"}}
    state = facts(cluster, missing=UNREAD).state(a_suspended_job_to_try)
    assert isinstance(state, Unknown)
    assert state.reason is Reason.SERVER_ERROR


def test_a_namespace_that_was_not_read_may_be_the_one() -> None:
    cluster = healthy()
    for each in cluster.all("Namespace"):
        each["metadata"]["labels"] = 7
    assert isinstance(facts(cluster).state(a_suspended_job_to_try), Unknown)


@pytest.mark.parametrize(
    ("attempt", "assertion", "hook"),
    [(Attempt(Job.of, "team-a", {}), "admitted-job", "mjob.kb.io"),
     (Attempt(Workload.of, "team-a", {}), "admitted-workload", "vworkload.kb.io")],
)  # fmt: skip
def test_each_kind_is_a_proof_of_its_own(attempt: Attempt, assertion: str, hook: str) -> None:
    created = Answer(A_MOMENT, 0.1, 201, {"kind": attempt.kind.kind, "metadata": {}})
    assert judged(healthy(), answers={attempt: created}).by_assertion[assertion] is Verdict.PASS
    verdicts = judged(healthy(), answers={FLAVOR: CREATED, attempt: failure(UNKNOWN_CA, hook)})
    assert verdicts.codes == ["KWH090"]
    assert verdicts.by_assertion[assertion] is Verdict.FAIL
    assert f"Creating a {attempt.kind.kind}" in verdicts.one("KWH090").message


def tried_by(command: str) -> dict[str, Any]:
    """The object that a command pipes into kubectl, which tries to create it and stores nothing."""
    printing, _, trying = command.partition("|")
    assert shlex.split(trying) == ["kubectl", "create", "--dry-run=server", "-f", "-"]
    *words, text = shlex.split(printing)
    assert words == ["printf", "%s"]
    sent: dict[str, Any] = json.loads(text)
    return sent


@pytest.mark.parametrize(
    ("attempt", "hook", "fact"),
    [(FLAVOR, "mresourceflavor.kb.io", a_resource_flavor_to_try),
     (Attempt(Workload.of, "team-a", {}), "mworkload.kb.io", a_workload_to_try),
     (Attempt(Job.of, "team-a", {}), "mjob.kb.io", a_suspended_job_to_try)],
)  # fmt: skip
def test_a_person_can_try_the_same_creation(attempt: Attempt, hook: str, fact: Fact[Any]) -> None:
    finding = judged(healthy(), answers={attempt: failure(UNKNOWN_CA, hook)}).one("KWH090")
    (sent,) = facts(healthy())[fact]
    assert tried_by(finding.look) == sent.body
    assert sent.body["kind"] == attempt.kind.kind


def test_the_explanation_has_a_command_that_can_be_run_too() -> None:
    section = CHECK.readme().partition("## KWH090")[2].partition("\n## ")[0]
    command = section.partition("```sh\n")[2].partition("```")[0]
    assert tried_by(command)["kind"] == "ResourceFlavor"


# Handshakes


def shown(certificate: str = "", error: str = "", **settings: Any) -> Verdicts:
    chain = (certificate,) if certificate else ()
    handshake = Known(Handshake(A_MOMENT, NAME, chain, error))
    return judged(settings.pop("cluster", None) or healthy(), shown={SERVICE: handshake}, **settings)


def test_a_certificate_signed_by_every_bundle_is_proof() -> None:
    verdicts = shown(leaf((NAME,), which=1))
    assert verdicts.by_assertion["shown-certificate"] is Verdict.PASS
    assert verdicts.codes == []


def test_a_dry_run_that_told_makes_it_unnecessary() -> None:
    verdicts = shown(leaf((NAME,), which=2), answers={FLAVOR: CREATED})
    assert verdicts.by_assertion["shown-certificate"] is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("certificate", "code", "says"),
    [(leaf((NAME,), which=2), "KWH090", "older CA of the same name"),
     (leaf((NAME,), self_signed=True), "KWH090", "not the CA that signed"),
     (leaf(("x.y.svc",), which=1), "KWH092", "another name")],
)  # fmt: skip
def test_what_a_handshake_refutes(certificate: str, code: str, says: str) -> None:
    finding = shown(certificate).one(code)
    assert says in finding.message
    assert finding.object.name == SERVICE


def test_a_handshake_in_a_rotation_is_no_alarm() -> None:
    verdicts = shown(leaf((NAME,), which=2), cluster=written(healthy(), 20))
    assert verdicts.codes == ["KWH011"]
    assert verdicts.by_assertion["shown-certificate"] is Verdict.NOT_PROVEN


@pytest.mark.parametrize(
    ("error", "verdict"),
    [("failed to connect to localhost:9443: connection refused", Verdict.FAIL),
     ("no answer within 10 s", Verdict.FAIL),
     ("unable to do port forwarding: socat not found", Verdict.UNKNOWN)],
)  # fmt: skip
def test_why_there_is_no_handshake(error: str, verdict: Verdict) -> None:
    assert shown(error=error).by_assertion["shown-certificate"] is verdict


def test_without_a_ready_pod_there_is_nobody_to_ask() -> None:
    cluster = healthy()
    cluster.one("Pod")["status"]["conditions"] = []
    verdicts = shown(leaf((NAME,), which=1), cluster=cluster)
    assert verdicts.by_assertion["shown-certificate"] is Verdict.NOT_PROVEN


# The Secret


def with_secret(authority: str, certificate: str) -> Cluster:
    cluster = healthy()
    data = {"ca.crt": bundle(authority), "tls.crt": bundle(certificate), "tls.key": "c2VjcmV0"}
    cluster.items.append(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "kueue-webhook-server-cert", "namespace": "kueue-system"},
            "data": data,
        }
    )
    return cluster


def test_the_secret_is_found_by_the_deployments_volumes() -> None:
    assert [ref.name for ref in facts(healthy())[webhook_secrets]] == ["kueue-webhook-server-cert"]


def test_a_secret_that_fits_is_proof() -> None:
    cluster = with_secret(rotators_ca(1), leaf((NAME,), which=1))
    assert judged(cluster).by_assertion["secrets-certificate"] is Verdict.PASS


@pytest.mark.parametrize(
    ("authority", "certificate", "code"),
    [(rotators_ca(2), leaf((NAME,), which=2), "KWH096"),
     (rotators_ca(1), leaf((NAME,), which=2), "KWH097"),
     (rotators_ca(1), leaf(("x.y.svc",), which=1), "KWH097")],
)  # fmt: skip
def test_a_secret_that_does_not_fit(authority: str, certificate: str, code: str) -> None:
    verdicts = judged(with_secret(authority, certificate))
    assert verdicts.codes == [code]
    assert verdicts.one(code).object.name == "kueue-webhook-server-cert"


def test_private_keys_are_dropped_at_decoding() -> None:
    from gpuctl.kueue.proofs import SECRETS

    state: State[Any] = facts(with_secret(rotators_ca(1), leaf((NAME,), which=1))).state(SECRETS)
    assert isinstance(state, Known)
    assert b"c2VjcmV0" not in msgspec.json.encode(list(state.value))


def test_the_dry_run_is_declared() -> None:
    known: Mapping[Any, Any] = facts(healthy(), answers={FLAVOR: CREATED}).states
    assert isinstance(known[DRY_RUN], Known)
