"""`between`: the versions that were in force at some time of a period, cut to it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession

from cdckit.errors import InvalidArgument
from cdckit.query.as_of import between
from support.fold import fold
from support.histories import (
    INSTANTS,
    Row,
    at,
    by_guid,
    history_schema,
    random_changes,
    rows_to_dataframe,
    to_rows,
)
from support.versions_by_hand import NAMED, kettle_and_mug


@pytest.fixture(scope="module")
def history(spark: SparkSession) -> DataFrame:
    return kettle_and_mug(spark)


def periods(versions: DataFrame) -> set[tuple[str, datetime, datetime | None]]:
    rows = to_rows(versions)
    found = {(row["source_message"], row["valid_from_timestamp"], row["valid_to_timestamp"]) for row in rows}
    assert len(found) == len(rows)
    return found


def test_intervals_are_cut_to_the_period(history: DataFrame) -> None:
    assert periods(between(history.where("guid = 'kettle'"), at(9, 30), at(10, 30))) == {
        ("m1", at(9, 30), at(10)),
        ("m2", at(10), at(10, 30)),
    }


def test_intervals_within_the_period_stay_as_they_are(history: DataFrame) -> None:
    found = between(history, at(8), at(12), deletes=True)
    assert ("m3", at(11), at(12)) in periods(found)
    assert ("m2", at(10), at(12)) in periods(found)


def test_what_ends_at_the_start_or_begins_at_the_end_is_outside(history: DataFrame) -> None:
    assert periods(between(history, at(10), at(12))) == {("m2", at(10), at(12)), ("m1", at(10), at(11))}
    assert periods(between(history, at(8), at(9))) == set()


def test_one_microsecond_is_a_period(history: DataFrame) -> None:
    moment = timedelta(microseconds=1)
    kettle = history.where("guid = 'kettle'")
    assert periods(between(kettle, at(10) - moment, at(10))) == {("m1", at(10) - moment, at(10))}
    assert periods(between(kettle, at(10), at(10) + moment)) == {("m2", at(10), at(10) + moment)}


def test_a_period_without_an_end_leaves_current_versions_open(history: DataFrame) -> None:
    assert periods(between(history, at(9, 30), None)) == {
        ("m1", at(9, 30), at(10)),
        ("m2", at(10), None),
        ("m1", at(9, 30), at(11)),
        ("m4", at(12), None),
    }


def test_deleted_versions_are_kept_on_request(history: DataFrame) -> None:
    assert periods(between(history, at(11), at(12))) == {("m2", at(11), at(12))}
    assert periods(between(history, at(11), at(12), deletes=True)) == {
        ("m2", at(11), at(12)),
        ("m3", at(11), at(12)),
    }


def test_versions_that_are_in_force_at_no_time_are_in_no_period(spark: SparkSession) -> None:
    """One that ends where it begins, one that ends before, and one that never begins."""
    broken = spark.createDataFrame(
        [
            ("g", at(10), at(10), False, "a", "m1"),
            ("g", at(11), at(9, 45), False, "a", "m2"),
            ("g", None, at(11), False, "a", "m3"),
            ("g", None, None, False, "a", "m4"),
        ],
        NAMED,
    )
    assert periods(between(broken, at(9, 30), at(12))) == set()
    assert periods(between(broken, at(9, 30), None)) == set()


def test_the_zone_of_the_period_does_not_matter(history: DataFrame) -> None:
    india = timezone(timedelta(hours=5, minutes=30))
    there = between(history, at(9, 30).astimezone(india), at(10, 30).astimezone(india))
    assert periods(there) == periods(between(history, at(9, 30), at(10, 30)))


@pytest.mark.parametrize(
    ("start", "end", "named"),
    [
        (datetime(2024, 3, 10), None, r"start to be an aware datetime"),
        (at(9), datetime(2024, 3, 11), r"end to be an aware datetime"),
        (at(9), "2024-03-11", r"end to be an aware datetime"),
        (at(9), at(9), r"end to be after start, 2024-03-10T09:00:00\+00:00"),
        (at(9), at(8), r"end to be after start"),
        (pd.Timestamp(at(9)), pd.Timestamp(at(9)) + pd.Timedelta(1, "ns"), r"end to be after start"),
    ],
)
def test_what_is_no_period_is_refused(history: DataFrame, start: Any, end: Any, named: str) -> None:
    with pytest.raises(InvalidArgument, match=rf"between\(\) needs {named}"):
        between(history, start, end)


def test_the_columns_stay_as_they_are(history: DataFrame) -> None:
    assert between(history, at(9), None).dtypes == history.dtypes


def test_an_empty_history_has_no_versions(spark: SparkSession) -> None:
    assert between(spark.createDataFrame([], NAMED), at(9), at(10)).collect() == []


FIELDS = {"h": "int", "k": "string", "a": "int", "b": "double"}


@pytest.mark.parametrize(("start", "end"), [(0, 3), (1, 3), (2, 0), (2, None), (0, None)])
def test_it_is_every_version_of_every_instant_of_the_period(
    spark: SparkSession, start: int, end: int | None
) -> None:
    """Compared with a loop over random histories; start and end are instants at which things change."""
    changes = random_changes(31, 200, FIELDS)
    rows = fold(changes, entity="thing", keys=["h", "k"], fields=list(FIELDS))
    first, last = INSTANTS[start], None if end is None else INSTANTS[end]
    history = rows_to_dataframe(spark, rows, history_schema(FIELDS))
    found = by_guid(to_rows(between(history, first, last, deletes=True)))
    expected = [cut for row in rows for cut in [clipped(row, first, last)] if cut is not None]
    assert len(expected) > 100
    assert found == by_guid(expected)


def clipped(row: Row, start: datetime, end: datetime | None) -> Row | None:
    forever = datetime(9999, 1, 1, tzinfo=UTC)
    begins = max(row["valid_from_timestamp"], start)
    ends = min(row["valid_to_timestamp"] or forever, end or forever)
    if begins >= ends:
        return None
    return {
        **row,
        "valid_from_timestamp": begins,
        "valid_to_timestamp": None if ends == forever else ends,
    }
