"""The schema documents, one per source system: what it speaks of, in which words, and how far it is heard."""

from typing import Any

Field = dict[str, Any]
Mapping = dict[str, Any]
Document = dict[str, Any]

SCHEDULE, SALES, AIRLINE, AIRPORT = 10, 15, 20, 30
# The airport guesses departures, too; whatever the airline says about them is better.
GUESS = 5


def field(reference: str, type_: str = "text", source: str | None = None, **properties: Any) -> Field:
    """Return one field, `sourceReference` only where the source calls it otherwise."""
    called = {} if source is None else {"sourceReference": source}
    return {"reference": reference, **called, "type": type_, **properties}


def link(reference: str, entity: str, by: str, source: str | None = None, **properties: Any) -> Field:
    """Return a link to *entity*, found *by* its key, whose values stand in the fields *source*."""
    called = {} if source is None else {"sourceLinkKey": source}
    return {
        "reference": reference,
        "type": "link",
        "linkEntity": entity,
        "linkKey": by,
        **called,
        **properties,
    }


def children(reference: str, entity: str, parent: str, **properties: Any) -> Field:
    """Return the field that holds the children of a record, which know it as *parent*."""
    return {
        "reference": reference,
        "type": "children",
        "childEntity": entity,
        "parentIdentifier": parent,
        **properties,
    }


def mapping(reference: str, *fields: Field, **properties: Any) -> Mapping:
    """Return the mapping to one target."""
    return {"reference": reference, **properties, "fields": list(fields)}


def system(reference: str, description: str, **mappings: list[Mapping]) -> Document:
    """Return the document of one source system."""
    return {"reference": reference, "description": description, "mappings": mappings}


def flight_key(carrier: str, number: str, origin: str, day: str) -> list[Field]:
    """Return the key of a flight, in the words of one system."""
    return [
        link("carrier", "carrier", "code", carrier, key=True),
        field("flight_number", "integer", number, key=True),
        field("origin", "text", origin, length=3, key=True),
        field("flight_date", "date", day, key=True),
    ]


def withdrawn(source: str) -> Field:
    """Return the field that says, under the name *source*, that a record is a delete."""
    return field("deleted_indicator", "boolean", source)


DEFAULT = system(
    "*",
    "Reference data, published under the names of their targets.",
    carrier=[
        mapping("carrier", field("code", length=2, key=True), field("name", length=60)),
    ],
    airport=[
        mapping(
            "airport",
            field("faa", length=3, key=True),
            field("name"),
            field("latitude", "number"),
            field("longitude", "number"),
            field("altitude", "integer", description="feet"),
            field("time_zone"),
        ),
    ],
)

SCHEDULE_SYSTEM = system(
    "schedule",
    "Publishes today and tomorrow as a whole, each day at 05:00 UTC, and is heard least.",
    planned_flight=[
        mapping(
            "flight",
            *flight_key("carrier_code", "flight_no", "from", "day"),
            link("destination", "airport", "faa", "to", autocreate=True),
            field("scheduled_departure", "timestamp", "std"),
            field("scheduled_arrival", "timestamp", "sta"),
            field("distance", "integer", "miles"),
            field("status", length=12),
            priority=SCHEDULE,
        )
    ],
    service=[
        mapping(
            "route",
            link("carrier", "carrier", "code", "carrier_code", key=True),
            field("origin", "text", "from", length=3, key=True),
            field("destination", "text", "to", length=3, key=True),
            field("flights", "smallint", "daily_flights"),
            field("first_departure", "timestamp", "first"),
            priority=SCHEDULE,
        )
    ],
)

AIRLINE_SYSTEM = system(
    "airline",
    "The carriers' own updates: plane, estimates, cancellations, who is booked.",
    flight=[
        mapping(
            "flight",
            *flight_key("airline", "number", "origin", "date"),
            withdrawn("cancelled"),
            link("destination", "airport", "faa", "to", autocreate=True),
            link("plane", "plane", "tail_number", "tail"),
            field("scheduled_departure", "timestamp", "std"),
            field("scheduled_arrival", "timestamp", "sta"),
            field("estimated_departure", "timestamp", "etd"),
            field("estimated_arrival", "timestamp", "eta"),
            field("actual_departure", "timestamp", "atd"),
            field("actual_arrival", "timestamp", "ata"),
            field("gate", length=4),
            field("status", "text", "state", length=12),
            field("diverted", "boolean"),
            children("bookings", "booking", "flight"),
            priority=AIRLINE,
        )
    ],
    booking=[
        mapping(
            "booking",
            link("flight", "flight", "airline,number,origin,date", key=True),
            field("locator", length=6, key=True),
            link("traveller", "member", "ffn"),
            field("seat", length=4),
            field("fare", "decimal", scale=7, precision=2),
            children("bags", "bag", "booking", childSequence="bag_number"),
            priority=AIRLINE,
        )
    ],
    bag=[
        mapping(
            "bag",
            link("booking", "booking", "airline,number,origin,date,locator", key=True),
            field("bag_number", "smallint", key=True),
            field("weight", "decimal", scale=4, precision=1, description="kg"),
            priority=AIRLINE,
        )
    ],
    member=[
        mapping(
            "traveller",
            field("loyalty_number", "text", "ffn", key="loyalty"),
            field("document_number", "text", "passport", key="document"),
            field("name"),
            priority=AIRLINE,
        )
    ],
)

