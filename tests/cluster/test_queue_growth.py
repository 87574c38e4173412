"""The check on a real Kueue: every cause that can be made there is made, found, and nothing else is."""

from __future__ import annotations

import json
import os
import resource
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuctl.audit.permissions import grants
from gpuctl.checks.queue_growth import CHECK

from .bed import Bed
from .bed.etcd import REGISTRY, Etcd
from .bed.kueue import Kueue
from .bed.prometheus import scraping
from .bed.wait import crowding
from .gpuctl import Answer, check, run

GPU = "nvidia.com/gpu"
CONFIG_MAP, CONFIG_KEY = "kueue-manager-config", "controller_manager_config.yaml"
CONFIGURATION = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}
IMPATIENT = {  # so that a test does not take an hour
    "apiVersion": "gpuctl.dev/v1",
    "kind": "Policy",
    "checks": {
        "queue-growth": {
            "oldestWaitWarningMinutes": 0.03,
            "oldestWaitErrorMinutes": 60,
            "settleSeconds": 1,
            "requeues": 5,
        }
    },
}


@dataclass(frozen=True)
class Queues:
    """What a test makes for Kueue in one namespace; all names begin with it."""

    bed: Bed
    space: str

    def apply(self, *objects: Mapping[str, Any]) -> None:
        items = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        self.bed.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=items)

    def name(self, short: str) -> str:
        return f"{self.space}-{short}"

    def flavor(self, short: str = "plain", **labels: str) -> dict[str, Any]:
        spec = {"nodeLabels": {key.replace("_", "/"): label for key, label in labels.items()}}
        return self._object("ResourceFlavor", short, spec)

    def queue(
        self, short: str, quota: Any = 4, *, flavor: str = "plain", resource: str = "cpu", **spec: Any
    ) -> dict[str, Any]:
        entry = {"name": resource, **(quota if isinstance(quota, dict) else {"nominalQuota": quota})}
        group = {
            "coveredResources": [resource],
            "flavors": [{"name": self.name(flavor), "resources": [entry]}],
        }
        if "cohort" in spec:
            spec["cohortName"] = self.name(spec.pop("cohort"))
        return self._object(
            "ClusterQueue", short, {"namespaceSelector": {}, "resourceGroups": [group], **spec}
        )

    def local_queue(self, short: str, to: str = "") -> dict[str, Any]:
        return {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "LocalQueue",
            "metadata": {"name": short, "namespace": self.space},
            "spec": {"clusterQueue": self.name(to or short)},
        }

    def line(self, short: str, quota: Any = 4, **more: Any) -> list[dict[str, Any]]:
        """A ClusterQueue and a LocalQueue of the same short name."""
        return [self.queue(short, quota, **more), self.local_queue(short)]

    def workload(
        self, name: str, queue: str, amount: Any = 1, resource: str = "cpu", **spec: Any
    ) -> dict[str, Any]:
        """A Workload that nobody owns: it takes quota, and makes no pods."""
        requests = {resource: str(amount)}
        container = {"name": "main", "image": "localhost/busybox:1", "resources": {"requests": requests}}
        template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        return {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "metadata": {"name": name, "namespace": self.space},
            "spec": {
                "queueName": queue,
                "podSets": [{"name": "main", "count": 1, "template": template}],
                **spec,
            },
        }

    def job(
        self, name: str, queue: str, amount: int = 1, resource: str = GPU, **labels: str
    ) -> dict[str, Any]:
        """A Job that sleeps on the real node."""
        container = {
            "name": "main",
            "image": "localhost/busybox:1",
            "imagePullPolicy": "Never",
            "command": ["sleep", "3600"],
            "resources": {"limits": {resource: str(amount)}},
        }
        pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
        marks = {f"kueue.x-k8s.io/{key.replace('_', '-')}": label for key, label in labels.items()}
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": name,
                "namespace": self.space,
                "labels": {"kueue.x-k8s.io/queue-name": queue, **marks},
            },
            "spec": {"suspend": True, "backoffLimit": 0, "template": {"spec": pod}},
        }

    def conditions(self, name: str) -> dict[str, str]:
        """The conditions of a Workload by type: status and reason."""
        listed = self.bed.kubectl("-n", self.space, "get", "workloads.kueue.x-k8s.io", name, "-o", "json")
        found = json.loads(listed).get("status", {}).get("conditions", ())
        return {each["type"]: f"{each['status']} {each['reason']}" for each in found}

    def _is_admitted(self, name: str) -> bool:
        return self.conditions(name).get("Admitted", "").startswith("True")

    def admitted(self, *names: str) -> None:
        """Until all of these are."""
        for name in names:
            self.bed.wait(
                partial(self._is_admitted, name),
                60,
                f"admission of {name}",
            )

    def patch(self, name: str, status: Mapping[str, Any]) -> None:
        """Writes a Workload's status, as a controller would."""
        self.bed.kubectl(
            *("-n", self.space, "patch", "workloads.kueue.x-k8s.io", name, "--subresource=status"),
            *("--type=merge", "-p", json.dumps({"status": status})),
        )

    def _object(self, kind: str, short: str, spec: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": kind,
            "metadata": {"name": self.name(short), "labels": {"gpuctl-test": self.space}},
            "spec": dict(spec),
        }

    def remove(self) -> None:
        """Takes away all that is not in the namespace, and first what holds quota; until it is gone."""
        kubectl = self.bed.kubectl
        kubectl("-n", self.space, "delete", "jobs", "--all", "--wait=false")
        kubectl("-n", self.space, "delete", "workloads.kueue.x-k8s.io", "--all", "--wait=false")
        kinds = ("clusterqueues", "cohorts", "resourceflavors", "admissionchecks")
        names = ",".join(f"{each}.kueue.x-k8s.io" for each in kinds)
        own = (names, "-l", f"gpuctl-test={self.space}")
        kubectl("delete", *own, "--wait=false")
        # A queue ends once nothing has its quota, a flavor once no queue has it; the next test must not see
        # that happen. Where Kueue is down it never does, which is not for this one to tell.
        kubectl("wait", "--for=delete", *own, "--timeout=60s", check=False)


