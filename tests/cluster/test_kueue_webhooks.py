"""The check on a real Kueue: healthy, broken in every way that data shows, and healed again."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from .bed import Bed
from .bed.kueue import CONFIGURATIONS, Kueue
from .gpuctl import Answer, check

MUTATING, VALIDATING = "kueue-mutating-webhook-configuration", "kueue-validating-webhook-configuration"
READS = {"get", "list", "watch"}
REVIEWS = {"selfsubjectaccessreviews", "selfsubjectrulesreviews"}


def authority(ends: timedelta) -> bytes:
    """Another CA with the subject that every CA of Kueue's rotator has, valid until so long from now."""
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "kueue"),
            x509.NameAttribute(NameOID.COMMON_NAME, "kueue-ca"),
        ]
    )
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=400))
        .not_valid_after(now + ends)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM)


def write_bundles(
    kueue: Kueue, resource: str, change: Callable[[bytes], bytes], first: int | None = None
) -> None:
    kueue.freeze_rotator()
    bundles = [each for each in kueue.bundles() if each.resource == resource][:first]
    kueue.set_bundles(bundles, change(bundles[0].value))  # they are all alike


def empty(kueue: Kueue) -> None:
    write_bundles(kueue, CONFIGURATIONS[0], lambda _: b"")


def cut_in_half(kueue: Kueue) -> None:
    write_bundles(kueue, CONFIGURATIONS[1], lambda whole: whole[: len(whole) // 2])


def one_older(kueue: Kueue) -> None:
    older = authority(timedelta(days=3000))
    write_bundles(kueue, CONFIGURATIONS[0], lambda _: older, first=1)


def expired(kueue: Kueue) -> None:
    dead = authority(timedelta(days=-1))
    for resource in (*CONFIGURATIONS, "crds"):
        write_bundles(kueue, resource, lambda _: dead)


def no_replicas(kueue: Kueue) -> None:
    kueue.scale(0)


RECREATE: dict[str, object] = {"op": "replace", "path": "/spec/strategy", "value": {"type": "Recreate"}}


def killed(kueue: Kueue) -> None:
    """Started anew, and not ready for as long as it takes to look."""
    delay = "/spec/template/spec/containers/0/readinessProbe/initialDelaySeconds"
    _patch_deployment(kueue, [RECREATE, {"op": "replace", "path": delay, "value": 600}])
    kueue.restart()


def crashing_rollout(kueue: Kueue) -> None:
    """A new pod that is started with a flag it does not know, beside the old one, which still answers."""
    path, before = "/spec/template/spec/containers/0/args/-", kueue.pods()
    _patch_deployment(kueue, [{"op": "add", "path": path, "value": "--no-such-flag"}])
    _until_restarted(kueue, 2, before)


def crash_looping(kueue: Kueue) -> None:
    """The same without an old pod."""
    _patch_deployment(kueue, [RECREATE])
    crashing_rollout(kueue)


def _patch_deployment(kueue: Kueue, patch: list[dict[str, object]]) -> None:
    kueue.kubectl(
        "-n", kueue.namespace, "patch", "deployment", kueue.deployment, "--type=json", "-p", json.dumps(patch)
    )


def secret_gone(kueue: Kueue) -> None:
    before = kueue.pods()
    kueue.kubectl("-n", kueue.namespace, "delete", "secret", kueue.secret)
    kueue.restart()
    _until_restarted(kueue, 0, before)


def service_renamed(kueue: Kueue) -> None:
    service = json.loads(kueue.kubectl("-n", kueue.namespace, "get", "service", kueue.service, "-o", "json"))
    service["metadata"] = {"name": "renamed", "namespace": kueue.namespace}
    for field in ("clusterIP", "clusterIPs"):
        service["spec"].pop(field, None)
    kueue.kubectl("create", "-f", "-", input=json.dumps(service))
    kueue.kubectl("-n", kueue.namespace, "delete", "service", kueue.service)


def conversion_broken(kueue: Kueue) -> None:
    """Only reading what is there takes a conversion, so there is a LocalQueue."""
    queue = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": {"name": "read-me", "namespace": "default"},
        "spec": {"clusterQueue": "none"},
    }
    kueue.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(queue))
    write_bundles(kueue, "crds", lambda _: authority(timedelta(days=3000)))


def visibility_dead(kueue: Kueue) -> None:
    patch = json.dumps({"spec": {"service": {"name": "no-such-service"}}})
    kueue.kubectl("patch", "apiservice", "v1beta2.visibility.kueue.x-k8s.io", "--type=merge", "-p", patch)
    kueue.kubectl("wait", "apiservice/v1beta2.visibility.kueue.x-k8s.io", "--for=condition=Available=False")


def _until_restarted(kueue: Kueue, times: int, before: Sequence[str]) -> None:
    """Until the container of a new pod of the manager has ended so often, or waits for what it lacks. One of
    those before may have ended often, too, and still be on its way out."""
    from .bed.wait import wait

    def enough() -> bool:
        pods = json.loads(kueue.kubectl("-n", kueue.namespace, "get", "pods", "-o", "json"))["items"]
        new = (each for each in pods if each["metadata"]["name"] not in before)
        statuses = [status for each in new for status in each["status"].get("containerStatuses", ())]
        return any(status["restartCount"] >= times for status in statuses)

    wait(enough, 90, f"{times} restarts of Kueue's manager")


