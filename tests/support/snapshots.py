"""Lists of products, night by night."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame

DAY = [datetime(2024, 1, day, tzinfo=UTC) for day in range(1, 10)]


def products(*rows: tuple[int, str | None]) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=["id", "name"]).astype({"id": "int64", "name": "string"})


def said(changes: DataFrame) -> list[tuple[Any, ...]]:
    """The key, the day of January 2024, the operation, the name."""
    rows = changes.orderBy("data.id", "effective_timestamp").toArrow().to_pylist()
    return [
        (row["data"]["id"], row["effective_timestamp"].day, row["operation"], row["data"].get("name"))
        for row in rows
    ]


LISTS = {
    DAY[0]: products((1, "kettle"), (2, "mug"), (3, "jug")),
    DAY[1]: products((1, "kettle"), (3, None)),
    DAY[2]: products((3, None)),
    DAY[3]: products((1, "kettle"), (2, "cup"), (3, "jug")),
}
NEW = [
    *((1, 1, "upsert", "kettle"), (1, 3, "absent", None), (1, 4, "upsert", "kettle")),
    *((2, 1, "upsert", "mug"), (2, 2, "absent", None), (2, 4, "upsert", "cup")),
    *((3, 1, "upsert", "jug"), (3, 2, "upsert", None), (3, 4, "upsert", "jug")),
]


def one_table(lists: Mapping[datetime, pd.DataFrame]) -> pd.DataFrame:
    return pd.concat([frame.assign(day=at) for at, frame in lists.items()])
