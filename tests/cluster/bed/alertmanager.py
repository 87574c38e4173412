"""A real Alertmanager on a bed.

with alerting(bed) as alertmanager, scraping(bed, rules, alertmanager.address):
    alertmanager.silence(alertname="GpuHot")
"""

import json
import shutil
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import yaml

from . import packages
from .bed import Bed

NAME = "alertmanager"
PORT = 9093
CONFIGURATION = {"route": {"receiver": "nobody"}, "receivers": [{"name": "nobody"}]}


@dataclass(frozen=True)
class Alertmanager:
    """The Alertmanager of a bed; it runs in the bed's machine, and tells nobody."""

    bed: Bed

    @property
    def address(self) -> str:
        """Where it answers, as Prometheus wants it."""
        return f"{self.bed.control_plane.link.inside}:{PORT}"

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def start(self) -> None:
        """Until it answers."""
        packages.ensure(packages.ALERTMANAGER)
        folder = self.bed.folder / NAME
        data = folder / "data"
        folder.mkdir(exist_ok=True)
        shutil.rmtree(data, ignore_errors=True)  # no silences of an earlier one
        file = folder / "alertmanager.yml"
        file.write_text(yaml.safe_dump(CONFIGURATION))
        flags = {
            "config.file": file,
            "storage.path": data,
            "web.listen-address": f"0.0.0.0:{PORT}",
            "cluster.listen-address": "",
        }
        command = packages.ALERTMANAGER["prometheus-alertmanager"]
        process = self.bed.machine.start(
            NAME, (command, *(f"--{name}={value}" for name, value in flags.items()))
        )
        self.bed.wait(lambda: process.require_alive() and self._ready(), 30, "Alertmanager's first answer")

    def stop(self) -> None:
        self.bed.machine.process(NAME).stop()

    def silence(self, **labels: str) -> None:
        """Keep the alerts with these labels from being sent."""
        now = datetime.now(UTC)
        matchers = [
            {"name": name, "value": value, "isRegex": False, "isEqual": True}
            for name, value in labels.items()
        ]
        silence = {
            "matchers": matchers,
            "startsAt": now.isoformat(),
            "endsAt": (now + timedelta(hours=1)).isoformat(),
            "createdBy": "bed",
            "comment": "a test",
        }
        self._ask("/api/v2/silences", json.dumps(silence).encode())

    def _ready(self) -> bool:
        try:
            self._ask("/api/v2/status")
        except OSError:  # it does not listen yet
            return False
        return True

    def _ask(self, path: str, body: bytes | None = None) -> Any:
        request = urllib.request.Request(self.url + path, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)


@contextmanager
def alerting(bed: Bed) -> Iterator[Alertmanager]:
    """An Alertmanager for as long as it is used."""
    alertmanager = Alertmanager(bed)
    alertmanager.start()
    try:
        yield alertmanager
    finally:
        alertmanager.stop()
