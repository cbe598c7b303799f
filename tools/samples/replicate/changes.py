"""One change of one row as its source makes it, and what is decided of a day's flights before any tells."""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tools.samples.replicate.flights import Flights, Micros
from tools.samples.replicate.seeds import between, text_seeds, uniform
from tools.samples.replicate.tables import MINUTE, Table, micros

Row = dict[str, Any]
Bools = npt.NDArray[np.bool_]

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
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


class Plans(NamedTuple):
    """
    What was decided, one entry per flight.

    `cancelled_at` is NEVER for a flight that left. `bank` names the cancellations that were decided together;
    it is empty for a flight that left or was cancelled alone. `planned_tail` is the tail number in the first
    schedule and `tail_changed_at` the instant at which the real one replaces it, NEVER if it never does.
    """

    cancelled_at: Micros
    bank: list[str]
    cancelled_alone: Bools
    planned_tail: list[str | None]
    tail_changed_at: Micros


def plan(day: date, flights: Flights) -> Plans:
    """Decide what becomes of the flights of *day*."""
    load, seeds = load_instant(day), flights.seeds
    cancelled = ~flights.departed
    alone = cancelled & (uniform(seeds, "cancelled alone") < 0.3)
    banks = _banks(day, flights, cancelled & ~alone)
    late = flights.scheduled_departure + between(seeds, "cancelled late", 5 * MINUTE, 75 * MINUTE)
    at = np.maximum(np.where(alone, late, _together_at(flights, banks)), load + 10 * MINUTE)
    cancelled_at = np.where(cancelled, at, NEVER)
    planned = _planned_tails(flights)
    notice = between(seeds, "tail notice", 30 * MINUTE, 240 * MINUTE)
    changed_at = np.maximum(flights.scheduled_departure - notice, load + 5 * MINUTE)
    differs = np.array([p != r for p, r in zip(planned, flights.column("tailnum"), strict=True)], dtype=bool)
    told = differs & (changed_at < cancelled_at)
    return Plans(cancelled_at, banks, alone, planned, np.where(told, changed_at, NEVER))


def _banks(day: date, flights: Flights, together: Bools) -> list[str]:
    """Name the bank of each flight that is cancelled with others: a carrier, an origin, three hours."""
    keys = zip(flights.column("carrier"), flights.column("origin"), flights.column("hour"), strict=True)
    names = (f"{day} {carrier} {origin} {hour // 3}" for carrier, origin, hour in keys)
    return [name if banked else "" for name, banked in zip(names, together.tolist(), strict=True)]


def _together_at(flights: Flights, banks: Sequence[str]) -> Micros:
    """Return when each bank is cancelled: half an hour to four hours before its first flight."""
    first: dict[str, int] = {}
    for bank, departure in zip(banks, flights.scheduled_departure.tolist(), strict=True):
        first[bank] = min(departure, first.get(bank, departure))
    starts = np.array([first[bank] for bank in banks], dtype=np.int64)
    return starts - between(text_seeds(banks), "notice", 30 * MINUTE, 240 * MINUTE)


def _planned_tails(flights: Flights) -> list[str | None]:
    """Plan one flight in eight with the plane of another of its carrier that day, one in 25 with none."""
    real: list[str | None] = flights.column("tailnum")
    carriers: list[str] = flights.column("carrier")
    fleets: dict[str, list[str]] = {carrier: [] for carrier in carriers}
    for carrier, tail in zip(carriers, real, strict=True):
        if tail is not None:
            fleets[carrier].append(tail)
    planned = list(real)
    fates = zip(uniform(flights.seeds, "planned tail"), uniform(flights.seeds, "which tail"), strict=True)
    for i, (fate, pick) in enumerate(fates):
        if fate < 0.04:
            planned[i] = None
        elif fate < 0.165 and real[i] is not None:
            planned[i] = fleets[carriers[i]][int(pick * len(fleets[carriers[i]]))]
    return planned