@pytest.fixture
def impatient(tmp_path: Path) -> str:
    file = tmp_path / "gpuctl.yaml"
    file.write_text(yaml.safe_dump(IMPATIENT))
    return str(file)


def found(answer: Answer, space: str) -> set[tuple[str, str]]:
    """Code and short name of what was found in one namespace's objects."""
    return {
        (each["code"], each["object"]["name"].removeprefix(f"{space}-"))
        for each in answer.findings()
        if each["severity"] != "info"
    }


def test_a_busy_healthy_cluster_is_silent(queues: Queues, bed: Bed) -> None:
    flavor = queues.flavor("gpus")
    flavor["spec"]["nodeLabels"] = {"kubernetes.io/hostname": bed.node}
    queues.apply(flavor, *queues.line("busy", 4, flavor="gpus", resource=GPU))
    queues.apply(*(queues.job(f"train-{number}", "busy", 2) for number in range(4)))
    bed.wait(lambda: _running(queues) == 2, 60, "two Jobs in all of the quota")
    answer = check("queue-growth", kubeconfig=bed.kubeconfig)
    assert answer.findings() == []
    assert answer.code == 0, answer.report


def _running(queues: Queues) -> int:
    phases = queues.bed.kubectl("-n", queues.space, "get", "pods", "-o", "jsonpath={.items[*].status.phase}")
    return phases.split().count("Running")


