"""Ledgers of prices, and what they say."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from cdckit.ledger import Ledger
from cdckit.parts.kept_folds import bucket_of
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


def require_order(ledger: Ledger, place: Path) -> int:
    """Require that each row stands in the bucket of its entity; returns how many buckets there are."""
    buckets = ledger.at_commit().kind.buckets
    for table in ("changes", "history", "unborn"):
        rows = DeltaTable(str(place / table)).to_pyarrow_table(columns=["guid", "ledger_bucket"]).to_pylist()
        assert all(row["ledger_bucket"] == bucket_of(row["guid"], buckets) for row in rows if row["guid"])
        for_all = sorted(row["ledger_bucket"] for row in rows if not row["guid"])
        assert for_all in ([], list(range(buckets)))
    return buckets


def rows_of(table: DataFrame) -> list[str]:
    """The rows as texts, in an order."""
    return sorted(map(repr, table.select(*sorted(table.columns)).collect()))
