"""What operations say of a day's flights: known, delayed, departed, arrived, given up."""

from collections.abc import Iterable, Iterator
from datetime import date
from typing import Any, NamedTuple

import numpy as np

from tools.samples.replicate.changes import Change, Row, as_rows, flight_keys, load_instant, whole
from tools.samples.replicate.flights import Flights, Micros, weather_at_departure
from tools.samples.replicate.plans import Bools, Plans
from tools.samples.replicate.seeds import between
from tools.samples.replicate.tables import HOUR, MINUTE, OPERATIONS_FLIGHTS, SECOND

INSERTED, DEPARTED, ARRIVED, CANCELLED, PURGED = 0, 6, 7, 8, 9


class Update(NamedTuple):
    """One step in the life of some flights: which, when, and the columns that are sent beside the key."""

    step: int
    which: Bools
    at: Micros
    columns: dict[str, list[Any]]


def operations_changes(day: date, flights: Flights, plans: Plans) -> Iterator[Change]:
    """
    Give the changes of OPS.FLIGHTS; an update carries the key and some columns, most of them changed.

    A flight appears about three hours ahead, and never if it is cancelled before or within ten minutes of
    that.
    """
    return _with_changed(_lives(day, flights, plans))


def _lives(day: date, flights: Flights, plans: Plans) -> Iterator[Change]:
    ahead = whole(between(flights.seeds, "ahead", 150 * MINUTE, 210 * MINUTE))
    inserted_at = np.maximum(flights.scheduled_departure - ahead, load_instant(day) + 5 * MINUTE)
    known = plans.cancelled_at > inserted_at + 10 * MINUTE
    rows = _first_rows(flights, _tails_at(flights, plans, inserted_at))
    seeds = flights.seeds.tolist()
    for i in np.flatnonzero(known).tolist():
        row = rows[i]
        at = int(inserted_at[i])
        yield Change(at, OPERATIONS_FLIGHTS, "INSERT", row, None, tuple(row), seeds[i], INSERTED)
    cancellation = _cancellation(flights, plans, known)
    keys = flight_keys(flights)
    for update in (
        *_estimates(flights, known),
        *_hopes(flights, plans, known),
        _departures(flights),
        *_arrivals(flights),
        cancellation,
    ):
        for i, row in _sent(keys, update):
            bank = plans.bank[i] if update.step == CANCELLED else ""
            at = int(update.at[i])
            yield Change(at, OPERATIONS_FLIGHTS, "UPDATE", row, None, (), seeds[i], update.step, bank)
    purged_at = _purged_at(flights, cancellation)
    for i, sent in _sent(keys, cancellation):
        last = rows[i] | sent
        key = OPERATIONS_FLIGHTS.keys
        at = int(purged_at[i])
        yield Change(at, OPERATIONS_FLIGHTS, "DELETE", last, None, key, seeds[i], PURGED, row_is_before=True)


def _with_changed(changes: Iterable[Change]) -> Iterator[Change]:
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


def _sent(keys: dict[str, list[Any]], update: Update) -> Iterator[tuple[int, Row]]:
    columns = keys | update.columns
    for i in np.flatnonzero(update.which).tolist():
        yield i, {name: values[i] for name, values in columns.items()}


def _tails_at(flights: Flights, plans: Plans, at: Micros) -> list[str | None]:
    changed = (plans.tail_changed_at <= at).tolist()
    tails = zip(flights.column("tailnum"), plans.planned_tail, changed, strict=True)
    return [real if is_changed else planned for real, planned, is_changed in tails]


def _first_rows(flights: Flights, tails: list[str | None]) -> list[Row]:
    nothing = [None] * len(tails)
    departure = flights.scheduled_departure.tolist()
    return as_rows(
        flight_keys(flights)
        | {
            "dest": flights.column("dest"),
            "tailnum": tails,
            "scheduled_departure": departure,
            "expected_departure": departure,
            "actual_departure": nothing,
            "departure_delay": nothing,
            "expected_arrival": flights.scheduled_arrival.tolist(),
            "actual_arrival": nothing,
            "arrival_delay": nothing,
            "status": ["on time"] * len(tails),
            "diverted": [False] * len(tails),
            "distance": flights.column("distance"),
            "visibility": nothing,
            "temperature": nothing,
            "air_time": nothing,
        }
    )