@dataclass(frozen=True)
class Fault:
    """What is broken, and what must be found: codes with the names of objects. `also` are the codes that
    follow from it, or prove it; any other would be a false alarm."""

    break_it: Callable[[Kueue], None]
    finds: set[tuple[str, str]]
    says: str
    code: int = 1
    also: frozenset[str] = frozenset()

    def unexpected(self, answer: Answer) -> set[str]:
        """The codes found that have no place here."""
        return {code for code, _ in answer.found()} - {code for code, _ in self.finds} - self.also


NOT_TRUSTED = frozenset({"KWH070", "KWH090"})  # reads that convert, and the served certificate
NO_ANSWER = frozenset({"KWH070", "KWH080", "KWH093"})  # one process serves webhooks, conversion, visibility
FAULTS = [
    Fault(empty, {("KWH001", MUTATING)}, "have no caBundle", also=NOT_TRUSTED),
    Fault(cut_in_half, {("KWH002", VALIDATING)}, "can't be read", also=NOT_TRUSTED),
    Fault(one_older, {("KWH010", MUTATING)}, "another CA", also=NOT_TRUSTED),
    Fault(expired, {("KWH003", MUTATING), ("KWH003", VALIDATING)}, "expired", also=NOT_TRUSTED),
    Fault(no_replicas, {("KWH041", "kueue-controller-manager")}, "zero replicas", also=NO_ANSWER),
    Fault(killed, {("KWH043", "kueue-controller-manager")}, "is ready, so nothing answers", also=NO_ANSWER),
    Fault(crashing_rollout, {("KWH042", "kueue-controller-manager")}, "answered by other pods", code=0),
    Fault(crash_looping, {("KWH042", "kueue-controller-manager")}, "crashes again and again", also=NO_ANSWER),
    Fault(
        secret_gone, {("KWH043", "kueue-controller-manager")}, "is ready, so nothing answers", also=NO_ANSWER
    ),
    Fault(service_renamed, {("KWH030", "kueue-webhook-service")}, "does not exist", also=NO_ANSWER),
    Fault(
        conversion_broken,
        {("KWH070", "localqueues.kueue.x-k8s.io"), ("KWH010", "localqueues.kueue.x-k8s.io")},
        "can't be read",
        also=NOT_TRUSTED,
    ),
    Fault(visibility_dead, {("KWH080", "v1beta2.visibility.kueue.x-k8s.io")}, "not available"),
]


def test_a_healthy_kueue_is_clean_and_was_only_read(bed: Bed, kueue: Kueue) -> None:
    began = datetime.now(UTC)
    answer = check("kueue-webhooks", "--read-only", kubeconfig=bed.kubeconfig)
    assert (answer.code, answer.verdict, answer.found()) == (0, "pass", set()), answer.findings()
    assert "fail" not in answer.verdicts().values()
    asked = bed.audit.requests(since=began, user_agent_prefix="gpuctl/")
    assert asked
    assert not [each for each in asked if each.verb not in READS and each.resource not in REVIEWS]
    assert not [each for each in asked if each.resource == "secrets"]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.break_it.__name__)
def test_each_fault_is_found_live_and_in_its_snapshot_and_gone_when_healed(
    bed: Bed, kueue: Kueue, fault: Fault, tmp_path: Path
) -> None:
    before = _deployed(kueue)
    fault.break_it(kueue)
    snapshot = tmp_path / "moment.tar.gz"
    live = check("kueue-webhooks", "--save", str(snapshot), kubeconfig=bed.kubeconfig)
    assert fault.finds <= live.found(), live.findings()
    assert any(fault.says in each["message"] for each in live.findings()), live.findings()
    assert not fault.unexpected(live), live.findings()
    assert live.code == fault.code
    _same(live, check("kueue-webhooks", "--from", str(snapshot)))
    kueue.restore()
    assert _deployed(kueue) == before, "the next test finds it as this one did"
    healed = check("kueue-webhooks", kubeconfig=bed.kubeconfig)
    assert (healed.code, healed.findings()) == (0, []), "not so much as a note"
    kueue.kubectl("-n", "default", "delete", "localqueue", "read-me", "--ignore-not-found")


def _deployed(kueue: Kueue) -> dict[str, object]:
    found = kueue.kubectl("-n", kueue.namespace, "get", "deployment", kueue.deployment, "-o", "json")
    spec: dict[str, object] = json.loads(found)["spec"]
    return spec


def _same(live: Answer, stored: Answer) -> None:
    assert stored.fingerprints() == live.fingerprints()
    assert stored.verdicts() == live.verdicts()
    assert stored.code == live.code


def test_what_data_alone_cannot_show_is_not_proven_and_never_a_pass(bed: Bed, kueue: Kueue) -> None:
    stale = authority(timedelta(days=3000))
    for resource in (*CONFIGURATIONS, "crds"):
        write_bundles(kueue, resource, lambda _: stale)
    answer = check("kueue-webhooks", "--read-only", kubeconfig=bed.kubeconfig)
    proofs = [
        assertion["verdict"]
        for each in answer.report["checks"]
        for assertion in each["assertions"]
        if assertion["kind"] == "proof" and assertion["id"] != "secrets-certificate"
    ]
    assert answer.verdicts()["verified-certificate"] == "not-proven"
    assert set(proofs) == {"not-proven"}
    strict = check("kueue-webhooks", "--read-only", "--require-proof", kubeconfig=bed.kubeconfig)
    assert strict.report["outcome"]["incomplete"]
