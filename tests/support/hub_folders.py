"""Documents of a hub as records, and their statuses."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from cdckit.datahub import decode
from cdckit.datahub.messages import with_statuses
from cdckit.model.records import RECORD_SCHEMA
from support.hub_programs import rows_of

Row = dict[str, Any]
AT = datetime(2024, 1, 1, 9, 30, 15, 123_456, tzinfo=UTC)


def table(spark: SparkSession, values: list[bytes | None]) -> DataFrame:
    """One record per value, in partition 3 of the topic t."""
    rows = [
        (b"k", value, "t", 3, offset, AT + timedelta(seconds=offset), 0, None)
        for offset, value in enumerate(values)
    ]
    return spark.createDataFrame(rows, RECORD_SCHEMA)


def statuses(spark: SparkSession, messages: list[Row], stored: list[str] | None = None) -> list[Row]:
    """Status and data of each message, in the order in which they are given."""
    schema = decode(table(spark, [])).schema
    columns = [tuple(each.get(name) for name in schema.names) for each in messages]
    known = None if stored is None else spark.createDataFrame([(each,) for each in stored], "identity string")
    found = rows_of(with_statuses(spark.createDataFrame(columns, schema), known))
    places = [(each["topic"], each["partition"], each["offset"]) for each in messages]
    return sorted(found, key=lambda row: places.index((row["topic"], row["partition"], row["offset"])))
