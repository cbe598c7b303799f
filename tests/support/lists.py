"""Nightly lists of products, and what a ledger's log says of them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from cdckit.ledger import Ledger

DAY = [datetime(2024, 1, day, tzinfo=UTC) for day in range(1, 32)]


def opened(spark: SparkSession, place: Path) -> Ledger:
    return Ledger(spark, place, entity="product", keys=["id"], buckets=2)


def said(ledger: Ledger) -> list[tuple[Any, ...]]:
    """Of each change the key, the day of January 2024, the operation, the name."""
    rows = ledger.changes().orderBy("data.id", "effective_timestamp").toArrow().to_pylist()
    return [
        (row["data"]["id"], row["effective_timestamp"].day, row["operation"], row["data"]["name"])
        for row in rows
    ]
