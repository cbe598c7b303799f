"""`as_of`: the version of each entity that was in force at an instant."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import as_of, current, merge
from cdckit.errors import InvalidArgument
from support.histories import INSTANTS, at, by_guid, random_changes, to_dataframe, to_rows
from support.versions_by_hand import NAMED, kettle_and_mug


@pytest.fixture(scope="module")
def history(spark: SparkSession) -> DataFrame:
    return kettle_and_mug(spark)


def names(versions: DataFrame) -> dict[str, str | None]:
    rows = versions.collect()
    assert len({row["guid"] for row in rows}) == len(rows)
    return {row["guid"]: row["name"] for row in rows}


def test_before_the_first_version_there_is_nothing(history: DataFrame) -> None:
    assert names(as_of(history, at(8, 59))) == {}


def test_a_version_is_in_force_from_the_instant_it_starts(history: DataFrame) -> None:
    assert names(as_of(history, at(9) - timedelta(microseconds=1))) == {}
    assert names(as_of(history, at(9))) == {"kettle": "Kettle", "mug": "Mug"}


def test_at_the_instant_where_one_version_ends_and_the_next_starts_the_next_is_read(
    history: DataFrame,
) -> None:
    assert names(as_of(history, at(10) - timedelta(microseconds=1)))["kettle"] == "Kettle"
    assert names(as_of(history, at(10)))["kettle"] == "Automatic Kettle"


def test_the_current_version_is_in_force_for_ever(history: DataFrame) -> None:
    expected = {"kettle": "Automatic Kettle", "mug": "New Mug"}
    assert names(as_of(history, datetime(9999, 12, 31, tzinfo=UTC))) == expected


def test_what_was_deleted_at_the_instant_is_left_out(history: DataFrame) -> None:
    assert names(as_of(history, at(11))) == {"kettle": "Automatic Kettle"}
    assert names(as_of(history, at(12))) == {"kettle": "Automatic Kettle", "mug": "New Mug"}


def test_what_was_deleted_at_the_instant_is_kept_on_request(history: DataFrame) -> None:
    assert names(as_of(history, at(11), deletes=True)) == {"kettle": "Automatic Kettle", "mug": None}
    assert names(as_of(history, at(10), deletes=True)) == {"kettle": "Automatic Kettle", "mug": "Mug"}


@pytest.mark.parametrize(
    "same_instant",
    [
        at(10),
        datetime(2024, 3, 10, 15, 30, tzinfo=timezone(timedelta(hours=5, minutes=30))),
        datetime(2024, 3, 10, 6, tzinfo=ZoneInfo("America/New_York")),
        datetime(2024, 3, 10, 19, tzinfo=ZoneInfo("Asia/Tokyo")),
    ],
    ids=lambda instant: instant.isoformat(),
)
def test_the_zone_of_the_instant_does_not_matter(history: DataFrame, same_instant: datetime) -> None:
    """The tenth of March 2024 is the day on which New York's clocks went forward, at 07:00 UTC."""
    assert names(as_of(history, same_instant))["kettle"] == "Automatic Kettle"
    assert names(as_of(history, same_instant - timedelta(microseconds=1)))["kettle"] == "Kettle"


def test_the_hour_that_happens_twice_is_two_hours(spark: SparkSession) -> None:
    """On 3 November 2024, 01:30 in New York was 05:30 UTC and an hour later 06:30 UTC."""
    change = datetime(2024, 11, 3, 6, 0, tzinfo=UTC)
    history = spark.createDataFrame(
        [("g", at(9), change, False, "first", "m1"), ("g", change, None, False, "second", "m2")], NAMED
    )
    twice = datetime(2024, 11, 3, 1, 30, tzinfo=ZoneInfo("America/New_York"))
    assert names(as_of(history, twice.replace(fold=0))) == {"g": "first"}
    assert names(as_of(history, twice.replace(fold=1))) == {"g": "second"}


def test_the_zone_of_the_session_does_not_matter(spark: SparkSession, history: DataFrame) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        assert names(as_of(history, at(10)))["kettle"] == "Automatic Kettle"
        assert names(as_of(history, at(9, 59)))["kettle"] == "Kettle"
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))


def test_the_instant_may_be_a_column(history: DataFrame) -> None:
    """Every entity is then read at an instant of its own; where that is null, it is not read."""
    asked = F.when(F.col("guid") == "kettle", F.lit(at(9, 30)))
    assert names(as_of(history, asked)) == {"kettle": "Kettle"}
    assert names(as_of(history, F.to_timestamp(F.lit("2024-03-10T11:30:00Z")), deletes=True)) == {
        "kettle": "Automatic Kettle",
        "mug": None,
    }


@pytest.mark.parametrize(
    "wrong", [datetime(2024, 3, 10, 10), date(2024, 3, 10), "2024-03-10T10:00:00Z", 0, None]
)
def test_what_is_no_instant_is_refused(history: DataFrame, wrong: Any) -> None:
    """Ten o'clock is an instant only where it is known in which zone."""
    with pytest.raises(InvalidArgument, match=r"as_of\(\) needs valid_at to be an aware datetime"):
        as_of(history, wrong)


def test_the_columns_stay_as_they_are(history: DataFrame) -> None:
    assert as_of(history, at(10)).schema == history.schema


def test_an_empty_history_has_no_versions(spark: SparkSession) -> None:
    assert as_of(spark.createDataFrame([], NAMED), at(10)).collect() == []


@pytest.fixture(scope="module")
def drawn(spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    """Random changes, and the history of all of them."""
    fields = {"h": "int", "k": "string", "a": "int", "b": "double"}
    changes = to_dataframe(spark, random_changes(21, 80, fields), fields).localCheckpoint()
    return changes, merge(changes, entity="thing", keys=["h", "k"]).localCheckpoint()


@pytest.mark.parametrize("instant", INSTANTS, ids=lambda instant: instant.isoformat())
def test_the_view_at_an_instant_knows_nothing_of_what_came_later(
    drawn: tuple[DataFrame, DataFrame], instant: datetime
) -> None:
    """It is the current state of a history that is merged from the changes up to that instant alone."""
    changes, whole = drawn
    early = merge(
        changes.where(F.col("effective_timestamp") <= F.lit(instant)), entity="thing", keys=["h", "k"]
    )
    then = as_of(whole, instant, deletes=True).drop("valid_to_timestamp")
    assert by_guid(to_rows(then)) == by_guid(to_rows(current(early, deletes=True).drop("valid_to_timestamp")))
