"""Tables of changes, and what `changes_from` makes or refuses of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdckit import merge, rejects
from cdckit.parts.arguments import quoted
from cdckit.tables import table_rows

Row = dict[str, Any]
DAY = [datetime(2024, 1, day, tzinfo=UTC) for day in range(1, 10)]


def versions(changes: DataFrame, *fields: str, keys: Sequence[str] = ("id",)) -> list[tuple[Any, ...]]:
    """By key and time: the key, the day of January 2024 from which, whether deleted, and the fields."""
    history = merge(changes, entity="product", keys=list(keys))
    history = history.withColumn("day", F.dayofmonth("valid_from_timestamp"))
    rows = history.orderBy(*map(quoted, keys), "valid_from_timestamp").toArrow().to_pylist()
    return [tuple(row[name] for name in (*keys, "day", "deleted_indicator", *fields)) for row in rows]


def log(*rows: tuple[Any, ...]) -> pd.DataFrame:
    """Rows of `id`, the day of January, `op`, `name`, `price`."""
    frame = pd.DataFrame(rows, columns=["id", "day", "op", "name", "price"]).astype(
        {"id": "Int64", "price": "Int64"}
    )
    frame["at"] = pd.to_datetime(frame.pop("day").map(lambda day: f"2024-01-0{day}"))
    return frame


KETTLE = log((1, 1, "I", "kettle", 20), (1, 2, "U", "teapot", None), (1, 3, "U", None, 25))


# Rows that cannot be used ----------------------------------------------------------------------------------


def refused(frame: DataFrame | pd.DataFrame, **how: Any) -> list[tuple[str, str]]:
    """The codes of a table's rejects, each with its row, in the order of the rows."""
    found = rejects(table_rows(frame, **how)).toArrow().to_pylist()
    return sorted((row["error_code"], bytes(row["value"]).decode()) for row in found)


def way(how: str) -> str:
    at = "`changed on`"
    is_unit = how in ("seconds", "millis", "micros")
    return f"timestamp_{how}(try_cast({at} as bigint))" if is_unit else f"try_to_timestamp({at}, '{how}')"


def at(versions: Sequence[Row], instant: datetime) -> Row:
    return {
        row["id"]: {"a": row["a"], "b": row["b"]}
        for row in versions
        if row["valid_from_timestamp"] <= instant
        and (row["valid_to_timestamp"] is None or instant < row["valid_to_timestamp"])
    }
