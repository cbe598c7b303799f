"""Where the ticks of an axis of instants stand, and what they say: no Spark is needed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from cdckit.notebook.pictures.axes import ticks_between

NEW_YORK = ZoneInfo("America/New_York")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def read(low: str, high: str, zone: ZoneInfo = NEW_YORK) -> dict[str, str]:
    """What stands at which instant."""
    ticks, texts = ticks_between(at(low), at(high), zone)
    return {f"{tick:%m-%d %H:%M}": text for tick, text in zip(ticks, texts, strict=True)}


def test_the_day_stands_below_the_first_tick_and_where_it_changes() -> None:
    assert read("2013-02-09T02:00", "2013-02-09T08:00") == {
        "02-09 02:00": "21:00\n2013-02-08",
        "02-09 03:00": "22:00",
        "02-09 04:00": "23:00",
        "02-09 05:00": "00:00\n2013-02-09",
        "02-09 06:00": "01:00",
        "02-09 07:00": "02:00",
        "02-09 08:00": "03:00",
    }


def test_the_hour_that_happens_twice_has_a_tick_for_each_time() -> None:
    """On 3 November 2024 New York's 01:00 came at 05:00 UTC and again at 06:00: each time has its offset."""
    assert read("2024-11-03T04:30", "2024-11-03T08:10") == {
        "11-03 04:30": "00:30-04:00\n2024-11-03",
        "11-03 05:00": "01:00-04:00",
        "11-03 05:30": "01:30-04:00",
        "11-03 06:00": "01:00-05:00",
        "11-03 06:30": "01:30-05:00",
        "11-03 07:00": "02:00-05:00",
        "11-03 07:30": "02:30-05:00",
        "11-03 08:00": "03:00-05:00",
    }


def test_the_hour_that_does_not_happen_has_none() -> None:
    """On 10 March 2024 01:59 was followed by 03:00."""
    found = read("2024-03-10T05:00", "2024-03-10T09:00")
    assert [text.split("\n")[0] for text in found.values()] == [
        "00:00-05:00", "01:00-05:00", "03:00-04:00", "04:00-04:00", "05:00-04:00"
    ]  # fmt: skip


def test_a_round_time_that_does_not_happen_is_the_instant_of_the_jump() -> None:
    """Every second hour, of which 02:00 is none: then it was 03:00."""
    found = read("2024-03-10T05:00", "2024-03-10T18:00")
    assert [text.split("\n")[0] for text in found.values()] == [
        "00:00-05:00", "03:00-04:00", "04:00-04:00", "06:00-04:00", "08:00-04:00", "10:00-04:00",
        "12:00-04:00", "14:00-04:00",
    ]  # fmt: skip


def test_days_begin_at_midnight_on_both_sides_of_a_change() -> None:
    assert read("2024-11-02T00:00", "2024-11-05T12:00") == {
        "11-02 04:00": "2024-11-02",
        "11-03 04:00": "2024-11-03",
        "11-04 05:00": "2024-11-04",
        "11-05 05:00": "2024-11-05",
    }
    assert read("2024-01-01T00:00", "2024-12-31T00:00") == {
        "01-01 05:00": "2024-01-01",
        "03-01 05:00": "2024-03-01",
        "05-01 04:00": "2024-05-01",
        "07-01 04:00": "2024-07-01",
        "09-01 04:00": "2024-09-01",
        "11-01 04:00": "2024-11-01",
    }


def test_seconds_and_less_are_said_where_ticks_are_so_near() -> None:
    _, texts = ticks_between(at("2024-01-01T00:00:00"), at("2024-01-01T00:00:02.5"), ZoneInfo("Asia/Kolkata"))
    assert texts == [
        "05:30:00.000\n2024-01-01", "05:30:00.500", "05:30:01.000", "05:30:01.500", "05:30:02.000",
        "05:30:02.500",
    ]  # fmt: skip


@pytest.mark.parametrize("span", [timedelta(microseconds=8), timedelta(days=9_000), timedelta(days=700_000)])
def test_there_are_never_many(span: timedelta) -> None:
    ticks, texts = ticks_between(at("1970-01-01T00:00"), at("1970-01-01T00:00") + span, NEW_YORK)
    assert 1 < len(ticks) == len(texts) <= 9


def test_all_time_has_an_axis() -> None:
    _, texts = ticks_between(at("0001-01-03T00:00"), at("9999-12-29T00:00"), NEW_YORK)
    assert texts == ["2001-01-01", "4001-01-01", "6001-01-01", "8001-01-01"]
