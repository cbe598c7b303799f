"""What the airlines send about their flights; the instants in it are UTC and say no zone."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tools.hub_samples.bookings import Booking, bookings_of
from tools.hub_samples.flights import REGISTERED, Flight, estimates, gate_of, told_after
from tools.hub_samples.sending import Record, Sent, message, plain
from tools.samples.replicate.tables import HOUR, MINUTE

TOPIC = "hub.airline"


def airline_messages(flights: Sequence[Flight]) -> Iterator[Sent]:
    """Give the messages about single flights, then the cancellations, which can be about several."""
    for flight in flights:
        if flight.announced_at is not None:
            yield from _life(flight, flight.announced_at)
    yield from _cancellations(flights)


def _life(flight: Flight, announced_at: int) -> Iterator[Sent]:
    yield _about(flight, announced_at, "announced", _full(flight), tail=flight.announced_tail)
    if flight.tail_changed_at is not None:
        yield _about(flight, flight.tail_changed_at, "plane", {"tail": flight.tail}, tail=flight.tail)
    if flight.mistaken_at is not None and flight.reinstated_at is not None:
        yield _about(flight, flight.mistaken_at, "cancelled", {"cancelled": "yes"})
        yield _about(flight, flight.reinstated_at, "reinstated", _reinstated(flight, flight.reinstated_at))
    for n, (at, minutes) in enumerate(estimates(flight), start=1):
        yield _about(flight, at, f"estimate {n}", _delayed(flight, minutes))
    if flight.actual_departure is not None:
        yield from _flown(flight, flight.actual_departure)


def _flown(flight: Flight, departure: int) -> Iterator[Sent]:
    off = {"atd": plain(rounded(departure)), "state": "departed"}
    yield _about(flight, told_after(flight, departure, "departure"), "departed", off)
    state = {"state": "diverted", "diverted": "true"} if flight.landed_elsewhere else {"state": "arrived"}
    if flight.actual_arrival is not None:
        landed = {"ata": plain(flight.actual_arrival), **state}
        yield _about(flight, told_after(flight, flight.actual_arrival, "arrival"), "arrived", landed)
    else:
        overdue = flight.scheduled_arrival + (departure - flight.scheduled_departure) + HOUR
        yield _about(flight, overdue, "overdue", state)


def _cancellations(flights: Iterable[Flight]) -> Iterator[Sent]:
    """Give one message per bank: the flights that are cancelled together."""
    banks: defaultdict[tuple[int, str], list[Flight]] = defaultdict(list)
    for flight in flights:
        if flight.cancelled_at is not None:
            banks[flight.cancelled_at, flight.bank].append(flight)
    for (at, bank), together in sorted(banks.items()):
        name = f"airline/cancelled/{bank.replace(' ', '/')}"
        data = [_key(flight) | {"cancelled": "yes"} for flight in together]
        yield message(name, at, TOPIC, _document(name, at, data), key=together[0].name)


def _about(flight: Flight, at: int, what: str, fields: dict[str, Any], *, tail: str | None = None) -> Sent:
    name = f"airline/{flight.name}/{what}"
    lost = tail if tail is not None and tail not in REGISTERED else ""
    return message(name, at, TOPIC, _document(name, at, [_key(flight) | fields]), key=flight.name, lost=lost)


def _document(name: str, at: int, data: list[Record]) -> dict[str, Any]:
    return {"system": "airline", "entity": "flight", "timestamp": plain(at), "guid": name, "data": data}


def _key(flight: Flight) -> Record:
    return {
        "airline": flight.carrier,
        "number": flight.number,
        "origin": flight.origin,
        "date": flight.day.isoformat(),
    }


def _full(flight: Flight) -> Record:
    return _planned(flight) | {"tail": flight.announced_tail} | _listed(flight, with_late=False)


def _reinstated(flight: Flight, at: int) -> Record:
    """Say all of it again, for a cancelled flight has nothing left; only the distance airlines never say."""
    changed = flight.tail_changed_at is not None and flight.tail_changed_at <= at
    tail = flight.tail if changed else flight.announced_tail
    return _planned(flight) | {"tail": tail, "state": "delayed"} | _listed(flight, with_late=True)


def _planned(flight: Flight) -> Record:
    departure, arrival = plain(flight.scheduled_departure), plain(flight.scheduled_arrival)
    return {
        "to": flight.destination,
        "std": departure,
        "sta": arrival,
        "etd": departure,
        "eta": arrival,
        "gate": gate_of(flight, "wished gate"),
        "state": "on time",
    }


def _delayed(flight: Flight, minutes: int) -> Record:
    return {
        "etd": plain(flight.scheduled_departure + minutes * MINUTE),
        "eta": plain(flight.scheduled_arrival + minutes * MINUTE),
        "state": "delayed",
    }


def _listed(flight: Flight, *, with_late: bool) -> dict[str, list[Record]]:
    """Return the list of bookings; a flight without bookings of its own says nothing about them."""
    booked = bookings_of(flight)
    if not booked:
        return {}
    return {"bookings": [_booking(b) for b in booked if b.is_listed or (with_late and b.kind == "late")]}


def _booking(booking: Booking) -> Record:
    traveller = {} if booking.traveller.card is None else {"ffn": booking.traveller.card}
    bags = [{"weight": float(weight)} for weight in booking.bags]
    return {"locator": booking.locator, **traveller, "seat": booking.seat, "fare": booking.fare, "bags": bags}


def rounded(at: int) -> int:
    """Return the airline's idea of a time of departure: the last whole five minutes."""
    return at // (5 * MINUTE) * (5 * MINUTE)
