"""Reads series from a Prometheus. Whatever it answers, the outcome is a state, in time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from gpuctl.cluster.web import Server
from gpuctl.facts.metrics import Labels, Points, labels
from gpuctl.facts.state import Each, Known, Reason, State, Unknown

STEPS: Final = 60  # points that a series is asked for


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A server of Prometheus' query API, such as Prometheus itself, Thanos or Mimir."""

    server: Server

    def series(
        self, query: str, now: datetime, hours: float, timeout: float
    ) -> tuple[State[Each[Labels, Points]], str]:
        """What a query selects over the past hours, and the text of the answer, empty if there is none."""
        past = timedelta(hours=hours)
        wanted = {
            "query": query,
            "start": f"{(now - past).timestamp():.0f}",
            "end": f"{now.timestamp():.0f}",
            "step": f"{max(1.0, past.total_seconds() / STEPS):.0f}",
        }
        answer = self.server.get("/api/v1/query_range", wanted, timeout, "metrics")
        if not isinstance(answer, Known):
            return answer, ""
        try:
            text = answer.value.decode("utf-8")
            return Known(parse(text)), text
        except ValueError as error:
            gap = Unknown(
                Reason.MALFORMED, f"{type(error).__name__}: {error}", f"metrics of {self.server.host}"
            )
            return gap, ""


def parse(text: str) -> Each[Labels, Points]:
    """The series of an answer. Raises ValueError for anything else."""
    answer = json.loads(text)
    if not isinstance(answer, Mapping) or answer.get("status") != "success":
        raise ValueError("the answer is no success of Prometheus' query API")
    try:
        return Each.of(dict(_series(answer["data"]["result"])))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the answer holds no matrix ({type(error).__name__})") from error


def _series(found: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Labels, Points]]:
    for each in found:
        yield labels(each["metric"]), tuple(_points(each["values"]))


def _points(values: Iterable[tuple[float, str]]) -> Iterator[tuple[datetime, float]]:
    for at, written in values:
        number = float(written)
        if number == number:  # noqa: PLR0124 - NaN is where a series is stale
            yield datetime.fromtimestamp(at, UTC), number
