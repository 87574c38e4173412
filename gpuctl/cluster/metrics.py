"""Reads series from a Prometheus. Whatever it answers, the outcome is a state, in time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from gpuctl.facts.metrics import Labels, Points, labels
from gpuctl.facts.state import Each, Known, Reason, State, Unknown

STEPS: Final = 60  # points that a series is asked for
_LIMIT: Final = 32 * 1024 * 1024  # bytes of an answer
_REASONS: Final = {401: Reason.UNAUTHORIZED, 403: Reason.FORBIDDEN}


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A server of Prometheus' query API, such as Prometheus itself, Thanos or Mimir."""

    url: str

    @property
    def host(self) -> str:
        """Where it is, without a password that the URL may hold."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"

    def series(
        self, query: str, now: datetime, hours: float, timeout: float
    ) -> tuple[State[Each[Labels, Points]], str]:
        """What a query selects over the past hours, and the text of the answer, empty if there is none."""
        what = f"metrics of {self.host}"
        try:
            text = self._ask(query, now, timedelta(hours=hours), timeout)
            return Known(parse(text)), text
        except _Refused as refused:
            return Unknown(refused.reason, refused.message, what), ""
        except ValueError as error:
            return Unknown(Reason.MALFORMED, f"{type(error).__name__}: {error}", what), ""

    def _ask(self, query: str, now: datetime, past: timedelta, timeout: float) -> str:
        from urllib.error import HTTPError, URLError
        from urllib.request import Request, urlopen

        wanted = {
            "query": query,
            "start": f"{(now - past).timestamp():.0f}",
            "end": f"{now.timestamp():.0f}",
            "step": f"{max(1.0, past.total_seconds() / STEPS):.0f}",
        }
        address = f"{self.url.rstrip('/')}/api/v1/query_range?{urlencode(wanted)}"
        request = Request(address, headers={"Accept": "application/json"})  # noqa: S310 - http and https alone
        try:
            with urlopen(request, timeout=timeout) as answer:  # noqa: S310
                return str(answer.read(_LIMIT).decode("utf-8"))
        except HTTPError as error:
            reason = _REASONS.get(error.code, Reason.SERVER_ERROR)
            raise _Refused(reason, f"HTTP {error.code}: {error.reason}") from error
        except TimeoutError as error:
            raise _Refused(Reason.TIMEOUT, f"no answer within {timeout:.0f} s") from error
        except (URLError, OSError) as error:
            raise _Refused(Reason.UNREACHABLE, str(getattr(error, "reason", error))) from error


@dataclass
class _Refused(Exception):
    reason: Reason
    message: str


def is_address(url: str) -> bool:
    """Whether it can be the address of a Prometheus."""
    parts = urlsplit(url)
    return parts.scheme in ("http", "https") and bool(parts.hostname)


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