def test_what_waits_is_explained(
    queues: Queues, bed: Bed, impatient: str, tmp_path: Path, user: Callable[..., Path]
) -> None:
    """Queues of plain CPUs, each with another fault, all at once; live and from the snapshot of that
    moment."""
    strict = {"queueingStrategy": "StrictFIFO"}
    elsewhere = {"namespaceSelector": {"matchLabels": {"team": "nobody"}}}
    queues.apply(
        queues.flavor(),
        *queues.line("fine"),
        *queues.line("full", 2),
        *queues.line("small", 2),
        *queues.line("typo", flavor="not-there"),
        *queues.line("strict", 3, **strict),
        *queues.line("lender", cohort="pool"),
        *queues.line("borrower", 0, cohort="pool"),
        *queues.line("miser", {"nominalQuota": 4, "lendingLimit": 0}, cohort="mean"),
        *queues.line("poor", 0, cohort="mean"),
        *queues.line("bare"),
        *queues.line("closed", **elsewhere),
        *queues.line("rounds", cohort="first"),
        queues._object("Cohort", "first", {"parentName": queues.name("second")}),
        queues._object("Cohort", "second", {"parentName": queues.name("first")}),
        *queues.line("back"),
        *queues.line("stale"),
        *queues.line("off", stopPolicy="Hold"),
        *queues.line("unasked", admissionChecksStrategy={"admissionChecks": [{"name": "not-there"}]}),
        *queues.line("flat"),
    )
    queues.apply(
        queues.workload("fine-1", "fine"),
        queues.workload("full-1", "full", 2),
        queues.workload("strict-1", "strict", 2),
        queues.workload("borrower-1", "borrower", 4),
        queues.workload("back-1", "back", 9),
        queues.workload("stale-1", "stale", 3),
    )
    queues.admitted("fine-1", "full-1", "strict-1", "borrower-1", "stale-1")
    queues.apply(
        queues.workload("full-2", "full", 1),
        queues.workload("small-1", "small", 7),
        queues.workload("typo-1", "typo"),
        queues.workload("strict-2", "strict", 3, priority=9),
        queues.workload(
            "strict-3", "strict", 1, priority=0
        ),  # without, 0.17.0 panics when asked for positions
        queues.workload("lender-1", "lender", 2),
        queues.workload("poor-1", "poor", 2),
        queues.workload("bare-1", "bare", 1, "example.com/dongle"),
        queues.workload("closed-1", "closed"),
        queues.workload("rounds-1", "rounds"),
        queues.workload("lost-1", "nowhere"),
        queues.workload("off-1", "off"),
        queues.workload("unasked-1", "unasked"),
        _near(queues.workload("flat-1", "flat")),
    )
    _return(queues, "back-1")
    _evict(queues, "stale-1")
    bed.wait(lambda: "full-2" in _told(queues), 60, "Kueue's word on what waits")
    saved = tmp_path / "moment"
    bed.wait(lambda: _old(queues), 60, "a few seconds of waiting")
    answer = check("queue-growth", "--policy", impatient, "--save", str(saved), kubeconfig=bed.kubeconfig)
    expected = {
        ("CQG030", "full"),
        ("CQG020", "small"),
        ("CQG011", "typo"),
        ("CQG012", "unasked"),
        ("CQG022", "flat"),
        ("CQG034", "strict"),
        ("CQG032", "lender"),
        ("CQG025", "poor"),
        ("CQG021", "bare"),
        ("CQG042", "closed"),
        ("CQG015", "rounds"),
        ("CQG040", "nowhere"),
        ("CQG051", "back"),
        ("CQG060", "stale"),
    }
    seen = found(answer, queues.space)
    assert expected <= seen, (expected - seen, seen)
    assert {name for _, name in seen} & {"fine", "off", "miser", "borrower", "plain"} == set(), seen
    assert answer.code == 1

    again = check("queue-growth", "--policy", impatient, "--from", str(saved))
    assert again.fingerprints() == answer.fingerprints()
    assert again.verdicts() == answer.verdicts()

    assert _positions(queues, "strict", bed.kubeconfig) == {"strict-2": "0", "strict-3": "1"}
    blind = user("blind", [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["list"]}, CONFIGURATION])
    assert _positions(queues, "strict", blind) == {"strict-2": "~0", "strict-3": "~1"}


def _near(workload: dict[str, Any]) -> dict[str, Any]:
    """Its pods want to be near each other, where no flavor has a topology."""
    workload["spec"]["podSets"][0]["topologyRequest"] = {"required": "kubernetes.io/hostname"}
    return workload


def _positions(queues: Queues, queue: str, kubeconfig: Path) -> dict[str, str]:
    """Where Workloads stand in a queue, as the manager tells it, or as it is estimated."""
    answer = run("queues", queues.name(queue), kubeconfig=kubeconfig)
    assert answer.returncode == 0, answer.stderr
    _, _, rows = answer.stdout.partition("POSITION")
    cells = (row.split() for row in rows.splitlines()[1:])
    return {row[2]: row[0] for row in cells if len(row) > 2 and row[1] == queues.space}


