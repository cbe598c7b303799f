"""`count_sources`: how many values of each field come from each source."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdckit import current, merge
from cdckit.errors import MissingColumns, WrongColumnType
from cdckit.query.provenance import count_sources
from support.fold import fold
from support.histories import Row, random_changes, to_dataframe
from support.provenances import told

ENTRY = "struct<m: string, p: int>"
HISTORY = f"""
    guid string, valid_from_timestamp timestamp, valid_to_timestamp timestamp, deleted_indicator boolean,
    name string, field_provenance struct<guid: {ENTRY}, name: {ENTRY}>
"""
CHANGES = """
    message_id string, source string,
    arrival struct<timestamp: timestamp, topic: string, partition: int, offset: bigint, record_number: int>
"""
START = datetime(2024, 3, 10, tzinfo=UTC)


@pytest.fixture(scope="module")
def history(spark: SparkSession) -> DataFrame:
    """Four current entities; of one of them nobody said the name, of one that it is null."""
    said = [("m1", "m1"), ("m1", "m2"), ("m2", "m2"), ("m3", None)]
    return spark.createDataFrame(
        [
            (f"g{number}", START, None, False, None, ((row, 0), name and (name, 5)))
            for number, (row, name) in enumerate(said)
        ],
        HISTORY,
    )


def changes_of(spark: SparkSession, *changes: tuple[str | None, str | None]) -> DataFrame:
    arrival = (START, "t", 0, 0, 0)
    return spark.createDataFrame([(*change, arrival) for change in changes], CHANGES)


def answer(found: DataFrame) -> dict[tuple[str, str | None], tuple[int, float]]:
    rows = found.collect()
    by_place = {(row["field"], row["source"]): (row["values"], row["share"]) for row in rows}
    assert len(by_place) == len(rows)
    return by_place


def test_values_are_counted_by_field_and_source(spark: SparkSession, history: DataFrame) -> None:
    """A field that nobody set has no value; a null that was said is one."""
    changes = changes_of(spark, ("m1", "shop"), ("m2", "depot"), ("m3", "shop"))
    assert answer(count_sources(history, changes)) == {
        ("deleted_indicator", "shop"): (3, 0.75),
        ("deleted_indicator", "depot"): (1, 0.25),
        ("name", "shop"): (1, 1 / 3),
        ("name", "depot"): (2, 2 / 3),
    }


def test_a_message_counts_once_whatever_the_number_of_its_changes(
    spark: SparkSession, history: DataFrame
) -> None:
    told_by_m2: list[tuple[str | None, str | None]] = [("m2", "depot")] * 4
    changes = changes_of(spark, ("m1", "shop"), *told_by_m2, ("m3", "shop"))
    assert answer(count_sources(history, changes))["name", "depot"] == (2, 2 / 3)
    assert answer(count_sources(history, changes))["name", "shop"] == (1, 1 / 3)


def test_an_id_that_two_sources_use_is_counted_for_neither(spark: SparkSession, history: DataFrame) -> None:
    changes = changes_of(spark, ("m1", "shop"), ("m2", "shop"), ("m2", "depot"), ("m3", "shop"))
    assert answer(count_sources(history, changes)) == {
        ("deleted_indicator", "shop"): (3, 0.75),
        ("deleted_indicator", None): (1, 0.25),
        ("name", "shop"): (1, 1 / 3),
        ("name", None): (2, 2 / 3),
    }


def test_what_the_changes_do_not_know_has_no_source_but_counts(
    spark: SparkSession, history: DataFrame
) -> None:
    changes = changes_of(spark, ("m1", "shop"), ("m3", None), (None, "depot"))
    assert answer(count_sources(history, changes)) == {
        ("deleted_indicator", "shop"): (2, 0.5),
        ("deleted_indicator", None): (2, 0.5),
        ("name", "shop"): (1, 1 / 3),
        ("name", None): (2, 2 / 3),
    }


def test_an_empty_history_has_no_values(spark: SparkSession) -> None:
    changes = changes_of(spark, ("m1", "shop"))
    assert count_sources(spark.createDataFrame([], HISTORY), changes).collect() == []


def test_missing_and_wrong_columns_are_named(spark: SparkSession, history: DataFrame) -> None:
    changes = changes_of(spark, ("m1", "shop"))
    with pytest.raises(MissingColumns, match=r"count_sources\(\) needs the columns source;"):
        count_sources(history, changes.drop("source"))
    with pytest.raises(WrongColumnType, match=r"count_sources\(\) needs the column message_id as string"):
        count_sources(history, changes.selectExpr("1 as message_id", "source", "arrival"))
    with pytest.raises(MissingColumns, match=r"count_sources\(\) needs the columns field_provenance;"):
        count_sources(history.drop("field_provenance"), changes)


FIELDS = {"h": "int", "k": "string", "a": "int", "b": "double"}


@pytest.mark.parametrize("now", [True, False], ids=["current", "every version"])
def test_it_is_what_the_fold_says(spark: SparkSession, now: bool) -> None:
    changes = random_changes(51, 120, FIELDS)
    versions = fold(changes, entity="thing", keys=["h", "k"], fields=list(FIELDS))
    chosen = [row for row in versions if not now or alive_now(row)]
    sources: dict[str, set[str | None]] = {}
    for change in changes:
        sources.setdefault(change["message_id"], set()).add(change["source"])
    source = {message: min(some) if len(some) == 1 else None for message, some in sources.items()}
    said = [one for row in chosen for one in told(row, FIELDS).values() if one["message"]]
    expected = Counter((one["field"], source[one["message"]]) for one in said)
    of_field = Counter(one["field"] for one in said)
    frame = to_dataframe(spark, changes, FIELDS)
    history = merge(frame, entity="thing", keys=["h", "k"])
    assert answer(count_sources(current(history) if now else history, frame)) == {
        place: (count, count / of_field[place[0]]) for place, count in expected.items()
    }


def alive_now(row: Row) -> bool:
    return row["valid_to_timestamp"] is None and not row["deleted_indicator"]
