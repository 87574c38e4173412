"""The drill of a flavor's loss on a real Kueue: what it shows, what it leaves, and whom it disturbs.

What remains of drills that are killed is looked at in test_flavor_drill_killed.py.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from . import gpuctl
from .bed import Bed
from .bed.alertmanager import alerting
from .bed.kueue import Kueue
from .bed.prometheus import scraping
from .drilling import STATE, Person, left, nobody_else_disturbed, several
from .test_permissions import as_account
from .test_queue_growth import Queues

ALERT = "DrillQueueStands"
RULES = (
    {
        "alert": ALERT,
        "expr": 'kueue_cluster_queue_status{status="pending",cluster_queue=~"gpuctl-drill-.*"} == 1',
    },
)


@pytest.mark.faults
def test_a_loss_is_shown_without_a_fault(bed: Bed, driller: Person, busy_queue: Queues) -> None:
    with nobody_else_disturbed(bed):
        plan = driller.plan("flavor-drill")
        assert plan["blockers"] == []
        assert any("all other ClusterQueues (1) " in each for each in plan["effects"])
        answer = driller.apply()
        assert answer.returncode == 0, answer.stderr
    result = driller.newest["result"]
    assert result["staysTerminating"] is True
    assert (result["w1Admitted"], result["w2Admitted"]) == (True, True)
    assert result["stayedAdmitted"] == ["w1", "w2"]
    assert 0 < result["secondsToNotice"] < 30
    assert 0 < result["secondsToRelease"] < 30
    assert 10 <= result["secondsTerminating"] < 40
    assert "differences" not in result
    assert "changedByOthers" not in result
    assert "seconds to release: " in answer.stdout


def test_a_real_loss_is_measured_and_proves_the_check(bed: Bed, driller: Person, busy_queue: Queues) -> None:
    with nobody_else_disturbed(bed):
        assert driller.plan("flavor-drill", "--force-missing")["blockers"] == []
        arguments = (
            *("flavor-impact", "--drill-plan", str(driller.file)),
            *("--yes", "--policy", str(driller.policy)),
        )
        answer = gpuctl.check(*arguments, kubeconfig=bed.kubeconfig)
    assert answer.verdicts()["drilled-loss"] == "pass", answer.said
    (shown,) = (each for each in answer.findings() if each["code"] == "RFI042")
    assert "secondsToGoInactive" in shown["message"]
    assert answer.code == 0
    result = driller.newest["result"]
    assert result["inactiveReason"] == "FlavorNotFound"
    assert "is inactive" in result["w3Waits"]
    for name in ("secondsToGoInactive", "secondsToRecover", "secondsToAdmitAgain"):
        assert 0 < result[name] < 30, result
    assert 0 <= result["secondsToRecoverByConditions"] < 30
    assert result["stayedAdmitted"] == ["w1", "w2"]
    assert "differences" not in result


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_the_alert_that_should_fire_fires(bed: Bed, busy_queue: Queues, tmp_path: Path) -> None:
    """Seen by whom it is asked of: Prometheus itself, and the Alertmanager that it tells, at once."""
    expect = ("flavor-drill", "--force-missing", "--expect-alert", ALERT, "--alert-timeout", "90")

    def drills(driller: Person, *monitoring: str) -> dict[str, Any]:
        assert driller.plan(*expect, *monitoring)["blockers"] == []
        answer = driller.apply(*monitoring)
        assert answer.returncode == 0, answer.stderr
        found: dict[str, Any] = driller.newest["result"]
        return found

    with (
        alerting(bed) as alertmanager,
        scraping(bed, RULES, alertmanager.address) as prometheus,
        nobody_else_disturbed(bed),
        several(bed, tmp_path, 2) as (one, other),
        ThreadPoolExecutor(2) as pool,
    ):
        results = (
            pool.submit(drills, one, "--prometheus", prometheus.url),
            pool.submit(drills, other, "--alertmanager", alertmanager.url),
        )
        found = [each.result() for each in results]
    for result in found:
        assert (result["alert"], result["alertSilenced"]) == (ALERT, False)
        assert 0 < result["secondsToFire"] < 90


@pytest.mark.faults
def test_an_alert_that_does_not_fire_fails_the_drill_for_good(
    bed: Bed, driller: Person, busy_queue: Queues
) -> None:
    expect = ("flavor-drill", "--force-missing", "--expect-alert", ALERT, "--alert-timeout", "3")
    with nobody_else_disturbed(bed):
        with alerting(bed) as alertmanager:  # which no Prometheus tells anything
            asked = ("--alertmanager", alertmanager.url)
            assert driller.plan(*expect, *asked)["blockers"] == []
            silent = driller.apply(*asked)
        assert silent.returncode == 4
        assert f"the alert {ALERT} fires" in silent.stderr
        run = driller.newest["id"]
        assert driller.undo(run).returncode == 0
    still = gpuctl.check("flavor-impact", kubeconfig=bed.kubeconfig)
    assert ("RFI040", f"gpuctl-run-{run}") in still.found()


@pytest.mark.faults
def test_admission_that_waits_for_pods_refuses_the_drill(bed: Bed, driller: Person, kueue: Kueue) -> None:
    name, key = "kueue-manager-config", "controller_manager_config.yaml"
    found = json.loads(bed.kubectl("-n", kueue.namespace, "get", "configmap", name, "-o", "json"))
    configuration = yaml.safe_load(found["data"][key])
    configuration["waitForPodsReady"] = {"enable": True, "blockAdmission": True}
    patch = json.dumps({"data": {key: yaml.safe_dump(configuration)}})
    bed.kubectl("-n", kueue.namespace, "patch", "configmap", name, "--type=merge", "-p", patch)
    (blocker,) = driller.plan("flavor-drill", "--force-unknown-config")["blockers"]
    assert (blocker["guard"], blocker["override"]) == ("admission-is-not-blocked", "")
    refused = gpuctl.check(
        *("flavor-impact", "--drill-plan", str(driller.file), "--yes", "--policy", str(driller.policy)),
        kubeconfig=bed.kubeconfig,
    )
    assert refused.verdicts()["drilled-loss"] == "unknown"
    assert refused.code == 3
    assert "the drill that was asked for was refused" in str(refused.report)
    assert left(bed) == set()


@pytest.mark.faults
@pytest.mark.parametrize("flags", [(), ("--force-missing",)])
def test_the_printed_role_is_enough(
    bed: Bed, driller: Person, busy_queue: Queues, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    manifests = gpuctl.run("rbac", "--for", "flavor-drill", "--account", f"{STATE}/gpuctl").stdout
    bed.kubectl("apply", "-f", "-", input=manifests)
    account = as_account(bed, STATE, tmp_path)
    as_it = Person(bed, tmp_path, account)
    try:
        with nobody_else_disturbed(bed):
            plan = as_it.plan("flavor-drill", *flags)
            assert plan["blockers"] == [], plan["blockers"]
            answer = as_it.apply()
            assert answer.returncode == 0, answer.stderr
    finally:
        rest = [each for each in yaml.safe_load_all(manifests) if each["kind"] != "Namespace"]
        bed.kubectl("delete", "--ignore-not-found", "-f", "-", input=yaml.safe_dump_all(rest))


# The simulation on a real queue


def stop_policy(busy_queue: Queues) -> tuple[str | None, Any]:
    name = f"clusterqueues.kueue.x-k8s.io/{busy_queue.name('busy')}"
    found = json.loads(busy_queue.bed.kubectl("get", name, "-o", "json"))
    marks = found["metadata"].get("annotations", {})
    return found["spec"].get("stopPolicy"), marks.get("gpuctl.dev/held-by")


def test_a_queue_is_held_for_a_while_and_let_go(bed: Bed, driller: Person, busy_queue: Queues) -> None:
    before = stop_policy(busy_queue)
    plan = driller.plan("flavor-hold", busy_queue.name("busy"), "--seconds", "5")
    assert plan["blockers"] == []
    assert any("kubectl get resourceflavors" in each for each in plan["effects"])
    assert any("stays held until `gpuctl undo`" in each for each in plan["effects"])
    answer = driller.apply()
    assert answer.returncode == 0, answer.stderr
    assert stop_policy(busy_queue) == before
    result = driller.newest["result"]
    assert result["heldForSeconds"] >= 5
    assert (result["pendingBefore"], result["grewBy"]) == (1, 0)
    assert result["whoWaited"] == [f"{busy_queue.space}/busy: 1"]
    assert result["admittedAndKept"] == 1
    assert busy_queue.conditions("train-0")["Admitted"].startswith("True")


@pytest.mark.faults
def test_a_hold_that_is_killed_is_taken_back(bed: Bed, driller: Person, busy_queue: Queues) -> None:
    before = stop_policy(busy_queue)
    driller.plan("flavor-hold", busy_queue.name("busy"), "--seconds", "60")
    run = driller.killed_at(1)
    assert stop_policy(busy_queue) == ("Hold", run)
    answer = driller.undo(run)
    assert answer.returncode == 0, answer.stderr
    assert stop_policy(busy_queue) == before


@pytest.mark.faults
def test_a_queue_of_gitops_is_not_held(bed: Bed, driller: Person, busy_queue: Queues) -> None:
    name = f"clusterqueues.kueue.x-k8s.io/{busy_queue.name('busy')}"
    bed.kubectl("annotate", name, "argocd.argoproj.io/tracking-id=queues:kueue/ClusterQueue:busy")
    (blocker,) = driller.plan("flavor-hold", busy_queue.name("busy"))["blockers"]
    assert (blocker["guard"], blocker["override"]) == ("queue-is-nobodys", "--although-owned")
    assert driller.plan("flavor-hold", busy_queue.name("busy"), "--although-owned")["blockers"] == []
