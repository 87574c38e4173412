"""Maintenance windows: days, time zones, midnight, and the two days on which clocks are moved."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuctl.audit.policy import Day, MaintenanceWindow
from gpuctl.runbook.windows import DAYS, open_until, opens_next

BERLIN = ZoneInfo("Europe/Berlin")
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Pacific/Apia", "Australia/Lord_Howe")


def window(opens: str, closes: str, *days: Day, zone: str = "UTC") -> MaintenanceWindow:
    return MaintenanceWindow(opens=opens, closes=closes, days=days or DAYS, time_zone=zone)  # type: ignore[arg-type]


def at(text: str, zone: str = "UTC", fold: int = 0) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).astimezone(UTC)


def closes(text: str, *windows: MaintenanceWindow, zone: str = "UTC") -> str:
    end = open_until(windows, at(text, zone))
    return f"{end.astimezone(ZoneInfo(zone)):%a %H:%M}" if end else ""


NIGHT = window("22:00", "06:00", "mon", "fri")


@pytest.mark.parametrize(
    ("now", "ends"),
    [
        ("2026-11-30T21:59", ""),  # a Monday
        ("2026-11-30T22:00", "Tue 06:00"),
        ("2026-12-01T05:59", "Tue 06:00"),
        ("2026-12-01T06:00", ""),
        ("2026-12-01T23:00", ""),
        ("2026-12-05T03:00", "Sat 06:00"),  # Friday's
        ("2026-11-30T03:00", ""),  # Sunday's would be, but there is none
    ],
)
def test_over_midnight_a_window_is_that_of_the_day_it_opens_on(now: str, ends: str) -> None:
    assert closes(now, NIGHT) == ends


@pytest.mark.parametrize(
    ("opens", "closes_", "now", "ends"),
    [
        ("00:00", "24:00", "2026-11-30T12:00", "Tue 00:00"),
        ("20:00", "24:00", "2026-11-30T23:59", "Tue 00:00"),
        ("20:00", "24:00", "2026-12-01T00:00", ""),
        ("20:00", "00:00", "2026-11-30T23:59", "Tue 00:00"),
        ("24:00", "02:00", "2026-12-01T01:00", "Tue 02:00"),
        ("08:00", "08:00", "2026-11-30T09:00", "Tue 08:00"),
        ("08:00", "08:00", "2026-11-30T07:00", ""),
    ],
)
def test_the_end_of_the_day(opens: str, closes_: str, now: str, ends: str) -> None:
    assert closes(now, window(opens, closes_, "mon")) == ends


def test_the_zone_of_the_window_counts() -> None:
    there = window("22:00", "23:00", "mon", zone="America/New_York")
    assert closes("2026-11-30T22:30", there) == ""
    assert closes("2026-12-01T03:30", there) == "Tue 04:00"


def test_of_several_the_one_that_closes_last() -> None:
    assert closes("2026-11-30T22:30", NIGHT, window("20:00", "23:00")) == "Tue 06:00"
    assert open_until((), at("2026-11-30T22:30")) is None
    assert opens_next((), at("2026-11-30T22:30")) is None


# Europe/Berlin: 2026-03-29 02:00 is 03:00, 2026-10-25 03:00 is 02:00 again


def berlin(opens: str, closes_: str, *days: Day) -> MaintenanceWindow:
    return window(opens, closes_, *days, zone="Europe/Berlin")


def test_an_hour_that_is_skipped_opens_nothing() -> None:
    skipped = berlin("02:15", "03:00", "sun")
    for hours in range(48):
        assert open_until([skipped], at("2026-03-28T12:00") + timedelta(hours=hours, minutes=30)) is None
    following = opens_next([skipped], at("2026-03-28T12:00"))
    assert following is not None
    assert f"{following.astimezone(BERLIN):%Y-%m-%d %H:%M}" == "2026-04-05 02:15"
    assert closes("2026-03-22T02:30", skipped, zone="Europe/Berlin") == "Sun 03:00"


def test_a_window_around_the_skipped_hour_is_shorter_by_it() -> None:
    night = berlin("01:00", "04:00", "sun")
    start, end = at("2026-03-29T01:00", "Europe/Berlin"), at("2026-03-29T04:00", "Europe/Berlin")
    assert end - start == timedelta(hours=2)
    assert open_until([night], start) == end
    assert open_until([night], end - timedelta(minutes=1)) == end
    assert open_until([night], end) is None


@pytest.mark.parametrize("closes_", ["02:01", "02:30", "02:59", "03:00"])
def test_a_window_that_closes_in_the_skipped_hour_closes_as_the_clock_skips_it(closes_: str) -> None:
    """By then it is later than the window's end."""
    night = berlin("22:00", closes_)
    skips = at("2026-03-29T03:00", "Europe/Berlin")
    assert open_until([night], skips - timedelta(minutes=1)) == skips
    assert open_until([night], skips) is None
    assert open_until([night], at("2026-03-28T02:00", "Europe/Berlin")) is not None
    early = at("2026-03-29T01:59", "Europe/Berlin")
    assert open_until([berlin("22:00", "01:59")], early - timedelta(minutes=1)) == early


