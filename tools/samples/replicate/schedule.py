"""What the schedule says of a day's flights: loaded, given another plane, struck."""

from collections.abc import Iterator
from datetime import date

import numpy as np

from tools.samples.replicate.changes import NEVER, Change, Row, as_rows, flight_keys, load_instant, whole
from tools.samples.replicate.flights import Flights, Micros
from tools.samples.replicate.plans import Plans
from tools.samples.replicate.seeds import between, text_seeds
from tools.samples.replicate.tables import MINUTE, SCHEDULE_FLIGHTS, SECOND


def schedule_changes(day: date, flights: Flights, plans: Plans) -> Iterator[Change]:
    """Give the changes of SCHED.FLIGHTS; an update and a delete carry the full row."""
    loaded = load_instant(day) + whole(between(flights.seeds, "load", 0, 30 * SECOND))
    everything = zip(
        _first_rows(flights, plans),
        flights.seeds.tolist(),
        loaded.tolist(),
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
            yield Change(
                struck_at, SCHEDULE_FLIGHTS, "DELETE", row, None, SCHEDULE_FLIGHTS.keys, seed, 2, bank
            )


def _first_rows(flights: Flights, plans: Plans) -> list[Row]:
    departure = flights.scheduled_departure.tolist()
    block = (flights.scheduled_arrival - flights.scheduled_departure) // MINUTE
    return as_rows(
        flight_keys(flights)
        | {
            "dest": flights.column("dest"),
            "tailnum": list(plans.planned_tail),
            "scheduled_departure": departure,
            "scheduled_arrival": flights.scheduled_arrival.tolist(),
            "expected_departure": departure,
            "status": ["scheduled"] * len(departure),
            "distance": flights.column("distance"),
            "block_minutes": block.tolist(),
        }
    )


def _struck_at(flights: Flights, plans: Plans) -> Micros:
    """Return when a cancelled flight leaves the schedule, one to ten minutes later; a bank at one instant."""
    alone = whole(between(flights.seeds, "struck", MINUTE, 10 * MINUTE))
    together = whole(between(text_seeds(plans.bank), "struck", MINUTE, 10 * MINUTE))
    wait = np.where(plans.cancelled_alone, alone, together)
    cancelled = plans.cancelled_at != NEVER
    return np.where(cancelled, np.where(cancelled, plans.cancelled_at, 0) + wait, NEVER)
