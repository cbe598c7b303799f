"""Things whose keys change: their changes, by message and hour."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit import complete_moves
from support.histories import Row, change_schema, rows_to_dataframe

START = datetime(2024, 1, 1, tzinfo=UTC)
FIELDS = {"w": "int", "k": "int", "a": "string", "b": "int"}
KEYS = ["w", "k"]
KEY = T.StructType().add("w", T.IntegerType()).add("k", T.IntegerType())
MOVED = T.StructType().add("id", T.StringType()).add("old_key", KEY).add("new_key", KEY)
CALL: Any = {"entity": "thing", "keys": KEYS}


def said(number: int, key: int, hour: int, *, world: int = 0, move: Row | None = None, **sent: Any) -> Row:
    """A change: message m<number>, at an hour, of a key; a delete if nothing is sent."""
    return {
        "operation": "upsert",
        "effective_timestamp": START + timedelta(hours=hour),
        "sequence": f"{number:05}",
        "arrival": {
            "timestamp": START + timedelta(days=1, minutes=number),
            "topic": "t",
            "partition": 0,
            "offset": number,
            "record_number": 1,
        },
        "message_id": f"m{number}",
        "source": "log",
        "priority": 0,
        "data": {"w": world, "k": key, "a": sent.get("a"), "b": sent.get("b")},
        "carried": {"w": True, "k": True, "a": "a" in sent, "b": "b" in sent},
        "field_priorities": {"w": None, "k": None, "a": None, "b": None},
        "moved": move,
    }


def moved(number: int, old: int, new: int, hour: int, *, world: int = 0, **sent: Any) -> list[Row]:
    """A move: a delete of the old key and an upsert of the new one, in one message."""
    move = {
        "id": str(number),
        "old_key": {"w": world, "k": old},
        "new_key": {"w": world, "k": new},
    }
    leaving = said(number, old, hour, world=world, move=move) | {"operation": "delete"}
    arriving = said(number, new, hour, world=world, move=move, **sent)
    arriving["sequence"] += "/1"
    arriving["arrival"] = arriving["arrival"] | {"record_number": 2}
    return [leaving, arriving]


def frame(spark: SparkSession, rows: Sequence[Row], *, placed: bool = False) -> DataFrame:
    ends = any("effective_until" in row for row in rows)
    schema = change_schema(FIELDS, ends=ends).add("moved", MOVED)
    found = rows_to_dataframe(spark, rows, schema)
    return complete_moves(found.withColumn("snapshot", F.lit(False)) if placed else found)


def shown(history: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    rows = history.orderBy("k", "valid_from_timestamp").collect()
    return [tuple(row[name] for name in columns) for row in rows]


ONE_MOVE = [said(1, 1, 1, a="large", b=1), *moved(2, 1, 2, 2, b=5)]