def _return(queues: Queues, name: str) -> None:
    """As often as Kueue does when pods do not become ready."""
    at = queues.bed.kubectl("get", "namespace", queues.space, "-o", "jsonpath={.metadata.creationTimestamp}")
    assert at
    queues.patch(name, {"requeueState": {"count": 6, "requeueAt": "2099-01-01T00:00:00Z"}})


def _evict(queues: Queues, name: str) -> None:
    """A Workload that nobody owns is evicted, and nobody gives its quota back."""
    patch = json.dumps({"spec": {"active": False}})
    queues.bed.kubectl(
        "-n", queues.space, "patch", "workloads.kueue.x-k8s.io", name, "--type=merge", "-p", patch
    )
    queues.bed.wait(
        lambda: queues.conditions(name).get("Evicted", "").startswith("True"), 30, f"eviction of {name}"
    )


def _told(queues: Queues) -> set[str]:
    """The Workloads of which Kueue has said why they wait."""
    listed = queues.bed.kubectl("-n", queues.space, "get", "workloads.kueue.x-k8s.io", "-o", "json")
    return {
        each["metadata"]["name"]
        for each in json.loads(listed)["items"]
        if any(
            part["type"] == "QuotaReserved" and part["status"] == "False"
            for part in each.get("status", {}).get("conditions", ())
        )
    }


def _old(queues: Queues) -> bool:
    """Whether the youngest Workload is older than the policy's patience."""
    listed = queues.bed.kubectl("-n", queues.space, "get", "workloads.kueue.x-k8s.io", "-o", "json")
    made = [each["metadata"]["creationTimestamp"] for each in json.loads(listed)["items"]]
    youngest = max(datetime.fromisoformat(each) for each in made)
    return (datetime.now(UTC) - youngest).total_seconds() > 4


def test_what_has_quota_is_explained(queues: Queues, bed: Bed, kueue: Kueue, impatient: str) -> None:
    """On the real node: pods without room, checks that stay open, deactivated, and a Job without Workload."""
    flavor = queues.flavor("gpus")
    flavor["spec"]["nodeLabels"] = {"kubernetes.io/hostname": bed.node}
    queues.apply(
        flavor,
        queues._object("AdmissionCheck", "slow", {"controllerName": "example.com/nobody"}),
        *queues.line("over", 16, flavor="gpus", resource=GPU),
    )
    bed.kubectl(
        *("patch", "admissionchecks.kueue.x-k8s.io", queues.name("slow"), "--subresource=status"),
        *("--type=merge", "-p", json.dumps({"status": {"conditions": [_active()]}})),
    )
    checks = {"admissionChecksStrategy": {"admissionChecks": [{"name": queues.name("slow")}]}}
    queues.apply(queues.flavor(), *queues.line("checked", **checks), *queues.line("brief", 1))
    queues.apply(
        queues.job("too-big", "over", 8),
        queues.workload("checked-1", "checked"),
        queues.job("brief", "brief", 1, "cpu", max_exec_time_seconds="1"),
    )
    bed.wait(lambda: "Unschedulable" in _pods(queues), 60, "a pod without room")
    bed.wait(lambda: _deactivated(queues), 60, "a Workload that ran out of time")
    role = json.loads(bed.kubectl("get", "clusterrole", kueue.cluster_role, "-o", "json"))
    for rule in role["rules"]:
        if "workloads" in rule.get("resources", ()):
            rule["verbs"] = [verb for verb in rule["verbs"] if verb != "create"]
    bed.kubectl(
        "patch", "clusterrole", kueue.cluster_role, "--type=merge", "-p", json.dumps({"rules": role["rules"]})
    )
    queues.apply(queues.job("unseen", "over"))
    time.sleep(4)
    answer = check("queue-growth", "--policy", impatient, kubeconfig=bed.kubeconfig)
    expected = {
        ("CQG070", "gpus"),
        ("CQG072", "gpus"),
        ("CQG050", "checked"),
        ("CQG052", "brief"),
        ("CQG043", "unseen"),
    }
    seen = found(answer, queues.space)
    assert expected <= seen, (expected - seen, seen)
    shown = run("check", "queue-growth", "--policy", impatient, kubeconfig=bed.kubeconfig)
    assert "Kueue counts them as running" in shown.stdout


