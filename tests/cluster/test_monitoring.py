"""What fires, as a real Prometheus and a real Alertmanager tell it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpuctl.cluster.connection import Access, connect
from gpuctl.cluster.consent import Consent
from gpuctl.cluster.live import LiveReader
from gpuctl.cluster.web import Server
from gpuctl.facts.alerts import AlertState
from gpuctl.facts.fact import Alerts
from gpuctl.facts.gather import gather
from gpuctl.facts.state import Known, Reason, Unknown

from .bed import Bed
from .bed.alertmanager import Alertmanager, alerting
from .bed.prometheus import Prometheus, scraping

RULES = (
    {"alert": "GpuXid", "expr": "vector(1)", "labels": {"node": "gpu-1", "severity": "critical"}},
    {"alert": "GpuHot", "expr": "vector(1)", "labels": {"node": "gpu-2"}},
    {"alert": "GpuIdle", "expr": "vector(1)", "for": "1h"},
    {"alert": "GpuGone", "expr": "vector(0) > 1"},
)
FIRING, SILENCED, PENDING = AlertState.FIRING, AlertState.SILENCED, AlertState.PENDING


@pytest.fixture(scope="module")
def monitored(bed: Bed) -> Iterator[tuple[Prometheus, Alertmanager]]:
    with alerting(bed) as alertmanager, scraping(bed, RULES, alertmanager.address) as prometheus:
        yield prometheus, alertmanager


def read(bed: Bed, **named: Server) -> Any:
    reader = LiveReader(
        connect(Access(kubeconfig=str(bed.kubeconfig)), 30),
        30,
        consent=Consent(prometheus=named.get("prometheus"), alertmanager=named.get("alertmanager")),
    )
    return gather([Alerts()], reader, {}).state(Alerts())


def told(state: Any) -> dict[str, AlertState]:
    """By name; nothing where it is not known: all who ask wait for something."""
    return {alert.name: alert.state for alert in state.value} if isinstance(state, Known) else {}


def test_prometheus_and_alertmanager_tell_what_fires(
    bed: Bed, monitored: tuple[Prometheus, Alertmanager]
) -> None:
    prometheus, alertmanager = monitored
    of_prometheus, of_alertmanager = Server(prometheus.url), Server(alertmanager.url)
    bed.wait(
        lambda: (
            told(read(bed, prometheus=of_prometheus))
            == {"GpuXid": FIRING, "GpuHot": FIRING, "GpuIdle": PENDING}
        ),
        120,
        "the alerts of Prometheus",
    )
    bed.wait(
        lambda: told(read(bed, alertmanager=of_alertmanager)) == {"GpuXid": FIRING, "GpuHot": FIRING},
        120,
        "the alerts at Alertmanager",
    )
    alertmanager.silence(alertname="GpuHot")
    bed.wait(
        lambda: (
            told(read(bed, alertmanager=of_alertmanager, prometheus=of_prometheus))
            == {"GpuXid": FIRING, "GpuHot": SILENCED}
        ),
        60,
        "the silence",
    )
    (xid,) = (each for each in read(bed, alertmanager=of_alertmanager).value if each.name == "GpuXid")
    assert xid.label("node") == "gpu-1"
    assert timedelta(0) < datetime.now(UTC) - xid.since < timedelta(minutes=5)


def test_the_wrong_one_is_no_silence(bed: Bed, monitored: tuple[Prometheus, Alertmanager]) -> None:
    """Prometheus where an Alertmanager was meant, and the other way round: unknown, never "nothing fires"."""
    prometheus, alertmanager = monitored
    for state in (
        read(bed, alertmanager=Server(prometheus.url)),
        read(bed, prometheus=Server(alertmanager.url)),
    ):
        assert isinstance(state, Unknown)
        assert state.reason in (Reason.SERVER_ERROR, Reason.MALFORMED)
