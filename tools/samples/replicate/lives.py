"""
What happens, and when: every change of a day.

Departure, arrival, delays, the final tail number, cancellation and weather are real. The instants at which
the sources came to know of them, the first tail numbers and the estimates are made up: `README.md` beside the
sample lists every one.
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from tools.samples.replicate.changes import NEVER, Bools, Change, Plans, Row, as_rows, load_instant, plan
from tools.samples.replicate.flights import Flights, Micros, airlines, optional, planes, weather_at_departure
from tools.samples.replicate.seeds import between, text_seed, text_seeds, uniform
from tools.samples.replicate.tables import (
    AIRLINES,
    AIRLINES_JSON,
    HOUR,
    MINUTE,
    OPERATIONS_FLIGHTS,
    PLANES,
    SCHEDULE_FLIGHTS,
    SECOND,
    Table,
    micros,
)

# In truth American Eagle became Envoy in 2014, which the stream does not reach.
FORMER_NAMES = {"MQ": "American Eagle Airlines Inc."}
RENAMED_AT = micros(datetime(2013, 2, 8, 12, tzinfo=UTC))
FIRST_REFIT = micros(datetime(2013, 1, 1, 7, 30, tzinfo=UTC))


def changes_of_day(day: date, flights: Flights, *, first: bool) -> list[Change]:
    """
    Return every change that belongs to *day*, in no order; some come true only on the days after it.

    On the *first* day of a stream planes and airlines are loaded.
    """
    plans = plan(day, flights)
    return [
        *_planes(day, first=first),
        *_airlines(day, first=first),
        *_schedule(day, flights, plans),
        *_with_changed(_operations(day, flights, plans)),
    ]


# Planes and airlines ------------------------------------------------------------------------------------


def _planes(day: date, *, first: bool) -> Iterator[Change]:
    """Give the full load, and the day's refits, made up: all in one transaction at 07:30 UTC."""
    load = load_instant(day)
    for row, seed, wait, refit_at, lost in _fleet():
        before = {"seats": row["seats"] + lost}
        if first:
            loaded = row | before if load < refit_at else row
            yield Change(load + wait, PLANES, "REFRESH", loaded, None, (), seed, 0)
        if refit_at == load + 150 * MINUTE:
            yield Change(refit_at, PLANES, "UPDATE", row, before, ("seats",), seed, 1, f"refit {day}")


@cache
def _fleet() -> list[tuple[Row, int, int, int, int]]:
    """Return each plane, its seed, when it is loaded, and when it loses how many seats: three in ten do."""
    columns = {column.name: optional(planes[column.name]) for column in PLANES.columns}
    columns["speed"] = [None if v is None else float(v) for v in columns["speed"]]
    seeds = text_seeds(planes["tailnum"])
    refit_at = FIRST_REFIT + between(seeds, "refit day", 0, 365) * 24 * HOUR
    drawn = (
        seeds,
        between(seeds, "load", 0, 40 * SECOND),
        np.where(uniform(seeds, "refit") < 0.3, refit_at, 0),
        2 + 2 * between(seeds, "refit seats", 0, 4),
    )
    return list(zip(as_rows(columns), *(each.tolist() for each in drawn), strict=True))


def _airlines(day: date, *, first: bool) -> Iterator[Change]:
    """Give the full load, and the change of a name, if it falls on *day*."""
    load, next_load = load_instant(day), load_instant(day + timedelta(days=1))
    rows = as_rows({column.name: optional(airlines[column.name]) for column in AIRLINES.columns})
    for (i, row), table in ((each, table) for each in enumerate(rows) for table in (AIRLINES, AIRLINES_JSON)):
        seed = text_seed(f"{table.topic} {row['carrier']}")
        former = {"name": FORMER_NAMES.get(row["carrier"], row["name"])}
        if first:
            loaded = row | former if load < RENAMED_AT else row
            yield Change(load + i * 1000, table, "REFRESH", loaded, None, (), seed, 0)
        if load <= RENAMED_AT < next_load and row["carrier"] in FORMER_NAMES:
            yield Change(RENAMED_AT, table, "UPDATE", row, former, ("name",), seed, 1)


# The schedule -------------------------------------------------------------------------------------------


