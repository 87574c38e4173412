"""The alerts that are not over, as an Alertmanager and a Prometheus tell them; only where one was named."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gpuctl.cluster.connection import Access, connect
from gpuctl.cluster.consent import Consent
from gpuctl.cluster.live import LiveReader
from gpuctl.cluster.snapshot import open_snapshot
from gpuctl.cluster.web import Server
from gpuctl.facts.alerts import Alert, AlertState
from gpuctl.facts.fact import Alerts, rules
from gpuctl.facts.gather import gather
from gpuctl.facts.metrics import labels
from gpuctl.facts.state import Each, Inapplicable, Known, Reason, Unknown
from tests.cluster_door import fake_api as does
from tests.cluster_door.fake_api import FakeApi
from tests.memory import MemoryReader

OF_ALERTMANAGER = "/api/v2/alerts"
OF_PROMETHEUS = "/api/v1/alerts"
XID = {"alertname": "GpuXid", "node": "gpu-1", "severity": "critical"}
HOT = {"alertname": "GpuHot", "node": "gpu-2"}


def sent(found: dict[str, str], state: str, since: str = "2026-11-30T09:58:07.123456789Z") -> dict[str, Any]:
    return {
        "labels": found,
        "annotations": {"summary": "x"},
        "startsAt": since,
        "endsAt": "2026-11-30T10:02:00Z",
        "fingerprint": "f00d",
        "receivers": [{"name": "none"}],
        "status": {"state": state, "silencedBy": [], "inhibitedBy": []},
    }


def raised(found: dict[str, str], state: str) -> dict[str, Any]:
    return {
        "labels": found,
        "annotations": {},
        "state": state,
        "activeAt": "2026-11-30T10:58:07.5+01:00",
        "value": "1e+00",
    }


def prometheus(*alerts: Any) -> dict[str, Any]:
    return {"status": "success", "data": {"alerts": alerts}}


@pytest.fixture
def read(api: FakeApi, kubeconfig: Callable[..., Access]) -> Callable[..., Any]:
    def ask(alertmanager: str = "", prometheus: str = "") -> Any:
        given = Consent(
            alertmanager=Server(alertmanager) if alertmanager else None,
            prometheus=Server(prometheus) if prometheus else None,
        )
        reader = LiveReader(connect(kubeconfig(api.url), 30), 30, consent=given)
        return gather([Alerts()], reader, {}).state(Alerts())

    return ask


def test_an_alertmanager_tells_what_fires_and_what_is_silenced(api: FakeApi, read: Any) -> None:
    api.on(OF_ALERTMANAGER, does.body([sent(XID, "active"), sent(HOT, "suppressed")]))
    state = read(alertmanager=api.url)
    since = datetime(2026, 11, 30, 9, 58, 7, 123457, tzinfo=UTC)
    assert isinstance(state, Known)
    assert {alert.name: alert.state for alert in state.value} == {
        "GpuXid": AlertState.FIRING,
        "GpuHot": AlertState.SILENCED,
    }
    alert = state.value[labels(XID)]
    assert (alert.label("node"), alert.label("pod")) == ("gpu-1", "")
    assert alert.since is not None
    assert abs((alert.since - since).total_seconds()) < 0.001


def test_a_prometheus_tells_what_fires_and_what_soon_may(api: FakeApi, read: Any) -> None:
    api.on(OF_PROMETHEUS, does.body(prometheus(raised(XID, "firing"), raised(HOT, "pending"))))
    state = read(prometheus=api.url)
    assert isinstance(state, Known)
    since = datetime(2026, 11, 30, 9, 58, 7, 500000, tzinfo=UTC)
    assert state.value[labels(XID)] == Alert(labels(XID), AlertState.FIRING, since)
    assert state.value[labels(HOT)].state is AlertState.PENDING


def test_of_two_with_the_same_labels_the_one_that_fires_counts(api: FakeApi, read: Any) -> None:
    for order in (("firing", "pending"), ("pending", "firing")):
        api.on(OF_PROMETHEUS, does.body(prometheus(*(raised(XID, each) for each in order))))
        (alert,) = read(prometheus=api.url).value
        assert alert.state is AlertState.FIRING


def test_the_alertmanager_is_asked_where_both_are_named(api: FakeApi, read: Any) -> None:
    api.on(OF_ALERTMANAGER, does.body([]))
    assert read(alertmanager=api.url, prometheus=api.url) == Known(Each())
    assert api.asked(OF_PROMETHEUS) == 0


def test_nothing_is_asked_where_none_is_named(api: FakeApi, read: Any) -> None:
    assert isinstance(read(), Inapplicable)
    assert api.requests == []


def test_one_that_does_not_answer_is_unknown_though_the_other_would(api: FakeApi, read: Any) -> None:
    api.on(OF_PROMETHEUS, does.body(prometheus()))
    state = read(alertmanager="http://127.0.0.1:9", prometheus=api.url)
    assert isinstance(state, Unknown)
    assert state.reason is Reason.UNREACHABLE


@pytest.mark.parametrize(
    "alert",
    [
        {},
        {"labels": {}, "status": {"state": "active"}},
        {"labels": {"alertname": 7}, "status": {"state": "active"}},
        sent(HOT, "rejoicing"),
        sent(HOT, "active", since="yesterday"),
        "an alert",
    ],
    ids=["empty", "no labels", "a number", "an unknown state", "no time", "a text"],
)
def test_an_alert_that_cannot_be_read_is_a_gap_and_costs_no_other(
    api: FakeApi, read: Any, alert: Any
) -> None:
    api.on(OF_ALERTMANAGER, does.body([alert, sent(XID, "active")]))
    state = read(alertmanager=api.url)
    assert isinstance(state, Known)
    assert [each.name for _, each in state.value.known()] == ["GpuXid"]
    (gap,) = state.value.gaps()
    assert gap.reason is Reason.MALFORMED


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        (does.body({"status": "error", "error": "x"}), Reason.MALFORMED),
        (does.body({"status": "error", "data": {"alerts": []}}), Reason.MALFORMED),
        (does.body({"status": "success", "data": {}}), Reason.MALFORMED),
        (does.text(200, "<html>Sign in</html>"), Reason.MALFORMED),
        (does.text(401, "no"), Reason.UNAUTHORIZED),
        (does.text(503, "no"), Reason.SERVER_ERROR),
    ],
)
def test_no_answer_is_never_no_alerts(api: FakeApi, read: Any, behaviour: Any, reason: Reason) -> None:
    api.on(OF_ALERTMANAGER, behaviour)
    api.on(OF_PROMETHEUS, behaviour)
    for name in ("alertmanager", "prometheus"):
        state = read(**{name: api.url})
        assert isinstance(state, Unknown)
        assert state.reason is reason
        assert "alerts of http://127.0.0.1" in state.what


def test_a_snapshot_holds_none(tmp_path: Path) -> None:
    (tmp_path / "capture.yaml").write_text("apiVersion: gpuctl.dev/v1\nkind: Snapshot\nwriter: test\n")
    assert isinstance(open_snapshot(tmp_path).alerts(), Inapplicable)


def test_a_test_names_its_own() -> None:
    firing = Each.of({labels(XID): Alert(labels(XID), AlertState.FIRING)})
    assert gather([Alerts()], MemoryReader([], firing=firing), {})[Alerts()] == firing
    assert isinstance(gather([Alerts()], MemoryReader([]), {}).state(Alerts()), Inapplicable)


def test_it_takes_no_permission_in_the_cluster() -> None:
    assert rules(Alerts()) == frozenset()
