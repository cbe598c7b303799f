"""Histories as rows: what the tests of outputs, and of questions in time, share."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from support.histories import at

Row = dict[str, Any]
COLUMNS = (
    "guid string, valid_from_timestamp timestamp, valid_to_timestamp timestamp, deleted_indicator boolean"
)
NAMED = f"{COLUMNS}, name string, source_message string"


def kettle_and_mug(spark: SparkSession) -> DataFrame:
    """A kettle with two names, and a mug that was deleted and came back."""
    return spark.createDataFrame(
        [
            ("kettle", at(9), at(10), False, "Kettle", "m1"),
            ("kettle", at(10), None, False, "Automatic Kettle", "m2"),
            ("mug", at(9), at(11), False, "Mug", "m1"),
            ("mug", at(11), at(12), True, None, "m3"),
            ("mug", at(12), None, False, "New Mug", "m4"),
        ],
        NAMED,
    )


def day(number: int | None) -> datetime | None:
    """A day of January 2024."""
    return None if number is None else datetime(2024, 1, number, tzinfo=UTC)


def history_of(spark: SparkSession, fields: str, versions: Sequence[tuple[Any, ...]]) -> DataFrame:
    """Versions as (guid, from, to, deleted, fields …); their messages are m1, m2 … in their order."""
    rows = [(*version, f"m{place}") for place, version in enumerate(versions, 1)]
    return spark.createDataFrame(rows, f"{COLUMNS}, {fields}, source_message string")


def rows_of(frame: DataFrame) -> list[Row]:
    """All rows, instants aware, in the order of what they say."""
    rows = frame.toArrow().to_pylist()
    return sorted(rows, key=lambda row: [str(value) for value in row.values()])
