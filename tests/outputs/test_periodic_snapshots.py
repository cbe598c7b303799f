"""`periodic_snapshots`: a row per entity and day, or another period, without a product of everything."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import as_of
from cdckit.errors import InvalidArgument
from cdckit.outputs import UnfitHistory, periodic_snapshots
from support.versions_by_hand import day, history_of, rows_of
from tools.tiers import seeds

US = timedelta(microseconds=1)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.fixture(scope="module")
def history(spark: SparkSession) -> DataFrame:
    """A kettle that changes at a midnight, a mug that lives within a day, a vase that goes and comes."""
    return history_of(
        spark,
        "name string",
        [
            ("kettle", utc("2024-01-01T12:00"), day(3), False, "kettle"),
            ("kettle", day(3), None, False, "teapot"),
            ("mug", utc("2024-01-02T08:00"), utc("2024-01-02T09:00"), False, "mug"),
            ("mug", utc("2024-01-02T09:00"), None, True, None),
            ("vase", day(1), day(2), False, "vase"),
            ("vase", day(2), day(4), True, None),
            ("vase", day(4), None, False, "vase"),
        ],
    ).localCheckpoint()


def names(snapshots: DataFrame) -> list[tuple[Any, ...]]:
    rows = snapshots.orderBy("period_from_timestamp", "guid").select(
        F.dayofmonth("period_date"), "guid", "name"
    )
    return [tuple(row) for row in rows.collect()]


def test_at_the_end_of_a_day_what_begins_at_its_end_is_not_there_yet(history: DataFrame) -> None:
    """On the 2nd it is the kettle still; the vase that ends with the 1st is there on the 1st."""
    snapshots = periodic_snapshots(history, start=date(2024, 1, 1), end=date(2024, 1, 5))
    assert snapshots.columns[:4] == ["period_date", "period_from_timestamp", "period_to_timestamp", "guid"]
    assert names(snapshots) == [
        *((1, "kettle", "kettle"), (1, "vase", "vase")),
        *((2, "kettle", "kettle"),),
        *((3, "kettle", "teapot"),),
        *((4, "kettle", "teapot"), (4, "vase", "vase")),
    ]


def test_at_the_start_of_a_day_it_is_there(history: DataFrame) -> None:
    snapshots = periodic_snapshots(history, start=day(1), end=date(2024, 1, 5), boundary="start")
    assert names(snapshots) == [
        *((1, "vase", "vase"), (2, "kettle", "kettle"), (3, "kettle", "teapot")),
        *((4, "kettle", "teapot"), (4, "vase", "vase")),
    ]


def test_deleted_entities_come_on_request(history: DataFrame) -> None:
    snapshots = periodic_snapshots(history, start=day(2), end=day(3), deletes=True)
    assert names(snapshots) == [(2, "kettle", "kettle"), (2, "mug", None), (2, "vase", None)]


def test_the_day_on_which_clocks_are_set_has_23_or_25_hours(spark: SparkSession) -> None:
    """New York: midnight is 05:00 UTC in winter and 04:00 in summer."""
    history = history_of(spark, "name string", [("kettle", utc("2020-01-01"), None, False, "kettle")])

    def bounds(start: date, end: date) -> list[tuple[Any, ...]]:
        snapshots = periodic_snapshots(history, start=start, end=end, zone="America/New_York")
        rows = [
            (row["period_date"], row["period_from_timestamp"], row["period_to_timestamp"])
            for row in rows_of(snapshots)
        ]
        return sorted(rows)

    assert bounds(date(2024, 3, 9), date(2024, 3, 12)) == [
        (date(2024, 3, 9), utc("2024-03-09T05:00"), utc("2024-03-10T05:00")),
        (date(2024, 3, 10), utc("2024-03-10T05:00"), utc("2024-03-11T04:00")),
        (date(2024, 3, 11), utc("2024-03-11T04:00"), utc("2024-03-12T04:00")),
    ]
    assert bounds(date(2024, 11, 3), date(2024, 11, 4)) == [
        (date(2024, 11, 3), utc("2024-11-03T04:00"), utc("2024-11-04T05:00")),
    ]


def test_a_day_without_a_midnight_begins_when_the_clocks_have_jumped(spark: SparkSession) -> None:
    """In Cairo, 26 April 2024 began at 01:00, which is 22:00 UTC: what begins then is there at its start."""
    begins = utc("2024-04-25T22:00")
    history = history_of(spark, "name string", [("kettle", begins, None, False, "kettle")])
    days = {"start": date(2024, 4, 25), "end": date(2024, 4, 27), "zone": "Africa/Cairo"}
    [row] = rows_of(periodic_snapshots(history, boundary="start", **days))
    assert (row["period_date"], row["period_from_timestamp"]) == (date(2024, 4, 26), begins)


def test_months_quarters_and_weeks_are_those_of_the_calendar(spark: SparkSession) -> None:
    """The first period is the first that begins at the start or later; weeks begin on Mondays."""
    history = history_of(spark, "name string", [("kettle", utc("2023-01-01"), None, False, "kettle")])

    def first_days(every: str, start: date, end: date) -> list[date]:
        return sorted(
            row["period_date"]
            for row in rows_of(periodic_snapshots(history, start=start, end=end, every=every))
        )

    assert first_days("month", date(2024, 1, 2), date(2024, 3, 2)) == [date(2024, 2, 1), date(2024, 3, 1)]
    assert first_days("quarter", date(2024, 1, 1), date(2024, 7, 1)) == [date(2024, 1, 1), date(2024, 4, 1)]
    assert first_days("week", date(2024, 1, 2), date(2024, 1, 16)) == [date(2024, 1, 8), date(2024, 1, 15)]
    assert first_days("year", date(2024, 1, 2), date(2024, 7, 1)) == []


def test_each_period_is_what_as_of_says_and_nothing_is_joined_or_shuffled(history: DataFrame) -> None:
    snapshots = periodic_snapshots(
        history, start=day(1), end=day(3), every=timedelta(hours=7), zone="Asia/Tokyo"
    )
    plan = snapshots._jdf.queryExecution().executedPlan().toString()
    assert "Join" not in plan
    assert "Exchange" not in plan
    rows = rows_of(snapshots)
    starts = [day(1) + number * timedelta(hours=7) for number in range(7)]
    assert {row["period_from_timestamp"] for row in rows} == set(starts)
    for start in starts[::3]:
        expected = rows_of(as_of(history, start + timedelta(hours=7) - US))
        mine = [row for row in rows if row["period_from_timestamp"] == start]
        assert {row["period_date"] for row in mine} == {start.astimezone(ZoneInfo("Asia/Tokyo")).date()}
        standard = ("period_date", "period_from_timestamp", "period_to_timestamp")
        assert [{k: v for k, v in row.items() if k not in standard} for row in mine] == expected


ZONES = {
    # Where clocks are set back one minute after midnight, to 23:01 of the day before.
    "America/St_Johns": date(2010, 11, 7),
    "America/New_York": date(2024, 3, 10),
    "Africa/Cairo": date(2024, 4, 26),
    "America/Havana": date(2024, 11, 3),
    "Asia/Kolkata": date(2024, 1, 1),
}


@seeds(1, 2, 3, soak=30)
def test_it_is_what_a_loop_over_all_periods_and_versions_gives(spark: SparkSession, seed: int) -> None:
    """Around the days on which clocks are set, and whatever the zone of the session is."""
    chance = random.Random(seed)
    zone, middle = chance.choice(list(ZONES.items()))
    days = [middle + timedelta(days=number) for number in range(-3, 5)]
    begins = [datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone)).astimezone(UTC) for day in days]
    near = [
        at + by for at in begins for by in (-US, 0 * US, US, *(timedelta(minutes=m) for m in (-40, 5, 700)))
    ]
    versions: list[tuple[Any, ...]] = []
    for entity in range(20):
        instants = sorted(set(chance.sample(near, chance.randrange(2, 9))))
        ends = [*instants[1:], None if chance.random() < 0.5 else instants[-1] + timedelta(hours=30)]
        for begin, end in zip(instants, ends, strict=True):
            deleted = chance.random() < 0.2
            versions.append((f"e{entity:02}", begin, end, deleted, None if deleted else str(len(versions))))
    at_end = chance.random() < 0.5
    expected = sorted(
        (day, version[0], version[4])
        for day, begin, until in zip(days, begins, begins[1:], strict=False)
        for version in versions
        for asked in [until - US if at_end else begin]
        if day >= days[1] and day < days[-2] and not version[3]
        if version[1] <= asked and (version[2] is None or asked < version[2])
    )
    spark.conf.set("spark.sql.session.timeZone", chance.choice(["UTC", "America/Sao_Paulo", zone]))
    try:
        snapshots = periodic_snapshots(
            history_of(spark, "name string", versions),
            start=days[1],
            end=days[-2],
            zone=zone,
            boundary="end" if at_end else "start",
        ).collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert sorted((row["period_date"], row["guid"], row["name"]) for row in snapshots) == expected


@pytest.mark.parametrize(
    ("said", "match"),
    [
        (
            {"start": datetime(2024, 1, 1), "end": "2024-02-01"},
            r"call that would do: periodic_snapshots\(history, start=datetime\(2024, 1, 1, tzinfo=UTC\), "
            r"end=datetime\(2024, 2, 1, tzinfo=UTC\), every='day', zone='UTC'\)",
        ),
        ({"zone": "America/Atlantis"}, "the name of a zone"),
        ({"every": "fortnight"}, "one of day, week, month, quarter, year, or a timedelta"),
        ({"every": timedelta(0)}, "or a timedelta"),
        ({"every": timedelta(milliseconds=1)}, "at most 1,000,000 periods"),
        ({"end": date(2024, 1, 1)}, "after start"),
        ({"end": date(9999, 12, 31), "every": "year"}, "before the year 10000"),
        ({"boundary": "noon"}, "'end' or 'start'"),
        ({"deletes": 1}, "True or False"),
    ],
)
def test_a_call_that_cannot_mean_anything_is_refused(
    history: DataFrame, said: dict[str, Any], match: str
) -> None:
    with pytest.raises(InvalidArgument, match=match):
        periodic_snapshots(history, **{"start": date(2024, 1, 1), "end": date(2024, 2, 1), **said})


def test_a_field_with_the_name_of_a_new_column_is_refused(history: DataFrame) -> None:
    with pytest.raises(UnfitHistory, match="a column Period_Date already"):
        periodic_snapshots(history.withColumnRenamed("name", "Period_Date"), start=day(1), end=day(2))