def _active() -> dict[str, str]:
    return {
        "type": "Active",
        "status": "True",
        "reason": "Active",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


def _pods(queues: Queues) -> str:
    return queues.bed.kubectl(
        "-n", queues.space, "get", "pods", "-o", "jsonpath={.items[*].status.conditions[*].reason}"
    )


def _deactivated(queues: Queues) -> bool:
    listed = queues.bed.kubectl("-n", queues.space, "get", "workloads.kueue.x-k8s.io", "-o", "json")
    return any(
        each["spec"].get("active") is False
        and not any(
            part["type"] == "QuotaReserved" and part["status"] == "True"
            for part in each["status"]["conditions"]
        )
        for each in json.loads(listed)["items"]
    )


def test_growth_is_watched_and_asked_for(queues: Queues, bed: Bed, tmp_path: Path) -> None:
    """With --window a backlog is seen to grow; a real Prometheus that scrapes the real Kueue is asked."""
    queues.apply(queues.flavor(), *queues.line("rush", 1), *queues.line("calm", 4))
    queues.apply(queues.workload("rush-0", "rush"), queues.workload("calm-0", "calm"))
    queues.admitted("rush-0", "calm-0")
    saved = tmp_path / "watched"
    with scraping(bed) as prometheus:
        done = threading.Event()
        arrivals = threading.Thread(target=_arrive, args=(queues, "rush", done), daemon=True)
        arrivals.start()
        options = ("--window", "48s", "--prometheus", prometheus.url, "--save", str(saved))
        answer = check("queue-growth", *options, kubeconfig=bed.kubeconfig)
        done.set()
        arrivals.join()
        listed = run("queues", kubeconfig=bed.kubeconfig)
    assert ("CQG002", "rush") in found(answer, queues.space)
    assert {name for _, name in found(answer, queues.space)} == {"rush"}
    assert answer.verdicts()["steady-backlogs"] == "fail"
    assert (
        answer.verdicts()["steady-past"] == "not-proven"
    )  # it has scraped for seconds, and hours are judged
    assert queues.name("rush") in listed.stdout
    assert "watching clusterqueues" in answer.said or "reading" in answer.said

    again = check("queue-growth", "--from", str(saved))
    assert again.fingerprints() == answer.fingerprints()
    assert again.verdicts() == answer.verdicts()

    dead = check("queue-growth", "--prometheus", "http://127.0.0.1:9", kubeconfig=bed.kubeconfig)
    assert dead.verdicts()["steady-past"] == "unknown"
    assert dead.code == 3


def _arrive(queues: Queues, queue: str, done: threading.Event) -> None:
    """One Workload after another, faster than anybody leaves."""
    number = 1
    while not done.wait(1):
        queues.apply(queues.workload(f"{queue}-{number}", queue))
        number += 1


def test_pods_that_are_not_ready_block_all_others(
    queues: Queues, bed: Bed, kueue: Kueue, impatient: str
) -> None:
    """Only the first that waits is told so by Kueue; the others are explained all the same."""
    with _configured(kueue, waitForPodsReady={"timeout": "10m", "blockAdmission": True}):
        queues.apply(queues.flavor(), *queues.line("first"), *queues.line("second"), *queues.line("third"))
        queues.apply(queues.workload("first-1", "first"))
        queues.admitted("first-1")
        queues.apply(queues.workload("second-1", "second"))
        bed.wait(lambda: "Waiting" in queues.conditions("second-1").get("QuotaReserved", ""), 60, "a block")
        queues.apply(queues.workload("third-1", "third"))
        bed.wait(lambda: _old(queues), 60, "a few seconds of waiting")
        answer = check("queue-growth", "--policy", impatient, kubeconfig=bed.kubeconfig)
        assert queues.conditions("third-1") == {}, "Kueue has not said a word of it"
    blocked = {each["object"]["name"]: each for each in answer.findings() if each["code"] == "CQG035"}
    assert set(blocked) == {queues.name("second"), queues.name("third")}, found(answer, queues.space)
    assert all(f"Workload {queues.space}/first-1 are not" in each["message"] for each in blocked.values())


@contextmanager
def _configured(kueue: Kueue, **settings: Any) -> Iterator[None]:
    """The manager with other settings; afterwards with its own again."""
    found = kueue.kubectl("-n", kueue.namespace, "get", "configmap", CONFIG_MAP, "-o", "json")
    before = json.loads(found)["data"][CONFIG_KEY]
    _configure(kueue, yaml.safe_dump({**yaml.safe_load(before), **settings}))
    try:
        yield
    finally:
        _configure(kueue, before)


def _configure(kueue: Kueue, text: str) -> None:
    patch = json.dumps({"data": {CONFIG_KEY: text}})
    kueue.kubectl("-n", kueue.namespace, "patch", "configmap", CONFIG_MAP, "--type=merge", "-p", patch)
    kueue.restart()
    kueue.wait_healthy()


def test_the_printed_role_is_enough(queues: Queues, bed: Bed, user: Callable[..., Path]) -> None:
    roles = [each for each in yaml.safe_load_all(run("rbac", "--for", "queue-growth").stdout) if each]
    rules = [rule for each in roles if each["kind"] == "ClusterRole" for rule in each["rules"]]
    queues.apply(queues.flavor(), *queues.line("small", 2, cohort="pool"))
    queues.apply(queues.workload("small-1", "small", 1), queues.workload("small-2", "small", 7))
    queues.admitted("small-1")
    reader = user("queue-reader", rules)
    mine = check("queue-growth", kubeconfig=reader)
    theirs = check("queue-growth", kubeconfig=bed.kubeconfig)
    assert mine.verdicts() == theirs.verdicts()
    assert "unknown" not in mine.verdicts().values()
    assert run("can-i", "--for", "queue-growth", kubeconfig=reader).returncode == 0
    lacking = user("no-pods", [each for each in rules if each["resources"] != ["pods"]])
    lost = check("queue-growth", kubeconfig=lacking).verdicts()
    unknown = {name for name, verdict in lost.items() if verdict == "unknown"}
    (pods,) = (grant for grant in grants([CHECK]) if str(grant.rule) == "list pods")
    assert unknown <= {name.removeprefix(f"{CHECK.id}/") for name in pods.assertions}
    assert unknown


def test_the_first_verdict_comes_soon(queues: Queues, bed: Bed) -> None:
    """Of 2,500 Workloads in 25 queues."""
    short = [f"q{number}" for number in range(25)]
    queues.apply(queues.flavor(), *(each for name in short for each in queues.line(name, 1)))
    now = datetime.now(UTC)
    etcd = Etcd(bed.control_plane.etcd)
    prefix = f"{REGISTRY}kueue.x-k8s.io/workloads/{queues.space}/"
    etcd.put(
        (f"{prefix}many-{number}", _stored(queues.workload(f"many-{number}", short[number % 25]), now))
        for number in range(2500)
    )
    pending = "jsonpath={.items[*].status.pendingWorkloads}"
    bed.wait(
        lambda: (
            sum(map(int, bed.kubectl("get", "clusterqueues.kueue.x-k8s.io", "-o", pending).split())) > 2400
        ),
        120,
        "Kueue's count of 2,500 Workloads",
    )
    before = _cpu()
    took, answer = min((_timed(bed) for _ in range(2)), key=lambda each: each[0])  # others may be busy here
    busy = (_cpu() - before) / 2
    print(f"{took:.1f} s, {busy:.1f} s of CPU, at a load of {os.getloadavg()[0]:.1f}")  # seen with -rP
    etcd.delete(etcd.keys(prefix))
    assert {each["subjects"] is None for each in answer.report["checks"]} == {False}
    assert answer.code == 0, answer.findings()[:3]
    assert took < 10 * crowding(), f"{took:.1f} s at {crowding():.0f} times the load the machine can take"


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _timed(bed: Bed) -> tuple[float, Answer]:
    begun = time.monotonic()
    answer = check("queue-growth", kubeconfig=bed.kubeconfig)
    return time.monotonic() - begun, answer


def _stored(workload: dict[str, Any], now: datetime) -> dict[str, Any]:
    """As the API server keeps it."""
    about = workload["metadata"] | {
        "uid": str(uuid.uuid4()),
        "creationTimestamp": f"{now:%Y-%m-%dT%H:%M:%SZ}",
        "generation": 1,
    }
    workload["spec"]["active"] = True
    workload["spec"]["podSets"][0]["template"]["spec"] |= {"terminationGracePeriodSeconds": 30}
    return workload | {"metadata": about}