def _schedule(day: date, flights: Flights, plans: Plans) -> Iterator[Change]:
    """Give the changes of SCHED.FLIGHTS: loaded, given another plane, struck; each carries the full row."""
    block = (flights.scheduled_arrival - flights.scheduled_departure) // MINUTE
    rows = _first_rows(
        flights,
        SCHEDULE_FLIGHTS,
        tailnum=plans.planned_tail,
        scheduled_arrival=flights.scheduled_arrival.tolist(),
        status=["scheduled"] * len(block),
        block_minutes=block.tolist(),
    )
    everything = zip(
        rows,
        flights.seeds.tolist(),
        (load_instant(day) + between(flights.seeds, "load", 0, 30 * SECOND)).tolist(),
        flights.column("tailnum"),
        plans.tail_changed_at.tolist(),
        _struck_at(flights, plans).tolist(),
        plans.bank,
        strict=True,
    )
    for row, seed, load_at, tail, tail_at, struck_at, bank in everything:
        yield Change(load_at, SCHEDULE_FLIGHTS, "REFRESH", row, None, (), seed, 0)
        if tail_at != NEVER:
            before = {"tailnum": row["tailnum"]}
            row = row | {"tailnum": tail}
            yield Change(tail_at, SCHEDULE_FLIGHTS, "UPDATE", row, before, ("tailnum",), seed, 1)
        if struck_at != NEVER:
            key = SCHEDULE_FLIGHTS.keys
            yield Change(struck_at, SCHEDULE_FLIGHTS, "DELETE", row, None, key, seed, 2, bank)


def _first_rows(flights: Flights, table: Table, **columns: list[Any]) -> list[Row]:
    """Return a row for each flight: what both tables begin with, and *columns*; of the others nothing yet."""
    departure = flights.scheduled_departure.tolist()
    nothing: list[Any] = [None] * len(departure)
    return as_rows(
        dict.fromkeys((column.name for column in table.columns), nothing)
        | flights.keys
        | {name: flights.column(name) for name in ("dest", "distance")}
        | {"scheduled_departure": departure, "expected_departure": departure}
        | columns
    )


def _struck_at(flights: Flights, plans: Plans) -> Micros:
    """Return when a cancelled flight leaves the schedule, one to ten minutes later; a bank at one instant."""
    alone, together = (
        between(seeds, "struck", MINUTE, 10 * MINUTE) for seeds in (flights.seeds, text_seeds(plans.bank))
    )
    cancelled = plans.cancelled_at != NEVER
    at = np.where(cancelled, plans.cancelled_at, 0) + np.where(plans.cancelled_alone, alone, together)
    return np.where(cancelled, at, NEVER)


# The operations -----------------------------------------------------------------------------------------

INSERTED, DEPARTED, ARRIVED, CANCELLED, PURGED = 0, 6, 7, 8, 9


class Update(NamedTuple):
    """One step in the life of some flights: which, when, and the columns that are sent beside the key."""

    step: int
    which: Bools
    at: Micros
    columns: dict[str, list[Any]]


def _operations(day: date, flights: Flights, plans: Plans) -> Iterator[Change]:
    """
    Give the changes of OPS.FLIGHTS; an update carries the key and some columns, most of them changed.

    A flight appears about three hours ahead, and never if it is cancelled before or within ten minutes of
    that.
    """
    table, seeds, size = OPERATIONS_FLIGHTS, flights.seeds.tolist(), len(flights.seeds)
    ahead = between(flights.seeds, "ahead", 150 * MINUTE, 210 * MINUTE)
    inserted_at = np.maximum(flights.scheduled_departure - ahead, load_instant(day) + 5 * MINUTE)
    known = plans.cancelled_at > inserted_at + 10 * MINUTE
    changed = (plans.tail_changed_at <= inserted_at).tolist()
    tails = zip(flights.column("tailnum"), plans.planned_tail, changed, strict=True)
    rows = _first_rows(
        flights,
        table,
        tailnum=[real if is_changed else planned for real, planned, is_changed in tails],
        expected_arrival=flights.scheduled_arrival.tolist(),
        status=["on time"] * size,
        diverted=[False] * size,
    )
    for i in np.flatnonzero(known).tolist():
        yield Change(int(inserted_at[i]), table, "INSERT", rows[i], None, tuple(rows[i]), seeds[i], INSERTED)
    nothing: dict[str, list[Any]] = dict.fromkeys(("expected_departure", "expected_arrival"), [None] * size)
    columns = nothing | {"status": ["cancelled"] * size}
    cancellation = Update(CANCELLED, known & ~flights.departed, plans.cancelled_at, columns)
    for update in (
        *_estimates(flights, known),
        *_hopes(flights, plans, known),
        *_movements(flights),
        cancellation,
    ):
        for i, row in _sent(flights, update):
            bank = plans.bank[i] if update.step == CANCELLED else ""
            yield Change(int(update.at[i]), table, "UPDATE", row, None, (), seeds[i], update.step, bank)
    # The row of a cancelled flight is removed about two hours after it should have left.
    last = np.maximum(np.where(cancellation.which, cancellation.at, 0), flights.scheduled_departure)
    purged_at = last + between(flights.seeds, "purged", 90 * MINUTE, 150 * MINUTE)
    for i, sent in _sent(flights, cancellation):
        row, at = rows[i] | sent, int(purged_at[i])
        yield Change(at, table, "DELETE", row, None, table.keys, seeds[i], PURGED, row_is_before=True)


