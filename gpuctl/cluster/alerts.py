"""Reads the alerts that are not over from an Alertmanager or a Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any, Final, TypeVar

import msgspec

from gpuctl.cluster.web import Server
from gpuctl.facts.alerts import Alert, AlertState
from gpuctl.facts.kinds import Moment
from gpuctl.facts.metrics import Labels, labels
from gpuctl.facts.state import Each, Known, Reason, State, Unknown

T = TypeVar("T")

_OF_ALERTMANAGER: Final = {
    "active": AlertState.FIRING,
    "unprocessed": AlertState.FIRING,
    "suppressed": AlertState.SILENCED,
}
_OF_PROMETHEUS: Final = {"firing": AlertState.FIRING, "pending": AlertState.PENDING}
_Labels = Annotated[dict[str, str], msgspec.Meta(min_length=1)]


class _Status(msgspec.Struct):
    state: str


class _Sent(msgspec.Struct, rename="camel"):
    """An alert as Alertmanager's API v2 has it."""

    labels: _Labels
    status: _Status
    starts_at: Moment | None = None

    def read(self) -> Alert:
        return Alert(labels(self.labels), _state(_OF_ALERTMANAGER, self.status.state), self.starts_at)


class _Raised(msgspec.Struct, rename="camel"):
    """An alert as Prometheus' API has it."""

    labels: _Labels
    state: str
    active_at: Moment | None = None

    def read(self) -> Alert:
        return Alert(labels(self.labels), _state(_OF_PROMETHEUS, self.state), self.active_at)


class _Alerts(msgspec.Struct):
    alerts: list[msgspec.Raw]


class _Answer(msgspec.Struct):
    status: str
    data: _Alerts


def of_alertmanager(server: Server, timeout: float) -> State[Each[Labels, Alert]]:
    """Those that it holds, silenced ones too."""
    return _read(server, "/api/v2/alerts", timeout, of_alertmanager_text)


def of_prometheus(server: Server, timeout: float) -> State[Each[Labels, Alert]]:
    """Those of its own rules. It knows of no silences."""
    return _read(server, "/api/v1/alerts", timeout, of_prometheus_text)


def _read(
    server: Server, path: str, timeout: float, parse: Callable[[bytes], Each[Labels, Alert]]
) -> State[Each[Labels, Alert]]:
    answer = server.get(path, {}, timeout, "alerts")
    if not isinstance(answer, Known):
        return answer
    try:
        return Known(parse(answer.value))
    except (msgspec.DecodeError, ValueError) as error:
        return Unknown(Reason.MALFORMED, str(error), f"alerts of {server.host}")


def of_alertmanager_text(text: bytes) -> Each[Labels, Alert]:
    """The alerts of an answer of Alertmanager. Raises for anything else; one that can't be read is a hole."""
    return _each(msgspec.json.decode(text, type=list[msgspec.Raw]), _Sent)


def of_prometheus_text(text: bytes) -> Each[Labels, Alert]:
    """The alerts of an answer of Prometheus. Raises for anything else; one that can't be read is a hole."""
    answer = msgspec.json.decode(text, type=_Answer)
    if answer.status != "success":
        raise ValueError("the answer is no success of Prometheus' API")
    return _each(answer.data.alerts, _Raised)


def _each(items: Iterable[msgspec.Raw], shape: type[_Sent | _Raised]) -> Each[Labels, Alert]:
    found: dict[Labels, State[Alert]] = {}
    holes: list[Unknown] = []
    for item in items:
        try:
            alert = _one(item, shape)
        except (msgspec.DecodeError, ValueError) as error:
            holes.append(Unknown(Reason.MALFORMED, str(error), "an alert"))
        else:
            found[alert.labels] = Known(_worse(alert, found.get(alert.labels)))
    return Each(found, tuple(holes))


def _one(item: msgspec.Raw, shape: Any) -> Alert:
    alert: Alert = msgspec.json.decode(item, type=shape).read()
    return alert


def _worse(alert: Alert, other: State[Alert] | None) -> Alert:
    """Two rules may raise alerts with the same labels: one that fires is the one to know of."""
    if isinstance(other, Known) and other.value.state is AlertState.FIRING:
        return other.value
    return alert


def _state(known: dict[str, AlertState], word: str) -> AlertState:
    if word not in known:
        raise ValueError(f"an alert in the state {word[:40]!r}")
    return known[word]
