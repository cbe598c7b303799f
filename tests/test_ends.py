"""Changes with an end, `effective_until`: what holds at an instant, and no longer."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdckit import merge, union_changes
from cdckit.errors import WrongColumnType
from support.histories import Row, assert_folds_to, random_changes, to_dataframe
from tools.tiers import seeds

FIELDS = {"h": "int", "k": "string", "a": "int", "b": "double"}
KEYS = ["h", "k"]
ENDS = (False, False, True)


def day(number: int) -> datetime:
    return datetime(2024, 1, number, tzinfo=UTC)


def change(message: str, begin: int, until: int | None = None, a: int | None = 1, **more: Any) -> Row:
    """An upsert of the one thing, true from a day of January on."""
    arrival = {"timestamp": day(begin), "topic": "t", "partition": 0, "offset": 0, "record_number": 0}
    return {
        "operation": "upsert",
        "effective_timestamp": day(begin),
        "effective_until": until and day(until),
        "sequence": "",
        "arrival": arrival,
        "message_id": message,
        "source": "one",
        "priority": 0,
        "data": {"h": 1, "k": "x", "a": a, "b": None},
        "carried": {"h": True, "k": True, "a": True, "b": False},
        **more,
    }


@pytest.mark.parametrize("options", [{}, {"guids": True}])
@seeds(3, soak=10)
def test_random_changes_with_ends_are_what_the_fold_makes_of_them(
    spark: SparkSession, options: dict[str, Any], seed: int
) -> None:
    changes = random_changes(seed, 1000, FIELDS, ends=ENDS, **options)
    history = merge(to_dataframe(spark, changes, FIELDS), entity="thing", keys=KEYS)
    assert_folds_to(history, changes, entity="thing", keys=KEYS)


@pytest.mark.parametrize("until", [1, 2])
def test_a_change_that_holds_at_no_time_stops_the_merge(spark: SparkSession, until: int) -> None:
    """An end before the beginning, or at it, says nothing: it must not be dropped in silence."""
    changes = to_dataframe(spark, [change("m1", 1), change("m2", 2, until)], FIELDS)
    text = (
        r"InvalidEnds.*which must be later; at least 1 do not, such as one from 2024-01-02.* until 2024-01-0"
    )
    with pytest.raises(PySparkException, match=text):
        merge(changes, entity="thing", keys=KEYS).collect()


def test_an_end_without_a_beginning_stops_the_merge(spark: SparkSession) -> None:
    changes = to_dataframe(spark, [change("m1", 1, 3, effective_timestamp=None)], FIELDS)
    with pytest.raises(PySparkException, match="The merge needs effective_timestamp in every change"):
        merge(changes, entity="thing", keys=KEYS).collect()


def test_an_end_is_a_timestamp(spark: SparkSession) -> None:
    changes = to_dataframe(spark, [change("m1", 1, 3)], FIELDS)
    dates = changes.withColumn("effective_until", F.col("effective_until").cast("date"))
    with pytest.raises(WrongColumnType, match="effective_until of type timestamp"):
        merge(dates, entity="thing", keys=KEYS)


def test_changes_with_ends_are_united_with_changes_without(spark: SparkSession) -> None:
    """Those of the other table hold until something else is said."""
    plain = to_dataframe(spark, [change("m1", 1)], FIELDS).drop("effective_until")
    corrected = to_dataframe(spark, [change("m2", 2, 3, a=9, source="steward")], FIELDS)
    for both in (union_changes(plain, corrected), union_changes(corrected, plain)):
        history = merge(both, entity="thing", keys=KEYS).orderBy("valid_from_timestamp")
        found = [(row["a"], row["source_message"]) for row in history.collect()]
        assert found == [(1, "m1"), (9, "m2"), (1, "m1")]
