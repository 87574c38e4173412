"""Kueue's webhooks, tried on a real control plane: each way to fail is told from the others, and no alarm is
false. Kueue's rotator is frozen meanwhile, so that what a test breaks stays broken."""

from __future__ import annotations

import base64
import json
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from gpuctl.audit.permissions import Grant, Purpose, grants
from gpuctl.checks.kueue_webhooks import CHECK
from gpuctl.cluster.connection import Access, connect
from gpuctl.cluster.consent import Consent, DryRuns
from gpuctl.cluster.live import LiveReader
from gpuctl.facts.kinds import Attempt
from gpuctl.kueue.answers import Meaning, read
from gpuctl.kueue.objects import RESOURCE_FLAVOR

from . import impostor
from .authorities import DAY, authority
from .bed import Bed
from .bed.kueue import CONFIGURATIONS, Kueue
from .bed.machine import Process
from .bed.wait import wait
from .gpuctl import Answer, check

READS = {"get", "list", "watch"}
REVIEWS = {"selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"}
PROOF, SHOWN = "verified-certificate", "shown-certificate"
SERVICE = "kueue-webhook-service"
NAME = f"{SERVICE}.kueue-system.svc"
MUTATING = "kueue-mutating-webhook-configuration"
EXPIRED, MISNAMED, FOREIGN, RESETS, CLOSED = range(9601, 9606)


@pytest.fixture(scope="module")
def frozen(bed: Bed) -> Iterator[Kueue]:
    """Kueue, whose caBundles stay as a test writes them."""
    bed.kueue.freeze_rotator()
    yield bed.kueue
    bed.kueue.restore()


@contextmanager
def bundle_of_flavors(kueue: Kueue, value: bytes) -> Iterator[None]:
    """Another caBundle at the webhook that is called first for a ResourceFlavor."""
    index, found = webhook(kueue, "mresourceflavor.kb.io")
    where = f"/webhooks/{index}/clientConfig/caBundle"
    encoded = base64.b64encode(value).decode()
    patch_webhooks(kueue, {"op": "replace", "path": where, "value": encoded})
    try:
        yield
    finally:
        patch_webhooks(kueue, {"op": "replace", "path": where, "value": found["clientConfig"]["caBundle"]})


@dataclass(frozen=True)
class Stage:
    """The impostor and where it stands."""

    kueue: Kueue
    address: str
    process: Process

    def lead_to(self, port: int) -> None:
        """Let the webhook Service lead to a port of the impostor's."""
        endpoints = {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": "impostor",
                "namespace": self.kueue.namespace,
                "labels": {"kubernetes.io/service-name": SERVICE},
            },
            "addressType": "IPv4",
            "ports": [{"name": "", "port": port, "protocol": "TCP"}],
            "endpoints": [{"addresses": [self.address], "conditions": {"ready": True}}],
        }
        self.kueue.kubectl("apply", "-f", "-", input=json.dumps(endpoints))


