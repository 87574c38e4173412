"""A real Prometheus on a bed that scrapes Kueue over https, with a token that may read its metrics.

    with scraping(bed) as prometheus:
        prometheus.query('kueue_pending_workloads{cluster_queue="gpus"}')

Debian's Prometheus is built without discovery in Kubernetes. So its targets are a file, kept up to date here.
"""

import json
import shutil
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from . import packages
from .bed import Bed
from .kubectl import KubectlError
from .machine import Process

NAMESPACE = "monitoring"
NAME = "prometheus"
PORT = 9090
INTERVAL = 2  # seconds between scrapes, and between looks for targets
READER = "kueue-metrics-reader"
METRICS_SERVICE = "app.kubernetes.io/component=metrics-service"
RBAC = "rbac.authorization.k8s.io"


@dataclass(frozen=True)
class Sample:
    """One series of an answer, with its value at the time asked for."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True)
class Prometheus:
    """The Prometheus of a bed, in the bed's machine. `rules` are its alerts, sent to `alertmanager`."""

    bed: Bed
    rules: Sequence[Mapping[str, Any]] = ()
    alertmanager: str = ""  # host:port

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://{self.bed.control_plane.link.inside}:{PORT}"

    @property
    def folder(self) -> Path:
        """Its configuration, token, targets and data."""
        return self.bed.folder / NAME

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def start(self) -> None:
        """Until Kueue has been scraped."""
        packages.ensure(packages.PROMETHEUS)
        self.folder.mkdir(exist_ok=True)
        shutil.rmtree(self._data, ignore_errors=True)  # no series of an earlier one, which others judged
        self._grant()
        self.find_targets()
        process = self._start_process()
        self.bed.wait(
            lambda: process.require_alive() and self._scraped(), 60, "Prometheus' first scrape of Kueue"
        )

    def stop(self) -> None:
        """End it and take its rights away."""
        self.bed.machine.process(NAME).stop()
        self.bed.kubectl("delete", "clusterrolebinding", f"bed-{NAME}", "--ignore-not-found")
        self.bed.kubectl("-n", NAMESPACE, "delete", "serviceaccount", NAME, "--ignore-not-found")

    def query(self, expression: str) -> list[Sample]:
        """The series of an expression, as they are now."""
        question = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{question}", timeout=10) as answer:
            found = json.load(answer)["data"]["result"]
        return [Sample(series["metric"], float(series["value"][1])) for series in found]

    def find_targets(self) -> None:
        """Tell it which endpoints Kueue's metrics have now."""
        listed = self.bed.kubectl(
            "get", "endpointslices", "-n", self.bed.kueue.namespace, "-l", METRICS_SERVICE, "-o", "json"
        )
        targets = [target for each in json.loads(listed)["items"] for target in _targets(each)]
        unfinished = self.folder / "targets.unfinished"
        unfinished.write_text(json.dumps(targets))
        unfinished.replace(self.folder / "targets.json")

    def _scraped(self) -> bool:
        try:
            return [sample.value for sample in self.query('up{job="kueue"}')] == [1.0]
        except OSError:  # it does not listen yet
            return False

    def _start_process(self) -> Process:
        file = self.folder / "prometheus.yml"
        file.write_text(yaml.safe_dump(self._configuration()))
        groups = [{"name": "bed", "rules": [dict(each) for each in self.rules]}]
        (self.folder / "rules.yml").write_text(yaml.safe_dump({"groups": groups}))
        flags = {
            "config.file": file,
            "storage.tsdb.path": self._data,
            "web.listen-address": f"0.0.0.0:{PORT}",
        }
        command = (packages.PROMETHEUS[NAME], *(f"--{name}={value}" for name, value in flags.items()))
        return self.bed.machine.start(NAME, command)

    def _configuration(self) -> dict[str, Any]:
        interval = f"{INTERVAL}s"
        kueue = {
            "job_name": "kueue",
            "scheme": "https",
            "authorization": {"credentials_file": str(self.folder / "token")},
            "tls_config": {"insecure_skip_verify": True},
            "file_sd_configs": [{"files": [str(self.folder / "targets.json")]}],
        }
        receivers = [{"static_configs": [{"targets": [self.alertmanager]}]}] if self.alertmanager else []
        return {
            "global": {
                "scrape_interval": interval,
                "scrape_timeout": interval,
                "evaluation_interval": interval,
            },
            "rule_files": [str(self.folder / "rules.yml")],
            "alerting": {"alertmanagers": receivers},
            "scrape_configs": [kueue],
        }

    def _grant(self) -> None:
        """Make a ServiceAccount that may read Kueue's metrics, and keep its token."""
        account = {"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}
        role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": READER}
        objects = [
            _object("v1", "Namespace", NAMESPACE),
            _object("v1", "ServiceAccount", NAME, NAMESPACE),
            _object(f"{RBAC}/v1", "ClusterRoleBinding", f"bed-{NAME}")
            | {"roleRef": role, "subjects": [account]},
        ]
        for made in objects:
            self.bed.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(made))
        token = self.bed.kubectl("create", "token", NAME, "-n", NAMESPACE, "--duration=24h")
        (self.folder / "token").write_text(token.strip())


@contextmanager
def scraping(
    bed: Bed, rules: Sequence[Mapping[str, Any]] = (), alertmanager: str = ""
) -> Iterator[Prometheus]:
    """A Prometheus that has scraped Kueue and goes on doing so, also when its pods are replaced."""
    prometheus = Prometheus(bed, rules, alertmanager)
    prometheus.start()
    done = threading.Event()
    follower = threading.Thread(target=_follow, args=(prometheus, done), daemon=True)
    follower.start()
    try:
        yield prometheus
    finally:
        done.set()
        follower.join()
        prometheus.stop()


def _follow(prometheus: Prometheus, done: threading.Event) -> None:
    while not done.wait(INTERVAL):
        try:
            prometheus.find_targets()
        except KubectlError:  # a test may have broken the API server's way to it
            continue


def _targets(slice_: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The endpoints of a slice, labelled as ServiceMonitors have it."""
    about = slice_["metadata"]
    service = about["labels"]["kubernetes.io/service-name"]
    for endpoint in slice_.get("endpoints") or ():
        labels = {"namespace": about["namespace"], "service": service, "pod": endpoint["targetRef"]["name"]}
        for port in slice_["ports"]:
            yield {"targets": [f"{endpoint['addresses'][0]}:{port['port']}"], "labels": labels}


def _object(version: str, kind: str, name: str, namespace: str = "") -> dict[str, Any]:
    scope = {"namespace": namespace} if namespace else {}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **scope}}