def test_a_window_over_the_repeated_hour_is_longer_by_it() -> None:
    night = berlin("01:00", "04:00", "sun")
    start, end = at("2026-10-25T01:00", "Europe/Berlin"), at("2026-10-25T04:00", "Europe/Berlin")
    assert end - start == timedelta(hours=4)
    assert open_until([night], start + timedelta(hours=2, minutes=30)) == end


def test_an_hour_that_comes_twice_opens_once() -> None:
    twice = berlin("02:15", "02:45", "sun")
    assert open_until([twice], at("2026-10-25T02:30", "Europe/Berlin")) is not None
    assert open_until([twice], at("2026-10-25T02:30", "Europe/Berlin", fold=1)) is None


def test_a_night_over_midnight_when_clocks_are_moved() -> None:
    night = berlin("22:00", "06:00", "sat")
    for day, length in (("2026-03-28", 7), ("2026-10-24", 9), ("2026-11-28", 8)):
        start = at(f"{day}T22:00", "Europe/Berlin")
        assert open_until([night], start) == start + timedelta(hours=length)


TIMES = st.one_of(
    st.builds(lambda h, m: f"{h:02}:{m:02}", st.integers(0, 23), st.integers(0, 59)), st.just("24:00")
)
WINDOWS = st.lists(
    st.builds(
        lambda opens, closes_, days, zone: window(opens, closes_, *days, zone=zone),
        TIMES,
        TIMES,
        st.lists(st.sampled_from(DAYS), min_size=1, max_size=3, unique=True),
        st.sampled_from(ZONES),
    ),
    min_size=1,
    max_size=3,
)
MOMENTS = st.datetimes(datetime(2025, 1, 1), datetime(2028, 1, 1)).map(lambda each: each.replace(tzinfo=UTC))  # noqa: DTZ001


@settings(max_examples=150)
@given(WINDOWS, MOMENTS)
def test_an_open_window_closes_later_and_the_next_one_opens_later(
    windows: list[MaintenanceWindow], now: datetime
) -> None:
    end = open_until(windows, now)
    if end is not None:
        assert now < end <= now + timedelta(hours=26)
        assert open_until(windows, end - timedelta(seconds=1)) is not None
    following = opens_next(windows, now)
    assert following is not None
    assert now < following <= now + timedelta(days=15)
    assert open_until(windows, following) is not None


@settings(max_examples=150)
@given(WINDOWS, MOMENTS)
def test_between_now_and_the_next_opening_nothing_opens(
    windows: list[MaintenanceWindow], now: datetime
) -> None:
    following = opens_next(windows, now)
    assert following is not None
    if open_until(windows, now) is None:
        middle = now + (following - now) / 2
        assert open_until(windows, middle) is None