AIRPORT_SYSTEM = system(
    "airport",
    "The airports of departure: gates and the minute in which a plane leaves its block; heard most.",
    movement=[
        mapping(
            "flight",
            *flight_key("al", "no", "ap", "day"),
            withdrawn("withdrawn"),
            field("gate", length=4, priority=AIRPORT + 10),
            field("actual_departure", "timestamp", "off_block"),
            field("estimated_departure", "timestamp", "guess", priority=GUESS),
            # After take-off the airline knows better, so the later of the two is right.
            field("status", "text", "state", length=12, priority=AIRLINE),
            priority=AIRPORT,
            messageFilters=["without_towing", "designator"],
        ),
        mapping(
            "board",
            field("id", key=True),
            withdrawn("withdrawn"),
            field("designator", "text", "flt", length=7),
            field("gate", length=4),
            field("off_block", "timestamp"),
            field("status", "text", "state", length=12),
            export=True,
            exportIdentifier="id",
            messageFilters=["without_towing", "designator"],
        ),
    ],
)

AIRCRAFT = (
    field("tail_number", "text", "n_number", length=6, key=True),
    field("year_built", "smallint", "built"),
    field("manufacturer", "text", "maker"),
    field("model"),
    field("engines", "smallint"),
    field("engine_type", "text", "engine", length=13),
    field("seats", "smallint"),
)

REGISTRY_SYSTEM = system(
    "registry",
    "The register of planes: a file to begin with, then single entries.",
    register=[mapping("plane", *AIRCRAFT, messageReader="file", messageReaderConfig={"format": "csv"})],
    aircraft=[mapping("plane", *AIRCRAFT)],
)

SALES_SYSTEM = system(
    "sales",
    "Agencies that sell seats. `departure` is never sent: it says how a flight is called here.",
    departure=[
        mapping("flight", *flight_key("carrier_code", "flight_no", "from", "day"), priority=SALES),
    ],
    booking=[
        mapping(
            "booking",
            link("flight", "departure", "carrier_code,flight_no,from,day", key=True),
            field("locator", "text", "record_locator", length=6, key=True),
            withdrawn("refunded"),
            link("traveller", "customer", "document"),
            field("fare", "decimal", "price", scale=7, precision=2),
            priority=SALES,
        )
    ],
    customer=[
        mapping(
            "traveller",
            field("loyalty_number", "text", "card", key="loyalty"),
            field("document_number", "text", "document", key="document"),
            field("name"),
            priority=SALES,
        )
    ],
)

WEATHER_SYSTEM = system(
    "weather",
    "Observations at the airports of departure: facts that are never corrected, six hours to a message.",
    observation=[
        mapping(
            "weather",
            field("batch", key=True),
            field("line", "integer", key=True),
            link("airport", "airport", "faa", "station"),
            field("observed", "timestamp", "time"),
            field("temperature", "decimal", "temp", scale=5, precision=2, description="°F"),
            field("wind_direction", "smallint", "wind_dir", description="degrees"),
            field("wind_speed", "number", description="miles per hour"),
            field("wind_gust", "number", description="miles per hour"),
            field("precipitation", "decimal", "precip", scale=5, precision=2, description="inches"),
            field("pressure", "decimal", scale=5, precision=1, description="millibars"),
            field("visibility", "number", "visib", description="miles"),
            unique=True,
            uniqueIdentifier="batch",
            uniqueSequence="line",
            messageReader="csv",
            messageReaderConfig={"null": "NA"},
        )
    ],
)

DOCUMENTS: dict[str, Document] = {
    "default": DEFAULT,
    "schedule": SCHEDULE_SYSTEM,
    "airline": AIRLINE_SYSTEM,
    "airport": AIRPORT_SYSTEM,
    "registry": REGISTRY_SYSTEM,
    "sales": SALES_SYSTEM,
    "weather": WEATHER_SYSTEM,
}