def _estimates(flights: Flights, known: Bools) -> Iterator[Update]:
    """Announce a delay of 15 minutes and more bit by bit, in whole five minutes, up to the real one."""
    delay = (flights.actual_departure - flights.scheduled_departure) // MINUTE
    late = known & flights.departed & (delay >= 15)
    jitter = whole(between(flights.seeds, "estimate", -4 * MINUTE, 4 * MINUTE))
    # (minutes after the scheduled departure, per cent of the real delay, smallest delay in minutes)
    stages = (
        (np.full_like(delay, -60), 40, 15),
        (np.full_like(delay, -20), 70, 15),
        (np.full_like(delay, 15), 90, 45),
        (delay // 2, 95, 180),
        (delay - 10, 100, 30),
    )
    previous = np.zeros_like(delay)
    for step, (after, share, least) in enumerate(stages, start=INSERTED + 1):
        estimate = delay * share // 100 // 5 * 5
        which = late & (delay >= least) & (estimate > previous)
        yield Update(
            step, which, flights.scheduled_departure + after * MINUTE + jitter, _delay(flights, estimate)
        )
        previous = np.where(which, estimate, previous)


def _hopes(flights: Flights, plans: Plans, known: Bools) -> Iterator[Update]:
    """Announce delays, made up, of the flights that are cancelled only after they should have left."""
    which = known & plans.cancelled_alone
    for step, (after, low, high) in enumerate(((-25, 30, 60), (2, 60, 120)), start=INSERTED + 1):
        minutes = whole(between(flights.seeds, f"hope {step}", low, high)) // 5 * 5
        at = flights.scheduled_departure + after * MINUTE
        yield Update(step, which & (at < plans.cancelled_at), at, _delay(flights, minutes))


def _delay(flights: Flights, minutes: Micros) -> dict[str, list[Any]]:
    return {
        "expected_departure": (flights.scheduled_departure + minutes * MINUTE).tolist(),
        "expected_arrival": (flights.scheduled_arrival + minutes * MINUTE).tolist(),
        "status": ["delayed"] * len(minutes),
    }


def _departures(flights: Flights) -> Update:
    visibility, temperature = weather_at_departure(flights)
    late = flights.actual_departure - flights.scheduled_departure
    columns = {
        "tailnum": flights.column("tailnum"),
        "expected_departure": flights.actual_departure.tolist(),
        "actual_departure": flights.actual_departure.tolist(),
        "departure_delay": (late // MINUTE).tolist(),
        "expected_arrival": (flights.scheduled_arrival + late).tolist(),
        "status": ["departed"] * len(late),
        "visibility": visibility,
        "temperature": temperature,
    }
    at = flights.actual_departure + whole(between(flights.seeds, "departure told", 5 * SECOND, 95 * SECOND))
    return Update(DEPARTED, flights.departed, at, columns)


def _arrivals(flights: Flights) -> Iterator[Update]:
    """Tell of arrivals and detours; of a flight that never reached its destination when it is overdue."""
    size = len(flights.table)
    arrival: list[int] = flights.actual_arrival.tolist()
    at = flights.actual_arrival + whole(between(flights.seeds, "arrival told", 5 * SECOND, 95 * SECOND))
    arrived = {
        "expected_arrival": arrival,
        "actual_arrival": arrival,
        "arrival_delay": flights.column("arr_delay"),
        "status": ["arrived"] * size,
        "air_time": flights.column("air_time"),
    }
    yield Update(ARRIVED, flights.arrival_known, at, arrived)
    diverted: dict[str, list[Any]] = {"status": ["diverted"] * size, "diverted": [True] * size}
    landed = {"expected_arrival": arrival, "actual_arrival": arrival} | diverted
    yield Update(ARRIVED, flights.landed & ~flights.arrival_known, at, landed)
    late = flights.actual_departure - flights.scheduled_departure
    overdue_at = (
        flights.scheduled_arrival + late + whole(between(flights.seeds, "overdue", 10 * MINUTE, HOUR))
    )
    overdue = {"expected_arrival": [None] * size} | diverted
    yield Update(ARRIVED, flights.departed & ~flights.landed, overdue_at, overdue)


def _cancellation(flights: Flights, plans: Plans, known: Bools) -> Update:
    size = len(flights.table)
    nothing: list[Any] = [None] * size
    columns = {"expected_departure": nothing, "expected_arrival": nothing, "status": ["cancelled"] * size}
    return Update(CANCELLED, known & ~flights.departed, plans.cancelled_at, columns)


def _purged_at(flights: Flights, cancellation: Update) -> Micros:
    """Return when the row of a cancelled flight is removed, about two hours after it should have left."""
    last = np.maximum(np.where(cancellation.which, cancellation.at, 0), flights.scheduled_departure)
    return last + whole(between(flights.seeds, "purged", 90 * MINUTE, 150 * MINUTE))
