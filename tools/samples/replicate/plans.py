"""What is decided about a day's flights before any source tells: cancellations, first tail numbers."""

from collections.abc import Sequence
from datetime import date
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tools.samples.replicate.changes import NEVER, load_instant, whole
from tools.samples.replicate.flights import Flights, Micros
from tools.samples.replicate.seeds import between, text_seeds, uniform
from tools.samples.replicate.tables import MINUTE

Bools = npt.NDArray[np.bool_]


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
    cancelled = ~flights.departed
    alone = cancelled & (uniform(flights.seeds, "cancelled alone") < 0.3)
    banks = _banks(day, flights, cancelled & ~alone)
    cancelled_at = np.where(cancelled, _cancelled_at(day, flights, alone, banks), NEVER)
    planned = _planned_tails(flights)
    tail_changed_at = _tail_changed_at(day, flights, planned)
    told = tail_changed_at < cancelled_at
    return Plans(cancelled_at, banks, alone, planned, np.where(told, tail_changed_at, NEVER))


def _banks(day: date, flights: Flights, together: Bools) -> list[str]:
    """Name the bank of each flight that is cancelled with others: a carrier, an origin, three hours."""
    keys = zip(flights.column("carrier"), flights.column("origin"), flights.column("hour"), strict=True)
    names = (f"{day} {carrier} {origin} {hour // 3}" for carrier, origin, hour in keys)
    return [name if banked else "" for name, banked in zip(names, together.tolist(), strict=True)]


def _cancelled_at(day: date, flights: Flights, alone: Bools, banks: Sequence[str]) -> Micros:
    """
    Return when each flight would be cancelled.

    A bank is cancelled at one instant, half an hour to four hours before its first flight; a flight on its
    own five to 75 minutes after it should have left.
    """
    first: dict[str, int] = {}
    for bank, departure in zip(banks, flights.scheduled_departure.tolist(), strict=True):
        first[bank] = min(departure, first.get(bank, departure))
    starts = np.array([first[bank] for bank in banks], dtype=np.int64)
    by_bank = starts - whole(between(text_seeds(banks), "notice", 30 * MINUTE, 240 * MINUTE))
    late = whole(between(flights.seeds, "cancelled late", 5 * MINUTE, 75 * MINUTE))
    at = np.where(alone, flights.scheduled_departure + late, by_bank)
    return np.maximum(at, load_instant(day) + 10 * MINUTE)


def _planned_tails(flights: Flights) -> list[str | None]:
    """Plan one flight in eight with the plane of another of its carrier that day, one in 25 with none."""
    real: list[str | None] = flights.column("tailnum")
    carriers: list[str] = flights.column("carrier")
    fleets: dict[str, list[str]] = {}
    for carrier, tail in zip(carriers, real, strict=True):
        if tail is not None:
            fleets.setdefault(carrier, []).append(tail)
    fates = uniform(flights.seeds, "planned tail").tolist()
    picks = uniform(flights.seeds, "which tail").tolist()
    return [
        _planned_tail(tail, fleets.get(carrier, []), fate, pick)
        for tail, carrier, fate, pick in zip(real, carriers, fates, picks, strict=True)
    ]


def _planned_tail(real: str | None, fleet: Sequence[str], fate: float, pick: float) -> str | None:
    if real is None or fate < 0.04:
        return None
    return fleet[int(pick * len(fleet))] if fate < 0.165 else real


def _tail_changed_at(day: date, flights: Flights, planned: Sequence[str | None]) -> Micros:
    notice = whole(between(flights.seeds, "tail notice", 30 * MINUTE, 240 * MINUTE))
    at = np.maximum(flights.scheduled_departure - notice, load_instant(day) + 5 * MINUTE)
    differs = np.array([p != r for p, r in zip(planned, flights.column("tailnum"), strict=True)], dtype=bool)
    return np.where(differs, at, NEVER)
