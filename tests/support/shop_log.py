"""What a shop says of its values, as changes: for tests of what becomes of changes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession

from support.histories import Row, change_schema, rows_to_dataframe


def shop_changes(
    spark: SparkSession,
    fields: dict[str, str],
    rows: Iterable[tuple[Row, int]],
    *,
    deletes: Iterable[Row] = (),
) -> DataFrame:
    """
    Changes of the *fields*: the values of each row, from a day of January 2024 on.

    They are rows at once: `changes_from` would plan for longer than most of these tests take.
    """
    gone = list(deletes)
    changes = [_change(data, day, "delete" if data in gone else "upsert") for data, day in rows]
    return rows_to_dataframe(spark, changes, change_schema(fields, field_priorities=False))


def _change(data: Row, day: int, operation: str) -> Row:
    at = datetime(2024, 1, day, tzinfo=UTC)
    arrival = {"timestamp": at, "topic": "table", "partition": 0, "offset": 0, "record_number": 1}
    return {
        "operation": operation,
        "effective_timestamp": at,
        "sequence": f"{day:02}",
        "arrival": arrival,
        # No value is in it, so that those of whom nothing must be left are not.
        "message_id": f"table-{hashlib.sha256(repr((data, day)).encode()).hexdigest()[:32]}",
        "source": "table",
        "priority": 0,
        "data": data,
        "carried": {name: value is not None for name, value in data.items()},
    }
