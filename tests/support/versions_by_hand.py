"""Histories as rows: what the tests of outputs share."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession

Row = dict[str, Any]
COLUMNS = (
    "guid string, valid_from_timestamp timestamp, valid_to_timestamp timestamp, deleted_indicator boolean"
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
