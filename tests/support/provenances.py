"""What provenance means, read naively from the rows of the fold: for `cdckit.query.provenance`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame

from support.fold import Row, same_value


def rows_of(answer: DataFrame) -> list[Row]:
    """The rows of an answer, in an order that two equal answers share."""
    rows: list[Row] = answer.toArrow().to_pylist()
    return sorted(rows, key=text)


def text(row: Row) -> str:
    """A row as text to sort by: instants of any zone that is UTC look the same."""
    return str([part.isoformat() if isinstance(part, datetime) else part for part in row.values()])


def in_force(versions: Sequence[Row], instant: datetime | None) -> list[Row]:
    """The versions in force at the instant, the current ones without one; deleted ones too."""
    if instant is None:
        return [row for row in versions if row["valid_to_timestamp"] is None]
    return [
        row
        for row in versions
        if row["valid_from_timestamp"] <= instant
        and (row["valid_to_timestamp"] is None or instant < row["valid_to_timestamp"])
    ]


def told(row: Row, fields: Iterable[str]) -> dict[str, Row]:
    """What a version says of the row itself and of each field: value, message, priority."""
    said = {}
    for name in ("deleted_indicator", *fields):
        message, priority = entry(row, name) or (None, None)
        said[name] = {
            "guid": row["guid"],
            "field": name,
            "value": as_text(row[name]),
            "message": message,
            "priority": priority,
        }
    return said


def is_run(before: Row, after: Row, name: str) -> bool:
    """Whether the later version says the same of the field, from the same message, without a break."""
    return (
        before["valid_to_timestamp"] == after["valid_from_timestamp"]
        and same_value(before[name], after[name])
        and entry(before, name) == entry(after, name)
    )


def entry(row: Row, name: str) -> tuple[str, int] | None:
    found = row["field_provenance"]["guid" if name == "deleted_indicator" else name]
    return None if found is None else (found["m"], found["p"])


def as_text(value: Any) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value != value:
        return "NaN"
    return None if value is None else str(value)
