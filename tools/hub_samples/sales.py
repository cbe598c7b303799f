"""What the agencies send: who their customers are, what they sell and give back. All of it is invented."""

from collections.abc import Iterator, Sequence
from typing import Any

from tools.hub_samples.bookings import Booking, bookings_of, travellers
from tools.hub_samples.flights import FIRST, Flight
from tools.hub_samples.sending import Record, Sent, message, new_york, plain
from tools.samples.replicate.changes import load_instant
from tools.samples.replicate.tables import HOUR, MINUTE

TOPIC = "hub.sales"
# The agencies know their customers before the airlines know their members.
CUSTOMERS_AT = load_instant(FIRST) - 2 * HOUR
MEMBERS_AT = CUSTOMERS_AT + HOUR
RENEWED_AT = CUSTOMERS_AT + 30 * HOUR
RENEWED = ("LC100", "P9000001")


def sales_messages(flights: Sequence[Flight]) -> Iterator[Sent]:
    """Give the customers, then what is sold and given back."""
    customers = [
        {"document": person.document, "name": person.name}
        for person in travellers()
        if person.document is not None
    ]
    yield _sales("sales/customers", CUSTOMERS_AT, "customer", customers)
    for flight in flights:
        for booking in bookings_of(flight):
            yield from _sold(booking)


def _sold(booking: Booking) -> Iterator[Sent]:
    name = f"sales/{booking.flight.name}/{booking.locator}"
    if booking.sold_at is not None:
        sold = {"document": booking.traveller.document, "price": booking.fare}
        yield _sales(f"{name}/sold", booking.sold_at, "booking", [_key(booking) | sold])
    if booking.refunded_at is not None:
        refund = _key(booking) | {"refunded": "T"}
        yield _sales(f"{name}/refunded", booking.refunded_at, "booking", [refund])


def _key(booking: Booking) -> Record:
    flight = booking.flight
    return {
        "carrier_code": flight.carrier,
        "flight_no": flight.number,
        "from": flight.origin,
        "day": flight.day.isoformat(),
        "record_locator": booking.locator,
    }


def _sales(name: str, at: int, entity: str, data: list[Record]) -> Sent:
    document = {
        "system": "sales",
        "entity": entity,
        "timestamp": new_york(at),
        "guid": name,
        "process": True,
        "data": data,
    }
    return message(name, at, TOPIC, document)


def member_messages() -> Iterator[Sent]:
    """
    Give the airlines' members: those with a passport are the agencies' customers, found by its number.

    A day later one of them has a new passport and is found by the card.
    """
    members = [
        {"ffn": person.card, "name": person.name}
        | ({} if person.document is None else {"passport": person.document})
        for person in travellers()
        if person.card is not None
    ]
    yield _members("airline/members", MEMBERS_AT, members)
    card, document = RENEWED
    yield _members("airline/members/renewed", RENEWED_AT, [{"ffn": card, "passport": document}])


def _members(name: str, at: int, data: list[Record]) -> Sent:
    document: dict[str, Any] = {
        "system": "airline",
        "entity": "member",
        "timestamp": plain(at),
        "guid": name,
        "data": data,
    }
    return message(name, at + MINUTE, "hub.airline", document)
