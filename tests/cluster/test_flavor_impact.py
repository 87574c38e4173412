"""The check on a real Kueue: what happens to flavors there is made, found, and nothing else is."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from .bed import Bed
from .bed.kubectl import KubectlError
from .bed.kueue import CONFIGURATIONS, Kueue
from .gpuctl import Answer, check, run
from .test_queue_growth import GPU, Queues, found

FLAVOR = "resourceflavors.kueue.x-k8s.io"
UNPROVEN = {"drilled-loss"}


@pytest.fixture
def hasty(tmp_path: Path) -> str:
    """A policy that judges after a second what else is judged after a minute."""
    file = tmp_path / "gpuctl.yaml"
    checks = {"flavor-impact": {"settleSeconds": 1, "drillDays": 90}}
    policy = {"apiVersion": "gpuctl.dev/v1", "kind": "Policy", "checks": checks}
    file.write_text(yaml.safe_dump(policy))
    return str(file)


def impact(bed: Bed, *arguments: str) -> Answer:
    return check("flavor-impact", *arguments, kubeconfig=bed.kubeconfig)


def on_the_node(queues: Queues, short: str = "gpus") -> dict[str, Any]:
    """A flavor of the real node."""
    flavor = queues.flavor(short)
    flavor["spec"]["nodeLabels"] = {"kubernetes.io/hostname": queues.bed.node}
    return flavor


def deleted(queues: Queues, short: str) -> None:
    """Asks for the deletion of a flavor, and waits until that is a few seconds ago."""
    queues.bed.kubectl("delete", FLAVOR, queues.name(short), "--wait=false")


def flavors(queues: Queues) -> set[str]:
    names = queues.bed.kubectl("get", FLAVOR, "-l", f"gpuctl-test={queues.space}", "-o", "name").split()
    return {each.partition("/")[2].removeprefix(f"{queues.space}-") for each in names}


def learned(answer: Answer, name: str) -> Mapping[str, Any]:
    (told,) = (each for each in answer.report["checks"][0]["subjects"] if each["object"]["name"] == name)
    return dict(told["facts"])


def until_found(bed: Bed, hasty: str, code: str) -> Answer:
    """Runs the check until it finds something: a second must have gone by."""
    answers: list[Answer] = []

    def seen() -> bool:
        answers.append(impact(bed, "--policy", hasty))
        return any(each["code"] == code for each in answers[-1].findings())

    bed.wait(seen, 60, code)
    return answers[-1]


def test_a_healthy_cluster_is_silent_and_tells_what_rests_on_it(queues: Queues, bed: Bed) -> None:
    queues.apply(on_the_node(queues), *queues.line("busy", 4, flavor="gpus", resource=GPU))
    queues.apply(queues.workload("train-0", "busy", 3, GPU))
    queues.admitted("train-0")  # before the other is there: of those of one second any may be the first
    queues.apply(queues.workload("train-1", "busy", 3, GPU))
    answer = impact(bed)
    assert answer.findings() == []
    assert answer.code == 0
    assert {name for name, each in answer.verdicts().items() if each != "pass"} == UNPROVEN
    told = learned(answer, queues.name("gpus"))
    assert (told["admitted"], told["waiting"], told["gpusInUse"], told["usableNodes"]) == (1, 1, "3", 1)
    assert told["withoutSecondFlavor"] == [queues.name("busy")]
    (loss,) = told["loss"]
    assert (loss["namespace"], loss["localQueue"]) == (queues.space, "busy")
    assert loss["effect"].startswith(f"1 run with 3 {GPU}, 1 wait")
    shown = run("check", "flavor-impact", kubeconfig=bed.kubeconfig)
    assert "not proven: the loss of a flavor was drilled" in shown.stdout
    assert "gpuctl apply flavor-drill" in shown.stdout


def test_a_flavor_that_is_deleted_in_use_works_on_and_is_found(
    queues: Queues, bed: Bed, hasty: str, tmp_path: Path
) -> None:
    queues.apply(on_the_node(queues), *queues.line("busy", 4, flavor="gpus", resource=GPU))
    queues.apply(queues.workload("before", "busy", 1, GPU))
    queues.admitted("before")
    deleted(queues, "gpus")
    young = impact(bed)
    assert [(each["code"], each["severity"]) for each in young.findings()] == [("RFI003", "info")]
    assert young.code == 0

    queues.apply(queues.workload("after", "busy", 1, GPU))
    queues.admitted("after")  # what the finding says: it works on
    answer = until_found(bed, hasty, "RFI001")
    assert found(answer, queues.space) == {("RFI001", "gpus")}
    assert "LocalQueues concerned" in answer.findings()[0]["message"]
    everything = check(kubeconfig=bed.kubeconfig)  # with its own patience no other check is alarmed
    assert found(everything, queues.space) == set()

    saved = tmp_path / "moment"
    answer = impact(bed, "--policy", hasty, "--save", str(saved))
    again = check("flavor-impact", "--policy", hasty, "--from", str(saved))
    assert again.fingerprints() == answer.fingerprints()
    assert again.verdicts() == answer.verdicts()

    bed.kubectl("patch", "clusterqueues.kueue.x-k8s.io", queues.name("busy"), "--type=merge", "-p", _none())
    bed.wait(lambda: "gpus" not in flavors(queues), 60, "the flavor's end with its last reference")


def _none() -> str:
    return json.dumps({"spec": {"resourceGroups": None}})


def test_a_deleted_flavor_that_stays_is_the_managers_fault(
    queues: Queues, bed: Bed, kueue: Kueue, hasty: str
) -> None:
    queues.apply(queues.flavor("spare"))
    kueue.scale(0)
    deleted(queues, "spare")
    answer = until_found(bed, hasty, "RFI002")
    (finding,) = answer.findings()
    assert (finding["severity"], finding["runbook"]) == ("error", "kueue-restart")
    assert "does not answer" in finding["message"]
    root = {each["cause"] for each in check("kueue-webhooks", kubeconfig=bed.kubeconfig).findings()}
    assert finding["cause"] in root
    kueue.restore()
    bed.wait(lambda: "spare" not in flavors(queues), 60, "the flavor's end with the manager's return")
    assert impact(bed, "--policy", hasty).findings() == []


def test_a_deleted_flavor_that_stays_is_the_webhooks_fault(
    queues: Queues, bed: Bed, kueue: Kueue, hasty: str
) -> None:
    """The manager runs, and may not take its finalizer away."""
    queues.apply(queues.flavor("spare"))
    kueue.freeze_rotator()
    for bundle in kueue.bundles():
        if bundle.resource == CONFIGURATIONS[1]:
            kueue.set_bundle(bundle, b"")
    bed.wait(lambda: _refuses(bed), 60, "a webhook that refuses")
    deleted(queues, "spare")
    answer = until_found(bed, hasty, "RFI002")
    assert "vresourceflavor.kb.io" in answer.findings()[0]["message"]
    kueue.restore()
    bed.wait(lambda: "spare" not in flavors(queues), 60, "the flavor's end")


def _refuses(bed: Bed) -> bool:
    flavor = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ResourceFlavor",
        "metadata": {"name": "dry-run"},
    }
    try:
        bed.kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(flavor))
    except KubectlError:
        return True
    return False


def test_what_is_not_protected_and_what_has_no_node(queues: Queues, bed: Bed, hasty: str) -> None:
    group = queues.queue("unused", 2, flavor="shared")["spec"]["resourceGroups"]
    odd = on_the_node(queues, "odd")
    odd["metadata"]["annotations"] = {"kueue.x-k8s.io/reclaimable": "true"}
    queues.apply(
        queues.flavor("shared"),
        queues._object("Cohort", "pool", {"resourceGroups": group}),
        queues.flavor("nowhere", nvidia_com="never"),
        *queues.line("lost", 2, flavor="nowhere", resource=GPU),
        odd,
        *queues.line("fine", 2, flavor="odd", resource=GPU),
        *queues.line("typo", 2, flavor="not-there"),
    )
    answer = until_found(bed, hasty, "RFI011")
    answer = until_found(bed, hasty, "RFI010")
    expected = {("RFI011", "shared"), ("RFI020", "nowhere"), ("RFI010", "not-there")}
    assert found(answer, queues.space) == expected
    assert {each["code"] for each in answer.findings() if each["severity"] == "info"} == {"RFI030"}
    bed.kubectl("delete", FLAVOR, queues.name("shared"))  # what RFI011 says: nothing keeps it
    assert "shared" not in flavors(queues)


REFUSED = {
    "borrowing from nobody": {"name": "cpu", "nominalQuota": 4, "borrowingLimit": 2},
    "lending to nobody": {"name": "cpu", "nominalQuota": 4, "lendingLimit": 2},
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_said_to_be_refused_is_refused(queues: Queues, case: str) -> None:
    queue = queues.queue("blog", REFUSED[case])
    with pytest.raises(KubectlError):
        queues.apply(queue)
    queue["spec"]["cohortName"] = queues.name("pool")
    queues.apply(queue)


def test_groups_that_are_said_to_be_refused_are_refused(queues: Queues) -> None:
    empty = queues.queue("blog")
    empty["spec"]["resourceGroups"][0]["flavors"] = []
    turned = queues.queue("blog")
    group = turned["spec"]["resourceGroups"][0]
    group["coveredResources"] = ["memory", "cpu"]
    group["flavors"][0]["resources"].append({"name": "memory", "nominalQuota": "4Gi"})
    for each in (empty, turned):
        with pytest.raises(KubectlError):
            queues.apply(each)


def test_the_last_drill_is_told_by_its_journal(
    queues: Queues, bed: Bed, state_namespace: str, user: Callable[..., Path]
) -> None:
    queues.apply(on_the_node(queues), *queues.line("busy", 4, flavor="gpus", resource=GPU))
    assert impact(bed).verdicts()["drilled-loss"] == "not-proven"
    _journal(bed, state_namespace, "succeeded")
    assert impact(bed).verdicts()["drilled-loss"] == "pass"
    _journal(bed, state_namespace, "timed-out")
    failed = impact(bed)
    assert {each["code"] for each in failed.findings()} == {"RFI040"}
    assert failed.code == 1
    groups = ("", "kueue.x-k8s.io", "apps", "batch", "discovery.k8s.io")
    everything = [
        {"apiGroups": [each], "resources": ["*"], "verbs": ["get", "list", "watch"]} for each in groups
    ]
    everything[0]["resources"] = ["nodes", "namespaces", "services", "pods"]
    blind = check("flavor-impact", kubeconfig=user("blind", everything))
    assert blind.verdicts()["drilled-loss"] == "not-proven"
    assert "configmaps in namespace gpuctl-system" in str(blind.report["checks"][0]["assertions"][-1])
    assert blind.findings() == []


def _journal(bed: Bed, namespace: str, outcome: str) -> None:
    """As the engine keeps it."""
    bed.kubectl("-n", namespace, "delete", "configmaps", "-l", "gpuctl.dev/runbook=flavor-drill")
    now = bed.kubectl("get", "namespace", namespace, "-o", "jsonpath={.metadata.creationTimestamp}")
    told = {
        "apiVersion": "gpuctl.dev/v1",
        "kind": "Run",
        "id": "run-1",
        "runbook": "flavor-drill",
        "state": "finished",
        "outcome": outcome,
        "startedAt": now,
        "finishedAt": now,
    }
    labels = {
        "app.kubernetes.io/managed-by": "gpuctl",
        "gpuctl.dev/run": "run-1",
        "gpuctl.dev/runbook": "flavor-drill",
    }
    item = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "gpuctl-run-1", "namespace": namespace, "labels": labels},
        "data": {"run.json": json.dumps(told)},
    }
    bed.kubectl("create", "-f", "-", input=json.dumps(item))
