"""Tables of prices that say until when, and the versions of a history."""

from __future__ import annotations

from typing import Any

import pandas as pd

from cdckit import merge

PERIOD: Any = {"valid_from": "since", "valid_to": "until"}


def prices(*rows: tuple[Any, ...]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["id", "price", "since", "until"])


def versions(changes: Any) -> list[tuple[Any, ...]]:
    history = merge(changes, entity="room", keys=["id"]).orderBy("id", "valid_from_timestamp")
    shown = history.selectExpr(
        "id", "price", "date_format(valid_from_timestamp, 'd')", "date_format(valid_to_timestamp, 'd')"
    )
    return [tuple(row) for row in shown.collect()]
