"""Bad input, made on purpose: what it is, where it stands, and what a hub must say to it."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from tools.hub_samples.sending import Sent, message, new_york, utc
from tools.samples.replicate.tables import MINUTE, micros

BEGIN = micros(datetime(2013, 2, 8, 15, 2, 30, tzinfo=UTC))


class Damage(NamedTuple):
    """
    One bad message: `status` is what becomes of it, 5 and 22 when it is received, the others in the end.

    `record` numbers the bad record in it and `code` is the error of that record; None where the message as a
    whole is bad or the status says all.
    """

    kind: str
    status: int
    sent: Sent
    record: int | None = None
    code: str | None = None

    @property
    def guid(self) -> str | None:
        """Return the id that the message gives itself; None for what is refused when it is received."""
        if self.status == 22:
            return None
        guid: str | None = json.loads(self.sent.value or b"{}").get("guid")
        return guid


def damaged_messages() -> Iterator[Damage]:
    """Give one bad message of each kind, a minute apart."""
    makers = (*_received(), *_whole(), *_records(), *_waiting())
    for n, damage in enumerate(makers):
        at = BEGIN + n * MINUTE
        yield damage._replace(sent=_moved(damage.sent, at))


def _moved(sent: Sent, at: int) -> Sent:
    return Sent(sent.name, at, sent.topic, sent.key, sent.value)


def _received() -> Iterator[Damage]:
    """Give what is refused when it is received."""
    movement = _movement([_key("VX 11") | {"gate": "A9"}])
    yield Damage("truncated", 22, _raw("truncated", "hub.airport", json.dumps(movement).encode()[:-20]))
    yield Damage("not_utf_8", 22, _raw("not_utf_8", "hub.airport", b'{"entity": "movement", "data": "\xff"}'))
    yield Damage("no_value", 22, _raw("no_value", "hub.airline", None))
    yield Damage("no_object", 22, _raw("no_object", "hub.airline", b"[1, 2]"))
    yield Damage("no_entity", 22, _document("no_entity", "hub.airline", {"system": "airline", "data": []}))
    at = {"timestamp": "half past nine"}
    yield Damage("no_instant", 22, _document("no_instant", "hub.airport", movement | at))
    again = {
        "system": "weather",
        "entity": "observation",
        "guid": "weather/JFK/2013-02-07T12",
        "data": "station,time,temp\nJFK,2013-02-07T12:00:00Z,99.99\n",
    }
    yield Damage("guid_of_another_message", 5, _document("guid", "hub.weather", again))


def _whole() -> Iterator[Damage]:
    """Give what is received, and bad as a whole."""
    railway = {"system": "railway", "entity": "train", "guid": "bad/railway", "data": [{"number": 1}]}
    yield Damage("unknown_system", 23, _document("railway", "hub.airline", railway))
    menu = {"system": "airline", "entity": "menu", "guid": "bad/menu", "data": [{"dish": "soup"}]}
    yield Damage("unknown_entity", 24, _document("menu", "hub.airline", menu))
    words = {"system": "registry", "entity": "aircraft", "guid": "bad/words", "data": "three planes"}
    yield Damage("unreadable", 25, _document("words", "hub.registry", words))


def _records() -> Iterator[Damage]:
    """Give what holds one bad record; the others in it are sound and count."""
    planes = [
        {"n_number": "N383HA", "seats": "377"},
        {"n_number": "N381HA", "seats": "three hundred"},
    ]
    registry = {"system": "registry", "entity": "aircraft", "guid": "bad/seats", "data": planes}
    yield Damage("no_number", 25, _document("seats", "hub.registry", registry), 2, "VALUE_INVALID")
    day = _airline("bad/day", _flight("VX", 11) | {"date": "2013-02-30"})
    yield Damage("no_such_day", 25, _document("day", "hub.airline", day), 1, "VALUE_INVALID")
    loose = _movement([_key("VX 11"), 7], guid="bad/loose")
    yield Damage("no_record", 25, _document("loose", "hub.airport", loose), 2, "RECORD_INVALID")
    # The board shows it all the same: its key is the id.
    nameless = _movement([{"id": "nobody", "gate": "Z9"}], guid="bad/nameless")
    yield Damage("no_key", 25, _document("nameless", "hub.airport", nameless), 1, "KEY_MISSING")
    joined = _movement([_key("VX11")], guid="bad/joined")
    yield Damage("filter_fails", 25, _document("joined", "hub.airport", joined), 1, "FILTER_FAILED")
    some = _airline("bad/some", _flight("VX", 11) | {"bookings": "some"})
    yield Damage("no_children", 25, _document("some", "hub.airline", some), 1, "CHILDREN_INVALID")
    # The card belongs to one traveller and the passport to another.
    two = _airline("bad/two", {"ffn": "LC114", "passport": "P4007919"}, entity="member")
    yield Damage("two_travellers", 25, _document("two", "hub.airline", two), 1, "KEY_AMBIGUOUS")


def _waiting() -> Iterator[Damage]:
    """Give what waits for a flight that never comes; planes that never come are real, and not made here."""
    sold = {
        "carrier_code": "HA",
        "flight_no": 15,
        "from": "JFK",
        "day": "2013-02-09",
        "record_locator": "NOFLHT",
        "document": "P4000000",
        "price": 1,
    }
    document = {"system": "sales", "entity": "booking", "guid": "bad/no/flight", "data": [sold]}
    yield Damage("no_flight", 26, _document("no flight", "hub.sales", document), 1, "LINK_MISSING")


def _document(name: str, topic: str, document: dict[str, Any]) -> Sent:
    return message(f"bad/{name}", BEGIN, topic, document)


def _raw(name: str, topic: str, value: bytes | None) -> Sent:
    return Sent(f"bad/{name}", BEGIN, topic, topic, value)


def _movement(data: list[Any], **more: Any) -> dict[str, Any]:
    at = new_york(BEGIN)
    return {"system": "airport", "entity": "movement", "timestamp": at, **more, "data": data}


def _airline(guid: str, record: dict[str, Any], entity: str = "flight") -> dict[str, Any]:
    return {"system": "airline", "entity": entity, "timestamp": utc(BEGIN), "guid": guid, "data": [record]}


def _flight(carrier: str, number: int) -> dict[str, Any]:
    return {"airline": carrier, "number": number, "origin": "JFK", "date": "2013-02-08", "state": "lost"}


def _key(designator: str) -> dict[str, Any]:
    return {"id": "2013-02-08|VX|11|JFK", "flt": designator, "ap": "JFK", "day": "2013-02-08"}