@pytest.fixture(scope="class")
def stage(bed: Bed, frozen: Kueue, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """The webhook Service leads to the impostor; caBundles hold the CA of what it shows."""
    folder = tmp_path_factory.mktemp("impostor")
    signer = authority()
    shown = {
        EXPIRED: signer.leaf(NAME, ends=-1 * DAY),
        MISNAMED: signer.leaf("kueue-webhook-service.elsewhere.svc"),
        FOREIGN: authority("another", "another-ca").leaf(NAME),
    }
    modes = {RESETS: "reset"}
    for port, pem in shown.items():
        (folder / f"{port}.pem").write_bytes(pem)
        modes[port] = str(folder / f"{port}.pem")
    service = frozen.kubectl("-n", frozen.namespace, "get", "service", SERVICE, "-o", "json")
    own = json.loads(service)["spec"]["selector"]
    address = str(urlsplit(bed.server).hostname)
    arguments = [f"{port}={mode}" for port, mode in modes.items()]
    script = [sys.executable, "-I", str(Path(impostor.__file__)), address, *arguments]
    process = bed.machine.start("impostor", script)
    patch_service(frozen, {"app": "impostor"})
    with bundle_of_flavors(frozen, signer.pem):
        yield Stage(frozen, address, process)
    process.signal(signal.SIGKILL)
    frozen.kubectl("-n", frozen.namespace, "delete", "endpointslice", "impostor")
    patch_service(frozen, own)
    wait(lambda: proof_passes(bed), 60, "webhooks that answer again")


def patch_service(kueue: Kueue, selector: dict[str, str]) -> None:
    """Replaces the selector: a merge would add to it."""
    steps = [{"op": "replace", "path": "/spec/selector", "value": selector}]
    place = ("-n", kueue.namespace, "patch", "service", SERVICE, "--type=json", "-p")
    kueue.kubectl(*place, json.dumps(steps))


def proof_passes(bed: Bed) -> bool:
    return check("kueue-webhooks", kubeconfig=bed.kubeconfig).verdicts()[PROOF] == "pass"


def proven(bed: Bed, snapshot: Path, code: str, *says: str) -> Answer:
    """One finding of the proof, with this code and these words, live and in the record of the run."""
    live = check("kueue-webhooks", "--save", str(snapshot), kubeconfig=bed.kubeconfig)
    findings = of(live, PROOF)
    assert [each["code"] for each in findings] == [code], (findings, reason_of(live, PROOF), live.said)
    told = findings[0]["message"] + findings[0]["evidence"][0]["observed"]
    assert all(words in told for words in says), told
    assert "nothing of it is stored" in live.said
    assert live.code == 1
    same(live, check("kueue-webhooks", "--from", str(snapshot)))
    return live


def of(answer: Answer, assertion: str) -> list[dict[str, Any]]:
    """The findings of one assertion."""
    (it,) = (
        each for item in answer.report["checks"] for each in item["assertions"] if each["id"] == assertion
    )
    return list(it["findings"])


def reason_of(answer: Answer, assertion: str) -> str:
    (it,) = (
        each for item in answer.report["checks"] for each in item["assertions"] if each["id"] == assertion
    )
    return str(it["reason"])


def same(live: Answer, stored: Answer) -> None:
    assert stored.fingerprints() == live.fingerprints()
    assert stored.verdicts() == live.verdicts()
    assert stored.code == live.code


# Certificates: nothing in the data is wrong, and the API server says what is


def test_an_unknown_authority(bed: Bed, frozen: Kueue, tmp_path: Path) -> None:
    with bundle_of_flavors(frozen, authority("another", "another-ca").pem):
        proven(bed, tmp_path / "s", "KWH090", "not the CA that signed", "signed by unknown authority")


def test_a_stale_authority_of_the_same_name(bed: Bed, frozen: Kueue, tmp_path: Path) -> None:
    """Everywhere the same: nothing in the data is wrong, whoever looks."""
    frozen.set_bundles(frozen.bundles(), authority().pem)
    try:
        live = proven(bed, tmp_path / "s", "KWH090", "an older CA of the same name", 'certificate "kueue-ca"')
        assert "no jobs" in of(live, PROOF)[0]["message"]
        shown = check(
            "kueue-webhooks", "--dry-run=none", "--save", str(tmp_path / "h"), kubeconfig=bed.kubeconfig
        )
        (finding,) = of(shown, SHOWN)
        assert finding["code"] == "KWH090"
        assert "an older CA of the same name, for 48 of 48" in finding["message"], finding["message"]
        same(shown, check("kueue-webhooks", "--from", str(tmp_path / "h")))
        opened = check("kueue-webhooks", "--read-only", "--read-webhook-secret", kubeconfig=bed.kubeconfig)
        (finding,) = of(opened, "secrets-certificate")
        assert (finding["code"], finding["object"]["name"]) == ("KWH096", "kueue-webhook-server-cert")
    finally:
        frozen.give_bundles_back()


# Addresses


@contextmanager
def healed_after(stage: Stage, port: int, *, tries: int, bed: Bed, began: datetime) -> Iterator[None]:
    """Lets the Service lead elsewhere once so many dry runs were made."""
    from threading import Thread

    def heal() -> None:
        wait(lambda: len(dry_runs(bed, began)) >= tries, 60, f"{tries} dry runs")
        stage.lead_to(port)

    thread = Thread(target=heal)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def dry_runs(bed: Bed, since: datetime) -> list[Any]:
    asked = bed.audit.requests(since=since, user_agent_prefix="gpuctl/")
    return [each for each in asked if each.dry_run]


class TestImpostor:
    """What stands where the manager is expected shows bad certificates, or does not answer."""

    def test_an_expired_certificate(self, bed: Bed, stage: Stage, tmp_path: Path) -> None:
        stage.lead_to(EXPIRED)
        proven(bed, tmp_path / "s", "KWH091", "has expired", "is after")

    def test_another_name(self, bed: Bed, stage: Stage, tmp_path: Path) -> None:
        stage.lead_to(MISNAMED)
        proven(bed, tmp_path / "s", "KWH092", "bears another name", f"elsewhere.svc, not {NAME}")

    def test_a_certificate_of_somebody_else(self, bed: Bed, stage: Stage, tmp_path: Path) -> None:
        stage.lead_to(FOREIGN)
        proven(bed, tmp_path / "s", "KWH090", "not the CA that signed")

    def test_a_connection_that_is_reset_again_and_again(self, bed: Bed, stage: Stage, tmp_path: Path) -> None:
        stage.lead_to(RESETS)
        live = proven(bed, tmp_path / "s", "KWH093", "the connection broke", "connection reset by peer")
        recorded = yaml.safe_load((tmp_path / "s/dry-run/resourceflavors.kueue.x-k8s.io.yaml").read_text())
        assert len(recorded["attempts"]) >= 3
        assert re.search(r" for [23]\d s: no jobs", of(live, PROOF)[0]["message"])

    def test_a_refused_connection(self, bed: Bed, stage: Stage, tmp_path: Path) -> None:
        stage.lead_to(CLOSED)
        proven(bed, tmp_path / "s", "KWH093", "was refused", "connection refused")

    def test_a_connection_that_breaks_and_heals_is_no_failure(self, bed: Bed, stage: Stage) -> None:
        stage.lead_to(RESETS)
        began = datetime.now(UTC)
        with healed_after(stage, EXPIRED, tries=2, bed=bed, began=began):
            answer = check("kueue-webhooks", kubeconfig=bed.kubeconfig)
        codes = [each["code"] for each in of(answer, PROOF)]
        assert codes == ["KWH091"]  # it answers now, and that is what is judged

    def test_a_process_that_hangs(self, bed: Bed, stage: Stage, tmp_path: Path) -> None:
        """Its port takes connections, and nobody answers."""
        stage.lead_to(EXPIRED)
        stage.process.signal(signal.SIGSTOP)
        try:
            live = proven(bed, tmp_path / "s", "KWH093", "does not reach the manager")
        finally:
            stage.process.signal(signal.SIGCONT)
        assert "hangs" in of(live, PROOF)[0]["remedy"]


def test_a_manager_that_hangs(bed: Bed, frozen: Kueue) -> None:
    """It is found before its readiness probe fails, and after."""
    pids = bed.machine.run("pgrep", "-f", "^/manager").split()
    # Stopped while it renews its lease, it would end; and frozen, the next one never gets ready.
    before = renewed(frozen)
    wait(lambda: renewed(frozen) != before, 60, "its lease renewed", every=0.05)
    bed.machine.run("kill", "-STOP", *pids)
    try:
        answer = check("kueue-webhooks", kubeconfig=bed.kubeconfig)
    finally:
        bed.machine.run("kill", "-CONT", *pids)
    assert [each["code"] for each in of(answer, PROOF)] == ["KWH093"]
    wait(lambda: proof_passes(bed), 60, "webhooks that answer again")


def renewed(kueue: Kueue) -> str:
    """When the manager renewed its lease last."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{kueue.namespace}/leases/c1f6bfd2.kueue.x-k8s.io"
    return str(kueue.api.get(path)["spec"]["renewTime"])


# Paths, and what is no fault of Kueue's


def test_a_path_that_is_not_served(bed: Bed, frozen: Kueue, tmp_path: Path) -> None:
    with path_of(frozen, "mresourceflavor.kb.io", "/mutate-nothing"):
        proven(bed, tmp_path / "s", "KWH094", "does not serve", "could not find the requested resource")


def test_a_webhook_that_is_not_called(bed: Bed, frozen: Kueue, tmp_path: Path) -> None:
    """The finalizer is what tells."""
    index, _ = webhook(frozen, "mresourceflavor.kb.io")
    rule = {"op": "add", "path": f"/webhooks/{index}/objectSelector", "value": {"matchLabels": {"x": "y"}}}
    free = {"op": "replace", "path": f"/webhooks/{index}/objectSelector", "value": {}}
    patch_webhooks(frozen, rule)
    try:
        proven(bed, tmp_path / "s", "KWH095", "did not run", "without the finalizer")
    finally:
        patch_webhooks(frozen, free)


def webhook(kueue: Kueue, name: str) -> tuple[int, dict[str, Any]]:
    found = json.loads(kueue.kubectl("get", CONFIGURATIONS[0], MUTATING, "-o", "json"))["webhooks"]
    return next((index, each) for index, each in enumerate(found) if each["name"] == name)


def patch_webhooks(kueue: Kueue, *steps: dict[str, Any]) -> None:
    kueue.kubectl("patch", CONFIGURATIONS[0], MUTATING, "--type=json", "-p", json.dumps(steps))


@contextmanager
def path_of(kueue: Kueue, name: str, path: str) -> Iterator[None]:
    """Registers a webhook under another path."""
    index, found = webhook(kueue, name)
    where, before = f"/webhooks/{index}/clientConfig/service/path", found["clientConfig"]["service"]["path"]
    patch_webhooks(kueue, {"op": "replace", "path": where, "value": path})
    try:
        yield
    finally:
        patch_webhooks(kueue, {"op": "replace", "path": where, "value": before})


def test_a_refusal_of_kueues_is_an_answer(bed: Bed, frozen: Kueue) -> None:
    body = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ResourceFlavor",
        "metadata": {"generateName": "gpuctl-probe-"},
        "spec": {"nodeLabels": {"a bad key": "x"}},
    }
    with reader(bed.kubeconfig) as live:
        (answer,) = live.dry_run([Attempt(RESOURCE_FLAVOR, "", body)]).value  # type: ignore[union-attr]
    assert answer.status in (403, 422)
    reading = read(answer)
    assert (reading.meaning, reading.webhook) == (Meaning.HEALTHY, "vresourceflavor.kb.io"), answer.body


@contextmanager
def reader(kubeconfig: Path) -> Iterator[LiveReader]:
    connection = connect(Access(kubeconfig=str(kubeconfig)))
    yield LiveReader(connection, 60, consent=Consent(DryRuns.ALL))


OTHERS = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingWebhookConfiguration",
    "metadata": {"name": "another-policy"},
    "webhooks": [
        {
            "name": "policy.example.com",
            "clientConfig": {"url": "https://127.0.0.1:9/"},
            "rules": [
                {
                    "apiGroups": ["kueue.x-k8s.io"],
                    "apiVersions": ["*"],
                    "operations": ["CREATE"],
                    "resources": ["resourceflavors"],
                }
            ],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
    ],
}


def test_a_policy_that_fails_is_named_and_proves_nothing(bed: Bed, frozen: Kueue) -> None:
    """An admission policy stands for webhooks with side effects, which can't be registered any more."""
    bed.kubectl("apply", "-f", "-", input=json.dumps(OTHERS))
    try:
        wait(lambda: "policy.example.com" in tried(bed), 60, "the other's webhook")
    finally:
        bed.kubectl("delete", "validatingwebhookconfiguration", "another-policy")


def tried(bed: Bed) -> str:
    answer = check("kueue-webhooks", kubeconfig=bed.kubeconfig)
    assert of(answer, PROOF) == []
    return reason_of(answer, PROOF) if answer.verdicts()[PROOF] == "not-proven" else ""


# Permissions, and what is asked of the server


def rules(*purposes: Purpose) -> list[dict[str, Any]]:
    """The rules of the roles that gpuctl prints."""
    return [_rule(each) for each in grants([CHECK]) if each.purpose in purposes]


def _rule(grant: Grant) -> dict[str, Any]:
    rule = grant.rule
    return {"apiGroups": [rule.group], "resources": [rule.resource], "verbs": [rule.verb]}


def test_who_may_not_create_learns_which_permission_is_missing(
    bed: Bed, frozen: Kueue, user: Callable[..., Path], tmp_path: Path
) -> None:
    answer = check(
        "kueue-webhooks", "--save", str(tmp_path / "s"), kubeconfig=user("looker", rules(Purpose.READING))
    )
    assert (answer.code, answer.found()) == (0, set()), answer.findings()
    assert answer.verdicts()[PROOF] == answer.verdicts()[SHOWN] == "not-proven"
    assert "create resourceflavors.kueue.x-k8s.io" in reason_of(answer, PROOF)
    assert "gpuctl rbac" in reason_of(answer, PROOF)
    assert "pods/portforward" in reason_of(answer, SHOWN)
    assert "trying to create" not in answer.said
    same(answer, check("kueue-webhooks", "--from", str(tmp_path / "s")))


def test_the_middle_way_needs_no_right_to_create(
    bed: Bed, frozen: Kueue, user: Callable[..., Path], tmp_path: Path
) -> None:
    kubeconfig = user("shaker", rules(Purpose.READING, Purpose.PORT_FORWARD))
    answer = check("kueue-webhooks", "--save", str(tmp_path / "s"), kubeconfig=kubeconfig)
    assert (answer.code, answer.found()) == (0, set()), answer.findings()
    assert answer.verdicts()[SHOWN] == "pass"
    assert "through port-forward" in answer.said
    assert list((tmp_path / "s/tls").iterdir()) == [tmp_path / f"s/tls/kueue-system.{SERVICE}.443.yaml"]
    same(answer, check("kueue-webhooks", "--from", str(tmp_path / "s")))
    none = check("kueue-webhooks", "--probe=none", kubeconfig=kubeconfig)
    assert none.verdicts()[SHOWN] == "not-proven"
    assert "--probe" in reason_of(none, SHOWN)


def test_read_only_is_reading_only(bed: Bed, frozen: Kueue) -> None:
    began = datetime.now(UTC)
    answer = check("kueue-webhooks", "--read-only", "--read-webhook-secret", kubeconfig=bed.kubeconfig)
    assert (answer.code, answer.verdicts()["secrets-certificate"]) == (0, "pass"), answer.findings()
    assert answer.verdicts()[PROOF] == answer.verdicts()[SHOWN] == "not-proven"
    asked = bed.audit.requests(since=began, user_agent_prefix="gpuctl/")
    assert asked
    assert not [each for each in asked if each.verb not in READS and each.resource not in REVIEWS]
    assert not [each for each in asked if each.subresource]


def test_dry_runs_are_all_that_is_created(bed: Bed, frozen: Kueue, tmp_path: Path) -> None:
    began, there = datetime.now(UTC), flavors(bed)
    answer = check(
        "kueue-webhooks", "--dry-run=all", "--save", str(tmp_path / "s"), kubeconfig=bed.kubeconfig
    )
    assert (answer.code, answer.found()) == (0, set()), answer.findings()
    for each in (PROOF, "admitted-workload", "admitted-job"):
        assert answer.verdicts()[each] == "pass"
    same(answer, check("kueue-webhooks", "--from", str(tmp_path / "s")))
    asked = bed.audit.requests(since=began, user_agent_prefix="gpuctl/")
    writes = [each for each in asked if each.verb not in READS and each.resource not in REVIEWS]
    assert {each.resource for each in writes} == {"resourceflavors", "workloads", "jobs"}
    assert all(each.dry_run and each.verb == "create" for each in writes)
    assert not [each for each in asked if each.resource == "secrets"]
    assert flavors(bed) <= there


def flavors(bed: Bed) -> set[str]:
    return {*bed.kubectl("get", "resourceflavors", "-o", "name").split()}


def test_a_webhook_of_one_kind_alone(bed: Bed, frozen: Kueue) -> None:
    with path_of(frozen, "mjob.kb.io", "/mutate-nothing"):
        answer = check("kueue-webhooks", "--dry-run=all", kubeconfig=bed.kubeconfig)
    verdicts = answer.verdicts()
    assert (verdicts[PROOF], verdicts["admitted-workload"]) == ("pass", "pass")
    assert [each["code"] for each in of(answer, "admitted-job")] == ["KWH094"]


# With a rotator that may write again: a manager that starts without that right never gets ready


def test_no_endpoints_are_not_waited_for(bed: Bed, kueue: Kueue, tmp_path: Path) -> None:
    kueue.apply()
    kueue.scale(0)
    live = proven(bed, tmp_path / "s", "KWH093", "no endpoint", "no endpoints available")
    assert ("KWH041", "kueue-controller-manager") in live.found()
    causes = {each["cause"] for each in live.findings() if each["code"] in ("KWH041", "KWH093")}
    assert len(causes) == 1
    recorded = yaml.safe_load((tmp_path / "s/dry-run/resourceflavors.kueue.x-k8s.io.yaml").read_text())
    assert len(recorded["attempts"]) == 1


def test_a_rotation_in_the_middle_raises_no_alarm(bed: Bed, kueue: Kueue, tmp_path: Path) -> None:
    """Its Secret is emptied: Kueue injects a new CA at once, and its pod still serves the old certificate."""
    kueue.restore()
    before = kueue.bundles()[0].value
    kueue.kubectl(
        "-n", kueue.namespace, "patch", "secret", kueue.secret, "--type=merge", "-p", '{"data": null}'
    )
    wait(lambda: before not in {each.value for each in kueue.bundles()}, 60, "the new CA's injection")
    answer = check("kueue-webhooks", "--save", str(tmp_path / "s"), kubeconfig=bed.kubeconfig)
    assert answer.found() == set(), answer.findings()
    assert answer.verdicts()[PROOF] in ("not-proven", "pass"), (answer.verdicts(), answer.findings())
    assert answer.code == 0
    same(answer, check("kueue-webhooks", "--from", str(tmp_path / "s")))
    wait(lambda: proof_passes(bed), 180, "the pod serves the new certificate")
