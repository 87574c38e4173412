"""Maintenance windows: whether one is open, until when, and when the next one opens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import Final, get_args
from zoneinfo import ZoneInfo

from gpuctl.audit.policy import Day, MaintenanceWindow

DAYS: Final[tuple[str, ...]] = get_args(Day)
_DAY: Final = 24 * 60  # minutes
_MINUTE: Final = timedelta(minutes=1)
_AHEAD: Final = 15  # days in which every window opens, even if clocks that are put forward skip it once


def open_until(windows: Iterable[MaintenanceWindow], now: datetime) -> datetime | None:
    """When the last of the windows that are open now closes; None if none is open."""
    ends = [end for window in windows for start, end in _openings(window, now) if start <= now < end]
    return max(ends, default=None)


def opens_next(windows: Iterable[MaintenanceWindow], now: datetime) -> datetime | None:
    """When the next window opens; None if there is none."""
    starts = [start for window in windows for start, _ in _openings(window, now) if start > now]
    return min(starts, default=None)


def _openings(window: MaintenanceWindow, now: datetime) -> Iterator[tuple[datetime, datetime]]:
    """Its openings from yesterday's to those two weeks ahead, in UTC."""
    zone = ZoneInfo(window.time_zone)
    today = now.astimezone(zone).date()
    for offset in range(-1, _AHEAD):
        day = today + timedelta(days=offset)
        if DAYS[day.weekday()] in window.days:
            opens, closes = _minutes(window.opens), _minutes(window.closes)
            day += timedelta(days=opens // _DAY)  # 24:00 is the next day's 00:00
            opens %= _DAY
            start = _at(day, opens, zone).astimezone(UTC)
            end = _unskipped(_at(day, closes if closes > opens else closes + _DAY, zone), zone)
            if start < end:  # clocks that are put forward may skip it whole
                yield start, end


def _minutes(text: str) -> int:
    hour, minute = (int(part) for part in text.split(":"))
    return 60 * hour + minute


def _at(day: date, minutes: int, zone: ZoneInfo) -> datetime:
    """So many minutes by the clock after a day began; of a time that comes twice, the first."""
    days, rest = divmod(minutes, _DAY)
    return datetime.combine(day + timedelta(days=days), time(*divmod(rest, 60)), zone)


def _unskipped(when: datetime, zone: ZoneInfo) -> datetime:
    """The same in UTC, or when the clock is put forward over it: by then it shows a later time."""
    moment = when.astimezone(UTC)
    if moment.astimezone(zone).replace(tzinfo=None) == when.replace(tzinfo=None):
        return moment
    after = moment.astimezone(zone).utcoffset()
    while (moment - _MINUTE).astimezone(zone).utcoffset() == after:
        moment -= _MINUTE
    return moment
