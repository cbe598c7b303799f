"""Ledgers of prices, and what they say."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from cdckit.ledger import Ledger
from support.histories import Row, change_schema, rows_to_dataframe
from support.ledger_programs import KEYS

WIDE = {"h": "int", "k": "string", "a": "string"}
"""Fields of which a later batch brings one more, and one of another type."""


def opened(spark: SparkSession, place: Path, **options: object) -> Ledger:
    return Ledger(spark, place, entity="e", keys=KEYS, **{"buckets": 3, **options})  # type: ignore[arg-type]


def price(number: int, day: int, value: str | None, *, operation: str = "upsert", message: str = "") -> Row:
    """A change of the entity (*number*, x), on a day of January 2024, that arrived on the same day."""
    at = datetime(2024, 1, day, tzinfo=UTC)
    arrival = {"timestamp": at, "topic": "t", "partition": 0, "offset": day, "record_number": number}
    return {
        "operation": operation,
        "effective_timestamp": at,
        "sequence": "",
        "arrival": arrival,
        "message_id": message or f"day {day}",
        "source": "shop",
        "priority": 0,
        "data": {"h": number, "k": "x", "a": value},
        "carried": {"h": True, "k": True, "a": value is not None},
    }


def prices(spark: SparkSession, *changes: Row) -> DataFrame:
    return rows_to_dataframe(spark, changes, change_schema(WIDE, field_priorities=False))
