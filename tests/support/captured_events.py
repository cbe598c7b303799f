"""Events of Debezium as a PostgreSQL connector writes them, and records of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from cdckit.model.records import RECORD_SCHEMA

BEGIN = datetime(2024, 3, 1, 12, tzinfo=UTC)
CONNECT = {"id": "int32", "price": "int32"}


def event(
    op: str,
    table: str,
    row: Mapping[str, Any],
    *,
    lsn: int | None = None,
    snapshot: str = "false",
    types: Mapping[str, str] | None = None,
) -> bytes:
    """An event about a row, of a delete the row before; at a place in the log if there is one."""
    image = {"before": dict(row), "after": None} if op == "d" else {"before": None, "after": dict(row)}
    at = int(BEGIN.timestamp() * 1000) + (lsn or 0)
    source: dict[str, Any] = {"name": "shop", "table": table, "ts_ms": at, "snapshot": snapshot}
    if lsn is not None:
        source |= {"connector": "postgresql", "lsn": lsn, "sequence": f'["{lsn}","{lsn}"]'}
    said: dict[str, Any] = {"op": op, **image, "source": source, "ts_ms": at}
    if types is not None:
        fields = [{"field": name, "type": kind} for name, kind in types.items()]
        images = [{"field": name, "type": "struct", "fields": fields} for name in ("before", "after")]
        said = {"schema": {"type": "struct", "fields": images}, "payload": said}
    return json.dumps(said).encode()


def records(
    spark: SparkSession, sent: Sequence[tuple[bytes | None, bytes | None]], first: int = 0
) -> DataFrame:
    """Keys and values as records of one topic, a second apart, with offsets from *first* on."""
    rows = [
        (key, value, "shop", 0, first + place, BEGIN + timedelta(seconds=first + place), 0, None)
        for place, (key, value) in enumerate(sent)
    ]
    return spark.createDataFrame(rows, RECORD_SCHEMA).coalesce(1)


def rows(table: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """Some columns of all rows, of a history of those that are there now."""
    if "valid_to_timestamp" in table.columns:
        table = table.where("valid_to_timestamp is null and not deleted_indicator")
    return sorted(tuple(row) for row in table.select(*columns).collect())