def _with_changed(changes: Iterator[Change]) -> Iterator[Change]:
    """Name in each update the columns that differ from what was last known of its flight."""
    known: dict[int, Row] = {}
    for change in sorted(changes, key=lambda c: (c.seed, c.at, c.step)):
        if change.operation == "INSERT":
            known[change.seed] = dict(change.row)
        elif change.operation == "UPDATE":
            old = known[change.seed]
            changed = tuple(name for name, value in change.row.items() if value != old[name])
            old.update(change.row)
            change = change._replace(changed=changed)
        yield change


def _sent(flights: Flights, update: Update) -> Iterator[tuple[int, Row]]:
    columns = flights.keys | update.columns
    for i in np.flatnonzero(update.which).tolist():
        yield i, {name: values[i] for name, values in columns.items()}


def _estimates(flights: Flights, known: Bools) -> Iterator[Update]:
    """Announce a delay of 15 minutes and more bit by bit, in whole five minutes, up to the real one."""
    delay = (flights.actual_departure - flights.scheduled_departure) // MINUTE
    late = known & flights.departed & (delay >= 15)
    jitter = between(flights.seeds, "estimate", -4 * MINUTE, 4 * MINUTE)
    # (minutes after the scheduled departure, per cent of the real delay, smallest delay in minutes)
    stages: list[tuple[Any, int, int]] = [(-60, 40, 15), (-20, 70, 15), (15, 90, 45)]
    stages += [(delay // 2, 95, 180), (delay - 10, 100, 30)]
    previous = np.zeros_like(delay)
    for step, (after, share, least) in enumerate(stages, start=INSERTED + 1):
        estimate = delay * share // 100 // 5 * 5
        which = late & (delay >= least) & (estimate > previous)
        at = flights.scheduled_departure + after * MINUTE + jitter
        yield Update(step, which, at, _delay(flights, estimate))
        previous = np.where(which, estimate, previous)


def _hopes(flights: Flights, plans: Plans, known: Bools) -> Iterator[Update]:
    """Announce delays, made up, of the flights that are cancelled only after they should have left."""
    which = known & plans.cancelled_alone
    for step, (after, low, high) in enumerate(((-25, 30, 60), (2, 60, 120)), start=INSERTED + 1):
        minutes = between(flights.seeds, f"hope {step}", low, high) // 5 * 5
        at = flights.scheduled_departure + after * MINUTE
        yield Update(step, which & (at < plans.cancelled_at), at, _delay(flights, minutes))


def _delay(flights: Flights, minutes: Micros) -> dict[str, list[Any]]:
    return {
        "expected_departure": (flights.scheduled_departure + minutes * MINUTE).tolist(),
        "expected_arrival": (flights.scheduled_arrival + minutes * MINUTE).tolist(),
        "status": ["delayed"] * len(minutes),
    }


def _movements(flights: Flights) -> Iterator[Update]:
    """Tell of departures, arrivals and detours; of a flight that never arrived when it is overdue."""
    size, seeds = len(flights.seeds), flights.seeds
    late = flights.actual_departure - flights.scheduled_departure
    departure, arrival = flights.actual_departure.tolist(), flights.actual_arrival.tolist()
    visibility, temperature = weather_at_departure(flights)
    departed = {
        "tailnum": flights.column("tailnum"),
        "expected_departure": departure,
        "actual_departure": departure,
        "departure_delay": (late // MINUTE).tolist(),
        "expected_arrival": (flights.scheduled_arrival + late).tolist(),
        "status": ["departed"] * size,
        "visibility": visibility,
        "temperature": temperature,
    }
    landed = {"expected_arrival": arrival, "actual_arrival": arrival}
    arrived = {
        "arrival_delay": flights.column("arr_delay"),
        "status": ["arrived"] * size,
        "air_time": flights.column("air_time"),
    }
    diverted: dict[str, list[Any]] = {"status": ["diverted"] * size, "diverted": [True] * size}
    overdue: dict[str, list[Any]] = {"expected_arrival": [None] * size}
    at = flights.actual_departure + between(seeds, "departure told", 5 * SECOND, 95 * SECOND)
    yield Update(DEPARTED, flights.departed, at, departed)
    at = flights.actual_arrival + between(seeds, "arrival told", 5 * SECOND, 95 * SECOND)
    yield Update(ARRIVED, flights.arrival_known, at, landed | arrived)
    yield Update(ARRIVED, flights.landed & ~flights.arrival_known, at, landed | diverted)
    at = flights.scheduled_arrival + late + between(seeds, "overdue", 10 * MINUTE, HOUR)
    yield Update(ARRIVED, flights.departed & ~flights.landed, at, overdue | diverted)
