"""
What must be known of each flight in the end, said from the decisions about it and not from any message.

Who is heard is written out here case by case, so a hub can be checked by it: it knows no priorities, only
what follows from them.
"""

from datetime import date
from typing import Any, NamedTuple

from tools.hub_samples.airline import rounded
from tools.hub_samples.bookings import Booking, bookings_of
from tools.hub_samples.flights import DAY, REGISTERED, Flight, estimates, gate_of
from tools.samples.replicate.changes import load_instant
from tools.samples.replicate.tables import MINUTE, SECOND


class End(NamedTuple):
    """When a flight was deleted, and by which system."""

    at: int
    system: str


def true_flight(flight: Flight) -> dict[str, Any]:
    """Return what is known of *flight* in the end; instants are microseconds."""
    end = end_of(flight)
    known = _known(flight) if end is None else dict.fromkeys(_known(flight))
    alive = [booking for booking in bookings_of(flight) if _is_alive(booking, end)]
    return {
        "flight_date": (flight.day - date(1970, 1, 1)).days,
        "carrier": flight.carrier,
        "flight_number": flight.number,
        "origin": flight.origin,
        "fate": flight.fate,
        "deleted_by": end and end.system,
        # Messages say instants in whole seconds.
        "deleted_at": end and end.at // SECOND * SECOND,
        **known,
        "bookings": sorted(booking.locator for booking in alive),
        "bags": sum(len(booking.bags) for booking in alive if _has_bags(booking)),
    }


def end_of(flight: Flight) -> End | None:
    """
    Return who deleted the flight, and when; None for one that is still there.

    An airline cancels what no airport has spoken of. What nobody but the schedule has spoken of goes with the
    first schedule without it.
    """
    if flight.fate == "struck":
        return End(load_instant(flight.day), "schedule")
    if flight.fate == "forgotten":
        return End(load_instant(flight.day + DAY), "schedule")
    if flight.withdrawn_at is not None:
        return End(flight.withdrawn_at, "airport")
    return None if flight.cancelled_at is None else End(flight.cancelled_at, "airline")


def _known(flight: Flight) -> dict[str, Any]:
    return {
        "destination": flight.destination,
        # What a cancelled flight had is lost, and the airline that calls it back does not know the distance.
        "distance": None if flight.reinstated_at is not None else flight.distance,
        "status": _status(flight),
        "tail_number": _tail(flight),
        "gate": _gate(flight),
        "estimated_departure": _estimate(flight),
        "actual_departure": _departure(flight),
        "actual_arrival": flight.actual_arrival,
    }


def is_announced(flight: Flight) -> bool:
    """Whether the airline's announcement counts: not if it names a plane that nobody registers."""
    return flight.announced_at is not None and (
        flight.announced_tail is None or flight.announced_tail in REGISTERED
    )


def _status(flight: Flight) -> str:
    if flight.fate == "planned":
        return "scheduled"
    return "diverted" if flight.landed_elsewhere else "arrived"


def _tail(flight: Flight) -> str | None:
    if flight.tail_changed_at is not None and flight.tail in REGISTERED:
        return flight.tail
    return flight.announced_tail if is_announced(flight) else None


def _gate(flight: Flight) -> str | None:
    if flight.gates:
        return flight.gates[-1][1]
    return gate_of(flight, "wished gate") if is_announced(flight) else None


def _estimate(flight: Flight) -> int | None:
    """Return what the airline said last; what the airport guessed only where the airline said nothing."""
    told = [flight.scheduled_departure + minutes * MINUTE for _, minutes in estimates(flight)]
    if told:
        return told[-1]
    if is_announced(flight):
        return flight.scheduled_departure
    if flight.actual_departure is None or not flight.gates:
        return None
    delay = (flight.actual_departure - flight.scheduled_departure) // MINUTE
    return flight.scheduled_departure + delay * 3 // 4 * MINUTE if delay >= 15 else None


def _departure(flight: Flight) -> int | None:
    """Return the airport's minute; the airline's five minutes where the airport keeps silent."""
    if flight.actual_departure is None or flight.gates:
        return flight.actual_departure
    return rounded(flight.actual_departure)


def _is_alive(booking: Booking, end: End | None) -> bool:
    """
    Whether a booking is there in the end.

    They go with the flight, whoever deletes it: airports know of no bookings, and take them all the same.
    The airline's list removes what is not on it.
    """
    if end is not None or booking.kind == "refunded":
        return False
    if is_announced(booking.flight):
        return booking.kind != "bumped"
    return booking.sold_at is not None


def _has_bags(booking: Booking) -> bool:
    """Whether the airline has ever listed the booking: agencies know of no bags."""
    called_back = booking.flight.reinstated_at is not None and booking.kind == "late"
    return is_announced(booking.flight) and (booking.is_listed or called_back)
