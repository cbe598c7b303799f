"""Two tables of Replicate, and feeds of their messages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from cdckit.replicate import Feed
from support.replicate_messages import Record, Version, record, sequence, to_dataframe

TEXT = ["null", "string"]
V1 = Version({"id": "int", "name": TEXT})
OTHER = Version({"code": "int", "name": TEXT}, keys=("code",), table="SHOPS")


def said(
    version: Version, operation: str, row: dict[str, Any], minute: int, offset: int, **others: Any
) -> Record:
    """A record of one change, true at a minute after ten."""
    at = {
        "changeSequence": sequence(f"2024010110{minute:02d}", offset),
        "timestamp": f"2024-01-01T10:{minute:02d}:00",
        "columnMask": others.pop("columnMask", None),
    }
    return record(version.dt(operation, row, **at), offset, **others)


def short(history: DataFrame, *names: str) -> list[tuple[Any, ...]]:
    """The versions by their beginning: minute after ten, whether deleted, and these columns."""
    rows = history.orderBy("valid_from_timestamp", *names).collect()
    return [
        (row["valid_from_timestamp"].minute, row["deleted_indicator"], *(row[name] for name in names))
        for row in rows
    ]


def fed(spark: SparkSession, folder: Path, batches: Sequence[Sequence[Record]], **options: Any) -> Feed:
    feed = Feed(spark, folder, **options)
    for number, records in enumerate(batches):
        feed.receive(to_dataframe(spark, records), number)
    return feed
