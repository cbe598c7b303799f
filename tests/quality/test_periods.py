"""`find_overlaps`, `find_gaps`: versions in the wrong place."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import merge
from cdckit.errors import InvalidArgument
from cdckit.quality.unsound_rows import find_gaps, find_overlaps
from support.histories import Row, random_changes, to_dataframe, to_rows

SCHEMA = "guid string, valid_from_timestamp timestamp, valid_to_timestamp timestamp, source_message string"
Period = tuple[str, int | None, int | None]


def at(hour: int | None) -> datetime | None:
    return None if hour is None else datetime(2024, 3, 10, hour, tzinfo=UTC)


def history_of(spark: SparkSession, *periods: Period) -> DataFrame:
    """Versions of these entities from hour to hour; the messages are m0, m1 ... in this order."""
    rows = [(guid, at(a), at(b), f"m{place}") for place, (guid, a, b) in enumerate(periods)]
    return spark.createDataFrame(rows, SCHEMA)


def messages(rows: DataFrame) -> set[str]:
    return {row["source_message"] for row in rows.collect()}


def until(rows: DataFrame, column: str) -> dict[str, datetime | None]:
    collected: list[Row] = rows.toArrow().to_pylist()
    return {row["source_message"]: row[column] for row in collected}


# Overlaps ------------------------------------------------------------------------------------------------


def overlapped(history: DataFrame) -> dict[str, datetime | None]:
    return until(find_overlaps(history), "overlapped_until_timestamp")


def test_versions_that_follow_one_another_do_not_overlap(spark: SparkSession) -> None:
    assert overlapped(history_of(spark, ("g", 1, 3), ("g", 3, 5), ("g", 5, None))) == {}


def test_the_later_of_two_that_overlap_is_found(spark: SparkSession) -> None:
    assert overlapped(history_of(spark, ("g", 1, 4), ("g", 3, 5), ("g", 5, None))) == {"m1": at(4)}


def test_a_version_may_overlap_one_that_is_not_its_neighbour(spark: SparkSession) -> None:
    """The short versions lie within the long one that began before them."""
    history = history_of(spark, ("g", 1, 9), ("g", 2, 3), ("g", 5, 6), ("g", 9, None))
    assert overlapped(history) == {"m1": at(9), "m2": at(9)}


def test_everything_after_an_open_version_overlaps_it(spark: SparkSession) -> None:
    history = history_of(spark, ("g", 1, None), ("g", 7, 8), ("g", 8, None))
    assert overlapped(history) == {"m1": None, "m2": None}


def test_of_versions_that_begin_together_the_one_that_ends_first_counts_as_earlier(
    spark: SparkSession,
) -> None:
    assert overlapped(history_of(spark, ("g", 1, None), ("g", 1, 4))) == {"m0": at(4)}


def test_other_entities_do_not_matter(spark: SparkSession) -> None:
    history = history_of(spark, ("g", 1, None), ("h", 2, None), ("h", 1, 2))
    assert overlapped(history) == {}
    assert messages(find_gaps(history)) == set()


def test_versions_that_are_in_force_at_no_time_overlap_nothing(spark: SparkSession) -> None:
    history = history_of(spark, ("g", 1, 9), ("g", 5, 5), ("g", None, 4), ("g", 12, 10), ("g", 9, None))
    assert overlapped(history) == {}


# Gaps ----------------------------------------------------------------------------------------------------


def gaps(history: DataFrame) -> dict[str, datetime | None]:
    return until(find_gaps(history), "gap_from_timestamp")


def test_the_version_after_a_gap_is_found(spark: SparkSession) -> None:
    history = history_of(spark, ("g", 1, 3), ("g", 4, 5), ("g", 5, 6), ("g", 8, None))
    assert gaps(history) == {"m1": at(3), "m3": at(6)}


def test_a_gap_is_where_no_version_at_all_is_in_force(spark: SparkSession) -> None:
    """Between the second and the third version the first one is in force still."""
    assert gaps(history_of(spark, ("g", 1, 9), ("g", 2, 3), ("g", 5, 6), ("g", 10, None))) == {"m3": at(9)}


def test_after_an_open_version_there_is_no_gap(spark: SparkSession) -> None:
    assert gaps(history_of(spark, ("g", 1, None), ("g", 5, 6))) == {}


def test_before_the_first_and_after_the_last_version_there_is_no_gap(spark: SparkSession) -> None:
    assert gaps(history_of(spark, ("g", 5, 6))) == {}


def test_a_version_that_is_in_force_at_no_time_fills_no_gap(spark: SparkSession) -> None:
    assert gaps(history_of(spark, ("g", 1, 3), ("g", 4, 4), ("g", 5, None))) == {"m2": at(3)}


# Both of them ---------------------------------------------------------------------------------------------

CHECKS = {find_overlaps: "overlapped_until_timestamp", find_gaps: "gap_from_timestamp"}
every_check = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)


@every_check
def test_the_columns_stay_and_their_names_may_be_anything(
    spark: SparkSession, check: Callable[[DataFrame], DataFrame]
) -> None:
    history = history_of(spark, ("g", 1, 4), ("g", 2, None), ("g", 3, None), ("h", 1, 2), ("h", 4, 4))
    odd = history.withColumns(
        {"a.b `c`": F.lit(1), "number": F.lit(9), "row": F.lit("r"), "open": F.lit(False), "end": F.lit(0)}
    )
    found = check(odd)
    assert found.columns == [*odd.columns, CHECKS[check]]
    assert messages(found) == messages(check(history))


@every_check
def test_a_column_of_the_new_name_is_not_overwritten(
    spark: SparkSession, check: Callable[[DataFrame], DataFrame]
) -> None:
    column = CHECKS[check]
    history = history_of(spark).withColumn(column.upper(), F.lit(1))
    with pytest.raises(InvalidArgument, match=f"free of a column {column}: rename it first"):
        check(history)


@every_check
def test_an_empty_history_has_no_offending_rows(
    spark: SparkSession, check: Callable[[DataFrame], DataFrame]
) -> None:
    assert check(history_of(spark)).collect() == []


@pytest.fixture(scope="module")
def merged(spark: SparkSession) -> DataFrame:
    """What `merge` gives for many random changes, priorities, deletes and recreations among them."""
    fields = {"h": "int", "k": "string", "a": "int", "b": "double"}
    history = merge(
        to_dataframe(spark, random_changes(51, 150, fields), fields), entity="thing", keys=["h", "k"]
    )
    return history.localCheckpoint()


@every_check
def test_a_history_that_merge_gives_has_no_offending_rows(
    merged: DataFrame, check: Callable[[DataFrame], DataFrame]
) -> None:
    assert merged.count() > 300
    assert check(merged).collect() == []


def test_overlaps_and_gaps_are_what_a_loop_over_all_hours_finds(spark: SparkSession) -> None:
    """Random versions, most of them wrong; which of two that begin and end together offends is left open."""
    chance = random.Random(7)
    periods: list[Period] = [
        (f"g{chance.randrange(60)}", chance.randrange(12), chance.choice([*range(1, 13), None]))
        for _ in range(200)
    ]
    rows = to_rows(history_of(spark, *periods))
    hours = [datetime(2024, 3, 10, hour, tzinfo=UTC) for hour in range(14)]
    in_force = {
        (row["source_message"], hour)
        for row in rows
        for hour in hours
        if row["valid_from_timestamp"] <= hour and (row["valid_to_timestamp"] or hours[-1]) > hour
    }
    guids = {row["source_message"]: row["guid"] for row in rows}
    several, after_nothing = set(), set()
    for row in rows:
        begins, guid = row["valid_from_timestamp"], row["guid"]
        alive = (row["source_message"], begins) in in_force
        others = {m for m, hour in in_force if hour == begins and guids[m] == guid} - {row["source_message"]}
        if alive and others:
            several.add((guid, begins))
        before = {hour for m, hour in in_force if guids[m] == guid and hour < begins}
        if alive and before and max(before).hour < begins.hour - 1:
            after_nothing.add((guid, begins))
    history = history_of(spark, *periods)
    assert 20 < len(several) < len(rows)
    assert after_nothing
    assert {(r["guid"], r["valid_from_timestamp"]) for r in to_rows(find_overlaps(history))} == several
    assert {(r["guid"], r["valid_from_timestamp"]) for r in to_rows(find_gaps(history))} == after_nothing
