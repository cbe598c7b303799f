"""What the airports send about departures; they give their messages no ids, and say New York time."""

from collections.abc import Iterator, Sequence
from typing import Any

from tools.hub_samples.flights import Flight, told_after
from tools.hub_samples.sending import Record, Sent, message, new_york
from tools.samples.replicate.tables import MINUTE

TOPIC = "hub.airport"


def airport_messages(flights: Sequence[Flight]) -> Iterator[Sent]:
    """Give gates, guesses, departures, and what is withdrawn, of the flights an airport speaks of."""
    for flight in flights:
        if flight.gates:
            yield from _life(flight)


def _life(flight: Flight) -> Iterator[Sent]:
    for n, (at, gate) in enumerate(flight.gates, start=1):
        yield _about(flight, at, f"gate {n}", {"gate": gate})
    if flight.actual_departure is not None:
        yield from _guess(flight, flight.actual_departure)
        yield _about(flight, flight.actual_departure - 30 * MINUTE, "boarding", {"state": "boarding"})
        at = told_after(flight, flight.actual_departure, "off block")
        fields = {
            "gate": flight.gates[-1][1],
            "off_block": new_york(flight.actual_departure),
            "state": "departed",
        }
        yield _about(flight, at, "off block", fields, towing=flight.draw("towed") < 0.05)
    if flight.withdrawn_at is not None:
        yield _about(flight, flight.withdrawn_at, "withdrawn", {"withdrawn": "Y"})


def _guess(flight: Flight, departure: int) -> Iterator[Sent]:
    """Give what the airport makes of a delay: three quarters of it, half an hour before the departure."""
    delay = (departure - flight.scheduled_departure) // MINUTE
    if delay >= 15:
        guess = flight.scheduled_departure + delay * 3 // 4 * MINUTE
        at = flight.scheduled_departure - 20 * MINUTE
        yield _about(flight, at, "guess", {"guess": new_york(guess)})


def _about(flight: Flight, at: int, what: str, fields: dict[str, Any], *, towing: bool = False) -> Sent:
    data = [_key(flight) | fields]
    if towing:
        # Nobody flies in it, so no hub wants it.
        data.append({"kind": "tow", "ap": flight.origin, "tug": int(flight.draw("tug", 1, 20))})
    document = {
        "system": "airport",
        "entity": "movement",
        "timestamp": new_york(at),
        "options": {"desk": flight.origin},
        "data": data,
    }
    return message(f"airport/{flight.name}/{what}", at, TOPIC, document, key=flight.name)


def _key(flight: Flight) -> Record:
    return {
        "id": flight.name,
        "flt": flight.designator,
        "ap": flight.origin,
        "day": flight.day.isoformat(),
    }
