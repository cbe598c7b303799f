"""Tables of prices that say until when, and the versions of a history."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pandas as pd
from pyspark.sql import SparkSession

from cdckit import changes_from, merge
from cdckit.outputs import scd_type_2
from support.histories import plain, random_changes, to_dataframe

PERIOD: Any = {"valid_from": "since", "valid_to": "until"}


def prices(*rows: tuple[Any, ...]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["id", "price", "since", "until"])


def versions(changes: Any) -> list[tuple[Any, ...]]:
    history = merge(changes, entity="room", keys=["id"]).orderBy("id", "valid_from_timestamp")
    shown = history.selectExpr(
        "id", "price", "date_format(valid_from_timestamp, 'd')", "date_format(valid_to_timestamp, 'd')"
    )
    return [tuple(row) for row in shown.collect()]


def rows_of_type_2(
    spark: SparkSession, seed: int, *, histories: int, valid_to_current: datetime | None
) -> list[list[str]]:
    """The rows of type 2 of random histories, and those of the history that `changes_from` makes of them."""
    fields = {"h": "int", "k": "string", "a": "int", "b": "double"}
    drawn = to_dataframe(spark, random_changes(seed, histories, fields, ends=(False, True)), fields)
    call: Any = {"entity": "thing", "keys": ["h", "k"]}
    names = [*fields, "valid_from_timestamp", "valid_to_timestamp"]
    made = (
        scd_type_2(merge(drawn, **call), valid_to_current=valid_to_current).select(*names).localCheckpoint()
    )
    said = changes_from(
        made, keys=["h", "k"], valid_from="valid_from_timestamp", valid_to="valid_to_timestamp"
    )
    again = scd_type_2(merge(said, **call), valid_to_current=valid_to_current).select(*names)
    return [sorted(map(repr, map(plain, table.toArrow().to_pylist()))) for table in (made, again)]
