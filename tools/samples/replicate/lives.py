"""
What happens, and when: every change of a day.

Departure, arrival, delays, the final tail number, cancellation and weather are real. The instants at which
the sources came to know of them, the first tail numbers and the estimates are made up: `README.md` beside the
sample lists every one.
"""

from datetime import date

from tools.samples.replicate.changes import Change
from tools.samples.replicate.fleet import load_of_fleet, refits, renames
from tools.samples.replicate.flights import Flights
from tools.samples.replicate.operations import operations_changes
from tools.samples.replicate.plans import plan
from tools.samples.replicate.schedule import schedule_changes


def changes_of_day(day: date, flights: Flights, *, first: bool) -> list[Change]:
    """
    Return every change that belongs to *day*, in no order; some come true only on the days after it.

    On the *first* day of a stream planes and airlines are loaded.
    """
    plans = plan(day, flights)
    return [
        *(load_of_fleet(day) if first else ()),
        *refits(day),
        *renames(day),
        *schedule_changes(day, flights, plans),
        *operations_changes(day, flights, plans),
    ]
