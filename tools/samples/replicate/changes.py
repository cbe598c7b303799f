"""One change of one row as its source makes it, and when a day of changes begins."""

from datetime import UTC, date, datetime
from typing import Any, NamedTuple

import numpy as np

from tools.samples.replicate.flights import Flights, Micros
from tools.samples.replicate.tables import Table, micros

Row = dict[str, Any]

NEVER: int = np.iinfo(np.int64).max


class Change(NamedTuple):
    """
    One change of one row, as the source made it.

    `row` holds the columns that the source sends, `before` the old values of those that changed (None: the
    source keeps no before image). `changed` names the columns whose values changed. `seed` and `step` tell
    changes apart: the same change has the same two in every stream. Changes that share a `transaction` were
    committed together. `row_is_before` says that the message carries the row as its before image alone.
    """

    at: int
    table: Table
    operation: str
    row: Row
    before: Row | None
    changed: tuple[str, ...]
    seed: int
    step: int
    transaction: str = ""
    row_is_before: bool = False


def load_instant(day: date) -> int:
    """Return the instant at which *day* is loaded: 05:00 UTC, midnight in New York in winter."""
    return micros(datetime(day.year, day.month, day.day, 5, tzinfo=UTC))


def as_rows(columns: dict[str, list[Any]]) -> list[Row]:
    """Return the rows of equally long columns."""
    names = tuple(columns)
    return [dict(zip(names, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def flight_keys(flights: Flights) -> dict[str, list[Any]]:
    """Return the key columns that both tables of flights share; a date is days since 1970, as in Avro."""
    days = flights.table["flight_date"].to_numpy().astype("datetime64[D]").astype(np.int64)
    names = ("carrier", "flight", "origin")
    return {"flight_date": days.tolist()} | {name: flights.column(name) for name in names}


def whole(values: "np.ndarray[Any, np.dtype[np.float64]]") -> Micros:
    """Return the whole part of each value."""
    return values.astype(np.int64)
